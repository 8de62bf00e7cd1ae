"""What later parts see of earlier ones, column by column; sums over what never happens; types of
drawn actions.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Tuple

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec, unbind
from rlcatalog.frameworks import tensor_ops
from rlcatalog_autoregressive.joint import weighted
from rlcatalog_autoregressive.part_columns import _columns


def seen(space, raw, kind="values", bounds="clip", first=0):
    """What `_columns` makes of raw values, by its own words: indicators, or shifted and scaled
    numbers.
    """
    columns = list(
        _columns(action_codec(SpaceInfo.read(space, "action"), bounds, {"action": kind}), first)
    )
    return [
        float(raw[c.raw] == c.value) if c.value >= 0 else (raw[c.raw] - c.shift) * c.scale
        for c in columns
    ]


def test_choices_are_shown_as_one_hots_each_reading_its_own_value():
    assert seen(Discrete(4), [2]) == [0, 0, 1, 0]
    assert seen(MultiDiscrete([2, 3]), [1, 2]) == [0, 1, 0, 0, 1]
    assert seen(MultiDiscrete([2, 3]), [9, 0, 1], first=1) == [1, 0, 0, 1, 0]
    assert seen(MultiBinary(3), [1, 0, 1]) == [1, 0, 1]
    nested = Tuple([MultiDiscrete([2, 3]), Discrete(2), Box(0.0, 4.0, (1,))])
    assert seen(nested, [0, 1, 1, 4.0]) == [1, 0, 0, 1, 0, 0, 1, 1]


def test_numbers_are_shown_by_their_bounds():
    whole = Box(np.array([-3, 5]), np.array([1, 5]), dtype=np.int64)  # raw values count from 0
    assert seen(whole, [4, 0]) == [1, 0]
    assert seen(whole, [1, 0]) == [0.25, 0]
    assert seen(Box(-2.0, 6.0, (3,)), [-2.0, 2.0, 6.0]) == [-1, 0, 1]
    assert seen(Box(-2.0, 6.0, (2,)), [-2.0, 0.5], bounds="affine") == [-2, 0.5]
    assert seen(Box(-2.0, 6.0, (1,)), [6.0], kind="bounded", bounds="affine") == [1]
    free = Box(np.array([-np.inf, 0], np.float32), np.array([3, np.inf], np.float32))
    assert seen(free, [2.5, 7.0]) == [2.5, 7.0]


def test_the_conditionals_see_just_that(ar, framework):
    space = Tuple([MultiDiscrete([2, 3]), Box(-2.0, 6.0, (2,)), MultiBinary(2)])
    policy = ar.build(space, framework)
    layout = unbind(policy.dist_class)[1]["layout"]
    assert layout.encoding[0].tolist() == [0, 0, 1, 1, 1, 2, 3, 4, 5]
    # Raw values of the Box are scaled from [-1, 1] to its bounds, so they are shown as they are.
    raw = np.array([[1, 2, 1.0, -0.5, 1, 0], [0, 0, 0.0, -1.0, 0, 1]], np.float32)
    expected = [[0, 1, 0, 0, 1, 1, -0.5, 1, 0], [1, 0, 1, 0, 0, 0, -1, 0, 1]]
    conditionals = next(m for m in _parts(policy.model) if hasattr(m, "encoded"))
    np.testing.assert_allclose(
        ar.array(conditionals.encoded(ar.tensor(raw, framework))), expected, atol=1e-6
    )


def _parts(model):
    return model.modules() if hasattr(model, "modules") else list(vars(model).values())


def test_whole_actions_are_drawn_as_whole_numbers_and_mixed_ones_as_floats(ar, framework):
    for space, dtype in (
        (MultiDiscrete([2, 3]), np.int64),
        (Tuple([Discrete(3), MultiBinary(2)]), np.int64),
        (Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)]), np.float32),
    ):
        policy = ar.build(space, framework)
        assert policy.act(ar.observations(4)).raw_action.dtype == dtype


def test_the_masks_and_columns_are_no_weights(ar):
    policy = ar.build(MultiDiscrete([2, 3, 2]), "torch", {"autoregressive_hiddens": [4, 5]})
    assert set(policy.model.state_dict()) == set(policy.model.get_weights())


def test_what_never_happens_counts_for_nothing(ar, framework):
    weights, values = (
        np.float32([[0.25, 0, 0.75], [1, 0, 0]]),
        np.float32([2, np.inf, 4, 3, np.nan, -np.inf]),
    )
    found = weighted(
        ar.tensor(weights, framework), ar.tensor(values, framework), tensor_ops(framework)
    )
    np.testing.assert_allclose(ar.array(found), [3.5, 3])
