"""The commands `runs` and `compare` for complete, partial, running and damaged runs."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from rlcatalog.errors import ConfigError, SavedPolicyError
from rlcatalog_cli.app import make_app
from rlcatalog_runs import record_run, run_folder
from rlcatalog_runs.comparison import compare, interquartile_mean, interval, settings_of
from rlcatalog_runs.summaries import find_runs, read_run


def run_command(*arguments):
    """Run `rlcatalog ARGUMENTS`; errors are raised."""
    arguments = [str(argument) for argument in arguments]
    return CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False)


def write_rows(folder, rows):
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "metrics.jsonl").write_text("".join(lines))


def make_rows(returns, *, every=100):
    """Return rows of metrics: a mean return every 100 steps and every second."""
    rows = []
    for i, mean in enumerate(returns):
        steps = every * (i + 1)
        rows.append(
            {"timesteps_total": steps, "episode_return_mean": mean, "time_total_s": float(i)}
        )
    return rows


def write_run(
    folder, returns=(1.0, 2.0), *, seed=0, env="CartPole-v1", every=100, model=None, **settings
):
    """Write a run as `rlcatalog train` does.

    Args:
        folder: A new folder, which is returned.
        returns: The mean returns, one every `every` steps.
        seed: The run's seed.
        env: The environment's id.
        every: Steps in an iteration.
        model: The model config.
        settings: Other settings of the algorithm; `name` is PPO and `lr` 0.001 by default.
    """
    algorithm = {"name": "PPO", "seed": seed, "lr": 0.001, **settings}
    config = {
        "env": env,
        "steps": 1000,
        "framework": "torch",
        "algorithm": algorithm,
        "model": model or {},
    }
    record = {
        "status": "finished",
        "started": "2026-01-01T00:00:00Z",
        "seconds": 1.5,
        "engine": None,
    }
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.json").write_text(json.dumps(config))
    write_rows(folder, make_rows(returns, every=every))
    return folder


def list_runs(folder):
    """Return what `rlcatalog runs --json` prints, as data."""
    printed = run_command("runs", folder, "--json").output
    return [json.loads(line) for line in printed.splitlines()]


# --- runs -----------------------------------------------------------------------------------------


def write_run_of_day(folder, day):
    write_run(folder)
    record = json.loads((folder / "run.json").read_text())
    record["started"] = f"{day}T00:00:00Z"
    (folder / "run.json").write_text(json.dumps(record))


def test_runs_are_listed_at_any_depth_newest_first(tmp_path):
    write_run_of_day(tmp_path / "a/old", "2026-01-01")
    write_run_of_day(tmp_path / "b/c/new", "2026-03-01")
    write_run_of_day(tmp_path / "middle", "2026-02-01")
    (tmp_path / "empty/notes").mkdir(parents=True)

    folders = [run["folder"] for run in list_runs(tmp_path)]

    assert folders == [str(tmp_path / name) for name in ("b/c/new", "middle", "a/old")]


def test_run_is_listed_with_its_facts(tmp_path):
    folder = write_run(tmp_path / "run", returns=[1.0, 2.0])

    [run] = list_runs(folder)

    # These are the numbers and the date that `write_run` writes.
    assert run.pop("seconds") == 1.5
    assert run == {
        "folder": str(folder),
        "env": "CartPole-v1",
        "algorithm": "PPO",
        "engine": None,
        "framework": "torch",
        "seed": 0,
        "steps": 200,  # two rows of 100
        "wanted": 1000,
        "last_return": 2.0,
        "best_evaluation": None,
        "status": "finished",
        "error": None,
        "started": "2026-01-01T00:00:00Z",
    }


def test_best_evaluation_of_a_run_is_listed(tmp_path):
    folder = write_run(tmp_path / "run")
    good_evaluation = {"return_mean": 7.0, "sampled_return_mean": 99.0}
    later_evaluation = {"return_mean": 4.0, "sampled_return_mean": 99.0}
    rows = [
        {"timesteps_total": 100, "episode_return_mean": 1.0, "evaluation": good_evaluation},
        {"timesteps_total": 200, "episode_return_mean": 5.0},
        {"timesteps_total": 300, "episode_return_mean": 3.0, "evaluation": later_evaluation},
    ]
    write_rows(folder, rows)

    [run] = list_runs(tmp_path)

    assert run["last_return"] == 3.0
    assert run["best_evaluation"] == 7.0  # the larger return_mean


def test_failed_run_is_listed_with_the_first_line_of_its_error(tmp_path):
    with pytest.raises(ValueError), run_folder(tmp_path / "bad"), record_run(tmp_path / "bad"):
        raise ValueError("no such thing\nat all")

    [run] = list_runs(tmp_path)

    assert run["status"] == "failed"
    assert run["error"] == "ValueError: no such thing"
    assert "failed: ValueError: no such thing" in run_command("runs", tmp_path).output


@pytest.fixture
def run_with_config_alone(tmp_path):
    """As a user's own training loop may write it."""
    folder = tmp_path / "config"
    folder.mkdir()
    config = {"env": "Pendulum-v1", "algorithm": {"name": "mine"}, "seed": 5}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def run_with_metrics_alone(tmp_path):
    """As a user's own training loop may write it."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    write_rows(folder, make_rows([1.0, 2.0]))
    return folder


#: A run of which nothing is known.
UNKNOWN = {
    "env": None,
    "algorithm": None,
    "framework": None,
    "seed": None,
    "steps": 0,
    "wanted": None,
    "last_return": None,
    "seconds": None,
    "status": None,
}


def test_run_with_config_alone_has_unknown_metrics(run_with_config_alone):
    [run] = list_runs(run_with_config_alone)

    known = {"env": "Pendulum-v1", "algorithm": "mine", "seed": 5}
    assert {key: run[key] for key in UNKNOWN} == {**UNKNOWN, **known}


def test_run_with_metrics_alone_has_unknown_settings(run_with_metrics_alone):
    [run] = list_runs(run_with_metrics_alone)

    known = {"steps": 200, "last_return": 2.0, "seconds": 1.0}  # from the last row
    assert {key: run[key] for key in UNKNOWN} == {**UNKNOWN, **known}


def test_partial_runs_are_listed_after_complete_ones(
    run_with_config_alone, run_with_metrics_alone, tmp_path
):
    complete = write_run(tmp_path / "whole")

    folders = [run["folder"] for run in list_runs(tmp_path)]

    assert folders == [str(complete), str(run_with_config_alone), str(run_with_metrics_alone)]
    printed = run_command("runs", tmp_path).output
    for folder in folders:
        assert folder in printed


#: Writes a row and a half of metrics, and waits to be killed.
WRITER = """
import sys, time
from pathlib import Path
from rlcatalog_runs import record_run, run_folder

