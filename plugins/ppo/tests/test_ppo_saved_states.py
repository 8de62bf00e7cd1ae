"""Saved training states: bounds, fit to an algorithm, form as JSON and in files."""

from __future__ import annotations

import copy
import json
from collections import deque
from types import SimpleNamespace

import gymnasium as gym
import msgspec
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import ResumeWarning, SavedPolicyError
from rlcatalog_policy import Frozen, checksum_of
from rlcatalog_ppo import PPO, checkpoints
from rlcatalog_ppo.training_state import (
    check_fits,
    check_generators,
    check_like,
    check_state,
    numbers_of,
    warn_of_new_episodes,
    warn_of_other_draws,
)
from rlcatalog_ppo.trees import put_together, stack_steps, take_apart


def make_state(**changes):
    """Return the smallest valid state of an algorithm with one environment, with some changes."""
    return {
        "algorithm": "PPO",
        "env": None,
        "config": {"num_envs": 1, "env_config": {}},
        "steps": 0,
        "iterations": 0,
        "seconds": 0.0,
        "generator": {},
        "randomness": {
            "python": (3, (1, 2), None),
            "numpy": ("MT19937", np.zeros(624, np.uint32), 624, 0, 0.0),
            "policy": {},
        },
        "learner": {
            "kl_coeff": 0.0,
            "optimizer": {"step": 0, "first": {}, "second": {}, "behind": {}},
        },
        "collector": {"episodes": {"returns": [], "lengths": [], "total": 0}, "state": None},
        "environments": [{"generator": {}}],
        "callbacks": {},
        **changes,
    }


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": 2**53 - 1},
        {"iterations": 7, "seconds": 0.5},
        {"recorded": 3},
        {"frozen": True},
        {"env": "Walk-v0"},
    ],
    ids=str,
)
def test_state_within_its_bounds_is_accepted(changes):
    check_state(make_state(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 2**53},
        {"steps": -1},
        {"steps": 0.5},
        {"iterations": 2**53},
        {"seconds": -0.1},
        {"recorded": -1},
        {"environments": {}},
    ],
    ids=str,
)
def test_state_beyond_its_bounds_is_an_error(changes):
    with pytest.raises(msgspec.ValidationError):
        check_state(make_state(**changes))


def test_state_with_a_negative_kl_coeff_is_an_error():
    state = make_state()
    state["learner"]["kl_coeff"] = -1.0

    with pytest.raises(msgspec.ValidationError):
        check_state(state)


def test_state_with_more_than_a_hundred_returns_is_an_error():
    state = make_state()
    state["collector"]["episodes"]["returns"] = [0.0] * 101

    with pytest.raises(msgspec.ValidationError):
        check_state(state)


def test_state_of_another_numpy_generator_is_an_error():
    state = make_state()
    state["randomness"]["numpy"] = ("PCG64", np.zeros(4), 0, 0, 0.0)

    with pytest.raises(msgspec.ValidationError):
        check_state(state)


def test_state_with_an_entry_for_each_environment_is_accepted():
    config = {"num_envs": 2, "env_config": {}}

    check_state(make_state(config=config, environments=[{"generator": {}}, {"generator": {}}]))


def test_state_with_too_few_environments_is_an_error():
    config = {"num_envs": 3, "env_config": {}}

    with pytest.raises(ValueError, match="its config has num_envs=3") as caught:
        check_state(make_state(config=config, environments=[{"generator": {}}]))

    assert "contains the states of 1 environments" in str(caught.value)


# --- positions of generators ----------------------------------------------------------------------
# NumPy accepts any position, and then reads beyond its memory at the next draw.


def test_state_with_a_generator_out_of_bounds_is_an_error():
    generator = {"bit_generator": "MT19937", "state": {"pos": 625}}

    with pytest.raises(ValueError, match="a generator MT19937 is 625; expected 0 to 624"):
        check_state(make_state(generator=generator))


