"""Whether a saved training state fits an algorithm, and what a run warns of that resumes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import ResumeWarning
from rlcatalog_policy import Frozen
from rlcatalog_ppo import PPO
from rlcatalog_ppo.training_state import (
    check_fits,
    check_like,
    warn_of_new_episodes,
    warn_of_other_draws,
    weights_and_filter,
)

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
            r"/returns: .* \[2\], found float64 \[3\]",
        ),
        (
            make_arrays(encoded=np.zeros((2, 4), int)),
            make_arrays(),
            r"/encoded: .*, found int64 \[2, 4\]",
        ),
        (
            make_arrays(scale={**REWARD_SCALE, "sums": np.zeros(3)}),
            make_arrays(scale=REWARD_SCALE),
            "collector/scale/sums: expected float64",
        ),
        (
            make_arrays(scale={"moments": np.zeros(3)}),
            make_arrays(scale=REWARD_SCALE),
            "/scale: expected .*sums.*, found",
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

    with pytest.raises(ValueError, match=r"collector/state/seen: .* of 2 rows"):
        check_fits(saved, make_arrays(state=make_memory()))


def test_state_of_an_lstm_fits_itself():
    model = {"use_lstm": True, "lstm_cell_size": 2, "fcnet_hiddens": [2]}
    config = {"num_envs": 2, "rollout_length": 4, "num_epochs": 1, "minibatch_size": 8}
    algo = PPO("CartPole-v1", {**config, "model": model})

    check_fits(algo.state(), algo.state())  # raises an error if it does not fit

    algo.stop()


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

    numbers = weights_and_filter(policy)
    weight += 1
    statistics["mean"] += 1

    assert numbers["weights"]["w"].tolist() == [0, 0]
    assert numbers["filter"]["mean"].tolist() == [1, 1, 1]


def test_numbers_without_a_filter_have_none():
    model = SimpleNamespace(get_weights=lambda: {"w": np.zeros(2)})

    assert weights_and_filter(SimpleNamespace(model=model, filter=None))["filter"] is None


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
