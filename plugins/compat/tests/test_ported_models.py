"""Models in RLlib's style after `rlcatalog port`: whole files run; Q-values and Keras models."""

import importlib

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import NotServedError
from rlcatalog_compat.codemod.porter import port

TORCH = """\
import gym
import numpy as np
import ray
from ray.rllib.agents import ppo
from ray.rllib.models import ModelCatalog
from ray.rllib.models.modelv2 import ModelV2
from ray.rllib.models.torch.misc import SlimFC, normc_initializer
from ray.rllib.models.torch.recurrent_net import RecurrentNetwork
from ray.rllib.models.torch.torch_action_dist import TorchCategorical, TorchDistributionWrapper
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2
from ray.rllib.utils.annotations import override
from ray.rllib.utils.framework import try_import_torch
from ray.rllib.utils.torch_ops import FLOAT_MIN
from ray.rllib.utils.typing import ModelConfigDict, TensorType

torch, nn = try_import_torch()


class Branches(TorchModelV2, nn.Module):
    # Two branches over the flat observation.
    def __init__(
        self, obs_space: gym.spaces.Space, action_space, num_outputs,
        model_config: ModelConfigDict, name,
    ):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        size = int(np.product(obs_space.shape))
        self.policy_branch = nn.Sequential(
            SlimFC(size, 16, normc_initializer(1.0), activation_fn="tanh"),
            SlimFC(16, num_outputs, normc_initializer(0.01)),
        )
        self.value_branch = SlimFC(size, 1, activation_fn=None)

    @override(ModelV2)
    def forward(self, input_dict, state, seq_lens):
        self._obs = input_dict["obs_flat"].float()
        return torch.clamp(self.policy_branch(self._obs), FLOAT_MIN), state

    @override(ModelV2)
    def value_function(self) -> TensorType:
        return self.value_branch(self._obs).squeeze(1)


class Memory(RecurrentNetwork, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, cell=8):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.lstm = nn.LSTM(obs_space.shape[0], cell, batch_first=True)
        self.out, self.value = SlimFC(cell, num_outputs), SlimFC(cell, 1)

    def get_initial_state(self):
        weight = self.out._model[0].weight
        return [weight.new(1, self.lstm.hidden_size).zero_().squeeze(0) for _ in range(2)]

    def forward_rnn(self, inputs, state, seq_lens):
        self._features, (h, c) = self.lstm(inputs, [torch.unsqueeze(s, 0) for s in state])
        return self.out(self._features), [torch.squeeze(h, 0), torch.squeeze(c, 0)]

    def value_function(self):
        return torch.reshape(self.value(self._features), [-1])


class Cool(TorchCategorical):
    def __init__(self, inputs, model=None, temperature=0.5):
        super().__init__(inputs, model, temperature)


class Wrapped(TorchDistributionWrapper):
    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        self.dist = torch.distributions.categorical.Categorical(logits=self.inputs)

    def deterministic_sample(self):
        return self.dist.probs.argmax(dim=1)

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return action_space.n


ray.init()
for model, dist in [("branches", "cool"), ("memory", "wrapped"), ("branches", None)]:
    ModelCatalog.register_custom_model("branches", Branches)
    ModelCatalog.register_custom_model("memory", Memory)
    ModelCatalog.register_custom_action_dist("cool", Cool)
    ModelCatalog.register_custom_action_dist("wrapped", Wrapped)
    trainer = ppo.PPOTrainer(env="CartPole-v1", config={
        "model": {"custom_model": model, "custom_action_dist": dist, "max_seq_len": 4},
        "framework": "torch", "train_batch_size": 32, "sgd_minibatch_size": 16,
        "num_sgd_iter": 1, "num_workers": 0,
    })
    before = [p.clone() for p in trainer.get_policy().model.parameters()]
    result = trainer.train()
    assert result["timesteps_total"] == 32
    assert any((a != b).any() for a, b in zip(before, trainer.get_policy().model.parameters()))
    assert trainer.compute_single_action([0.0, 0.1, 0.0, 0.1]) in (0, 1)
"""

