"""Classes of `torch.distributions` as action distributions under Stable-Baselines3."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from engine_models import squashed_normal
from stable_baselines3 import PPO
from torch import distributions as td
from torch_weights import assert_every_weight_changed, copy_weights

from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

#: Two observations of Pendulum.
TWO_OBSERVATIONS = np.array([[1.0, 0.0, 0.3], [-0.6, 0.8, -2.0]], np.float32)


def laplace_log_prob(outputs, actions):
    """Return log densities of Laplace distributions by their formula."""
    mean, scale = outputs.chunk(2, -1)  # a scale is the exponential of an output
    scale = scale.exp()
    return -(2 * scale).log() - (actions - mean).abs() / scale


def squashed_normal_log_prob(outputs, actions):
    """Return log densities of `squashed_normal` by the change of variables."""
    mean, log_std = outputs.chunk(2, -1)
    tanh = (actions / 2).double()
    z = (torch.atanh(tanh) - mean) / log_std.exp()
    normal_logp = -0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)
    return normal_logp - torch.log(2 * (1 - tanh**2))


LOG_PROB = {"laplace": laplace_log_prob, "squashed": squashed_normal_log_prob}


@pytest.fixture
def catalog_with_dists(catalog):
    """A catalog with the action distributions "laplace" and "squashed"."""
    catalog.register_action_dist("laplace", td.Laplace)
    catalog.register_action_dist(
        "squashed", squashed_normal, num_inputs=lambda space: 2 * space.shape[0]
    )
    return catalog


def train_ppo(dist, catalog, *, flatten):
    """Train PPO on Pendulum with an action distribution, for two rollouts of 16 steps."""
    config = {"custom_action_dist": dist, "fcnet_hiddens": [8], "free_log_std": False}
    if dist == "squashed":  # its samples are torques already
        config["action_bounds"] = "clip"
    env = "Pendulum-v1"
    policy_kwargs = {"model_config": config, "catalog": catalog}
    if flatten:
        env = for_sb3(env, config, catalog=catalog)
        policy_kwargs = {}
    model = PPO(
        CatalogPolicy,
        env,
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        device="cpu",
        seed=0,
        policy_kwargs=policy_kwargs,
    )
    return model.learn(32)


@pytest.mark.parametrize("dist", ["laplace", "squashed"])
@pytest.mark.parametrize("flatten", [False, True], ids=["own", "flattened"])
def test_training_changes_every_weight(catalog_with_dists, dist, flatten):
    model = train_ppo(dist, catalog_with_dists, flatten=flatten)
    weights_before = copy_weights(model.policy.model)

    model.learn(16)

    assert_every_weight_changed(model.policy.model, weights_before)


@pytest.mark.parametrize("dist", ["laplace", "squashed"])
@pytest.mark.parametrize("flatten", [False, True], ids=["own", "flattened"])
def test_actions_have_the_densities_of_the_formula(catalog_with_dists, dist, flatten):
    model = train_ppo(dist, catalog_with_dists, flatten=flatten)

    actions, _, logp = model.policy(torch.as_tensor(TWO_OBSERVATIONS))

    outputs = torch.as_tensor(to_policy(model).act(TWO_OBSERVATIONS).dist_inputs)
    expected = LOG_PROB[dist](outputs, actions)[:, 0].float()
    torch.testing.assert_close(logp.detach(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dist", ["laplace", "squashed"])
@pytest.mark.parametrize("flatten", [False, True], ids=["own", "flattened"])
def test_loaded_algorithm_scores_actions_as_before(catalog_with_dists, dist, flatten, tmp_path):
    model = train_ppo(dist, catalog_with_dists, flatten=flatten)
    model.save(tmp_path / "model.zip")
    obs = torch.as_tensor(TWO_OBSERVATIONS)
    actions, expected_values, expected_logp = model.policy(obs)

    loaded = PPO.load(tmp_path / "model.zip", device="cpu")
    values, logp, _ = loaded.policy.evaluate_actions(obs, actions)

    torch.testing.assert_close(values, expected_values)
    torch.testing.assert_close(logp, expected_logp)


@pytest.mark.parametrize("flatten", [False, True], ids=["own", "flattened"])
def test_laplace_predicts_its_mode(catalog_with_dists, flatten):
    model = train_ppo("laplace", catalog_with_dists, flatten=flatten)

    actions, _ = model.predict(TWO_OBSERVATIONS, deterministic=True)

    # A Laplace distribution's mode is its mean, the first of its two inputs.
    means = to_policy(model).act(TWO_OBSERVATIONS).dist_inputs[:, :1]
    expected = np.clip(means, -1, 1)
    if not flatten:  # a flattened environment scales actions itself
        expected = 2 * expected  # Pendulum's bounds are -2 and 2
    np.testing.assert_array_equal(actions, expected)
