"""Tensors passed to `act_encoded`, `values` and `evaluate`: the same results as for arrays, but as
tensors.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ActionMaskError, ModelContractError, NonFiniteError, ObservationError
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = Box(-1, 1, (3,), np.float32)
OBS_WITH_MASK = Dict({"obs": OBS, "action_mask": MultiBinary(4)})
TO_TENSOR = {"torch": torch.as_tensor, "tf": tf.convert_to_tensor}
TENSOR_CLASS = {"torch": torch.Tensor, "tf": tf.Tensor}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def build_policy(framework, action_space=None, *, obs_space=OBS, **config):
    action_space = Discrete(4) if action_space is None else action_space
    return rlcatalog.build(obs_space, action_space, {"fcnet_hiddens": [8], **config}, framework)


def random_observations(*, rows, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 3)).astype(np.float32)


def assert_same_as_tensors(step, expected, framework):
    """Check that a step contains the numbers of the expected step, as tensors instead of arrays;
    only the environment's action is an array in each.
    """
    for name in ("raw_action", "logp", "value", "dist_inputs"):
        tensor = getattr(step, name)
        array = getattr(expected, name)
        assert isinstance(tensor, TENSOR_CLASS[framework])
        assert isinstance(array, np.ndarray)
        assert tensor.numpy().dtype == array.dtype
        np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-6)
    assert not isinstance(step.action, TENSOR_CLASS[framework])
    np.testing.assert_equal(step.action, expected.action)


# --- acting ---------------------------------------------------------------------------------------


all_batch_sizes = pytest.mark.parametrize("rows", [0, 1, 5])
action_spaces = pytest.mark.parametrize(
    "action_space",
    [Discrete(4, start=2), Tuple([Discrete(3), Box(-1, 1, (2,))])],
    ids=["discrete", "tuple"],
)


@both_frameworks
@all_batch_sizes
@action_spaces
def test_act_encoded_returns_the_same_for_tensors(framework, action_space, rows):
    policy = build_policy(framework, action_space)
    obs = random_observations(rows=rows)

    step = policy.act_encoded(TO_TENSOR[framework](obs), explore=False)

    expected = policy.act_encoded(obs, explore=False)
    assert_same_as_tensors(step, expected, framework)


@both_frameworks
@all_batch_sizes
@action_spaces
def test_act_encoded_samples_tensors(framework, action_space, rows):
    policy = build_policy(framework, action_space)

    step = policy.act_encoded(TO_TENSOR[framework](random_observations(rows=rows)))

    assert isinstance(step.raw_action, TENSOR_CLASS[framework])
    assert len(step.raw_action) == rows
    assert len(step.logp) == rows


@both_frameworks
@all_batch_sizes
@action_spaces
def test_values_returns_the_same_for_tensors(framework, action_space, rows):
    policy = build_policy(framework, action_space)
    obs = random_observations(rows=rows)

    values = policy.values(TO_TENSOR[framework](obs))

    assert isinstance(values, TENSOR_CLASS[framework])
    np.testing.assert_allclose(values.numpy(), policy.values(obs), rtol=1e-6)


@both_frameworks
@pytest.mark.parametrize(
    "config",
    [
        {"use_lstm": True, "lstm_cell_size": 4},
        {"use_lstm": True, "lstm_use_prev_action": True},
        {"use_attention": True, "attention_dim": 8},
    ],
    ids=["lstm", "lstm-with-actions", "attention"],
)
def test_state_is_carried_on_for_tensors(framework, config):
    policy = build_policy(framework, **config)
    state_of_arrays = None
    state_of_tensors = None

    for t in range(3):
        obs = random_observations(rows=2, seed=t)
        expected = policy.act_encoded(obs, state_of_arrays, explore=False)
        step = policy.act_encoded(TO_TENSOR[framework](obs), state_of_tensors, explore=False)
        state_of_arrays = expected.state
        state_of_tensors = step.state

        assert_same_as_tensors(step, expected, framework)
        for part, expected_part in zip(step.state.memory, expected.state.memory, strict=True):
            assert isinstance(part, np.ndarray)
            np.testing.assert_allclose(part, expected_part, rtol=1e-6)


class ReadsPreviousObservation(TorchModelV2):
    """Reads this observation and the one before."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = torch.nn.Linear(6, self.num_outputs)
        self.view_requirements["before"] = ViewRequirement("obs", shift=-1, space=OBS)

    def forward(self, input_dict, state, seq_lens):
        self.outputs = self.layer(torch.cat([input_dict["obs"], input_dict["before"]], 1))
        return self.outputs, state

    def value_function(self):
        return self.outputs[:, 0]


