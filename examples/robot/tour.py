"""Run the commands of the robot tutorial one after another: `python tour.py`.

The first training is interrupted halfway, as by Ctrl-C, and a later command resumes it.
Run it in the folder of the robot. With `--steps 3200`, everything takes a minute.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

STEPS = "96000"
TRAIN = f"rlcatalog train robot:Depot-v0 --steps {STEPS}"
COMMANDS = [
    f"{TRAIN} --config lstm.yaml --out runs/robot",
    "rlcatalog runs",
    "rlcatalog evaluate runs/robot --import robot --episodes 1 --video runs/half.mp4",
    "rlcatalog train --resume runs/robot --import robot",
    "rlcatalog evaluate runs/robot --import robot",
    f"{TRAIN} --config lstm.yaml --seeds 1,2 --out runs/lstm",
    f"{TRAIN} --config no_memory.yaml --seeds 0-2 --out runs/no_memory",
    "rlcatalog compare runs --by use_lstm --out runs/comparison.png",
    "rlcatalog evaluate runs/robot --import robot --episodes 1 --video runs/robot.mp4",
    "rlcatalog export runs/robot --import robot --out runs/policy.onnx",
]
METRICS = Path("runs/robot/metrics.jsonl")


def start(line: str) -> subprocess.Popen:
    """Start a command, with the Python that runs this script."""
    print(f"$ {line}", flush=True)
    arguments = shlex.split(line)[1:]  # without `rlcatalog`
    return subprocess.Popen([sys.executable, "-m", "rlcatalog_cli", *arguments])


def interrupt_after(steps: int, process: subprocess.Popen) -> None:
    """Send what Ctrl-C sends, as soon as the run has so many steps."""
    done = 0
    while done < steps and process.poll() is None:
        time.sleep(0.1)
        if METRICS.exists():
            lines = METRICS.read_text().splitlines(keepends=True)
            if lines and lines[-1].endswith("\n"):
                done = json.loads(lines[-1])["timesteps_total"]
    process.send_signal(signal.SIGINT)


def main() -> None:
    """Run the commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default=STEPS, help="length of each training")
    steps = parser.parse_args().steps
    for number, line in enumerate(COMMANDS):
        process = start(line.replace(STEPS, steps))
        if number == 0:
            interrupt_after(int(steps) // 2, process)
        code = process.wait()
        if code and number > 0:
            raise SystemExit(f"This command ended with {code}.")


if __name__ == "__main__":
    main()
