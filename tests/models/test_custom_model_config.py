"""Keys of `custom_model_config` that a constructor does not take: RLlib's models read them from the
config.
"""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog import Match, Rank
from rlcatalog.errors import ConfigError, UnreadKeysWarning

BOX, TWO = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)

both = pytest.mark.parametrize("framework", ["torch", "tf"])
pytestmark = pytest.mark.usefixtures("one_thread")


def net(framework):
    """A base class with one hidden layer, as wide as RLlib's models read it from the config."""
    if framework == "torch":
        import torch

        from rlcatalog_torch import TorchModelV2 as Base

        layer = torch.nn.Linear
    else:
        from rlcatalog_tf import TFModelV2 as Base, keras

        def layer(inputs, outputs):
            made = keras.layers.Dense(outputs)
            made.build((None, inputs))
            return made

    class Net(Base):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.found = model_config["custom_model_config"]
            self.out, self.value = layer(3, num_outputs), layer(3, 1)

        def forward(self, input_dict, state, seq_lens):
            self.seen = input_dict["obs_flat"]
            return self.out(self.seen), state

        def value_function(self):
            return self.value(self.seen)[:, 0]

    return Net


def with_keywords(framework):
    class Keywords(net(framework)):
        def __init__(
            self, obs_space, action_space, num_outputs, model_config, name, width=8, **kwargs
        ):
            super().__init__(obs_space, action_space, num_outputs, model_config, name, **kwargs)
            self.width = width

    return Keywords


@both
def test_it_is_built_without_them_and_reads_them_from_the_config(catalog, framework):
    given = {"cell_size": 5, "n_agents": 2}
    with pytest.warns(
        UnreadKeysWarning, match=r"Net.__init__ does not accept 'cell_size', 'n_agents'.*RLlib"
    ) as said:
        policy = rlcatalog.build(
            BOX,
            TWO,
            {"custom_model": net(framework), "custom_model_config": given},
            framework,
            catalog=catalog,
        )
    assert len(said) == 1
    assert policy.model.found == given
    assert policy.act(np.zeros((2, 3), np.float32)).action.shape == (2,)


@both
def test_a_constructor_that_hands_them_on_to_its_base_keeps_those_it_names(catalog, framework):
    given = {"width": 16, "cell_size": 5, "n_agents": 2}
    config = {"custom_model": with_keywords(framework), "custom_model_config": given}
    with pytest.warns(
        UnreadKeysWarning, match=r"does not accept 'cell_size', 'n_agents'\. "
    ) as said:
        policy = rlcatalog.build(BOX, TWO, config, framework, catalog=catalog)
    assert len(said) == 1
    assert (policy.model.width, policy.model.found) == (16, given)


def test_a_misspelt_one_is_an_error(catalog):
    for given in ({"widht": 16}, {"widht": 16, "cell_size": 5}):
        with pytest.raises(
            ConfigError, match=r"Keywords does not accept 'widht'\. Did you mean 'width'\? Acc"
        ):
            rlcatalog.build(
                BOX,
                TWO,
                {"custom_model": with_keywords("torch"), "custom_model_config": given},
                "torch",
                catalog=catalog,
            )


def test_one_that_is_taken_says_nothing(catalog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = {"custom_model": with_keywords("torch"), "custom_model_config": {"width": 3}}
        assert rlcatalog.build(BOX, TWO, config, "torch", catalog=catalog).model.width == 3


def test_two_trunks_are_one_warning(catalog):
    cls = with_keywords("torch")
    config = {"custom_model": cls, "custom_model_config": {"cell_size": 5}}
    with pytest.warns(UnreadKeysWarning) as said:
        catalog.model_v2(BOX, TWO, 2, config, "torch")
    assert len(said) == 1


def test_a_class_that_declares_what_it_reads_takes_no_others(catalog):
    catalog.register_model(
        "mine", net("torch"), reads=("fcnet_hiddens",), match=lambda r: Match(Rank.SPECIFIC, "all")
    )
    with pytest.raises(ConfigError, match="Net does not accept 'cell_size'"):
        rlcatalog.build(
            BOX,
            TWO,
            {"custom_model": "mine", "custom_model_config": {"cell_size": 5}},
            "torch",
            catalog=catalog,
        )


def test_another_error_of_the_constructor_is_its_own(catalog):
    class Wrong(with_keywords("torch")):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            {}.update(1, 2)

    with pytest.raises(TypeError, match="update expected"):
        rlcatalog.build(
            BOX,
            TWO,
            {"custom_model": Wrong, "custom_model_config": {"width": 5}},
            "torch",
            catalog=catalog,
        )
