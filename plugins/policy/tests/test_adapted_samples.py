"""`Policy.adapt`: an environment's actions for the samples of a distribution."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ActionError
from rlcatalog.frameworks import ops_of
from rlcatalog.spaces import Simplex, map_tensors

FRAMEWORKS = ["torch", "tf"]
OBS = spaces.Box(-1, 1, (6,), np.float32)
ARM = spaces.Box(-2, 4, (2,), np.float32)
TOOL = spaces.Discrete(4, start=5)

#: Every listed action codec, with every listed distribution that serves it.
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "discrete": (TOOL, {}),
    "discrete as one-hot": (TOOL, {"custom_action_dist": "gumbel_softmax"}),
    "box": (ARM, {}),
    "box of rank 2": (spaces.Box(-1, 1, (2, 3), np.float64), {}),
    "box of one value": (spaces.Box(-1, 1, (1,), np.float32), {}),
    "box without axes": (spaces.Box(-1, 1, (), np.float32), {}),
    "box, squashed": (ARM, {"custom_action_dist": "squashed_gaussian"}),
    "box, beta": (ARM, {"custom_action_dist": "beta"}),
    "box, deterministic": (ARM, {"custom_action_dist": "deterministic"}),
    "integer box": (spaces.Box(3, 9, (2,), np.int32), {}),
    "multi-discrete": (spaces.MultiDiscrete([3, 4], start=[1, 2]), {}),
    "multi-discrete of rank 2": (spaces.MultiDiscrete([[3, 4], [2, 2]]), {}),
    "slate": (spaces.MultiDiscrete([4, 4]), {"custom_action_dist": "slate_multi_categorical"}),
    "multi-binary": (spaces.MultiBinary(3), {}),
    "simplex": (Simplex((3,)), {}),
    "dict": (spaces.Dict({"tool": TOOL, "arm": ARM}), {}),
    "tuple": (spaces.Tuple((ARM, TOOL)), {}),
    "tuple of choices": (spaces.Tuple((TOOL, spaces.MultiBinary(2))), {}),
    "nested": (
        spaces.Dict({"left": spaces.Tuple((TOOL, ARM)), "aim": spaces.Dict({"x": TOOL})}),
        {},
    ),
    "autoregressive": (
        spaces.Tuple((TOOL, ARM)),
        {"custom_action_dist": "autoregressive"},
    ),
}
LEFT_AND_TOOL = spaces.Dict({"left": spaces.Tuple((TOOL, ARM)), "tool": TOOL})


def build_policy(
    space: Any, framework: str = "torch", config: Mapping[str, Any] | None = None
) -> Any:
    return rlcatalog.build(OBS, space, {"fcnet_hiddens": [8], **(config or {})}, framework)


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


def split_rows(action: Any, rows: int) -> list[Any]:
    """Return the actions of a batch, as the environments of a vector environment receive them."""
    if isinstance(action, Mapping):
        parts = {key: split_rows(part, rows) for key, part in action.items()}
        return [{key: part[row] for key, part in parts.items()} for row in range(rows)]
    if isinstance(action, tuple):
        return list(zip(*[split_rows(part, rows) for part in action], strict=True))
    assert len(action) == rows
    return [action[row, ...] for row in range(rows)]


def assert_equal_actions(action: Any, expected: Any) -> None:
    if isinstance(expected, Mapping):
        assert list(action) == list(expected)
        for key in expected:
            assert_equal_actions(action[key], expected[key])
    elif isinstance(expected, tuple):
        for part, expected_part in zip(action, expected, strict=True):
            assert_equal_actions(part, expected_part)
    else:
        assert action.dtype == expected.dtype
        np.testing.assert_array_equal(action, expected)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_adapt_of_a_sample_equals_the_action_of_act(case, rows, framework):
    space, config = CASES[case]
    policy = build_policy(space, framework, config)
    observations = np.random.default_rng(0).uniform(-1, 1, (rows, 6)).astype(np.float32)
    policy.act_encoded(observations)  # the first step is checked, which also draws numbers
    generators = policy.random_state()
    expected = policy.act_encoded(observations).action

    # The same generators and the same outputs draw the same sample.
    policy.set_random_state(generators)
    sample = draw_sample(policy, observations)

    for raw in (sample, as_arrays(sample)):
        action = policy.adapt(raw)
        assert_equal_actions(action, expected)
        for single_action in split_rows(action, rows):
            assert space.contains(single_action)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_adapt_reads_a_structure_by_its_keys(framework):
    policy = build_policy(LEFT_AND_TOOL, framework)
    tensor = policy.backend.tensor
    # "tool" comes before "left", unlike in the space.
    raw = {
        "tool": tensor(np.array([0, 3])),
        "left": (tensor(np.array([1, 2])), tensor(np.array([[0.0, 1.0], [-1.0, 5.0]], np.float32))),
    }

    action = policy.adapt(raw)

    assert action["tool"].tolist() == [5, 8]  # counted from the space's start, 5
    assert action["left"][0].tolist() == [6, 7]
    # [-1, 1] is mapped to [-2, 4], and 5 is clipped.
    assert action["left"][1].tolist() == [[1.0, 4.0], [-2.0, 4.0]]


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
    zeros = torch.zeros(2, 2, dtype=torch.bfloat16, requires_grad=True)
    zeros_with_gradient = zeros * 1

    # bfloat16 cannot represent 2999, so that the parts must not be joined.
    move, number = policy.adapt((zeros_with_gradient, torch.tensor([2999, 0])))

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
