"""The picture of a depot, which Pillow draws, and beside it what the robot sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import depot
import numpy as np
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from depot import Depot

WIDTH = 600
HEIGHT = 400
#: Pictures are drawn larger and then made smaller, which smooths their edges.
ZOOM = 2
#: Pixels of a metre, and the middle of the depot.
METRE = 120
MIDDLE = np.array([200, 200])
NIGHT = "#0d1a17"
FLOOR = "#15302a"
PADS = ("#5e2f35", "#2c3f66")
BOXES = ("#ff7a5c", "#6ab8ff")
PILLAR = "#8fa39a"
BEAM = "#38564c"
METAL = "#f3f6f4"
ACCENT = "#ffb454"
TEXT = "#e7efe9"
FAINT = "#56736a"


def draw(env: Depot) -> np.ndarray:
    """Return a picture `[400, 600, 3]`."""
    image = Image.new("RGB", (WIDTH * ZOOM, HEIGHT * ZOOM), NIGHT)
    pen = Pen(ImageDraw.Draw(image))
    draw_depot(pen, env)
    draw_robot(pen, env)
    pen.text(400, 30, "camera", TEXT)
    shown = Image.fromarray(env.camera()).resize((176 * ZOOM, 176 * ZOOM), 0)
    image.paste(shown, (400 * ZOOM, 46 * ZOOM))
    pen.text(400, 256, "gripper", TEXT)
    for choice, name in enumerate(("keep", "close", "open")):
        colour = TEXT if env.mask()[choice] else FAINT
        pen.text(400 + 62 * choice, 282, name, colour)
    pen.text(400, 340, f"delivered: {env.delivered}", ACCENT)
    return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))


class Pen:
    """Draws in pixels of the finished picture."""

    def __init__(self, canvas: ImageDraw.ImageDraw) -> None:
        self.canvas = canvas

    def disc(self, place: np.ndarray, radius: float, fill: str) -> None:
        """Draw a disc, given its place in the depot and its radius in metres."""
        x, y = pixels(place)
        reach = radius * METRE
        box = np.array([x - reach, y - reach, x + reach, y + reach]) * ZOOM
        self.canvas.ellipse(tuple(box), fill=fill)

    def line(self, start: np.ndarray, end: np.ndarray, colour: str) -> None:
        """Draw a line between two places in the depot."""
        points = np.concatenate([pixels(start), pixels(end)]) * ZOOM
        self.canvas.line(tuple(points), fill=colour, width=ZOOM)

    def text(self, x: float, y: float, text: str, colour: str) -> None:
        """Write a text whose left end is at a point."""
        font = ImageFont.load_default(18 * ZOOM)
        place = (x * ZOOM, y * ZOOM)
        self.canvas.text(place, text, fill=colour, anchor="lm", font=font)


def pixels(place: np.ndarray) -> np.ndarray:
    """Return a place in the depot as pixels."""
    return MIDDLE + place * METRE


def draw_depot(pen: Pen, env: Depot) -> None:
    """Draw the floor, the pads, the pillars and a box on the floor."""
    corners = np.array([[-depot.HALF, -depot.HALF], [depot.HALF, depot.HALF]])
    box = pixels(corners).ravel() * ZOOM
    pen.canvas.rounded_rectangle(tuple(box), 10 * ZOOM, fill=FLOOR)
    for place, colour in zip(depot.PADS, PADS, strict=True):
        pen.disc(place, depot.PAD, colour)
    for pillar in env.pillars:
        pen.disc(pillar, depot.PILLAR, PILLAR)
    if not env.holds:
        pen.disc(env.box, depot.BOX * 0.6, BOXES[env.colour])


def draw_robot(pen: Pen, env: Depot) -> None:
    """Draw the beams of the lidar, and the robot with the box that it carries."""
    for direction, distance in zip(depot.BEAMS, env.lidar(), strict=True):
        pen.line(env.robot, env.robot + direction * distance, BEAM)
    pen.disc(env.robot, depot.ROBOT, METAL)
    if env.holds:
        pen.disc(env.robot, depot.BOX * 0.45, BOXES[env.colour])
