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

OBS = np.array([[1.0, 0.0, 0.3], [-0.6, 0.8, -2.0]], np.float32)


def squashed(outputs):
    """Return a normal distribution, pressed into (-1, 1) by tanh and doubled:
    Pendulum's torques.
    """
    mean, log_std = outputs.chunk(2, -1)
    return td.TransformedDistribution(
        td.Normal(mean, log_std.exp()),
        [td.TanhTransform(cache_size=1), td.AffineTransform(0.0, 2.0)],
    )


def log_prob(name, outputs, actions):
    """Return log densities, written down anew."""
    first, second = outputs.chunk(2, -1)
    if name == "laplace":
        scale = second.exp()
        return -(2 * scale).log() - (actions - first).abs() / scale
    y = (actions / 2).double()
    z = (torch.atanh(y) - first) / second.exp()
    return -0.5 * z**2 - second - 0.5 * np.log(2 * np.pi) - torch.log(2 * (1 - y**2))


@pytest.fixture(params=["laplace", "squashed"])
def registered(request, catalog):
    """Register a distribution; return the catalog and the name."""
    if request.param == "laplace":
        catalog.register_action_dist("laplace", td.Laplace)
    else:
        catalog.register_action_dist(
            "squashed", squashed, num_inputs=lambda space: 2 * space.shape[0]
        )
    return catalog, request.param


@pytest.mark.parametrize(("algorithm", "flat"), [(PPO, False), (PPO, True), (A2C, False)])
def test_one_learns_acts_is_saved_and_loaded(registered, algorithm, flat, tmp_path):
    catalog, name = registered
    config = {"custom_action_dist": name, "fcnet_hiddens": [8], "free_log_std": False}
    if name == "squashed":  # it draws the environment's torques
        config["action_bounds"] = "clip"
    env = for_sb3("Pendulum-v1", config, catalog=catalog) if flat else "Pendulum-v1"
    kwargs = {} if flat else {"model_config": config, "catalog": catalog}
    sizes = {"batch_size": 16, "n_epochs": 1} if algorithm is PPO else {}
    algo = algorithm(
        CatalogPolicy, env, n_steps=16, device="cpu", seed=0, policy_kwargs=kwargs, **sizes
    )
    before = algo.policy.catalog_policy.model.get_weights()
    algo.learn(32)
    after = algo.policy.catalog_policy.model.get_weights()
    assert all(
        np.any(weight != before[name]) and np.isfinite(weight).all()
        for name, weight in after.items()
    )

    actions, values, logp = algo.policy(torch.as_tensor(OBS))
    policy = to_policy(algo)
    outputs = torch.as_tensor(policy.act(OBS).dist_inputs)
    torch.testing.assert_close(
        logp.detach(), log_prob(name, outputs, actions)[:, 0].float(), rtol=1e-4, atol=1e-4
    )
    scored, scores, _ = algo.policy.evaluate_actions(torch.as_tensor(OBS), actions)
    torch.testing.assert_close((scored, scores), (values, logp))

    algo.save(tmp_path / "algo.zip")
    loaded = algorithm.load(tmp_path / "algo.zip", device="cpu")
    if name == "laplace":  # the other one has no mode
        expected = algo.predict(OBS, deterministic=True)[0]
        # A flattened environment takes raw actions, and scales them itself.
        scale = 1 if flat else 2
        modes = outputs[:, :1].numpy()
        np.testing.assert_array_equal(expected, scale * np.clip(modes, -1, 1))
        np.testing.assert_array_equal(loaded.predict(OBS, deterministic=True)[0], expected)
    torch.testing.assert_close(
        loaded.policy.evaluate_actions(torch.as_tensor(OBS), actions)[:2], (scored, scores)
    )
    # The flattened environment clips.
    assert flat or Box(-2, 2, (2, 1)).contains(loaded.predict(OBS)[0])
    loaded.set_env(algo.get_env())
    loaded.learn(16)

    policy.save(tmp_path / "policy")
    again = rlcatalog.load(tmp_path / "policy", catalog=catalog)
    np.testing.assert_array_equal(again.act(OBS).dist_inputs, outputs)