def test_views_show_the_observations_of_earlier_tensors():
    policy = build_policy("torch", custom_model=ReadsPreviousObservation)
    state_of_arrays = None
    state_of_tensors = None

    for t in range(3):
        obs = random_observations(rows=2, seed=t)
        tensor = torch.from_numpy(obs).requires_grad_()  # such a tensor is no array for NumPy
        expected = policy.act_encoded(obs, state_of_arrays, explore=False)
        step = policy.act_encoded(tensor, state_of_tensors, explore=False)
        values = policy.values(tensor, state_of_tensors)
        state_of_arrays = expected.state
        state_of_tensors = step.state

        assert_same_as_tensors(step, expected, "torch")
        np.testing.assert_allclose(values, expected.value, rtol=1e-6)


@both_frameworks
def test_frozen_policy_returns_arrays_for_tensors(framework):
    policy = build_policy(framework)
    obs = random_observations(rows=2)

    step = policy.freeze(2).act_encoded(TO_TENSOR[framework](obs), explore=False)

    expected = policy.act_encoded(obs, explore=False)
    for name in ("raw_action", "logp", "value", "dist_inputs"):
        array = getattr(step, name)
        assert isinstance(array, np.ndarray)
        np.testing.assert_allclose(array, getattr(expected, name), rtol=1e-5, atol=1e-6)


# --- learning -------------------------------------------------------------------------------------


def test_torch_policy_learns_from_tensors_of_act_encoded():
    policy = build_policy("torch", vf_share_layers=False)
    obs = torch.as_tensor(random_observations(rows=5))
    step = policy.act_encoded(obs)
    batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}

    evaluation = policy.evaluate(batch)
    # A loss of all that acting returned, which has no gradient, and of what is evaluated.
    (step.logp * evaluation.logp * step.value + evaluation.value).sum().backward()

    for tensor in (step.raw_action, step.logp, step.value, step.dist_inputs):
        assert not tensor.requires_grad
    assert isinstance(evaluation.logp, torch.Tensor)
    assert all(weight.grad is not None for weight in policy.model.parameters())
    np.testing.assert_allclose(evaluation.logp.detach().numpy(), step.logp.numpy(), rtol=1e-5)


def test_tf_policy_learns_from_tensors_of_act_encoded():
    policy = build_policy("tf", vf_share_layers=False)
    obs = tf.convert_to_tensor(random_observations(rows=5))
    step = policy.act_encoded(obs)
    batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}

    with tf.GradientTape() as tape:
        evaluation = policy.evaluate(batch)
        loss = tf.reduce_sum(step.logp * evaluation.logp * step.value + evaluation.value)
    gradients = tape.gradient(loss, policy.model.trainable_variables())

    assert all(gradient is not None for gradient in gradients)
    np.testing.assert_allclose(evaluation.logp.numpy(), step.logp.numpy(), rtol=1e-5)


# --- masks ----------------------------------------------------------------------------------------

#: The first row allows the actions 0 and 2, the second only action 1.
MASK = np.array([[True, False, True, False], [False, True, False, False]])


@both_frameworks
def test_mask_tensor_gives_the_same_step_as_an_array(framework):
    policy = build_policy(framework, obs_space=OBS_WITH_MASK)
    to_tensor = TO_TENSOR[framework]
    obs = random_observations(rows=2)

    step = policy.act_encoded(to_tensor(obs), mask=to_tensor(MASK), explore=False)

    expected = policy.act_encoded(obs, mask=MASK, explore=False)
    assert_same_as_tensors(step, expected, framework)