TENSORFLOW = """\
from gym.spaces import Box
import numpy as np
from ray.rllib.agents.dqn.distributional_q_tf_model import DistributionalQTFModel
from ray.rllib.agents.ppo import PPOTrainer
from ray.rllib.models import ModelCatalog
from ray.rllib.models.tf.fcnet import FullyConnectedNetwork
from ray.rllib.models.tf.misc import normc_initializer
from ray.rllib.models.tf.recurrent_net import RecurrentNetwork
from ray.rllib.models.tf.tf_action_dist import TFActionDistribution
from ray.rllib.models.tf.tf_modelv2 import TFModelV2
from ray.rllib.utils import try_import_tf

tf = try_import_tf()


class Normed(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(Normed, self).__init__(obs_space, action_space, num_outputs, model_config, name)
        inputs = tf.keras.layers.Input(shape=obs_space.shape, name="observations")
        x = tf.keras.layers.Dense(
            16, kernel_initializer=normc_initializer(1.0), activation=tf.nn.tanh
        )(inputs)
        x = tf.squeeze(tf.expand_dims(x, 1), 1)
        logits = tf.keras.layers.Dense(num_outputs)(x)
        self.base_model = tf.keras.Model(inputs, [logits, tf.keras.layers.Dense(1)(x)])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        x = tf.layers.batch_normalization(input_dict["obs"], training=input_dict["is_training"])
        logits, self._value_out = self.base_model(x, state, seq_lens)
        return logits + tf.log(tf.to_float([1.0, 1.0])), state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


class Memory(RecurrentNetwork):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        inputs = tf.keras.layers.Input(shape=(None, obs_space.shape[0]))
        h_in, c_in = tf.keras.layers.Input(shape=(8)), tf.keras.layers.Input(shape=(8,))
        seq_in = tf.keras.layers.Input(shape=(), dtype=tf.int32)
        out, h, c = tf.keras.layers.LSTM(8, return_sequences=True, return_state=True)(
            inputs=inputs, mask=tf.sequence_mask(seq_in), initial_state=[h_in, c_in])
        logits, values = tf.keras.layers.Dense(num_outputs)(out), tf.keras.layers.Dense(1)(out)
        self.net = tf.keras.Model([inputs, seq_in, h_in, c_in], [logits, values, h, c])

    def get_initial_state(self):
        return [np.zeros(8, np.float32), np.zeros(8, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        logits, self._value_out, h, c = self.net([inputs, seq_lens] + state)
        return logits, [h, c]

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


class Older(TFModelV2):
    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs"]
        with tf.compat.v1.variable_scope("model", reuse=tf.compat.v1.AUTO_REUSE):
            for i in range(2):
                x = tf.layers.dense(x, 8, activation=tf.nn.tanh, name="fc{}".format(i))
                x = tf.layers.batch_normalization(
                    x, training=input_dict["is_training"], name="bn{}".format(i)
                )
            self._value_out = tf.layers.dense(x, 1, name="vf")
            return tf.layers.dense(
                x, self.num_outputs, kernel_initializer=normc_initializer(0.01), name="out"
            ), state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


class Nested(DistributionalQTFModel):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **kw):
        super().__init__(
            obs_space, action_space, num_outputs, model_config, name, q_hiddens=(4,), **kw
        )
        obs = tf.keras.layers.Input(shape=obs_space.shape)
        self.inner = FullyConnectedNetwork(
            obs_space, action_space, num_outputs, model_config, name + "_inner"
        )
        logits, _ = self.inner({"obs": obs})
        self.net = tf.keras.Model(obs, [tf.identity(logits), self.inner.value_function()])

    def forward(self, input_dict, state, seq_lens):
        logits, self._value_out = self.net(input_dict["obs"])
        return logits, state

    def value_function(self):
        return self._value_out


class Drawn(TFActionDistribution):
    def _build_sample_op(self):
        return tf.squeeze(tf.random.categorical(self.inputs, 1), axis=1)

    def deterministic_sample(self):
        return tf.argmax(self.inputs, axis=1)

    def logp(self, actions):
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.cast(actions, tf.int32), logits=self.inputs
        )

    def entropy(self):
        p = tf.nn.softmax(self.inputs)
        return -tf.reduce_sum(p * tf.log(p), axis=1, keep_dims=False)

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return action_space.n


ModelCatalog.register_custom_action_dist("drawn", Drawn)
for cls, dist in [(Normed, "drawn"), (Older, None), (Memory, None), (Nested, None)]:
    ModelCatalog.register_custom_model("ported", cls)
    trainer = PPOTrainer(env="CartPole-v1", config={
        "model": {
            "custom_model": "ported", "custom_action_dist": dist, "max_seq_len": 4,
            "fcnet_hiddens": [8],
        },
        "framework": "tf", "train_batch_size": 32, "sgd_minibatch_size": 32, "num_sgd_iter": 1,
        "eager_tracing": False,
    })
    before = trainer.get_policy().model.get_weights()
    assert trainer.train()["timesteps_total"] == 32
    after = trainer.get_policy().model.get_weights()
    assert any((after[name] != before[name]).any() for name in before)
"""


@pytest.mark.filterwarnings("ignore:.*(deprecated|is now called|have no effect):Warning")
@pytest.mark.parametrize(
    ("package", "code"),
    [
        pytest.param("torch", TORCH, id="torch"),
        pytest.param("tensorflow", TENSORFLOW, id="tf", marks=pytest.mark.slow),
    ],
)
def test_ported_file_builds_and_trains_its_models(package, code):
    pytest.importorskip(package)

    result = port(code.encode())

    assert not result.notes
    assert port(result.content).content == result.content
    exec(compile(result.content, "ported.py", "exec"), {"__name__": "ported"})


