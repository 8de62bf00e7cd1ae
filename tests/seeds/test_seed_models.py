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

import rlcatalog
import rlcatalog_ppo as ppo
from rlcatalog import ModelCatalog
from rlcatalog.errors import AmbiguousChoiceError, NotServedError
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
OBS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
#: Edition → its trainer, and the key for what the model's constructor is given.
EDITIONS = {
    "000, 001, 003": (ppo.PPOTrainer, "custom_options"),
    "002": (ppo.PPOTrainer, "custom_model_config"),
    "004": (ppo.PPO, "custom_model_config"),
}
editions = pytest.mark.parametrize("edition", EDITIONS)
both = pytest.mark.parametrize("framework", ["torch", "tf"])


def trained(algo, still=()):
    """Take one iteration of PPO; all weights must have moved, and the shapes be right."""
    policy = algo.policy
    before = policy.model.get_weights()
    result = algo.train()
    after = policy.model.get_weights()
    assert before.keys() == after.keys()
    assert {name for name in after if np.array_equal(after[name], before[name])} == set(still)
    assert all(
        np.isfinite(result["info"]["learner"][name])
        for name in ("policy_loss", "vf_loss", "entropy")
    )
    obs, _ = algo._envs.reset(seed=1)
    step = policy.act(obs)
    assert step.action.shape == step.logp.shape == step.value.shape == (2,)
    assert step.dist_inputs.shape == (2, policy.resolution.num_outputs)
    algo.stop()
    return result


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


@editions
def test_custom_tensorflow_model_of_the_page_trains(edition):
    trainer_class, options = EDITIONS[edition]
    ModelCatalog.register_custom_model("my_model", MyModelClass)
    trainer = trainer_class(
        env="CartPole-v1",
        config={
            "model": {
                "custom_model": "my_model",
                options: {},  # extra options to pass to your model
            },
            **SHORT,
        },
    )
    assert trainer.policy.framework == "tf"
    assert len(trainer.policy.model.get_weights()) == 6
    trained(trainer)


# --- PyTorch Models / Custom PyTorch Models: 000, 001, 002, 003, 004 ------------------------------


class Body:
    """What the samples leave out, and their forward pass to the letter."""

    def fill(self):
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
        self.fill()