@pytest.mark.parametrize(
    "tree",
    [
        # The first and the last position.
        {"bit_generator": "MT19937", "state": {"pos": 0}},
        {"bit_generator": "MT19937", "state": {"pos": 624}},
        {"bit_generator": "Philox", "buffer_pos": 0},
        {"bit_generator": "Philox", "buffer_pos": 4},
        ["MT19937", [], 0],
        ["MT19937", [], 624, 0, 0.0],
        # NumPy checks this generator's position itself.
        {"bit_generator": "PCG64", "pos": 9999},
        # Not the state of a generator.
        {"bit_generator": ["MT19937"]},
        {"bit_generator": None},
        ("MT19937", 625),
        ("MT19937",),
        (["MT19937"], [], 625),
        ("Other", [], 625),
        "MT19937",
        3,
        None,
        np.arange(3),
        ("a", "MT19937", 625),
    ],
    ids=str,
)
def test_position_within_bounds_is_accepted(tree):
    check_generators({"a": [tree]})


@pytest.mark.parametrize(
    "bit_generator", [np.random.MT19937, np.random.Philox, np.random.PCG64, np.random.SFC64]
)
def test_position_of_a_generator_in_use_is_accepted(bit_generator):
    rng = np.random.Generator(bit_generator(1))

    for _ in range(700):  # more than the 624 numbers in the state of MT19937
        rng.random()
        check_generators([{"levels": (rng.bit_generator.state,)}])


def test_position_of_a_random_state_in_use_is_accepted():
    rng = np.random.RandomState(1)
    rng.random(100)

    check_generators(("x", rng.get_state()))


def put_directly(tree):
    return tree


def put_in_dict(tree):
    return {"a": tree}


def put_in_tuple_in_list(tree):
    return [1, (tree,)]


def put_in_another_generator(tree):
    return {"bit_generator": "PCG64", "inner": {"deep": [tree]}}


@pytest.mark.parametrize(
    "put", [put_directly, put_in_dict, put_in_tuple_in_list, put_in_another_generator]
)
@pytest.mark.parametrize(
    ("tree", "last_position"),
    [
        ({"bit_generator": "MT19937", "state": {"pos": 625}}, 624),
        ({"bit_generator": "MT19937", "state": {"pos": -1}}, 624),
        ({"bit_generator": "MT19937", "state": {"pos": 1.0}}, 624),
        ({"bit_generator": "MT19937", "state": "pos"}, 624),
        ({"bit_generator": "MT19937", "state": [1]}, 624),
        ({"bit_generator": "MT19937", "pos": 3}, 624),
        ({"bit_generator": "MT19937"}, 624),
        ({"bit_generator": "Philox", "buffer_pos": 5}, 4),
        ({"bit_generator": "Philox", "buffer_pos": -1}, 4),
        ({"bit_generator": "Philox"}, 4),
        # States of `np.random.RandomState`.
        (["MT19937", [], 625], 624),
        (["MT19937", [], -1], 624),
        (("MT19937", [0] * 3, 10**9, 0, 0.0), 624),
        (("MT19937", [], True), 624),
        (("Philox", [], 5, 1), 4),
    ],
    ids=str,
)
def test_position_out_of_bounds_is_an_error_at_any_depth(tree, last_position, put):
    message = rf"a generator (MT19937|Philox) is .*; expected 0 to {last_position}"

    with pytest.raises(ValueError, match=message):
        check_generators(put(tree))


# --- fit to an algorithm --------------------------------------------------------------------------


def make_arrays(weights=("w",), *, scale=None, state=None, **columns):
    """Return the part of a state that has arrays, for two environments.

    Args:
        weights: Names of the weights that are trained.
        scale: What scales rewards.
        state: The policy's memory.
        columns: Other arrays of the collector.
    """
    moments = {name: np.zeros(3, np.float32) for name in weights}
    collector = {
        "episodes": {"returns": []},
        "returns": np.zeros(2),
        "encoded": np.zeros((2, 4), np.float32),
    }
    return {
        "learner": {"optimizer": {"first": dict(moments), "second": dict(moments)}},
        "collector": {**collector, "scale": scale, "state": state, **columns},
    }


