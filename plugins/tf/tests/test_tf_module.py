"""`policy.as_module()` in TensorFlow, against NumPy by hand."""

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

SMALL = {"fcnet_hiddens": [8]}
OBS = Box(-1, 1, (3,), np.float32)
MASKED = Dict({"obs": OBS, "action_mask": MultiBinary(4)})


def policy_of(config=None, obs=OBS):
    return rlcatalog.build(obs, Discrete(4), SMALL | (config or {}), "tf")


def observations(rows):
    return tf.constant(np.random.default_rng(0).uniform(-1, 1, (rows, 3)), tf.float32)


def by_hand(policy, obs):
    """Return logits and values of a net with one shared layer; its weights are `[out, in]`, as
    PyTorch's.
    """
    layer, bias, logits, logits_bias, value, value_bias = policy.model.get_weights().values()
    features = np.tanh(obs.numpy() @ layer.T + bias)
    return features @ logits.T + logits_bias, (features @ value.T + value_bias)[:, 0]


@pytest.mark.parametrize("traced", [False, True])
def test_it_returns_the_distribution_and_the_value_that_its_weights_say(traced):
    policy, obs, actions = policy_of(), observations(5), tf.constant([0, 1, 2, 3, 0])
    module = policy.as_module()

    def figures(obs):
        dist, value = module(obs)
        return dist.logp(actions), value

    logp, value = (tf.function(figures) if traced else figures)(obs)
    logits, expected = by_hand(policy, obs)
    np.testing.assert_allclose(logp, log_softmax(logits, 1)[np.arange(5), actions], rtol=1e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)


def test_a_keras_optimizer_trains_the_policy_through_it():
    policy, obs = policy_of({"vf_share_layers": False}), observations(32)
    module, optimizer = policy.as_module(), tf.keras.optimizers.Adam(0.1)
    assert isinstance(module, tf.Module)
    assert len(module.variables) == len(policy.model.variables()) == 8
    for _ in range(25):
        with tf.GradientTape() as tape:
            dist, value = module(obs, training=True)
            loss = tf.reduce_mean((value - 1) ** 2) - tf.reduce_mean(dist.logp(tf.fill([32], 2)))
        gradients = tape.gradient(loss, module.trainable_variables)
        assert all(gradient is not None for gradient in gradients)
        optimizer.apply_gradients(zip(gradients, module.trainable_variables, strict=True))
    after = policy.act(obs.numpy(), explore=False)
    assert (after.raw_action == 2).all()
    assert abs(after.value - 1).mean() < 0.1


def test_frozen_weights_are_no_trainable_variables():
    policy = policy_of()
    module, first = policy.as_module(), policy.model.variables()[0]
    first._trainable = False
    names = {variable.name for variable in policy.model.trainable_variables()}
    assert {variable.name for variable in module.trainable_variables} == names
    assert [id(variable) for variable in module.non_trainable_variables] == [id(first)]


class Told(TFModelV2):
    """Notes whether it is trained."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = tf.keras.layers.Dense(self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.told = input_dict["is_training"]
        return self.layer(input_dict["obs"]), state


def test_the_model_is_told_whether_it_is_trained():
    policy = policy_of({"custom_model": Told})
    module = policy.as_module()
    assert [
        (module(observations(2), training=training)[1], policy.model.told)
        for training in (True, False)
    ] == [
        (None, True),
        (None, False),
    ]


def test_masks_are_baked_in():
    policy, obs = policy_of(obs=MASKED), observations(6)
    mask = np.array([[True, False, True, False]] * 6)
    dist, _ = policy.as_module()(obs, tf.constant(mask))
    logits, _ = by_hand(policy, obs)
    truth = log_softmax(np.where(mask, logits, -np.inf), 1)
    np.testing.assert_allclose(
        dist.logp(tf.constant([0, 2] * 3)), truth[np.arange(6), [0, 2] * 3], rtol=1e-5
    )
    assert not {1, 3} & {int(action) for _ in range(20) for action in dist.sample()}


def test_it_follows_the_policy_to_another_device():
    policy, obs = policy_of(), observations(3)
    module = policy.as_module()
    before = module(obs)[1].numpy()
    policy.to("/cpu:0")  # which builds the model again
    np.testing.assert_allclose(module(obs)[1], before, rtol=1e-6)
    assert {id(variable) for variable in module.variables} == {
        id(variable) for variable in policy.model.variables()
    }


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ObservationError, match=r"expected encoded observations of shape \[B, 3\]"):
        policy_of().as_module()(observations(1)[0])
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        policy_of(obs=MASKED).as_module()(observations(2), tf.constant([[True] * 4, [False] * 4]))
    with pytest.raises(ActionMaskError, match="none is given"):
        policy_of(obs=MASKED).as_module()(observations(2))
    with pytest.raises(NotServedError, match="has no memory"):
        policy_of().as_module()(observations(2), state=())
    with pytest.raises(NotServedError, match="reads past steps"):
        policy_of({"use_lstm": True, "lstm_use_prev_action": True}).as_module()


# --- models with a memory -------------------------------------------------------------------------

LSTM = {"use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_memory_inference": 4}
memories = pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])


@memories
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_memory_module_computes_what_pytorch_computes(config, traced):
    policy, other = policy_of(config), rlcatalog.build(OBS, Discrete(4), SMALL | config, "torch")
    other.model.set_weights(policy.model.get_weights())
    obs, module = observations(6), policy.as_module()

    def figures(obs, state):
        dist, value, new_state = module(obs, state=state, seq_lens=tf.constant([1, 3, 2]))
        return dist.inputs, value, new_state

    run = tf.function(figures) if traced else figures
    found = run(obs, module.initial_state(3))

    dist, value, state = other.as_module()(torch.from_numpy(obs.numpy()), seq_lens=[1, 3, 2])
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(found[0], dist.inputs.detach(), **close)
    np.testing.assert_allclose(found[1], value.detach(), **close)
    for part, expected in zip(found[2], state, strict=True):
        np.testing.assert_allclose(part, expected.detach(), **close)


@memories
def test_memory_steps_are_one_sequence(config):
    module, obs = policy_of(config).as_module(), observations(6)
    steps, state = [], None
    for t in range(6):
        dist, _, state = module(obs[t : t + 1], state=state)
        steps.append(dist.inputs)
    dist, _, end = module(obs, seq_lens=[6])
    np.testing.assert_allclose(dist.inputs, tf.concat(steps, 0), rtol=1e-4, atol=1e-5)
    for part, expected in zip(end, state, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-5)


def test_memory_trains_through_the_module():
    module, obs = policy_of(LSTM).as_module(), observations(6)
    optimizer = tf.keras.optimizers.Adam(0.05)
    for _ in range(60):
        with tf.GradientTape() as tape:
            _, value, _ = module(obs, training=True, seq_lens=[3, 3])
            loss = tf.reduce_mean((value - tf.constant([0.0, 1, 2, 0, 1, 2])) ** 2)
        weights = module.trainable_variables
        pairs = zip(tape.gradient(loss, weights), weights, strict=True)
        optimizer.apply_gradients(pair for pair in pairs if pair[0] is not None)
    assert loss < 0.05


def test_memory_that_does_not_fit_is_refused():
    module, obs = policy_of(LSTM).as_module(), observations(4)
    with pytest.raises(ModelContractError, match="add up to 4 rows"):
        module(obs, seq_lens=[2, 3])
    with pytest.raises(ModelContractError, match="a row for each of 2 sequences"):
        module(obs, state=module.initial_state(4), seq_lens=[2, 2])
