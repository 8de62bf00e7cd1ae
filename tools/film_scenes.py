"""Pictures of environments for the films on the site, in the colours of the gardener's."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from generated import ROOT
from PIL import Image, ImageColor, ImageDraw

sys.path.insert(0, str(ROOT / "examples/gardener"))

from garden_picture import (
    ACCENT,
    FAINT,
    FRUIT,
    GRASS,
    LEAF,
    METAL,
    NIGHT,
    TEXT,
    WATER,
    ZOOM,
    Pen,
)

WIDTH = 480
HEIGHT = 300
#: Colours of MinAtar's four channels: paddle, ball, the ball's trail, bricks.
_CELLS = (METAL, ACCENT, FAINT, LEAF)
_SUITS = (FRUIT, LEAF, WATER, ACCENT)
#: Colours of the tools that pull, cut and dig.
_TOOLS = (WATER, LEAF, ACCENT)
#: Cards of RepeatPrevious that are shown, the last one in view included.
_CARDS = 6


class Scene:
    """An environment that is drawn after each step.

    Args:
        env: The environment.

    Attributes:
        render_mode: What the environment is made with; None if it is drawn here.
    """

    render_mode: str | None = None

    def __init__(self, env: Any) -> None:
        self.env = env

    def draw(self, obs: Any, action: Any) -> np.ndarray:
        """Return a picture `[HEIGHT, WIDTH, 3]`.

        Args:
            obs: The last observation.
            action: The last action; None before the first one.
        """
        image = Image.new("RGB", (WIDTH * ZOOM, HEIGHT * ZOOM), NIGHT)
        self.paint(Pen(ImageDraw.Draw(image)), obs, action)
        return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))

    def paint(self, pen: Pen, obs: Any, action: Any) -> None:
        """Draw the environment."""
        raise NotImplementedError


class CartPole(Scene):
    """CartPole, with an arrow for the push."""

    def paint(self, pen: Pen, obs: Any, action: Any) -> None:
        """Draw the track, the cart, the pole and the push."""
        scale = WIDTH / 5.6
        x = WIDTH / 2 + obs[0] * scale
        track = HEIGHT * 0.76
        pen.line(
            [(WIDTH / 2 - 2.4 * scale, track), (WIDTH / 2 + 2.4 * scale, track)], FAINT, width=2
        )
        if action is not None:
            side = 1 if action == 1 else -1
            tip = x + side * 62
            pen.line([(x + side * 34, track - 12), (tip, track - 12)], WATER, width=4)
            for dy in (-7, 7):
                pen.line([(tip, track - 12), (tip - side * 8, track - 12 + dy)], WATER, width=4)
        pen.rounded(x - 27, track - 24, x + 27, track, radius=5, fill=METAL)
        top = (x + scale * np.sin(obs[2]), track - 24 - scale * np.cos(obs[2]))
        pen.line([(x, track - 24), top], ACCENT, width=9)
        pen.disc(x, track - 24, 4, NIGHT)


class Hopper(Scene):
    """MuJoCo's Hopper from the side; the view follows it."""

    def paint(self, pen: Pen, obs: Any, action: Any) -> None:
        """Draw the ground and the capsules of the body."""
        env = self.env.unwrapped
        scale = 150.0
        left = env.data.qpos[0] - WIDTH / 2 / scale
        ground = HEIGHT - 40.0
        pen.line([(0, ground), (WIDTH, ground)], FAINT, width=3)
        for mark in range(int(left * 2), int(left * 2 + WIDTH / scale * 2) + 2):
            x = (mark / 2 - left) * scale
            pen.line([(x, ground), (x - 8, ground + 12)], FAINT, width=2)
        colours = (METAL, LEAF, WATER, ACCENT)
        for index, colour in enumerate(colours, 1):  # 0 is the floor
            radius, half_length, _ = env.model.geom_size[index]
            axis = env.data.geom_xmat[index].reshape(3, 3)[:, 2] * half_length
            ends = []
            for end in (env.data.geom_xpos[index] - axis, env.data.geom_xpos[index] + axis):
                ends.append(((end[0] - left) * scale, ground - end[2] * scale))
            pen.line(ends, colour, width=2 * radius * scale)


class Breakout(Scene):
    """MinAtar's Breakout, whose observation has a channel for each kind of object."""

    def paint(self, pen: Pen, obs: Any, action: Any) -> None:
        """Draw the cells."""
        cell = HEIGHT / 10.0
        left = (WIDTH - HEIGHT) / 2
        pen.rounded(left, 0, left + HEIGHT, HEIGHT, radius=0, fill=GRASS)
        for channel in (2, 3, 0, 1):
            for row, column in np.argwhere(obs[:, :, channel]):
                x = left + column * cell
                y = row * cell
                fill = _CELLS[channel]
                pen.rounded(x + 1.5, y + 1.5, x + cell - 1.5, y + cell - 1.5, radius=5, fill=fill)


