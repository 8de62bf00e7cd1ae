"""`EncodedMeanStdFilter` on tensors: it learns and filters as on arrays, and the host reads it when
it has to.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import NonFiniteError, NotServedError

pytestmark = pytest.mark.usefixtures("one_thread")

FEATURES = spaces.Box(-np.inf, np.inf, (3,), np.float32)
SOME_LEAVES = spaces.Dict({"gear": spaces.Discrete(3), "speed": FEATURES})
#: Means and deviations with which float32 statistics would be off by 0.03.
MEANS = np.array([1e4, -1e4, 1e4])
DEVIATIONS = np.array([1e-3, 1.0, 1e3])


def build_policy(space=FEATURES, **config):
    config = {"observation_filter": "MeanStdFilter", "fcnet_hiddens": [4], **config}
    return rlcatalog.build(space, spaces.Discrete(2), config, "torch")


def draw_features(*, seed, rows=16):
    rng = np.random.default_rng(seed)
    return (MEANS + DEVIATIONS * rng.normal(size=(rows, 3))).astype(np.float32)


def draw_observations(space, *, seed, rows=16):
    """Return a batch of observations as arrays, and as tensors."""
    features = draw_features(seed=seed, rows=rows)
    if space is FEATURES:
        return features, torch.from_numpy(features)
    gears = np.random.default_rng(seed).integers(0, 3, rows)
    arrays = {"gear": gears, "speed": features}
    return arrays, {name: torch.from_numpy(array) for name, array in arrays.items()}


def assert_same_statistics(filter_, other):
    for name, values in filter_.get_state().items():
        np.testing.assert_allclose(other.get_state()[name], values, rtol=1e-12)


@pytest.mark.parametrize("space", [FEATURES, SOME_LEAVES], ids=["all", "some-leaves"])
@pytest.mark.parametrize("clip", [10.0, None])
def test_filter_learns_the_same_from_tensors(space, clip):
    policy = build_policy(space, filter_clip=clip)
    tensor_policy = build_policy(space, filter_clip=clip)
    for seed in range(50):
        arrays, tensors = draw_observations(space, seed=seed)
        filtered = policy.preprocess(arrays, update=True)
        filtered_tensors = tensor_policy.preprocess(tensors, update=True)
        # The moments differ by the order of sums.
        np.testing.assert_allclose(filtered_tensors.numpy(), filtered, rtol=1e-6, atol=1e-6)

    assert_same_statistics(policy.filter, tensor_policy.filter)


def test_filter_learns_from_selected_rows_of_tensors():
    policy = build_policy()
    tensor_policy = build_policy()
    arrays, tensors = draw_observations(FEATURES, seed=0)
    rows = np.arange(16) % 3 == 0

    policy.preprocess(arrays, update=rows)
    tensor_policy.preprocess(tensors, update=torch.from_numpy(rows))

    assert_same_statistics(policy.filter, tensor_policy.filter)


def test_filter_learns_nothing_from_no_rows():
    policy = build_policy()
    _, tensors = draw_observations(FEATURES, seed=0)

    filtered = policy.preprocess(tensors, update=torch.zeros(16, dtype=torch.bool))

    assert policy.filter.statistics.running_stats.n == 0
    assert torch.equal(filtered, tensors.clamp(-10, 10))


def test_first_row_of_tensors_is_filtered_to_zero():
    # As in RLlib, the variance of a single value is its square.
    policy = build_policy()
    _, tensors = draw_observations(FEATURES, seed=0, rows=1)

    assert (policy.preprocess(tensors, update=True) == 0).all()


def test_rows_that_are_not_finite_are_left_out():
    policy = build_policy()
    finite_rows = build_policy()
    _, tensors = draw_observations(FEATURES, seed=0)
    finite_rows.preprocess(tensors[1:], update=True)
    wrong = tensors.clone()
    wrong[0, 2] = torch.nan

    policy.preprocess(wrong, update=True)

    assert_same_statistics(finite_rows.filter, policy.filter)
    with pytest.raises(NonFiniteError, match="row 0 of 16"):
        policy.check()


def test_arrays_and_tensors_share_their_statistics():
    policy = build_policy()
    expected = build_policy()
    for seed in range(6):
        arrays, tensors = draw_observations(FEATURES, seed=seed)
        policy.preprocess(arrays if seed % 2 else tensors, update=True)
        expected.preprocess(arrays, update=True)

    assert_same_statistics(expected.filter, policy.filter)


def test_acting_on_tensors_sees_statistics_that_were_loaded():
    learned = build_policy()
    arrays, tensors = draw_observations(FEATURES, seed=0)
    learned.preprocess(arrays, update=True)
    policy = build_policy()
    before = policy.preprocess(tensors)

    policy.filter.set_state(learned.filter.get_state())

    after = policy.preprocess(tensors)
    assert not torch.equal(before, after)
    np.testing.assert_array_equal(after.numpy(), learned.preprocess(arrays))


def test_saved_policy_has_what_was_learned_from_tensors(tmp_path):
    policy = build_policy()
    arrays, tensors = draw_observations(FEATURES, seed=0)
    policy.preprocess(tensors, update=True)

    policy.save(tmp_path / "policy")

    loaded = rlcatalog.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.preprocess(arrays), policy.preprocess(arrays))


def test_copies_learn_separately_from_tensors():
    policy = build_policy()
    _, tensors = draw_observations(FEATURES, seed=0)
    policy.preprocess(tensors, update=True)
    twin = copy.deepcopy(policy)

    twin.preprocess(tensors, update=True)

    assert policy.filter.statistics.running_stats.n == 16
    assert twin.filter.statistics.running_stats.n == 32


def test_buffer_counts_tensors_since_its_reset():
    policy = build_policy()
    _, tensors = draw_observations(FEATURES, seed=0)
    policy.preprocess(tensors, update=True)
    policy.filter.statistics.reset_buffer()

    policy.preprocess(tensors[:5], update=True)

    assert policy.filter.statistics.running_stats.n == 21
    assert policy.filter.statistics.buffer.n == 5


class Halving(rlcatalog.Filter):
    """Halves observations, also as tensors, and learns nothing."""

    def __call__(self, encoded, *, update=False):
        return encoded / 2

    def lowered(self):
        return lambda x, ops: x / 2


def test_filters_act_on_tensors_with_their_tensor_form():
    policy = build_policy()
    policy.filter = Halving(policy.preprocessor, {})

    assert torch.equal(policy.preprocess(torch.ones(2, 3)), torch.full((2, 3), 0.5))


def test_filters_that_cannot_learn_from_tensors_refuse():
    policy = build_policy()
    policy.filter = Halving(policy.preprocessor, {})

    with pytest.raises(NotServedError, match="Halving cannot learn from tensors"):
        policy.preprocess(torch.ones(2, 3), update=True)
