"""Inputs of models of other precisions in PyTorch: custom models, mixtures, and under PPO."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from action_kinds import Anything
from builders import sample_observations
from gymnasium.spaces import Box, Discrete
from precisions import (
    ACTIONS,
    DTYPES,
    MEMORIES,
    PAST,
    SMALL,
    VECTOR,
    act_steps,
    assert_step_in,
    build_in,
    default_dtype,
    make_batch,
)
from torch import nn

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog.models import inner_model
from rlcatalog_ppo import PPO
from rlcatalog_torch import RecurrentNetwork, TorchModelV2

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]


each_dtype = pytest.mark.parametrize("dtype", [torch.float32, *DTYPES], ids=str)
each_other_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


class RecordsItsDtype(TorchModelV2):
    """Records the dtype of its observations, and passes floats to its layers as they are."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        size = int(np.prod(obs_space.shape))
        self.body = nn.Linear(size, num_outputs)
        self.value = nn.Linear(size, 1)

    def forward(self, input_dict, state, seq_lens):
        self.obs_dtype = input_dict["obs"].dtype
        x = input_dict["obs_flat"]
        if not x.is_floating_point():
            x = x.to(self.body.weight.dtype)
        self.last_value = self.value(x)
        return self.body(x), state

    def value_function(self):
        return self.last_value.squeeze(1)


class CastsToFloat(RecordsItsDtype):
    """Calls `.float()`, as models for RLlib do."""

    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs_flat"].float()
        self.last_value = self.value(x)
        return self.body(x), state


def build_custom(obs_space, model=RecordsItsDtype):
    config = {"custom_model": model, "preprocessor_pref": None}
    return rlcatalog.build(obs_space, Discrete(3), config, "torch")


# --- inputs of custom models ----------------------------------------------------------------------


@each_dtype
def test_acting_gives_observations_the_weights_precision(dtype):
    policy = build_custom(Box(-1, 1, (3,), np.float64))
    policy.act(np.zeros((2, 3)))

    policy.model.to(dtype)  # after it has acted
    step = policy.act(np.zeros((2, 3)))

    assert_step_in(step, dtype)
    assert policy.model.obs_dtype is dtype


@each_dtype
def test_training_gives_observations_the_weights_precision(dtype):
    policy = build_custom(Box(-1, 1, (3,), np.float64))
    policy.model.to(dtype)

    policy.evaluate({"obs": torch.zeros(2, 3), "raw_action": np.zeros((2, 1), np.int64)})

    assert policy.model.obs_dtype is dtype


@each_dtype
def test_integer_observations_stay_integers(dtype):
    image = Box(0, 255, (4, 4, 3), np.uint8)
    policy = build_custom(image)
    policy.model.to(dtype)

    policy.act(sample_observations(image, 2))

    assert policy.model.obs_dtype is torch.uint8


def test_precision_follows_assigned_weights():
    policy = build_custom(VECTOR)
    policy.act(sample_observations(VECTOR, 2))
    weights = {name: value.double() for name, value in policy.model.state_dict().items()}

    policy.model.load_state_dict(weights, assign=True)

    assert policy.act(sample_observations(VECTOR, 2)).logp.dtype == np.float64


def test_precision_follows_new_layers():
    policy = build_custom(VECTOR)
    policy.model.double()
    policy.act(sample_observations(VECTOR, 2))

    policy.model.body = nn.Linear(3, 3)
    policy.model.value = nn.Linear(3, 1)

    assert policy.act(sample_observations(VECTOR, 2)).logp.dtype == np.float32


def test_model_that_casts_to_float_works_under_another_default():
    policy = build_custom(VECTOR, CastsToFloat)
    obs = sample_observations(VECTOR, 2)

    with default_dtype(torch.float64):  # set later, for something else
        step = policy.act(obs)
        batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
        evaluation = policy.evaluate(batch)

    assert step.logp.dtype == np.float32
    assert evaluation.logp.dtype is torch.float32


