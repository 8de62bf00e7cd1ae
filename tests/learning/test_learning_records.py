"""Records of learning: sweeps over seeds, the marks that tests must reach, and how both are made.

The median return over a test's seeds must reach the mark in its record, a JSON file beside the
test. A sweep runs the test's training for more seeds, and writes their returns into the record.
"""

from __future__ import annotations

import ast
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from learning import (
    ENOUGH,
    TOLERATED,
    OverSeeds,
    Record,
    chance_below,
    fingerprint,
    play,
    random_play,
)

import rlcatalog
from rlcatalog_runs.comparison import interval

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted(
    [*ROOT.glob("tests/learning/test_learn_*.py"), *ROOT.glob("*/*/tests/test_*_learning.py")]
)


def read_record(path, name):
    return Record(path.with_suffix(".json"), name)


def names_in_record(path):
    return list(read_record(path, name="").all)


def names_of_tests(path):
    """Return the functions of a file that request the fixture `over_seeds`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            if "over_seeds" in [argument.arg for argument in node.args.args]:
                names.add(node.name)
    return names


def count_seeds(case):
    return len(read_record(*case).own())


def parametrize_records(cases):
    return pytest.mark.parametrize(
        ("path", "name"), cases, ids=lambda value: getattr(value, "stem", value)
    )


RECORDS = [(path, name) for path in TESTS for name in names_in_record(path)]
each_record = parametrize_records(RECORDS)
each_sweep = parametrize_records([case for case in RECORDS if count_seeds(case) >= 1])
#: With fewer seeds nothing can be said about the spread of returns; these have an exception.
each_sweep_of_three_seeds = parametrize_records([c for c in RECORDS if count_seeds(c) >= 3])


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_tests_and_records_of_learning_match(path):
    names = {name.partition("[")[0] for name in names_in_record(path)}
    assert names == names_of_tests(path)


def test_tests_of_learning_exist():
    assert len(TESTS) == 12
    assert len(RECORDS) >= 30


# --- sweeps and marks -----------------------------------------------------------------------------


@each_record
def test_sweep_has_enough_seeds_or_an_exception(path, name):
    record = read_record(path, name)
    if len(record.own()) < record.needed:
        assert record.entry.get("exception")  # the reason
    else:
        assert "exception" not in record.entry


@each_record
def test_sweep_beside_another_has_one_with_enough_seeds(path, name):
    record = read_record(path, name)
    if "with" in record.entry:  # the same algorithm in another framework
        other = Record(record.path, record.entry["with"])
        assert len(other.own()) >= ENOUGH or other.entry.get("exception")


@each_sweep_of_three_seeds
def test_mark_is_missed_by_chance_less_than_once_in_1000(path, name):
    record = read_record(path, name)
    assert record.entry["seeds"] % 2 == 1  # the median is one of the returns
    assert record.chance_of_failure() < TOLERATED, record.returns()


@each_sweep
def test_mark_cannot_be_reached_without_learning(path, name):
    record = read_record(path, name)
    if "at_least" in record.entry:
        # The mark is at least half-way from random play to what is learned.
        learned = float(np.median(record.returns()))
        chance = record.entry["chance"]
        assert record.mark >= (chance + learned) / 2
    else:
        # This net cannot learn the task. Another test of the file has one that learns more.
        marks = [entry.get("at_least", -np.inf) for entry in record.all.values()]
        assert max(marks) > record.mark


@each_sweep
def test_sweep_was_made_with_the_current_settings(path, name):
    settings = read_record(path, name).entry["settings"]
    assert settings == fingerprint(path, name.partition("[")[0])


@pytest.mark.parametrize("task", ["cartpole", "masked", "minigrid"])
def test_plain_module_learns_as_much_as_one_in_rllib_form(task):
    path = ROOT / "plugins/ppo/tests/test_ppo_plain_learning.json"
    plain = Record(path, f"test_network_learns_in_either_form[{task}-plain]")
    rllib = Record(path, f"test_network_learns_in_either_form[{task}-rllib]")
    assert plain.entry["returns"].keys() == rllib.entry["returns"].keys()  # the same seeds

    # Differences in percent of what is learned; a column, because `interval` takes several tasks.
    learned = np.median(rllib.own()) - rllib.entry["chance"]
    differences = np.array(plain.own()) - np.array(rllib.own())
    percent = 100 * differences[:, np.newaxis] / learned

    # The lower bound of the 95% interval of the interquartile mean over seeds.
    low, _ = interval(percent)[:, 0]
    assert low >= -10


# --- the chance of a low median ------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 3, 5])
@pytest.mark.parametrize("mark", [430, 470, 495])
def test_chance_of_a_low_median_agrees_with_a_bootstrap(seeds, mark):
    returns = np.array([500, 499, 480, 500, 455, 490, 500, 470, 498, 500.0])
    # A smoothed bootstrap: returns are drawn again, with noise of the normal reference rule's
    # width, which is 1.06 sigma n^(-1/5).
    rng = np.random.default_rng(0)
    draws = rng.choice(returns, (200_000, seeds))
    draws += rng.normal(0, 1.06 * returns.std(ddof=1) * 10**-0.2, draws.shape)
    medians = np.median(draws, axis=1)

    chance = chance_below(returns, mark, seeds, width=0.0)

    assert chance == pytest.approx(np.mean(medians < mark), abs=0.004)


def test_chance_below_uses_the_least_width_for_equal_returns():
    equal_returns = [500.0] * 10
    # 475 is one standard deviation below 500.
    chance_of_one_run = chance_below(equal_returns, mark=475, seeds=1, width=25.0)
    assert chance_of_one_run == pytest.approx(0.158655, abs=1e-6)
    # It is five below 500, for two runs of three.
    assert chance_below(equal_returns, mark=475, seeds=3, width=5.0) < 1e-12


@pytest.mark.parametrize(("good_seeds", "seeds"), [(9, 5), (19, 3)])
def test_chance_below_with_one_bad_seed_is_not_tolerated(good_seeds, seeds):
    returns = [500.0] * good_seeds + [280.0]
    assert chance_below(returns, mark=475, seeds=seeds, width=5.0) > TOLERATED


# --- running tests and sweeps ---------------------------------------------------------------------

SOURCE = '''
LR = 0.1

def test_learns(over_seeds):
    """Say something."""
    over_seeds(lambda seed: seed * LR, chance=0)

def helper():
    return 1
'''


@pytest.fixture
def learning_file(tmp_path):
    """A file with one test of learning."""
    path = tmp_path / "test_it.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def over_seeds_of(learning_file):
    """Function that returns the fixture `over_seeds` of one test of the file."""

    def make(name="test_learns[a]", **options):
        return OverSeeds(learning_file, name, **options)

    return make


def read_entry(learning_file, name="test_learns[a]"):
    return json.loads(learning_file.with_suffix(".json").read_text())[name]


def test_sweep_continues_until_it_has_its_seeds(over_seeds_of, learning_file):
    trained = []

    def train(seed):
        trained.append(seed)
        return float(seed)

    over_seeds_of(sweep=2)(train, chance=lambda: 1.0)
    over_seeds_of(sweep=3)(train, chance=4.0)

    # Seeds of sweeps begin at 1000. The second sweep trains only the third seed.
    assert trained == [1000, 1001, 1002]
    entry = read_entry(learning_file)
    assert entry["returns"] == {"1000": 1000.0, "1001": 1001.0, "1002": 1002.0}
    assert entry["chance"] == 1.0  # of the first sweep
    assert entry["versions"]["gymnasium"]


def test_sweep_keeps_the_entries_of_other_tests(over_seeds_of, learning_file):
    over_seeds_of("test_learns[a]", sweep=1)(lambda seed: 2.0, chance=1.0)
    over_seeds_of("test_learns[b]", sweep=1)(lambda seed: 7.0, chance=0.5)
    over_seeds_of("test_learns[a]", sweep=2)(lambda seed: 3.0, chance=1.0)

    assert read_entry(learning_file, "test_learns[a]")["returns"] == {"1000": 2.0, "1001": 3.0}
    assert read_entry(learning_file, "test_learns[b]")["returns"] == {"1000": 7.0}


def test_sweep_of_ten_seeds_removes_the_exception(over_seeds_of, learning_file):
    over_seeds_of().record.write(exception="3 of 10 seeds")

    over_seeds_of(sweep=4)(lambda seed: 1.0, chance=4.0)
    assert read_entry(learning_file)["exception"] == "3 of 10 seeds"

    over_seeds_of(sweep=10)(lambda seed: 1.0, chance=4.0)
    assert "exception" not in read_entry(learning_file)


def test_sweep_starts_again_when_settings_change(over_seeds_of, learning_file):
    over_seeds_of(sweep=3)(lambda seed: 1.0, chance=4.0)

    learning_file.write_text(SOURCE.replace("LR = 0.1", "LR = 0.2"))
    over_seeds_of(sweep=1)(lambda seed: 5.0, chance=4.0)

    assert read_entry(learning_file)["returns"] == {"1000": 5.0}


def test_records_are_written_in_parallel(tmp_path):
    path = tmp_path / "test_it.json"

    def write_20_times(name):
        for count in range(20):
            Record(path, name).write(count=count)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write_20_times, "abcdefgh"))

    assert json.loads(path.read_text()) == {name: {"count": 19} for name in "abcdefgh"}
    assert list(tmp_path.iterdir()) == [path]  # no temporary file is left


def test_parallel_sweeps_keep_each_others_seeds(over_seeds_of, learning_file):
    # Both have read the record before either of them writes.
    first = over_seeds_of(sweep=2)
    second = over_seeds_of(sweep=2, shift=5)

    first(lambda seed: 1.0, chance=0)
    second(lambda seed: 2.0, chance=0)

    returns = {"1000": 1.0, "1001": 1.0, "1005": 2.0, "1006": 2.0}
    assert read_entry(learning_file)["returns"] == returns


@pytest.mark.parametrize("mark", [{"at_least": 4}, {"at_most": 4}], ids=str)
def test_median_over_shifted_seeds_reaches_the_mark(over_seeds_of, mark):
    # The test trains three seeds; the returns in the record are those of a sweep.
    over_seeds_of().record.write(seeds=3, chance=0, returns={"1000": 4.0}, **mark)
    return_of_seed = {100: 9.0, 101: 4.0, 102: 0.0}
    trained = []

    def train(seed):
        trained.append(seed)
        return return_of_seed[seed]

    over_seeds_of(shift=100)(train, chance=0)  # fails if the median, 4, misses the mark

    assert trained == [100, 101, 102]


@pytest.mark.parametrize("mark", [{"at_least": 5}, {"at_most": 3}], ids=str)
def test_median_that_misses_the_mark_fails(over_seeds_of, mark):
    over_seeds_of().record.write(seeds=3, chance=0, returns={"1000": 4.0}, **mark)
    return_of_seed = {100: 9.0, 101: 4.0, 102: 0.0}
    with pytest.raises(AssertionError, match=r"median 4\.0"):
        over_seeds_of(shift=100)(return_of_seed.get, chance=0)


def test_missing_record_error_says_how_to_make_one(over_seeds_of):
    message = r"test_it\.json knows no sweep of test_learns\[a\]; run it with --sweep 10"
    with pytest.raises(LookupError, match=message):
        over_seeds_of()(float, chance=0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("chance=0)", "chance = (0))  # guessing"),
        ("Say something.", "Say more."),
        ("return 1", "return 2"),  # in a function that the test does not use
    ],
    ids=["layout and comment", "docstring", "unused function"],
)
def test_fingerprint_ignores_what_the_test_does_not_use(learning_file, old, new):
    before = fingerprint(learning_file, "test_learns")
    learning_file.write_text(SOURCE.replace(old, new))
    assert fingerprint(learning_file, "test_learns") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("0.1", "0.2"), ("seed * LR", "seed + LR"), ("seed * LR", "seed * LR + helper()")],
    ids=["constant", "operation", "call"],
)
def test_fingerprint_changes_with_code_of_the_test(learning_file, old, new):
    before = fingerprint(learning_file, "test_learns")
    learning_file.write_text(SOURCE.replace(old, new))
    assert fingerprint(learning_file, "test_learns") != before


# --- playing episodes -----------------------------------------------------------------------------


class GrowingEpisodes(gym.Env):
    """Episodes of 1, 2, 3, ... steps with the reward 1."""

    observation_space = gym.spaces.Box(0, 1, (2,))
    action_space = gym.spaces.Discrete(2)
    length = 0

    def reset(self, *, seed=None, options=None):
        self.length += 1
        self.steps_left = self.length
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps_left -= 1
        return np.zeros(2, np.float32), 1.0, self.steps_left == 0, False, {}


def test_play_finishes_an_equal_share_in_each_environment():
    config = {"fcnet_hiddens": [4]}
    policy = rlcatalog.build(env=GrowingEpisodes(), config=config, framework="torch")
    # Each of 20 environments plays five episodes, whose mean return is (1 + 2 + 3 + 4 + 5) / 5.
    assert play(policy, GrowingEpisodes, episodes=100) == 3.0


def test_random_play_returns_the_mean_of_its_episodes():
    assert random_play(GrowingEpisodes, episodes=5) == 3.0
