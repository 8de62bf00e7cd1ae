"""Boxes, texts and frames of the pictures that `pictures.py` and `thumbnails.py` draw."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

LINE, TEXT, GRID, FILL = "#2b6cb0", "#374151", "#d1d5db", "#e3f0fd"


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
