"""Boxes, texts and frames of the pictures that `pictures.py` and `thumbnails.py` draw, and their
colours on dark screens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

LINE = "#2b6cb0"
TEXT = "#374151"
GRID = "#d1d5db"
FILL = "#e3f0fd"


def box(x: float, y: float, width: float, height: float) -> str:
    """Return a box with its upper left corner at a point."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} rx="3" fill="{FILL}" stroke="{LINE}"/>'


def words(x: float, y: float, text: str, anchor: str = "start", size: int = 11) -> str:
    """Return a text whose anchor is at a point."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        f' font-size="{size}">{escape(text)}</text>'
    )


def picture(body: Sequence[str], width: float, height: float) -> str:
    """Return a white picture with a thin frame, without a line break at its end."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif"'
        f' fill="{TEXT}">'
    )
    frame = (
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="#fff"'
        f' stroke="{GRID}"/>'
    )
    return "\n".join([head, frame, *body, "</svg>"])


#: Each colour of a picture → its colour on a dark screen.
_DARK_COLOURS = {
    # The background, and from black to light grey.
    "#fff": "#0d1117",
    "#ffffff": "#0d1117",
    "#111827": "#f3f4f6",
    "#374151": "#d1d5db",
    "#6b7280": "#9ca3af",
    "#d1d5db": "#374151",
    # The fill of boxes: blue, green, orange, violet, red, cyan, yellow, and indigo.
    "#e3f0fd": "#172f4d",
    "#e8f6e9": "#173824",
    "#fdeedd": "#43290f",
    "#f3e8fb": "#35204a",
    "#fde7ea": "#47172a",
    "#e2f5f4": "#123b3a",
    "#f6f2d8": "#3a3410",
    "#ececf6": "#25264f",
    # Their borders, in the same order.
    "#2b6cb0": "#63b3ed",
    "#2f855a": "#68d391",
    "#b7601f": "#f6ad55",
    "#7b3fa0": "#c4a1e6",
    "#b83250": "#f687a3",
    "#1f7a78": "#5fd3cf",
    "#85741a": "#d9c64b",
    "#4c4f9e": "#a3a6f0",
}


def with_dark_variant(svg: str) -> str:
    """Return a picture that also has colours for dark screens, which browsers choose by
    themselves.

    Args:
        svg: The picture; its colours are in the attributes `fill` and `stroke`.

    Raises:
        KeyError: A colour has no dark one.
    """
    rules = []
    for attribute, colour in sorted(set(re.findall(r'(fill|stroke)="(#[0-9a-f]+)"', svg))):
        rules.append(f'[{attribute}="{colour}"]{{{attribute}:{_DARK_COLOURS[colour]}}}')
    style = f"<style>@media (prefers-color-scheme:dark){{{''.join(rules)}}}</style>"
    head, _, body = svg.partition(">\n")
    return f"{head}>\n{style}\n{body}"
