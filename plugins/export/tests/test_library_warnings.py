"""Warnings that are shown while a file is written."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import LoadOrderWarning
from rlcatalog_export.library_warnings import only_own_warnings


def warn_as_library_and_as_rlcatalog():
    warnings.warn("a library's", FutureWarning, stacklevel=1)
    warnings.warn("rlcatalog's", LoadOrderWarning, stacklevel=1)


def test_only_own_warnings_drops_those_of_libraries():
    with pytest.warns() as caught, only_own_warnings():
        warn_as_library_and_as_rlcatalog()

    assert [str(warning.message) for warning in caught] == ["rlcatalog's"]


def test_only_own_warnings_drops_library_warnings_as_errors():
    # No error is raised.
    with warnings.catch_warnings(action="error"), only_own_warnings():
        warnings.warn("a library's", FutureWarning, stacklevel=1)


def test_only_own_warnings_keeps_the_callers_ignore_filter():
    with warnings.catch_warnings(action="error"):
        warnings.simplefilter("ignore", LoadOrderWarning)
        # No error is raised.
        with only_own_warnings():
            warn_as_library_and_as_rlcatalog()


def test_only_own_warnings_keeps_the_callers_error_filter():
    with warnings.catch_warnings():
        warnings.simplefilter("error", LoadOrderWarning)
        with pytest.raises(LoadOrderWarning), only_own_warnings():
            warn_as_library_and_as_rlcatalog()


def test_torch_program_of_text_beside_image_warns_of_nothing(tmp_path):
    # Warnings are errors in these tests. PyTorch has one for the constants of this policy.
    image = spaces.Box(0, 255, (7, 7, 3), np.uint8)
    space = spaces.Dict({"image": image, "text": spaces.Text(5, charset="abc")})
    policy = rlcatalog.build(space, spaces.Discrete(3), {"fcnet_hiddens": [8]}, "torch")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 7, 7, 3), np.uint8)
    rows = [{"image": images[0], "text": "ab"}, {"image": images[1], "text": "ccba"}]

    policy.export(tmp_path / "policy.pt2")

    step = rlcatalog.Actor(tmp_path / "policy.pt2").act(rows, explore=False)
    expected = policy.act(rows, explore=False)
    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, rtol=1e-5, atol=1e-6)
