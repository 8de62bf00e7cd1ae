"""The contract of `Policy.to`: the policy moves, what it computes stays."""

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog

pytestmark = pytest.mark.usefixtures("one_thread")

OBS = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)


def build(framework):
    return rlcatalog.build(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(4), {"fcnet_hiddens": [8]}, framework)


@pytest.mark.parametrize(("framework", "device"), [("torch", "cpu"), ("tf", "/cpu:0")])
def test_moving_keeps_what_a_policy_computes(framework, device):
    policy = build(framework)
    before = policy.act(OBS, explore=False)
    assert policy.to(device) is policy
    after = policy.act(OBS, explore=False)
    np.testing.assert_array_equal(before.dist_inputs, after.dist_inputs)
    np.testing.assert_array_equal(before.value, after.value)
    assert policy.evaluate({"obs": OBS, "raw_action": after.raw_action}).logp.shape == (5,)


def test_every_parameter_and_every_input_moves():
    import torch

    policy = build("torch").to("meta")
    assert {p.device.type for p in policy.model.parameters()} == {"meta"}
    batch = {"obs": OBS, "raw_action": np.zeros((5, 1), np.int64)}
    assert policy.evaluate(batch).logp.device.type == "meta"
    if torch.cuda.is_available():
        on_cpu = build("torch")
        expected = on_cpu.act(OBS, explore=False).dist_inputs
        np.testing.assert_allclose(on_cpu.to("cuda").act(OBS, explore=False).dist_inputs, expected, atol=1e-5)