def make_memory(envs=2, **changes):
    """Return a policy's memory, each array with a row for each environment."""
    return {
        "memory": (np.zeros((envs, 5)),),
        "windows": {"obs": np.zeros((envs, 3))},
        "t": np.zeros(envs, int),
        "seen": {"obs": np.zeros((envs, 3, 1)), "t": np.zeros(envs)},
        "past": (np.zeros(envs),),
        **changes,
    }


REWARD_SCALE = {"moments": np.zeros(3), "sums": np.zeros(2)}


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        pytest.param(make_arrays(), make_arrays(), id="equal"),
        pytest.param(
            make_arrays(episodes={"returns": [1.0, 2.0]}), make_arrays(), id="other episodes"
        ),
        pytest.param(make_arrays(other=np.zeros(9)), make_arrays(), id="a column more"),
        pytest.param(make_arrays(), make_arrays(other=np.zeros(9)), id="a column fewer"),
        pytest.param(
            make_arrays(scale=REWARD_SCALE), make_arrays(scale=REWARD_SCALE), id="reward scale"
        ),
        pytest.param(make_arrays(scale=REWARD_SCALE), make_arrays(), id="no reward scale now"),
        pytest.param(make_arrays(), make_arrays(scale=REWARD_SCALE), id="no reward scale then"),
        pytest.param(
            make_arrays(state=make_memory()), make_arrays(state=make_memory()), id="memory"
        ),
        pytest.param(make_arrays(state=make_memory()), make_arrays(), id="no memory now"),
        pytest.param(
            make_arrays(state=make_memory(seen={})),
            make_arrays(state=make_memory()),
            id="nothing seen",
        ),
        pytest.param(
            make_arrays(state=make_memory(seen={"x": np.zeros((2, 9, 9))})),
            make_arrays(state=make_memory()),
            id="other arrays seen",
        ),
        pytest.param(
            make_arrays(returns=np.zeros(2, np.float32)), make_arrays(), id="smaller dtype"
        ),
        pytest.param(make_arrays(("a", "b")), make_arrays(("b", "a")), id="order of weights"),
        pytest.param(
            make_arrays(mask=None),
            make_arrays(mask=np.ones((2, 3), bool)),
            id="written before masks in infos were read",
        ),
    ],
)
def test_state_with_the_same_arrays_fits(saved, now):
    check_fits(saved, now)


def test_state_written_before_reward_scale_existed_fits():
    saved = make_arrays()
    del saved["collector"]["scale"]

    check_fits(saved, make_arrays(scale=REWARD_SCALE))


@pytest.mark.parametrize(
    ("saved_weights", "weights", "different"),
    [(("w", "b", "x"), ("w", "a"), "a, b, x"), ((), ("w",), "w"), (("w",), (), "w")],
    ids=["others", "more", "fewer"],
)
def test_state_of_other_trained_weights_is_an_error(saved_weights, weights, different):
    with pytest.raises(ValueError, match="frozen there, or vice versa: ") as caught:
        check_fits(make_arrays(saved_weights), make_arrays(weights))

    assert f"vice versa: {different}. Freeze the same ones" in str(caught.value)


@pytest.mark.parametrize(
    ("saved", "now", "message"),
    [
        (
            make_arrays(returns=np.zeros(3)),
            make_arrays(),
            r"collector/returns: expected float64 \[2\], found float64 \[3\]",
        ),
        (
            make_arrays(encoded=np.zeros((2, 4), int)),
            make_arrays(),
            r"/encoded: expected float32 \[2, 4\], found int64 \[2, 4\]",
        ),
        (
            make_arrays(scale={**REWARD_SCALE, "sums": np.zeros(3)}),
            make_arrays(scale=REWARD_SCALE),
            "collector/scale/sums: expected float64",
        ),
        (
            make_arrays(scale={"moments": np.zeros(3)}),
            make_arrays(scale=REWARD_SCALE),
            "collector/scale: expected .*sums.*, found",
        ),
    ],
    ids=["returns", "encoded", "sums", "scale"],
)
def test_state_with_other_arrays_is_an_error(saved, now, message):
    with pytest.raises(ValueError, match=message):
        check_fits(saved, now)