folder = Path(sys.argv[1])
with run_folder(folder), record_run(folder), (folder / "metrics.jsonl").open("w") as metrics:
    metrics.write('{"timesteps_total": 10}\\n{"timesteps_')
    metrics.flush()
    print("there", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that is writing a run to `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "there\n"
    yield process
    process.kill()
    process.communicate()


def test_running_run_is_read_up_to_its_last_whole_row(writer, tmp_path):
    run = read_run(tmp_path)

    assert run.status == "running"
    assert run.steps == 10
    assert run.env is None
    assert run.last_return is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", "config.json: truncated or not JSON"),
        ("config.json", b"[]", "config.json: is damaged"),
        pytest.param(
            "config.json", b"[" * 100_000, "config.json: truncated or not JSON", id="nested"
        ),
        ("config.json", b"\xff", "config.json: truncated or not JSON"),
        ("run.json", b"[]", "run.json: not a record"),
        (
            "metrics.jsonl",
            b'{"timesteps_total": 1}\n{"timesteps\n{"timesteps_total": 2}\n',
            "metrics.jsonl: line 2",
        ),
        ("metrics.jsonl", b'{"timesteps_total": "many"}\n', "metrics.jsonl: line 1"),
        ("metrics.jsonl", b"[1]\n", "metrics.jsonl: line 1"),
        ("metrics.jsonl", b"\xff\n", "metrics.jsonl: is not text"),
        ("metrics.jsonl", b'{"timesteps_total": 1e999}\n', "metrics.jsonl: line 1"),
    ],
)
def test_damaged_run_is_listed_beside_others(name, content, message, tmp_path):
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad")
    (bad / name).write_bytes(content)

    good_run, bad_run = list_runs(tmp_path)

    assert good_run["status"] == "finished"
    assert bad_run["folder"] == str(bad)
    assert bad_run["status"] == "damaged"
    printed = run_command("runs", tmp_path).output
    [line] = [line for line in printed.splitlines() if line.startswith(f"{bad}: damaged: ")]
    assert message in line


def test_compare_of_a_damaged_run_is_an_error(tmp_path):
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad")
    (bad / "run.json").write_text("[]")

    with pytest.raises(SavedPolicyError, match="damaged"):
        run_command("compare", tmp_path, "--out", tmp_path / "curves.png")


@pytest.mark.parametrize(
    "settings",
    [{"seed": "x", "lr": [1]}, {"seed": 1.5}, {"seed": True}, {"name": 3, "seed": None}],
    ids=str,
)
def test_seed_that_is_not_an_integer_is_unknown(settings, tmp_path):
    [run] = list_runs(write_run(tmp_path / "run", **settings))

    assert run["seed"] is None
    assert run["status"] == "finished"


def test_names_are_printed_without_colours_or_control_codes(tmp_path):
    write_run(tmp_path / "run", env="[red]\x1b[31mX[/red]\n")

    command = run_command("runs", tmp_path)

    assert command.exit_code == 0
    assert "\x1b" not in command.output
    assert "[red]\\x1b[31mX[/red]" in command.output


@pytest.mark.parametrize("command", ["runs", "compare"])
@pytest.mark.parametrize(
    ("name", "message"), [(".", "contains no run"), ("none", "no such folder")]
)
def test_folder_without_runs_is_an_error(command, name, message, tmp_path):
    with pytest.raises(SavedPolicyError, match=message):
        run_command(command, tmp_path / name)


def test_links_and_hidden_folders_are_not_listed(tmp_path):
    folder = write_run(tmp_path / "runs/a")
    write_run(tmp_path / "runs/.trash/b")
    (tmp_path / "runs/again").symlink_to(folder)
    (tmp_path / "runs/round").symlink_to(tmp_path / "runs")

    assert list(find_runs(tmp_path / "runs")) == [folder]


def run_in_terminal(command, *, columns, terminal):
    """Return what a command prints to a terminal."""
    leader, follower = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(columns), "TERM": terminal, "NO_COLOR": "1"}
    subprocess.run(command, stdout=follower, check=True, env=environ)
    os.close(follower)
    output = b""
    try:
        while piece := os.read(leader, 4096):
            output += piece
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    return output.decode()


@pytest.mark.parametrize(
    ("columns", "terminal", "is_table"),
    # A table needs more than 60 columns.
    [(60, "xterm", False), (400, "xterm", True), (60, "dumb", False)],
)
def test_folder_is_printed_whole_in_any_terminal(columns, terminal, is_table, tmp_path):
    folder = write_run(tmp_path / ("a" * 70))
    command = [sys.executable, "-m", "rlcatalog_cli", "runs", str(tmp_path)]

    printed = run_in_terminal(command, columns=columns, terminal=terminal)

    assert str(folder) in printed
    assert "200 of 1,000" in printed  # steps
    has_lines_of_a_table = "┃" in printed
    assert has_lines_of_a_table == is_table


# --- compare: statistics --------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [1, 3, 4, 5, 11])
def test_interquartile_mean_is_scipys_trimmed_mean(runs):
    from scipy.stats import trim_mean

    returns = np.random.default_rng(runs).gamma(2.0, 50.0, (runs, 3))

    np.testing.assert_allclose(interquartile_mean(returns), trim_mean(returns, 0.25, axis=0))


def test_interval_is_scipys_bootstrap_over_runs():
    from scipy.stats import bootstrap, trim_mean

    def interquartile_mean_of_scipy(returns, axis):
        return trim_mean(returns, 0.25, axis=axis)  # without the lowest and the highest quarter

    returns = np.random.default_rng(1).normal(100.0, 20.0, size=(12, 1))  # of 12 runs

    [low], [high] = interval(returns)

    expected = bootstrap(
        (returns[:, 0],),
        interquartile_mean_of_scipy,
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    # Both draw at random, so the limits differ by up to a tenth of the width.
    tolerance = 0.1 * (expected.high - expected.low)
    assert low == pytest.approx(expected.low, abs=tolerance)
    assert high == pytest.approx(expected.high, abs=tolerance)


def test_interval_is_the_same_each_time():
    returns = np.random.default_rng(1).normal([0.0, 100.0], [1.0, 20.0], (12, 2))

    np.testing.assert_array_equal(interval(returns), interval(returns))


def test_interval_of_equal_runs_has_no_width():
    np.testing.assert_array_equal(interval(np.ones((3, 4))), np.ones((2, 4)))


# --- compare: curves ------------------------------------------------------------------------------


@pytest.fixture
def two_curves(tmp_path):
    """The curves of five runs to 1000 steps, and of one with another `lr` that ends at 450."""
    for seed in range(5):
        write_run(tmp_path / f"a{seed}", returns=[10.0 * seed] * 10, seed=seed)
    write_run(tmp_path / "b", returns=[0.0, 100.0, 200.0], every=150, lr=0.01)
    return compare([read_run(folder) for folder in sorted(find_runs(tmp_path))])


def test_runs_that_differ_in_the_seed_alone_are_one_curve(two_curves):
    first, second = two_curves

    assert first.label == "PPO, torch: lr=0.001"
    assert len(first.runs) == 5
    assert second.label == "PPO, torch: lr=0.01"
    assert len(second.runs) == 1


def test_curves_end_with_the_shortest_run(two_curves):
    first, second = two_curves

    assert first.steps[-1] == 450
    assert second.steps[-1] == 450


def test_curves_begin_with_their_first_return(two_curves):
    first, second = two_curves

    assert first.steps[0] >= 100
    assert second.steps[0] >= 150


def test_curve_of_several_runs_is_their_interquartile_mean(two_curves):
    curve, _ = two_curves

    np.testing.assert_allclose(curve.middle, 20.0)  # of 10, 20 and 30, without 0 and 40
    assert (curve.interval[0] < 20).all()
    assert (curve.interval[1] > 20).all()


def test_curve_of_one_run_goes_through_its_returns(two_curves):
    _, curve = two_curves

    # 0 at 150 steps, and 100 more after each 150.
    np.testing.assert_allclose(curve.middle, (curve.steps - 150) / 150 * 100)
    assert curve.interval is None


@pytest.mark.parametrize(
    ("by", "labels"),
    [
        (None, ["PPO: lr=0.001", "PPO: lr=0.1", "A2C"]),
        ("algorithm", ["PPO", "A2C"]),
        ("framework", ["torch"]),
        ("lr", ["lr=0.001", "lr=0.1"]),
        ("model", ["fcnet_hiddens=[8]", "fcnet_hiddens=[16]"]),
        ("fcnet_hiddens", ["fcnet_hiddens=[8]", "fcnet_hiddens=[16]"]),
    ],
)
def test_runs_are_grouped_by_a_setting(by, labels, tmp_path):
    # Each run is of PPO with PyTorch and lr=0.001, unless said otherwise.
    small = {"fcnet_hiddens": [8], "use_lstm": False}
    large = {"fcnet_hiddens": [16], "use_lstm": False}
    write_run(tmp_path / "1", model=small)
    write_run(tmp_path / "2", model=small, lr=0.1)
    write_run(tmp_path / "3", model=large, name="A2C")
    runs = [read_run(tmp_path / name) for name in ("1", "2", "3")]

    groups = compare(runs, by)

    assert [group.label for group in groups] == labels
    assert sum(len(group.runs) for group in groups) == 3


def test_labels_name_the_settings_that_differ(tmp_path):
    write_run(tmp_path / "1", constant=1, clip=0.1, gamma=0.9)
    write_run(tmp_path / "2", constant=1, clip=0.2, gamma=0.9)
    write_run(tmp_path / "3", constant=1, clip=0.1, gamma=0.5)
    runs = [read_run(tmp_path / name) for name in ("1", "2", "3")]

    labels = [group.label for group in compare(runs)]

    assert labels == [
        "PPO, torch: clip=0.1, gamma=0.9",
        "PPO, torch: clip=0.2, gamma=0.9",
        "PPO, torch: clip=0.1, gamma=0.5",
    ]


def test_settings_are_all_but_the_seed(tmp_path):
    first = settings_of(read_run(write_run(tmp_path / "0", seed=0)))
    second = settings_of(read_run(write_run(tmp_path / "1", seed=1)))

    assert first == second
    assert first["lr"] == 0.001
    assert "seed" not in first


# --- compare: errors ------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A run of CartPole with mean returns at 100 and 200 steps."""
    return read_run(write_run(tmp_path / "one", returns=[1.0, 2.0]))


def test_compare_of_two_environments_is_an_error(run, tmp_path):
    other = read_run(write_run(tmp_path / "other", env="Acrobot-v1"))

    with pytest.raises(ConfigError, match=r"ran CartPole-v1, .*other ran Acrobot-v1"):
        compare([run, other])


def test_compare_by_an_unknown_key_is_an_error(run):
    with pytest.raises(ConfigError, match="--by lrr: no run has a key of this name") as caught:
        compare([run], "lrr")

    assert ". Did you mean 'lr'" in str(caught.value)


def test_compare_of_a_run_without_a_return_is_an_error(run, tmp_path):
    without_return = read_run(write_run(tmp_path / "none", returns=[None, None]))

    with pytest.raises(ConfigError, match="none: has no mean return yet"):
        compare([run, without_return])


def test_compare_of_a_run_with_a_late_first_return_is_an_error(run, tmp_path):
    late = read_run(write_run(tmp_path / "late", returns=[None, None, 5.0]))

    with pytest.raises(ConfigError, match="late: has its first mean return only") as caught:
        compare([run, late])

    assert "the end of the shortest run" in str(caught.value)


def test_compare_of_an_unknown_environment_is_an_error(tmp_path):
    folder = write_run(tmp_path / "late")
    (folder / "config.json").unlink()

    with pytest.raises(ConfigError, match="late: its environment is unknown"):
        compare([read_run(folder)])


# --- compare: the command -------------------------------------------------------------------------


@pytest.fixture
def compared_folder(tmp_path):
    """Four runs of 2,000 steps, and one of 1,200 with another `lr`, called `again`."""
    for seed in range(4):
        returns = np.linspace(0, 100 + seed, 20)
        write_run(tmp_path / f"runs/{seed}", returns=returns, seed=seed)
    write_run(tmp_path / "runs/again", returns=[3.0] * 12, lr=0.1)
    return tmp_path / "runs"


def test_compare_prints_a_table(compared_folder, tmp_path):
    folders = [compared_folder, compared_folder / "0"]  # the first one contains the second
    command = run_command("compare", *folders, "--out", tmp_path / "curves.png")

    assert command.exit_code == 0
    # Columns: label, number of runs, their seeds, mean return.
    row = re.search(r"PPO, torch: lr=0\.001 +4 +0, 1, 2, 3 +(\S+)", command.output)
    # The middle two of the four runs rise from 0 to 101 and 102 in 20 rows, that is 19 equal steps.
    # All are compared at row 12, where the shortest run ends: 11 of these steps.
    assert float(row[1]) == pytest.approx(101.5 * 11 / 19, rel=0.01)
    assert "one run" in command.output  # the fifth has no interval
    assert "more than once" not in command.output


def test_compare_names_the_run_that_ends_first(compared_folder, tmp_path):
    command = run_command("compare", compared_folder, "--out", tmp_path / "curves.png")

    line = f"compared after 1,200 steps, where the shortest run ends: {compared_folder / 'again'}"
    assert line in command.output


def test_compare_draws_a_png_in_a_new_folder(compared_folder, tmp_path):
    run_command("compare", compared_folder, "--out", tmp_path / "new/curves.png")

    assert (tmp_path / "new/curves.png").read_bytes().startswith(b"\x89PNG")


def test_compare_draws_an_svg(compared_folder, tmp_path):
    run_command("compare", compared_folder, "--out", tmp_path / "curves.svg")

    assert b"<svg" in (tmp_path / "curves.svg").read_bytes()


def test_compare_warns_of_a_seed_that_occurs_twice(compared_folder, tmp_path):
    write_run(compared_folder / "0again", returns=[3.0] * 12, seed=0)

    command = run_command("compare", compared_folder, "--out", tmp_path / "curves.png")

    assert "seed 0 occurs more than once" in command.output


def test_compare_to_an_unknown_format_is_an_error(compared_folder, tmp_path):
    with pytest.raises(ConfigError, match=r"picture format\. Did you mean 'png'"):
        run_command("compare", compared_folder, "--out", tmp_path / "x.pgn")

    assert not (tmp_path / "x.pgn").exists()


# --- compare: unfair differences ------------------------------------------------------------------


def warnings_of_compare(*folders, out, by=None):
    """Return the warnings that the command prints."""
    options = ["--out", out]
    if by is not None:
        options += ["--by", by]
    lines = run_command("compare", *folders, *options).output.splitlines()
    return [line for line in lines if line.startswith("warning: ")]


def test_compare_of_equal_runs_warns_of_nothing(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"runs/{seed}", seed=seed)

    assert warnings_of_compare(tmp_path / "runs", out=tmp_path / "curves.png") == []


def test_compare_warns_of_runs_of_unequal_length(tmp_path):
    short = write_run(tmp_path / "short", returns=[1.0] * 8, every=1000)
    long = write_run(tmp_path / "long", returns=[1.0] * 60, every=1000, seed=1)

    [warning] = warnings_of_compare(short, long, out=tmp_path / "curves.png")

    assert "the runs have different lengths" in warning
    assert f"from 8,000 steps ({short}) to 60,000 ({long})" in warning
    assert f"rlcatalog train --resume {short} --steps 60000" in warning


def test_compare_allows_a_last_iteration_more(tmp_path):
    write_run(tmp_path / "runs/0", returns=[1.0] * 100, every=10)
    write_run(tmp_path / "runs/1", returns=[1.0] * 105, every=10, seed=1)  # 5 % longer

    assert warnings_of_compare(tmp_path / "runs", out=tmp_path / "curves.png") == []


def test_compare_warns_of_unequal_tasks(tmp_path):
    first = write_run(tmp_path / "first", env_config={"size": 3})
    other = write_run(tmp_path / "other", env_config={"size": 9}, seed=1)

    # By framework, the two runs form one curve, and its label does not show the config.
    warnings = warnings_of_compare(first, other, out=tmp_path / "curves.png", by="framework")

    assert len(warnings) == 1
    assert f'env_config is {{"size": 3}} in {first}, and {{"size": 9}} in {other}' in warnings[0]


def test_compare_warns_of_unequal_numbers_of_seeds(tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"runs/{seed}", seed=seed)
    write_run(tmp_path / "runs/other", lr=0.1)

    [warning] = warnings_of_compare(tmp_path / "runs", out=tmp_path / "curves.png")

    assert "3 (PPO, torch: lr=0.001) and 1 (PPO, torch: lr=0.1)" in warning
