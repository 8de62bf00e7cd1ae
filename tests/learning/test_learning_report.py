"""The comparison of engines: which runs are compared with which, and what its page says of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import trim_mean

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.learning import engine as shared, engines, report
from benchmarks.learning.__main__ import wanted
from benchmarks.learning.tasks import TASKS

TASK = "CartPole-v1"
LOW, HIGH = TASKS[TASK].low, TASKS[TASK].high


def row(engine, net, seed, returned, task=TASK):
    return {"engine": engine, "net": net, "task": task, "seed": seed, "return": returned,
            "curve": [[100, returned / 2], [200 + seed, returned]]}  # fmt: skip


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    means = {("sb3", "own"): 100, ("sb3", "catalog"): 110, ("ours", "catalog"): 160, ("rllib", "own"): 50,
             ("rllib", "catalog"): 20}  # fmt: skip
    return [row(*side, seed, float(rng.normal(mean, 3))) for side, mean in means.items() for seed in range(8)]


def test_ours_is_compared_with_the_own_net_of_stable_baselines(rows):
    found = report.paired([*rows, row("ours", "catalog", 8, 500.0)], "ours", TASK)  # a seed that the other has not
    of = {(r["engine"], r["net"], r["seed"]): r["return"] for r in rows}
    expected = [[of["sb3", "own", seed], of["ours", "catalog", seed]] for seed in range(8)]
    np.testing.assert_array_equal(found, expected)


def test_the_summary_holds_interquartile_means_and_the_difference_in_percent_of_the_range(rows):
    returns = report.paired(rows, "sb3", TASK)
    told = report.summary(returns, TASK)
    assert told["base"][0] == pytest.approx(trim_mean(returns[:, 0], 0.25))
    assert told["catalog"][0] == pytest.approx(trim_mean(returns[:, 1], 0.25))
    percent = 100 * (returns[:, 1] - returns[:, 0]) / (HIGH - LOW)
    assert told["difference"][0] == pytest.approx(trim_mean(percent, 0.25))
    assert told["difference"][1] < told["difference"][0] < told["difference"][2]


def test_the_page_says_what_falls_below_the_mark(rows, tmp_path, monkeypatch):
    for name in ("PAGE", "PICTURE", "CURVES"):
        monkeypatch.setattr(report, name, tmp_path / "pictures" / f"{name}.{'md' if name == 'PAGE' else 'png'}")
    report.write([row | {"return": row["return"] - 60 * (row["net"] == "catalog") * (row["engine"] == "rllib")}
                  for row in rows])  # fmt: skip
    lines = [line for line in Path(report.PAGE).read_text().splitlines() if TASK in line]
    assert ["**below the mark**" in line for line in lines] == [False, True, False]  # as NAMES has them
    assert [line.split(" | ")[0].strip("| ") for line in lines] == list(report.NAMES.values())
    assert report.PICTURE.stat().st_size > 1000
    assert report.CURVES.stat().st_size > 1000


def test_curves_meet_where_all_seeds_have_points(rows):
    steps, returns = report.curves(rows, ("sb3", "own"), TASK)
    assert (steps[0], steps[-1]) == (100, 200)  # the first ends at 200, the last at 207
    first = next(r for r in rows if r["engine"] == "sb3")
    np.testing.assert_allclose(returns[0], np.interp(steps, [100, 200], [first["return"] / 2, first["return"]]))
    assert report.curves(rows, ("sb3", "own"), "Catch") is None


def test_each_engine_is_trained_with_each_of_its_nets():
    class Given:
        task, engine, seeds, unclaimed, required = [TASK], None, 2, False, False

    runs = list(wanted(Given))
    assert runs[:5] == [("sb3", TASK, "own", 0), ("sb3", TASK, "catalog", 0), ("rllib", TASK, "own", 0),
                        ("rllib", TASK, "catalog", 0), ("ours", TASK, "catalog", 0)]  # fmt: skip
    assert len(runs) == len(set(runs)) == 10


@pytest.mark.parametrize(("engine", "net"), [("ours", "catalog"), ("sb3", "own"), ("sb3", "catalog")])
def test_a_run_returns_its_score_and_its_curve(engine, net, monkeypatch):
    monkeypatch.setitem(TASKS, TASK, replace(TASKS[TASK], steps={"sb3": 1024}, settings={"epochs": 1}))
    monkeypatch.setattr(shared, "EPISODES", 3)
    result = engines.train(engine, TASK, net, 0)
    assert [steps for steps, _ in result["curve"]] == [512, 1024]
    assert all(8 < mean < 100 for _, mean in [*result["curve"], (0, result["return"])])
    assert result["parameters"] == 2 * (4 * 64 + 64 + 64 * 64 + 64) + 64 * 2 + 2 + 64 + 1  # two nets of 64 and 64
    again = engines.train(engine, TASK, net, 0)
    assert {**again, "train_seconds": 0} == {**result, "train_seconds": 0}