@pytest.mark.parametrize("name", ["memory", "windows", "t", "past"])
def test_memory_of_three_environments_does_not_fit_two(name):
    memory = make_memory(envs=2, **{name: make_memory(envs=3)[name]})

    with pytest.raises(ValueError, match=f"/state/{name}[/a-z0]*: expected"):
        check_fits(make_arrays(state=memory), make_arrays(state=make_memory(envs=2)))


@pytest.mark.parametrize(
    "seen",
    [
        {"a": np.zeros(2), "b": np.zeros(3)},
        {"a": np.zeros(3)},
        {"a": None},
        {"x": {"y": [0, 0]}},
        1,
        np.zeros(3),
    ],
    ids=str,
)
def test_seen_without_a_row_for_each_environment_is_an_error(seen):
    saved = make_arrays(state=make_memory(seen=seen))

    with pytest.raises(ValueError, match="collector/state/seen: expected arrays of 2 rows, found"):
        check_fits(saved, make_arrays(state=make_memory()))


def test_state_of_an_lstm_fits_itself_unless_changed():
    model = {"use_lstm": True, "lstm_cell_size": 2, "fcnet_hiddens": [2]}
    config = {"num_envs": 2, "rollout_length": 4, "num_epochs": 1, "minibatch_size": 8}
    algo = PPO("CartPole-v1", {**config, "model": model})
    now = algo.state()
    saved = algo.state()
    algo.stop()

    check_fits(saved, now)

    saved["collector"]["state"]["seen"] = {"x": np.zeros(3)}
    with pytest.raises(ValueError, match="collector/state/seen: expected arrays of 2 rows, found"):
        check_fits(saved, now)


@pytest.mark.parametrize("name", ["first", "second"])
def test_moments_of_another_shape_are_an_error(name):
    saved = make_arrays(["w"])
    saved["learner"]["optimizer"][name] = {"w": np.zeros(4, np.float32)}

    with pytest.raises(ValueError, match=f"^learner/optimizer/{name}/w: expected") as caught:
        check_fits(saved, make_arrays(["w"]))

    assert str(caught.value).endswith(": expected float32 [3], found float32 [4]")


#: Expected by the tests of `check_like`.
LIKE = {"a": [np.zeros(2), (np.zeros((1, 3), np.int32),)], "b": None}


def test_check_like_accepts_other_values_and_sizes_of_dtypes():
    value = {"a": [np.ones(2, np.float32), (np.ones((1, 3), np.int8),)], "b": None}

    check_like(value, LIKE, "place")


def test_check_like_rejects_another_structure():
    array_instead_of_tuple = {"a": [np.zeros(2), np.zeros((1, 3), np.int32)], "b": None}

    with pytest.raises(ValueError, match=r"^place: expected .*, found "):
        check_like(array_instead_of_tuple, LIKE, "place")


def test_check_like_rejects_another_kind_of_dtype():
    unsigned = {"a": [np.zeros(2), (np.zeros((1, 3), np.uint8),)], "b": None}

    with pytest.raises(ValueError, match=r"^place/a/1/0: expected") as caught:
        check_like(unsigned, LIKE, "place")

    assert str(caught.value).endswith("expected int32 [1, 3], found uint8 [1, 3]")


