"""Command lines that nobody means to type: each ends with 0, 1 or 2 and a readable message, never
with a traceback.
"""

import contextlib
import io
import json
import logging
import random
import time
import warnings

import gymnasium
import pytest

import rlcatalog
import rlcatalog_ppo.config
from rlcatalog_cli import main

ENVIRONMENTS = [
    "CartPole-v1",
    "Pendulum-v1",
    "FrozenLake-v1",
    "Blackjack-v1",
    "CartPole-v0",
    "Taxi-v4",
    "a:b:c",
    ":",
    "::",
    ":CartPole-v1",
    "CartPole-v1:",
    "gymnasium:CartPole-v1",
    "gymnasium.no_such:X-v0",
    "json:CartPole-v1",
    "json:",
    ".:X-v0",
    "..a:X-v1",
    "os.path:Id",
    "1:2",
    "a b:c-v0",
    "__main__:X-v0",
    "this-that:X-v0",
    "broken_module_of_the_attack:X-v0",
    "",
    " ",
    "CartPole",
    "CartPole-v99999999999999999999",
    "CartPole-v",
    "cartpole-v1",
    "CartPole-v1 ",
    "ünïcödé-v1",
    "\udcff",
    "日本-v1",
    "../..",
    "/",
    "a/b/c-v0",
    "ns/Name-v0",
    "[bold]",
    "[/]",
    "%s",
    "{0}",
    "-v1",
    "x" * 5_000,
    "CartPole-v1\nb",
    "ALE/Pong-v5",
    "Ant-v2",
    "GymV21Environment-v0",
    "GymV26Environment-v0",
    "phys2d/CartPole-v0",
    "tabular/Blackjack-v0",
]
VALUES = [
    "",
    "{",
    "[1,",
    "null",
    "NaN",
    "-Infinity",
    "1e999",
    "-1",
    "0",
    "1",
    "2.5",
    "true",
    "True",
    "None",
    "[" * 100_000,
    "[" * 900 + "]" * 900,
    '{"a":' * 50_000,
    "1" * 5_000,
    '"\\ud800"',
    "\udcff",
    "ünïcödé",
    "{}",
    "[]",
    "[64,64]",
    "[2]",
    '{"a": {"b": [1]}}',
    "'x'",
    "lambda: 0",
    "relu",
    "normc",
    "onehot",
    "lstm",
    "a=b",
    "=",
    "[/]",
    "x" * 20_000,
    "\n",
]
PATHS = ["nowhere", ".", "/", "", "file", "file/below", "x" * 300, "\udcff", "empty", "a\nb"]
#: What one command line may take, in seconds of this process.
AT_MOST = 3.0


