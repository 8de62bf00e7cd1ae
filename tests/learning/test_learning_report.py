"""The comparison of engines: which runs are compared, the measures, and the page."""

from __future__ import annotations

import itertools
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean, ttest_rel

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.learning import __main__ as runner, engine as shared, engines, report
from benchmarks.learning.measures import (
    Estimate,
    holm,
    pooled_difference,
    probability_below_zero,
    probability_of_improvement,
    seeds_needed,
    summary,
    verdict,
)
from benchmarks.learning.published_tasks import PUBLISHED
from benchmarks.learning.tasks import TASKS

TASK = "CartPole-v1"
LOW = TASKS[TASK].low
HIGH = TASKS[TASK].high


def make_row(engine, net, seed, mean_return, task=TASK):
    """Return the record of a run, as `results.jsonl` has it."""
    return {
        "engine": engine,
        "net": net,
        "task": task,
        "seed": seed,
        "return": mean_return,
        "curve": [[100, mean_return / 2], [200 + seed, mean_return]],
    }


@pytest.fixture
def rows():
    """Records of eight seeds for each engine and net; rlcatalog-ppo is best, RLlib worst."""
    rng = np.random.default_rng(0)
    means = {
        ("sb3", "own"): 100,
        ("sb3", "catalog"): 110,
        ("ours", "catalog"): 160,
        ("rllib", "own"): 50,
        ("rllib", "catalog"): 20,
    }
    return [
        make_row(engine, net, seed, float(rng.normal(mean, 3)))
        for (engine, net), mean in means.items()
        for seed in range(8)
    ]


# --- which runs are compared ----------------------------------------------------------------------


def test_paired_compares_ours_with_the_own_net_of_sb3():
    rows = [
        make_row("sb3", "own", seed=0, mean_return=100.0),
        make_row("sb3", "own", seed=1, mean_return=101.0),
        make_row("sb3", "catalog", seed=0, mean_return=110.0),
        make_row("ours", "catalog", seed=0, mean_return=160.0),
        make_row("ours", "catalog", seed=1, mean_return=161.0),
        make_row("ours", "catalog", seed=8, mean_return=500.0),  # SB3 has no run of this seed
    ]

    pairs = report.paired(rows, report.Comparison(TASK, ("ours", "catalog"), ("sb3", "own")))

    assert pairs.tolist() == [[100.0, 160.0], [101.0, 161.0]]


def test_each_engine_is_trained_with_each_of_its_nets():
    options = Namespace(task=[TASK], engine=None, seeds=2, unclaimed=False)

    runs = list(runner.wanted(options))

    assert runs[:5] == [
        ("sb3", TASK, "own", 0),
        ("sb3", TASK, "catalog", 0),
        ("rllib", TASK, "own", 0),
        ("rllib", TASK, "catalog", 0),
        ("ours", TASK, "catalog", 0),
    ]
    assert len(runs) == 10  # and the same five for the second seed
    assert len(set(runs)) == 10


def test_curves_meet_where_all_seeds_have_points(rows):
    steps, returns = report.curves(rows, ("sb3", "own"), TASK)

    assert steps[0] == 100
    assert steps[-1] == 200  # the curve of seed 0 ends here, that of seed 7 at 207
    mean_return = rows[0]["return"]
    curve_of_seed_0 = np.interp(steps, [100, 200], [mean_return / 2, mean_return])
    np.testing.assert_allclose(returns[0], curve_of_seed_0)


def test_curves_of_a_task_without_runs_return_none(rows):
    assert report.curves(rows, ("sb3", "own"), "Catch") is None


