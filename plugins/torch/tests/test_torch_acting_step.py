"""The acting step of PyTorch's backend, against `torch.distributions` and the bare model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog.errors import ModelContractError

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded"),
]


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def build_policy(action_space, **config):
    obs_space = Box(-1, 1, (3,), np.float32)
    return rlcatalog.build(obs_space, action_space, {"fcnet_hiddens": [8], **config}, "torch")


def random_observations():
    return np.random.default_rng(0).uniform(-1, 1, (6, 3)).astype(np.float32)


def run_model(policy):
    """Return the outputs of the policy's model for six observations."""
    outputs, _ = policy.model({"obs": torch.from_numpy(random_observations())})
    return outputs


def run_step(policy, *, explore, memory=()):
    """Return what an acting step returns for six observations without a mask."""
    inputs, memory = policy.backend.inputs_of(random_observations(), views={}, memory=memory)
    return policy.backend.step(inputs, memory, mask=None, explore=explore, rows=6)


@pytest.mark.parametrize("explore", [True, False])
def test_step_returns_logp_value_and_inputs_of_the_model(explore):
    policy = build_policy(Discrete(4))
    outputs = run_model(policy)
    expected_value = policy.model.value_function()

    sample, logp, value, dist_inputs, memory = run_step(policy, explore=explore)

    categorical = torch.distributions.Categorical(logits=outputs)
    torch.testing.assert_close(logp, categorical.log_prob(sample))
    torch.testing.assert_close(value, expected_value)
    torch.testing.assert_close(dist_inputs, outputs)
    assert memory == []  # this model has none


def test_step_without_exploring_returns_most_likely_action():
    policy = build_policy(Discrete(4))

    sample, *_ = run_step(policy, explore=False)

    torch.testing.assert_close(sample, run_model(policy).argmax(1))


def test_draw_takes_explore_as_a_tensor():
    policy = build_policy(Discrete(4))
    outputs = run_model(policy)

    def draw(explore):
        sample, _, _ = policy.backend.draw(outputs, mask=None, explore=torch.tensor(explore))
        return sample

    most_likely = outputs.argmax(1)
    torch.testing.assert_close(draw(explore=False), most_likely)
    samples = torch.stack([draw(explore=True) for _ in range(20)])
    assert (samples != most_likely).any()


@pytest.mark.parametrize(
    "explore", [True, False, torch.tensor(True)], ids=["True", "False", "tensor"]
)
def test_draw_with_mask_returns_allowed_actions(explore):
    policy = build_policy(Discrete(4))
    outputs = run_model(policy)
    mask = torch.tensor([[False, True, False, True]] * 6)

    sample, logp, dist_inputs = policy.backend.draw(outputs, mask, explore)

    assert set(sample.tolist()) <= {1, 3}
    masked = torch.distributions.Categorical(logits=outputs.where(mask, -torch.inf))
    torch.testing.assert_close(logp, masked.log_prob(sample))
    # A forbidden action gets the lowest number instead of -inf.
    assert (dist_inputs[:, [0, 2]] == torch.finfo(torch.float32).min).all()


def test_step_returns_the_memory_of_the_model():
    policy = build_policy(Discrete(4), use_lstm=True, lstm_cell_size=5)
    memory = policy.memory.start(6)

    *_, new_memory = run_step(policy, explore=False, memory=memory)

    inputs, memory = policy.backend.inputs_of(random_observations(), views={}, memory=memory)
    sequences_of_one_step = torch.ones(6, dtype=torch.int32)
    _, expected = policy.model(inputs, memory, sequences_of_one_step)
    # The hidden state and the cell state of 6 rows.
    assert [tuple(part.shape) for part in new_memory] == [(6, 5), (6, 5)]
    torch.testing.assert_close(new_memory, expected)


def test_draw_from_outputs_with_wrong_number_of_rows_is_an_error():
    policy = build_policy(Discrete(4))

    with pytest.raises(ModelContractError, match=r"must return outputs of shape \[7, 4\]"):
        policy.backend.draw(torch.zeros(6, 4), None, True, 7)
