"""Frozen policies beside those they were made of, and models as users write them."""

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog_export import observations
from rlcatalog_torch import TorchModelV2

VECTOR = Box(-1, 1, (3,), np.float32)
ROWS = 3


def same(found, step, tolerance):
    """Raise unless two steps of the most likely actions are one."""
    for name in ("raw_action", "logp", "value", "dist_inputs"):
        one, other = getattr(found, name), getattr(step, name)
        assert (one is None) == (other is None)
        if other is not None:
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=name)


def walk(policy, others, steps, tolerance, explore=False):
    """Let policies act side by side, some episodes beginning anew; states go on as
    the first one's.
    """
    rng, state = np.random.default_rng(1), None
    for t in range(steps):
        obs, mask = observations(policy, ROWS, rng)
        reward = rng.normal(size=ROWS).astype(np.float32) if t else None
        if t and state is not None:
            state = policy.restart(state, rng.random(ROWS) < 0.2)
        found = [
            one.act(obs, state, prev_reward=reward, mask=mask, explore=explore)
            for one in (policy, *others)
        ]
        for one in found[1:]:
            same(one, found[0], tolerance)
            if found[0].state is not None:
                for part, right in zip(one.state.memory, found[0].state.memory, strict=True):
                    np.testing.assert_allclose(part, right, rtol=tolerance, atol=tolerance)
                assert list(one.state.views) == list(found[0].state.views)
        state = found[0].state


class Plain(TorchModelV2, torch.nn.Module):
    """A model as users write them; `forward` is a test's."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        torch.nn.Module.__init__(self)
        self.layer, self.calls = torch.nn.Linear(3, num_outputs), 0

    def forward(self, input_dict, state, seq_lens):
        self.calls += 1
        return self.computed(self.layer, input_dict["obs"]), state

    def value_function(self):
        return torch.zeros(self.rows)


def user_policy(computed):
    def forward(self, input_dict, state, seq_lens):
        self.rows = len(input_dict["obs"])
        self.calls += 1
        return computed(self, input_dict["obs"]), state

    return rlcatalog.build(
        VECTOR,
        Discrete(2),
        {"custom_model": type("Users", (Plain,), {"forward": forward})},
        "torch",
    )
