"""RLlib's weights act here as they did there: its own classic nets, and nets made by hand as its
TensorFlow ones.
"""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import rlcatalog
from rlcatalog.errors import (
    CatalogWarning,
    ConfigError,
    ModelContractError,
    NotServedError,
    UnreadKeysWarning,
)
from rlcatalog_compat import load_rllib_weights
from rlcatalog_compat.rllib.models.torch.fcnet import FullyConnectedNetwork as TorchFC
from rlcatalog_compat.rllib.models.torch.misc import SlimFC
from rlcatalog_tf import TFModelV2, tf
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
BYTES = gym.spaces.Box(0, 255, (3,), np.uint8)
MIXED = gym.spaces.Dict({"a": VECTOR, "d": gym.spaces.Discrete(3), "img": IMAGE})
FOUR = gym.spaces.Discrete(4)
SMALL = {"fcnet_hiddens": [6, 5]}
FREE, SHARED = {"image_scale": False}, {"vf_share_layers": True}
#: Name → observation space, the config in both, and what is added to ours.
NETS = {
    "fcnet": (VECTOR, SMALL, {}),
    "fcnet, value apart": (VECTOR, {**SMALL, "vf_share_layers": False}, {}),
    "fcnet, free_log_std": (VECTOR, {**SMALL, "free_log_std": True}, {}),
    "fcnet, post": (
        VECTOR,
        {**SMALL, "post_fcnet_hiddens": [7], "post_fcnet_activation": "tanh"},
        {},
    ),
    "fcnet, no layers": (VECTOR, {"fcnet_hiddens": []}, {}),
    "visionnet": (IMAGE, {"conv_activation": "tanh"}, FREE),
    "visionnet, value apart": (IMAGE, {"vf_share_layers": False}, FREE),
    "complex": (MIXED, {"fcnet_hiddens": [5], "post_fcnet_hiddens": [7]}, FREE),
    "complex, value apart": (
        MIXED,
        {"fcnet_hiddens": [5], "vf_share_layers": False},
        {**FREE, "vf_share_layers": True},
    ),
}
LSTM = {**SMALL, "use_lstm": True, "lstm_cell_size": 6, "lstm_use_prev_reward": True}
ATTENTION = {
    **SMALL,
    "use_attention": True,
    "attention_dim": 8,
    "attention_num_heads": 2,
    "attention_head_dim": 5,
    "attention_num_transformer_units": 2,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}