class RepeatPrevious(Scene):
    """POPGym's RepeatPrevious: the policy names the suit that it saw some steps ago."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.cards: list[int] = []

    def paint(self, pen: Pen, obs: Any, action: Any) -> None:
        """Draw the last cards, the newest on the right, and the named suit above its card."""
        self.cards.append(int(obs))
        ago = self.env.unwrapped.k
        step = WIDTH / (_CARDS + 1)
        shown = self.cards[-_CARDS:]
        for i, card in enumerate(reversed(shown)):
            x = WIDTH - step * (i + 1)
            pen.rounded(x - 27, 120, x + 27, 205, radius=10, fill=METAL if i == 0 else FAINT)
            pen.disc(x, 162, 15, _SUITS[card])
        if action is None or len(self.cards) <= ago:
            return
        # The action answered the card before the newest one.
        x = WIDTH - step * (ago + 1)
        pen.line([(x, 112), (x, 90)], TEXT, width=3)
        pen.disc(x, 66, 19, _SUITS[int(action)])
        pen.text(WIDTH - step, 232, "now", TEXT, anchor="mm")
        pen.text(x, 232, "named", TEXT, anchor="mm")


class Weeds(Scene):
    """A robot and the next weed: the colour of the weed is that of its tool."""

    def paint(self, pen: Pen, obs: Any, action: Any) -> None:
        """Draw the field, the weed, the robot with its reach, and the tools."""
        env = self.env.unwrapped
        scale = 0.42 * HEIGHT
        middle = np.array([HEIGHT / 2, HEIGHT / 2])
        pen.rounded(10, 10, HEIGHT - 10, HEIGHT - 10, radius=14, fill=GRASS)
        weed = middle + scale * env.weed
        pen.disc(*weed, 13, _TOOLS[env.kind])
        robot = middle + scale * env.robot
        pen.ring(*robot, scale * env.REACH, FAINT)
        x, y = robot
        pen.rounded(x - 13, y - 13, x + 13, y + 13, radius=7, fill=METAL)
        used = None if action is None else int(action[0])
        for tool, name in enumerate(("drive", "pull", "cut", "dig")):
            self.paint_tool(pen, tool, name, is_used=tool == used)

    def paint_tool(self, pen: Pen, tool: int, name: str, *, is_used: bool) -> None:
        """Draw the name of a tool, which is filled while the tool is used."""
        colour = METAL if tool == 0 else _TOOLS[tool - 1]
        top = 24 + 66 * tool
        left = HEIGHT + 16
        right = WIDTH - 20
        pen.rounded(
            left, top, right, top + 50, radius=25, fill=colour if is_used else None, outline=colour
        )
        text = NIGHT if is_used else colour
        pen.text((left + right) / 2, top + 25, name, text, anchor="mm")


class Workshop(Scene):
    """Sixteen machines and sixteen tools: what is free, what is ordered, and what was chosen."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.before: Any = None

    def paint(self, pen: Pen, obs: Any, action: Any) -> None:
        """Draw the order that the action answered: its choice is filled."""
        shown = obs if self.before is None else self.before
        self.before = obs
        for row, (part, label) in enumerate((("machine", "machines"), ("tool", "tools"))):
            top = 45 + 135 * row
            pen.text(24, top, label, TEXT, anchor="lm")
            for choice in range(16):
                x = 38 + 27 * choice
                y = top + 45
                is_free = shown["action_mask"][part][choice]
                pen.disc(x, y, 11, METAL if is_free else GRASS)
                if choice == shown["order"][row]:
                    pen.ring(x, y, 14, ACCENT)
                if action is not None and choice == action[part]:
                    pen.disc(x, y, 11, LEAF)


class Rendered(Scene):
    """An environment that draws itself."""

    render_mode = "rgb_array"

    def draw(self, obs: Any, action: Any) -> np.ndarray:
        """Return its picture, made as wide as the others."""
        frame = Image.fromarray(self.env.render())
        height = 2 * round(WIDTH * frame.height / frame.width / 2)
        return np.asarray(frame.resize((WIDTH, height), Image.Resampling.LANCZOS))


class Lander(Rendered):
    """Gymnasium's LunarLander, with the colours of the others for its sky and its ground."""

    def draw(self, obs: Any, action: Any) -> np.ndarray:
        """Return its picture in other colours."""
        frame = super().draw(obs, action).astype(np.float32)
        darkest = frame.min(axis=2, keepdims=True)
        brightest = frame.max(axis=2, keepdims=True)
        # White and grey pixels are ground; black ones are sky.
        grey = np.where(brightest - darkest < 12, darkest / 255, 0)
        ground = np.array(ImageColor.getrgb(GRASS)) + 20
        sky = np.array(ImageColor.getrgb(NIGHT))
        recoloured = grey * ground + (1 - grey) * np.maximum(frame * (grey == 0), sky)
        return recoloured.astype(np.uint8)


#: Environment → its pictures; all others draw themselves.
SCENES: dict[str, type[Scene]] = {
    "CartPole-v1": CartPole,
    "Hopper-v5": Hopper,
    "LunarLander-v3": Lander,
    "MinAtar/Breakout-v1": Breakout,
    "Weeds-v0": Weeds,
    "Workshop-v0": Workshop,
    "popgym-RepeatPreviousEasy-v0": RepeatPrevious,
}
