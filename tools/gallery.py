"""Runs the examples, and writes `docs/examples`: what each shows, its output, run time, picture and
source.

`python tools/gallery.py --run NAME...` runs examples (all without a name) and keeps what they print
in `docs/examples/records.json`; without `--run` the pages are written from what is kept. With
`--check` it only says whether the pages are up to date, and whether an example has changed since it
was run.

Why not sphinx-gallery: it runs each script in the process that builds the site, at every build, and
cuts it into cells; these are programs with options, which take longer than a build may.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import thumbnails
from generated import ROOT, write

EXAMPLES = ROOT / "examples"
#: The same programs without the catalog.
HAND_WRITTEN = EXAMPLES / "hand_written"
TARGET = ROOT / "docs/examples"
RECORDS = TARGET / "records.json"
#: What an example is run with for its page; all others without options.
ARGUMENTS = {
    "behaviour_cloning": ["--steps", "4000", "--updates", "1000", "--episodes", "5"],
    "complex_struct_space": ["--framework", "torch"],
    "custom_model_api": ["--framework", "torch"],
}
#: What is installed beside the others, for the examples that need it: see requirements/skrl.txt,
#: timm.txt and peers.txt.
BESIDE = {
    "skrl_ppo": ROOT / ".venv/skrl",
    "pretrained_backbone": ROOT / ".venv/timm",
    "tianshou_ppo": ROOT / ".venv/peers",
}
#: Runs a script with the packages of a folder: `FOLDER SCRIPT ARGUMENTS...`. A torchvision for CUDA
#: beside a PyTorch for the CPU only imports once two of its operators are declared, which timm does
#: not use.
START = """
import runpy, sys

folder = sys.argv[1]
sys.path.append(folder)
sys.argv[:2] = []
if folder.endswith("timm"):
    import torch

    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor"
            )
runpy.run_path(sys.argv[0], None, "__main__")
"""
#: Words of names that are not written small.
WORDS = {
    "api": "API",
    "cartpole": "CartPole",
    "cleanrl": "CleanRL",
    "dqn": "DQN",
    "keras": "Keras",
    "lstm": "LSTM",
    "ppo": "PPO",
    "rnn": "RNN",
    "sac": "SAC",
    "tf": "in TensorFlow",
    "torchrl": "TorchRL",
    "dist": "distribution",
    "env": "environment",
}
INTRODUCTION = [
    "---",
    "hide-toc: true",
    "---",
    "",
    "# Examples",
    "",
    "Each example is a short program. Its page shows what it prints, and the CPU time that it",
    "takes with one thread. Most examples also run in TensorFlow, with `--framework tf`.",
    "",
]
TRAINED_AGENTS = [
    "Each film shows a policy that was trained with the PPO of this repository.",
    "`python tools/site_films.py` makes the films again. The policies from",
    "[the zoo](../learning.md#the-zoo) are part of rlcatalog-ppo, so that you can play",
    "them yourself, for example with `rlcatalog evaluate zoo:Hopper-v5`.",
    "",
]
#: Film → title, link, text, and what the film shows.
AGENTS = {
    "gardener": (
        "The gardener",
        "../index.md",
        "An action is a tool and a direction, and a mask forbids tools without use.",
        "A robot waters the plants of a garden and picks their fruit.",
    ),
    "robot": (
        "The robot",
        "../tutorials/robot.md",
        "A camera, a lidar, a gripper with a mask, and an LSTM that remembers a colour.",
        "A robot finds boxes with its camera, and brings each of them to the pad of its colour.",
    ),
    "cartpole": (
        "CartPole in a web page",
        "../../examples/browser/README.md",
        "A web page plays CartPole with a policy in one exported file.",
        "A cart moves left and right, so that the pole on it does not fall.",
    ),
    "LunarLander-v3": (
        "LunarLander",
        "../learning.md#the-zoo",
        "Four discrete actions: from the zoo, after 500,000 steps.",
        "A lander slows down with its engines, and lands between two flags.",
    ),
    "Pendulum-v1": (
        "Pendulum",
        "../learning.md#the-zoo",
        "One torque: from the zoo, after 120,000 steps.",
        "A pendulum swings up and stays upright.",
    ),
    "Hopper-v5": (
        "Hopper",
        "../learning.md#the-zoo",
        "Three torques of MuJoCo's hopper: from the zoo, after a million steps.",
        "A leg with three joints, which balances and moves forward.",
    ),
    "MinAtar-Breakout-v1": (
        "Breakout of MinAtar",
        "../learning.md#the-zoo",
        "Images of ten by ten cells: from the zoo, after 500,000 steps.",
        "A paddle returns a ball, which breaks bricks.",
    ),
    "Workshop-v0": (
        "Workshop",
        "../learning.md#tasks-that-need-one-part-of-rlcatalog",
        "Masks in a Dict of two actions: the right machine and the right tool, from the zoo.",
        "A policy chooses a machine and a tool. An order says which, and few of them are free.",
    ),
    "Weeds-v0": (
        "Weeds",
        "../learning.md#tasks-that-need-one-part-of-rlcatalog",
        "A tool and a velocity in one action: from the zoo, after 150,000 steps.",
        "A robot drives to weeds, and pulls, cuts or digs out each of them.",
    ),
    "popgym-RepeatPreviousEasy-v0": (
        "RepeatPrevious of POPGym",
        "../learning.md#the-zoo",
        "A policy with an LSTM names the card that it saw four steps ago.",
        "Cards pass by, and the agent names the suit of the fourth card before the new one.",
    ),
}
#: Heading → examples. Each example is in one group.
GROUPS = {
    "Masks, actions and memory": [
        "action_masking",
        "parametric_actions_cartpole",
        "autoregressive_action_dist",
        "custom_action_dist",
        "rnn_model",
        "lstm_auto_wrapping",
        "attention_net",
        "trajectory_views",
        "complex_struct_space",
        "env_wrappers",
        "lookup",
    ],
    "Your own model and loss": [
        "custom_model",
        "custom_model_api",
        "keras_model",
        "batch_norm_model",
        "pretrained_backbone",
        "custom_loss",
        "self_supervised_loss",
    ],
    "Your own algorithm": [
        "ppo_single_file",
        "ppo_single_file_tf",
        "dqn",
        "sac",
        "behaviour_cloning",
    ],
    "Other engines": ["cleanrl_ppo", "skrl_ppo", "tianshou_ppo", "torchrl_ppo"],
}
#: Lines of output that are shown at most.
MOST = 24


def examples() -> dict[str, Path]:
    """Return the examples: name → file."""
    return {path.stem: path for path in sorted(EXAMPLES.glob("*.py"))}


def command(script: Path) -> list[str]:
    """Return what follows `python` on a command line that runs an example."""
    folder = BESIDE.get(script.stem)
    return [str(script)] if folder is None else ["-c", START, str(folder), str(script)]


def checksum(path: Path) -> str:
    """Return a checksum of a program's syntax tree, without docstrings.

    Layout, comments and docstrings do not change what a program prints.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        can_have_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if can_have_docstring and ast.get_docstring(node):
            del node.body[0]
    return hashlib.sha256(tree_text(tree).encode()).hexdigest()[:12]


