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

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
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
    """Build an interface over a net with one hidden layer of width 8, by default."""
    return ModelCatalog.get_model_v2(
        FOUR_FEATURES,
        TWO_ACTIONS,
        num_outputs=2,
        model_config={"fcnet_hiddens": [8], **config},
        framework=framework,
        model_interface=interface,
    )


# --- over the default model -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "interface"), [("torch", DuelingQModel), ("tf", TFDuelingQModel)]
)
def test_interface_over_the_default_model(framework, interface):
    model = ModelCatalog.get_model_v2(
        FOUR_FEATURES,
        TWO_ACTIONS,
        num_outputs=2,
        model_config={"fcnet_hiddens": [8, 6]},
        framework=framework,
        model_interface=interface,
        name="my_dueling_model",
    )

    features, state = model({"obs": np.zeros((3, 4), np.float32)})

    assert isinstance(model, interface)
    assert model.name == "my_dueling_model"
    assert model.num_outputs == 6  # the width of the last hidden layer
    assert features.shape == (3, 6)
    assert model.last_output() is features
    assert state == []
    assert model.get_q_values(features).shape == (3, 2)  # 2 actions


def test_torch_interface_saves_every_weight():
    model = build_with_interface(DuelingQModel)
    assert set(model.get_weights()) == set(model.state_dict())


def test_tensorflow_interface_has_weights_of_trunk_and_heads():
    model = build_with_interface(TFDuelingQModel, "tf")
    # One hidden layer and two heads, each with a kernel and a bias.
    assert len(model.trainable_variables()) == 2 + 4


def test_interface_is_mixed_into_torch_host():
    from rlcatalog_torch.model import TorchHost

    model = build_with_interface(DuelingQModel)

    assert type(model).__mro__[1:3] == (DuelingQModel, TorchHost)
    assert type(model.inner) is FullyConnectedNetwork
    assert TorchHost.__doc__


def test_interface_runs_forward_hooks_of_pytorch():
    model = build_with_interface(DuelingQModel)
    calls = []
    model.register_forward_hook(lambda *_: calls.append("hook"))

    model({"obs": torch.zeros(1, 4)})

    assert calls == ["hook"]


def test_interface_may_be_a_plain_mixin():
    class Doubling:
        """A mixin that is not a model."""

        def double(self, output):
            return 2 * output

    model = build_with_interface(Doubling)

    output, _ = model({"obs": torch.zeros(1, 4)})
    torch.testing.assert_close(model.double(output), 2 * output)


def test_constructor_of_a_mixin_can_ask_for_features():
    class KnowsWidth:
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            # With num_outputs=None, the model below has no layer for outputs.
            super().__init__(obs_space, action_space, None, model_config, name)
            self.feature_width = self.num_outputs

    model = build_with_interface(KnowsWidth, fcnet_hiddens=[8])

    assert model.feature_width == 8


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
    model = ModelCatalog.get_model_v2(
        FOUR_FEATURES,
        spaces.Box(-1, 1, (2,), np.float32),
        num_outputs=4,
        model_config={"fcnet_hiddens": [8]},
        model_interface=ContActionQModel,
    )

    features, _ = model({"obs": torch.zeros(3, 4)})
    q_of_zeros = model.get_single_q_value(features, torch.zeros(3, 2))
    q_of_ones = model.get_single_q_value(features, torch.ones(3, 2))

    assert q_of_zeros.shape == (3, 1)
    assert not torch.allclose(q_of_zeros, q_of_ones)


# --- over custom models ---------------------------------------------------------------------------


def test_model_with_the_interface_is_used_unchanged():
    class CompleteModel(DuelingQModel):
        """A model that has the interface, and whose features are the observations."""

        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.A = nn.Linear(4, 2)  # the advantages of 2 actions
            self.V = nn.Linear(4, 1)  # the value

        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    model = build_with_interface(DuelingQModel, custom_model=CompleteModel)

    assert type(model) is CompleteModel
    features, _ = model({"obs": torch.zeros(3, 4)})
    assert model.get_q_values(features).shape == (3, 2)


def test_interface_over_a_custom_model():
    class CustomTrunk(FullyConnectedNetwork):
        pass

    model = build_with_interface(DuelingQModel, custom_model=CustomTrunk, fcnet_hiddens=[5])

    assert type(model.inner) is CustomTrunk
    assert model.A.in_features == 5


def test_interface_rejects_a_model_without_num_outputs():
    class WithoutWidth(TorchModelV2):
        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    with pytest.raises(ModelContractError, match=r"did not set self.num_outputs"):
        build_with_interface(DuelingQModel, custom_model=WithoutWidth)
