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
from rlcatalog.errors import ModelContractError, NonFiniteError, ObservationError
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
OBS_WITH_MASK = Dict({"obs": THREE_FEATURES, "action_mask": MultiBinary(4)})
TO_TENSOR = {"torch": torch.as_tensor, "tf": tf.convert_to_tensor}
TENSOR_CLASS = {"torch": torch.Tensor, "tf": tf.Tensor}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def build_policy(framework, action_space=None, *, obs_space=THREE_FEATURES, **config):
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
    array = random_observations(rows=2)
    tensor = TO_TENSOR[framework](array)

    first = policy.act_encoded(tensor, explore=False)
    second = policy.act_encoded(tensor, first.state, explore=False)

    first_of_array = policy.act_encoded(array, explore=False)
    second_of_array = policy.act_encoded(array, first_of_array.state, explore=False)
    assert_same_as_tensors(second, second_of_array, framework)
    assert all(isinstance(part, np.ndarray) for part in second.state.memory)


class ReadsPreviousObservation(TorchModelV2):
    """Reads this observation and the one before."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = torch.nn.Linear(6, self.num_outputs)
        self.view_requirements["before"] = ViewRequirement("obs", shift=-1, space=THREE_FEATURES)

    def forward(self, input_dict, state, seq_lens):
        self.outputs = self.layer(torch.cat([input_dict["obs"], input_dict["before"]], 1))
        return self.outputs, state

    def value_function(self):
        return self.outputs[:, 0]


def test_view_of_an_observation_with_gradient_is_an_array():
    policy = build_policy("torch", custom_model=ReadsPreviousObservation)
    obs = torch.ones(2, 3, requires_grad=True)  # NumPy cannot convert such a tensor

    first = policy.act_encoded(obs)
    second = policy.act_encoded(obs, first.state)

    np.testing.assert_array_equal(second.state.views["before"], np.ones((2, 3)))
    assert policy.values(obs, first.state).shape == (2,)


# --- learning -------------------------------------------------------------------------------------


def test_torch_policy_learns_from_tensors_of_act_encoded():
    policy = build_policy("torch", vf_share_layers=False)
    obs = torch.as_tensor(random_observations(rows=5))
    step = policy.act_encoded(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
    # The value that acting returned has no gradient: it is a constant in the loss.
    loss = evaluation.value - step.value * evaluation.logp
    loss.mean().backward()

    assert all(weight.grad is not None for weight in policy.model.parameters())
    np.testing.assert_allclose(evaluation.logp.detach().numpy(), step.logp.numpy(), rtol=1e-5)


def test_tf_policy_learns_from_tensors_of_act_encoded():
    policy = build_policy("tf", vf_share_layers=False)
    obs = tf.convert_to_tensor(random_observations(rows=5))
    step = policy.act_encoded(obs)

    with tf.GradientTape() as tape:
        evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
        # The value that acting returned has no gradient: it is a constant in the loss.
        loss = evaluation.value - step.value * evaluation.logp
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
    obs = to_tensor(np.zeros((100, 3), np.float32))
    allows_1_and_3 = np.array([[False, True, False, True]] * 100)

    step = policy.act_encoded(obs, mask=to_tensor(allows_1_and_3))

    assert set(step.raw_action.numpy().ravel()) == {1, 3}


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
    policy = build_policy("torch")
    buffer = torch.zeros(2, 3)

    for number in (0.1, 0.2, 0.3):
        buffer.fill_(number)
        policy.act_encoded(buffer)  # raises nothing, because the model did not write
        policy.values(buffer)


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
