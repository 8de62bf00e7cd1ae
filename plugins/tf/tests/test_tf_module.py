"""`policy.as_module()` in TensorFlow, against NumPy and the same module in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from scipy.special import log_softmax

import rlcatalog
from rlcatalog.errors import ActionMaskError, ModelContractError, NotServedError, ObservationError
from rlcatalog_tf import TFModelV2

pytestmark = pytest.mark.usefixtures("seeded")

THREE_FEATURES = Box(-1, 1, (3,), np.float32)


def build_policy(framework="tf", obs_space=THREE_FEATURES, **config):
    """Build a policy with four actions."""
    return rlcatalog.build(obs_space, Discrete(4), {"fcnet_hiddens": [8], **config}, framework)


def build_masked_policy():
    """Build a policy whose observations have a mask of four actions."""
    return build_policy(obs_space=Dict({"obs": THREE_FEATURES, "action_mask": MultiBinary(4)}))


def random_observations(rows):
    return tf.constant(np.random.default_rng(0).uniform(-1, 1, (rows, 3)), tf.float32)


def compute_by_hand(policy, obs):
    """Return logits and values of one shared layer, in NumPy from the policy's weights.

    The weights are `[out, in]`, as PyTorch's.
    """
    layer, bias, logits, logits_bias, value, value_bias = policy.model.get_weights().values()
    features = np.tanh(obs.numpy() @ layer.T + bias)
    return features @ logits.T + logits_bias, (features @ value.T + value_bias)[:, 0]


# --- what a module returns ------------------------------------------------------------------------


def logp_of(actions, logits):
    """Return the log probabilities of actions, one per row."""
    rows = np.arange(len(actions))
    return log_softmax(logits, axis=1)[rows, actions]


eager_and_traced = pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "traced"])


@eager_and_traced
def test_module_returns_distribution_and_value_of_its_weights(is_traced):
    policy = build_policy()
    module = policy.as_module()
    obs = random_observations(5)
    actions = [0, 1, 2, 3, 0]

    def compute(obs):
        dist, value = module(obs)
        return dist.logp(tf.constant(actions)), value

    if is_traced:
        compute = tf.function(compute)
    logp, value = compute(obs)

    logits, expected_value = compute_by_hand(policy, obs)
    np.testing.assert_allclose(logp, logp_of(actions, logits), rtol=1e-5)
    np.testing.assert_allclose(value, expected_value, rtol=1e-4, atol=1e-6)


def test_module_applies_masks():
    policy = build_masked_policy()
    obs = random_observations(6)
    mask = np.array([[True, False, True, False]] * 6)
    allowed_actions = [0, 2, 0, 2, 0, 2]

    dist, _ = policy.as_module()(obs, tf.constant(mask))

    logits, _ = compute_by_hand(policy, obs)
    expected_logp = logp_of(allowed_actions, np.where(mask, logits, -np.inf))
    np.testing.assert_allclose(dist.logp(tf.constant(allowed_actions)), expected_logp, rtol=1e-5)


def test_module_samples_allowed_actions():
    mask = tf.constant([[True, False, True, False]] * 6)

    dist, _ = build_masked_policy().as_module()(random_observations(6), mask)

    samples = np.stack([dist.sample().numpy() for _ in range(20)])
    assert set(samples.ravel().tolist()) == {0, 2}


class RemembersMode(TFModelV2):
    """A model without a value that remembers whether it is trained."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = tf.keras.layers.Dense(self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.is_training = input_dict["is_training"]
        return self.layer(input_dict["obs"]), state


@pytest.mark.parametrize("training", [True, False])
def test_module_tells_the_model_whether_it_is_trained(training):
    policy = build_policy(custom_model=RemembersMode)

    policy.as_module()(random_observations(2), training=training)

    assert policy.model.is_training is training


def test_module_of_model_without_value_returns_none():
    policy = build_policy(custom_model=RemembersMode)

    _, value = policy.as_module()(random_observations(2))

    assert value is None


# --- training and moving --------------------------------------------------------------------------


def test_module_has_the_variables_of_the_model():
    policy = build_policy(vf_share_layers=False)

    module = policy.as_module()

    # Two layers and two outputs have a weight and a bias each.
    assert isinstance(module, tf.Module)
    assert len(module.variables) == 8
    assert len(policy.model.variables()) == 8


def test_training_the_module_trains_the_policy():
    policy = build_policy(vf_share_layers=False)
    module = policy.as_module()
    obs = random_observations(32)
    optimizer = tf.keras.optimizers.Adam(0.1)

    # Train towards action 2 and value 1.
    for _ in range(25):
        with tf.GradientTape() as tape:
            dist, value = module(obs, training=True)
            logp = dist.logp(tf.fill([32], 2))
            loss = tf.reduce_mean((value - 1) ** 2) - tf.reduce_mean(logp)
        gradients = tape.gradient(loss, module.trainable_variables)
        assert all(gradient is not None for gradient in gradients)
        optimizer.apply_gradients(zip(gradients, module.trainable_variables, strict=True))

    step = policy.act(obs.numpy(), explore=False)
    assert (step.raw_action == 2).all()
    assert abs(step.value - 1).mean() < 0.1


