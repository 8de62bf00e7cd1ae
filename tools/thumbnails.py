"""Small pictures of the examples for the gallery: the curve in an example's output, or the pipeline
of its policy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from svg import GRID, LINE, box, picture, words

import rlcatalog
from rlcatalog.spaces import Repeated

Series = list[tuple[float, float]]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 200, 112, 34, 18, 16
#: Fewest points of a curve.
FEWEST = 3
_POINT = re.compile(r"^ *(\d+) (steps|updates), .*?(mean return|loss) (-?[\d.]+)", re.MULTILINE)
_PART = Dict({"kind": Discrete(5), "strength": Box(0, 1, (1,), np.float32)})
#: Example without a curve in its output → its environment, or its spaces, and its model config.
POLICIES: dict[str, tuple[Any, ...]] = {
    "autoregressive_action_dist": (
        Discrete(2),
        Tuple([Discrete(4), Discrete(4)]),
        {"use_autoregressive": True},
    ),
    "complex_struct_space": (
        Dict({"player": Discrete(4), "enemies": Repeated(_PART, 4)}),
        Discrete(4),
        {},
    ),
    "custom_model_api": (Box(-1, 1, (4,), np.float32), Discrete(5), {}),
    "dqn": ("CartPole-v1", {}),
    "lookup": ("CartPole-v1", {}),
    "ppo_single_file": ("CartPole-v1", {}),
    "ppo_single_file_tf": ("CartPole-v1", {}),
    "sac": ("Pendulum-v1", {"custom_action_dist": "squashed_gaussian"}),
    "skrl_ppo": ("CartPole-v1", {}),
    "tianshou_ppo": ("CartPole-v1", {}),
}


def series(output: str) -> tuple[str, list[Series]]:
    """Return what an output reports over steps, such as "mean return", and its curves; each run
    starts a new curve.
    """
    found: list[Series] = []
    names = {match[3]: f"{match[3]}, {match[2]}" for match in _POINT.finditer(output)}
    name = next(iter(names), "")
    for match in _POINT.finditer(output):
        x, y = float(match[1]), float(match[4])
        if match[3] == name:
            if not found or x <= found[-1][-1][0]:
                found.append([])
            found[-1].append((x, y))
    return names.get(name, ""), [curve for curve in found if len(curve) >= FEWEST]


def drawn(name: str, output: str) -> tuple[str, str]:
    """Return an example's picture as SVG, and its description in words."""
    what, curves = series(output)
    return _curve(what, curves) if curves else _pipeline(*_explained(name))


def _curve(what: str, curves: Sequence[Series]) -> tuple[str, str]:
    quantity, _, unit = what.partition(", ")
    points = [point for curve in curves for point in curve]
    (low, high), last = (f(y for _, y in points) for f in (min, max)), max(x for x, _ in points)
    wide, tall, rise = WIDTH - LEFT - 8, HEIGHT - TOP - BOTTOM, (high - low) or 1.0
    lines = [
        " ".join(
            f"{LEFT + wide * x / last:.1f},{TOP + tall * (high - y) / rise:.1f}" for x, y in curve
        )
        for curve in curves
    ]
    body = [
        f'<path d="M{LEFT},{TOP}V{TOP + tall}H{LEFT + wide}" fill="none" stroke="{GRID}"/>',
        *(
            f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="1.5"/>'
            for line in lines
        ),
        words(8, 12, quantity, size=9),
        *(
            words(LEFT - 4, y, f"{value:.3g}", "end", 9)
            for y, value in ((TOP + 4, high), (TOP + tall, low))
        ),
        words(WIDTH - 8, HEIGHT - 4, f"{last:,.0f} {unit}", "end", 9),
    ]
    return picture(
        body, WIDTH, HEIGHT
    ) + "\n", f"{quantity} over {last:,.0f} {unit}, between {low:.3g} and {high:.3g}"


def _explained(name: str) -> tuple[str, ...]:
    """Return the parts of an example's policy, from the observation to the action."""
    *spaces, config = POLICIES[name]
    if len(spaces) == 1:
        env = gym.make(spaces[0])
        spaces = [env.observation_space, env.action_space]
    found = rlcatalog.explain(*spaces, config, "torch").as_dict()
    chosen = [found[slot]["chosen"] for slot in ("model", "memory", "head", "action_dist")]
    return (found["observation_space"], *(part for part in chosen if part), found["action_space"])


def _pipeline(*parts: str) -> tuple[str, str]:
    """Draw the parts from top to bottom: spaces as text, parts in boxes."""
    step = (HEIGHT - 8) / len(parts)
    body = []
    for i, part in enumerate(parts):
        y = 4 + step * i
        if 0 < i < len(parts) - 1:
            body.append(box(40, y + 2, WIDTH - 80, step - 5))
        body.append(
            words(
                WIDTH / 2,
                y + step / 2 + 3,
                part if len(part) < 36 else f"{part[:34]}…",
                "middle",
                9,
            )
        )
    return picture(body, WIDTH, HEIGHT) + "\n", "pipeline: " + " → ".join(parts)
