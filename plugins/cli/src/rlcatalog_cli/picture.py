"""Picture of a lookup: the way from observation to action, and the part in each slot."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlcatalog.errors import MissingExtraError, one_line
from rlcatalog.internals import Line, Section, outline
from rlcatalog.plugins import install_hint

try:
    import drawsvg
except ImportError:
    raise MissingExtraError(
        "drawing a picture needs drawsvg, which is not installed."
        f" {install_hint('rlcatalog-cli[pictures]')}"
    ) from None

#: Width of the margin around the picture.
_MARGIN = 12
#: Width of the boxes. With margins and lanes, a picture is 400 pixels wide, which a phone shows
#: almost in full size.
_BOX_WIDTH = 344
#: Width of the lanes to the right of the boxes, for lines that pass some boxes by.
_LANES_WIDTH = 32
#: Distance of a lane from the boxes.
_LANE_OF_MASK = 22
_LANE_OF_CRITIC = 12
#: Distance by which a critic's boxes are narrower on the left, where the policy's line passes.
_INDENT = 28
#: Width of the column with the parts that were not chosen.
_OTHERS_WIDTH = 640
#: Distance between a box's border and its text.
_PADDING = 10
#: Distance between branches.
_GAP = 8
#: Height of an arrow between two boxes, and of one to or from branches.
_ARROW_HEIGHT = 24
_FAN_HEIGHT = 32

#: Most branches that are drawn side by side; more are lines of a box.
_MOST_BRANCHES = 3
#: Maximum number of characters of the picture's title, of a box's title, and of a line in a box.
_IN_PICTURE_TITLE = 42
_IN_TITLE = 38
_IN_BOX = 48
#: The same for a line of another column.
_IN_OTHERS = 108
#: Width of a character in branches and notes, where the lines are of different lengths. This is
#: enough for DejaVu Sans, one of the widest fonts, and for its bold letters.
_CHARACTER = 6.4
_BOLD_CHARACTER = 8.0

#: Height of a line in a box, and of a smaller one.
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
_DASHED = "4 3"

#: The sections beside the way from observation to action.
_TOPICS_OF_CRITIC = ("critic", "critic memory")
#: The path of a leaf of an observation or of a part of an action, as in `obs['camera']`.
_PATH = re.compile(r"\b(?:obs|action)((?:\['[^']*'\])+)")


class _Point(NamedTuple):
    x: float
    y: float


class _Box:
    """Section of an explanation, wrapped into lines.

    Attributes:
        section: The section.
        left: The box's left border.
        width: Its width.
        lines: The lines inside the box, each with the shape that follows it.
        beside: Lines to the right of the box.
        height: The box's height in pixels.
        height_of_row: The height of the box and of the lines beside it, whichever is higher.
        top: The box's upper border, which `_place` sets.
    """

    def __init__(self, section: Section, *, lists_branches: bool, shows_others: bool) -> None:
        self.section = section
        indent = _INDENT if section.topic in _TOPICS_OF_CRITIC else 0
        self.left = _MARGIN + indent
        self.width = _BOX_WIDTH - indent
        listed = [*section.branches, *section.lines] if lists_branches else section.lines
        self.lines = _wrap_beside_shape(section.why, section.shape)
        for name, shape, text in listed:
            self.lines += _wrap_beside_shape(_name_and_text(name, text), shape)
        self.beside = []
        if shows_others:
            for name, why in section.others:
                self.beside += _wrap(f"{name}: {why}", _IN_OTHERS)
        height_of_title = 30
        self.height = height_of_title + _LINE * len(self.lines)
        margin_of_others = 6
        height_of_others = _SMALL_LINE * len(self.beside) + margin_of_others
        self.height_of_row = max(self.height, height_of_others)
        self.top = 0.0

    @property
    def entries(self) -> list[_Point]:
        """Where lines from above end."""
        return [_Point(self.left + self.width / 2, self.top)]

    @property
    def exits(self) -> list[_Point]:
        """Where lines to the next row begin."""
        return [_Point(self.left + self.width / 2, self.top + self.height)]

    @property
    def right_side(self) -> _Point:
        """Where lines of the lanes begin and end."""
        return _Point(self.left + self.width, self.top + self.height / 2)


class _Branch:
    """A leaf of an observation, or a part of an action.

    Attributes:
        left: The branch's left border.
        width: Its width.
        title: The lines of its name.
        lines: The lines below.
    """

    def __init__(self, line: Line, index: int, num_branches: int) -> None:
        self.width = (_BOX_WIDTH - _GAP * (num_branches - 1)) / num_branches
        self.left = _MARGIN + index * (self.width + _GAP)
        room = self.width - 2 * _PADDING
        self.title = _wrap(_shorten_paths(line.name), int(room / _BOLD_CHARACTER))
        self.lines = []
        for text in (line.shape, line.note):
            if text:
                self.lines += _wrap(_shorten_paths(text), int(room / _CHARACTER))

    @property
    def middle(self) -> float:
        """The x of its middle."""
        return self.left + self.width / 2

    @property
    def height(self) -> float:
        """The height that its text needs."""
        return 14 + _SMALL_LINE * (len(self.title) + len(self.lines))


class _Fan:
    """Branches beside each other, as a row of the picture.

    Attributes:
        section: The section that they belong to.
        branches: The branches.
        mask: The branch that does not go on to the next row, or None.
        height: The height of all branches.
        top: Their upper border, which `_place` sets.
    """

    def __init__(self, section: Section, lines: Sequence[Line], *, has_mask: bool) -> None:
        self.section = section
        self.branches = [_Branch(line, i, len(lines)) for i, line in enumerate(lines)]
        self.mask = self.branches[-1] if has_mask else None
        self.height = max(branch.height for branch in self.branches)
        self.height_of_row = self.height
        self.top = 0.0

    @property
    def entries(self) -> list[_Point]:
        """Where lines from above end."""
        return [_Point(branch.middle, self.top) for branch in self.branches]

    @property
    def exits(self) -> list[_Point]:
        """Where lines to the next row begin."""
        bottom = self.top + self.height
        return [_Point(b.middle, bottom) for b in self.branches if b is not self.mask]


_Row = _Box | _Fan


def pipeline_svg(explanation: Mapping[str, Any], *, all: bool = False) -> str:
    """Return an SVG picture of an explanation, which is given as plain data.

    Args:
        explanation: The explanation, `Explanation.as_dict`.
        all: Also show empty slots, the parts that were not chosen, and the config keys that each
            part reads.
    """
    title, overview, sections, named_notes = outline(explanation, keys=all)
    topics = {section.topic for section in sections}
    # The boxes show the rest of the overview.
    named_notes = [entry for entry in overview if entry[0] not in topics] + named_notes
    if not all:
        sections = [section for section in sections if not section.is_empty_slot]
    rows = list(_rows(sections, shows_others=all))
    owners = list(dict.fromkeys(row.section.owner for row in rows if row.section.owner))
    colours = {"": _COLOURS_OF_ENVIRONMENT}
    for owner, owner_colours in zip(owners, itertools.cycle(_COLOURS), strict=False):
        colours[owner] = owner_colours

    width = 2 * _MARGIN + _BOX_WIDTH + _LANES_WIDTH
    if all:
        width += _OTHERS_WIDTH
    notes = []
    for name, text in named_notes:
        notes += _wrap(_name_and_text(name, text), int((width - 2 * _MARGIN) / _CHARACTER))
    top_of_rows = _MARGIN + _LINE + 6
    top_of_notes = _place(rows, top_of_rows)
    top_of_owners = top_of_notes + _SMALL_LINE * len(notes)
    height = top_of_owners + _LINE * len(owners) + _MARGIN
    picture = drawsvg.Drawing(width, height, font_family=_FONT)
    picture.append(drawsvg.Rectangle(0, 0, width, height, fill=_WHITE, rx=8))
    _draw_header(picture, one_line(title, _IN_PICTURE_TITLE), _MARGIN)
    if all:
        _draw_header(picture, "not chosen", _left_of_others())
    _draw_lines(picture, rows)
    for row in rows:
        if isinstance(row, _Box):
            _draw_box(picture, row, colours[row.section.owner])
        else:
            _draw_fan(picture, row, colours[row.section.owner])
    y = top_of_notes
    for note in notes:
        _draw_text(picture, note, _MARGIN, y, size=11, colour=_GREY)
        y += _SMALL_LINE
    # The legend: a small square in each distribution's colours, beside its name.
    for owner in owners:
        fill, border = colours[owner]
        picture.append(drawsvg.Rectangle(_MARGIN, y - 9, 12, 12, fill=fill, stroke=border, rx=2))
        _draw_text(picture, owner, _MARGIN + 20, y + 1, size=12, colour=_DARK_GREY)
        y += _LINE
    return str(picture.as_svg(header=""))


def _rows(sections: Sequence[Section], *, shows_others: bool) -> Iterator[_Row]:
    """Yield the rows of the picture: a box for each section, and branches where there are a few."""
    leaves: list[Line] = []
    mask: Sequence[Line] = ()
    for section in sections:
        if section.topic == "observation":
            mask = section.branches
        if section.topic == "preprocessor":
            leaves = [*section.branches, *mask]
    has_fan_of_leaves = 1 < len(leaves) <= _MOST_BRANCHES
    for section in sections:
        branches: Sequence[Line] = section.branches
        if section.topic == "action_dist":
            has_fan = 1 < len(branches) <= _MOST_BRANCHES
        else:
            has_fan = has_fan_of_leaves
        box = _Box(section, lists_branches=not has_fan, shows_others=shows_others)
        if section.topic == "preprocessor" and has_fan:
            yield _Fan(section, leaves, has_mask=bool(mask))
        yield box
        if section.topic == "action_dist" and has_fan:
            yield _Fan(section, branches, has_mask=False)


def _place(rows: Sequence[_Row], top: float) -> float:
    """Place the rows below each other, and return the y of the first line below them."""
    y = top
    for row, following in itertools.zip_longest(rows, rows[1:]):
        row.top = y
        is_at_fan = isinstance(row, _Fan) or isinstance(following, _Fan)
        y += row.height_of_row + (_FAN_HEIGHT if is_at_fan else _ARROW_HEIGHT)
    return y


def _draw_lines(picture: drawsvg.Drawing, rows: Sequence[_Row]) -> None:
    """Draw the lines between the rows, and those of the mask and of a critic."""
    way = [row for row in rows if row.section.topic not in _TOPICS_OF_CRITIC]
    critic = [row for row in rows if row.section.topic in _TOPICS_OF_CRITIC]
    for row, following in itertools.pairwise(way):
        passes_critic = bool(critic) and row.top < critic[0].top < following.top
        for start in row.exits:
            for end in following.entries:
                if passes_critic:
                    x = _MARGIN + _INDENT / 2
                    _draw_arrow(picture, _around(start, end, x, bend=_ARROW_HEIGHT / 2), end)
                else:
                    _draw_arrow(picture, _curve(start, end), end)
    for row, following in itertools.pairwise(critic):
        _draw_arrow(picture, _curve(row.exits[0], following.entries[0]), following.entries[0])

    boxes = {row.section.topic: row for row in rows if isinstance(row, _Box)}
    for row in rows:
        if isinstance(row, _Fan) and row.mask is not None:
            start = _Point(row.mask.left + row.mask.width, row.top + row.height / 2)
            end = boxes["action_dist"].right_side
            _draw_lane(picture, start, end, _LANE_OF_MASK, dash=_DASHED)
    if critic:
        source = boxes.get("filter", boxes["preprocessor"])
        end = boxes["critic"].right_side
        _draw_lane(picture, source.right_side, end, _LANE_OF_CRITIC, dash=None)


def _curve(start: _Point, end: _Point) -> str:
    """Return the path of a line that leads down."""
    tip = end.y - 6  # where the head of the arrow begins
    middle = (start.y + tip) / 2
    return f"M{start.x},{start.y}C{start.x},{middle},{end.x},{middle},{end.x},{tip}"


def _around(start: _Point, end: _Point, x: float, *, bend: float) -> str:
    """Return the path of a line that leads down at a given x, beside the boxes between."""
    return f"M{start.x},{start.y}v{bend}H{x}V{end.y - bend}H{end.x}V{end.y - 6}"


def _draw_arrow(picture: drawsvg.Drawing, path: str, end: _Point) -> None:
    picture.append(drawsvg.Path(path, fill="none", stroke=_GREY, stroke_width=1.3))
    head = (end.x - 4, end.y - 7, end.x + 4, end.y - 7, end.x, end.y - 1)
    picture.append(drawsvg.Lines(*head, close=True, fill=_GREY))


def _draw_lane(
    picture: drawsvg.Drawing, start: _Point, end: _Point, lane: float, *, dash: str | None
) -> None:
    """Draw an arrow that passes boxes by, in a lane to their right."""
    x = _MARGIN + _BOX_WIDTH + lane
    path = f"M{start.x},{start.y}H{x}V{end.y}H{end.x + 6}"
    picture.append(
        drawsvg.Path(path, fill="none", stroke=_GREY, stroke_width=1.3, stroke_dasharray=dash)
    )
    head = (end.x + 7, end.y - 4, end.x + 7, end.y + 4, end.x + 1, end.y)
    picture.append(drawsvg.Lines(*head, close=True, fill=_GREY))


def _draw_header(picture: drawsvg.Drawing, text: str, x: float) -> None:
    _draw_text(picture, text, x, _MARGIN + 10, size=13, colour=_GREY, bold=True)


def _draw_box(picture: drawsvg.Drawing, box: _Box, colours: tuple[str, str]) -> None:
    fill, border = colours
    y = box.top
    picture.append(
        drawsvg.Rectangle(box.left, y, box.width, box.height, fill=fill, stroke=border, rx=6)
    )
    title = one_line(box.section.title, _IN_TITLE)
    x = box.left + _PADDING
    _draw_text(picture, title, x, y + 20, size=14, colour=_BLACK, bold=True)
    for index, (text, shape) in enumerate(box.lines, 1):
        y_of_line = y + 20 + _LINE * index
        _draw_text(picture, text, x, y_of_line, size=12, colour=_DARK_GREY)
        if shape:
            right = box.left + box.width - _PADDING
            _draw_text(picture, shape, right, y_of_line, size=12, colour=_BLACK, anchor="end")
    for index, text in enumerate(box.beside):
        y_of_line = y + 14 + _SMALL_LINE * index
        _draw_text(picture, text, _left_of_others(), y_of_line, size=11, colour=_GREY)


def _draw_fan(picture: drawsvg.Drawing, fan: _Fan, colours: tuple[str, str]) -> None:
    for branch in fan.branches:
        fill, border = colours
        dash = None
        if branch is fan.mask:
            fill, border = _COLOURS_OF_ENVIRONMENT
            dash = _DASHED
        picture.append(
            drawsvg.Rectangle(
                branch.left,
                fan.top,
                branch.width,
                fan.height,
                fill=fill,
                stroke=border,
                rx=6,
                stroke_dasharray=dash,
            )
        )
        x = branch.left + _PADDING
        y = fan.top + 4
        for text in branch.title:
            y += _SMALL_LINE
            _draw_text(picture, text, x, y, size=12, colour=_BLACK, bold=True)
        for text in branch.lines:
            y += _SMALL_LINE
            _draw_text(picture, text, x, y, size=11, colour=_DARK_GREY)


def _left_of_others() -> float:
    """Return the left border of the column with the parts that were not chosen."""
    return _MARGIN + _BOX_WIDTH + _LANES_WIDTH + 4


def _shorten_paths(text: str) -> str:
    """Return a text with `camera` for `obs['camera']`: a branch is narrow."""

    def join_keys(match: re.Match[str]) -> str:
        return ".".join(re.findall(r"\['([^']*)'\]", match[1]))

    return _PATH.sub(join_keys, text)


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


def _draw_text(
    picture: drawsvg.Drawing,
    text: str,
    x: float,
    y: float,
    *,
    size: int,
    colour: str,
    bold: bool = False,
    anchor: str = "start",
) -> None:
    weight = "bold" if bold else "normal"
    picture.append(
        drawsvg.Text(text, size, x, y, fill=colour, font_weight=weight, text_anchor=anchor)
    )
