"""Observations in a form that a policy does not accept: errors that name what is wrong, and a hint
for single observations.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ActionMaskError, ObservationError

SIX_NUMBERS = spaces.Box(-1, 1, (6,), np.float32)
DICT = spaces.Dict({"a": SIX_NUMBERS, "b": spaces.Discrete(2)})
TUPLE = spaces.Tuple((SIX_NUMBERS, SIX_NUMBERS))
ARRAY = np.zeros((2, 8), np.float32)


def build_policy(space, **config):
    return rlcatalog.build(space, spaces.Discrete(2), {"fcnet_hiddens": [8], **config}, "torch")


# --- structures and tensors -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "batch", "match"),
    [
        pytest.param(
            DICT,
            ARRAY,
            r"^obs: .*\['a', 'b'\].*found an array of",
            id="array",
        ),
        pytest.param(DICT, None, "^obs: expected a dict .*found None", id="none"),
        pytest.param(
            DICT,
            {"a": ARRAY},
            r"^obs: expected a dict .*found \{'a'",
            id="missing-key",
        ),
        pytest.param(
            spaces.Dict({"x": DICT}),
            {"x": ARRAY},
            r"^obs\['x'\]: .*\['a', 'b'\].*an array of",
            id="array-in-a-dict",
        ),
        pytest.param(
            TUPLE,
            {"a": ARRAY},
            r"^obs: expected a tuple .*found \{'a'",
            id="dict-instead-of-tuple",
        ),
        pytest.param(TUPLE, (ARRAY,), r"^obs: expected a tuple of 2 parts", id="missing-part"),
    ],
)
def test_batch_without_the_structure_of_its_space_is_an_error(space, batch, match):
    with pytest.raises(ObservationError, match=match) as caught:
        build_policy(space).act(batch)

    # The message does not quote an error of NumPy, as in "… raised ValueError".
    assert "raised" not in str(caught.value)


@pytest.mark.parametrize("check", ["first", "always", "never"])
def test_list_of_tensors_with_gradient_says_to_detach_them(check):
    policy = build_policy(SIX_NUMBERS, check_observations=check)
    rows = torch.zeros(2, 6, requires_grad=True)

    with pytest.raises(ObservationError, match=r"without gradient \(tensor.detach\(\)\)"):
        policy.act(list(rows))


@pytest.mark.parametrize("check", ["first", "always", "never"])
def test_tensor_without_gradient_is_accepted(check):
    policy = build_policy(SIX_NUMBERS, check_observations=check)

    assert policy.act(torch.zeros(2, 6)).action.shape == (2,)


# --- single observations --------------------------------------------------------------------------


NESTED = spaces.Dict(a=spaces.Discrete(3), b=SIX_NUMBERS)
IMAGE = spaces.Box(0, 255, (9, 9, 3), np.uint8)
single_observations = pytest.mark.parametrize(
    ("space", "obs"),
    [
        pytest.param(SIX_NUMBERS, np.zeros(6, np.float32), id="float32"),
        pytest.param(SIX_NUMBERS, np.zeros(6), id="float64"),
        pytest.param(SIX_NUMBERS, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0], id="list"),
        pytest.param(spaces.Discrete(3), 1, id="int"),
        pytest.param(spaces.Discrete(3), np.int64(2), id="int64"),
        pytest.param(NESTED, {"a": 1, "b": np.zeros(6, np.float32)}, id="dict"),
        pytest.param(IMAGE, np.zeros((9, 9, 3), np.uint8), id="image"),
    ],
)
# The key fcnet_hiddens of `build_policy` is not read for an image.
ignore_unread_keys = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")


@ignore_unread_keys
@single_observations
def test_single_observation_error_says_to_pass_a_list(space, obs):
    policy = build_policy(space)

    with pytest.raises(ObservationError, match=r"pass a batch of one, \[obs\]"):
        policy.act(obs)


@ignore_unread_keys
@single_observations
def test_later_single_observation_error_says_to_pass_a_list(space, obs):
    policy = build_policy(space)
    policy.act([obs])  # from now on, observations are no longer compared with their space

    with pytest.raises(ObservationError, match=r"pass a batch of one, \[obs\]"):
        policy.act(obs)


@ignore_unread_keys
@single_observations
@pytest.mark.parametrize("method", ["act_encoded", "values"])
def test_single_encoded_observation_error_says_to_add_an_axis(space, obs, method):
    policy = build_policy(space)
    encoded = policy.preprocess([obs])[0]

    with pytest.raises(ObservationError, match=r"add an axis, encoded\[None\]"):
        getattr(policy, method)(encoded)


def test_batch_of_another_shape_error_has_no_hint():
    policy = build_policy(SIX_NUMBERS)

    with pytest.raises(ObservationError) as caught:
        policy.act(np.zeros((2, 5), np.float32))

    assert "single" not in str(caught.value)


@pytest.fixture
def policy_with_mask_for_one_part():
    """A policy whose action is a Dict; the mask is for its entry `a`, two choices."""
    mask_space = spaces.Dict({"a": spaces.MultiBinary(2)})
    obs_space = spaces.Dict({"x": SIX_NUMBERS, "action_mask": mask_space})
    action_space = spaces.Dict({"a": spaces.Discrete(2), "b": SIX_NUMBERS})
    return rlcatalog.build(obs_space, action_space, {"fcnet_hiddens": [8]})


def obs_with_mask(mask):
    return {"x": np.zeros(6, np.float32), "action_mask": {"a": np.array(mask, np.int8)}}


def test_batch_of_one_observation_with_a_mask_is_accepted(policy_with_mask_for_one_part):
    assert len(policy_with_mask_for_one_part.act([obs_with_mask([1, 1])]).logp) == 1


def test_single_observation_with_a_mask_has_a_hint(policy_with_mask_for_one_part):
    with pytest.raises(ActionMaskError, match="observation: pass a batch of one") as caught:
        policy_with_mask_for_one_part.act(obs_with_mask([1, 1]))

    message = str(caught.value)
    assert "expected shape " in message.partition(" This is a single observation: ")[0]


def test_mask_of_another_shape_has_no_hint(policy_with_mask_for_one_part):
    with pytest.raises(ActionMaskError, match=r"shape \(1, 2\); found shape \(1, 3\)\.$"):
        policy_with_mask_for_one_part.act([obs_with_mask([1, 1, 1])])