@pytest.mark.parametrize(
    ("engine", "net"), [("ours", "catalog"), ("sb3", "own"), ("sb3", "catalog")]
)
def test_run_returns_its_score_and_its_curve(engine, net, monkeypatch):
    # A short run: two rollouts of 512 steps, and three episodes at its end.
    short_task = replace(TASKS[TASK], steps={"sb3": 1024}, settings={"epochs": 1})
    monkeypatch.setitem(TASKS, TASK, short_task)
    monkeypatch.setattr(shared, "EPISODES", 3)

    result = engines.train(engine, TASK, net, 0)
    repeated = engines.train(engine, TASK, net, 0)

    assert [steps for steps, _ in result["curve"]] == [512, 1024]
    means = [mean for _, mean in result["curve"]]
    for mean in [*means, result["return"]]:
        assert 8 < mean < 100  # of CartPole, at the beginning of training
    # Actor and critic each have layers of 64 and 64 for 4 numbers; then two logits and a value.
    hidden = (4 * 64 + 64) + (64 * 64 + 64)
    assert result["parameters"] == 2 * hidden + (64 * 2 + 2) + (64 + 1)
    # A run with the same seed is the same. Only its time differs.
    repeated["train_seconds"] = result["train_seconds"]
    assert repeated == result


# --- measures -------------------------------------------------------------------------------------


def test_summary_has_interquartile_means_and_their_difference(rows):
    returns = report.paired(rows, report.Comparison(TASK, ("sb3", "catalog"), ("sb3", "own")))
    base = returns[:, 0]
    catalog = returns[:, 1]

    estimates = summary(returns, LOW, HIGH)

    # The interquartile mean leaves out a quarter of the seeds on each side.
    assert estimates["base"].point == pytest.approx(trim_mean(base, 0.25))
    assert estimates["catalog"].point == pytest.approx(trim_mean(catalog, 0.25))
    percent_of_range = 100 * (catalog - base) / (HIGH - LOW)
    difference = estimates["difference"]
    assert difference.point == pytest.approx(trim_mean(percent_of_range, 0.25))
    assert difference.low < difference.point < difference.high


def compute_mann_whitney(pair):
    """Return U / (N K) of base and catalog by SciPy."""
    base = pair[:, 0]
    catalog = pair[:, 1]
    statistic = mannwhitneyu(catalog, base, alternative="greater").statistic
    return statistic / len(pair) ** 2


def test_probability_of_improvement_agrees_with_rliable():
    # rliable: the mean over tasks of U / (N K). Small integers, so there are ties.
    rng = np.random.default_rng(0)
    pairs = [rng.integers(0, 6, (seeds, 2)).astype(float) for seeds in (5, 10)]
    expected = np.mean([compute_mann_whitney(pair) for pair in pairs])

    estimate = probability_of_improvement(pairs)

    assert estimate.point == pytest.approx(expected)
    assert 0 <= estimate.low < expected < estimate.high <= 1


def test_probability_of_improvement_counts_ties_half():
    base_and_catalog = np.array([[1.0, 2.0], [2.0, 0.0], [3.0, 3.0]])
    # The catalog's 2 beats 1 and ties 2, its 0 beats none, its 3 beats 1 and 2 and ties 3.
    wins = (1 + 0.5) + 0 + (1 + 1 + 0.5)
    estimate = probability_of_improvement([base_and_catalog])
    assert estimate.point == pytest.approx(wins / 9)


def test_probability_of_improvement_is_1_if_catalog_always_wins():
    assert probability_of_improvement([np.array([[0.0, 1.0]] * 5)]) == (1, 1, 1)


def test_probability_of_improvement_is_a_half_for_equal_returns():
    assert probability_of_improvement([np.zeros((5, 2))]) == (0.5, 0.5, 0.5)


def share_of_wins(base, catalog):
    return np.mean([ours > theirs for ours in catalog for theirs in base])


