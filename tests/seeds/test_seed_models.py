"""The seeds' samples of models and losses, `...` filled in, trained by PPO; docs/seeds.md lists
what had to change.

The seeds are five editions of RLlib's page, numbered 000 to 004. Each test names the editions and
the section.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from torch import nn

import rlcatalog_ppo as ppo
from rlcatalog import ModelCatalog
from rlcatalog.errors import AmbiguousChoiceError, ModelContractError, NotServedError
from rlcatalog_ppo.offline import Reader
from rlcatalog_tf import (
    Categorical as TFCategorical,
    FullyConnectedNetwork as TFFullyConnectedNetwork,
    RecurrentTFModelV2,
    TFModelV2,
)
from rlcatalog_torch import Categorical, RecurrentNetwork, TorchModelV2

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded", "default"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the older editions' names
]

SHORT = {
    "lr": 0.01,
    "num_envs": 2,
    "rollout_length": 16,
    "minibatch_size": 16,
    "num_epochs": 1,
    "seed": 0,
}
#: Three observations.
OBS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def assert_trains_every_weight(algo, but=()):
    """Train for one iteration, after which every weight must be another one but those named."""
    policy = algo.policy
    before = policy.model.get_weights()

    result = algo.train()

    after = policy.model.get_weights()
    assert before.keys() == after.keys()
    unchanged = {name for name in after if np.array_equal(after[name], before[name])}
    assert unchanged == set(but)
    for name in ("policy_loss", "vf_loss", "entropy"):
        assert np.isfinite(result["info"]["learner"][name])
    step = policy.act(OBS)
    assert step.action.shape == (3,)
    assert step.logp.shape == (3,)
    assert step.value.shape == (3,)
    assert step.dist_inputs.shape == (3, policy.resolution.num_outputs)
    algo.stop()


# --- TensorFlow Models / Custom TensorFlow Models: 000, 001, 002, 003, 004 ------------------------


class MyModelClass(TFModelV2):
    def __init__(self, *args, **kwargs):
        super(MyModelClass, self).__init__(*args, **kwargs)  # noqa: UP008
        input_layer = tf.keras.layers.Input(self.obs_space.shape)
        hidden_layer = tf.keras.layers.Dense(16)(input_layer)
        output_layer = tf.keras.layers.Dense(self.num_outputs)(hidden_layer)
        value_layer = tf.keras.layers.Dense(1)(hidden_layer)
        self.base_model = tf.keras.Model(input_layer, [output_layer, value_layer])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        model_out, self._value_out = self.base_model(input_dict["obs"])
        return model_out, state

    def value_function(self):
        return self._value_out


@pytest.mark.parametrize(
    ("trainer_class", "options_key"),
    [
        # The ids are the editions of RLlib's page that have this form.
        pytest.param(ppo.PPOTrainer, "custom_options", id="000, 001, 003"),
        pytest.param(ppo.PPOTrainer, "custom_model_config", id="002"),
        pytest.param(ppo.PPO, "custom_model_config", id="004"),
    ],
)
def test_custom_tensorflow_model_of_the_page_trains(trainer_class, options_key):
    ModelCatalog.register_custom_model("my_model", MyModelClass)

    trainer = trainer_class(
        env="CartPole-v1",
        config={
            "model": {
                "custom_model": "my_model",
                options_key: {},  # extra options to pass to your model
            },
            **SHORT,
        },
    )

    assert trainer.policy.framework == "tf"
    assert len(trainer.policy.model.get_weights()) == 6  # kernels and biases of three layers
    assert_trains_every_weight(trainer)


# --- PyTorch Models / Custom PyTorch Models: 000, 001, 002, 003, 004 ------------------------------


class Body:
    """The layers that the samples leave out, and the samples' forward pass to the letter."""

    def create_layers(self):
        self._hidden_layers = nn.Sequential(nn.Linear(self.obs_space.shape[0], 16), nn.Tanh())
        self._logits = nn.Linear(16, self.num_outputs)
        self._value_branch = nn.Linear(16, 1)

    def forward(self, input_dict, state, seq_lens):
        features = self._hidden_layers(input_dict["obs"])
        self._value_out = self._value_branch(features)
        return self._logits(features), state

    def value_function(self):
        return self._value_out


class MyTorchModelClass(Body, TorchModelV2, nn.Module):
    def __init__(self, *args, **kwargs):
        TorchModelV2.__init__(self, *args, **kwargs)
        nn.Module.__init__(self)
        self.create_layers()