def tree_text(node: object) -> str:
    """Return a syntax tree as text that is the same in every Python.

    `ast.dump` shows fields that newer versions of Python have added. Such a field is empty in a
    program that does not use it, and empty fields are left out here.
    """
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={tree_text(value)}"
            for name, value in ast.iter_fields(node)
            if value is not None and value != []
        ]
        return f"{type(node).__name__}({', '.join(fields)})"
    if isinstance(node, list):
        return f"[{', '.join(map(tree_text, node))}]"
    return repr(node)


def records() -> dict[str, dict[str, Any]]:
    """Return what was kept: name → arguments, output, seconds and checksum."""
    found: dict[str, dict[str, Any]] = (
        json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}
    )
    return found


def run(names: list[str]) -> None:
    """Run examples, each in an empty folder, and keep what they print."""
    for name in names or examples():
        arguments = ARGUMENTS.get(name, [])
        with tempfile.TemporaryDirectory() as folder:
            begin = cpu_seconds_of_children()
            done = subprocess.run(
                [sys.executable, "-W", "ignore", *command(EXAMPLES / f"{name}.py"), *arguments],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            seconds = cpu_seconds_of_children() - begin
        if done.returncode:
            raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr}")
        record = {
            "arguments": arguments,
            "output": done.stdout,
            "seconds": round(seconds),
            "checksum": "",
        }
        record["checksum"] = checksum(EXAMPLES / f"{name}.py")
        kept = {**records(), name: record}
        RECORDS.write_text(
            json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8"
        )
        print(f"{name}: {seconds:.0f} s")


def cpu_seconds_of_children() -> float:
    """Return the CPU seconds of the child processes that have ended.

    They depend less on what else the machine does than the time that has passed.
    """
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def shows(path: Path) -> tuple[str, str]:
    """Return the first line of an example's docstring, and the rest."""
    first, _, rest = (
        ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    ).partition("\n\n")
    return " ".join(first.split()), rest


def replaced(path: Path) -> list[str]:
    """Return what the catalog replaces in a hand-written program, as a unified diff; docstrings
    left out.
    """
    programs = [HAND_WRITTEN / path.name, path]
    if not programs[0].exists():
        return []
    texts = [program.read_text(encoding="utf-8") for program in programs]
    lines = [text.splitlines()[ast.parse(text).body[0].end_lineno :] for text in texts]
    names = [f"examples/hand_written/{path.name}", f"examples/{path.name}"]
    return list(difflib.unified_diff(*lines, *names, n=1, lineterm=""))


