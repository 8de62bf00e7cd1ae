"""`policy.as_module()` in TensorFlow, against NumPy by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from scipy.special import log_softmax

import rlcatalog
from rlcatalog.errors import ActionMaskError, NotServedError, ObservationError
from rlcatalog_tf import TFModelV2

pytestmark = pytest.mark.usefixtures("seeded")

OBS = Box(-1, 1, (3,), np.float32)
MASKED = Dict({"obs": OBS, "action_mask": MultiBinary(4)})


def policy_of(config=None, obs=OBS):
    return rlcatalog.build(obs, Discrete(4), {"fcnet_hiddens": [8], **(config or {})}, "tf")


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
    with pytest.raises(NotServedError, match="has a memory or reads past steps"):
        policy_of({"use_lstm": True}).as_module()
