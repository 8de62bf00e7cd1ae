"""The comparison of engines: which runs are compared with which, and what its page says of them."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.learning import engine as shared, engines, report
from benchmarks.learning.__main__ import wanted
from benchmarks.learning.measures import (
    Estimate,
    probability_of_improvement,
    seeds_needed,
    summary,
    verdict,
)
from benchmarks.learning.tasks import TASKS

TASK = "CartPole-v1"
LOW, HIGH = TASKS[TASK].low, TASKS[TASK].high


def row(engine, net, seed, returned, task=TASK):
    return {
        "engine": engine,
        "net": net,
        "task": task,
        "seed": seed,
        "return": returned,
        "curve": [[100, returned / 2], [200 + seed, returned]],
    }


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    means = {
        ("sb3", "own"): 100,
        ("sb3", "catalog"): 110,
        ("ours", "catalog"): 160,
        ("rllib", "own"): 50,
        ("rllib", "catalog"): 20,
    }
    return [
        row(*side, seed, float(rng.normal(mean, 3)))
        for side, mean in means.items()
        for seed in range(8)
    ]


def test_paired_compares_ours_with_the_own_net_of_sb3(rows):
    # a seed that the other has not.
    found = report.paired([*rows, row("ours", "catalog", 8, 500.0)], "ours", TASK)
    of = {(r["engine"], r["net"], r["seed"]): r["return"] for r in rows}
    expected = [[of["sb3", "own", seed], of["ours", "catalog", seed]] for seed in range(8)]
    np.testing.assert_array_equal(found, expected)


def test_summary_has_interquartile_means_and_their_difference(rows):
    returns = report.paired(rows, "sb3", TASK)
    told = summary(returns, LOW, HIGH)
    assert told["base"][0] == pytest.approx(trim_mean(returns[:, 0], 0.25))
    assert told["catalog"][0] == pytest.approx(trim_mean(returns[:, 1], 0.25))
    percent = 100 * (returns[:, 1] - returns[:, 0]) / (HIGH - LOW)
    assert told["difference"][0] == pytest.approx(trim_mean(percent, 0.25))
    assert told["difference"][1] < told["difference"][0] < told["difference"][2]


def test_probability_of_improvement_agrees_with_rliable():
    """The mean over tasks of U / (N K), as SciPy's Mann-Whitney test gives U; a tie counts half."""
    rng = np.random.default_rng(0)
    pairs = [rng.integers(0, 6, (seeds, 2)).astype(float) for seeds in (5, 10)]
    expected = np.mean(
        [
            mannwhitneyu(pair[:, 1], pair[:, 0], alternative="greater")[0] / len(pair) ** 2
            for pair in pairs
        ]
    )
    found = probability_of_improvement(pairs)
    assert found.point == pytest.approx(expected)
    assert 0 <= found.low < expected < found.high <= 1
    # 2 beats 1 and ties 2; 0 beats none; 3 beats 1, 2, ties 3.
    by_hand = np.array([[1.0, 2.0], [2.0, 0.0], [3.0, 3.0]])
    assert probability_of_improvement([by_hand]).point == pytest.approx(
        (1 + 0.5 + 0 + 1 + 1 + 0.5) / 9
    )
    assert probability_of_improvement([np.array([[0.0, 1.0]] * 5)]) == (1, 1, 1)
    assert probability_of_improvement([np.zeros((5, 2))]) == (0.5, 0.5, 0.5)


def test_interval_of_probability_resamples_each_side_separately():
    """Of two seeds each, one won by the catalog: means of four draws, and their percentiles by
    enumeration.
    """
    # Wins: catalog 1 beats base 0, loses to 2; catalog -1 loses to both.
    pair = np.array([[0.0, 1.0], [2.0, -1.0]])
    draws = [(0, 0), (0, 2), (2, 0), (2, 2)]
    shares = [
        np.mean([[x > y for y in base] for x in ours])
        for ours in [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        for base in draws
    ]
    found = probability_of_improvement([pair])
    assert found.point == 0.25
    assert (found.low, found.high) == tuple(
        np.percentile(shares, [2.5, 97.5], method="inverted_cdf")
    )


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        ((0, -9.9, 9), ""),
        ((5, 1, 9), ""),
        ((-5, -8, -1), "below 0"),
        ((-20, -30, -10), "below 0"),
        ((0, -20, 20), "undecided, about 15 more seeds"),  # half as wide needs four times the seeds
        ((-1, -11, 9), "undecided, about 2 more seeds"),
        ((-20, -40, 2), "undecided, about 2 more seeds"),  # until the interval leaves 0
        ((0, -10.1, 9), "undecided, about 1 more seed"),
    ],
)
def test_verdict_says_how_many_more_seeds_would_decide(difference, expected):
    assert verdict(Estimate(*map(float, difference)), 5) == expected


def test_more_seeds_are_needed_for_smaller_gaps():
    needed = [
        seeds_needed(Estimate(point, point - 20.0, point + 20.0), 5)
        for point in (5.0, 0.0, -5.0, -9.0)
    ]
    assert needed == sorted(needed)


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PAGE", tmp_path / "learning.md")
    monkeypatch.setattr(report, "PICTURES", tmp_path / "pictures")

    def write(rows):
        report.write(rows)
        return report.PAGE.read_text()

    return write


