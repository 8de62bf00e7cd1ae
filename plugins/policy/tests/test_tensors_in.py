"""Tensors given to `act_encoded`, `values` and `evaluate`: the same steps as from arrays, as
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
TENSORS = {"torch": torch.as_tensor, "tf": tf.convert_to_tensor}
CLASSES = {"torch": torch.Tensor, "tf": tf.Tensor}
FIELDS = ("raw_action", "logp", "value", "dist_inputs")
FRAMEWORKS = pytest.mark.parametrize("framework", list(TENSORS))


def policy_of(framework, action=None, config=None, obs=OBS):
    return rlcatalog.build(
        obs, action or Discrete(4), {"fcnet_hiddens": [8], **(config or {})}, framework
    )


def observations(rows, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 3)).astype(np.float32)


def assert_same(step, expected, framework):
    """Assert that a step holds tensors where the expected one holds arrays, of the same numbers."""
    for name in FIELDS:
        found, array = getattr(step, name), getattr(expected, name)
        assert isinstance(found, CLASSES[framework])
        assert isinstance(array, np.ndarray)
        assert found.numpy().dtype == array.dtype
        np.testing.assert_allclose(found.numpy(), array, rtol=1e-6)
    assert not isinstance(step.action, CLASSES[framework])
    np.testing.assert_equal(step.action, expected.action)


@FRAMEWORKS
@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize(
    "action", [Discrete(4, start=2), Tuple([Discrete(3), Box(-1, 1, (2,))])], ids=str
)
def test_step_from_a_tensor_is_that_from_an_array(framework, action, rows):
    policy, obs = policy_of(framework, action), observations(rows)
    step = policy.act_encoded(TENSORS[framework](obs), explore=False)
    assert_same(step, policy.act_encoded(obs, explore=False), framework)
    values = policy.values(TENSORS[framework](obs))
    assert isinstance(values, CLASSES[framework])
    np.testing.assert_allclose(values.numpy(), policy.values(obs), rtol=1e-6)
    drawn = policy.act_encoded(TENSORS[framework](obs))
    assert isinstance(drawn.raw_action, CLASSES[framework])
    assert len(drawn.raw_action) == rows
    assert len(drawn.logp) == rows


@FRAMEWORKS
@pytest.mark.parametrize(
    "config",
    [
        {"use_lstm": True, "lstm_cell_size": 4},
        {"use_lstm": True, "lstm_use_prev_action": True},
        {"use_attention": True, "attention_dim": 8},
    ],
    ids=lambda config: "-".join(config),
)
def test_state_is_carried_on(framework, config):
    policy, states = policy_of(framework, config=config), {"array": None, "tensor": None}
    for t in range(3):
        obs = observations(2, t)
        expected = policy.act_encoded(obs, states["array"], explore=False)
        step = policy.act_encoded(TENSORS[framework](obs), states["tensor"], explore=False)
        assert_same(step, expected, framework)
        states = {"array": expected.state, "tensor": step.state}
        for found, array in zip(step.state.memory, expected.state.memory, strict=True):
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, array, rtol=1e-6)


class LookingBack(TorchModelV2):
    """Sees the last observation, too."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = torch.nn.Linear(6, self.num_outputs)
        self.view_requirements["before"] = ViewRequirement("obs", shift=-1, space=OBS)

    def forward(self, input_dict, state, seq_lens):
        self.outputs = self.layer(torch.cat([input_dict["obs"], input_dict["before"]], 1))
        return self.outputs, state

    def value_function(self):
        return self.outputs[:, 0]


def test_past_observations_are_those_of_earlier_tensors():
    policy, states = (
        policy_of("torch", config={"custom_model": LookingBack}),
        {"array": None, "tensor": None},
    )
    for t in range(3):
        obs = observations(2, t)
        expected = policy.act_encoded(obs, states["array"], explore=False)
        tensor = torch.from_numpy(obs).requires_grad_()  # which NumPy does not read by itself
        step = policy.act_encoded(tensor, states["tensor"], explore=False)
        assert_same(step, expected, "torch")
        np.testing.assert_allclose(
            policy.values(tensor, states["tensor"]), expected.value, rtol=1e-6
        )
        states = {"array": expected.state, "tensor": step.state}


