"""Interfaces (`model_interface`) over default and custom models."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete
from seed_models import DuelingQModel
from torch import nn

from rlcatalog import ModelCatalog
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = Discrete(2)


class TFDuelingQModel(TFModelV2):
    """A dueling head in TensorFlow, as `DuelingQModel` is in PyTorch."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(TFDuelingQModel, self).__init__(obs_space, action_space, None, model_config, name)  # noqa: UP008
        x = tf.keras.layers.Input(shape=(self.num_outputs,))
        # Keras 3 takes no NumPy integer, which Discrete.n is.
        advantages = tf.keras.layers.Dense(int(action_space.n))(x)
        value = tf.keras.layers.Dense(1)(x)
        self.heads = tf.keras.Model(x, [advantages, value])

    def get_q_values(self, underlying_output):
        advantages, value = self.heads(underlying_output)
        return value + (advantages - tf.reduce_mean(advantages, axis=1, keepdims=True))


def build_with_interface(interface, framework="torch", **config):
    return ModelCatalog.get_model_v2(
        obs_space=OBS,
        action_space=TWO_ACTIONS,
        num_outputs=2,
        model_config=config,
        framework=framework,
        model_interface=interface,
        name="my_dueling_model",
    )


def sample_observations(rows):
    OBS.seed(0)
    return np.stack([OBS.sample() for _ in range(rows)])


def compute_linear(weights, layer, x):
    return x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]


def compute_features(model, obs):
    """Return the outputs of a trunk of two tanh layers, from its weights."""
    weights = model.get_weights()
    first = np.tanh(compute_linear(weights, "inner.hidden.layers.0", obs))
    return np.tanh(compute_linear(weights, "inner.hidden.layers.1", first))


# --- over the default model -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "interface"), [("torch", DuelingQModel), ("tf", TFDuelingQModel)]
)
def test_interface_over_the_default_model(framework, interface):
    model = build_with_interface(interface, framework, fcnet_hiddens=[8, 6])
    obs = sample_observations(rows=6)

    to_tensor = torch.from_numpy if framework == "torch" else tf.constant
    output, state = model({"obs": to_tensor(obs)})

    assert isinstance(model, interface)
    assert model.name == "my_dueling_model"
    assert model.num_outputs == 6  # the width of the last hidden layer
    assert state == []
    assert model.last_output() is output
    numbers = output.detach() if framework == "torch" else output
    np.testing.assert_allclose(numbers, compute_features(model, obs), rtol=1e-4, atol=1e-5)


def test_torch_interface_computes_q_values_from_features():
    model = build_with_interface(DuelingQModel, fcnet_hiddens=[8, 6])
    obs = sample_observations(rows=6)

    output, _ = model({"obs": torch.from_numpy(obs)})
    q = model.get_q_values(output)

    weights = model.get_weights()
    features = compute_features(model, obs)
    advantages = compute_linear(weights, "A", features)
    value = compute_linear(weights, "V", features)
    expected = value + advantages - advantages.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(q.detach(), expected, rtol=1e-4, atol=1e-5)


def test_torch_interface_trains_and_saves_every_weight():
    model = build_with_interface(DuelingQModel, fcnet_hiddens=[8, 6])
    output, _ = model({"obs": torch.from_numpy(sample_observations(rows=6))})

    model.get_q_values(output).sum().backward()

    assert all(parameter.grad is not None for parameter in model.parameters())
    assert set(model.get_weights()) == set(model.state_dict())


def test_tensorflow_interface_computes_q_values_from_features():
    model = build_with_interface(TFDuelingQModel, "tf", fcnet_hiddens=[8, 6])

    output, _ = model({"obs": tf.constant(sample_observations(rows=6))})
    q = model.get_q_values(output)

    assert q.shape == (6, 2)
    # The advantages of the 2 actions sum to zero, so the sum of their q is twice the value.
    _, value = model.heads(output)
    np.testing.assert_allclose(tf.reduce_sum(q, axis=1), 2 * value[:, 0], rtol=1e-4, atol=1e-5)


def test_tensorflow_interface_has_weights_of_trunk_and_heads():
    model = build_with_interface(TFDuelingQModel, "tf", fcnet_hiddens=[8, 6])
    # Two hidden layers and two heads, each with a kernel and a bias.
    assert len(model.trainable_variables()) == 4 + 4


def test_interface_is_mixed_into_torch_host():
    from rlcatalog_torch.model import TorchHost

    model = build_with_interface(DuelingQModel, fcnet_hiddens=[8])

    assert type(model).__mro__[1:3] == (DuelingQModel, TorchHost)
    assert type(model.inner) is FullyConnectedNetwork
    assert TorchHost.__doc__


def test_interface_runs_forward_hooks_of_pytorch():
    model = build_with_interface(DuelingQModel, fcnet_hiddens=[8])
    calls = []
    model.register_forward_hook(lambda *_: calls.append("hook"))

    model({"obs": torch.zeros(1, 4)})

    assert calls == ["hook"]


def test_interface_may_be_a_plain_mixin():
    class Doubling:
        """A mixin that is not a model."""

        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, None, model_config, name)
            self.double_width = 2 * self.num_outputs

        def double(self, output):
            return 2 * output

    model = build_with_interface(Doubling, fcnet_hiddens=[8])
    output, _ = model({"obs": torch.zeros(1, 4)})

    assert model.double_width == 2 * 8
    torch.testing.assert_close(model.double(output), 2 * output)


class ContActionQModel(TorchModelV2):
    """RLlib's example of a model with one Q-value for an observation and an action."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(ContActionQModel, self).__init__(obs_space, action_space, None, model_config, name)  # noqa: UP008
        combined = spaces.Box(-1.0, 1.0, (self.num_outputs + action_space.shape[0],))
        self.q_head = FullyConnectedNetwork(combined, action_space, 1, model_config, "q_head")

    def get_single_q_value(self, underlying_output, action):
        q_out, _ = self.q_head({"obs": torch.cat([underlying_output, action], dim=-1)})
        return q_out


def test_single_q_value_depends_on_the_action():
    actions = spaces.Box(-1, 1, (2,), np.float32)
    config = {"fcnet_hiddens": [8]}
    model = ModelCatalog.get_model_v2(OBS, actions, 4, config, "torch", "q", ContActionQModel)

    output, _ = model({"obs": torch.zeros(3, 4)})
    q_of_zeros = model.get_single_q_value(output, torch.zeros(3, 2))
    q_of_ones = model.get_single_q_value(output, torch.ones(3, 2))

    assert q_of_zeros.shape == (3, 1)
    assert not torch.allclose(q_of_zeros, q_of_ones)


# --- over custom models ---------------------------------------------------------------------------


def test_model_with_the_interface_is_used_unchanged():
    class CompleteModel(DuelingQModel):
        """A model that has the interface and computes its own features."""

        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.A = nn.Linear(4, 2)
            self.V = nn.Linear(4, 1)

        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    model = build_with_interface(DuelingQModel, custom_model=CompleteModel)

    assert type(model) is CompleteModel
    output, _ = model({"obs": torch.zeros(3, 4)})
    assert model.get_q_values(output).shape == (3, 2)


def test_interface_rejects_a_model_without_num_outputs():
    class WithoutWidth(TorchModelV2):
        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    message = r"WithoutWidth was built as the trunk of DuelingQModel, .*did not set self.num_outp"
    with pytest.raises(ModelContractError, match=message):
        ModelCatalog.get_model_v2(
            OBS,
            TWO_ACTIONS,
            num_outputs=None,
            model_config={"custom_model": WithoutWidth},
            model_interface=DuelingQModel,
        )
