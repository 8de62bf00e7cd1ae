"""The commands `runs` and `compare`, over folders of runs as they are written, and break."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from rlcatalog.errors import ConfigError, SavedPolicyError
from rlcatalog_cli.app import make_app
from rlcatalog_runs import recorded, run_folder
from rlcatalog_runs.comparison import compare, interquartile_mean, interval, settings_of
from rlcatalog_runs.summaries import find_runs, read_run


def rlcatalog(*arguments):
    return CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False)


def rows(values, every=100, **more):
    """Return lines of metrics."""
    return [
        {
            "timesteps_total": every * (i + 1),
            "episode_return_mean": value,
            "time_total_s": float(i),
            **more,
        }
        for i, value in enumerate(values)
    ]


def a_run(folder, values=(1.0, 2.0), *, seed=0, env="CartPole-v1", every=100, model=None, **keys):
    """Write a run as `rlcatalog train` does."""
    algorithm = {"name": "PPO", "seed": seed, "lr": 0.001, **keys}
    config = {
        "env": env,
        "steps": 1000,
        "framework": "torch",
        "algorithm": algorithm,
        "model": model or {},
    }
    folder.mkdir(parents=True)
    about = {
        "status": "finished",
        "started": "2026-01-01T00:00:00Z",
        "seconds": 1.5,
        "engine": None,
    }
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "config.json").write_text(json.dumps(config))
    lines = [json.dumps(row) for row in rows(values, every)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def listed(folder):
    printed = rlcatalog("runs", str(folder), "--json").output
    return [json.loads(line) for line in printed.splitlines()]


# --- runs -----------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_wherever_they_stand(tmp_path):
    for name, at in (("a/old", "2026-01-01"), ("b/c/new", "2026-03-01"), ("middle", "2026-02-01")):
        folder = a_run(tmp_path / name)
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "started": f"{at}T00:00:00Z"}))
    (tmp_path / "empty/notes").mkdir(parents=True)
    found = listed(tmp_path)
    assert [run["folder"] for run in found] == [
        str(tmp_path / name) for name in ("b/c/new", "middle", "a/old")
    ]
    assert found[0] == {
        "folder": str(tmp_path / "b/c/new"),
        "env": "CartPole-v1",
        "algorithm": "PPO",
        "engine": None,
        "framework": "torch",
        "seed": 0,
        "steps": 200,
        "wanted": 1000,
        "last_return": 2.0,
        "best_evaluation": None,
        "seconds": found[0]["seconds"],
        "status": "finished",
        "error": None,
        "started": "2026-03-01T00:00:00Z",
    }
    assert listed(tmp_path / "b/c/new") == found[:1]


def test_evaluations_and_how_runs_ended_are_told(tmp_path):
    folder = a_run(tmp_path / "run")
    told = rows([1.0, 5.0, 3.0])
    for row, value in zip(told, (7.0, None, 4.0), strict=True):
        row["evaluation"] = {"return_mean": value, "sampled_return_mean": 99.0}
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, told)) + "\n")
    with pytest.raises(ValueError), run_folder(tmp_path / "bad"), recorded(tmp_path / "bad"):
        raise ValueError("no such thing\nat all")
    found = {os.path.basename(run["folder"]): run for run in listed(tmp_path)}
    assert (found["run"]["last_return"], found["run"]["best_evaluation"]) == (3.0, 7.0)
    assert (found["bad"]["status"], found["bad"]["error"]) == (
        "failed",
        "ValueError: no such thing",
    )
    printed = rlcatalog("runs", str(tmp_path)).output
    assert "failed: ValueError: no such thing" in printed
    assert str(tmp_path / "run") in printed


def test_what_a_folder_does_not_say_is_left_open(tmp_path):
    """A loop of one's own may write only some of a run's files."""
    whole, config, metrics = (a_run(tmp_path / name) for name in ("whole", "config", "metrics"))
    for folder, name in (
        (config, "run.json"),
        (config, "metrics.jsonl"),
        (metrics, "run.json"),
        (metrics, "config.json"),
    ):
        (folder / name).unlink()
    (config / "config.json").write_text(
        json.dumps({"env": "Pendulum-v1", "algorithm": {"name": "mine"}, "seed": 5})
    )
    found = {os.path.basename(run["folder"]): run for run in listed(tmp_path)}
    assert list(found) == ["whole", "config", "metrics"]

    def told(name):
        names = (
            "env",
            "algorithm",
            "framework",
            "seed",
            "steps",
            "wanted",
            "last_return",
            "seconds",
            "status",
        )
        return tuple(found[name][key] for key in names)

    assert told("config") == ("Pendulum-v1", "mine", None, 5, 0, None, None, None, None)
    assert told("metrics") == (None, None, None, None, 200, None, 2.0, 1.0, None)
    printed = rlcatalog("runs", str(tmp_path)).output
    assert all(str(folder) in printed for folder in (whole, config, metrics))


def test_a_run_is_read_while_it_is_written_and_after_its_process_was_killed(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom rlcatalog_runs import recorded,"
        " run_folder\nfolder = Path(sys.argv[1])\nwith run_folder(folder), recorded(folder),"
        " (folder / 'metrics.jsonl').open('w') as metrics:\n"
        '    metrics.write(\'{"timesteps_total": 10}\\n{"timesteps_\')\n    metrics.flush()\n'
        "    print('there', flush=True)\n    time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        run = read_run(tmp_path)
        assert (run.status, run.steps, run.env, run.last_return) == ("running", 10, None, None)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert read_run(tmp_path).status == "died"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", "{", "config.json: truncated or not JSON"),
        ("config.json", "[]", "config.json: is damaged"),
        ("config.json", "[" * 100_000, "config.json: truncated or not JSON"),
        ("config.json", b"\xff", "config.json: truncated or not JSON"),
        ("run.json", "[]", "run.json: not a record"),
        (
            "metrics.jsonl",
            '{"timesteps_total": 1}\n{"timesteps\n{"timesteps_total": 2}\n',
            "metrics.jsonl: line 2",
        ),
        ("metrics.jsonl", '{"timesteps_total": "many"}\n', "metrics.jsonl: line 1"),
        ("metrics.jsonl", "[1]\n", "metrics.jsonl: line 1"),
        ("metrics.jsonl", b"\xff\n", "metrics.jsonl: is not text"),
        ("metrics.jsonl", '{"timesteps_total": 1e999}\n', "metrics.jsonl: line 1"),
    ],
)
def test_a_damaged_run_is_one_line_among_the_others(name, text, message, tmp_path):
    a_run(tmp_path / "good")
    bad = a_run(tmp_path / "bad")
    (bad / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    done = rlcatalog("runs", str(tmp_path))
    assert done.exit_code == 0
    (line,) = (line for line in done.output.splitlines() if "damaged: " in line)
    assert line.startswith(f"{bad}: damaged: ")
    assert message in line
    assert str(tmp_path / "good") in done.output
    good, damaged = listed(tmp_path)
    assert good["status"] == "finished"
    assert (damaged["folder"], damaged["status"]) == (str(bad), "damaged")
    with pytest.raises(SavedPolicyError, match="damaged"):
        rlcatalog("compare", str(tmp_path), "--out", str(tmp_path / "x.png"))


@pytest.mark.parametrize(
    "values", [{"seed": "x", "lr": [1]}, {"seed": 1.5}, {"seed": True}, {"name": 3, "seed": None}]
)
def test_values_of_other_types_are_no_seeds_and_no_names(values, tmp_path):
    (found,) = listed(a_run(tmp_path / "run", **values))
    assert found["seed"] is None
    assert found["status"] == "finished"


def test_what_files_say_is_printed_as_text(tmp_path):
    a_run(tmp_path / "run", env="[red]\x1b[31mX[/red]\n")
    done = rlcatalog("runs", str(tmp_path))
    assert done.exit_code == 0
    assert "\x1b" not in done.output
    assert "[red]\\x1b[31mX[/red]" in done.output


def test_a_folder_without_runs_is_named(tmp_path):
    for folder, message in ((tmp_path, "contains no run"), (tmp_path / "none", "no such folder")):
        for command in ("runs", "compare"):
            with pytest.raises(SavedPolicyError, match=message):
                rlcatalog(command, str(folder))


def test_links_and_hidden_folders_are_passed_over(tmp_path):
    folder = a_run(tmp_path / "runs/a")
    a_run(tmp_path / "runs/.trash/b")
    (tmp_path / "runs/again").symlink_to(folder)
    (tmp_path / "runs/round").symlink_to(tmp_path / "runs")
    assert list(find_runs(tmp_path / "runs")) == [folder]


@pytest.mark.parametrize(("columns", "terminal"), [(60, "xterm"), (400, "xterm"), (60, "dumb")])
def test_on_a_terminal_of_any_width_a_folders_name_stays_whole(columns, terminal, tmp_path):
    folder = a_run(tmp_path / ("a" * 70))
    leader, follower = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(columns), "TERM": terminal, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "rlcatalog_cli", "runs", str(tmp_path)]
    subprocess.run(command, stdout=follower, check=True, env=environ)
    os.close(follower)
    printed = b""
    try:
        while piece := os.read(leader, 4096):
            printed += piece
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert str(folder) in printed.decode()
    assert "200 of 1,000" in printed.decode()
    assert ("┃" in printed.decode()) is (columns == 400)


# --- compare --------------------------------------------------------------------------------------


def test_the_interquartile_mean_is_scipys_trimmed_mean():
    from scipy.stats import trim_mean

    for runs in (1, 2, 3, 4, 5, 8, 11):
        returns = np.random.default_rng(runs).gamma(2.0, 50.0, (runs, 3))
        np.testing.assert_allclose(interquartile_mean(returns), trim_mean(returns, 0.25, axis=0))


def test_the_interval_is_scipys_bootstrap_over_runs():
    from scipy.stats import bootstrap, trim_mean

    returns = np.random.default_rng(1).normal([0.0, 100.0], [1.0, 20.0], (12, 2))
    found = interval(returns)
    for point in range(2):
        other = bootstrap(
            (returns[:, point],),
            lambda x, axis: trim_mean(x, 0.25, axis=axis),
            n_resamples=4000,
            method="percentile",
            rng=np.random.default_rng(2),
        ).confidence_interval
        np.testing.assert_allclose(found[:, point], other, atol=0.1 * (other.high - other.low))
    np.testing.assert_array_equal(found, interval(returns))
    np.testing.assert_array_equal(interval(np.ones((3, 4))), np.ones((2, 4)))


def test_runs_that_differ_in_the_seed_alone_are_one_curve_over_the_steps_all_have(tmp_path):
    for seed in range(5):
        a_run(tmp_path / f"a{seed}", [10.0 * seed] * 10, seed=seed)
    a_run(tmp_path / "b", [0.0, 100.0, 200.0], seed=0, every=150, lr=0.01)  # ends after 450 steps
    groups = compare([read_run(folder) for folder in sorted(find_runs(tmp_path))])
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("PPO, torch: lr=0.001", 5),
        ("PPO, torch: lr=0.01", 1),
    ]
    first, second = groups
    assert first.steps[-1] == second.steps[-1] == 450
    assert first.steps[0] >= 100
    assert second.steps[0] >= 150
    np.testing.assert_allclose(first.middle, 20.0)  # of 0 to 40, without the first and the last
    assert (first.interval[0] < 20).all()
    assert (first.interval[1] > 20).all()
    assert second.interval is None
    np.testing.assert_allclose(second.middle, (second.steps - 150) / 150 * 100)


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
def test_curves_are_what_one_asks_for(by, labels, tmp_path):
    small, large = (
        {"fcnet_hiddens": [8], "use_lstm": False},
        {"fcnet_hiddens": [16], "use_lstm": False},
    )
    a_run(tmp_path / "1", model=small)
    a_run(tmp_path / "2", model=small, lr=0.1)
    a_run(tmp_path / "3", model=large, name="A2C")
    found = compare([read_run(tmp_path / name) for name in "123"], by)
    assert [group.label for group in found] == labels
    assert sum(len(group.runs) for group in found) == 3


def test_labels_tell_curves_apart_however_much_differs(tmp_path):
    for number in range(4):
        keys = {f"key{name}": (number >> bit) & 1 for bit, name in enumerate("ab")}
        a_run(tmp_path / str(number), constant=1, x=number // 9, y=number // 9, **keys)
    found = compare([read_run(tmp_path / str(number)) for number in range(4)])
    assert len({group.label for group in found}) == 4
    assert all("constant" not in group.label for group in found)
    assert found[3].label == "PPO, torch: keya=1, keyb=1"


def test_settings_are_all_but_the_seed(tmp_path):
    one, two = (read_run(a_run(tmp_path / str(seed), seed=seed)) for seed in (0, 1))
    assert settings_of(one) == settings_of(two)
    assert settings_of(one)["lr"] == 0.001
    assert "seed" not in settings_of(one)


def test_what_cannot_be_compared_is_named(tmp_path):
    one = read_run(a_run(tmp_path / "one"))
    other = read_run(a_run(tmp_path / "other", env="Acrobot-v1"))
    with pytest.raises(ConfigError, match=r"one ran CartPole-v1, .*other ran Acrobot-v1"):
        compare([one, other])
    with pytest.raises(
        ConfigError, match=r"--by lrr: no run has a key of this name\. Did you mean 'lr'"
    ):
        compare([one], "lrr")
    none = read_run(a_run(tmp_path / "none", [None, None]))
    with pytest.raises(ConfigError, match="none: has no mean return yet"):
        compare([one, none])
    late = read_run(a_run(tmp_path / "late", [None, None, 5.0]))
    with pytest.raises(
        ConfigError, match="late: has its first mean return only after the end of the shortest run"
    ):
        compare([one, late])
    (tmp_path / "late/config.json").unlink()
    with pytest.raises(ConfigError, match="late: its environment is unknown"):
        compare([read_run(tmp_path / "late")])


def test_the_command_prints_a_table_and_draws_a_picture(tmp_path):
    for seed in range(4):
        a_run(tmp_path / f"runs/{seed}", np.linspace(0, 100 + seed, 20), seed=seed)
    a_run(tmp_path / "runs/again", [3.0] * 12, lr=0.1)
    out = tmp_path / "new/curves.png"
    done = rlcatalog("compare", str(tmp_path / "runs"), str(tmp_path / "runs/0"), "--out", str(out))
    assert done.exit_code == 0
    first, *_ = (
        line.split() for line in done.output.splitlines() if line.startswith("PPO, torch: lr=0.001")
    )
    assert first[3:8] == ["4", "0,", "1,", "2,", "3"]
    # The middle two, at the 12th of 20 rows.
    assert float(first[8]) == pytest.approx(101.5 * 11 / 19, rel=0.01)
    assert "one run" in done.output
    assert (
        f"compared after 1,200 steps, where the shortest run ends: {tmp_path / 'runs/again'}"
        in done.output
    )
    assert "more than once" not in done.output
    assert out.read_bytes().startswith(b"\x89PNG")
    a_run(tmp_path / "runs/0again", [3.0] * 12, seed=0)
    done = rlcatalog("compare", str(tmp_path / "runs"), "--out", str(tmp_path / "curves.svg"))
    assert "seed 0 occurs more than once" in done.output
    assert b"<svg" in (tmp_path / "curves.svg").read_bytes()
    with pytest.raises(ConfigError, match=r"not a picture format. Did you mean 'png'"):
        rlcatalog("compare", str(tmp_path / "runs"), "--out", str(tmp_path / "x.pgn"))
    assert not (tmp_path / "x.pgn").exists()
