"""Observations in a form that a policy does not take: typed errors that name what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ObservationError

BOX = spaces.Box(-1, 1, (6,), np.float32)
PAIR = spaces.Dict({"a": BOX, "b": spaces.Discrete(2)})
ROWS = np.zeros((2, 8), np.float32)


def build(space, **config):
    return rlcatalog.build(space, spaces.Discrete(3), {"fcnet_hiddens": [8], **config}, "torch")


@pytest.mark.parametrize(
    ("space", "batch", "message"),
    [
        (PAIR, ROWS, r"^obs: expected a dict with the keys \['a', 'b'\].*found an array of shape"),
        (PAIR, None, r"^obs: expected a dict with the keys .*found None"),
        (PAIR, {"a": ROWS}, r"^obs: expected a dict with the keys .*found \{'a'"),
        (
            spaces.Dict({"x": PAIR}),
            {"x": ROWS},
            r"^obs\['x'\]: expected a dict with the keys \['a', 'b'\].*found an array of shape",
        ),
        (spaces.Tuple((BOX, BOX)), {"a": ROWS}, r"^obs: expected a tuple of 2 parts.*found \{'a'"),
        (spaces.Tuple((BOX, BOX)), (ROWS,), r"^obs: expected a tuple of 2 parts"),
    ],
    ids=["array", "None", "key missing", "nested", "dict for tuple", "part missing"],
)
def test_batch_without_its_structure_names_what_is_expected(space, batch, message):
    with pytest.raises(ObservationError, match=message) as raised:
        build(space).act(batch)
    assert "raised" not in str(raised.value)  # no message of NumPy's


@pytest.mark.parametrize("check", ["first", "always", "never"])
def test_tensor_that_requires_gradient_says_to_detach_it(check):
    import torch

    policy = build(BOX, check_observations=check)
    rows = torch.zeros(2, 6, requires_grad=True)
    for batch in (rows, list(rows)):
        with pytest.raises(ObservationError, match=r"without gradient \(tensor.detach\(\)\)"):
            policy.act(batch)
    assert policy.act(rows.detach()).action.shape == (2,)
