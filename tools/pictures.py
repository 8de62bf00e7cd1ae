"""Draws the pictures of the docs that come from the code; `--check` only says whether they are up
to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import partial

import gymnasium as gym
import numpy as np
import yaml
from generated import ROOT, write
from house_imports import ALLOWED
from robot_tutorial import ROBOT, draw_curves
from svg import TEXT, box, picture, with_dark_colours, words

import rlcatalog

PICTURES = ROOT / "docs/pictures"
#: The example whose agent the home page shows.
GARDENER = ROOT / "examples/gardener"
_WIDTH = 720
#: A benchmark's case that has another library beside rlcatalog → how the picture calls it.
_PEERS = {
    r"(\w+(?:\([^)]*\))?), torch, to torch.distributions, batch (\d+)": r"torch.distributions: \1,"
    r" batch \2",
    r"stepping Breakout, to Gymnasium's wrappers": r"Gymnasium's wrappers: a step of Breakout",
    r"Stable-Baselines3's PPO, (.*), environments (\d+)": r"Stable-Baselines3's own policy: PPO,"
    r" \1, \2 env",
    r"RLlib PPO on CartPole, environment runners (\d+)": r"RLlib's own module: PPO, CartPole, \1"
    r" runners",
}


def gardener(*, all: bool = False) -> str:
    """Return the picture of the lookup for the agent that the home page shows."""
    sys.path.insert(0, str(GARDENER))
    from garden import Garden

    config = {"fcnet_hiddens": [64, 64]}
    explanation = rlcatalog.explain(env=Garden(), config=config, framework="torch")
    return with_dark_colours(explanation.svg(all=all))


def robot() -> str:
    """Return the picture of the lookup for the robot of the tutorial."""
    sys.path.insert(0, str(ROBOT))
    import robot  # noqa: F401 - it registers the camera's network
    from depot import Depot

    config = yaml.safe_load((ROBOT / "lstm.yaml").read_text(encoding="utf-8"))["model"]
    explanation = rlcatalog.explain(env=Depot(), config=config, framework="torch")
    return with_dark_colours(explanation.svg())


def pipeline() -> str:
    """Return the picture of a lookup with an image, a memory and an action mask."""
    obs = gym.spaces.Dict(
        {
            "action_mask": gym.spaces.Box(0, 1, (3,), np.int8),
            "camera": gym.spaces.Box(0, 255, (40, 40, 3), np.uint8),
            "speed": gym.spaces.Box(-1, 1, (2,), np.float32),
        }
    )
    config = {"use_lstm": True, "observation_filter": "MeanStdFilter"}
    explanation = rlcatalog.explain(obs, gym.spaces.Discrete(3), config, "torch")
    return with_dark_colours(explanation.svg())


def critic() -> str:
    """Return the picture of a lookup with a critic that sees what the policy does not."""
    obs = gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (32, 32, 3), np.uint8),
            "friction": gym.spaces.Box(0, 1, (1,), np.float32),
            "joints": gym.spaces.Box(-1, 1, (6,), np.float32),
        }
    )
    config = {
        "fcnet_hiddens": [64],
        "critic": {"fcnet_hiddens": [256, 256]},
        "obs_groups": {"policy": ["camera", "joints"], "critic": ["friction", "joints"]},
    }
    explanation = rlcatalog.explain(obs, gym.spaces.Box(-1, 1, (6,)), config, "torch")
    return with_dark_colours(explanation.svg())


def one_of() -> str:
    """Return the picture of a lookup with an action of one of two kinds."""
    action = gym.spaces.OneOf([gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(3)])
    config = {"fcnet_hiddens": [64]}
    return with_dark_colours(
        rlcatalog.explain(gym.spaces.Box(-1, 1, (6,)), action, config, "torch").svg()
    )


def embeddings() -> str:
    """Return the picture of a lookup whose net looks ids up in tables, as on the page about
    observations.
    """
    obs = gym.spaces.Dict(
        {
            "item": gym.spaces.Discrete(100_000),
            "price": gym.spaces.Box(0, 1, (2,), np.float32),
            "review": gym.spaces.Text(200),
        }
    )
    config = {"embeddings": {"item": 64, "review": 16}}
    return with_dark_colours(rlcatalog.explain(obs, gym.spaces.Discrete(5), config, "torch").svg())


def memory() -> str:
    """Return the picture of a lookup with a memory of two layers."""
    positions = gym.spaces.Box(-5, 5, (2,), np.float32)
    config = {
        "fcnet_hiddens": [32],
        "use_gru": True,
        "gru_cell_size": 32,
        "lstm_num_layers": 2,
        "lstm_use_prev_action": True,
    }
    return with_dark_colours(
        rlcatalog.explain(positions, gym.spaces.Discrete(2), config, "torch").svg()
    )


def parts() -> str:
    """Return the picture of a lookup with parts, of which some do not learn."""
    joints = gym.spaces.Box(-1, 1, (6,), np.float32)
    config = {
        "fcnet_hiddens": [64],
        "use_lstm": True,
        "lstm_cell_size": 64,
        "critic": {"fcnet_hiddens": [256, 256]},
        "freeze_parts": ["trunk", "critic.trunk"],
    }
    return with_dark_colours(
        rlcatalog.explain(joints, gym.spaces.Box(-1, 1, (6,)), config, "torch").svg()
    )


def faster() -> Iterator[tuple[str, float]]:
    """Yield what was measured beside another library, and how many times faster rlcatalog is."""
    parts = json.loads((ROOT / "benchmarks/ratios.json").read_text(encoding="utf-8"))
    cases = {
        name: case
        for part in ("dists", "preprocessors", "sb3", "rllib")
        for name, case in parts[part]["cases"].items()
    }
    for pattern, text in _PEERS.items():
        for name, case in cases.items():
            if found := re.fullmatch(pattern, name):
                yield (
                    found.expand(text),
                    case["ratio"] if case["better"] == "higher" else 1 / case["ratio"],
                )


def speed() -> str:
    """Return a bar for each measurement beside another library, on a logarithmic axis; 1 is equal
    speed.
    """
    bars = list(faster())
    left = 390
    step = 20
    scale = (_WIDTH - left - 70) / np.log(max(times for _, times in bars) / 0.5)
    one = left + scale * np.log(2)
    body = []
    for i, (name, times) in enumerate(bars):
        y = 34 + step * i
        end = left + scale * np.log(times / 0.5)
        body.append(box(min(one, end), y, abs(end - one), step - 6))
        body += [
            words(left - 8, y + 11, name, "end"),
            words(max(one, end) + 4, y + 11, f"{times:.2g}"),
        ]
    body.append(f'<path d="M{one:.1f},28V{34 + step * len(bars)}" stroke="{TEXT}"/>')
    body.append(words(one, 20, "times as fast as the other library (1: equal)", "middle"))
    return picture(body, _WIDTH, 44 + step * len(bars))


def packages() -> str:
    """Return the packages in layers: a package imports only packages below it, and its box names
    them.
    """
    folders = sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml"))
    built_in = [path.name for path in folders if path.parent.name != "plugins"]
    others = [
        path.name for path in folders if path.parent.name == "plugins" and path.name != "example"
    ]
    below = {
        name: sorted(
            part.removeprefix("rlcatalog_") for part in ALLOWED.get(f"rlcatalog_{name}", ())
        )
        for name in others
    }

    def layer(name: str) -> int:
        return 1 + max(map(layer, below[name]), default=0)

    rows = [
        [name for name in others if layer(name) == depth]
        for depth in range(max(map(layer, others)), 0, -1)
    ]
    boxes = [[(name, " · ".join(below[name])) for name in row] for row in rows]
    half = len(built_in) // 2
    boxes += [
        [
            (
                "built-in models and distributions",
                f"{', '.join(built_in[:half])},|{', '.join(built_in[half:])}",
            )
        ]
    ]
    boxes += [[("rlcatalog, the kernel", "spaces, plugins, config, choice, contracts")]]
    body = []
    high = 62
    for i, row in enumerate(boxes):
        wide = (_WIDTH - 8) / len(row)
        for j, (name, text) in enumerate(row):
            x = 4 + wide * j
            y = 4 + high * i
            body += [
                box(x + 4, y + 4, wide - 8, high - 8),
                words(x + wide / 2, y + 22, name, "middle", 13),
            ]
            body += [
                words(x + wide / 2, y + 37 + 12 * k, line, "middle")
                for k, line in enumerate(text.split("|"))
            ]
    return picture(body, _WIDTH, 8 + high * len(boxes))


DRAWN = {
    "gardener.svg": gardener,
    "gardener_all.svg": partial(gardener, all=True),
    "robot.svg": robot,
    "robot_curves.svg": draw_curves,
    "pipeline.svg": pipeline,
    "critic.svg": critic,
    "one_of.svg": one_of,
    "embeddings.svg": embeddings,
    "memory.svg": memory,
    "parts.svg": parts,
    "packages.svg": packages,
    "speed.svg": speed,
}


def main(arguments: list[str]) -> int:
    """Draw the pictures, or with `--check` say whether they are up to date."""
    pictures = {PICTURES / name: draw() + "\n" for name, draw in DRAWN.items()}
    return write(pictures, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