def test_interval_of_probability_resamples_each_side_separately():
    base_and_catalog = np.array([[0.0, 1.0], [2.0, -1.0]])

    estimate = probability_of_improvement([base_and_catalog])

    assert estimate.point == 0.25  # of four pairs, only 1 against 0 is a win
    # All samples of two returns, with replacement, from each side.
    base_samples = list(itertools.product([0, 2], repeat=2))
    catalog_samples = list(itertools.product([1, -1], repeat=2))
    shares = [share_of_wins(base, ours) for base in base_samples for ours in catalog_samples]
    low, high = np.percentile(shares, [2.5, 97.5], method="inverted_cdf")
    assert (estimate.low, estimate.high) == (low, high)


def test_pooled_difference_is_the_mean_over_tasks():
    # The interquartile mean of four seeds is the mean of the two in the middle.
    first = np.array([0.0, 1.0, 3.0, 100.0])
    second = np.array([-4.0, -4.0, -4.0, -4.0])
    estimate = pooled_difference([first, second])
    assert estimate.point == pytest.approx((2.0 - 4.0) / 2)
    assert estimate.low < estimate.point < estimate.high


def test_pooled_difference_of_equal_seeds_has_no_width():
    assert pooled_difference([np.full(5, 2.0), np.full(3, 4.0)]) == (3.0, 3.0, 3.0)


def test_probability_below_zero_is_that_of_a_paired_t_test():
    rng = np.random.default_rng(0)
    base = rng.normal(size=8)
    catalog = base - 0.5 + rng.normal(size=8)
    expected = ttest_rel(catalog, base, alternative="less").pvalue
    returns = np.stack([base, catalog], axis=1)
    assert probability_below_zero(returns) == pytest.approx(expected)


def test_equal_returns_are_not_below_zero():
    assert probability_below_zero(np.ones((5, 2))) == 1.0


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        # Holm compares the smallest with 0.05 / 4, the next ones with 0.05 / 3, 0.05 / 2 and 0.05.
        ([0.01, 0.04, 0.03, 0.005], [True, False, False, True]),
        ([0.02, 0.02, 0.02, 0.02], [False, False, False, False]),
        ([0.01, 0.016, 0.02, 0.05], [True, True, True, True]),
        ([], []),
    ],
)
def test_holm_rejects_in_order_of_the_p_values(p_values, expected):
    assert holm(p_values) == expected


@pytest.mark.parametrize(
    ("point", "low", "high", "expected"),
    [
        # The claim is a difference above -10.
        (0, -9.9, 9, ""),
        (5, 1, 9, ""),
        (-5, -8, -1, "below 0"),
        (-20, -30, -10, "below 0"),
        # Half the width needs four times the five seeds.
        (0, -20, 20, "undecided, about 15 more seeds"),
        (-1, -11, 9, "undecided, about 2 more seeds"),
        # Until the interval is below 0.
        (-20, -40, 2, "undecided, about 2 more seeds"),
        (0, -10.1, 9, "undecided, about 1 more seed"),
    ],
)
def test_verdict_says_how_many_more_seeds_would_decide(point, low, high, expected):
    difference = Estimate(float(point), float(low), float(high))
    assert verdict(difference, seeds=5) == expected


def test_more_seeds_are_needed_for_smaller_gaps():
    # From 15 to 1 above the claim of -10, with intervals of equal width.
    points = [5.0, 0.0, -5.0, -9.0]
    needed = [seeds_needed(Estimate(point, point - 20.0, point + 20.0), 5) for point in points]
    assert needed == sorted(needed)


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.slow  # it resamples all records
def test_page_shows_the_stored_records(tmp_path, monkeypatch):
    page = report.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", tmp_path / "learning.md")
    monkeypatch.setattr(report, "PICTURES", tmp_path / "pictures")

    report.write(runner.RECORDS.read())

    text = report.PAGE.read_text(encoding="utf-8")
    assert text == page, "run `python -m benchmarks.learning --report`"


@pytest.mark.parametrize(("name", "task"), PUBLISHED.items(), ids=PUBLISHED)
def test_task_with_published_settings_names_its_source(name, task):
    assert "](https://" in task.source
    for figure in task.published:
        assert figure.source.startswith("https://")
    assert task.low < task.high
