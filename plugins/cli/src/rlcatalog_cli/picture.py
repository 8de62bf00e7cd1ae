"""A lookup as a picture: the way from observation to action, who fills each slot, and who did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcatalog.errors import MissingExtraError, one_line
from rlcatalog.internals import SHOWN_SLOTS, provider, shape_rows

try:
    import drawsvg
except ImportError:
    raise MissingExtraError(
        "drawsvg, which draws the picture, is not installed: pip install 'rlcatalog-cli[pictures]'."
    ) from None

#: Widths of the column of parts, of the column of those that lost, and of what stands between and around.
_PARTS, _LOSERS, _GAP, _MARGIN = 430, 470, 34, 20
_LINE, _FONT = 17, "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
#: Fills and borders of distributions, in the order in which they appear; what is the environment's is white.
_COLOURS = (
    ("#e3f0fd", "#2b6cb0"), ("#e8f6e9", "#2f855a"), ("#fdeedd", "#b7601f"), ("#f3e8fb", "#7b3fa0"),
    ("#fde7ea", "#b83250"), ("#e2f5f4", "#1f7a78"), ("#f6f2d8", "#85741a"), ("#ececf6", "#4c4f9e"),
)  # fmt: skip
_GREY = "#6b7280"
_PLAIN = ("#ffffff", _GREY)
#: The most losers that are drawn beside a slot.
_MOST = 6


@dataclass
class _Box:
    """A part of the way.

    Attributes:
        title: Its name.
        lines: What it does, line by line: text, and the shape behind it.
        owner: Its distribution; empty for what is the environment's.
        beside: Those that did not win: name and reason.
    """

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    owner: str = ""
    beside: list[tuple[str, str]] = field(default_factory=list)

    @property
    def height(self) -> int:
        """Its height in pixels."""
        return 30 + _LINE * len(self.lines)

    @property
    def room(self) -> int:
        """The height of its row."""
        return max(self.height, _LINE * len(self.beside) + 6)


def pipeline_svg(found: Mapping[str, Any]) -> str:
    """Return the picture of an explanation, given as plain data, as SVG."""
    boxes = list(_boxes(found))
    owners = list(dict.fromkeys(box.owner for box in boxes if box.owner))
    colours = {owner: _COLOURS[i % len(_COLOURS)] for i, owner in enumerate(owners)} | {"": _PLAIN}
    width = 2 * _MARGIN + _PARTS + _GAP + _LOSERS
    height = 2 * _MARGIN + sum(box.room + 26 for box in boxes) + _LINE * (1 + len(owners))
    picture = drawsvg.Drawing(width, height, font_family=_FONT)
    picture.append(drawsvg.Rectangle(0, 0, width, height, fill="#ffffff", rx=8))
    y = _MARGIN
    _text(picture, "not chosen", _MARGIN + _PARTS + _GAP, _MARGIN + 20, 14, _GREY, weight="bold")
    for index, box in enumerate(boxes):
        _draw(picture, box, y, colours[box.owner])
        if index < len(boxes) - 1:
            _arrow(picture, y + box.height, y + box.room + 26)
        y += box.room + 26
    for owner in owners:
        fill, border = colours[owner]
        picture.append(drawsvg.Rectangle(_MARGIN, y, 12, 12, fill=fill, stroke=border, rx=2))
        _text(picture, owner, _MARGIN + 20, y + 10, 12, "#374151")
        y += _LINE
    return str(picture.as_svg(header=""))


def _boxes(found: Mapping[str, Any]) -> Iterator[_Box]:
    """Return the parts of the way, from observation to action."""
    shapes = shape_rows(found)
    mask = [("action mask", str(found["action_mask"]))] if found["action_mask"] else []
    yield _Box("observation", [(str(found["observation_space"]), ""), *mask])
    for slot in SHOWN_SLOTS:
        choice = found[slot]
        losers = _losers(choice)
        if choice["chosen"] is None:
            continue
        lines = [(choice["reason"], ""), *_stages(slot, choice["chosen"], shapes)]
        if slot == "action_dist":
            lines += [(f"{node['path']}: {node['chosen']}", "") for node in found["action_parts"]]
        yield _Box(f"{_SAID[slot]}: {choice['chosen']}", lines, provider(choice), losers)
    if found.get("frozen"):
        yield _Box("frozen", [(found["frozen"], "")])
    yield _Box("action", [(str(found["action_space"]), "")])


#: What slots are called in the picture.
_SAID = {slot: slot for slot in SHOWN_SLOTS} | {"action_dist": "action distribution"}


def _losers(choice: Mapping[str, Any]) -> list[tuple[str, str]]:
    rest = [part for part in choice["candidates"] if part["name"] != choice["chosen"]]
    shown = [(part["name"], part["reason"]) for part in rest[:_MOST]]
    return shown + ([(f"{len(rest) - _MOST} more", "")] if len(rest) > _MOST else [])


def _stages(slot: str, chosen: str, shapes: Sequence[tuple[str, ...]]) -> list[tuple[str, str]]:
    """Return the stages of a part, without its name in front."""
    if slot == "action_dist":
        return [("inputs", shape) for stage, shape in shapes if stage == f"{chosen}: inputs"]
    before = {"preprocessor": "preprocessor: ", "filter": "filter: "}.get(slot)
    if before is not None:
        return [("encoded", shape) for stage, shape in shapes if stage.startswith(before)]
    own, value = f"{chosen}: ", f"value, {chosen}: "
    return [(stage.removeprefix(own), shape) for stage, shape in shapes if stage.startswith(own)] + [
        (f"value, {stage.removeprefix(value)}", shape) for stage, shape in shapes if stage.startswith(value)
    ]


def _draw(picture: drawsvg.Drawing, box: _Box, y: int, colour: tuple[str, str]) -> None:
    fill, border = colour
    picture.append(drawsvg.Rectangle(_MARGIN, y, _PARTS, box.height, fill=fill, stroke=border, rx=6))
    _text(picture, one_line(box.title, 52), _MARGIN + 12, y + 20, 14, "#111827", weight="bold")
    for index, (text, shape) in enumerate(box.lines, 1):
        at = y + 20 + _LINE * index
        _text(picture, one_line(text, 64 - len(shape)), _MARGIN + 12, at, 12, "#374151")
        if shape:
            _text(picture, shape, _MARGIN + _PARTS - 12, at, 12, "#111827", anchor="end")
    for index, (name, reason) in enumerate(box.beside):
        at = y + 14 + _LINE * index
        said = f"{name}: {reason}" if reason else name
        _text(picture, one_line(said, 78), _MARGIN + _PARTS + _GAP, at, 12, _GREY)


def _arrow(picture: drawsvg.Drawing, top: int, bottom: int) -> None:
    x = _MARGIN + _PARTS // 2
    picture.append(drawsvg.Line(x, top, x, bottom - 7, stroke=_GREY))
    picture.append(drawsvg.Lines(x - 4, bottom - 8, x + 4, bottom - 8, x, bottom - 1, close=True, fill=_GREY))


def _text(
    picture: drawsvg.Drawing, text: str, x: int, y: int, size: int, colour: str, weight: str = "normal",
    anchor: str = "start",
) -> None:  # fmt: skip
    picture.append(drawsvg.Text(text, size, x, y, fill=colour, font_weight=weight, text_anchor=anchor))
