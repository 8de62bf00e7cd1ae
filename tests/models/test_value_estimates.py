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
OBS = Box(-1, 1, (3,), np.float32)
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
    policy = rlcatalog.build(OBS, TWO_ACTIONS, config, framework)
    rng = np.random.default_rng(0)
    state = None
    reward = None

    for _ in range(3):
        obs = sample_rows(rng)
        values = policy.values(policy.preprocess(obs), state, prev_reward=reward)
        step = policy.act(obs, state, prev_reward=reward)

        assert values.shape == (4,)
        np.testing.assert_allclose(values, step.value, rtol=1e-5, atol=1e-6)
        state = step.state
        reward = rng.normal(size=4)


@pytest.mark.grid
@in_both_frameworks
@pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])
def test_values_depend_on_the_state(framework, config):
    policy = rlcatalog.build(OBS, TWO_ACTIONS, config, framework)
    rng = np.random.default_rng(0)
    state = policy.act(sample_rows(rng)).state
    encoded = policy.preprocess(sample_rows(rng))

    values = policy.values(encoded, state, prev_reward=rng.normal(size=4))
    values_at_first = policy.values(encoded)

    assert np.abs(values - values_at_first).max() > 1e-5


@in_both_frameworks
def test_values_of_some_rows_of_a_state(framework):
    policy = rlcatalog.build(OBS, TWO_ACTIONS, LSTM, framework)
    obs = sample_rows(np.random.default_rng(0), rows=4)
    first_and_third = np.array([True, False, True, False])
    state = policy.act(obs).state

    encoded = policy.preprocess(obs[first_and_third])
    values = policy.values(encoded, state.rows(first_and_third), prev_reward=np.ones(2))

    values_of_all = policy.act(obs, state, prev_reward=np.ones(4)).value
    np.testing.assert_allclose(values, values_of_all[first_and_third], rtol=1e-5, atol=1e-6)


@in_both_frameworks
def test_values_with_a_state_of_other_rows_are_an_error(framework):
    policy = rlcatalog.build(OBS, TWO_ACTIONS, LSTM, framework)
    obs = sample_rows(np.random.default_rng(0), rows=4)
    state_of_four = policy.act(obs).state
    with pytest.raises(ModelContractError, match="expected the state of 2 rows"):
        policy.values(policy.preprocess(obs[:2]), state_of_four, prev_reward=np.ones(2))


@in_both_frameworks
def test_values_of_no_rows_are_empty(framework):
    policy = rlcatalog.build(OBS, TWO_ACTIONS, SEPARATE_NET, framework)
    encoded = policy.preprocess(TWO_ROWS)
    assert policy.values(encoded[:0]).shape == (0,)


@in_both_frameworks
def test_values_build_no_distribution(framework):
    base = {"torch": rlcatalog_torch, "tf": rlcatalog_tf}[framework].Categorical

    class FailsWhenArmed(base):
        is_armed = False

        def __init__(self, *args, **kwargs):
            assert not self.is_armed, "a distribution was built"
            super().__init__(*args, **kwargs)

    config = {**SEPARATE_NET, "custom_action_dist": FailsWhenArmed}
    policy = rlcatalog.build(OBS, TWO_ACTIONS, config, framework)
    FailsWhenArmed.is_armed = True  # `build` has called the class, to check it

    assert policy.values(TWO_ROWS).shape == (2,)
    with pytest.raises(AssertionError, match="a distribution was built"):
        policy.act(TWO_ROWS)


def test_values_of_a_model_without_value_function_are_an_error():
    class WithoutValue(TorchModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.logits = torch.nn.Linear(3, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.logits(input_dict["obs"]), state

    policy = rlcatalog.build(OBS, TWO_ACTIONS, {"custom_model": WithoutValue})
    with pytest.raises(NotServedError, match="WithoutValue has no value_function"):
        policy.values(TWO_ROWS)


# --- available actions ----------------------------------------------------------------------------


LISTED = Dict({"cart": OBS, "avail_actions": Repeated(Box(-1, 1, (2,)), 3)})
MASKED = Dict({"cart": OBS, "action_mask": Box(0, 1, (3,), np.int8)})
LISTED_AND_MASKED = Dict({**LISTED.spaces, **MASKED.spaces})


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
@pytest.mark.parametrize("space", [LISTED, MASKED, LISTED_AND_MASKED])
def test_values_need_no_available_action(framework, memory, space):
    policy = rlcatalog.build(space, Discrete(3), {"fcnet_hiddens": [8], **memory}, framework)
    some_available = [make_observation(space, available=2), make_observation(space, available=1)]
    none_in_row_1 = [make_observation(space, available=2), make_observation(space, available=0)]
    state = policy.act(some_available).state

    values = policy.values(policy.preprocess(none_in_row_1), state)

    assert np.isfinite(values).all()
    # The value does not depend on which actions are available.
    expected = policy.act(some_available, state).value
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        policy.act(none_in_row_1, state)