def test_check_like_rejects_another_shape():
    matrix = {"a": [np.zeros((2, 1)), (np.zeros((1, 3), np.int32),)], "b": None}

    with pytest.raises(ValueError, match=r"^place/a/0: expected") as caught:
        check_like(matrix, LIKE, "place")

    assert str(caught.value).endswith("expected float64 [2], found float64 [2, 1]")


# --- weights and filter ---------------------------------------------------------------------------


def test_numbers_are_copies_of_weights_and_filter():
    weight = np.zeros(2)
    statistics = {"mean": np.ones(3)}
    policy = SimpleNamespace(
        model=SimpleNamespace(get_weights=lambda: {"w": weight}),
        filter=SimpleNamespace(saved_state=lambda: statistics),
    )

    numbers = numbers_of(policy)
    weight += 1
    statistics["mean"] += 1

    assert numbers["weights"]["w"].tolist() == [0, 0]
    assert numbers["filter"]["mean"].tolist() == [1, 1, 1]


def test_numbers_without_a_filter_have_none():
    model = SimpleNamespace(get_weights=lambda: {"w": np.zeros(2)})

    assert numbers_of(SimpleNamespace(model=model, filter=None))["filter"] is None


# --- warnings -------------------------------------------------------------------------------------


class FrozenPolicy(Frozen):
    """A frozen policy that has generators with these names alone."""

    reason = "it has a loop"

    def __init__(self, names):
        self.names = names  # There is no policy to pass to `super().__init__`.

    def random_state(self):
        return dict.fromkeys(self.names)


#: The state of a run whose frozen policy drew from its own generator, called "frozen".
DRAWN_BY_FROZEN = {"randomness": {"policy": {"cpu": 0, "frozen": 0}}}


@pytest.mark.parametrize("names", [("cpu",), ()])
def test_frozen_policy_without_the_saved_generator_warns(names):
    with pytest.warns(ResumeWarning, match="not possible here: it has a loop") as caught:
        warn_of_other_draws(DRAWN_BY_FROZEN, FrozenPolicy(names))

    assert len(caught) == 1
    assert "It continues with the policy itself" in str(caught[0].message)


def test_frozen_policy_with_the_saved_generator_does_not_warn(recwarn):
    warn_of_other_draws(DRAWN_BY_FROZEN, FrozenPolicy(("cpu", "frozen")))

    assert not recwarn.list


def test_policy_that_is_not_frozen_does_not_warn(recwarn):
    policy = SimpleNamespace(random_state=lambda: {"cpu": None})

    warn_of_other_draws(DRAWN_BY_FROZEN, policy)

    assert not recwarn.list


def test_warning_of_new_episodes_gives_the_first_reason():
    reasons = {1: "it is mute", 3: "another"}

    with pytest.warns(ResumeWarning, match="^2 of 5 environments cannot ") as caught:
        warn_of_new_episodes(reasons, 5)

    assert " Environment 1: it is mute. Give" in str(caught[0].message)


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ((True, None), {"$tuple": [True, None]}),
        (deque([2.5], 4), {"$deque": [2.5]}),
        (b"\0\xff", {"$bytes": "AP8="}),
        (float("nan"), {"$float": "nan"}),
        (float("-inf"), {"$float": "-inf"}),
        (1.0, 1.0),
        ("$array", "$array"),
        ({"list": [1, {"a": ()}]}, {"list": [1, {"a": {"$tuple": []}}]}),
    ],
    ids=str,
)
def test_take_apart_writes_each_type_as_json(value, data):
    arrays = {}

    assert take_apart(value, arrays) == data
    assert arrays == {}


def test_take_apart_names_arrays_by_their_place():
    tree = {"list": [1, np.zeros(1)], "deep": {"x": (np.int8(3), [np.ones(2, bool)])}}
    arrays = {}

    data = take_apart(tree, arrays)

    assert data == {
        "list": [1, {"$array": "list/1"}],
        "deep": {"x": {"$tuple": [{"$array": "deep/x/0"}, [{"$array": "deep/x/1/0"}]]}},
    }
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "list/1": [0.0],
        "deep/x/0": 3,
        "deep/x/1/0": [True, True],
    }


