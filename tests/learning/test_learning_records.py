"""The records that tests of learning are held against, and the arithmetic behind their marks."""

from __future__ import annotations

import ast
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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

from rlcatalog_runs.comparison import interval

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted(
    [*ROOT.glob("tests/learning/test_learn_*.py"), *ROOT.glob("*/*/tests/test_*_learning.py")]
)


def recorded():
    return [(path, name) for path in TESTS for name in Record(path.with_suffix(".json"), "").all]


def held_tests(path):
    """The names of a file's tests of learning."""
    functions = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    return {node.name for node in functions if "over_seeds" in [arg.arg for arg in node.args.args]}


def named(cases):
    return pytest.mark.parametrize(
        ("path", "name"), cases, ids=lambda value: getattr(value, "stem", value)
    )


def swept(path, name, at_least=1):
    return len(Record(path.with_suffix(".json"), name).own()) >= at_least


every_record = named(recorded())
#: What is too short to say anything has said why.
every_sweep = named([case for case in recorded() if swept(*case)])
every_spread = named([case for case in recorded() if swept(*case, at_least=3)])


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_tests_and_records_of_learning_match(path):
    names = {name.partition("[")[0] for name in Record(path.with_suffix(".json"), "").all}
    assert names == held_tests(path)


def test_tests_of_learning_exist():
    assert len(TESTS) == 9
    assert len(recorded()) >= 30


@every_record
def test_sweep_has_enough_seeds_or_an_exception(path, name):
    record = Record(path.with_suffix(".json"), name)
    assert len(record.own()) >= record.needed or record.entry.get("exception")
    assert len(record.own()) < record.needed or "exception" not in record.entry  # no longer one
    if "with" in record.entry:
        beside = Record(record.path, record.entry["with"])
        assert len(beside.own()) >= ENOUGH or beside.entry.get("exception")


@every_spread
def test_mark_is_missed_by_chance_less_than_once_in_1000(path, name):
    record = Record(path.with_suffix(".json"), name)
    assert record.entry["seeds"] % 2 == 1
    assert record.chance_of_failure() < TOLERATED, record.returns()


@every_sweep
def test_mark_cannot_be_reached_without_learning(path, name):
    """At least half-way from there to what is learned."""
    record = Record(path.with_suffix(".json"), name)
    if "at_least" in record.entry:
        learned, chance = float(np.median(record.returns())), record.entry["chance"]
        assert record.mark - chance >= (learned - chance) / 2
    else:  # what cannot be learned: another test of the file learns more
        assert any(entry.get("at_least", -np.inf) > record.mark for entry in record.all.values())


@every_sweep
def test_sweep_was_made_with_the_current_settings(path, name):
    assert Record(path.with_suffix(".json"), name).entry["settings"] == fingerprint(
        path, name.partition("[")[0]
    )


@pytest.mark.parametrize("task", ["cartpole", "masked", "minigrid"])
def test_plain_module_learns_as_much_as_one_in_rllib_form(task):
    """The interquartile mean of the difference over equal seeds, in percent of what is learned."""
    path = ROOT / "plugins/ppo/tests/test_ppo_plain_learning.json"
    plain, classic = (
        Record(path, f"test_network_learns_in_either_form[{task}-{form}]")
        for form in ("plain", "rllib")
    )
    assert plain.entry["returns"].keys() == classic.entry["returns"].keys()
    reach = np.median(classic.own()) - classic.entry["chance"]
    difference = 100 * (np.array([plain.own()]) - np.array([classic.own()])).T / reach
    assert interval(difference)[0, 0] >= -10


# --- the arithmetic -------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 3, 5])
@pytest.mark.parametrize("mark", [430, 470, 495])
def test_chance_of_a_low_median_agrees_with_a_bootstrap(seeds, mark):
    """Draw returns with replacement and noise of width 1.06 sigma n^(-1/5) beside them; count low
    medians.
    """
    returns, rng = (
        np.array([500, 499, 480, 500, 455, 490, 500, 470, 498, 500.0]),
        np.random.default_rng(0),
    )
    draws = rng.choice(returns, (200_000, seeds))
    draws += rng.normal(0, 1.06 * returns.std(ddof=1) * 10**-0.2, draws.shape)
    assert chance_below(returns, mark, seeds, 0.0) == pytest.approx(
        np.mean(np.median(draws, 1) < mark), abs=0.004
    )


def test_chance_below_uses_the_least_width_for_equal_returns():
    # One standard deviation.
    assert chance_below([500.0] * 10, 475, 1, 25.0) == pytest.approx(0.158655, abs=1e-6)
    assert chance_below([500.0] * 10, 475, 3, 5.0) < 1e-12


def test_chance_below_with_one_bad_seed_is_not_tolerated():
    assert chance_below([500.0] * 9 + [280.0], 475, 5, 5.0) > TOLERATED
    assert chance_below([500.0] * 19 + [280.0], 475, 3, 5.0) > TOLERATED


# --- the harness ----------------------------------------------------------------------------------

SOURCE = '''
LR = 0.1

def test_learns(over_seeds):
    """Say something."""
    over_seeds(lambda seed: seed * LR, chance=0)

def helper():
    return 1
'''


