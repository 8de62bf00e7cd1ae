"""Steps of exported policies: what they are given, what the policy did, and whether a file does the
same.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch

from rlcatalog_export.file_check import observations
from rlcatalog_export.tf.noise import TFNoise
from rlcatalog_export.torch.noise import TorchNoise


def steps_of(case, policy, width):
    """Return inputs of steps and what the policy did, first the most likely actions and then drawn
    ones.
    """
    rng = np.random.default_rng(1)
    inputs, outputs, state, rows = [], [], None, 3
    count = 16 if case.recurrent else 4
    for t in range(count):
        obs, mask = observations(policy, rows, rng)
        noise = rng.random((rows, width), np.float32) if t >= count // 2 else None
        begun = rng.random(rows) < 0.1 if t and policy.initial_state(1) is not None else None
        if begun is not None:
            state = policy.restart(state, begun)
        reward = rng.normal(size=rows).astype(np.float32) if t else None
        with drawing(policy, noise):
            step = policy.act(obs, state, prev_reward=reward, mask=mask, explore=noise is not None)
        state = step.state
        inputs.append({"obs": obs, "mask": mask, "reward": reward, "noise": noise, "begun": begun})
        outputs.append(tuple(step)[:5])
    return inputs, outputs


def task_for_child(case, policy, path, interface):
    """Return what `export_child.py` needs to act from a file, and what the policy does in the same
    steps.
    """
    noise = interface.input("noise")
    width = 0 if noise is None else noise.shape[0]
    inputs, outputs = steps_of(case, policy, width)
    spaces = {} if interface.observation_space else {"observation_space": case.obs}
    task = {"path": str(path), "prepared": case.prepared, "spaces": spaces, "steps": inputs}
    return task, outputs


def drawing(policy, noise):
    """Return a context in which a policy draws from noise."""
    if noise is None:
        return nullcontext()
    if policy.framework == "torch":
        return TorchNoise(len(noise), torch.from_numpy(noise))
    return policy.backend.untraced(TFNoise(len(noise), noise))


def near(expected, found, tolerance, what):
    if isinstance(expected, dict):
        assert list(expected) == list(found), what
        for key in expected:
            near(expected[key], found[key], tolerance, f"{what}[{key!r}]")
    elif isinstance(expected, tuple | list):  # a list has an action for each row
        for i, (one, other) in enumerate(zip(expected, found, strict=True)):
            near(one, other, tolerance, f"{what}[{i}]")
    elif expected is None:
        assert found is None, what
    else:
        assert (expected.dtype, expected.shape) == (found.dtype, found.shape), what
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=what)


def assert_acts_alike(actor, policy, *, steps, obs):
    """Check that an actor acts like its policy on the same observations in several steps; each
    passes its own state on.
    """
    actor_state = None
    policy_state = None
    reward = np.ones(len(obs))
    for t in range(steps):
        step = actor.act(obs, actor_state, prev_reward=reward, explore=False)
        expected = policy.act(obs, policy_state, prev_reward=reward, explore=False)
        near(tuple(expected)[:5], tuple(step)[:5], 1e-5, f"step {t}")
        actor_state = step.state
        policy_state = expected.state