@pytest.mark.parametrize(
    ("tree", "place", "data", "name"),
    [
        ([np.zeros(1)], "", [{"$array": "0"}], "0"),
        (np.zeros(1), "", {"$array": "value"}, "value"),
        (np.uint8(1), "here", {"$array": "here"}, "here"),
        ([np.zeros(1)], "at", [{"$array": "at/0"}], "at/0"),
        ([0, {"a": np.zeros(1)}], "at", [0, {"a": {"$array": "at/1/a"}}], "at/1/a"),
    ],
    ids=["list", "array", "number-at-a-place", "list-at-a-place", "dict-at-a-place"],
)
def test_take_apart_begins_names_with_the_place(tree, place, data, name):
    arrays = {}

    assert take_apart(tree, arrays, place) == data
    assert arrays.keys() == {name}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": [0, {"b": {1}}]}, "a/1/b: set cannot be saved"),
        ({1: 2}, "the state: the key 1 cannot be saved"),
        ({"a": {("x",): 2}}, r"a: the key \('x',\) cannot be saved"),
        ({"$array": 1}, r"the state: the key '\$array' cannot"),
        (np.array(["x"]), "the state: ndarray cannot be saved"),
        ({"a": np.array([1j])}, "a: ndarray cannot be saved"),
        (np.array([None]), "the state: ndarray cannot"),
        (np.str_("x"), "the state: str_ cannot"),
        ({1}, "the state: set cannot"),
        ([...], "0: ellipsis cannot be saved"),
    ],
    ids=str,
)
def test_take_apart_names_the_place_of_an_unknown_type(tree, message):
    with pytest.raises(TypeError, match=f"^{message}"):
        take_apart(tree, {})


@pytest.mark.parametrize("mark", ["$array", "$tuple", "$deque", "$bytes", "$float"])
def test_take_apart_rejects_its_own_marks_as_keys(mark):
    with pytest.raises(TypeError, match=rf"^a/0: the key '\{mark}' cannot"):
        take_apart({"a": [{mark: 1}]}, {})


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ([1, {"$tuple": [1, {"$deque": [2]}]}], [1, (1, deque([2]))]),
        ({"$bytes": "AP8="}, b"\0\xff"),
        ({"$float": "inf"}, float("inf")),
        ({}, {}),
        # Beside another key, a mark is a key as any other.
        ({"$tuple": [1], "other": 2}, {"$tuple": [1], "other": 2}),
        ({"plain": {"$tuple": []}}, {"plain": ()}),
        (None, None),
    ],
    ids=str,
)
def test_put_together_reads_json_of_each_type(data, value):
    assert put_together(data, arrays={}) == value


def test_put_together_takes_arrays_by_their_names():
    array = np.arange(3)

    tree = put_together({"a": [{"$array": "x"}]}, {"x": array})

    assert tree["a"][0] is array


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        ("$array", "no such name"),
        ("$array", []),
        ("$bytes", "!!!!"),
        ("$bytes", "A"),
        ("$float", "x"),
        ("$tuple", 3),
    ],
)
def test_put_together_rejects_wrong_values_of_marks(mark, value):
    with pytest.raises(ValueError, match=rf"^\{mark}: "):
        put_together([{mark: value}], {"x": np.arange(3)})


def test_tree_is_the_same_after_json():
    tree = {
        "list": [1, 2.5, True, None, "text"],
        "tuple": (float("inf"), -0.0),
        "dict": {"bytes": b"\0\1", "empty": {}},
        "large": 2**100,
        "empty": [],
    }

    text = json.dumps(take_apart(tree, {}), allow_nan=False)

    assert put_together(json.loads(text), {}) == tree