@pytest.fixture(scope="module")
def keys():
    return sorted(rlcatalog.default_catalog().schema.keys)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder where the lines are typed, with a module in it that ends the process when it is
    imported.
    """
    (tmp_path / "broken_module_of_the_attack.py").write_text("raise SystemExit('gone')")
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def typed(rng, keys):
    """Draw a command line."""
    command = rng.choice(["list", "explain", "explain", "explain", "evaluate", "train", "other"])
    if command == "other":
        command = rng.choice(
            [
                "",
                "-",
                "--help",
                "trian",
                "ünïcödé",
                "\udcff",
                "[/]",
                "x" * 2_000,
                "list ",
                "--",
                "os:system",
            ]
        )
    line = [command]
    if rng.random() < 0.95:
        line.append(rng.choice(PATHS if command == "evaluate" else ENVIRONMENTS))
    if command == "train":  # it would train for a while
        line += rng.choice(
            [["--steps", "0"], ["--steps", "many"], ["--set", "gama=1"], ["--set", "seed=1"]]
        )
        line += rng.choice(
            [[], [], ["--engine", "sb3"], ["-e", rng.choice(["", "nope", "ppo/ppo", "\udcff"])]]
        )
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        line += option(rng, keys)
    return line


def tiny_run(rng, keys):
    """Draw a run of four steps with odd settings; nothing of them is large, which would be a
    request like any other.
    """
    line = [
        "train",
        rng.choice(["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"]),
        "--steps",
        "4",
        "--out",
        rng.choice(PATHS),
    ]
    chosen = {"num_envs": "1", "rollout_length": "2", "minibatch_size": "2", "num_epochs": "1"}
    if rng.random() < 0.8:
        chosen[rng.choice(rlcatalog_ppo.config.PPOConfig.__struct_fields__)] = rng.choice(VALUES)
    line += [text for name, value in chosen.items() for text in ("--set", f"{name}={value}")]
    for _ in range(rng.choice([0, 1, 2])):
        key = rng.choice([name for name in keys if not name.startswith("_")])
        line += rng.choice(
            [
                ["--model", f"{key}={rng.choice(VALUES)}"],
                ["--model", f"{key}={rng.choice(VALUES)}"],
                [
                    "--seed",
                    rng.choice(["-1", "0", "4294967295", "4294967296", "99999999999999999999"]),
                ],
                ["--threads", rng.choice(["0", "1", "99999999999999999999"])],
                ["--record", rng.choice(PATHS)],
            ]
        )
    return line


def option(rng, keys):
    value = rng.choice(VALUES)
    return rng.choice(
        [
            ["--model", f"{rng.choice(keys)}={value}"],
            ["--model", f"{rng.choice(keys)}={value}"],
            ["--model", value],
            ["--model", f"{value[:100]}=1"],
            ["--model", "use_lstm=true"],
            ["--model"],
            ["--framework", rng.choice(VALUES)],
            ["--framework", rng.choice(["torch", "tf", "tf2", "jax", ""])],
            ["--json"],
            ["--json", "--json"],
            ["--json=1"],
            ["--kind", rng.choice(["model", "action_dist", "dists", "", "\udcff", "[/]"])],
            ["--nope"],
            ["-x"],
            ["--help"],
            ["--"],
            [value],
            ["--set", f"lr={value}"],
            ["--set", value],
            ["--seed", value],
            ["--threads", "0"],
            ["--episodes", rng.choice(["0", "-1", "x"])],
            ["--env", rng.choice(ENVIRONMENTS)],
            ["--out", rng.choice(PATHS)],
            ["--config", value],
            ["--config", "{not json"],
            ["--algo", value],
        ]
    )


def end_of(line):
    """Run a command line in this process, with streams as a terminal in UTF-8 has them."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    code = None
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always")
            main(line)
    except SystemExit as end:
        code = end.code
    return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


def fault(keys, seed, line=None):
    """Try one command line; say what is wrong with how it ended, or None."""
    line = line or typed(random.Random(f"line {seed}"), keys)
    short = [text[:60] for text in line]
    began = time.process_time()
    try:
        code, out, err = end_of(line)
    except BaseException as error:
        return f"seed {seed}: {short}: {type(error).__name__} is raw"
    if (took := time.process_time() - began) > AT_MOST:
        return f"seed {seed}: {short}: took {took:.1f} s"
    if code not in (0, None, 1, 2) or "Traceback" in err + out:
        return f"seed {seed}: {short}: ended with {code!r}: {err[:300]}"
    said = [text for text in err.splitlines() if not text.startswith("warning: ")]
    if code == 1 and (not said or not said[0].startswith("error: ") or len("".join(said)) > 4_000):
        return f"seed {seed}: {short}: no readable message: {len(err)} {err[:300]!r}"
    if code == 2 and "Usage:" not in err + out and "Error" not in err:
        return f"seed {seed}: {short}: no usage: {err[:300]!r}"
    if code in (0, None) and "--json" in line and "--help" not in line and "--" not in line:
        json.loads(out)
    return None


def attack(keys, seeds):
    faults = [found for seed in seeds if (found := fault(keys, seed))]
    assert not faults, f"{len(faults)} of {len(seeds)}:\n" + "\n".join(faults[:20])


@pytest.mark.usefixtures("folder")
def test_any_command_line_ends_with_a_readable_message(keys):
    attack(keys, range(100))


@pytest.mark.attack
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("part", range(4))
def test_a_thousand_command_lines_end_with_readable_messages(keys, part):
    attack(keys, range(part * 250, (part + 1) * 250))


@pytest.mark.attack
@pytest.mark.usefixtures("folder")
def test_odd_runs_train_or_end_with_readable_messages(keys):
    pytest.importorskip("torch")
    lines = [tiny_run(random.Random(f"run {seed}"), keys) for seed in range(200)]
    faults = [found for seed, line in enumerate(lines) if (found := fault(keys, seed, line))]
    assert not faults, "\n".join(faults[:20])


@pytest.mark.attack
def test_every_environment_gymnasium_knows_is_explained_or_refused(keys):
    logging.getLogger("gymnasium").setLevel(logging.ERROR)
    faults = [
        found
        for name in sorted(gymnasium.registry)
        if (found := fault(keys, name, ["explain", name, "--json"]))
    ]
    assert not faults, "\n".join(faults)
