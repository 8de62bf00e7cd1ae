"""Writes what the commands of the robot tutorial print into its page.

`python tools/robot_tutorial.py --run` runs `examples/robot/tour.py` in `runs/robot_tutorial`, which
takes some minutes, and keeps what it prints and the learning curves in `docs/tutorials/robot.json`.
Without `--run`, the page is written from what is kept. `--check` only says whether the page is up
to date, and whether the example has changed since it was run.

After a run, `python tools/site_films.py robot` makes the film, and `make generate` draws the
curves.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gallery import checksum
from generated import ROOT, write
from svg import GRID, picture, words

ROBOT = ROOT / "examples/robot"
FOLDER = ROOT / "runs/robot_tutorial"
PAGE = ROOT / "docs/tutorials/robot.md"
RECORD = ROOT / "docs/tutorials/robot.json"
#: Files that decide what the run prints.
SOURCES = ("depot.py", "robot.py", "tour.py", "lstm.yaml", "no_memory.yaml")
#: Folders of the runs → what the picture calls them, and the colour of their curves.
GROUPS = {
    ("runs/robot", "runs/lstm"): ("with an LSTM", "#2b6cb0"),
    ("runs/no_memory",): ("without a memory", "#b7601f"),
}
#: A command in the page that is followed by what it prints.
_SHOWN = re.compile(
    r"^```console\n\$ (?P<command>[^`]*?)\n```\n\n```output\n(?P<output>.*?)```", re.M | re.S
)
#: Most lines of output that the page shows, and how many of a longer output from its beginning and
#: its end.
MOST_LINES = 20
FIRST_LINES = 14
LAST_LINES = 4
WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 44, 130, 30, 34


def checksums() -> dict[str, str]:
    """Return a checksum of each source, which layout and comments of a program do not change."""
    found = {}
    for name in SOURCES:
        path = ROBOT / name
        if path.suffix == ".py":
            found[name] = checksum(path)
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return found


def run() -> dict[str, Any]:
    """Run the tour, and return its record."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(ROBOT, FOLDER, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "88"}
    process = subprocess.Popen(
        [sys.executable, "tour.py"],
        cwd=FOLDER,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    for line in process.stdout or ():
        print(line, end="", flush=True)
        lines.append(line)
    if process.wait():
        raise SystemExit(f"tour.py ended with {process.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "command": "python tour.py",
        "cpu_minutes": round((used.ru_utime + used.ru_stime) / 60, 1),
        "checksums": checksums(),
        "curves": read_curves(FOLDER),
        "output": "".join(lines),
    }


def read_curves(folder: Path) -> dict[str, list[list[float]]]:
    """Return run → its learning curve, as pairs of steps and mean return."""
    curves = {}
    for path in sorted(folder.glob("runs/**/metrics.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        curves[path.parent.relative_to(folder).as_posix()] = [
            [row["timesteps_total"], round(row["episode_return_mean"], 2)]
            for row in rows
            if row["episode_return_mean"] is not None
        ]
    return curves


def read_record() -> dict[str, Any]:
    """Return the record of the last run."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def curves_of(curves: dict[str, list[list[float]]], folders: tuple[str, ...]) -> np.ndarray:
    """Return the curves of the runs in some folders, `[runs, points, 2]`."""
    return np.array([curve for name, curve in curves.items() if name.startswith(folders)])


def draw_curves() -> str:
    """Return the picture of the learning curves: each seed, and their mean."""
    curves = read_record()["curves"]
    last = max(curve[-1][0] for curve in curves.values())
    high = max(value for curve in curves.values() for _, value in curve)
    top = 2 * np.ceil(high / 2)

    def point(steps: float, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * steps / last
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)
        return f"{x:.1f},{y:.1f}"

    def line(pairs: np.ndarray, colour: str, width: float) -> str:
        points = " ".join(point(*pair) for pair in pairs)
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>'

    body = []
    for value in np.arange(0, top + 1, 2):
        body.append(line(np.array([[0, value], [last, value]]), GRID, 1))
        _, y = point(0, value).split(",")
        body.append(words(LEFT - 6, float(y) + 4, f"{value:.0f}", "end"))
    for steps in np.linspace(0, last, 4):
        x, y = point(steps, 0).split(",")
        body.append(words(float(x), float(y) + 16, f"{steps:,.0f}", "middle"))
    body.append(words(12, 18, "mean return of the last 100 episodes"))
    body.append(words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "steps", "middle"))
    for folders, (name, colour) in GROUPS.items():
        group = curves_of(curves, folders)
        body += [line(curve, colour, 0.7) for curve in group]
        mean = group.mean(0)
        body.append(line(mean, colour, 2.5))
        _, y = point(*mean[-1]).split(",")
        body.append(words(WIDTH - RIGHT + 8, float(y) + 4, name, size=12))
    return picture(body, WIDTH, HEIGHT)


def read_outputs() -> dict[str, str]:
    """Return command → what it printed in the recorded run."""
    outputs = {}
    for part in re.split(r"^\$ ", read_record()["output"], flags=re.M)[1:]:
        command, _, printed = part.partition("\n")
        # The progress of an evaluation is overwritten on a reader's screen.
        lines = [line for line in printed.splitlines() if not line.startswith("playing ")]
        outputs[command] = "\n".join(lines)
    return outputs


def shorten(output: str) -> str:
    """Return an output, without its middle if it is long."""
    lines = output.splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:FIRST_LINES], "...", *lines[-LAST_LINES:]]
    return "".join(f"{line}\n" for line in lines)


def fill_page(text: str) -> str:
    """Return the text of the page with the outputs of the recorded run."""
    outputs = read_outputs()

    def fill(match: re.Match[str]) -> str:
        command = re.sub(r" \\\n +", " ", match["command"])  # continued lines
        start = match.start("output") - match.start()
        return f"{match[0][:start]}{shorten(outputs[command])}```"

    return _SHOWN.sub(fill, text)


def main(arguments: list[str]) -> int:
    """Run the tour, write the page, or say whether the page is up to date."""
    if arguments == ["--run"]:
        RECORD.write_text(json.dumps(run(), indent=1) + "\n", encoding="utf-8")
    status = write({PAGE: fill_page(PAGE.read_text(encoding="utf-8"))}, arguments)
    if arguments == ["--check"] and read_record()["checksums"] != checksums():
        status = 1
        print("examples/robot was changed: python tools/robot_tutorial.py --run", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