class CustomGRU(RecurrentNetwork):
    """A recurrent model as RLlib's page writes it."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.rnn = nn.GRU(3, 5, batch_first=True)
        self.body = nn.Linear(5, num_outputs)
        self.value = nn.Linear(5, 1)

    def get_initial_state(self):
        return [np.zeros(5, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        x, h = self.rnn(inputs, state[0][None].contiguous())
        self.last_value = self.value(x)
        return self.body(x), [h[0]]

    def value_function(self):
        return self.last_value.reshape(-1)


@each_other_dtype
def test_custom_recurrent_model_trains_as_it_acts(dtype):
    policy = build_custom(VECTOR, CustomGRU)
    policy.model.to(dtype)
    encoded, steps = act_steps(policy, sample_observations(VECTOR, 2), steps=3)

    evaluation = policy.evaluate(make_batch(policy, encoded, steps))

    for step in steps:
        assert_step_in(step, dtype)
    logp_of_acting = np.stack([step.logp for step in steps], axis=1).ravel()
    tolerance = 1e-10 if dtype is torch.float64 else 0.05  # the other dtypes have 16 bits
    np.testing.assert_allclose(evaluation.logp.detach(), logp_of_acting, rtol=0, atol=tolerance)


# --- built-in models ------------------------------------------------------------------------------


over_memories_and_actions = pytest.mark.parametrize(
    ("memory", "action"),
    list(itertools.product(MEMORIES, ["discrete", "nested, autoregressive"])),
)


def build_float32_policy(memory, action):
    space, dist_config = ACTIONS[action]
    return build_in(VECTOR, space, {**MEMORIES[memory], **dist_config}, torch.float32)


@over_memories_and_actions
def test_default_dtype_set_after_building_keeps_results_float32(memory, action):
    policy = build_float32_policy(memory, action)

    with default_dtype(torch.float64):
        encoded, steps = act_steps(policy, sample_observations(VECTOR, 2), steps=2)
        evaluation = policy.evaluate(make_batch(policy, encoded, steps))
        loss = evaluation.logp.sum() + evaluation.value.sum()
        loss.backward()

    for step in steps:
        assert_step_in(step, torch.float32)
    assert evaluation.logp.dtype is torch.float32


def find_innermost(model):
    """Return the trunk inside memories and heads."""
    inner = inner_model(model)
    return model if inner is None else find_innermost(inner)


@over_memories_and_actions
@each_other_dtype
def test_trunk_of_another_precision_works_inside_our_models(memory, action, dtype):
    policy = build_float32_policy(memory, action)
    find_innermost(policy.model).hidden.to(dtype)

    encoded, steps = act_steps(policy, sample_observations(VECTOR, 2), steps=2)
    evaluation = policy.evaluate(make_batch(policy, encoded, steps))
    loss = evaluation.logp.sum() + evaluation.value.sum()
    loss.backward()

    assert all(np.isfinite(step.logp).all() for step in steps)
    for weight in policy.model.parameters():
        if weight.grad is not None:
            assert weight.grad.isfinite().all()


def test_policy_computes_the_same_under_autocast():
    policy = build_in(VECTOR, Discrete(3), {}, torch.float32)
    obs = sample_observations(VECTOR, 4)
    expected = policy.act(obs, explore=False)

    with torch.autocast("cpu", torch.bfloat16):
        actual = policy.act(obs, explore=False)

    assert_step_in(actual, torch.float32)
    np.testing.assert_allclose(actual.dist_inputs, expected.dist_inputs, rtol=0.05, atol=0.01)


def test_evaluate_agrees_with_acting_under_autocast():
    policy = build_in(VECTOR, Discrete(3), {}, torch.float32)
    obs = sample_observations(VECTOR, 4)

    with torch.autocast("cpu", torch.bfloat16):
        step = policy.act(obs)
        batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
        evaluation = policy.evaluate(batch)

    np.testing.assert_array_equal(evaluation.logp.detach(), step.logp)


# --- training -------------------------------------------------------------------------------------


def make_ppo(memory):
    config = {
        "num_envs": 2,
        "rollout_length": 16,
        "minibatch_size": 16,
        "num_epochs": 2,
        "seed": 0,
        "kl_coeff": 0.2,
        "lr": 0.01,
        "framework": "torch",
        "model": {**SMALL, **MEMORIES[memory], "max_seq_len": 4},
    }
    return PPO(env=lambda: Anything(PAST), config=config)


def assert_trains_in(dtype, algo):
    """Assert that two updates change weights, which stay finite and keep their precision."""
    before = copy.deepcopy(algo.policy.model.state_dict())

    algo.train()
    result = algo.train()

    after = algo.policy.model.state_dict()
    assert np.isfinite(result["info"]["learner"]["vf_loss"])
    for value in after.values():
        assert value.dtype is dtype
        assert value.isfinite().all()
    assert any(not torch.equal(before[name], value) for name, value in after.items())


each_trainable_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)


@pytest.mark.grid
@each_trainable_dtype
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_ppo_trains_converted_weights(memory, dtype):
    algo = make_ppo(memory)
    algo.policy.model.to(dtype)
    assert_trains_in(dtype, algo)


@pytest.mark.grid
@each_trainable_dtype
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_ppo_trains_weights_of_another_default_dtype(memory, dtype):
    with default_dtype(dtype):
        algo = make_ppo(memory)
    assert_trains_in(dtype, algo)


#: In float16, squares of gradients below 2e-4 are 0, so that Adam's steps would be thousands of
#: times too large.
FLOAT16_ERROR = r"float16.*bfloat16"
SHORT = {
    "num_envs": 2,
    "rollout_length": 4,
    "minibatch_size": 8,
    "framework": "torch",
    "model": SMALL,
}


def test_ppo_rejects_float16_as_default_dtype():
    with default_dtype(torch.float16), pytest.raises(NotServedError, match=FLOAT16_ERROR):
        PPO(env=lambda: Anything(PAST), config=SHORT)


def test_ppo_rejects_weights_converted_to_float16():
    algo = PPO(env=lambda: Anything(PAST), config=SHORT)
    algo.policy.model.half()
    before = copy.deepcopy(algo.policy.model.state_dict())

    with pytest.raises(NotServedError, match=FLOAT16_ERROR):
        algo.train()

    for name, value in algo.policy.model.state_dict().items():
        assert torch.equal(before[name], value)
