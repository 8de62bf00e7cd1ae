"""Parts of spaces without a single value: seen as nothing, or refused by name before anything is
built.

Crosses: policy, preprocessors, deterministic.
"""

from __future__ import annotations

import numpy as np
import pytest
from builders import sample_observations, to_array
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.spaces import Simplex

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4]}
FLOATS = {
    "floats": spaces.Box(-1, 1, (0,), np.float32),
    "floats of rank 2": spaces.Box(-1, 1, (3, 0), np.float32),
}
OTHERS = {
    "integers": spaces.Box(0, 3, (0, 2), np.int64),
    "choices": spaces.MultiDiscrete(np.zeros((2, 0), np.int64)),
    "simplex": Simplex((0, 3)),
}
EMPTY_SPACES = {**FLOATS, **OTHERS}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
dists = pytest.mark.parametrize(
    "config",
    [
        {},
        {"use_autoregressive": True},
        {"custom_action_dist": "squashed_gaussian"},
        {"custom_action_dist": "beta"},
    ],
    ids=["gaussian", "autoregressive", "squashed", "beta"],
)


# --- actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", EMPTY_SPACES.values(), ids=EMPTY_SPACES)
def test_action_without_values_is_rejected(space):
    with pytest.raises(UnsupportedSpaceError, match=r"^action: .* has no values.*Remove it"):
        rlcatalog.build(TWO_FEATURES, space, SMALL, "torch")


@pytest.mark.parametrize("empty", EMPTY_SPACES.values(), ids=EMPTY_SPACES)
def test_action_with_only_empty_parts_is_rejected(empty):
    space = spaces.Dict({"a": empty, "b": spaces.Tuple([empty])})

    # Either the whole action is named, or its first part.
    message = r"^action(\['a'\])?: .* has no values.*Remove it"
    with pytest.raises(UnsupportedSpaceError, match=message):
        rlcatalog.build(TWO_FEATURES, space, SMALL, "torch")


@pytest.mark.grid
@pytest.mark.parametrize("empty", OTHERS.values(), ids=OTHERS)
@frameworks
@dists
def test_empty_part_without_floats_is_rejected_by_its_path(empty, framework, config):
    space = spaces.Dict({"a": TWO_ACTIONS, "b": spaces.Tuple([TWO_FEATURES, empty])})

    message = r"^action\['b'\]\[1\]: .* has no values.*Remove it"
    with pytest.raises(UnsupportedSpaceError, match=message):
        rlcatalog.build(TWO_FEATURES, space, {**SMALL, **config}, framework)


@pytest.mark.grid
@pytest.mark.parametrize("empty", FLOATS.values(), ids=FLOATS)
@frameworks
@dists
@pytest.mark.parametrize("explore", [True, False], ids=["sampled", "greedy"])
def test_empty_part_of_floats_is_drawn_as_empty(empty, framework, config, explore):
    aim = spaces.Box(-1, 1, (2,), np.float32)
    space = spaces.Dict({"go": spaces.Discrete(2), "aim": aim, "empty": empty})
    policy = rlcatalog.build(TWO_FEATURES, space, {**SMALL, **config}, framework)

    step = policy.act(np.zeros((4, 2), np.float32), explore=explore)

    assert step.raw_action.shape == (4, 3)  # 1 number for "go", and 2 for "aim"
    assert step.action["empty"].shape == (4, *empty.shape)
    first_action = {key: part[0] for key, part in step.action.items()}
    assert space.contains(first_action)


@pytest.mark.grid
@pytest.mark.parametrize("empty", FLOATS.values(), ids=FLOATS)
@frameworks
@dists
def test_actions_with_an_empty_part_are_evaluated(empty, framework, config):
    aim = spaces.Box(-1, 1, (2,), np.float32)
    space = spaces.Dict({"go": spaces.Discrete(2), "aim": aim, "empty": empty})
    policy = rlcatalog.build(TWO_FEATURES, space, {**SMALL, **config}, framework)
    obs = np.zeros((4, 2), np.float32)
    step = policy.act(obs, explore=False)

    evaluation = policy.evaluate(
        {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    )

    np.testing.assert_allclose(to_array(evaluation.logp), step.logp, rtol=1e-4)
    assert tuple(evaluation.kl.shape) == (4,)
    assert tuple(evaluation.entropy.shape) == (4,)


@frameworks
def test_deterministic_action_may_have_an_empty_part(framework):
    empty = spaces.Box(-1, 1, (0,), np.float32)
    space = spaces.Dict({"a": empty, "b": spaces.Box(-1, 1, (2,), np.float32)})
    config = {**SMALL, "custom_action_dist": "deterministic"}

    policy = rlcatalog.build(TWO_FEATURES, space, config, framework)
    step = policy.act(np.zeros((4, 2), np.float32))

    assert step.action["a"].shape == (4, 0)
    assert step.action["b"].shape == (4, 2)


# --- observations ---------------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize(
    "space",
    [
        FLOATS["floats"],
        OTHERS["integers"],
        spaces.Dict({"a": FLOATS["floats"], "b": spaces.Tuple([])}),
        spaces.Dict({"action_mask": spaces.MultiBinary(2)}),  # a mask is not encoded
    ],
    ids=["floats", "integers", "empty parts of a dict", "only a mask"],
)
def test_observation_without_values_is_rejected(framework, space):
    with pytest.raises(UnsupportedSpaceError, match=r"^obs: .* has no values"):
        rlcatalog.build(space, TWO_ACTIONS, SMALL, framework)


@frameworks
def test_empty_parts_of_an_observation_are_encoded_as_nothing(framework):
    space = spaces.Dict(
        empty_floats=spaces.Box(-1, 1, (3, 0), np.float32),
        empty_image=spaces.Box(0, 255, (0, 4, 3), np.uint8),
        empty_choices=spaces.MultiDiscrete(np.zeros((2, 0), np.int64)),
        place=spaces.Box(-1, 1, (2,), np.float32),
    )
    policy = rlcatalog.build(space, TWO_ACTIONS, SMALL, framework)
    obs = sample_observations(space, rows=3)

    encoded = policy.preprocess(obs)

    # Only the place is left.
    np.testing.assert_array_equal(encoded, [row["place"] for row in obs])
    assert policy.act(obs).logp.shape == (3,)