# --- Q-values -------------------------------------------------------------------------------------


def import_dqn_model(framework):
    if framework == "torch":
        pytest.importorskip("torch")
        from rlcatalog_compat.rllib.algorithms.dqn.dqn_torch_model import DQNTorchModel

        return DQNTorchModel
    pytest.importorskip("tensorflow")
    from rlcatalog_compat.rllib.algorithms.dqn.distributional_q_tf_model import (
        DistributionalQTFModel,
    )

    return DistributionalQTFModel


def build_dqn_model(framework, **options):
    """Build a Q model over 8 features for three actions."""
    cls = import_dqn_model(framework)
    return cls(spaces.Box(-1, 1, (4,)), spaces.Discrete(3), 8, {}, "q", **options)


def draw_features(framework):
    """Return two rows of 8 features."""
    features = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    if framework == "torch":
        return importlib.import_module("torch").from_numpy(features)
    return features


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_q_values_are_means_of_their_distributions(framework):
    model = build_dqn_model(framework, q_hiddens=[5], dueling=True, num_atoms=4, v_min=-1, v_max=2)

    parts = model.get_q_value_distributions(draw_features(framework))

    if framework == "torch":
        parts = [part.detach() for part in parts]
    q_values, returns, logits, _, probabilities = [np.asarray(part) for part in parts]
    exponents = np.exp(logits)
    softmax = exponents / exponents.sum(-1, keepdims=True)
    # An atom is a return, whose probability the logits give.
    assert returns.tolist() == [-1, 0, 1, 2]  # 4 atoms from v_min to v_max
    assert logits.shape == (2, 3, 4)  # 2 rows, 3 actions, 4 atoms
    assert probabilities == pytest.approx(softmax, abs=1e-6)
    assert q_values == pytest.approx((probabilities * returns).sum(-1), abs=1e-6)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_state_value_has_an_entry_per_atom(framework):
    model = build_dqn_model(framework, q_hiddens=[5], dueling=True, num_atoms=4, v_min=-1, v_max=2)

    assert model.get_state_value(draw_features(framework)).shape == (2, 4)  # 2 rows, 4 atoms


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_state_value_without_dueling_is_an_error(framework):
    model = build_dqn_model(framework)

    with pytest.raises(NotServedError, match="dueling=True"):
        model.get_state_value(draw_features(framework))


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_noisy_q_model_is_not_supported(framework):
    with pytest.raises(NotServedError, match="use_noisy"):
        build_dqn_model(framework, use_noisy=True)


# --- Keras models ---------------------------------------------------------------------------------


@pytest.fixture
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture
def tf_fcnet(tf):
    """A fully connected network for 4 numbers: a layer of 5, 3 outputs and a value."""
    from rlcatalog_compat.rllib.models.tf.fcnet import FullyConnectedNetwork

    obs = spaces.Box(-1, 1, (4,))
    return FullyConnectedNetwork(obs, spaces.Discrete(3), 3, {"fcnet_hiddens": [5]}, "net")


def test_base_model_returns_outputs_and_values(tf, tf_fcnet):
    obs = tf.random.normal([2, 4])

    logits, values = tf_fcnet.base_model(obs)

    output, _ = tf_fcnet({"obs": obs})
    np.testing.assert_array_equal(logits, output)
    np.testing.assert_array_equal(values[:, 0], tf_fcnet.value_function())


def test_base_model_has_the_variables_of_the_network(tf_fcnet):
    # Weights and biases of a hidden layer, of the outputs, and of the value.
    assert len(tf_fcnet.base_model.variables) == 6
    assert len(tf_fcnet.base_model.trainable_variables) == 6


def test_base_model_prints_its_summary(tf_fcnet, capsys):
    tf_fcnet.base_model.summary()

    assert "(4, 5)" in capsys.readouterr().out


def test_network_may_be_part_of_a_keras_model(tf, tf_fcnet):
    obs = tf.random.normal([2, 4])
    expected, _ = tf_fcnet({"obs": obs})

    inputs = tf.keras.layers.Input((4,))
    outputs, _ = tf_fcnet({"obs": inputs})
    keras_model = tf.keras.Model(inputs, [outputs, tf_fcnet.value_function()])

    assert np.allclose(keras_model(obs)[0], expected)


def test_network_runs_on_tensors_after_a_keras_input(tf, tf_fcnet):
    obs = tf.random.normal([2, 4])
    expected, _ = tf_fcnet({"obs": obs})

    tf_fcnet({"obs": tf.keras.layers.Input((4,))})
    output, _ = tf_fcnet({"obs": obs})

    np.testing.assert_array_equal(output, expected)
    assert tf_fcnet.value_function().shape == (2,)  # 2 rows
