"""Classes of `torch.distributions` as action distributions under Ray RLlib."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import torch
from torch import distributions as td

import rlcatalog
from rlcatalog.errors import NoClosedFormError
from rlcatalog_rllib import to_policy

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


def by_hand(name, outputs):
    """Return the distribution of one torque."""
    first, second = outputs[..., 0], outputs[..., 1].exp()
    return td.Laplace(first, second) if name == "laplace" else squashed(outputs)


@pytest.fixture(params=["laplace", "squashed"])
def built(request, bench, catalog, local_ray):
    """Return a name and an algorithm with the distribution of that name; it runs in
    this process.
    """
    if request.param == "laplace":
        catalog.register_action_dist("laplace", td.Laplace)
    else:
        catalog.register_action_dist(
            "squashed", squashed, num_inputs=lambda space: 2 * space.shape[0]
        )
    # By default RLlib's loss stops at errors of the value that Pendulum's returns exceed.
    training = {"use_kl_loss": request.param == "laplace", "lr": 1e-2, "vf_clip_param": 1e9}
    model = {"custom_action_dist": request.param}
    algo = bench.config("Pendulum-v1", model, catalog=catalog, **training).build_algo()
    yield request.param, algo
    algo.stop()


def test_one_learns_acts_is_saved_and_restored(built, tmp_path):
    name, algo = built
    module = algo.learner_group._learner.module["default_policy"]
    before = {key: weight.copy() for key, weight in module.model.get_weights().items()}
    learners = algo.train()["learners"]["default_policy"]
    after = module.model.get_weights()
    assert {key: np.any(weight != before[key]) for key, weight in after.items()} == dict.fromkeys(
        after, True
    )
    assert np.isfinite(learners["entropy"])
    assert (learners["mean_kl_loss"] > 0) == (name == "laplace")

    drawn = module.forward_exploration({"obs": torch.as_tensor(OBS)})
    dist = by_hand(name, drawn["action_dist_inputs"])
    logp = dist.log_prob(drawn["actions"].reshape(dist.batch_shape)).reshape(2)
    torch.testing.assert_close(drawn["action_logp"], logp, rtol=1e-4, atol=1e-4)
    policy = to_policy(algo)
    step = policy.act(OBS)
    assert all(policy.action_space.contains(action) for action in step.action)
    if name == "laplace":
        best = module.forward_inference({"obs": torch.as_tensor(OBS)})["actions"]
        torch.testing.assert_close(best.reshape(2), drawn["action_dist_inputs"][:, 0])
    else:
        with pytest.raises(NoClosedFormError, match="mode"):
            module.forward_inference({"obs": torch.as_tensor(OBS)})

    path = algo.save_to_path(str(tmp_path / "checkpoint"))
    again = type(algo).from_checkpoint(path)
    try:
        np.testing.assert_array_equal(to_policy(again).act(OBS).dist_inputs, step.dist_inputs)
        again.train()
    finally:
        again.stop()
    policy.save(tmp_path / "policy")
    loaded = rlcatalog.load(tmp_path / "policy", catalog=policy.catalog)
    np.testing.assert_array_equal(loaded.act(OBS).dist_inputs, step.dist_inputs)
