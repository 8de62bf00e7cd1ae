"""The package's distributions through the catalog, and their config keys."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.errors import CatalogError, ConfigError

ROWS = 5
RNG = np.random.default_rng(0)


def chosen(kit, space, config=None):
    return rlcatalog.default_catalog().action_dist(space, config or {}, None, kit.framework)


@pytest.mark.parametrize(
    ("space", "config", "name", "size", "width"),
    [
        (spaces.MultiDiscrete([3, 2], start=[1, 2]), {}, "MultiCategorical", 5, 2),
        (spaces.MultiDiscrete([[3, 2], [4, 5]]), {}, "MultiCategorical", 14, 4),
        (spaces.Box(-2, 2, (2, 2), np.int16), {}, "MultiCategorical", 20, 4),
        (
            spaces.Box(np.array([0, 5]), np.array([1, 9]), dtype=np.uint8),
            {},
            "MultiCategorical",
            7,
            2,
        ),
        (spaces.MultiBinary((2, 3)), {}, "Bernoulli", 6, 6),
        (spaces.Discrete(4), {"custom_action_dist": "gumbel_softmax"}, "GumbelSoftmax", 4, 4),
        (
            spaces.MultiDiscrete([4, 4]),
            {"custom_action_dist": "slate_multi_categorical"},
            "SlateMultiCategorical",
            12,
            2,
        ),
    ],
)
def test_the_catalog_finds_and_binds_it(kit, space, config, name, size, width):
    dist_class, found = chosen(kit, space, config)
    assert found == size
    assert getattr(dist_class, "cls", dist_class).__name__ == name
    assert dist_class.required_model_output_shape(space, {}) == size
    dist = dist_class(kit.tensor(RNG.normal(size=(ROWS, size)).astype(np.float32)))
    assert tuple(dist.sample().shape) == (ROWS, width)
    again = dist_class(dist.inputs)
    np.testing.assert_array_equal(
        kit.array(again.logp(kit.array(dist.last_sample))), kit.array(dist.sampled_action_logp())
    )


@pytest.mark.grid
@pytest.mark.parametrize(
    ("space", "config"),
    [
        (spaces.Discrete(5, start=-2), {"categorical_temperature": 0.5}),
        (
            spaces.Discrete(5, start=-2),
            {"custom_action_dist": "gumbel_softmax", "gumbel_softmax_temperature": 0.5},
        ),
        (spaces.MultiDiscrete([[3, 2], [4, 5]], start=[[1, 2], [-3, 4]]), {}),
        (spaces.Box(np.array([[-1], [5]]), np.array([[1], [9]]), dtype=np.int16), {}),
        (spaces.Box(0, 3, (2,), np.uint8), {}),
        (spaces.MultiBinary((2, 3)), {}),
        (
            spaces.MultiDiscrete([4, 4], start=[1, 1]),
            {"custom_action_dist": "slate_multi_categorical"},
        ),
    ],
)
def test_a_policy_acts_and_evaluates(kit, space, config):
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    policy = rlcatalog.build(obs_space, space, {"fcnet_hiddens": [4], **config}, kit.framework)
    obs = RNG.uniform(-1, 1, (ROWS, 3)).astype(np.float32)
    for explore in (True, False):
        step = policy.act(obs, explore=explore)
        for row in range(ROWS):
            assert space.contains(step.action[row]), step.action[row]
        found = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
        np.testing.assert_allclose(kit.array(found.logp), step.logp, rtol=1e-4, atol=1e-5)
        assert tuple(found.entropy.shape) == (ROWS,)


def test_a_temperature_by_config_divides_the_logits_and_leaves_them_alone_where_rllib_does_not(kit):
    plain, _ = chosen(kit, spaces.Discrete(4))
    warm, _ = chosen(kit, spaces.Discrete(4), {"categorical_temperature": 2.0})
    logits = RNG.normal(size=(ROWS, 4)).astype(np.float32)
    given = kit.tensor(logits.copy())
    np.testing.assert_allclose(
        kit.array(warm(given).log_probs),
        kit.array(plain(kit.tensor(logits / 2)).log_probs),
        rtol=1e-6,
    )
    np.testing.assert_array_equal(kit.array(given), logits)
    relaxed, _ = chosen(
        kit,
        spaces.Discrete(4),
        {"custom_action_dist": "gumbel_softmax", "gumbel_softmax_temperature": 0.25},
    )
    assert relaxed(given).temperature == 0.25


@pytest.mark.parametrize("temperature", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_a_mask_forbids_is_forbidden_at_any_temperature(kit, temperature, dtype):
    kit.seed(0)
    dist_class, _ = chosen(kit, spaces.Discrete(3), {"categorical_temperature": temperature})
    mask = kit.tensor(np.array([[True, True, False]] * 20_000))
    dist = dist_class(
        dist_class.masked(kit.tensor(np.tile([[0.0, 0.1, 9.0]], (20_000, 1)), dtype), mask)
    )
    assert set(kit.array(dist.sample()).tolist()) <= {0, 1}
    for value in (dist.entropy(), dist.kl(dist), dist.logp(np.full(20_000, 2))):
        assert np.isfinite(kit.array(value)).all()
    nothing = dist_class(
        dist_class.masked(kit.tensor(np.zeros((2, 3)), dtype), kit.tensor(np.zeros((2, 3), bool)))
    )
    assert np.isfinite(kit.array(nothing.entropy())).all()


@pytest.mark.parametrize("value", [0.0, -1.0, "warm", None])
def test_a_wrong_temperature_by_config_is_refused(value):
    for key in ("categorical_temperature", "gumbel_softmax_temperature"):
        with pytest.raises(ConfigError, match=key):
            ModelCatalog.get_action_dist(spaces.Discrete(3), {key: value})


def test_signed_and_unsigned_integers_are_served_alike_where_rllib_takes_uint8_for_floats(kit):
    for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint16):
        dist_class, size = chosen(kit, spaces.Box(0, 3, (2, 2), dtype))
        assert (size, dist_class.options) == (16, {"input_lens": (4, 4, 4, 4)})


def test_bounds_that_differ_are_kept_apart_where_rllib_widens_them(kit):
    dist_class, size = chosen(kit, spaces.Box(np.array([0, -3]), np.array([1, 4]), dtype=np.int32))
    assert (size, dist_class.options) == (10, {"input_lens": (2, 8)})


def test_multi_discrete_of_rank_two_is_served_where_rllib_raises(kit):
    dist_class, size = chosen(kit, spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])))
    assert (size, dist_class.options) == (14, {"input_lens": (2, 3, 4, 5)})


def test_the_rest_is_left_to_others():
    assert ModelCatalog.get_action_dist(spaces.Discrete(3), {})[0].__name__ == "Categorical"
    for name in ("multi_categorical", "bernoulli", "gumbel_softmax", "slate_multi_categorical"):
        with pytest.raises(CatalogError, match="action"):
            ModelCatalog.get_action_dist(spaces.Box(-1, 1, (2,)), {"custom_action_dist": name})
