"""A catalog of one's own under RLlib: what is chosen, built and trained comes from it, and it goes
along.
"""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import cloudpickle
import torch
from gymnasium.spaces import Box, Dict, Discrete, Text

import rlcatalog_rllib
from rlcatalog import Catalog
from rlcatalog.errors import UnknownNameError
from rlcatalog_rllib import CatalogRLModule, env_to_module, spec, to_policy
from rlcatalog_rllib.recipe import build_policy, choose_parts
from rlcatalog_torch import FullyConnectedNetwork

NAMED = {"custom_model": "twelve"}
BOX, TWO = Box(-1, 1, (4,), np.float32), Discrete(2)


@pytest.fixture
def catalog():
    """The installed parts, and a model that the process's own catalog does not know."""
    made = Catalog()

    @made.register_model("twelve")
    class Twelve(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(
                obs_space, action_space, num_outputs, {**model_config, "fcnet_hiddens": [12]}, name
            )

    return made


def widths(model):
    return [layer.out_features for layer in model.modules() if isinstance(layer, torch.nn.Linear)]


def configured(bench, catalog, env="CartPole-v1", model=NAMED):
    config = bench.config("CartPole-v1", fragment=10)
    config._env_to_module_connector = config._module_to_env_connector = None
    return rlcatalog_rllib.configure(config, env, model=model, catalog=catalog)


def test_an_algorithm_trains_with_it(bench, catalog):
    config = configured(bench, catalog)
    runner = bench.runner(config)
    assert 12 in widths(runner.module.model)
    learner = bench.learner(config, runner)
    before = {
        name: value.clone()
        for name, value in learner.module["default_policy"].model.state_dict().items()
    }
    bench.update(learner, runner.sample())
    after = learner.module["default_policy"].model.state_dict()
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    assert to_policy(runner.module).catalog is catalog


def test_without_it_the_name_is_unknown():
    with pytest.raises(UnknownNameError, match="twelve"):
        spec(BOX, TWO, NAMED)


def test_the_pieces_take_it(catalog):
    made = spec(BOX, TWO, NAMED, catalog=catalog).build()
    assert isinstance(made, CatalogRLModule)
    assert made.policy.catalog is catalog
    assert env_to_module(NAMED, catalog).encode.keywords["recipe"].catalog is catalog
    q_values = spec(BOX, TWO, NAMED, q_values=True, catalog=catalog).build()
    assert 12 in widths(q_values.model)


def test_workers_get_it_with_what_was_registered(catalog, monkeypatch):
    """A recipe pickled as Ray does, and read where the catalog is not known, builds the same by
    name.
    """
    recipe, _ = choose_parts(BOX, TWO, NAMED, catalog, {})
    assert recipe.pins is not None
    assert recipe.pins.parts["trunk"] == "twelve"
    data = cloudpickle.dumps(recipe)
    from rlcatalog.catalog import registrations

    monkeypatch.setattr(registrations, "_ALIVE", {})
    other = cloudpickle.loads(data)
    assert other.catalog is not catalog
    policy = build_policy(other, BOX, TWO)
    assert 12 in widths(policy.model)
    module = cloudpickle.loads(cloudpickle.dumps(spec(BOX, TWO, NAMED, catalog=catalog))).build()
    assert 12 in widths(module.model)


def test_a_class_in_the_config_goes_along_as_before(catalog):
    twelve = catalog.registry.get("model", "twelve").load("torch")
    recipe, _ = choose_parts(BOX, TWO, {"custom_model": twelve}, Catalog(), {})
    assert recipe.pins is None
    assert 12 in widths(build_policy(recipe, BOX, TWO).model)


class Written(gym.Env):
    """Its observations cannot be batched as arrays, and are encoded inside."""

    observation_space, action_space = Dict({"word": Text(3), "place": BOX}), TWO

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"word": "ab", "place": np.zeros(4, np.float32)}, {}

    def step(self, action):
        return self.reset()[0], 0.0, False, True, {}


def test_an_environment_that_encodes_inside_has_it(bench, catalog):
    config = configured(bench, catalog, Written, {"custom_model": "twelve"})
    assert config.env_config["catalog"] is catalog
    runner = bench.runner(config)
    runner.sample()
    assert 12 in widths(runner.module.model)