def test_arrays_of_a_tree_are_the_same_after_json():
    tree = {"array": (np.arange(3),), "number": np.float32(0.1)}
    arrays = {}

    text = json.dumps(take_apart(tree, arrays))
    restored = put_together(json.loads(text), arrays)

    assert restored.keys() == tree.keys()
    np.testing.assert_array_equal(restored["array"][0], np.arange(3))
    assert restored["number"] == np.float32(0.1)
    assert restored["number"].dtype == np.float32


@pytest.mark.parametrize("count", [1, 4])
def test_stack_steps_stacks_the_arrays_of_a_structure(count):
    step = {"a": np.zeros(2), "b": (np.ones(2), {"c": np.zeros((2, 3))})}

    steps = stack_steps([step] * count)

    assert steps["a"].shape == (count, 2)
    assert isinstance(steps["b"], tuple)
    assert steps["b"][0].shape == (count, 2)
    assert steps["b"][1]["c"].shape == (count, 2, 3)


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy():
    return rlcatalog.build(
        env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [2]}, framework="torch"
    )


@pytest.fixture
def checkpoint(policy, tmp_path):
    """The folder of a checkpoint with `make_state()`."""
    folder = tmp_path / "checkpoint"
    # Anything may be under "policy", because it is not written with the state.
    checkpoints.write(folder, policy, {**make_state(), "policy": {"weights": object()}})
    return folder


def test_checkpoint_text_is_signed(checkpoint):
    text = (checkpoint / "training.json").read_text()

    about = json.loads(text)
    assert text.endswith("}\n")
    assert about["format"] == "rlcatalog-training"
    assert about["format_version"] == 1
    assert about["checksum"] == checksum_of(about)
    assert "policy" not in about["state"]


def test_checkpoint_has_a_policy_a_text_and_a_file_of_arrays(checkpoint, policy):
    about = json.loads((checkpoint / "training.json").read_text())

    [file_of_arrays] = about["files"]
    files = {path.name for path in checkpoint.iterdir()}
    assert files == {"policy", "training.json", file_of_arrays}
    saved_policy = rlcatalog.load(checkpoint / "policy")
    assert saved_policy.model.get_weights().keys() == policy.model.get_weights().keys()


def test_checkpoint_is_read_as_it_was_written(checkpoint):
    folder, state = checkpoints.read(checkpoint)

    assert folder == checkpoint
    assert state.keys() == make_state().keys()
    np.testing.assert_array_equal(state["randomness"]["numpy"][1], np.zeros(624))


def edit_and_sign(checkpoint, **changes):
    """Change entries of a checkpoint's text, and write the checksum that fits."""
    path = checkpoint / "training.json"
    about = {**json.loads(path.read_text()), **changes}
    about["checksum"] = checksum_of(about)
    path.write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "no format 'rlcatalog-training' in it"),
        ({"format_version": 2}, "format version 2; this rlcatalog reads 1"),
        ({"files": {"../other": "0"}}, r"names the file '\.\./other'"),
    ],
)
def test_checkpoint_with_another_entry_is_an_error(changes, message, checkpoint):
    edit_and_sign(checkpoint, **changes)

    with pytest.raises(SavedPolicyError, match=message) as caught:
        checkpoints.read(checkpoint)

    assert "checkpoint/training.json: not a checkpoint, or damaged: " in str(caught.value)


def test_checkpoint_without_entries_is_an_error(checkpoint):
    (checkpoint / "training.json").write_text("[]")

    with pytest.raises(SavedPolicyError, match="no format 'rlcatalog-training' in it") as caught:
        checkpoints.read(checkpoint)

    assert "checkpoint/training.json: not a checkpoint, or damaged: " in str(caught.value)


def test_checkpoint_changed_without_its_checksum_is_an_error(checkpoint):
    path = checkpoint / "training.json"
    about = json.loads(path.read_text())
    about["state"]["steps"] = 7
    path.write_text(json.dumps(about))

    with pytest.raises(SavedPolicyError, match="its checksum differs") as caught:
        checkpoints.read(checkpoint)

    assert "checkpoint/training.json: not a checkpoint, or damaged: " in str(caught.value)