@both_frameworks
def test_mask_tensor_forbids_actions(framework):
    policy = build_policy(framework, obs_space=OBS_WITH_MASK)
    to_tensor = TO_TENSOR[framework]
    obs = to_tensor(random_observations(rows=2))

    actions = set()
    for _ in range(20):
        step = policy.act_encoded(obs, mask=to_tensor(MASK))
        actions.add(int(step.raw_action[1, 0]))

    assert actions == {1}  # the only action that the second row of the mask allows


@both_frameworks
def test_mask_tensor_of_another_shape_is_an_error(framework):
    policy = build_policy(framework, obs_space=OBS_WITH_MASK)
    to_tensor = TO_TENSOR[framework]
    mask_of_three_actions = to_tensor(MASK[:, 1:])

    with pytest.raises(ActionMaskError, match=r"found shape \(2, 3\)") as caught:
        policy.act_encoded(to_tensor(random_observations(rows=2)), mask=mask_of_three_actions)

    assert str(caught.value).startswith("mask: expected shape (2, 4)")


@both_frameworks
def test_mask_tensor_that_forbids_everything_is_an_error(framework):
    policy = build_policy(framework, obs_space=OBS_WITH_MASK)
    to_tensor = TO_TENSOR[framework]
    forbids_everything = to_tensor(np.zeros((2, 4), bool))

    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        policy.act_encoded(to_tensor(random_observations(rows=2)), mask=forbids_everything)


@both_frameworks
def test_mask_tensor_of_a_batch_has_a_row_for_each_observation(framework):
    policy = build_policy(framework, obs_space=OBS_WITH_MASK)
    to_tensor = TO_TENSOR[framework]
    obs = to_tensor(random_observations(rows=2))
    raw_action = policy.act_encoded(obs, mask=to_tensor(MASK)).raw_action
    mask_of_one_row = to_tensor(MASK[:1])

    with pytest.raises(ActionMaskError, match=r"batch\['mask'\]: expected shape \(2, 4\)"):
        policy.evaluate({"obs": obs, "raw_action": raw_action, "mask": mask_of_one_row})


# --- checks of observations -----------------------------------------------------------------------


@both_frameworks
def test_single_observation_tensor_is_an_error(framework):
    policy = build_policy(framework)
    single_obs = TO_TENSOR[framework](np.zeros(3, np.float32))

    with pytest.raises(ObservationError, match=r"encoded observations of shape \[B, 3\]") as caught:
        policy.act_encoded(single_obs)

    assert "add an axis" in str(caught.value)


@both_frameworks
@pytest.mark.parametrize("method", ["act_encoded", "values"])
def test_nan_in_a_tensor_is_an_error(framework, method):
    policy = build_policy(framework)
    obs = np.zeros((2, 3), np.float32)
    obs[1, 2] = np.nan

    with pytest.raises(NonFiniteError, match="row 1 of 2"):
        getattr(policy, method)(TO_TENSOR[framework](obs))


def test_caller_may_write_into_a_buffer_between_steps():
    # Only writes of the model itself are an error.
    policy = build_policy("torch")
    buffer = torch.zeros(4, 2, 3)

    for t in range(4):
        obs = random_observations(rows=2, seed=t)
        buffer[t] = torch.from_numpy(obs)
        step = policy.act_encoded(buffer[t], explore=False)
        policy.values(buffer[t])

        assert_same_as_tensors(step, policy.act_encoded(obs, explore=False), "torch")


class DoublesItsInputInPlace(TorchModelV2):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = torch.nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.outputs = self.layer(input_dict["obs"].mul_(2))
        return self.outputs, state

    def value_function(self):
        return self.outputs[:, 0]


@pytest.mark.parametrize("method", ["act_encoded", "values"])
def test_model_that_writes_into_its_input_is_an_error(method):
    policy = build_policy("torch", custom_model=DoublesItsInputInPlace)
    obs = torch.zeros(2, 3)
    obs += 1  # the caller may write into the tensor

    with pytest.raises(ModelContractError, match="must not write into its inputs"):
        getattr(policy, method)(obs)
