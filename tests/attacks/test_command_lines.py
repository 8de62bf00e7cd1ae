"""Random command lines: each ends with status 0, 1 or 2 and a readable message.

None ends with a traceback.
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
COMMANDS_THAT_DO_NOT_EXIST = [
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
#: The CPU time that one command line may take, in seconds.
LONGEST = 3.0


@pytest.fixture(scope="module")
def keys():
    return sorted(rlcatalog.default_catalog().schema.keys)


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """The working folder, with a file, an empty folder and a module that exits when imported."""
    (tmp_path / "broken_module_of_the_attack.py").write_text("raise SystemExit('gone')")
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def draw_line(rng, keys):
    """Draw a command line that ends soon."""
    command = rng.choice(["list", "explain", "explain", "explain", "evaluate", "train", "other"])
    if command == "other":
        command = rng.choice(COMMANDS_THAT_DO_NOT_EXIST)
    line = [command]
    if rng.random() < 0.95:
        line.append(rng.choice(PATHS if command == "evaluate" else ENVIRONMENTS))
    if command == "train":
        # Each of these is an error, because training would take long.
        line += rng.choice(
            [["--steps", "0"], ["--steps", "many"], ["--set", "gama=1"], ["--set", "seed=1"]]
        )
        engine = rng.choice(["", "nope", "ppo/ppo", "\udcff"])
        line += rng.choice([[], [], ["--engine", "sb3"], ["-e", engine]])
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        line += draw_option(rng, keys)
    return line


def draw_option(rng, keys):
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


def draw_short_run(rng, keys):
    """Draw a run of four steps with odd settings.

    No setting asks for much: a large net would be a request like any other, and take long.
    """
    line = ["train", rng.choice(["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])]
    line += ["--steps", "4", "--out", rng.choice(PATHS)]
    settings = {"num_envs": "1", "rollout_length": "2", "minibatch_size": "2", "num_epochs": "1"}
    if rng.random() < 0.8:
        name = rng.choice(rlcatalog_ppo.config.PPOConfig.__struct_fields__)
        settings[name] = rng.choice(VALUES)
    for name, value in settings.items():
        line += ["--set", f"{name}={value}"]
    public_keys = [name for name in keys if not name.startswith("_")]
    for _ in range(rng.choice([0, 1, 2])):
        line += draw_option_of_a_run(rng, public_keys)
    return line


def draw_option_of_a_run(rng, keys):
    seeds = ["-1", "0", "4294967295", "4294967296", "99999999999999999999"]
    return rng.choice(
        [
            ["--model", f"{rng.choice(keys)}={rng.choice(VALUES)}"],
            ["--model", f"{rng.choice(keys)}={rng.choice(VALUES)}"],
            ["--seed", rng.choice(seeds)],
            ["--threads", rng.choice(["0", "1", "99999999999999999999"])],
            ["--record", rng.choice(PATHS)],
        ]
    )


def run_in_process(line):
    """Run a command line in this process, and return its status, output and error output."""
    # Streams as those of a terminal in UTF-8.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    status = 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        try:
            main(line)
        except SystemExit as end:
            status = end.code or 0
    return status, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


def find_fault(line):
    """Run a command line, and return what is wrong with how it ended, or None."""
    start = time.process_time()
    try:
        status, out, err = run_in_process(line)
    except BaseException as error:
        return f"{type(error).__name__} is raised"
    seconds = time.process_time() - start
    if seconds > LONGEST:
        return f"took {seconds:.1f} s"
    if status not in (0, 1, 2) or "Traceback" in err + out:
        return f"ended with {status!r}: {err[:300]}"
    if status == 1 and not is_readable(err):
        return f"no readable message: {len(err)} {err[:300]!r}"
    if status == 2 and "Usage:" not in err + out and "Error" not in err:
        return f"no usage: {err[:300]!r}"
    if status == 0 and "--json" in line and not {"--help", "--"} & set(line):
        json.loads(out)
    return None


def is_readable(err):
    """Return whether an error output is a short message, after any warnings."""
    lines = [text for text in err.splitlines() if not text.startswith("warning: ")]
    return bool(lines) and lines[0].startswith("error: ") and len("".join(lines)) <= 4_000


def find_faults(lines):
    """Run command lines, and return a fault for each line that ends badly: line → fault."""
    faults = {}
    for line in lines:
        fault = find_fault(line)
        if fault is not None:
            faults[" ".join(text[:60] for text in line)] = fault
    return faults


@pytest.mark.usefixtures("working_folder")
def test_random_command_line_ends_with_readable_message(keys):
    lines = [draw_line(random.Random(f"line {seed}"), keys) for seed in range(100)]
    assert find_faults(lines) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("working_folder")
@pytest.mark.parametrize("part", range(4))
def test_thousand_command_lines_end_with_readable_messages(keys, part):
    seeds = range(part * 250, (part + 1) * 250)
    lines = [draw_line(random.Random(f"line {seed}"), keys) for seed in seeds]
    assert find_faults(lines) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("working_folder")
def test_odd_runs_train_or_end_with_readable_messages(keys):
    pytest.importorskip("torch")
    lines = [draw_short_run(random.Random(f"run {seed}"), keys) for seed in range(200)]
    assert find_faults(lines) == {}


@pytest.mark.slow
def test_explain_ends_readably_for_every_registered_environment():
    logging.getLogger("gymnasium").setLevel(logging.ERROR)
    lines = [["explain", name, "--json"] for name in sorted(gymnasium.registry)]
    assert find_faults(lines) == {}
