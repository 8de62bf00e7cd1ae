"""`Policy.adapt` takes what a distribution's `sample` returns."""

from __future__ import annotations

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
SHOWN = spaces.Dict({"left": spaces.Tuple((TOOL, ARM)), "tool": TOOL})


def build(space: Any, framework: str, config: Mapping[str, Any] | None = None) -> Any:
    return rlcatalog.build(OBS, space, {"fcnet_hiddens": [8], **(config or {})}, framework)


def sample(policy: Any, observations: Any) -> Any:
    """Draw from the distribution of the policy's module, as an own loop does."""
    inputs = policy.backend.tensor(observations)
    dist, _ = policy.as_module()(inputs)
    if policy.framework == "torch":
        return dist.sample()
    from rlcatalog_tf.random import drawing_from

    # A policy has a generator of its own in TensorFlow.
    with drawing_from(policy.backend.generator):
        return dist.sample()


def as_arrays(raw: Any) -> Any:
    return map_tensors(raw, lambda tensor: ops_of(tensor).array(tensor))


def rows_of(action: Any, rows: int) -> list[Any]:
    """Return the actions of a batch, as the environments of a vector receive them."""
    if isinstance(action, Mapping):
        parts = {key: rows_of(part, rows) for key, part in action.items()}
        return [{key: part[row] for key, part in parts.items()} for row in range(rows)]
    if isinstance(action, tuple):
        return list(zip(*[rows_of(part, rows) for part in action], strict=True))
    assert len(action) == rows
    return [action[row, ...] for row in range(rows)]


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, Mapping):
        assert list(found) == list(expected)
        for key in expected:
            assert_equal(found[key], expected[key])
    elif isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_adapt_of_a_sample_equals_what_act_returns(case, rows, framework):
    space, config = CASES[case]
    policy = build(space, framework, config)
    observations = np.random.default_rng(0).uniform(-1, 1, (rows, 6)).astype(np.float32)
    policy.act_encoded(observations)  # the first step checks, which also draws
    generators = policy.random_state()
    expected = policy.act_encoded(observations).action
    # The same generators and the same outputs draw the same sample.
    policy.set_random_state(generators)
    drawn = sample(policy, observations)

    for raw in (drawn, as_arrays(drawn)):
        action = policy.adapt(raw)
        assert_equal(action, expected)
        assert all(space.contains(one) for one in rows_of(action, rows))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_adapt_reads_a_structure_by_its_keys(framework):
    policy = build(SHOWN, framework)
    tensor = policy.backend.tensor
    # "tool" before "left", unlike the space.
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
        (TOOL, np.int64(2), [7]),
        (ARM, np.array([0.0, 1.0]), [[1.0, 4.0]]),
        (spaces.Box(-1, 1, (1,)), np.array([0.5]), [[0.5]]),
        (spaces.MultiDiscrete([3, 4]), np.array([2, 1]), [[2, 1]]),
    ],
    ids=["discrete", "box", "box of one value", "multi-discrete"],
)
def test_adapt_of_one_raw_action_is_a_batch_of_one_row(space, raw, expected):
    assert build(space, "torch").adapt(raw).tolist() == expected


def test_adapt_of_one_structure_is_a_batch_of_one_row():
    raw = {"left": (np.int64(1), np.array([0.0, 1.0])), "tool": np.int64(0)}
    action = build(SHOWN, "torch").adapt(raw)
    assert action["tool"].tolist() == [5]
    assert action["left"][1].tolist() == [[1.0, 4.0]]


def test_adapt_reads_leaves_of_a_custom_sample_in_order():
    # A custom distribution may return a flat tuple for a nested space, which `act` accepts.
    flat = (np.array([1, 2]), np.zeros((2, 2)), np.array([0, 3]))
    action = build(SHOWN, "torch").adapt(flat)
    assert action["left"][0].tolist() == [6, 7]
    assert action["tool"].tolist() == [5, 8]


def test_adapt_takes_samples_with_gradient_and_half_precision():
    import torch

    policy = build(spaces.Tuple((ARM, spaces.Discrete(3000))), "torch")
    mean = torch.zeros(2, 2, dtype=torch.bfloat16, requires_grad=True)
    # bfloat16 cannot represent 2999.
    move, number = policy.adapt((mean * 1, torch.tensor([2999, 0])))
    assert move.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert number.tolist() == [2999, 0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_adapt_of_a_reparameterised_sample_works(framework):
    policy = build(ARM, framework)
    dist, _ = policy.as_module()(policy.backend.tensor(np.zeros((3, 6), np.float32)))
    assert policy.adapt(dist.rsample()).shape == (3, 2)


@pytest.mark.parametrize(
    ("space", "raw", "message"),
    [
        (
            ARM,
            np.zeros((2, 3)),
            r"action: expected raw actions of shape \[B, 2\]; found 3 values",
        ),
        (
            TOOL,
            np.zeros((2, 2)),
            r"action: expected raw actions of shape \[B, 1\]; found 2 values in each of 2 rows",
        ),
        (TOOL, "left", r"action: expected raw actions of shape \[B, 1\]; found dtype <U4"),
        (
            TOOL,
            [[0], [0, 1]],
            r"expected raw actions of shape \[B, 1\]; found something that is not",
        ),
        (SHOWN, {"left": np.zeros(2)}, r"a dict with the keys \['left', 'tool'\]; found keys"),
        (
            SHOWN,
            {"left": (np.zeros(2), np.zeros((2, 3))), "tool": np.zeros(2)},
            r"action\['left'\]\[1\]: expected raw actions of shape \[B, 2\]; found 3 values",
        ),
        (
            SHOWN,
            {"left": (np.zeros(2), np.zeros((2, 2))), "tool": np.zeros(3)},
            r"as many rows in each part; found 2 in action\['left'\], 3 in action\['tool'\]",
        ),
    ],
)
def test_adapt_refuses_values_that_are_no_sample(space, raw, message):
    with pytest.raises(ActionError, match=message):
        build(space, "torch").adapt(raw)


def test_adapt_refuses_a_tensor_from_a_trace():
    import tensorflow as tf

    policy = build(TOOL, "tf")
    with pytest.raises(ActionError, match="a tensor without values"):
        tf.function(lambda raw: policy.adapt(raw))(tf.zeros(2, tf.int64))