def test_checkpoint_with_an_invalid_state_is_an_error(checkpoint):
    about = json.loads((checkpoint / "training.json").read_text())
    edit_and_sign(checkpoint, state={**about["state"], "steps": -7})

    with pytest.raises(SavedPolicyError, match=r"not a checkpoint, or damaged: .*steps"):
        checkpoints.read(checkpoint)


def test_checkpoint_with_a_link_is_not_read(checkpoint, tmp_path):
    (checkpoint / "link").symlink_to(tmp_path)

    with pytest.raises(SavedPolicyError, match="link: a link, which is not followed"):
        checkpoints.read(checkpoint)


def test_checkpoint_with_a_text_above_32_mib_is_not_read(checkpoint):
    with (checkpoint / "training.json").open("r+b") as file:
        file.truncate(2**25 + 1)  # fills it with zeros, which take no space

    with pytest.raises(SavedPolicyError, match="at most 33554432"):  # 2**25
        checkpoints.read(checkpoint)


def test_read_of_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(SavedPolicyError, match="contains no checkpoint to resume") as caught:
        checkpoints.read(tmp_path)

    assert "(no training.json)" in str(caught.value)


def test_read_of_a_saved_policy_is_an_error(policy, tmp_path):
    policy.save(tmp_path / "saved")

    with pytest.raises(SavedPolicyError, match="contains a saved policy, not a checkpoint"):
        checkpoints.read(tmp_path / "saved")


REPLAYED = {"generator": {"g": 0}, "actions": [1] * 300}
SAVES_ITS_STATE = {"generator": {"g": 1}, "levels": [1] * 30}


@pytest.fixture
def state_with_actions():
    """A state with an environment that is replayed by its actions, and one that is not."""
    config = {"num_envs": 2, "env_config": {}}
    return make_state(environments=[REPLAYED, SAVES_ITS_STATE], config=config)


@pytest.fixture
def text_size(policy, state_with_actions, tmp_path):
    """The size of its text with all actions."""
    checkpoints.write(tmp_path / "measured", policy, copy.deepcopy(state_with_actions))
    return (tmp_path / "measured" / "training.json").stat().st_size


def test_actions_are_written_if_the_text_is_short_enough(
    policy, state_with_actions, text_size, tmp_path, monkeypatch
):
    monkeypatch.setattr(checkpoints, "_LONGEST", text_size)

    checkpoints.write(tmp_path / "checkpoint", policy, state_with_actions)

    _, state = checkpoints.read(tmp_path / "checkpoint")
    assert state["environments"] == [REPLAYED, SAVES_ITS_STATE]


def test_actions_are_left_out_if_the_text_is_too_long(
    policy, state_with_actions, text_size, tmp_path, monkeypatch
):
    monkeypatch.setattr(checkpoints, "_LONGEST", text_size - 1)

    with pytest.warns(ResumeWarning, match="need too much space to be saved"):
        checkpoints.write(tmp_path / "checkpoint", policy, state_with_actions)

    _, state = checkpoints.read(tmp_path / "checkpoint")
    why = "the actions of its episode need too much space to be saved"
    assert state["environments"] == [{"generator": {"g": 0}, "why": why}, SAVES_ITS_STATE]


def test_error_of_a_callback_is_blamed_on_its_state():
    with (
        pytest.raises(SavedPolicyError, match=r"^Evaluation: the saved state") as caught,
        checkpoints.blamed("Evaluation"),
    ):
        raise KeyError("x")

    assert "does not fit: KeyError: 'x'." in str(caught.value)


@pytest.mark.parametrize("error", [SavedPolicyError("as it is"), ResumeWarning("as it is")])
def test_error_of_rlcatalog_is_not_blamed_on_the_state(error):
    with pytest.raises(type(error), match=r"^as it is$"), checkpoints.blamed("Evaluation"):
        raise error
