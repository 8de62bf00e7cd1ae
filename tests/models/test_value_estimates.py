"""The contract on paper: value estimates where nobody acts."""

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

both = pytest.mark.parametrize("framework", ["torch", "tf"])
BOX = Box(-1, 1, (3,), np.float32)
NET = {"fcnet_hiddens": [8], "vf_share_layers": False}
MODELS = {
    "fcnet": NET,
    "lstm": {
        **NET,
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
        "vf_share_layers": True,
    },
    "attention": {
        "fcnet_hiddens": [8],
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 2,
    },
}


@pytest.mark.grid
@both
@pytest.mark.parametrize("model", MODELS)
def test_values_are_those_of_acting_and_change_nothing(framework, model):
    policy = rlcatalog.build(BOX, Discrete(2), MODELS[model], framework)
    rng, state, reward = np.random.default_rng(0), None, None
    for _ in range(3):
        obs = rng.uniform(-1, 1, (4, 3)).astype(np.float32)
        found = policy.values(policy.preprocess(obs), state, prev_reward=reward)
        step = policy.act(obs, state, prev_reward=reward)
        np.testing.assert_allclose(found, step.value, rtol=1e-5, atol=1e-6)
        assert found.shape == (4,)
        if state is not None:  # the value depends on it
            assert np.abs(found - policy.values(policy.preprocess(obs))).max() > 1e-5
        state, reward = step.state, rng.normal(size=4)


@both
def test_some_rows_of_a_state_and_no_rows_at_all(framework):
    policy = rlcatalog.build(BOX, Discrete(2), MODELS["lstm"], framework)
    obs, rows = (
        np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32),
        np.array([True, False, True, False]),
    )
    step = policy.act(obs)
    found = policy.values(
        policy.preprocess(obs[rows]), step.state.rows(rows), prev_reward=np.ones(2)
    )
    expected = policy.act(obs, step.state, prev_reward=np.ones(4)).value[rows]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelContractError, match="expected the state of 2 rows"):
        policy.values(policy.preprocess(obs[rows]), step.state, prev_reward=np.ones(2))
    plain = rlcatalog.build(BOX, Discrete(2), NET, framework)
    assert plain.values(plain.preprocess(obs)[:0]).shape == (0,)


@both
def test_no_distribution_is_made(framework):
    base = {"torch": rlcatalog_torch, "tf": rlcatalog_tf}[framework].Categorical

    class Refuses(base):
        armed = False

        def __init__(self, *args, **kwargs):
            assert not self.armed, "a distribution was made"
            super().__init__(*args, **kwargs)

    policy = rlcatalog.build(BOX, Discrete(2), {**NET, "custom_action_dist": Refuses}, framework)
    Refuses.armed = True
    assert policy.values(np.zeros((2, 3), np.float32)).shape == (2,)
    with pytest.raises(AssertionError, match="a distribution was made"):
        policy.act(np.zeros((2, 3), np.float32))


LISTED = Dict({"cart": BOX, "avail_actions": Repeated(Box(-1, 1, (2,)), 3)})
MASKED = Dict({"cart": BOX, "action_mask": Box(0, 1, (3,), np.int8)})
BOTH = Dict({**LISTED.spaces, **MASKED.spaces})


@pytest.mark.grid
@both
@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("space", [LISTED, MASKED, BOTH])
def test_where_no_action_is_available_there_is_a_value_and_no_action(framework, memory, space):
    config = {
        "fcnet_hiddens": [8],
        **({"use_lstm": True, "lstm_cell_size": 5} if memory == "lstm" else {}),
    }
    policy = rlcatalog.build(space, Discrete(3), config, framework)
    cart = np.full(3, 0.5, np.float32)

    def observed(n):
        found = {
            "cart": cart,
            "avail_actions": [np.ones(2, np.float32)] * n,
            "action_mask": np.array([1] * n + [0] * (3 - n), np.int8),
        }
        return {key: found[key] for key in space.spaces}

    step = policy.act([observed(2), observed(1)])
    last = [observed(2), observed(0)]
    values = policy.values(policy.preprocess(last), step.state)
    assert np.isfinite(values).all()
    # What is available says nothing about the value.
    np.testing.assert_allclose(
        values, policy.act([observed(2), observed(1)], step.state).value, rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        policy.act(last, step.state)


def test_a_model_without_values_is_refused_by_name():
    class Valueless(TorchModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.logits = torch.nn.Linear(3, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.logits(input_dict["obs"]), state

    policy = rlcatalog.build(BOX, Discrete(2), {"custom_model": Valueless})
    with pytest.raises(NotServedError, match="Valueless has no value_function"):
        policy.values(np.zeros((1, 3), np.float32))