def test_frozen_variable_is_not_trainable():
    policy = build_policy()
    module = policy.as_module()
    first_variable = policy.model.variables()[0]

    first_variable._trainable = False

    trainable = {variable.name for variable in policy.model.trainable_variables()}
    assert {variable.name for variable in module.trainable_variables} == trainable
    (frozen,) = module.non_trainable_variables
    assert frozen is first_variable


def test_module_follows_the_policy_to_another_device():
    policy = build_policy()
    module = policy.as_module()
    obs = random_observations(3)
    value_before = module(obs)[1].numpy()

    policy.to("/cpu:0")  # which builds the model again

    of_model = {id(variable) for variable in policy.model.variables()}
    np.testing.assert_allclose(module(obs)[1], value_before, rtol=1e-6)
    assert {id(variable) for variable in module.variables} == of_model


# --- errors ---------------------------------------------------------------------------------------


def test_observation_without_batch_axis_is_an_error():
    with pytest.raises(ObservationError, match=r"encoded observations of shape \[B, 3\]"):
        build_policy().as_module()(random_observations(1)[0])


def test_mask_that_allows_nothing_is_an_error():
    mask = tf.constant([[True, True, True, True], [False, False, False, False]])

    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        build_masked_policy().as_module()(random_observations(2), mask)


def test_missing_mask_is_an_error():
    with pytest.raises(ActionMaskError, match="none is given"):
        build_masked_policy().as_module()(random_observations(2))


def test_state_without_memory_is_an_error():
    with pytest.raises(NotServedError, match="has no memory"):
        build_policy().as_module()(random_observations(2), state=())


def test_module_of_model_with_past_actions_is_an_error():
    policy = build_policy(use_lstm=True, lstm_use_prev_action=True)

    with pytest.raises(NotServedError, match="reads past steps"):
        policy.as_module()


# --- models with a memory -------------------------------------------------------------------------

LSTM = {"use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_memory_inference": 4}
each_memory = pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@each_memory
@eager_and_traced
def test_memory_module_computes_what_pytorch_computes(config, is_traced):
    policy = build_policy("tf", **config)
    torch_policy = build_policy("torch", **config)
    torch_policy.model.set_weights(policy.model.get_weights())
    module = policy.as_module()
    obs = random_observations(6)

    def compute(obs):
        dist, value, state = module(obs, seq_lens=tf.constant([1, 3, 2]))
        return dist.inputs, value, state

    if is_traced:
        compute = tf.function(compute)
    inputs, value, state = compute(obs)

    with torch.no_grad():
        torch_dist, torch_value, torch_state = torch_policy.as_module()(
            torch.from_numpy(obs.numpy()), seq_lens=[1, 3, 2]
        )
    assert_close(inputs, torch_dist.inputs)
    assert_close(value, torch_value)
    for part, torch_part in zip(state, torch_state, strict=True):
        assert_close(part, torch_part)


@each_memory
def test_sequence_equals_its_single_steps(config):
    module = build_policy(**config).as_module()
    obs = random_observations(6)

    dist, _, last_state = module(obs, seq_lens=[6])

    state = None  # the start of an episode
    for t in range(6):
        dist_of_step, _, state = module(obs[t : t + 1], state=state)
        assert_close(dist.inputs[t], dist_of_step.inputs[0])
    for part, expected in zip(last_state, state, strict=True):
        assert_close(part, expected)


def test_memory_module_learns_target_values():
    module = build_policy(**LSTM).as_module()
    obs = random_observations(6)
    target = tf.constant([0.0, 1, 2, 0, 1, 2])  # two sequences of three steps
    optimizer = tf.keras.optimizers.Adam(0.05)

    for _ in range(60):
        with tf.GradientTape() as tape:
            _, value, _ = module(obs, training=True, seq_lens=[3, 3])
            loss = tf.reduce_mean((value - target) ** 2)
        weights = module.trainable_variables
        # The weights of the logits do not change the value.
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    # The best constant value, 1, would leave a loss of 2/3.
    assert loss < 0.05


def test_seq_lens_that_do_not_add_up_to_rows_are_an_error():
    module = build_policy(**LSTM).as_module()

    with pytest.raises(ModelContractError, match="add up to 4 rows"):
        module(random_observations(4), seq_lens=[2, 3])


def test_state_with_wrong_number_of_rows_is_an_error():
    module = build_policy(**LSTM).as_module()

    with pytest.raises(ModelContractError, match="a row for each of 2 sequences"):
        module(random_observations(4), state=module.initial_state(4), seq_lens=[2, 2])
