"""Texts of Markdown pages, their tables and blocks; Python in a process of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import warm

ROOT = Path(__file__).resolve().parents[2]
#: Distribution → its folder.
PACKAGES = {
    "rlcatalog": "catalog",
    "rlcatalog-torch": "plugins/torch",
    "rlcatalog-tf": "plugins/tf",
    "rlcatalog-policy": "plugins/policy",
    "rlcatalog-runs": "plugins/runs",
    "rlcatalog-testing": "plugins/testing",
    "rlcatalog-cli": "plugins/cli",
    "rlcatalog-fcnet": "builtin_models/fcnet",
    "rlcatalog-visionnet": "builtin_models/visionnet",
    "rlcatalog-lstm": "builtin_models/lstm",
    "rlcatalog-attention": "builtin_models/attention",
    "rlcatalog-complex-input": "builtin_models/complex_input",
    "rlcatalog-parametric": "builtin_models/parametric",
    "rlcatalog-plain": "builtin_models/plain",
    "rlcatalog-categorical": "builtin_dists/categorical",
    "rlcatalog-gaussian": "builtin_dists/gaussian",
    "rlcatalog-bounded": "builtin_dists/bounded",
    "rlcatalog-deterministic": "builtin_dists/deterministic",
    "rlcatalog-multi-action": "builtin_dists/multi_action",
    "rlcatalog-autoregressive": "builtin_dists/autoregressive",
    "rlcatalog-preprocessors": "plugins/preprocessors",
    "rlcatalog-atari": "plugins/atari",
    "rlcatalog-filters": "plugins/filters",
    "rlcatalog-envs": "plugins/envs",
    "rlcatalog-ppo": "plugins/ppo",
    "rlcatalog-sb3": "plugins/sb3",
    "rlcatalog-rllib": "plugins/rllib",
    "rlcatalog-rsl-rl": "plugins/rsl_rl",
    "rlcatalog-skrl": "plugins/skrl",
    "rlcatalog-export": "plugins/export",
    "rlcatalog-compat": "plugins/compat",
}


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def rows(text):
    """Return the cells of every row of every table in a text, heads left out."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        head = number + 1 < len(lines) and re.fullmatch(r"\|[\s|:-]+\|", lines[number + 1])
        if line.startswith("|") and not head and not re.fullmatch(r"\|[\s|:-]+\|", line):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def between(text, marker):
    return text.partition(f"<!-- {marker} -->")[2].partition(f"<!-- /{marker} -->")[0]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def literal(cell):
    return ast.literal_eval(cell.strip("`"))


def run(*arguments, cwd):
    """Run Python in a process of its own; TensorFlow greets on standard error, so that is only
    shown on failure.
    """
    done = warm.run(arguments, cwd, {"COLUMNS": "200"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
