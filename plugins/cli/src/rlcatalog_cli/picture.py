"""Picture of a lookup: the pipeline, the part chosen for each slot, and the other candidates."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping
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

#: Width of the boxes with chosen parts.
_BOX_WIDTH = 430
#: Width of the column to their right, with the parts that were not chosen.
_OTHERS_WIDTH = 600
#: Width of the gap between these columns.
_GAP = 34
#: Width of the margin around the picture.
_MARGIN = 20
#: Distance between a box's border and its text.
_PADDING = 12
#: Space below each box, with its arrow.
_ARROW_HEIGHT = 26

#: Maximum number of characters of a line in a box.
_IN_BOX = 62
#: The same to its right.
_IN_OTHERS = 108
#: The same below all boxes.
_IN_NOTE = 180

#: Height of a line in a box, and of one outside.
_LINE = 17
_SMALL_LINE = 15
_FONT = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"

#: Fill and border colors by distribution, in order of appearance; the environment's boxes are
#: white.
_COLOURS = (
    ("#e3f0fd", "#2b6cb0"), ("#e8f6e9", "#2f855a"), ("#fdeedd", "#b7601f"), ("#f3e8fb", "#7b3fa0"),
    ("#fde7ea", "#b83250"), ("#e2f5f4", "#1f7a78"), ("#f6f2d8", "#85741a"), ("#ececf6", "#4c4f9e"),
)  # fmt: skip
_GREY = "#6b7280"
_DARK_GREY = "#374151"
_BLACK = "#111827"
_WHITE = "#ffffff"
_COLOURS_OF_ENVIRONMENT = (_WHITE, _GREY)


class _Box:
    """Section of an explanation, wrapped into lines.

    Attributes:
        section: The section.
        lines: The lines inside the box, each with the shape that follows it.
        beside: Lines to the right of the box.
        height: The box's height in pixels.
        height_of_row: The height of the box and of the lines beside it, whichever is higher.
    """

    def __init__(self, section: Section) -> None:
        self.section = section
        self.lines = _wrap_beside_shape(section.why, section.shape)
        for name, shape, text in section.lines:
            self.lines += _wrap_beside_shape(_name_and_text(name, text), shape)
        self.beside = []
        for name, why in section.others:
            self.beside += _wrap(f"{name}: {why}", _IN_OTHERS)
        height_of_title = 30
        self.height = height_of_title + _LINE * len(self.lines)
        margin_of_others = 6
        height_of_others = _SMALL_LINE * len(self.beside) + margin_of_others
        self.height_of_row = max(self.height, height_of_others)


def pipeline_svg(explanation: Mapping[str, Any]) -> str:
    """Return an SVG picture of an explanation, which is given as plain data."""
    # The notes below the boxes include the config keys that each part reads.
    title, overview, sections, named_notes = outline(explanation, keys=True)
    boxes = [_Box(section) for section in sections]
    notes = _wrap(", ".join(f"{name}: {text}" for name, text in overview), _IN_NOTE)
    for name, text in named_notes:
        notes += _wrap(_name_and_text(name, text), _IN_NOTE)
    owners = list(dict.fromkeys(box.section.owner for box in boxes if box.section.owner))
    colours = {"": _COLOURS_OF_ENVIRONMENT}
    for owner, owner_colours in zip(owners, itertools.cycle(_COLOURS), strict=False):
        colours[owner] = owner_colours

    width = 2 * _MARGIN + _BOX_WIDTH + _GAP + _OTHERS_WIDTH
    height_of_title = _LINE
    height_of_boxes = sum(box.height_of_row + _ARROW_HEIGHT for box in boxes)
    height_of_notes = _SMALL_LINE * len(notes)
    height_of_owners = _LINE * (len(owners) + 1)  # with an empty line at the end
    height = 2 * _MARGIN + height_of_title + height_of_boxes + height_of_notes + height_of_owners
    picture = drawsvg.Drawing(width, height, font_family=_FONT)
    picture.append(drawsvg.Rectangle(0, 0, width, height, fill=_WHITE, rx=8))
    y = _MARGIN + 4
    short_title = one_line(title, 60)
    _draw_text(picture, short_title, _MARGIN, y, size=14, colour=_GREY, weight="bold")
    x_of_others = _MARGIN + _BOX_WIDTH + _GAP
    _draw_text(picture, "not chosen", x_of_others, y, size=14, colour=_GREY, weight="bold")

    y = _MARGIN + _LINE
    for index, box in enumerate(boxes):
        _draw_box(picture, box, y, colours[box.section.owner])
        y_of_next_box = y + box.height_of_row + _ARROW_HEIGHT
        is_last = index == len(boxes) - 1
        if not is_last:
            _draw_arrow(picture, y + box.height, y_of_next_box)
        y = y_of_next_box
    for note in notes:
        _draw_text(picture, note, _MARGIN, y, size=11, colour=_GREY)
        y += _SMALL_LINE
    # The legend: a small square in each distribution's colours, beside its name.
    for owner in owners:
        fill, border = colours[owner]
        picture.append(drawsvg.Rectangle(_MARGIN, y, 12, 12, fill=fill, stroke=border, rx=2))
        _draw_text(picture, owner, _MARGIN + 20, y + 10, size=12, colour=_DARK_GREY)
        y += _LINE
    return str(picture.as_svg(header=""))


def _name_and_text(name: str, text: str) -> str:
    if not text:
        return name
    return f"{name}: {text}"


def _wrap(text: str, most: int) -> list[str]:
    """Return a text wrapped into lines of at most `most` characters."""
    return textwrap.wrap(one_line(text, 1_000), most, break_on_hyphens=False) or [""]


def _wrap_beside_shape(text: str, shape: str) -> list[tuple[str, str]]:
    """Return lines that fit into a box, with the shape next to the last line of the text."""
    *first_lines, last_line = _wrap(text, _IN_BOX - len(shape))
    lines = [(line, "") for line in first_lines]
    lines.append((last_line, shape))
    return lines


def _draw_box(picture: drawsvg.Drawing, box: _Box, y: int, colours: tuple[str, str]) -> None:
    fill, border = colours
    picture.append(
        drawsvg.Rectangle(_MARGIN, y, _BOX_WIDTH, box.height, fill=fill, stroke=border, rx=6)
    )
    title = one_line(box.section.title, 52)
    x = _MARGIN + _PADDING
    _draw_text(picture, title, x, y + 20, size=14, colour=_BLACK, weight="bold")
    for index, (text, shape) in enumerate(box.lines, 1):
        y_of_line = y + 20 + _LINE * index
        _draw_text(picture, text, x, y_of_line, size=12, colour=_DARK_GREY)
        if shape:
            right = _MARGIN + _BOX_WIDTH - _PADDING
            _draw_text(picture, shape, right, y_of_line, size=12, colour=_BLACK, anchor="end")
    x_of_others = _MARGIN + _BOX_WIDTH + _GAP
    for index, text in enumerate(box.beside):
        y_of_line = y + 14 + _SMALL_LINE * index
        _draw_text(picture, text, x_of_others, y_of_line, size=11, colour=_GREY)


def _draw_arrow(picture: drawsvg.Drawing, top: int, bottom: int) -> None:
    x = _MARGIN + _BOX_WIDTH // 2
    picture.append(drawsvg.Line(x, top, x, bottom - 7, stroke=_GREY))
    picture.append(
        drawsvg.Lines(x - 4, bottom - 8, x + 4, bottom - 8, x, bottom - 1, close=True, fill=_GREY)
    )


def _draw_text(
    picture: drawsvg.Drawing,
    text: str,
    x: int,
    y: int,
    *,
    size: int,
    colour: str,
    weight: str = "normal",
    anchor: str = "start",
) -> None:
    picture.append(
        drawsvg.Text(text, size, x, y, fill=colour, font_weight=weight, text_anchor=anchor)
    )
