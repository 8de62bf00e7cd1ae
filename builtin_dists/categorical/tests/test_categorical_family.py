"""This package's distributions in the catalog and in policies."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import CatalogError


@pytest.mark.parametrize(
    ("space", "config", "name", "size"),
    [
        (spaces.MultiDiscrete([3, 2], start=[1, 2]), {}, "MultiCategorical", 3 + 2),
        (spaces.MultiDiscrete([[3, 2], [4, 5]]), {}, "MultiCategorical", 3 + 2 + 4 + 5),
        (spaces.Box(-2, 2, (2, 2), np.int16), {}, "MultiCategorical", 4 * 5),
        (spaces.MultiBinary((2, 3)), {}, "Bernoulli", 2 * 3),
        (spaces.Discrete(4), {"custom_action_dist": "gumbel_softmax"}, "GumbelSoftmax", 4),
        (
            spaces.MultiDiscrete([4, 4]),
            {"custom_action_dist": "slate_multi_categorical"},
            "SlateMultiCategorical",
            4 * 3,
        ),
    ],
    ids=["MultiDiscrete", "rank 2", "int16", "MultiBinary", "gumbel", "slates"],
)
def test_catalog_finds_distribution_and_size(framework, space, config, name, size):
    dist_class, found_size = ModelCatalog.get_action_dist(space, config, framework=framework.name)

    # Where a distribution has options, the catalog binds them to the class.
    assert getattr(dist_class, "cls", dist_class).__name__ == name
    assert found_size == size
    assert dist_class.required_model_output_shape(space, {}) == size


@pytest.mark.parametrize(
    ("space", "config"),
    [
        (spaces.Discrete(5, start=-2), {}),
        (spaces.Discrete(5, start=-2), {"custom_action_dist": "gumbel_softmax"}),
        (spaces.MultiDiscrete([[3, 2], [4, 5]], start=[[1, 2], [-3, 4]]), {}),
        (spaces.Box(np.array([[-1], [5]]), np.array([[1], [9]]), dtype=np.int16), {}),
        (spaces.MultiBinary((2, 3)), {}),
        (spaces.MultiDiscrete([4, 4]), {"custom_action_dist": "slate_multi_categorical"}),
    ],
    ids=["Discrete", "gumbel", "MultiDiscrete", "int16", "MultiBinary", "slates"],
)
def test_policy_scores_actions_as_it_drew_them(framework, space, config):
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    policy = build(obs_space, space, {"fcnet_hiddens": [4], **config}, framework.name)
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)

    step = policy.act(obs)
    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert all(space.contains(action) for action in step.action)
    np.testing.assert_allclose(framework.numpy(evaluation.logp), step.logp, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["multi_categorical", "bernoulli", "gumbel_softmax", "slate_multi_categorical"]
)
def test_distribution_for_float_box_is_an_error(name):
    with pytest.raises(CatalogError, match="action"):
        ModelCatalog.get_action_dist(spaces.Box(-1, 1, (2,)), {"custom_action_dist": name})
