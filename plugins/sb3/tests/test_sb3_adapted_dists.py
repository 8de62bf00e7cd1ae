"""Classes of `torch.distributions` as action distributions under Stable-Baselines3."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from gymnasium.spaces import Box
from stable_baselines3 import A2C, PPO
from torch import distributions as td

import rlcatalog
from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

#: Two observations of Pendulum.
OBS = np.array([[1.0, 0.0, 0.3], [-0.6, 0.8, -2.0]], np.float32)


def squashed_normal(outputs):
    """Return a normal distribution, squashed by tanh and doubled: Pendulum's torques are in
    [-2, 2].
    """
    mean, log_std = outputs.chunk(2, -1)
    return td.TransformedDistribution(
        td.Normal(mean, log_std.exp()),
        [td.TanhTransform(cache_size=1), td.AffineTransform(0.0, 2.0)],
    )


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


def make_model(algorithm, dist, catalog, *, flatten):
    """Return an algorithm for Pendulum with an action distribution."""
    config = {"custom_action_dist": dist, "fcnet_hiddens": [8], "free_log_std": False}
    if dist == "squashed":  # its samples are torques already
        config["action_bounds"] = "clip"
    env = "Pendulum-v1"
    policy_kwargs = {"model_config": config, "catalog": catalog}
    if flatten:
        env = for_sb3(env, config, catalog=catalog)
        policy_kwargs = {}
    settings = {"batch_size": 16, "n_epochs": 1} if algorithm is PPO else {}
    return algorithm(
        CatalogPolicy,
        env,
        n_steps=16,
        device="cpu",
        seed=0,
        policy_kwargs=policy_kwargs,
        **settings,
    )


each_dist = pytest.mark.parametrize("dist", ["laplace", "squashed"])
each_algorithm = pytest.mark.parametrize(
    ("algorithm", "flatten"),
    [
        pytest.param(PPO, False, id="PPO"),
        pytest.param(PPO, True, id="PPO, flattened"),
        pytest.param(A2C, False, id="A2C"),
    ],
)


@each_dist
@each_algorithm
def test_training_changes_every_weight(catalog_with_dists, dist, algorithm, flatten):
    model = make_model(algorithm, dist, catalog_with_dists, flatten=flatten)
    before = model.policy.catalog_policy.model.get_weights()

    model.learn(32)

    for name, array in model.policy.catalog_policy.model.get_weights().items():
        assert np.any(array != before[name]), name
        assert np.isfinite(array).all(), name


@each_dist
@each_algorithm
def test_actions_have_the_densities_of_the_formula(catalog_with_dists, dist, algorithm, flatten):
    model = make_model(algorithm, dist, catalog_with_dists, flatten=flatten).learn(32)

    actions, _, logp = model.policy(torch.as_tensor(OBS))

    outputs = torch.as_tensor(to_policy(model).act(OBS).dist_inputs)
    expected = LOG_PROB[dist](outputs, actions)[:, 0].float()
    torch.testing.assert_close(logp.detach(), expected, rtol=1e-4, atol=1e-4)


@each_dist
@each_algorithm
def test_actions_are_scored_as_when_sampled(catalog_with_dists, dist, algorithm, flatten):
    model = make_model(algorithm, dist, catalog_with_dists, flatten=flatten).learn(32)
    obs = torch.as_tensor(OBS)

    actions, values, logp = model.policy(obs)
    new_values, new_logp, _ = model.policy.evaluate_actions(obs, actions)

    torch.testing.assert_close(new_values, values)
    torch.testing.assert_close(new_logp, logp)


@each_dist
@each_algorithm
def test_loaded_algorithm_scores_actions_as_before(
    catalog_with_dists, dist, algorithm, flatten, tmp_path
):
    model = make_model(algorithm, dist, catalog_with_dists, flatten=flatten).learn(32)
    model.save(tmp_path / "model.zip")
    obs = torch.as_tensor(OBS)
    actions, values, logp = model.policy(obs)

    loaded = algorithm.load(tmp_path / "model.zip", device="cpu")
    loaded_values, loaded_logp, _ = loaded.policy.evaluate_actions(obs, actions)

    torch.testing.assert_close(loaded_values, values)
    torch.testing.assert_close(loaded_logp, logp)


@each_dist
@each_algorithm
def test_loaded_algorithm_trains(catalog_with_dists, dist, algorithm, flatten, tmp_path):
    model = make_model(algorithm, dist, catalog_with_dists, flatten=flatten).learn(32)
    model.save(tmp_path / "model.zip")

    loaded = algorithm.load(tmp_path / "model.zip", device="cpu")
    loaded.set_env(model.get_env())
    loaded.learn(16)

    assert loaded.num_timesteps == 16


@each_dist
@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_loaded_algorithm_predicts_within_bounds(catalog_with_dists, dist, algorithm, tmp_path):
    model = make_model(algorithm, dist, catalog_with_dists, flatten=False).learn(32)
    model.save(tmp_path / "model.zip")

    actions, _ = algorithm.load(tmp_path / "model.zip", device="cpu").predict(OBS)

    assert Box(-2, 2, (2, 1)).contains(actions)


@each_algorithm
def test_laplace_predicts_its_mode(catalog_with_dists, algorithm, flatten, tmp_path):
    model = make_model(algorithm, "laplace", catalog_with_dists, flatten=flatten).learn(32)
    model.save(tmp_path / "model.zip")

    actions, _ = model.predict(OBS, deterministic=True)

    # The first output is a Laplace distribution's mean, which is its mode.
    modes = to_policy(model).act(OBS).dist_inputs[:, :1]
    # A flattened environment takes raw actions, and scales them to [-2, 2] itself.
    scale = 1 if flatten else 2
    np.testing.assert_array_equal(actions, scale * np.clip(modes, -1, 1))
    loaded = algorithm.load(tmp_path / "model.zip", device="cpu")
    np.testing.assert_array_equal(loaded.predict(OBS, deterministic=True)[0], actions)


@each_dist
@each_algorithm
def test_exported_policy_is_saved_with_its_dist(
    catalog_with_dists, dist, algorithm, flatten, tmp_path
):
    model = make_model(algorithm, dist, catalog_with_dists, flatten=flatten).learn(32)
    policy = to_policy(model)
    policy.save(tmp_path / "policy")

    loaded = rlcatalog.load(tmp_path / "policy", catalog=catalog_with_dists)

    expected = policy.act(OBS).dist_inputs
    np.testing.assert_array_equal(loaded.act(OBS).dist_inputs, expected)
