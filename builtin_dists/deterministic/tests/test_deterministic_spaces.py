"""Which spaces a point mass serves: Boxes of floats, of any shape."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.spaces import Simplex
from rlcatalog_deterministic.tf import Deterministic as TFDeterministic
from rlcatalog_deterministic.torch import Deterministic as TorchDeterministic

frameworks = pytest.mark.parametrize(
    "cls", [TorchDeterministic, TFDeterministic], ids=["torch", "tf"]
)


@frameworks
def test_boxes_of_floats_need_a_value_for_each_number(cls):
    for shape, dtype, size in (
        ((), np.float32, 1),
        ((3,), np.float64, 3),
        ((2, 3, 2), np.float16, 12),
    ):
        assert cls.required_model_output_shape(spaces.Box(-1, 1, shape, dtype), {}) == size


@frameworks
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 3, (2,), np.int32),
        spaces.Box(0, 1, (2,), np.bool_),
        Simplex((3,)),
        spaces.MultiBinary(2),
    ],
    ids=lambda space: type(space).__name__ + str(space.dtype),
)
def test_other_spaces_are_refused(cls, space):
    with pytest.raises(UnsupportedSpaceError, match="Deterministic needs a Box of floats, found"):
        cls.required_model_output_shape(space, {})
