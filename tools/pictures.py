"""Draws the pictures of the docs that come from the code; `--check` only says whether they are up to date."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

import rlcatalog

PICTURES = Path(__file__).resolve().parents[1] / "docs/pictures"


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
    return rlcatalog.explain(obs, gym.spaces.Discrete(3), config, "torch").svg()


DRAWN = {"pipeline.svg": pipeline}


def main(check: bool) -> int:
    """Draw the pictures, or compare them; return the exit status."""
    stale = []
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DRAWN.items():
        path, text = PICTURES / name, draw() + "\n"
        if check:
            stale += [name] if not path.is_file() or path.read_text(encoding="utf-8") != text else []
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"docs/pictures: {', '.join(stale)} would be drawn otherwise; run make generate", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