def test_page_names_results_below_0_with_their_reason(rows, page, monkeypatch):
    monkeypatch.setitem(report.REASONS, ("rllib", TASK, "catalog"), "Someone broke it.")
    text = page(
        [
            row
            | {
                "return": row["return"]
                - 60 * (row["net"] == "catalog") * (row["engine"] == "rllib")
            }
            for row in rows
        ]
    )
    lines = [line for line in text.splitlines() if f"| {TASK} |" in line]
    assert ["**below 0**" in line for line in lines] == [False, True, False]  # as NAMES has them
    assert [line.split(" | ")[0].strip("| ") for line in lines] == list(report.NAMES.values())
    assert f"- {TASK}, Ray RLlib: below 0. Someone broke it." in text.splitlines()
    for picture in ("learning_easy.png", "curves_easy.png"):
        assert (report.PICTURES / picture).stat().st_size > 1000
        assert f"(pictures/{picture})" in text
    assert "published.png" not in text


def test_page_adds_the_known_reason_to_an_undecided_result(rows, page, monkeypatch):
    swings = [
        row | {"return": row["return"] - 90 * (row["net"] == "catalog" and row["seed"] % 2)}
        for row in rows
    ]
    (line,) = [
        line
        for line in page(swings).splitlines()
        if line.startswith(f"- {TASK}, Stable-Baselines3: ")
    ]
    assert re.fullmatch(r".*: undecided, about \d+ more seeds\.", line)
    monkeypatch.setitem(report.REASONS, ("sb3", TASK, "catalog"), "It swings.")
    assert f"{line} It swings." in page(swings).splitlines()


def test_page_shows_results_once_a_task_has_three_seeds(page):
    name = "Hopper-v5"

    def lines(rows):
        return [line for line in page(rows).splitlines() if line.startswith(f"| {name} | ")]

    assert lines([])[:2] == [
        f"| {name} | {engine} | 1,000,000 | not yet run | | | | | |"
        for engine in ("Stable-Baselines3", "rlcatalog-ppo")
    ]
    rows = [
        {
            **row(engine, net, seed, 1000.0 + 100 * seed + 50 * (engine == "ours"), name),
            "greedy_return": 2000.0,
            "train_seconds": 500.0 + seed,
            "parameters": 70_000 + (net == "own"),
            "versions": {"torch": "2"},
        }
        for engine, net in (("sb3", "own"), ("ours", "catalog"))
        for seed in range(3)
    ]
    assert lines([row for row in rows if row["seed"] < 2])[1].endswith("| 2 of 5 seeds | | | | | |")
    text = page(rows)
    (ours,) = (line for line in lines(rows) if "rlcatalog-ppo | 1,000,000 | 3 |" in line)
    assert "| +1.4% (+1.4 to +1.4) |" in ours  # 50 of 3,580
    assert ours.endswith(" | 0.50 / 0.50 |")  # CPU seconds for 1,000 steps, of the middle seed
    assert (
        "| Hopper-v5 | 1,000,000 | Stable-Baselines3, own: 2,000; rlcatalog-ppo: 2,000 | 2,410 |"
        in text
    )
    assert "- weights: Stable-Baselines3, own: 70,001; rlcatalog-ppo: 70,000" in text
    assert "Versions in the records:\n\n- torch: 2\n" in text
    assert (report.PICTURES / "curves_published.png").stat().st_size > 1000


def test_each_task_with_published_settings_names_its_source():
    from benchmarks.learning.published_tasks import PUBLISHED

    for name, task in PUBLISHED.items():
        assert "](https://" in task.source, name
        assert all(figure.source.startswith("https://") for figure in task.published), name
        assert task.low < task.high


def test_curves_meet_where_all_seeds_have_points(rows):
    steps, returns = report.curves(rows, ("sb3", "own"), TASK)
    assert (steps[0], steps[-1]) == (100, 200)  # the first ends at 200, the last at 207
    first = next(r for r in rows if r["engine"] == "sb3")
    np.testing.assert_allclose(
        returns[0], np.interp(steps, [100, 200], [first["return"] / 2, first["return"]])
    )
    assert report.curves(rows, ("sb3", "own"), "Catch") is None


def test_each_engine_is_trained_with_each_of_its_nets():
    class Given:
        task, engine, seeds, unclaimed, required = [TASK], None, 2, False, False

    runs = list(wanted(Given))
    assert runs[:5] == [
        ("sb3", TASK, "own", 0),
        ("sb3", TASK, "catalog", 0),
        ("rllib", TASK, "own", 0),
        ("rllib", TASK, "catalog", 0),
        ("ours", TASK, "catalog", 0),
    ]
    assert len(runs) == len(set(runs)) == 10


@pytest.mark.parametrize(
    ("engine", "net"), [("ours", "catalog"), ("sb3", "own"), ("sb3", "catalog")]
)
def test_run_returns_its_score_and_its_curve(engine, net, monkeypatch):
    monkeypatch.setitem(
        TASKS, TASK, replace(TASKS[TASK], steps={"sb3": 1024}, settings={"epochs": 1})
    )
    monkeypatch.setattr(shared, "EPISODES", 3)
    result = engines.train(engine, TASK, net, 0)
    assert [steps for steps, _ in result["curve"]] == [512, 1024]
    assert all(8 < mean < 100 for _, mean in [*result["curve"], (0, result["return"])])
    # Two nets of 64 and 64.
    assert result["parameters"] == 2 * (4 * 64 + 64 + 64 * 64 + 64) + 64 * 2 + 2 + 64 + 1
    again = engines.train(engine, TASK, net, 0)
    assert {**again, "train_seconds": 0} == {**result, "train_seconds": 0}
