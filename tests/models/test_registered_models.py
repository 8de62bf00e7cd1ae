"""The contract on paper: a model registered by name, and the same one written as a class."""

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

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)


class MyModelClass(TorchModelV2, nn.Module):
    """In PyTorch."""

    def __init__(self, *args, **kwargs):
        TorchModelV2.__init__(self, *args, **kwargs)
        nn.Module.__init__(self)
        self.logits = nn.Linear(self.obs_space.shape[0], self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.logits(input_dict["obs_flat"]), state


class MyKerasModel(TFModelV2):
    """In TensorFlow."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        input_layer = tf.keras.layers.Input(shape=self.obs_space.shape, name="observations")
        self.base_model = tf.keras.Model(
            input_layer, tf.keras.layers.Dense(self.num_outputs)(input_layer)
        )
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        return self.base_model(input_dict["obs_flat"]), state


@pytest.mark.parametrize("cls", [MyModelClass, MyKerasModel, TorchRNN])
def test_a_model_by_name_and_by_class(default, cls):
    ModelCatalog.register_custom_model("my_model", cls)
    for named in ("my_model", cls):
        for framework in (None, cls.framework_of_class):
            policy = rlcatalog.build(BOX, TWO, {"custom_model": named}, framework)
            assert type(policy.model) is cls
            assert policy.framework == cls.framework_of_class
            assert policy.explain().as_dict()["model"]["reason"] == "named in the config"
    model = ModelCatalog.get_model_v2(
        BOX, TWO, 3, {"custom_model": "my_model"}, cls.framework_of_class, "her_name"
    )
    assert (type(model), model.num_outputs, model.name) == (cls, 3, "her_name")
    other = {"torch": "tf", "tf": "torch"}[cls.framework_of_class]
    with pytest.raises(NotServedError, match=f"'my_model'.*has no code for framework='{other}'"):
        rlcatalog.build(BOX, TWO, {"custom_model": "my_model"}, other)


def test_registering_again_replaces(default):
    ModelCatalog.register_custom_model("my_model", MyModelClass)
    ModelCatalog.register_custom_model("my_model", TorchRNN)
    assert type(rlcatalog.build(BOX, TWO, {"custom_model": "my_model"}).model) is TorchRNN


def test_a_default_model_is_used_where_the_config_names_none(default):
    cls = MyModelClass
    model = ModelCatalog.get_model_v2(BOX, TWO, 2, {}, "torch", default_model=cls)
    assert type(model) is cls
    model = ModelCatalog.get_model_v2(
        BOX, TWO, 2, {"custom_model": "fcnet"}, "torch", default_model=cls
    )
    assert type(model) is FullyConnectedNetwork