class ModuleFirst(Body, nn.Module, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.fill()


class WithoutModule(Body, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.fill()


@editions
def test_custom_pytorch_model_of_the_page_trains(edition):
    trainer_class, options = EDITIONS[edition]
    old = edition.startswith("000")
    for custom_torch_model in (MyTorchModelClass, ModuleFirst if old else WithoutModule):
        ModelCatalog.register_custom_model("my_torch_model", custom_torch_model)
        trainer = trainer_class(
            env="CartPole-v1",
            config={
                **({"use_pytorch": True} if old else {"framework": "torch"}),
                "model": {
                    "custom_model": "my_torch_model",
                    options: {},  # extra options to pass to your model
                },
                **SHORT,
            },
        )
        assert type(trainer.policy.model) is custom_torch_model
        trained(trainer)


@both
def test_value_of_another_shape_is_rejected(framework):
    """A column is one number per row; `[B, 2]` broadcast against `[B]` would train nonsense."""

    class Two(MyModelClass if framework == "tf" else MyTorchModelClass):
        def value_function(self):
            value = super().value_function()
            return tf.repeat(value, 2, axis=1) if framework == "tf" else value.repeat(1, 2)

    with pytest.raises(
        rlcatalog.errors.ModelContractError, match=r"Two\.value_function\(\).*\(\S+, 2\)"
    ):
        ppo.PPO(env="CartPole-v1", config={"model": {"custom_model": Two}, **SHORT}).train()


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


def test_custom_rnn_of_the_page_in_tensorflow():
    class WithValue(MyRNNClass):  # the page's model has no value branch
        def __init__(self, *args):
            super().__init__(*args)
            self.value_layer = tf.keras.layers.Dense(1)

        def value_function(self):
            return self.value_layer(self.last_output())

    with pytest.raises(NotServedError, match=r"MyRNNClass has no value_function\(\)"):
        ppo.PPO(env="CartPole-v1", config={"model": {"custom_model": MyRNNClass}, **SHORT})
    config = {"model": {"custom_model": WithValue, "max_seq_len": 5}, **SHORT}
    trainer = ppo.PPO(env="CartPole-v1", config=config)
    step = trainer.policy.act(OBS)
    assert [part.shape for part in step.state.memory] == [(3, 256), (3, 256)]
    # Keras counts the state of the LSTM's random generator, which nothing draws from, among the
    # variables; PyTorch has a second bias, which is zero here.
    trained(trainer, still={"registered.0", "rnn_model.5.bias_hh_l0"})


def test_custom_rnn_of_the_page_in_pytorch():
    """000, PyTorch Models: `get_initial_state` returns NumPy arrays."""

    class MyRNN(RecurrentNetwork, nn.Module):
        def __init__(self, *args, **kwargs):
            RecurrentNetwork.__init__(self, *args, **kwargs)
            nn.Module.__init__(self)
            self.cell_size = 8
            self.lstm = nn.LSTM(self.obs_space.shape[0], self.cell_size, batch_first=True)
            self._logits, self._value_branch = nn.Linear(8, self.num_outputs), nn.Linear(8, 1)

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

    trained(
        ppo.PPO(
            env="CartPole-v1", config={"model": {"custom_model": MyRNN, "max_seq_len": 5}, **SHORT}
        )
    )


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


@pytest.mark.parametrize(
    ("framework", "wrapper"),
    [
        ("torch", "use_lstm"),
        ("torch", "use_attention"),
        *(
            pytest.param("tf", key, marks=pytest.mark.attack)
            for key in ("use_lstm", "use_attention")
        ),
    ],
)
def test_custom_model_trains_inside_a_wrapper(framework, wrapper):
    ModelCatalog.register_custom_model("my_trunk", TorchTrunk if framework == "torch" else TFTrunk)
    small = (
        {"lstm_cell_size": 4}
        if wrapper == "use_lstm"
        else {"attention_dim": 16, "attention_head_dim": 8}
    )
    model = {"custom_model": "my_trunk", wrapper: True, "max_seq_len": 5, **small}
    trainer = ppo.PPO(env="CartPole-v1", config={"framework": framework, "model": model, **SHORT})
    assert sum(name.startswith("trunk.hidden") for name in trainer.policy.model.get_weights()) == 4
    trained(trainer)


def test_both_wrappers_at_once_are_an_error():
    with pytest.raises(AmbiguousChoiceError, match=r"use_attention is set.*use_lstm is set"):
        ppo.PPO(env="CartPole-v1", config={"model": {"use_lstm": True, "use_attention": True}})


def test_layers_built_late_are_trained():
    class Late(TFTrunk):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs, self.ends = (
                2,
                {"logits": tf.keras.layers.Dense(2), "value": tf.keras.layers.Dense(1)},
            )

        def forward(self, input_dict, state, seq_lens):
            features, state = super().forward(input_dict, state, seq_lens)
            self._value_out = self.ends["value"](features)
            return self.ends["logits"](features), state

        def value_function(self):
            return self._value_out

    trainer = ppo.PPO(env="CartPole-v1", config={"model": {"custom_model": Late}, **SHORT})
    assert len(trainer.policy.model.get_weights()) == 8
    trained(trainer)


# --- Batch Normalization: 000, 001, 002, 003, 004 -------------------------------------------------


def test_batch_normalisation_of_the_page():
    class BatchNorm(MyModelClass):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.norm = tf.keras.layers.BatchNormalization()

        def forward(self, input_dict, state, seq_lens):
            x = self.norm(input_dict["obs"], training=input_dict["is_training"])
            return super().forward({**input_dict, "obs": x}, state, seq_lens)

    trainer = ppo.PPO(env="CartPole-v1", config={"model": {"custom_model": BatchNorm}, **SHORT})
    trained(trainer, still={"norm.num_batches_tracked"})  # of PyTorch's; Keras does not count


# --- Supervised and Self-Supervised Model Losses: 000, 001, 002, 003, 004 -------------------------


def supervised(framework, folder):
    """A model whose custom_loss looks at recorded data, as the page describes it for each
    framework.
    """
    if framework == "torch":

        class TorchImitator(MyTorchModelClass):
            reader = Reader(folder)

            def custom_loss(self, policy_loss, loss_inputs):
                batch = self.reader.next()
                logits = self._logits(self._hidden_layers(torch.from_numpy(batch["obs"])))
                self.loss = (
                    -Categorical(logits, self).logp(torch.from_numpy(batch["actions"])).mean()
                )
                self.seen = {
                    name: tuple(loss_inputs[name].shape)
                    for name in ("obs", "actions", "advantages")
                }
                return [10 * self.loss + loss for loss in policy_loss]

            def metrics(self):
                return {"imitation_loss": self.loss}

        return TorchImitator

    class TFImitator(MyModelClass):
        reader = Reader(folder)

        def custom_loss(self, policy_loss, loss_inputs):
            batch = self.reader.tf_input_ops()
            logits, _ = self.base_model(batch["obs"])
            self.loss = -tf.reduce_mean(TFCategorical(logits, self).logp(batch["actions"]))
            self.seen = {
                name: tuple(loss_inputs[name].shape) for name in ("obs", "actions", "advantages")
            }
            return policy_loss + 10 * self.loss

        def metrics(self):
            return {"imitation_loss": self.loss}

    return TFImitator


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.attack)])
def test_supervised_loss_over_recorded_data(framework, tmp_path):
    # Always pushes left, so that there is something to imitate.
    class Left(TFFullyConnectedNetwork):
        def forward(self, input_dict, state, seq_lens):
            out, state = super().forward(input_dict, state, seq_lens)
            return out + tf.constant([50.0, 0.0]), state

    ppo.PPO(
        env="CartPole-v1", config={"model": {"custom_model": Left}, **SHORT}, record=tmp_path
    ).train()
    model = {"custom_model": supervised(framework, tmp_path)}
    trainer = ppo.PPO(
        env="CartPole-v1", config={**SHORT, "num_epochs": 4, "lr": 0.02, "model": model}
    )
    found = [trainer.train()["info"]["learner"]["model"]["imitation_loss"] for _ in range(4)]
    assert trainer.policy.model.seen["obs"][1:] == (4,)
    assert trainer.policy.model.seen["actions"][1:] == ()
    assert trainer.policy.model.seen["advantages"][1:] == ()
    assert found[-1] < 0.1 * found[0]
    assert trainer.policy.act(OBS, explore=False).action.tolist() == [0, 0, 0]