class ModuleFirst(Body, nn.Module, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.create_layers()


class WithoutModule(Body, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.create_layers()


@pytest.mark.parametrize(
    ("trainer_class", "framework", "options_key", "custom_torch_model"),
    [
        # The ids are the editions of RLlib's page that have this form.
        pytest.param(
            ppo.PPOTrainer,
            {"use_pytorch": True},
            "custom_options",
            ModuleFirst,
            id="000, 001, 003",
        ),
        pytest.param(
            ppo.PPOTrainer,
            {"framework": "torch"},
            "custom_model_config",
            WithoutModule,
            id="002",
        ),
        pytest.param(
            ppo.PPO,
            {"framework": "torch"},
            "custom_model_config",
            MyTorchModelClass,
            id="004",
        ),
    ],
)
def test_custom_pytorch_model_of_the_page_trains(
    trainer_class, framework, options_key, custom_torch_model
):
    ModelCatalog.register_custom_model("my_torch_model", custom_torch_model)

    trainer = trainer_class(
        env="CartPole-v1",
        config={
            **framework,
            "model": {
                "custom_model": "my_torch_model",
                options_key: {},  # extra options to pass to your model
            },
            **SHORT,
        },
    )

    assert type(trainer.policy.model) is custom_torch_model
    assert_trains_every_weight(trainer)


class TorchTwoValues(MyTorchModelClass):
    """Returns values `[B, 2]`, which broadcast against `[B]` without an error."""

    def value_function(self):
        return super().value_function().repeat(1, 2)


class TFTwoValues(MyModelClass):
    """The same in TensorFlow."""

    def value_function(self):
        return tf.repeat(super().value_function(), 2, axis=1)


@pytest.mark.parametrize("model", [TorchTwoValues, TFTwoValues])
def test_model_with_two_values_per_row_is_an_error(model):
    algo = ppo.PPO(env="CartPole-v1", config={"model": {"custom_model": model}, **SHORT})
    message = r"TwoValues\.value_function\(\).*\(\S+, 2\)"
    with pytest.raises(ModelContractError, match=message):
        algo.train()


# --- Recurrent Models / Implementing custom Recurrent Networks: 000, 001, 002, 003, 004 -----------


class MyRNNClass(RecurrentTFModelV2):
    def __init__(self, *args, **kwargs):
        super(MyRNNClass, self).__init__(*args, **kwargs)  # noqa: UP008
        obs_space = self.obs_space
        cell_size = self.cell_size = 256
        # Define input layers
        input_layer = tf.keras.layers.Input(shape=(None, obs_space.shape[0]))
        state_in_h = tf.keras.layers.Input(shape=(256,))
        state_in_c = tf.keras.layers.Input(shape=(256,))
        seq_in = tf.keras.layers.Input(shape=(), dtype=tf.int32)
        # Send to LSTM cell
        mask = tf.keras.layers.Lambda(lambda x: tf.sequence_mask(x[0], tf.shape(x[1])[1]))(
            [seq_in, input_layer]
        )
        lstm_out, state_h, state_c = tf.keras.layers.LSTM(
            cell_size, return_sequences=True, return_state=True, name="lstm"
        )(input_layer, mask=mask, initial_state=[state_in_h, state_in_c])
        output_layer = tf.keras.layers.Dense(self.num_outputs)(lstm_out)
        # Create the RNN model
        self.rnn_model = tf.keras.Model(
            inputs=[input_layer, seq_in, state_in_h, state_in_c],
            outputs=[output_layer, state_h, state_c],
        )
        self.register_variables(self.rnn_model.variables)
        self.rnn_model.summary()

    def forward_rnn(self, inputs, state, seq_lens):
        model_out, h, c = self.rnn_model([inputs, seq_lens] + state)  # noqa: RUF005
        return model_out, [h, c]

    def get_initial_state(self):
        return [
            np.zeros(self.cell_size, np.float32),
            np.zeros(self.cell_size, np.float32),
        ]


class MyRNNWithValue(MyRNNClass):
    """The page's model with a value branch, which PPO needs."""

    def __init__(self, *args):
        super().__init__(*args)
        self.value_layer = tf.keras.layers.Dense(1)

    def value_function(self):
        return self.value_layer(self.last_output())


def test_ppo_rejects_the_rnn_of_the_page_without_a_value():
    config = {"model": {"custom_model": MyRNNClass}, **SHORT}
    with pytest.raises(NotServedError, match=r"MyRNNClass has no value_function\(\)"):
        ppo.PPO(env="CartPole-v1", config=config)


def test_custom_rnn_of_the_page_in_tensorflow():
    config = {"model": {"custom_model": MyRNNWithValue, "max_seq_len": 5}, **SHORT}
    trainer = ppo.PPO(env="CartPole-v1", config=config)
    step = trainer.policy.act(OBS)
    assert [part.shape for part in step.state.memory] == [(3, 256), (3, 256)]

    # Keras counts the state of the LSTM's random generator, which nothing draws from, among the
    # variables; PyTorch has a second bias, which is zero here.
    assert_trains_every_weight(trainer, but={"registered.0", "rnn_model.5.bias_hh_l0"})


class TorchRNNWithNumPyState(RecurrentNetwork, nn.Module):
    """A recurrent model whose initial state is NumPy arrays, as in edition 000."""

    def __init__(self, *args, **kwargs):
        RecurrentNetwork.__init__(self, *args, **kwargs)
        nn.Module.__init__(self)
        self.cell_size = 8
        self.lstm = nn.LSTM(self.obs_space.shape[0], self.cell_size, batch_first=True)
        self._logits = nn.Linear(8, self.num_outputs)
        self._value_branch = nn.Linear(8, 1)

    def get_initial_state(self):
        return [
            np.zeros(self.cell_size, np.float32),
            np.zeros(self.cell_size, np.float32),
        ]

    def forward_rnn(self, inputs, state, seq_lens):
        self.features, (h, c) = self.lstm(inputs, (state[0][None], state[1][None]))
        return self._logits(self.features), [h[0], c[0]]

    def value_function(self):
        return self._value_branch(self.features).reshape(-1)


def test_custom_rnn_of_the_page_in_pytorch():
    config = {"model": {"custom_model": TorchRNNWithNumPyState, "max_seq_len": 5}, **SHORT}
    assert_trains_every_weight(ppo.PPO(env="CartPole-v1", config=config))


# --- Wrapping a Custom Model with an LSTM- or Attention Net: 002, 004 -----------------------------


class TFTrunk(TFModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = 6
        # Built at their first call.
        self.hidden = [tf.keras.layers.Dense(5), {"last": tf.keras.layers.Dense(6)}]

    def forward(self, input_dict, state, seq_lens):
        return self.hidden[1]["last"](self.hidden[0](input_dict["obs_flat"])), state


class TorchTrunk(TorchModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = 6
        self.hidden = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 6))

    def forward(self, input_dict, state, seq_lens):
        return self.hidden(input_dict["obs_flat"]), state


LSTM = {"use_lstm": True, "lstm_cell_size": 4}
ATTENTION = {"use_attention": True, "attention_dim": 16, "attention_head_dim": 8}


@pytest.mark.parametrize(
    ("framework", "trunk", "wrapper"),
    [
        pytest.param("torch", TorchTrunk, LSTM, id="torch-lstm"),
        pytest.param("torch", TorchTrunk, ATTENTION, id="torch-attention"),
        pytest.param("tf", TFTrunk, LSTM, id="tf-lstm", marks=pytest.mark.slow),
        pytest.param("tf", TFTrunk, ATTENTION, id="tf-attention", marks=pytest.mark.slow),
    ],
)
def test_custom_model_trains_inside_a_wrapper(framework, trunk, wrapper):
    ModelCatalog.register_custom_model("my_trunk", trunk)
    model = {"custom_model": "my_trunk", "max_seq_len": 5, **wrapper}
    trainer = ppo.PPO(env="CartPole-v1", config={"framework": framework, "model": model, **SHORT})

    weights = trainer.policy.model.get_weights()
    # Two layers of the trunk, each with weights and biases.
    assert sum(name.startswith("trunk.hidden") for name in weights) == 4
    assert_trains_every_weight(trainer)


def test_both_wrappers_at_once_are_an_error():
    with pytest.raises(AmbiguousChoiceError, match=r"use_attention is set.*use_lstm is set"):
        ppo.PPO(env="CartPole-v1", config={"model": {"use_lstm": True, "use_attention": True}})


class LateLayers(TFTrunk):
    """A model whose layers lie in a list and in dicts, and are built at their first call."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = 2
        self.ends = {"logits": tf.keras.layers.Dense(2), "value": tf.keras.layers.Dense(1)}

    def forward(self, input_dict, state, seq_lens):
        features, state = super().forward(input_dict, state, seq_lens)
        self._value_out = self.ends["value"](features)
        return self.ends["logits"](features), state

    def value_function(self):
        return self._value_out


def test_layers_built_late_are_trained():
    config = {"model": {"custom_model": LateLayers}, **SHORT}
    trainer = ppo.PPO(env="CartPole-v1", config=config)
    assert len(trainer.policy.model.get_weights()) == 8  # four layers with weights and biases
    assert_trains_every_weight(trainer)


# --- Batch Normalization: 000, 001, 002, 003, 004 -------------------------------------------------


class BatchNorm(MyModelClass):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.norm = tf.keras.layers.BatchNormalization()

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(input_dict["obs"], training=input_dict["is_training"])
        return super().forward({**input_dict, "obs": x}, state, seq_lens)


def test_batch_normalisation_of_the_page():
    trainer = ppo.PPO(env="CartPole-v1", config={"model": {"custom_model": BatchNorm}, **SHORT})
    # A weight of PyTorch's layer; Keras does not count batches.
    assert_trains_every_weight(trainer, but={"norm.num_batches_tracked"})


# --- Supervised and Self-Supervised Model Losses: 000, 001, 002, 003, 004 -------------------------


def shapes_of(loss_inputs):
    return {name: tuple(loss_inputs[name].shape) for name in ("obs", "actions", "advantages")}


class TorchImitator(MyTorchModelClass):
    """A model whose custom_loss looks at recorded data, as the page describes it for PyTorch."""

    reader: Reader

    def custom_loss(self, policy_loss, loss_inputs):
        batch = self.reader.next()
        logits = self._logits(self._hidden_layers(torch.from_numpy(batch["obs"])))
        actions = torch.from_numpy(batch["actions"])
        self.loss = -Categorical(logits, self).logp(actions).mean()
        self.input_shapes = shapes_of(loss_inputs)
        return [10 * self.loss + loss for loss in policy_loss]

    def metrics(self):
        return {"imitation_loss": self.loss}


class TFImitator(MyModelClass):
    """The same as the page describes it for TensorFlow."""

    reader: Reader

    def custom_loss(self, policy_loss, loss_inputs):
        batch = self.reader.tf_input_ops()
        logits, _ = self.base_model(batch["obs"])
        self.loss = -tf.reduce_mean(TFCategorical(logits, self).logp(batch["actions"]))
        self.input_shapes = shapes_of(loss_inputs)
        return policy_loss + 10 * self.loss

    def metrics(self):
        return {"imitation_loss": self.loss}


class PushesLeft(TFFullyConnectedNetwork):
    """Takes action 0 in nearly every step, so that there is something to imitate."""

    def forward(self, input_dict, state, seq_lens):
        logits, state = super().forward(input_dict, state, seq_lens)
        return logits + tf.constant([50.0, 0.0]), state


@pytest.fixture
def recorded_data(tmp_path):
    """A folder with the steps of a policy that always pushes left."""
    config = {"model": {"custom_model": PushesLeft}, **SHORT}
    ppo.PPO(env="CartPole-v1", config=config, record=tmp_path).train()
    return tmp_path


@pytest.mark.parametrize(
    "imitator", [TorchImitator, pytest.param(TFImitator, marks=pytest.mark.slow)]
)
def test_supervised_loss_over_recorded_data(imitator, recorded_data, monkeypatch):
    monkeypatch.setattr(imitator, "reader", Reader(recorded_data), raising=False)
    model = {"custom_model": imitator}
    trainer = ppo.PPO(
        env="CartPole-v1", config={**SHORT, "num_epochs": 4, "lr": 0.02, "model": model}
    )

    results = [trainer.train() for _ in range(4)]

    losses = [result["info"]["learner"]["model"]["imitation_loss"] for result in results]
    assert losses[-1] < 0.1 * losses[0]
    # The recorded policy always pushes left, which is action 0.
    assert trainer.policy.act(OBS, explore=False).action.tolist() == [0, 0, 0]
    # The loss also got a minibatch: four numbers, an action and an advantage in each row.
    shapes = trainer.policy.model.input_shapes
    assert shapes["obs"][1:] == (4,)
    assert shapes["actions"][1:] == ()
    assert shapes["advantages"][1:] == ()