def title(name: str) -> str:
    """Return an example's name in words."""
    words = " ".join(WORDS.get(word, word) for word in name.split("_"))
    return words[0].upper() + words[1:]


def shown(output: str) -> str:
    """Return an output, its middle left out where it is long."""
    lines = output.splitlines()
    if len(lines) > MOST:
        lines = [*lines[: MOST // 2], f"... {len(lines) - MOST} lines ...", *lines[-MOST // 2 :]]
    return "\n".join(lines)


def page(name: str, path: Path, record: dict[str, Any]) -> str:
    """Return an example's page."""
    first, rest = shows(path)
    command = " ".join(["python", f"examples/{name}.py", *record["arguments"]])
    difference = replaced(path)
    if difference:
        link = f"[the script without the catalog](../../examples/hand_written/{name}.py)"
        rest += f"\n\n## What it replaces\n\nThe changes to {link}:\n\n"
        rest += "\n".join(["```diff", *difference, "```"])
    return "\n".join(
        [
            f"# {title(name)}",
            "",
            first,
            "",
            *([rest, ""] if rest else []),
            f"## What it prints in {record['seconds']} seconds of CPU time",
            "",
            "```output",
            f"$ {command}",
            shown(record["output"]),
            "```",
            "",
            "## The program",
            "",
            f"[`examples/{name}.py`](../../examples/{name}.py)",
            "",
            f"```{{literalinclude}} ../../examples/{name}.py",
            ":language: python",
            "```",
            "",
        ]
    )


def pages() -> dict[Path, str]:
    """Return all pages and pictures: file → text."""
    kept = records()
    found = {}
    cards = {}
    for name, path in examples().items():
        if name not in kept:
            raise SystemExit(
                f"examples/{name}.py was never run: python tools/gallery.py --run {name}"
            )
        found[TARGET / f"{name}.md"] = page(name, path, kept[name])
        picture, words = thumbnails.drawn(name, kept[name]["output"])
        found[TARGET / f"pictures/{name}.svg"] = picture
        text, _ = shows(path)
        cards[name] = card(f"![{words}](pictures/{name}.svg)", title(name), f"{name}.md", text)
    found[TARGET / "index.md"] = index(cards)
    return found


def index(cards: dict[str, list[str]]) -> str:
    """Return the page with a card for each trained agent and each example.

    Args:
        cards: Example → the lines of its card.
    """
    lines = [
        *INTRODUCTION,
        "## Trained agents",
        "",
        *TRAINED_AGENTS,
        *grid([film_card(name, *facts) for name, facts in AGENTS.items()]),
    ]
    rest = dict(cards)
    for heading, names in GROUPS.items():
        lines += [f"## {heading}", "", *grid([rest.pop(name) for name in names])]
    if rest:
        raise SystemExit(f"tools/gallery.py: GROUPS lacks {', '.join(rest)}")
    lines += ["```{toctree}", ":hidden:", "", *cards, "```", ""]
    return "\n".join(lines)


def grid(cards: list[list[str]]) -> list[str]:
    """Return the lines of cards beside each other."""
    lines = [":::::{container} gallery", ""]
    for lines_of_card in cards:
        lines += ["::::{container} card", "", *lines_of_card, "", "::::", ""]
    return [*lines, ":::::", ""]


def card(picture: str, name: str, link: str, text: str) -> list[str]:
    """Return the lines of a card: a picture, and below it a title and a text."""
    return [picture, "", f"**[{name}]({link})**", "", text]


def film_card(film: str, name: str, link: str, text: str, description: str) -> list[str]:
    """Return the lines of a card with a film, which readers who prefer less motion see as a still
    picture.
    """
    html = [
        "```{raw} html",
        '<video class="film" autoplay loop muted playsinline preload="none"',
        f' poster="../_static/films/{film}.webp"',
        f' aria-label="{description}">',
        '<source media="(prefers-reduced-motion: no-preference)"',
        f' src="../_static/films/{film}.mp4" type="video/mp4">',
        "</video>",
        "```",
    ]
    return card("\n".join(html), name, link, text)


def main(arguments: list[str]) -> int:
    """Run examples, write the pages, or say whether they are up to date."""
    if arguments[:1] == ["--run"]:
        run(arguments[1:])
    status, check = write(pages(), arguments), arguments == ["--check"]
    for name, path in examples().items():
        if check and records()[name]["checksum"] != checksum(path):
            status = 1
            print(
                f"examples/{name}.py was changed: python tools/gallery.py --run {name}",
                file=sys.stderr,
            )
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
