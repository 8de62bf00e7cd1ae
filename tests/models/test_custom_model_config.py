"""Keys of `custom_model_config` that a model's constructor does not accept."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog import Match, Rank
from rlcatalog.errors import ConfigError, UnreadKeysWarning

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)

in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
pytestmark = pytest.mark.usefixtures("one_thread")


def define_net(framework):
    """Return a model class that reads `custom_model_config` from its config, as RLlib's models do.

    Its constructor accepts no keyword arguments.
    """
    if framework == "torch":
        import torch

        from rlcatalog_torch import TorchModelV2 as Base

        make_layer = torch.nn.Linear
    else:
        from rlcatalog_tf import TFModelV2 as Base, keras

        def make_layer(inputs, outputs):
            layer = keras.layers.Dense(outputs)
            layer.build((None, inputs))
            return layer

    class Net(Base):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.custom_config = model_config["custom_model_config"]
            if num_outputs is None:  # it is the trunk of a memory, and chooses its width
                self.num_outputs = 8
            self.out = make_layer(3, self.num_outputs)
            self.value = make_layer(3, 1)

        def forward(self, input_dict, state, seq_lens):
            self.obs = input_dict["obs_flat"]
            return self.out(self.obs), state

        def value_function(self):
            return self.value(self.obs)[:, 0]

    return Net


def define_net_with_width(framework):
    """Return a class that accepts `width`, and passes other keyword arguments to its base class."""

    class NetWithWidth(define_net(framework)):
        def __init__(
            self, obs_space, action_space, num_outputs, model_config, name, width=8, **kwargs
        ):
            super().__init__(obs_space, action_space, num_outputs, model_config, name, **kwargs)
            self.width = width

    return NetWithWidth


def build_policy(catalog, model, custom_config, framework="torch"):
    config = {"custom_model": model, "custom_model_config": custom_config}
    return rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, framework, catalog=catalog)


# --- keys that the constructor does not accept ----------------------------------------------------


@in_both_frameworks
def test_unread_keys_warn_and_stay_in_the_config(catalog, framework):
    custom_config = {"cell_size": 5, "n_agents": 2}
    message = r"Net.__init__ does not accept 'cell_size', 'n_agents'.*RLlib"

    with pytest.warns(UnreadKeysWarning, match=message) as caught:
        policy = build_policy(catalog, define_net(framework), custom_config, framework)

    assert len(caught) == 1
    assert policy.model.custom_config == custom_config
    assert policy.act(np.zeros((2, 3), np.float32)).action.shape == (2,)


@in_both_frameworks
def test_constructor_with_kwargs_gets_only_keys_it_names(catalog, framework):
    custom_config = {"width": 16, "cell_size": 5, "n_agents": 2}
    message = r"does not accept 'cell_size', 'n_agents'\. "

    with pytest.warns(UnreadKeysWarning, match=message) as caught:
        policy = build_policy(catalog, define_net_with_width(framework), custom_config, framework)

    assert len(caught) == 1
    assert policy.model.width == 16
    assert policy.model.custom_config == custom_config


def test_unread_keys_of_two_trunks_are_one_warning(catalog):
    config = {
        "custom_model": define_net_with_width("torch"),
        "custom_model_config": {"cell_size": 5},  # which the class does not accept
        "use_lstm": True,
        "vf_share_layers": False,  # a trunk for the actions, and one for the value
    }
    with pytest.warns(UnreadKeysWarning, match="'cell_size'") as caught:
        policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog)
    assert len(policy.model.inner_models()) == 2
    assert len(caught) == 1


@pytest.mark.parametrize("other_keys", [{}, {"cell_size": 5}], ids=["alone", "with unread key"])
def test_misspelt_key_is_an_error_with_a_suggestion(catalog, other_keys):
    with pytest.raises(ConfigError, match=r"'widht'\. Did you mean 'width'\?"):
        build_policy(catalog, define_net_with_width("torch"), {"widht": 16, **other_keys})


def test_class_with_declared_keys_rejects_others(catalog):
    catalog.register_model(
        "net",
        define_net("torch"),
        reads=("fcnet_hiddens",),  # all the keys that the model reads
        match=lambda request: Match(Rank.SPECIFIC, "all"),
    )
    with pytest.raises(ConfigError, match="Net does not accept 'cell_size'"):
        build_policy(catalog, "net", {"cell_size": 5})


# --- other constructors ---------------------------------------------------------------------------


def test_accepted_key_does_not_warn(catalog):
    # pytest makes any warning an error.
    policy = build_policy(catalog, define_net_with_width("torch"), {"width": 3})
    assert policy.model.width == 3


def test_other_errors_of_the_constructor_are_raised(catalog):
    class Faulty(define_net_with_width("torch")):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            {}.update(1, 2)  # a TypeError, as unknown keyword arguments are

    with pytest.raises(TypeError, match="update expected"):
        build_policy(catalog, Faulty, {"width": 5})
