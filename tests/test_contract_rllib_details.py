"""Where RLlib's code leans on details of the contract: frameworks left out, old names of keys."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.config import FlatConfig

BOX, TWO = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
pytestmark = pytest.mark.usefixtures("one_thread", "seeded")


def trunk(framework):
    """A model class of one framework that keeps its config."""
    if framework == "torch":
        from rlcatalog.torch import FullyConnectedNetwork as Base
    else:
        from rlcatalog.tf import FullyConnectedNetwork as Base

    class Trunk(Base):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.seen_config = model_config

    return Trunk


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_registered_class_decides_the_framework_where_none_is_named(default, framework):
    ModelCatalog.register_custom_model("mine", trunk(framework))
    config = {"custom_model": "mine"}
    dist_class, size = ModelCatalog.get_action_dist(TWO, config)
    model = ModelCatalog.get_model_v2(BOX, TWO, size, config)
    assert (model.framework, dist_class.framework_of_class) == (framework, framework)
    assert ModelCatalog.get_action_dist(TWO, {})[0].framework_of_class == "torch"
    assert ModelCatalog.get_model_v2(BOX, TWO, size, {}).framework == "torch"
    other = {"torch": "tf", "tf": "torch"}[framework]
    assert ModelCatalog.get_action_dist(TWO, config, framework=other)[0].framework_of_class == other


def test_a_registered_distribution_decides_it_too(default):
    from rlcatalog.tf import Categorical

    class Mine(Categorical):
        pass

    ModelCatalog.register_custom_action_dist("mine", Mine)
    assert ModelCatalog.get_action_dist(TWO, {"custom_action_dist": "mine"})[0].framework_of_class == "tf"


def test_a_model_finds_its_arguments_under_the_name_of_its_time():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = rlcatalog.build(BOX, TWO, {"custom_model": trunk("torch"), "custom_options": {"cell_size": 5}})
    config = policy.model.seen_config
    assert config["custom_options"] == config["custom_model_config"] == {"cell_size": 5}
    assert config.get("custom_options") == policy.model.model_config.get("custom_options", {}) == {"cell_size": 5}
    assert config.get("custom_optins", 3) == 3
    with pytest.raises(KeyError, match="custom_optins"):
        config["custom_optins"]
    assert "custom_options" not in list(config)
    assert FlatConfig({}).get("custom_options", {}) == {}
    with pytest.raises(KeyError):
        FlatConfig({})["custom_options"]
