"""Policies with a transformer: the state, past actions and rewards, and weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import to_array
from gymnasium import spaces
from model_runs import add_to_weights, assert_close, run_model, set_random_weights

import rlcatalog

pytestmark = pytest.mark.twins

OBSERVATIONS = np.float32([[0.1, 0.2, 0.3], [0.4, -0.5, 0.6]])


@pytest.fixture
def build_policy():
    """Build a policy whose transformer, of width 6, reads 8 features and remembers 3 steps."""

    def build(framework="torch", **config):
        config = {
            "use_attention": True,
            "fcnet_hiddens": [8],
            "attention_dim": 6,
            "attention_head_dim": 4,
            "attention_memory_inference": 3,
            "attention_memory_training": 3,
            **config,
        }
        policy = rlcatalog.build(
            spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), config, framework
        )
        set_random_weights(policy.model)
        return policy

    return build


def test_evaluate_begins_with_the_stored_state(framework, build_policy):
    policy = build_policy(framework)
    first = policy.act(OBSERVATIONS)
    second = policy.act(-OBSERVATIONS, first.state)
    without_state = policy.act(-OBSERVATIONS)
    assert not np.allclose(second.value, without_state.value, atol=1e-3)  # the state matters

    batch = {
        "obs": -OBSERVATIONS,
        "raw_action": second.raw_action,
        "state": first.state.memory,
        "seq_lens": np.array([1, 1]),
    }
    evaluation = policy.evaluate(batch)

    assert_close(to_array(evaluation.logp), second.logp)
    assert_close(to_array(evaluation.value), second.value)


def test_next_step_uses_weights_that_were_set(framework, build_policy):
    policy = build_policy(framework)
    state = policy.act(OBSERVATIONS).state
    before = policy.act(OBSERVATIONS, state, explore=False)
    other = build_policy(framework)
    set_random_weights(other.model, seed=1)

    policy.model.set_weights(other.model.get_weights())

    # Nothing computed with the earlier weights is left, in the policy or in the state.
    step = policy.act(OBSERVATIONS, state, explore=False)
    expected = other.act(OBSERVATIONS, state, explore=False)
    assert_close(step.dist_inputs, expected.dist_inputs)
    assert not np.allclose(step.dist_inputs, before.dist_inputs, atol=1e-3)


def test_parametrization_of_a_weight_changes_the_next_step(build_policy):
    class Double(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    policy = build_policy()
    attention = policy.model.transformer.units[0].attention
    before = policy.act(OBSERVATIONS, explore=False)

    torch.nn.utils.parametrize.register_parametrization(attention, "value", Double())

    after = policy.act(OBSERVATIONS, explore=False)
    assert not np.allclose(after.dist_inputs, before.dist_inputs, atol=1e-3)


def test_transformer_reads_past_actions_and_rewards(build_policy):
    policy = build_policy(attention_use_n_prev_actions=2, attention_use_n_prev_rewards=2)
    inputs = []
    policy.model.transformer.input.register_forward_pre_hook(
        lambda layer, arguments: inputs.append(arguments[0][0].tolist())
    )

    obs = np.zeros((1, 3), np.float32)
    first = policy.act(obs)
    second = policy.act(obs, first.state, prev_reward=[0.5])
    policy.act(obs, second.state, prev_reward=[-1.0])

    one_hots = {0: [1, 0], 1: [0, 1]}
    first_action = one_hots[first.action[0]]
    second_action = one_hots[second.action[0]]
    # Behind 8 features: two actions and two rewards, the oldest first, 0 before the first step.
    assert inputs[0][8:] == [0, 0, 0, 0, 0, 0]
    assert inputs[1][8:] == [0, 0, *first_action, 0, 0.5]
    assert inputs[2][8:] == [*first_action, *second_action, 0.5, -1]


def test_table_of_distances_is_not_a_weight(framework, build_policy):
    weights = build_policy(framework).model.get_weights()

    assert not any("table" in name for name in weights)


def test_value_function_runs_no_second_pass(framework, build_policy):
    model = build_policy(framework).model
    values = run_model(model, OBSERVATIONS).values

    # A second pass through the trunk and the transformer would give other values.
    add_to_weights(model, 1, prefixes=["trunk", "transformer"])

    assert_close(to_array(model.value_function()), values)
    assert not np.allclose(run_model(model, OBSERVATIONS).values, values)
