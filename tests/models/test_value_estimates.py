"""Value estimates without actions: `Policy.values`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

import rlcatalog
import rlcatalog_tf
import rlcatalog_torch
from rlcatalog.errors import ActionMaskError, ModelContractError, NotServedError
from rlcatalog.spaces import Repeated
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded", "default")]

in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)
SEPARATE_NET = {"fcnet_hiddens": [8], "vf_share_layers": False}
LSTM = {
    "fcnet_hiddens": [8],
    "use_lstm": True,
    "lstm_cell_size": 5,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}
ATTENTION = {
    "fcnet_hiddens": [8],
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_use_n_prev_actions": 2,
    "attention_use_n_prev_rewards": 2,
}
TWO_ROWS = np.zeros((2, 3), np.float32)


def sample_rows(rng, rows=4):
    return rng.uniform(-1, 1, (rows, 3)).astype(np.float32)


@pytest.mark.grid
@in_both_frameworks
@pytest.mark.parametrize(
    "config", [SEPARATE_NET, LSTM, ATTENTION], ids=["fcnet", "lstm", "attention"]
)
def test_values_are_those_of_act(framework, config):
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, framework)
    rng = np.random.default_rng(0)
    state = None
    reward = None

    for _ in range(3):
        obs = sample_rows(rng)
        values = policy.values(policy.preprocess(obs), state, prev_reward=reward)
        step = policy.act(obs, state, prev_reward=reward)
        np.testing.assert_allclose(values, step.value, rtol=1e-5, atol=1e-6)
        state = step.state
        reward = rng.normal(size=4)  # one for each row


@pytest.mark.grid
@in_both_frameworks
@pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])
def test_values_depend_on_the_state(framework, config):
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, framework)
    rng = np.random.default_rng(0)
    state = policy.act(sample_rows(rng)).state
    encoded = policy.preprocess(sample_rows(rng))

    values = policy.values(encoded, state, prev_reward=rng.normal(size=4))
    values_at_first = policy.values(encoded)

    assert np.abs(values - values_at_first).max() > 1e-5


@in_both_frameworks
def test_values_of_some_rows_equal_those_of_all_rows(framework):
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, LSTM, framework)
    obs = sample_rows(np.random.default_rng(0), rows=4)
    state_of_four = policy.act(obs).state
    values_of_four = policy.act(obs, state_of_four, prev_reward=np.ones(4)).value
    first_and_third = np.array([True, False, True, False])

    encoded = policy.preprocess(obs[first_and_third])
    state_of_two = state_of_four.rows(first_and_third)
    values_of_two = policy.values(encoded, state_of_two, prev_reward=np.ones(2))

    np.testing.assert_allclose(values_of_two, values_of_four[first_and_third], rtol=1e-5, atol=1e-6)


@in_both_frameworks
def test_values_with_a_state_of_other_rows_are_an_error(framework):
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, LSTM, framework)
    obs = sample_rows(np.random.default_rng(0), rows=4)
    state_of_four = policy.act(obs).state
    with pytest.raises(ModelContractError, match="expected the state of 2 rows"):
        policy.values(policy.preprocess(obs[:2]), state_of_four, prev_reward=np.ones(2))


@in_both_frameworks
def test_values_of_no_rows_are_empty(framework):
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, SEPARATE_NET, framework)
    encoded = policy.preprocess(TWO_ROWS)
    assert policy.values(encoded[:0]).shape == (0,)


@in_both_frameworks
def test_values_build_no_distribution(framework):
    package = rlcatalog_torch if framework == "torch" else rlcatalog_tf
    distributions = []

    class CountedCategorical(package.Categorical):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            distributions.append(self)

    config = {**SEPARATE_NET, "custom_action_dist": CountedCategorical}
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, framework)
    distributions.clear()  # `build` has made one, to check the class

    policy.values(TWO_ROWS)
    assert distributions == []

    policy.act(TWO_ROWS)
    assert len(distributions) > 0


def test_values_of_a_model_without_value_function_are_an_error():
    class WithoutValue(TorchModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.logits = torch.nn.Linear(3, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.logits(input_dict["obs"]), state

    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, {"custom_model": WithoutValue})
    with pytest.raises(NotServedError, match="WithoutValue has no value_function"):
        policy.values(TWO_ROWS)


# --- available actions ----------------------------------------------------------------------------


LISTED = Dict({"cart": THREE_FEATURES, "avail_actions": Repeated(Box(-1, 1, (2,)), 3)})
MASKED = Dict({"cart": THREE_FEATURES, "action_mask": Box(0, 1, (3,), np.int8)})


def make_observation(space, available):
    """Return an observation in which the first `available` of three actions are available."""
    entries = {
        "cart": np.full(3, 0.5, np.float32),
        "avail_actions": [np.ones(2, np.float32) for _ in range(available)],
        "action_mask": (np.arange(3) < available).astype(np.int8),
    }
    return {key: entries[key] for key in space.spaces}


@pytest.mark.grid
@in_both_frameworks
@pytest.mark.parametrize("memory", [{}, {"use_lstm": True, "lstm_cell_size": 5}])
@pytest.mark.parametrize("space", [LISTED, MASKED], ids=["list of actions", "mask"])
def test_values_need_no_available_action(framework, memory, space):
    policy = rlcatalog.build(space, Discrete(3), {"fcnet_hiddens": [8], **memory}, framework)
    two_available = [make_observation(space, available=2)]
    none_available = [make_observation(space, available=0)]

    # The value does not depend on which actions are available.
    expected = policy.act(two_available).value
    values = policy.values(policy.preprocess(none_available))
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)

    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        policy.act(none_available)
