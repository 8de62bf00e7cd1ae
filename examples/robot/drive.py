"""Drive a robot for an episode as a server says: `python drive.py [URL]`."""

from __future__ import annotations

import json
import sys
from urllib.request import Request, urlopen

import numpy as np
from depot import Depot

SENSORS = ("action_mask", "camera", "holds", "lidar")


def post(address: str, data: dict | None = None) -> dict:
    """Send data as JSON, and return the answer."""
    body = json.dumps(data).encode()
    request = Request(address, body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def main(url: str) -> None:
    """Drive for an episode. The simulator stands for the real depot."""
    env = Depot()
    obs, info = env.reset(seed=10)
    post(f"{url}/robots/r2/start")
    truncated = False
    while not truncated:
        measured = {name: np.asarray(obs[name]).tolist() for name in SENSORS}
        action = post(f"{url}/robots/r2/act", measured)
        obs, _, _, truncated, info = env.step(action)
    print(f"delivered: {info['delivered']}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["http://127.0.0.1:8000"])
