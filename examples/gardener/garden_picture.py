"""The picture of a garden, which Pillow draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from garden import Garden

WIDTH = 720
HEIGHT = 500
#: Pictures are drawn larger and then made smaller, which smooths their edges.
ZOOM = 2
#: Pixels of a unit of length, and the margin around the garden.
UNIT = 224
MARGIN = 24
#: Steps for which the use of a tool stays visible.
AFTERGLOW = 12

NIGHT = "#0d1a17"
GRASS = "#15302a"
FURROW = "#1a3a32"
SOIL = "#6a5240"
WET_SOIL = "#3b2c22"
STRAW = "#c9ad7c"
LEAF = "#63c584"
DARK_LEAF = "#3f9a62"
FRUIT = "#ff8a5c"
SHINE = "#ffc2a3"
WATER = "#6ab8ff"
METAL = "#f3f6f4"
VISOR = "#18332c"
ACCENT = "#ffb454"
TEXT = "#e7efe9"
FAINT = "#56736a"
TOOLS = ("drive", "water", "pick")


def draw(garden: Garden) -> np.ndarray:
    """Return a picture `[500, 720, 3]`: the garden above, the tools below."""
    image = Image.new("RGB", (WIDTH * ZOOM, HEIGHT * ZOOM), NIGHT)
    pen = Pen(ImageDraw.Draw(image))
    pen.rounded(MARGIN, MARGIN, WIDTH - MARGIN, 427, radius=16, fill=GRASS)
    for y in range(MARGIN + 33, 427, 48):
        pen.line([(MARGIN + 12, y), (WIDTH - MARGIN - 12, y)], FURROW, width=12)
    order = np.argsort(garden.plants[:, 1])  # those in front are drawn last
    for index in order:
        draw_plant(pen, pixels(garden.plants[index]), garden.growth[index])
    draw_robot(pen, garden)
    draw_tools(pen, garden)
    return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))


class Pen:
    """Draws in pixels of the finished picture."""

    def __init__(self, canvas: ImageDraw.ImageDraw) -> None:
        self.canvas = canvas

    def disc(self, x: float, y: float, radius: float, fill: str) -> None:
        """Draw a disc."""
        self.oval(x, y, radius, radius, fill)

    def oval(self, x: float, y: float, wide: float, tall: float, fill: str) -> None:
        """Draw an oval, given its half axes."""
        box = np.array([x - wide, y - tall, x + wide, y + tall]) * ZOOM
        self.canvas.ellipse(tuple(box), fill=fill)

    def ring(self, x: float, y: float, radius: float, colour: str) -> None:
        """Draw a circle."""
        box = np.array([x - radius, y - radius, x + radius, y + radius]) * ZOOM
        self.canvas.ellipse(tuple(box), outline=colour, width=2 * ZOOM)

    def rounded(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        *,
        radius: float,
        fill: str | None,
        outline: str | None = None,
    ) -> None:
        """Draw a rectangle with round corners."""
        box = np.array([left, top, right, bottom]) * ZOOM
        self.canvas.rounded_rectangle(
            tuple(box), radius * ZOOM, fill=fill, outline=outline, width=2 * ZOOM
        )

    def line(
        self, points: list[tuple[float, float]], colour: str, *, width: float
    ) -> None:
        """Draw a line with round ends."""
        scaled = [(x * ZOOM, y * ZOOM) for x, y in points]
        self.canvas.line(scaled, fill=colour, width=round(width * ZOOM), joint="curve")
        for x, y in (points[0], points[-1]):
            self.disc(x, y, width / 2, colour)

    def text(self, x: float, y: float, text: str, colour: str, *, anchor: str) -> None:
        """Write a text; `anchor` is that of Pillow, such as `"mm"` for its middle."""
        font = ImageFont.load_default(22 * ZOOM)
        self.canvas.text(
            (x * ZOOM, y * ZOOM), text, fill=colour, anchor=anchor, font=font
        )


def pixels(place: np.ndarray) -> tuple[float, float]:
    """Return a place in the garden as pixels."""
    return MARGIN + place[0] * UNIT, MARGIN + place[1] * UNIT


def draw_plant(pen: Pen, place: tuple[float, float], growth: float) -> None:
    """Draw a plant: straw while it is dry, then leaves, and fruit when it is ripe."""
    x, y = place
    is_dry = growth == 0
    pen.oval(x, y + 12, 34, 15, SOIL if is_dry else WET_SOIL)
    if is_dry:
        for lean in (-9, 0, 9):
            pen.line([(x, y + 10), (x + lean, y - 8 + abs(lean) / 2)], STRAW, width=3.5)
        return
    height = 10 + 26 * growth
    wide = 4 + 8 * growth
    pen.line([(x, y + 10), (x, y + 10 - height)], DARK_LEAF, width=4)
    for side in (-1, 1):
        middle = x + side * (5 + 7 * growth)
        pen.oval(middle, y + 7 - height / 2, wide, 3 + 4 * growth, LEAF)
    pen.disc(x, y + 8 - height, 5 + 12 * growth, LEAF)
    if growth == 1:
        for right, up in ((-10, 18), (10, 21), (0, 37)):
            pen.disc(x + right, y - up, 8, FRUIT)
            pen.disc(x + right - 2.5, y - up - 2.5, 2.2, SHINE)
    elif growth < 0.25:  # it has just been watered
        fall = growth / 0.25
        for right, start in ((-14, 0), (0, 10), (14, 4)):
            pen.disc(x + right, y - 34 + start + 38 * fall, 3.6, WATER)


def draw_robot(pen: Pen, garden: Garden) -> None:
    """Draw the robot, its reach, its velocity, and a +1 after it has picked."""
    x, y = pixels(garden.robot)
    look = np.zeros(2)
    if garden.action is not None and garden.action["tool"] == 0:
        velocity = garden.action["drive"]
        look = velocity / max(1.0, np.linalg.norm(velocity))
    pen.ring(x, y, 45, FAINT)
    if np.linalg.norm(look) > 0.1:
        tip = np.array([x, y]) + 70 * look
        side = np.array([-look[1], look[0]]) * 8
        pen.line([(x, y), tuple(tip)], ACCENT, width=5)
        for corner in (tip - 13 * look + side, tip - 13 * look - side):
            pen.line([tuple(tip), tuple(corner)], ACCENT, width=5)
    pen.oval(x, y + 23, 22, 6, NIGHT)
    pen.rounded(x - 22, y - 20, x + 22, y + 20, radius=13, fill=METAL)
    pen.rounded(x - 16, y - 12, x + 16, y + 7, radius=8, fill=VISOR)
    for eye in (-6.5, 6.5):
        pen.disc(x + eye + 4 * look[0], y - 2.5 + 3 * look[1], 3.4, ACCENT)
    age = garden.steps - garden.last_use[2]
    if age < AFTERGLOW:
        pen.text(x, y - 38 - 2 * age, "+1", ACCENT, anchor="mm")


def draw_tools(pen: Pen, garden: Garden) -> None:
    """Draw the tools: the tool in use is full, forbidden tools are faint."""
    top = HEIGHT - 58
    in_use = tool_in_use(garden)
    left = MARGIN
    for tool, name in enumerate(TOOLS):
        right = left + 104
        middle = (left + right) / 2
        colour = TEXT if garden.mask()[tool] else FAINT
        fill = None
        outline = colour
        if tool == in_use:
            colour = NIGHT
            fill = ACCENT
            outline = ACCENT
        pen.rounded(left, top, right, top + 40, radius=20, fill=fill, outline=outline)
        pen.text(middle, top + 20, name, colour, anchor="mm")
        left = right + 12
    pen.text(
        WIDTH - MARGIN, top + 20, f"fruit picked: {garden.fruit}", TEXT, anchor="rm"
    )


def tool_in_use(garden: Garden) -> int | None:
    """Return the tool to show; watering and picking stay visible for some steps."""
    if garden.action is None:
        return None
    for tool in (2, 1):  # after picking it waters at once
        if garden.steps - garden.last_use[tool] < AFTERGLOW:
            return tool
    return int(garden.action["tool"])
