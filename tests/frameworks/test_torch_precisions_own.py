"""What models of other precisions are given in PyTorch: models of one's own, mixtures, and under
PPO.
"""

from __future__ import annotations

import contextlib
import copy

import numpy as np
import pytest
import torch
from action_kinds import Anything
from gymnasium.spaces import Box, Discrete
from precisions import (
    ACTIONS,
    DTYPES,
    MEMORIES,
    PAST,
    SMALL,
    VECTOR,
    acted,
    batch_of,
    check_step,
    default_dtype,
    drawn,
    made,
)
from torch import nn

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog.models import inner_model
from rlcatalog_torch import RecurrentNetwork, TorchModelV2

pytestmark = [
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
    pytest.mark.usefixtures("one_thread"),
    # One config serves trunks of all kinds here: of what it sets each reads its own.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]


class Own(TorchModelV2):
    """Notes the types it is given; its layers are as they come."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        size = int(np.prod(obs_space.shape))
        self.body, self.value = nn.Linear(size, num_outputs), nn.Linear(size, 1)

    def forward(self, input_dict, state, seq_lens):
        self.given = input_dict["obs"].dtype
        x = input_dict["obs_flat"]
        if not x.is_floating_point():
            x = x.to(self.body.weight.dtype)
        self._v = self.value(x)
        return self.body(x), state

    def value_function(self):
        return self._v.squeeze(1)


class AsForRLlib(Own):
    """Says `.float()`, as models for RLlib do."""

    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs_flat"].float()
        self._v = self.value(x)
        return self.body(x), state


def own(obs, model=Own):
    return rlcatalog.build(
        obs, Discrete(3), {"custom_model": model, "preprocessor_pref": None}, "torch"
    )


@pytest.mark.parametrize("dtype", [torch.float32, *DTYPES], ids=str)
def test_float_observations_have_the_precision_of_the_weights(dtype):
    policy = own(Box(-1, 1, (3,), np.float64))
    policy.act(np.zeros((2, 3)))
    policy.model.to(dtype)  # after it has acted
    check_step(policy.act(np.zeros((2, 3))), dtype)
    assert policy.model.given is dtype
    policy.evaluate({"obs": torch.zeros(2, 3), "raw_action": np.zeros((2, 1), np.int64)})
    assert policy.model.given is dtype


@pytest.mark.parametrize("dtype", [torch.float32, *DTYPES], ids=str)
def test_whole_numbers_stay_whole(dtype):
    space = Box(0, 255, (4, 4, 3), np.uint8)
    policy = own(space)
    policy.model.to(dtype)
    policy.act(drawn(space, 2))
    assert policy.model.given is torch.uint8


def test_weights_put_in_another_place_are_followed():
    policy = own(VECTOR)
    policy.act(drawn(VECTOR, 2))
    weights = {name: value.double() for name, value in policy.model.state_dict().items()}
    policy.model.load_state_dict(weights, assign=True)
    assert policy.act(drawn(VECTOR, 2)).logp.dtype == np.float64
    policy.model.body, policy.model.value = nn.Linear(3, 3), nn.Linear(3, 1)
    assert policy.act(drawn(VECTOR, 2)).logp.dtype == np.float32


def test_models_that_cast_by_themselves_are_given_what_they_were():
    policy = own(VECTOR, AsForRLlib)
    with default_dtype(torch.float64):  # set later, for something else
        step = policy.act(drawn(VECTOR, 2))
        result = policy.evaluate(
            {"obs": policy.preprocess(drawn(VECTOR, 2)), "raw_action": step.raw_action}
        )
    assert step.logp.dtype == np.float32
    assert result.logp.dtype is torch.float32


@pytest.mark.parametrize("action", list(ACTIONS))
@pytest.mark.parametrize("memory", list(MEMORIES))
def test_another_default_after_building_changes_nothing(memory, action):
    space, extra = ACTIONS[action]
    policy = made(VECTOR, space, {**MEMORIES[memory], **extra}, torch.float32)
    with default_dtype(torch.float64):
        encoded, found = acted(policy, drawn(VECTOR, 2), 2)
        for step in found:
            check_step(step, torch.float32)
        result = policy.evaluate(batch_of(policy, encoded, found))
        (result.logp.sum() + result.value.sum()).backward()
    assert result.logp.dtype is torch.float32


@pytest.mark.parametrize("memory", list(MEMORIES))
@pytest.mark.parametrize("action", ["discrete", "nested, autoregressive"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_trunk_of_another_precision_works_inside_our_models(memory, action, dtype):
    space, extra = ACTIONS[action]
    policy = made(VECTOR, space, {**MEMORIES[memory], **extra}, torch.float32)
    trunk = policy.model
    while (inner := inner_model(trunk)) is not None:
        trunk = inner
    trunk.hidden.to(dtype)
    encoded, found = acted(policy, drawn(VECTOR, 2), 2)
    result = policy.evaluate(batch_of(policy, encoded, found))
    (result.logp.sum() + result.value.sum()).backward()
    assert all(np.isfinite(step.logp).all() for step in found)
    assert all(p.grad.isfinite().all() for p in policy.model.parameters() if p.grad is not None)


def test_autocast_computes_what_it_did():
    policy = made(VECTOR, Discrete(3), {}, torch.float32)
    expected = policy.act(drawn(VECTOR, 4), explore=False)
    with torch.autocast("cpu", torch.bfloat16):
        step = policy.act(drawn(VECTOR, 4), explore=False)
        result = policy.evaluate(
            {"obs": policy.preprocess(drawn(VECTOR, 4)), "raw_action": step.raw_action}
        )
    check_step(step, torch.float32)
    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, rtol=0.05, atol=0.01)
    np.testing.assert_array_equal(result.logp.detach(), step.logp)


class Recurrent(RecurrentNetwork):
    """A recurrent model as RLlib's page writes it."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.rnn = nn.GRU(3, 5, batch_first=True)
        self.body, self.value = nn.Linear(5, num_outputs), nn.Linear(5, 1)

    def get_initial_state(self):
        return [np.zeros(5, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        x, h = self.rnn(inputs, state[0][None].contiguous())
        self._v = self.value(x)
        return self.body(x), [h[0]]

    def value_function(self):
        return self._v.reshape(-1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_recurrent_models_of_ones_own(dtype):
    policy = own(VECTOR, Recurrent)
    policy.model.to(dtype)
    encoded, found = acted(policy, drawn(VECTOR, 2), 3)
    for step in found:
        check_step(step, dtype)
    result = policy.evaluate(batch_of(policy, encoded, found))
    tolerance = 1e-10 if dtype is torch.float64 else 0.05
    stored = np.stack([step.logp for step in found], 1).ravel()
    np.testing.assert_allclose(result.logp.detach(), stored, rtol=0, atol=tolerance)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("way", ["converted", "default"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_ppo_trains(memory, dtype, way):
    from rlcatalog_ppo import PPO

    model = {**SMALL, **MEMORIES[memory], "max_seq_len": 4}
    config = {
        "num_envs": 2,
        "rollout_length": 16,
        "minibatch_size": 16,
        "num_epochs": 2,
        "seed": 0,
        "kl_coeff": 0.2,
        "lr": 0.01,
        "framework": "torch",
        "model": model,
    }
    with default_dtype(dtype) if way == "default" else contextlib.nullcontext():
        algo = PPO(env=lambda: Anything(PAST), config=config)
    if way == "converted":
        algo.policy.model.to(dtype)
    before = copy.deepcopy(algo.policy.model.state_dict())
    for _ in range(2):
        result = algo.train()
    assert np.isfinite(result["info"]["learner"]["vf_loss"])
    after = algo.policy.model.state_dict()
    assert all(value.dtype is dtype and value.isfinite().all() for value in after.values())
    assert any(not torch.equal(before[name], value) for name, value in after.items())


@pytest.mark.parametrize("way", ["converted", "default"])
def test_ppo_refuses_weights_that_adam_cannot_train(way):
    """In float16, squares of gradients below 2e-4 are 0: steps would be thousands of times too
    large.
    """
    from rlcatalog_ppo import PPO

    config = {
        "num_envs": 2,
        "rollout_length": 4,
        "minibatch_size": 8,
        "framework": "torch",
        "model": SMALL,
    }
    refused = pytest.raises(NotServedError, match=r"float16.*bfloat16")
    if way == "default":
        with default_dtype(torch.float16), refused:
            PPO(env=lambda: Anything(PAST), config=config)
        return
    algo = PPO(env=lambda: Anything(PAST), config=config)
    algo.policy.model.half()
    before = copy.deepcopy(algo.policy.model.state_dict())
    with refused:
        algo.train()
    assert all(
        torch.equal(before[name], value) for name, value in algo.policy.model.state_dict().items()
    )
