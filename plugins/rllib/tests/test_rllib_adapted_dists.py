"""Classes of `torch.distributions` as action distributions under RLlib."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import torch
from engine_models import squashed_normal
from torch import distributions as td
from torch_weights import assert_every_weight_changed, copy_weights

from rlcatalog import Catalog
from rlcatalog.errors import NoClosedFormError
from rlcatalog.plugins.discovery import scan
from rlcatalog_rllib import to_policy

#: Two observations of Pendulum.
TWO_OBSERVATIONS = np.array([[1.0, 0.0, 0.3], [-0.6, 0.8, -2.0]], np.float32)


class Trained(NamedTuple):
    algorithm: Any
    module: Any
    weights_before: dict[str, torch.Tensor]
    #: The learner's results of one iteration.
    results: dict[str, Any]


def train(rllib, catalog, dist, **training):
    """Train PPO on Pendulum for one iteration, in this process."""
    # By default, RLlib clips errors of values that are smaller than those of Pendulum's returns.
    settings = {"lr": 1e-2, "vf_clip_param": 1e9, **training}
    model = {"custom_action_dist": dist}
    algorithm = rllib.configure("Pendulum-v1", model, catalog=catalog, **settings).build_algo()
    module = algorithm.learner_group._learner.module["default_policy"]
    weights_before = copy_weights(module.model)
    results = algorithm.train()["learners"]["default_policy"]
    return Trained(algorithm, module, weights_before, results)


@pytest.fixture(scope="module")
def laplace(rllib, local_ray):
    """PPO with Laplace distributions, whose outputs are means and log scales; not to be trained."""
    catalog = Catalog(scan(), environ={})
    catalog.register_action_dist("laplace", td.Laplace)
    trained = train(rllib, catalog, "laplace")
    yield trained
    trained.algorithm.stop()


@pytest.fixture(scope="module")
def squashed(rllib, local_ray):
    """PPO with squashed normal distributions, whose divergence has no closed form; not to be
    trained.
    """
    catalog = Catalog(scan(), environ={})
    catalog.register_action_dist(
        "squashed", squashed_normal, num_inputs=lambda space: 2 * space.shape[0]
    )
    trained = train(rllib, catalog, "squashed", use_kl_loss=False)
    yield trained
    trained.algorithm.stop()


@pytest.fixture(params=["laplace", "squashed"])
def trained(request, local_ray):
    """PPO with either distribution."""
    return request.getfixturevalue(request.param)


# --- both distributions ---------------------------------------------------------------------------


def test_training_changes_every_weight(trained):
    assert_every_weight_changed(trained.module.model, trained.weights_before)
    assert np.isfinite(trained.results["entropy"])


def test_sampled_actions_are_in_the_action_space(trained):
    policy = to_policy(trained.algorithm)

    step = policy.act(TWO_OBSERVATIONS)

    for action in step.action:
        assert policy.action_space.contains(action)


def test_restored_algorithm_acts_as_before_and_trains(trained, tmp_path):
    checkpoint = trained.algorithm.save_to_path(str(tmp_path / "checkpoint"))

    restored = type(trained.algorithm).from_checkpoint(checkpoint)
    dist_inputs = to_policy(restored).act(TWO_OBSERVATIONS).dist_inputs
    restored.train()  # raises no error
    restored.stop()

    expected = to_policy(trained.algorithm).act(TWO_OBSERVATIONS).dist_inputs
    np.testing.assert_array_equal(dist_inputs, expected)


# --- Laplace --------------------------------------------------------------------------------------


def test_laplace_actions_have_the_densities_of_torch(laplace):
    outputs = laplace.module.forward_exploration({"obs": torch.as_tensor(TWO_OBSERVATIONS)})

    mean, log_scale = outputs["action_dist_inputs"].unbind(-1)
    expected = td.Laplace(mean, log_scale.exp()).log_prob(outputs["actions"].reshape(2))
    torch.testing.assert_close(outputs["action_logp"], expected, rtol=1e-4, atol=1e-4)


def test_laplace_has_a_kl_loss(laplace):
    assert laplace.results["mean_kl_loss"] > 0


def test_laplace_mode_is_its_mean(laplace):
    outputs = laplace.module.forward_inference({"obs": torch.as_tensor(TWO_OBSERVATIONS)})

    explored = laplace.module.forward_exploration({"obs": torch.as_tensor(TWO_OBSERVATIONS)})
    mean = explored["action_dist_inputs"][:, 0]
    torch.testing.assert_close(outputs["actions"].reshape(2), mean)


# --- squashed normal ------------------------------------------------------------------------------


def test_squashed_actions_have_the_densities_of_torch(squashed):
    outputs = squashed.module.forward_exploration({"obs": torch.as_tensor(TWO_OBSERVATIONS)})

    distribution = squashed_normal(outputs["action_dist_inputs"])
    expected = distribution.log_prob(outputs["actions"].reshape(2, 1)).reshape(2)
    torch.testing.assert_close(outputs["action_logp"], expected, rtol=1e-4, atol=1e-4)


def test_squashed_has_no_kl_loss(squashed):
    assert not squashed.results["mean_kl_loss"] > 0


def test_squashed_has_no_mode(squashed):
    with pytest.raises(NoClosedFormError, match="mode"):
        squashed.module.forward_inference({"obs": torch.as_tensor(TWO_OBSERVATIONS)})
