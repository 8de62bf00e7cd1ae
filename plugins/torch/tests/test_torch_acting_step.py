"""The acting step of PyTorch's backend, on tensors, against `torch.distributions` and the bare
model.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog.errors import ModelContractError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

ROWS = 6
OBS = Box(-1, 1, (3,), np.float32)


def policy_of(action, config=None):
    """Return a policy, encoded observations, and what its bare model makes of them."""
    policy = rlcatalog.build(OBS, action, {"fcnet_hiddens": [8], **(config or {})}, "torch")
    obs = np.random.default_rng(0).uniform(-1, 1, (ROWS, 3)).astype(np.float32)
    with torch.no_grad():
        outputs, _ = policy.model({"obs": torch.from_numpy(obs)})
        return policy, obs, outputs, policy.model.value_function()


@pytest.mark.parametrize("explore", [True, False])
def test_a_step_returns_actions_and_their_density_the_value_and_the_inputs(explore):
    policy, obs, outputs, value = policy_of(Discrete(4))
    inputs, memory = policy.backend.inputs_of(obs, {}, ())
    with torch.no_grad():
        sample, logp, found, params, new_memory = policy.backend.step(
            inputs, memory, None, explore, ROWS
        )
    truth = torch.distributions.Categorical(logits=outputs)
    torch.testing.assert_close(logp, truth.log_prob(sample))
    torch.testing.assert_close(found, value)
    torch.testing.assert_close(params, outputs)
    assert new_memory == []
    if not explore:
        torch.testing.assert_close(sample, truth.probs.argmax(1))


@pytest.mark.parametrize("action", [Discrete(4), Box(-1, 1, (2,), np.float32)], ids=str)
def test_a_tensor_decides_between_the_sample_and_the_most_likely_action(action):
    policy, _, outputs, _ = policy_of(action)
    with torch.no_grad():
        likely, logp, _ = policy.backend.draw(outputs, None, torch.tensor(False))
        torch.testing.assert_close(likely, policy.backend.draw(outputs, None, False)[0])
        drawn = torch.cat(
            [policy.backend.draw(outputs, None, torch.tensor(True))[0] for _ in range(20)]
        )
        torch.testing.assert_close(logp, policy.dist_class(outputs, policy.model).logp(likely))
    assert not torch.equal(drawn, likely.repeat(20, *[1] * (likely.ndim - 1)))


def test_what_a_mask_forbids_is_never_drawn():
    policy, _, outputs, _ = policy_of(Discrete(4))
    mask = torch.tensor([[False, True, False, True]]).expand(ROWS, 4)
    with torch.no_grad():
        found = [
            policy.backend.draw(outputs, mask, explore)
            for explore in (True, False, torch.tensor(True))
        ]
    for sample, logp, params in found:
        assert set(sample.tolist()) <= {1, 3}
        truth = torch.distributions.Categorical(logits=outputs[:, [1, 3]])
        torch.testing.assert_close(logp, truth.log_prob((sample - 1) // 2))
        assert (params[:, [0, 2]] == torch.finfo(torch.float32).min).all()


def test_a_memory_goes_on_as_the_model_says():
    config = {"use_lstm": True, "lstm_cell_size": 5}
    policy, obs, _, _ = policy_of(Discrete(4), config)
    inputs, memory = policy.backend.inputs_of(obs, {}, policy.memory.start(ROWS))
    with torch.no_grad():
        *_, new_memory = policy.backend.step(inputs, memory, None, False)
        _, expected = policy.model(inputs, memory, torch.ones(ROWS, dtype=torch.int32))
    assert [tuple(part.shape) for part in new_memory] == [(ROWS, 5), (ROWS, 5)]
    for part, other in zip(new_memory, expected, strict=True):
        torch.testing.assert_close(part, other)


def test_outputs_of_another_shape_are_refused_where_the_number_of_rows_is_known():
    policy, _, outputs, _ = policy_of(Discrete(4))
    with pytest.raises(ModelContractError, match=r"must return outputs of shape \[7, 4\]"):
        policy.backend.draw(outputs, None, True, ROWS + 1)