@pytest.fixture
def case(tmp_path):
    """A test file of its own: `case(...)` makes what its test is given."""
    path = tmp_path / "test_it.py"
    path.write_text(SOURCE)
    return lambda **how: OverSeeds(path, "test_learns[a]", **how)


def test_sweep_continues_until_settings_change(case, tmp_path):
    seen, path = [], tmp_path / "test_it.json"
    case(sweep=2)(lambda seed: seen.append(seed) or 2.0, chance=lambda: 1.0)
    OverSeeds(tmp_path / "test_it.py", "test_learns[b]", sweep=1)(lambda seed: 7.0, chance=0.5)
    case(sweep=3)(lambda seed: seen.append(seed) or 3.0, chance=4.0)
    assert seen == [1000, 1001, 1002]
    kept = json.loads(path.read_text())
    assert kept["test_learns[a]"]["returns"] == {"1000": 2.0, "1001": 2.0, "1002": 3.0}
    assert (kept["test_learns[a]"]["chance"], kept["test_learns[b]"]["returns"]) == (
        1.0,
        {"1000": 7.0},
    )
    assert kept["test_learns[a]"]["versions"]["gymnasium"]
    case().record.write(exception="3 of 10 seeds")
    case(sweep=4)(lambda seed: 1.0, chance=4.0)
    assert json.loads(path.read_text())["test_learns[a]"]["exception"] == "3 of 10 seeds"
    case(sweep=10)(lambda seed: 1.0, chance=4.0)
    assert "exception" not in json.loads(path.read_text())["test_learns[a]"]
    (tmp_path / "test_it.py").write_text(SOURCE.replace("0.1", "0.2"))
    case(sweep=1)(lambda seed: 5.0, chance=4.0)
    assert json.loads(path.read_text())["test_learns[a]"]["returns"] == {"1000": 5.0}


def test_parallel_sweeps_keep_each_others_records(case, tmp_path):
    def write(name):
        for count in range(20):
            Record(tmp_path / "test_it.json", name).write(count=count)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, "abcdefgh"))
    written = json.loads((tmp_path / "test_it.json").read_text())
    assert written == {name: {"count": 19} for name in "abcdefgh"}
    both = [case(sweep=2), case(sweep=2, shift=5)]  # read before either has written
    for one, paid in zip(both, (1.0, 2.0), strict=True):
        one(lambda seed, paid=paid: paid, chance=0)
    found = json.loads((tmp_path / "test_it.json").read_text())["test_learns[a]"]["returns"]
    assert found == {"1000": 1.0, "1001": 1.0, "1005": 2.0, "1006": 2.0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test_it.json", "test_it.py"]


@pytest.mark.parametrize(
    ("mark", "passes"),
    [
        ({"at_least": 4}, True),
        ({"at_least": 5}, False),
        ({"at_most": 4}, True),
        ({"at_most": 3}, False),
    ],
)
def test_median_over_shifted_seeds_is_compared_with_the_mark(case, mark, passes):
    made = case(shift=100)
    made.record.write(seeds=3, chance=0, returns={"1000": 4.0}, **mark)
    paid, seen = {100: 9.0, 101: 4.0, 102: 0.0}, []

    def train(seed):
        seen.append(seed)
        return paid[seed]

    if passes:
        case(shift=100)(train, chance=0)
    else:
        with pytest.raises(AssertionError, match=r"median 4\.0"):
            case(shift=100)(train, chance=0)
    assert seen == [100, 101, 102]


def test_missing_record_error_says_how_to_make_one(case):
    with pytest.raises(
        LookupError,
        match=r"test_it\.json knows no sweep of test_learns\[a\]; run it with --sweep 10",
    ):
        case()(float, chance=0)


def test_fingerprint_changes_only_with_code_the_test_uses(tmp_path):
    path = tmp_path / "test_it.py"

    def of(source):
        path.write_text(source)
        return fingerprint(path, "test_learns")

    first = of(SOURCE)
    assert of(SOURCE.replace("chance=0)", "chance = (0))  # guessing")) == first
    assert of(SOURCE.replace("Say something.", "Say more.")) == first
    assert of(SOURCE.replace("return 1", "return 2")) == first
    assert of(SOURCE.replace("0.1", "0.2")) != first
    assert of(SOURCE.replace("seed * LR", "seed + LR")) != first
    assert of(SOURCE.replace("seed * LR", "seed * LR + helper()")) != first


def test_play_finishes_an_equal_share_in_each_environment():
    """Episodes of 1, 2, 3 ... steps that pay 1 each: five episodes of each of 20 environments pay 3
    on average.
    """
    import gymnasium as gym

    import rlcatalog

    class Growing(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 1, (2,)), gym.spaces.Discrete(2)
        length = 0

        def reset(self, *, seed=None, options=None):
            self.length += 1
            self.left = self.length
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.left -= 1
            return np.zeros(2, np.float32), 1.0, self.left == 0, False, {}

    policy = rlcatalog.build(env=Growing(), config={"fcnet_hiddens": [4]}, framework="torch")
    assert play(policy, Growing, 100) == 3.0
    assert random_play(Growing, 5) == 3.0
