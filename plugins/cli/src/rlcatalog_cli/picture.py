"""Picture of a lookup: the pipeline, the part chosen for each slot, and the other candidates."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from rlcatalog.errors import MissingExtraError, one_line
from rlcatalog.internals import Section, outline
from rlcatalog.plugins import install_hint

try:
    import drawsvg
except ImportError:
    raise MissingExtraError(
        "drawing a picture needs drawsvg, which is not installed."
        f" {install_hint('rlcatalog-cli[pictures]')}"
    ) from None

#: Widths of the columns for chosen and other parts, of the gap between them and of the margin.
_PARTS, _LOSERS, _GAP, _MARGIN = 430, 600, 34, 20
#: Maximum line lengths in characters: in a box, to its right, and below all boxes.
_IN_BOX, _LOSER, _NOTE = 62, 108, 180
_LINE, _SMALL, _FONT = 17, 15, "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
#: Fill and border colors by distribution, in order of appearance; the environment's boxes are
#: white.
_COLOURS = (
    ("#e3f0fd", "#2b6cb0"), ("#e8f6e9", "#2f855a"), ("#fdeedd", "#b7601f"), ("#f3e8fb", "#7b3fa0"),
    ("#fde7ea", "#b83250"), ("#e2f5f4", "#1f7a78"), ("#f6f2d8", "#85741a"), ("#ececf6", "#4c4f9e"),
)  # fmt: skip
_GREY = "#6b7280"
_PLAIN = ("#ffffff", _GREY)


class _Box:
    """Section of an explanation, wrapped into lines.

    Attributes:
        section: The section.
        lines: The lines inside the box, each with the shape that follows it.
        beside: Lines to the right of the box.
        height: The box's height in pixels.
        room: The height of the row.
    """

    def __init__(self, section: Section) -> None:
        self.section = section
        self.lines = _wrapped(
            [(section.why, section.shape), *((_said(n, t), shape) for n, shape, t in section.lines)]
        )
        self.beside = [
            line for name, why in section.others for line in _pieces(f"{name}: {why}", _LOSER)
        ]
        self.height = 30 + _LINE * len(self.lines)
        self.room = max(self.height, _SMALL * len(self.beside) + 6)


def pipeline_svg(found: Mapping[str, Any]) -> str:
    """Return an SVG picture of an explanation, which is given as plain data."""
    title, sections, named = outline(found, keys=True)
    boxes = [_Box(section) for section in sections]
    notes = [line for note in named for line in _pieces(_said(*note), _NOTE)]
    owners = list(dict.fromkeys(box.section.owner for box in boxes if box.section.owner))
    colours = {owner: _COLOURS[i % len(_COLOURS)] for i, owner in enumerate(owners)} | {"": _PLAIN}
    width = 2 * _MARGIN + _PARTS + _GAP + _LOSERS
    height = (
        2 * _MARGIN
        + sum(box.room + 26 for box in boxes)
        + _LINE * (2 + len(owners))
        + _SMALL * len(notes)
    )
    picture = drawsvg.Drawing(width, height, font_family=_FONT)
    picture.append(drawsvg.Rectangle(0, 0, width, height, fill="#ffffff", rx=8))
    _text(picture, one_line(title, 60), _MARGIN, _MARGIN + 4, 14, _GREY, weight="bold")
    _text(picture, "not chosen", _MARGIN + _PARTS + _GAP, _MARGIN + 4, 14, _GREY, weight="bold")
    y = _MARGIN + _LINE
    for index, box in enumerate(boxes):
        _draw(picture, box, y, colours[box.section.owner])
        if index < len(boxes) - 1:
            _arrow(picture, y + box.height, y + box.room + 26)
        y += box.room + 26
    for note in notes:
        _text(picture, note, _MARGIN, y, 11, _GREY)
        y += _SMALL
    for owner in owners:
        fill, border = colours[owner]
        picture.append(drawsvg.Rectangle(_MARGIN, y, 12, 12, fill=fill, stroke=border, rx=2))
        _text(picture, owner, _MARGIN + 20, y + 10, 12, "#374151")
        y += _LINE
    return str(picture.as_svg(header=""))


def _said(name: str, text: str) -> str:
    return f"{name}: {text}" if text else name


def _pieces(text: str, most: int) -> list[str]:
    """Return a text wrapped into lines of at most `most` characters."""
    return textwrap.wrap(one_line(text, 1_000), most, break_on_hyphens=False) or [""]


def _wrapped(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return lines that fit into a box, with each shape next to the last line of its text."""
    fitting = []
    for text, shape in lines:
        *before, last = _pieces(text, _IN_BOX - len(shape))
        fitting += [*((piece, "") for piece in before), (last, shape)]
    return fitting


def _draw(picture: drawsvg.Drawing, box: _Box, y: int, colour: tuple[str, str]) -> None:
    fill, border = colour
    picture.append(
        drawsvg.Rectangle(_MARGIN, y, _PARTS, box.height, fill=fill, stroke=border, rx=6)
    )
    _text(
        picture, one_line(box.section.title, 52), _MARGIN + 12, y + 20, 14, "#111827", weight="bold"
    )
    for index, (text, shape) in enumerate(box.lines, 1):
        at = y + 20 + _LINE * index
        _text(picture, text, _MARGIN + 12, at, 12, "#374151")
        if shape:
            _text(picture, shape, _MARGIN + _PARTS - 12, at, 12, "#111827", anchor="end")
    for index, text in enumerate(box.beside):
        _text(picture, text, _MARGIN + _PARTS + _GAP, y + 14 + _SMALL * index, 11, _GREY)


def _arrow(picture: drawsvg.Drawing, top: int, bottom: int) -> None:
    x = _MARGIN + _PARTS // 2
    picture.append(drawsvg.Line(x, top, x, bottom - 7, stroke=_GREY))
    picture.append(
        drawsvg.Lines(x - 4, bottom - 8, x + 4, bottom - 8, x, bottom - 1, close=True, fill=_GREY)
    )


def _text(
    picture: drawsvg.Drawing,
    text: str,
    x: int,
    y: int,
    size: int,
    colour: str,
    weight: str = "normal",
    anchor: str = "start",
) -> None:
    picture.append(
        drawsvg.Text(text, size, x, y, fill=colour, font_weight=weight, text_anchor=anchor)
    )