@FRAMEWORKS
def test_what_acting_returned_is_learned_from_as_it_is(framework):
    policy = policy_of(framework, config={"vf_share_layers": False})
    obs = TENSORS[framework](observations(5))
    step = policy.act_encoded(obs)
    batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    if framework == "torch":
        assert not any(getattr(step, name).requires_grad for name in FIELDS)
        evaluation = policy.evaluate(batch)
        assert isinstance(evaluation.logp, torch.Tensor)
        # Saves what acting returned.
        (step.logp * evaluation.logp * step.value + evaluation.value).sum().backward()
        gradients = [weight.grad for weight in policy.model.parameters()]
    else:
        with tf.GradientTape() as tape:
            evaluation = policy.evaluate(batch)
            loss = tf.reduce_sum(step.logp * evaluation.logp * step.value + evaluation.value)
        gradients = tape.gradient(loss, policy.model.trainable_variables())
    assert all(gradient is not None for gradient in gradients)
    logp = evaluation.logp.detach() if framework == "torch" else evaluation.logp
    np.testing.assert_allclose(logp.numpy(), step.logp.numpy(), rtol=1e-5)


@FRAMEWORKS
def test_masks_may_be_tensors(framework):
    policy = policy_of(framework, obs=Dict({"obs": OBS, "action_mask": MultiBinary(4)}))
    mask, obs = np.array([[True, False, True, False], [False, True, False, False]]), observations(2)
    tensor = TENSORS[framework]
    step = policy.act_encoded(tensor(obs), mask=tensor(mask), explore=False)
    assert_same(step, policy.act_encoded(obs, mask=mask, explore=False), framework)
    assert {
        int(policy.act_encoded(tensor(obs), mask=tensor(mask)).raw_action[1, 0]) for _ in range(20)
    } == {1}
    with pytest.raises(
        ActionMaskError, match=r"mask: expected shape \(2, 4\).*found shape \(2, 3\)"
    ):
        policy.act_encoded(tensor(obs), mask=tensor(mask[:, 1:]))
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        policy.act_encoded(tensor(obs), mask=tensor(np.zeros((2, 4), bool)))
    with pytest.raises(ActionMaskError, match=r"batch\['mask'\]: expected shape \(2, 4\)"):
        policy.evaluate(
            {"obs": tensor(obs), "raw_action": step.raw_action, "mask": tensor(mask[:1])}
        )


@FRAMEWORKS
def test_what_arrays_are_checked_for_tensors_are_too(framework):
    policy, obs, tensor = policy_of(framework), observations(2), TENSORS[framework]
    with pytest.raises(
        ObservationError, match=r"expected encoded observations of shape \[B, 3\].*add an axis"
    ):
        policy.act_encoded(tensor(obs[0]))
    obs[1, 2] = np.nan
    for call in (policy.act_encoded, policy.values):
        with pytest.raises(NonFiniteError, match="row 1 of 2"):
            call(tensor(obs))


@FRAMEWORKS
def test_frozen_policy_takes_tensors_and_returns_arrays(framework):
    policy, obs = policy_of(framework), observations(2)
    step = policy.freeze(2).act_encoded(TENSORS[framework](obs), explore=False)
    expected = policy.act_encoded(obs, explore=False)
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(step, name), getattr(expected, name), rtol=1e-5, atol=1e-6
        )
        assert isinstance(getattr(step, name), np.ndarray)


def test_a_buffer_that_is_written_before_and_after_is_no_written_input():
    policy, buffer = policy_of("torch"), torch.zeros(4, 2, 3)
    for t in range(4):
        buffer[t] = torch.from_numpy(observations(2, t))
        step = policy.act_encoded(buffer[t], explore=False)
        assert_same(step, policy.act_encoded(observations(2, t), explore=False), "torch")
        policy.values(buffer[t])


class Writing(TorchModelV2):
    """Doubles its input in place."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = torch.nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.outputs = self.layer(input_dict["obs"].mul_(2))
        return self.outputs, state

    def value_function(self):
        return self.outputs[:, 0]


def test_model_that_writes_into_the_callers_tensor_is_refused():
    policy = policy_of("torch", config={"custom_model": Writing})
    for call in (policy.act_encoded, policy.values):
        obs = torch.zeros(2, 3)
        obs += 1
        with pytest.raises(ModelContractError, match="must not write into its inputs"):
            call(obs)