def theirs(space, config):
    """RLlib's own net, with weights far from zero, and these as `Policy.get_weights` has them."""
    pytest.importorskip("ray.rllib", reason="Ray is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.rllib.models.catalog import MODEL_DEFAULTS, ModelCatalog
        from ray.rllib.models.preprocessors import get_preprocessor

        if isinstance(space, gym.spaces.Dict):
            space = get_preprocessor(space)(space).observation_space
        model = ModelCatalog.get_model_v2(
            space, FOUR, 4, {**MODEL_DEFAULTS, **config}, framework="torch"
        )
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.3 if p.dim() < 4 else 0.02)
    return model, {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def observations(space, count=3):
    space.seed(1)
    return [space.sample() for _ in range(count)]


def batch_for(model, space, rows):
    if not isinstance(space, gym.spaces.Dict):
        return {"obs": torch.from_numpy(np.stack(rows))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.rllib.models.modelv2 import restore_original_dimensions
        from ray.rllib.models.preprocessors import get_preprocessor

    prep = get_preprocessor(space)(space)
    flat = torch.from_numpy(np.stack([prep.transform(row) for row in rows]).astype(np.float32))
    return {
        "obs": restore_original_dimensions(flat, prep.observation_space, "torch"),
        "obs_flat": flat,
    }


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("net", NETS)
def test_a_net_acts_as_rllibs(net, framework):
    space, config, more = NETS[net]
    model, weights = theirs(space, config)
    actions = gym.spaces.Box(-1, 1, (2,)) if "free_log_std" in config else FOUR
    policy = rlcatalog.build(space, actions, {**config, **more}, framework)
    load_rllib_weights(policy, weights)
    rows = observations(space)
    outputs, _ = model(batch_for(model, space, rows), [], None)
    step = policy.act_encoded(policy.preprocess(rows), explore=False)
    np.testing.assert_allclose(step.dist_inputs, outputs.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        step.value, model.value_function().detach().numpy(), rtol=1e-5, atol=1e-6
    )
    # It depends on what it sees.
    assert np.ptp(step.dist_inputs, axis=0).min() > 1e-3 or "free" in net


def built(config, framework):
    """Build a policy; `no_final_linear`, which does nothing under a memory, here as in RLlib, is
    one warning.
    """
    if not config.get("no_final_linear"):
        return rlcatalog.build(VECTOR, FOUR, config, framework)
    with pytest.warns(UnreadKeysWarning, match="no_final_linear"):
        return rlcatalog.build(VECTOR, FOUR, config, framework)


@pytest.mark.parametrize("more", [{}, {"no_final_linear": True}], ids=["", "no_final_linear"])
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_an_lstm_acts_as_rllibs_over_steps(framework, more):
    model, weights = theirs(VECTOR, {**LSTM, **more})
    policy = built({**LSTM, **more}, framework)
    load_rllib_weights(policy, weights)
    rng, state = np.random.default_rng(0), None
    memory = [torch.zeros(2, 6), torch.zeros(2, 6)]
    for t in range(4):
        obs = rng.normal(size=(2, 3)).astype(np.float32)
        reward = np.full(2, 0.5 * t, np.float32)
        batch = {"obs": torch.from_numpy(obs), "prev_rewards": torch.from_numpy(reward)}
        outputs, memory = model(batch, memory, torch.ones(2, dtype=torch.int32))
        step = policy.act(obs, state, prev_reward=reward, explore=False)
        state = step.state
        np.testing.assert_allclose(step.dist_inputs, outputs.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            step.value, model.value_function().detach().numpy(), rtol=1e-5, atol=1e-6
        )
        for ours, part in zip(state.memory, memory, strict=True):
            np.testing.assert_allclose(ours, part.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.grid
@pytest.mark.parametrize("more", [{}, {"no_final_linear": True}], ids=["", "no_final_linear"])
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_attention_acts_as_rllibs_once_its_memory_is_full(framework, more):
    # With layers for a value that RLlib does not read.
    model, weights = theirs(VECTOR, {**ATTENTION, **more, "vf_share_layers": False})
    policy = built({**ATTENTION, **more}, framework)
    # test_rllib_attention.py.
    with pytest.warns(CatalogWarning, match="in the first 8 steps of every episode"):
        load_rllib_weights(policy, weights)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(2, 3)).astype(np.float32)
    memory = rng.normal(size=(2, 2, 4, 8)).astype(np.float32)
    parts = [torch.from_numpy(memory[:, unit]) for unit in range(2)]
    outputs, new = model({"obs": torch.from_numpy(obs)}, parts, torch.ones(2, dtype=torch.int32))
    state = policy.initial_state(2)._replace(memory=(memory, np.full(2, 4, np.int32)))
    step = policy.act(obs, state, explore=False)
    np.testing.assert_allclose(step.dist_inputs, outputs.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        step.value, model.value_function().detach().numpy(), rtol=1e-5, atol=1e-6
    )
    for unit in range(2):
        np.testing.assert_allclose(
            step.state.memory[0][:, unit, -1], new[unit].detach().numpy(), rtol=1e-5, atol=1e-6
        )


# --- TensorFlow's names ---------------------------------------------------------------------------


def named(model, form):
    """The weights of a Keras model under the names that RLlib's policies give them."""
    return {form.format(variable.path): variable.numpy() for variable in model.weights}


FORMS = {"static graph": "default_policy/{}", "eager": "{}:0"}


def shaken(model):
    rng = np.random.default_rng(0)
    model.set_weights(
        [rng.normal(0, 0.3 if w.ndim < 4 else 0.02, w.shape) for w in model.get_weights()]
    )
    return model


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [True, False])
def test_a_net_with_tensorflows_names(share, form, framework):
    layers = tf.keras.layers
    inputs = layers.Input((3,))
    x = layers.Dense(5, "tanh", name="fc_2")(layers.Dense(6, "tanh", name="fc_1")(inputs))
    v = (
        x
        if share
        else layers.Dense(5, "tanh", name="fc_value_2")(
            layers.Dense(6, "tanh", name="fc_value_1")(inputs)
        )
    )
    net = shaken(
        tf.keras.Model(
            inputs, [layers.Dense(4, name="fc_out")(x), layers.Dense(1, name="value_out")(v)]
        )
    )
    policy = rlcatalog.build(VECTOR, FOUR, {**SMALL, "vf_share_layers": share}, framework)
    load_rllib_weights(policy, named(net, FORMS[form]))
    obs = np.stack(observations(VECTOR))
    step = policy.act(obs, explore=False)
    outputs, values = net(obs)
    np.testing.assert_allclose(step.dist_inputs, outputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(step.value, values[:, 0], rtol=1e-5, atol=1e-6)


def test_images_with_tensorflows_names():
    layers = tf.keras.layers
    inputs = layers.Input((42, 42, 3))
    x = layers.Conv2D(16, 4, 2, "same", activation="relu", name="conv1")(inputs)
    x = layers.Conv2D(32, 4, 2, "same", activation="relu", name="conv2")(x)
    x = layers.Conv2D(256, 11, 1, "valid", activation="relu", name="conv3")(x)
    outputs = layers.Conv2D(4, 1, name="conv_out")(x)
    values = layers.Dense(1, name="value_out")(layers.Reshape((256,))(x))
    net = shaken(tf.keras.Model(inputs, [outputs, values]))
    policy = rlcatalog.build(IMAGE, FOUR, FREE, "torch")
    load_rllib_weights(policy, named(net, FORMS["static graph"]))
    obs = np.stack(observations(IMAGE))
    step = policy.act(obs, explore=False)
    outputs, values = net(obs.astype(np.float32))
    # Of numbers in the hundreds.
    np.testing.assert_allclose(step.dist_inputs, outputs[:, 0, 0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(step.value, values[:, 0], rtol=1e-4, atol=1e-3)


def test_an_lstm_with_tensorflows_names():
    layers = tf.keras.layers
    inputs = layers.Input((None, 3))
    x = layers.Dense(5, "tanh", name="fc_2")(layers.Dense(6, "tanh", name="fc_1")(inputs))
    x = layers.LSTM(6, return_sequences=True, name="lstm")(x)
    net = shaken(
        tf.keras.Model(
            inputs, [layers.Dense(4, name="logits")(x), layers.Dense(1, name="values")(x)]
        )
    )
    config = {**LSTM, "lstm_use_prev_reward": False}
    policy = rlcatalog.build(VECTOR, FOUR, config, "torch")
    idle = {
        "default_policy/value_out/kernel": np.zeros((5, 1)),
        "default_policy/value_out/bias": np.zeros(1),
    }
    load_rllib_weights(policy, {**named(net, FORMS["static graph"]), **idle})
    obs, state = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32), None
    outputs, values = net(obs)
    for t in range(4):
        step = policy.act(obs[:, t], state, explore=False)
        state = step.state
        np.testing.assert_allclose(step.dist_inputs, outputs[:, t], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(step.value, values[:, t, 0], rtol=1e-5, atol=1e-6)


# --- custom models --------------------------------------------------------------------------------


class Ported(TorchModelV2, nn.Module):
    """As in RLlib's examples: a net of RLlib's inside, and layers of its own."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.torch_sub_model = TorchFC(obs_space, action_space, num_outputs, model_config, name)
        self.branch = nn.Sequential(SlimFC(3, 4), SlimFC(4, num_outputs))

    def forward(self, input_dict, state, seq_lens):
        logits, _ = self.torch_sub_model({"obs": input_dict["obs"].float()}, state, seq_lens)
        return logits + self.branch(input_dict["obs_flat"].float()), []

    def value_function(self):
        return self.torch_sub_model.value_function()


def test_a_ported_model_takes_its_own_names_and_rllibs():
    model, weights = theirs(VECTOR, SMALL)
    rng = np.random.default_rng(0)
    own = {
        f"branch.{i}._model.0.{kind}": rng.normal(size=shape).astype(np.float32)
        for i in range(2)
        for kind, shape in (("weight", (4, 3 + i)), ("bias", (4,)))
    }
    policy = rlcatalog.build(VECTOR, FOUR, {**SMALL, "custom_model": Ported}, "torch")
    load_rllib_weights(policy, {**{f"torch_sub_model.{n}": w for n, w in weights.items()}, **own})
    obs = np.stack(observations(VECTOR))
    outputs, _ = model({"obs": torch.from_numpy(obs)}, [], None)
    mine = obs
    for i in range(2):
        mine = mine @ own[f"branch.{i}._model.0.weight"].T + own[f"branch.{i}._model.0.bias"]
    step = policy.act(obs, explore=False)
    np.testing.assert_allclose(
        step.dist_inputs, outputs.detach().numpy() + mine, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        step.value, model.value_function().detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_a_ported_keras_model_takes_the_names_of_its_layers():
    class Keras(TFModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            inputs = tf.keras.layers.Input((3,), name="observations")
            x = tf.keras.layers.Dense(5, "tanh", name="my_layer1")(inputs)
            outputs = tf.keras.layers.Dense(4, name="my_out")(x)
            self.base_model = tf.keras.Model(
                inputs, [outputs, tf.keras.layers.Dense(1, name="value_out")(x)]
            )

        def forward(self, input_dict, state, seq_lens):
            outputs, self._value_out = self.base_model(input_dict["obs"])
            return outputs, state

        def value_function(self):
            return tf.reshape(self._value_out, [-1])

    policy = rlcatalog.build(VECTOR, FOUR, {"custom_model": Keras}, "tf")
    source = shaken(rlcatalog.build(VECTOR, FOUR, {"custom_model": Keras}, "tf").model.base_model)
    load_rllib_weights(policy, named(source, FORMS["static graph"]))
    obs = np.stack(observations(VECTOR))
    np.testing.assert_allclose(
        policy.act(obs, explore=False).dist_inputs, source(obs)[0], rtol=1e-5, atol=1e-6
    )


# --- what does not fit ----------------------------------------------------------------------------


def test_weights_of_another_net_are_refused_with_names_of_both_sides_and_nothing_is_set():
    _, weights = theirs(VECTOR, SMALL)
    policy = rlcatalog.build(VECTOR, FOUR, {"fcnet_hiddens": [6, 7, 5]}, "torch")
    before = policy.model.get_weights()
    with pytest.raises(
        ModelContractError, match=r"Missing: \['hidden\.layers\.2\.weight', 'hid"
    ) as caught:
        load_rllib_weights(policy, {**weights, "extra.weight": np.zeros(2)})
    assert "unused: ['extra.weight']" in str(caught.value)
    assert "hidden.layers.1.weight (7, 6), given (5, 6)" in str(caught.value)
    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])
    with pytest.raises(
        ModelContractError, match=r"Missing: none; unused: \['_value_branch_separate\."
    ):
        load_rllib_weights(
            rlcatalog.build(VECTOR, FOUR, SMALL, "torch"),
            theirs(VECTOR, {**SMALL, "vf_share_layers": False})[1],
        )
    apart = rlcatalog.build(VECTOR, FOUR, {**LSTM, "vf_share_layers": False}, "torch")
    with pytest.raises(ModelContractError, match=r"Missing: \['value_trunk\."):
        load_rllib_weights(apart, theirs(VECTOR, LSTM)[1])


@pytest.mark.parametrize(
    ("space", "config", "weights", "kind", "says"),
    [
        (VECTOR, SMALL, [np.zeros(3)], NotServedError, "expected a dictionary, found list"),
        (
            VECTOR,
            SMALL,
            "checkpoint-100",
            NotServedError,
            "expected a dictionary, found str. Files are not supported",
        ),
        (
            VECTOR,
            SMALL,
            {"a": {}, "b": {}},
            NotServedError,
            r"several policies, \['a', 'b'\]; pass the weights",
        ),
        (
            VECTOR,
            ATTENTION,
            {"default_policy/mha_1/w:0": np.zeros(2)},
            NotServedError,
            "does not name its variables",
        ),
        (IMAGE, {}, {}, ConfigError, "Build the policy with image_scale=False"),
        (
            BYTES,
            SMALL,
            {},
            ConfigError,
            "scales the Box.* Build the policy with scale_integers=False",
        ),
        (
            IMAGE,
            {**FREE, "post_fcnet_hiddens": [4]},
            {},
            ConfigError,
            "the same weights would behave differently",
        ),
        (
            VECTOR,
            {**SMALL, "post_fcnet_hiddens": [4]},
            {},
            ConfigError,
            "with post_fcnet_activation='tanh'",
        ),
    ],
)
def test_what_is_not_read_says_why(space, config, weights, kind, says):
    policy = rlcatalog.build(space, FOUR, config, "torch")
    with pytest.raises(kind, match=says):
        load_rllib_weights(policy, weights)


def test_weights_of_an_algorithm_with_one_policy_and_state_dicts_are_read():
    model, weights = theirs(VECTOR, SMALL)
    first, second = (rlcatalog.build(VECTOR, FOUR, SMALL, "torch") for _ in range(2))
    load_rllib_weights(first, {"default_policy": weights})
    load_rllib_weights(second.model, model.state_dict())
    for name, array in first.model.get_weights().items():
        np.testing.assert_array_equal(array, second.model.get_weights()[name])
