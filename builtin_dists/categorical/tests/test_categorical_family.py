"""This package's distributions in the catalog and in policies."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.errors import CatalogError


def find_distribution(framework, space, config):
    return rlcatalog.default_catalog().action_dist(space, config, None, framework.name)


cases = pytest.mark.parametrize(
    ("space", "config", "name", "size", "columns"),
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
    ids=["MultiDiscrete", "rank 2", "int16", "uint8", "MultiBinary", "gumbel", "slates"],
)


@cases
def test_catalog_finds_distribution_and_size(framework, space, config, name, size, columns):
    dist_class, found_size = find_distribution(framework, space, config)

    # Where a distribution has options, the catalog binds them to the class.
    assert getattr(dist_class, "cls", dist_class).__name__ == name
    assert found_size == size
    assert dist_class.required_model_output_shape(space, {}) == size


@cases
def test_distribution_of_catalog_samples_and_scores(framework, space, config, name, size, columns):
    dist_class, _ = find_distribution(framework, space, config)
    logits = np.random.default_rng(0).normal(size=(5, size)).astype(np.float32)

    dist = dist_class(framework.tensor(logits))
    sample = framework.numpy(dist.sample())
    logp = dist_class(dist.inputs).logp(sample)

    assert sample.shape == (5, columns)
    np.testing.assert_array_equal(
        framework.numpy(logp), framework.numpy(dist.sampled_action_logp())
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
    ids=["Discrete", "gumbel", "MultiDiscrete", "int16", "uint8", "MultiBinary", "slates"],
)
@pytest.mark.parametrize("explore", [True, False])
def test_policy_acts_in_space_and_evaluates_its_actions(framework, space, config, explore):
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    policy = rlcatalog.build(obs_space, space, {"fcnet_hiddens": [4], **config}, framework.name)
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)

    step = policy.act(obs, explore=explore)
    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert all(space.contains(step.action[row]) for row in range(5))
    np.testing.assert_allclose(framework.numpy(evaluation.logp), step.logp, rtol=1e-4, atol=1e-5)
    assert tuple(evaluation.entropy.shape) == (5,)


def test_catalog_chooses_categorical_for_discrete():
    dist_class, _ = ModelCatalog.get_action_dist(spaces.Discrete(3), {})

    assert dist_class.__name__ == "Categorical"


@pytest.mark.parametrize(
    "name", ["multi_categorical", "bernoulli", "gumbel_softmax", "slate_multi_categorical"]
)
def test_distribution_for_float_box_is_an_error(name):
    with pytest.raises(CatalogError, match="action"):
        ModelCatalog.get_action_dist(spaces.Box(-1, 1, (2,)), {"custom_action_dist": name})
