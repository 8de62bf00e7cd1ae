"""`Policy.adapt`: an environment's actions for the samples of a distribution."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

import rlcatalog
from rlcatalog.errors import ActionError
from rlcatalog.frameworks import ops_of
from rlcatalog.spaces import Simplex, map_tensors

FRAMEWORKS = ["torch", "tf"]
SIX_FEATURES = spaces.Box(-1, 1, (6,), np.float32)
ARM = spaces.Box(-2, 4, (2,), np.float32)
TOOL = spaces.Discrete(4, start=5)

#: Space and config for every listed action codec, with every listed distribution that serves it.
SPACES_AND_DISTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "discrete": (TOOL, {}),
    "discrete as one-hot": (TOOL, {"custom_action_dist": "gumbel_softmax"}),
    "box": (ARM, {}),
    "box of rank 2": (spaces.Box(-1, 1, (2, 3), np.float64), {}),
    "box without axes": (spaces.Box(-1, 1, (), np.float32), {}),
    "box, squashed": (ARM, {"custom_action_dist": "squashed_gaussian"}),
    "box, beta": (ARM, {"custom_action_dist": "beta"}),
    "box, deterministic": (ARM, {"custom_action_dist": "deterministic"}),
    "integer box": (spaces.Box(3, 9, (2,), np.int32), {}),
    "multi-discrete": (spaces.MultiDiscrete([[3, 4], [2, 2]]), {}),
    "slate": (spaces.MultiDiscrete([4, 4]), {"custom_action_dist": "slate_multi_categorical"}),
    "multi-binary": (spaces.MultiBinary(3), {}),
    "simplex": (Simplex((3,)), {}),
    "nested": (
        spaces.Dict({"left": spaces.Tuple((TOOL, ARM)), "aim": spaces.Dict({"x": TOOL})}),
        {},
    ),
    "autoregressive": (spaces.Tuple((TOOL, ARM)), {"custom_action_dist": "autoregressive"}),
}
LEFT_AND_TOOL = spaces.Dict({"left": spaces.Tuple((TOOL, ARM)), "tool": TOOL})


def build_policy(
    space: Any, framework: str = "torch", config: Mapping[str, Any] | None = None
) -> Any:
    return rlcatalog.build(SIX_FEATURES, space, {"fcnet_hiddens": [8], **(config or {})}, framework)


def draw_sample(policy: Any, observations: Any) -> Any:
    """Draw from the distribution of the policy's module, as a user's own loop does."""
    inputs = policy.backend.tensor(observations)
    dist, _ = policy.as_module()(inputs)
    if policy.framework == "torch":
        return dist.sample()
    from rlcatalog_tf.random import drawing_from

    # In TensorFlow, a policy has a generator of its own.
    with drawing_from(policy.backend.generator):
        return dist.sample()


def as_arrays(raw: Any) -> Any:
    return map_tensors(raw, lambda tensor: ops_of(tensor).array(tensor))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("space", "config"), SPACES_AND_DISTS.values(), ids=SPACES_AND_DISTS)
def test_adapt_of_a_sample_equals_the_action_of_act(space, config, framework):
    policy = build_policy(space, framework, config)
    observations = np.zeros((3, 6), np.float32)
    policy.act_encoded(observations)  # the first step is checked, which also draws numbers
    random_state = policy.random_state()
    expected = policy.act_encoded(observations).action

    # With the same random state, the distribution draws the same sample again.
    policy.set_random_state(random_state)
    sample = draw_sample(policy, observations)

    assert data_equivalence(policy.adapt(sample), expected, exact=True)
    assert data_equivalence(policy.adapt(as_arrays(sample)), expected, exact=True)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_adapt_reads_a_structure_by_its_keys(framework):
    arm = spaces.Box(-2, 4, (2,), np.float32)
    space = spaces.Dict({"arm": arm, "tool": spaces.Discrete(4, start=5)})
    policy = build_policy(space, framework)
    raw_tool = policy.backend.tensor(np.array([0, 3]))
    raw_arm = policy.backend.tensor(np.float32([[0, 1], [-1, 5]]))

    # "tool" comes before "arm", unlike in the space.
    action = policy.adapt({"tool": raw_tool, "arm": raw_arm})

    assert action["tool"].tolist() == [5, 8]  # counted from the space's start, 5
    # [-1, 1] is scaled to the bounds [-2, 4], and 5 is clipped to 4.
    assert action["arm"].tolist() == [[1.0, 4.0], [-2.0, 4.0]]


@pytest.mark.parametrize(
    ("space", "raw", "expected"),
    [
        pytest.param(spaces.Discrete(4, start=5), np.int64(2), [7], id="discrete"),
        pytest.param(
            spaces.Box(-2, 4, (2,)),
            np.array([0.0, 1.0]),
            [[1.0, 4.0]],  # -1 to 1 is mapped to -2 to 4
            id="box",
        ),
        pytest.param(spaces.Box(-1, 1, (1,)), np.array([0.5]), [[0.5]], id="box of one value"),
        pytest.param(spaces.MultiDiscrete([3, 4]), np.array([2, 1]), [[2, 1]], id="multi-discrete"),
    ],
)
def test_adapt_of_one_raw_action_is_a_batch_of_one_row(space, raw, expected):
    assert build_policy(space).adapt(raw).tolist() == expected


def test_adapt_of_one_structure_is_a_batch_of_one_row():
    raw = {"left": (np.int64(1), np.array([0.0, 1.0])), "tool": np.int64(0)}

    action = build_policy(LEFT_AND_TOOL).adapt(raw)

    assert action["tool"].tolist() == [5]  # Discrete(4, start=5)
    assert action["left"][1].tolist() == [[1.0, 4.0]]  # -1 to 1 is mapped to -2 to 4


def test_adapt_reads_leaves_of_a_custom_sample_in_order():
    # A custom distribution may return a flat tuple for a nested space, which `act` accepts.
    flat = (np.array([1, 2]), np.zeros((2, 2)), np.array([0, 3]))

    action = build_policy(LEFT_AND_TOOL).adapt(flat)

    # The choices count from 5.
    assert action["left"][0].tolist() == [6, 7]
    assert action["tool"].tolist() == [5, 8]


def test_adapt_accepts_gradients_and_bfloat16():
    import torch

    policy = build_policy(spaces.Tuple((spaces.Box(-2, 4, (2,)), spaces.Discrete(3000))))
    raw_move = torch.zeros(2, 2, dtype=torch.bfloat16, requires_grad=True)
    raw_number = torch.tensor([2999, 0])

    # bfloat16 cannot represent 2999, so that the two parts must not be joined.
    move, number = policy.adapt((raw_move, raw_number))

    assert move.tolist() == [[1.0, 1.0], [1.0, 1.0]]  # 0 is the middle of -2 and 4
    assert number.tolist() == [2999, 0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_adapt_accepts_a_reparameterised_sample(framework):
    policy = build_policy(spaces.Box(-2, 4, (2,), np.float32), framework)
    dist, _ = policy.as_module()(policy.backend.tensor(np.zeros((3, 6), np.float32)))

    action = policy.adapt(dist.rsample())

    assert action.shape == (3, 2)


@pytest.mark.parametrize(
    ("space", "raw", "message"),
    [
        pytest.param(
            ARM,
            np.zeros((2, 3)),
            "action: expected raw actions of shape [B, 2]; found 3 values",
            id="too-many-numbers",
        ),
        pytest.param(
            TOOL,
            np.zeros((2, 2)),
            "action: expected raw actions of shape [B, 1]; found 2 values in each of 2 rows",
            id="too-many-choices",
        ),
        pytest.param(
            TOOL,
            "left",
            "action: expected raw actions of shape [B, 1]; found dtype <U4",
            id="text",
        ),
        pytest.param(
            TOOL,
            [[0], [0, 1]],
            "expected raw actions of shape [B, 1]; found something that is not",
            id="ragged-list",
        ),
        pytest.param(
            LEFT_AND_TOOL,
            {"left": np.zeros(2)},
            "a dict with the keys ['left', 'tool']; found keys",
            id="missing-key",
        ),
        pytest.param(
            LEFT_AND_TOOL,
            {"left": (np.zeros(2), np.zeros((2, 3))), "tool": np.zeros(2)},
            "action['left'][1]: expected raw actions of shape [B, 2]; found 3 values",
            id="too-many-numbers-in-a-part",
        ),
        pytest.param(
            LEFT_AND_TOOL,
            {"left": (np.zeros(2), np.zeros((2, 2))), "tool": np.zeros(3)},
            "as many rows in each part; found 2 in action['left'], 3 in action['tool']",
            id="different-rows",
        ),
    ],
)
def test_adapt_rejects_values_that_are_not_sample(space, raw, message):
    with pytest.raises(ActionError, match=re.escape(message)):
        build_policy(space).adapt(raw)


def test_adapt_rejects_a_tensor_in_a_trace():
    import tensorflow as tf

    policy = build_policy(TOOL, "tf")

    with pytest.raises(ActionError, match="a tensor without values"):
        tf.function(policy.adapt)(tf.zeros(2, tf.int64))
