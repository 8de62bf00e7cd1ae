"""Boxes, texts and frames of the pictures that `pictures.py` and `thumbnails.py` draw, and their
dark colours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

LINE = "#2b6cb0"
TEXT = "#374151"
GRID = "#d1d5db"
FILL = "#e3f0fd"
#: Colour of a picture → the one in its place where the reader prefers dark colours.
DARK = {
    "#fff": "#131416",
    "#ffffff": "#131416",
    # Texts and lines.
    "#111827": "#f3f4f6",
    "#374151": "#d1d5db",
    "#6b7280": "#9ca3af",
    "#d1d5db": "#3f4348",
    # Boxes and their borders: as many pairs as `rlcatalog_cli.picture` has.
    "#e3f0fd": "#14283d",
    "#2b6cb0": "#63a4e8",
    "#e8f6e9": "#15301f",
    "#2f855a": "#5bbd87",
    "#fdeedd": "#38240f",
    "#b7601f": "#e0975a",
    "#f3e8fb": "#2b1b38",
    "#7b3fa0": "#b98ad8",
    "#fde7ea": "#3b1620",
    "#b83250": "#e8788f",
    "#e2f5f4": "#12302f",
    "#1f7a78": "#4fb3b0",
    "#f6f2d8": "#332c0c",
    "#85741a": "#c9b445",
    "#ececf6": "#20213a",
    "#4c4f9e": "#9498e0",
}
_COLOUR = re.compile(r'\b(fill|stroke)="(#\w+)"')


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
    """Return a picture with a thin frame, which is white, or dark where the reader prefers that.

    It has no line break at its end.
    """
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif"'
        f' fill="{TEXT}">'
    )
    frame = (
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="#fff"'
        f' stroke="{GRID}"/>'
    )
    return with_dark_colours("\n".join([head, frame, *body, "</svg>"]))


def with_dark_colours(svg: str) -> str:
    """Return a picture that has dark colours where the reader prefers them.

    Args:
        svg: The picture, whose colours are attributes and in `DARK`.
    """
    rules = []
    for attribute, colour in sorted(set(_COLOUR.findall(svg))):
        rules.append(f'[{attribute}="{colour}"] {{ {attribute}: {DARK[colour]}; }}')
    media = "@media (prefers-color-scheme: dark)"
    style = "\n".join(["<style>", f"{media} {{", *rules, "}", "</style>"])
    first_tag, bracket, rest = svg.partition(">")
    return f"{first_tag}{bracket}\n{style}{rest}"
