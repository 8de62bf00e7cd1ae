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


@pytest.mark.parametrize("explore", [True, False])
def test_step_returns_logp_value_and_inputs_of_the_model(explore):
    policy = build_policy(Discrete(4))
    outputs = run_model(policy)
    expected_value = policy.model.value_function()

    inputs, memory = policy.backend.inputs_of(random_observations(), {}, ())
    sample, logp, value, params, new_memory = policy.backend.step(inputs, memory, None, explore, 6)

    categorical = torch.distributions.Categorical(logits=outputs)
    torch.testing.assert_close(logp, categorical.log_prob(sample))
    torch.testing.assert_close(value, expected_value)
    torch.testing.assert_close(params, outputs)
    assert new_memory == []


def test_step_without_exploring_returns_most_likely_action():
    policy = build_policy(Discrete(4))

    inputs, memory = policy.backend.inputs_of(random_observations(), {}, ())
    sample, *_ = policy.backend.step(inputs, memory, None, False, 6)

    torch.testing.assert_close(sample, run_model(policy).argmax(1))


@pytest.mark.parametrize("action_space", [Discrete(4), Box(-1, 1, (2,), np.float32)], ids=str)
def test_draw_takes_explore_as_a_tensor(action_space):
    policy = build_policy(action_space)
    outputs = run_model(policy)

    most_likely, logp, _ = policy.backend.draw(outputs, None, torch.tensor(False))
    samples = [policy.backend.draw(outputs, None, torch.tensor(True))[0] for _ in range(20)]

    expected, _, _ = policy.backend.draw(outputs, None, False)
    expected_logp = policy.dist_class(outputs, policy.model).logp(most_likely)
    torch.testing.assert_close(most_likely, expected)
    torch.testing.assert_close(logp, expected_logp)
    assert not all(torch.equal(sample, most_likely) for sample in samples)


@pytest.mark.parametrize(
    "explore", [True, False, torch.tensor(True)], ids=["True", "False", "tensor"]
)
def test_draw_with_mask_returns_allowed_actions(explore):
    policy = build_policy(Discrete(4))
    outputs = run_model(policy)
    mask = torch.tensor([False, True, False, True]).expand(6, 4)

    sample, logp, params = policy.backend.draw(outputs, mask, explore)

    # Actions 1 and 3 are the first and second of the allowed ones.
    allowed = torch.distributions.Categorical(logits=outputs[:, [1, 3]])
    assert set(sample.tolist()) <= {1, 3}
    torch.testing.assert_close(logp, allowed.log_prob((sample - 1) // 2))
    assert (params[:, [0, 2]] == torch.finfo(torch.float32).min).all()


def test_step_returns_the_memory_of_the_model():
    policy = build_policy(Discrete(4), use_lstm=True, lstm_cell_size=5)

    inputs, memory = policy.backend.inputs_of(random_observations(), {}, policy.memory.start(6))
    *_, new_memory = policy.backend.step(inputs, memory, None, False)

    sequences_of_one_step = torch.ones(6, dtype=torch.int32)
    _, expected = policy.model(inputs, memory, sequences_of_one_step)
    assert [tuple(part.shape) for part in new_memory] == [(6, 5), (6, 5)]
    for part, expected_part in zip(new_memory, expected, strict=True):
        torch.testing.assert_close(part, expected_part)


def test_draw_from_outputs_with_wrong_number_of_rows_is_an_error():
    policy = build_policy(Discrete(4))

    with pytest.raises(ModelContractError, match=r"must return outputs of shape \[7, 4\]"):
        policy.backend.draw(torch.zeros(6, 4), None, True, 7)
