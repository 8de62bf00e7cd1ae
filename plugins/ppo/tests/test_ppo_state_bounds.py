"""Bounds of a saved training state, and positions of the generators in it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from training_states import make_state

from rlcatalog_ppo.training_state import check_generators, check_state

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

    with pytest.raises(ValueError, match="MT19937 is 625; expected 0 to 624"):
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
def test_position_out_of_bounds_is_an_error_at_any_depth(put):
    generator = {"bit_generator": "MT19937", "state": {"pos": 625}}

    with pytest.raises(ValueError, match="MT19937 is 625; expected 0 to 624"):
        check_generators(put(generator))


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
def test_position_out_of_bounds_is_an_error(tree, last_position):
    message = rf"a generator (MT19937|Philox) is .*; expected 0 to {last_position}"

    with pytest.raises(ValueError, match=message):
        check_generators(tree)
