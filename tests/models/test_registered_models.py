"""Custom models: registered under a name, or given as a class."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from gymnasium.spaces import Discrete
from seed_models import TorchRNN
from torch import nn

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.errors import NotServedError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

# With `default`, each test registers classes in a default catalog that no other test uses.
pytestmark = pytest.mark.usefixtures("one_thread", "seeded", "default")

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = Discrete(2)


class OneTorchLayer(TorchModelV2, nn.Module):
    """One layer in PyTorch."""

    def __init__(self, *args, **kwargs):
        TorchModelV2.__init__(self, *args, **kwargs)
        nn.Module.__init__(self)
        self.logits = nn.Linear(self.obs_space.shape[0], self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.logits(input_dict["obs_flat"]), state


class OneKerasLayer(TFModelV2):
    """One layer in TensorFlow."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        input_layer = tf.keras.layers.Input(shape=self.obs_space.shape, name="observations")
        self.base_model = tf.keras.Model(
            input_layer, tf.keras.layers.Dense(self.num_outputs)(input_layer)
        )
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        return self.base_model(input_dict["obs_flat"]), state


each_model = pytest.mark.parametrize("cls", [OneTorchLayer, OneKerasLayer, TorchRNN])


@each_model
@pytest.mark.parametrize("is_named", [True, False], ids=["name", "class"])
@pytest.mark.parametrize("says_framework", [True, False], ids=["framework", "no framework"])
def test_custom_model_by_name_and_by_class(cls, is_named, says_framework):
    ModelCatalog.register_custom_model("my_model", cls)
    config = {"custom_model": "my_model" if is_named else cls}
    framework = cls.framework_of_class if says_framework else None

    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config, framework)

    assert type(policy.model) is cls
    assert policy.framework == cls.framework_of_class
    assert policy.explain().as_dict()["model"]["reason"] == "named in the config"


@each_model
def test_get_model_v2_builds_a_registered_model(cls):
    ModelCatalog.register_custom_model("my_model", cls)
    config = {"custom_model": "my_model"}

    model = ModelCatalog.get_model_v2(
        FOUR_FEATURES,
        TWO_ACTIONS,
        num_outputs=3,
        model_config=config,
        framework=cls.framework_of_class,
        name="my_name",
    )

    assert type(model) is cls
    assert model.num_outputs == 3
    assert model.name == "my_name"


def test_registered_model_in_another_framework_is_an_error():
    ModelCatalog.register_custom_model("my_model", OneTorchLayer)
    with pytest.raises(NotServedError, match="has no code for framework='tf'"):
        rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"custom_model": "my_model"}, "tf")


def test_registering_a_name_again_replaces_the_model():
    ModelCatalog.register_custom_model("my_model", OneTorchLayer)
    ModelCatalog.register_custom_model("my_model", TorchRNN)

    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"custom_model": "my_model"})

    assert type(policy.model) is TorchRNN


@pytest.mark.parametrize(
    ("config", "expected"),
    [({}, OneTorchLayer), ({"custom_model": "fcnet"}, FullyConnectedNetwork)],
    ids=["no custom_model", "custom_model"],
)
def test_default_model_is_used_if_config_names_none(config, expected):
    model = ModelCatalog.get_model_v2(
        FOUR_FEATURES,
        TWO_ACTIONS,
        num_outputs=2,
        model_config=config,
        default_model=OneTorchLayer,
    )
    assert type(model) is expected
