"""Catalogs other than the default one under RLlib: choosing, building, training and pickling."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import cloudpickle
import torch
from gymnasium.spaces import Box, Dict, Discrete, Text
from ray.rllib.algorithms.ppo import PPOConfig

import rlcatalog_rllib
from rlcatalog import Catalog
from rlcatalog.catalog import registrations
from rlcatalog.errors import UnknownNameError
from rlcatalog_rllib import CatalogRLModule, env_to_module, spec, to_policy
from rlcatalog_rllib.recipe import build_policy, choose_parts
from rlcatalog_torch import FullyConnectedNetwork

FOUR_NUMBERS = Box(-1, 1, (4,), np.float32)
TWO_CHOICES = Discrete(2)
TWELVE = {"custom_model": "twelve"}


@pytest.fixture
def catalog():
    """A catalog with the model "twelve", a layer of 12 units, which the default catalog lacks."""
    catalog = Catalog()

    @catalog.register_model("twelve")
    class Twelve(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            config = {**model_config, "fcnet_hiddens": [12]}
            super().__init__(obs_space, action_space, num_outputs, config, name)

    return catalog


def layer_widths(model):
    return [layer.out_features for layer in model.modules() if isinstance(layer, torch.nn.Linear)]


def configure(catalog, env="CartPole-v1"):
    """Configure PPO with the model "twelve" of a catalog."""
    config = PPOConfig().debugging(seed=0, log_level="ERROR")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2, rollout_fragment_length=10)
    config.training(train_batch_size_per_learner=20, minibatch_size=10, num_epochs=1)
    return rlcatalog_rllib.configure(config, env, model=TWELVE, catalog=catalog)


def test_model_of_another_catalog_is_unknown_to_the_default():
    with pytest.raises(UnknownNameError, match="twelve"):
        spec(FOUR_NUMBERS, TWO_CHOICES, TWELVE)


def test_runner_builds_a_model_of_the_catalog(rllib, catalog):
    runner = rllib.make_runner(configure(catalog))

    assert 12 in layer_widths(runner.module.model)
    assert to_policy(runner.module).catalog is catalog


def test_learner_trains_a_model_of_the_catalog(rllib, catalog):
    config = configure(catalog)
    runner = rllib.make_runner(config)
    learner = rllib.make_learner(config, runner)
    model = learner.module["default_policy"].model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    rllib.update(learner, runner.sample())

    assert 12 in layer_widths(model)
    for name, weight in model.state_dict().items():
        assert not torch.equal(weight, before[name]), name


def test_spec_takes_a_catalog(catalog):
    module = spec(FOUR_NUMBERS, TWO_CHOICES, TWELVE, catalog=catalog).build()

    assert isinstance(module, CatalogRLModule)
    assert module.policy.catalog is catalog


def test_spec_of_q_values_takes_a_catalog(catalog):
    module = spec(FOUR_NUMBERS, TWO_CHOICES, TWELVE, q_values=True, catalog=catalog).build()

    assert 12 in layer_widths(module.model)


def test_env_to_module_takes_a_catalog(catalog):
    connector = env_to_module(TWELVE, catalog)

    assert connector.encode.keywords["recipe"].catalog is catalog


def forget_catalogs(monkeypatch):
    """Forget this process's catalogs, so that pickles are read as in another process."""
    monkeypatch.setattr(registrations, "_ALIVE", {})


def test_pickled_recipe_contains_the_catalog(catalog, monkeypatch):
    recipe, _ = choose_parts(FOUR_NUMBERS, TWO_CHOICES, TWELVE, catalog, {})
    pickled = cloudpickle.dumps(recipe)  # as Ray sends it to workers
    forget_catalogs(monkeypatch)

    loaded = cloudpickle.loads(pickled)

    assert loaded.catalog is not catalog
    assert loaded.pins.parts["trunk"] == "twelve"
    policy = build_policy(loaded, FOUR_NUMBERS, TWO_CHOICES)
    assert 12 in layer_widths(policy.model)


def test_pickled_spec_contains_the_catalog(catalog, monkeypatch):
    pickled = cloudpickle.dumps(spec(FOUR_NUMBERS, TWO_CHOICES, TWELVE, catalog=catalog))
    forget_catalogs(monkeypatch)

    module = cloudpickle.loads(pickled).build()

    assert 12 in layer_widths(module.model)


def test_class_in_the_config_needs_no_catalog(catalog):
    twelve = catalog.registry.get("model", "twelve").load("torch")

    recipe, _ = choose_parts(FOUR_NUMBERS, TWO_CHOICES, {"custom_model": twelve}, Catalog(), {})

    assert recipe.pins is None  # no part is found by name
    policy = build_policy(recipe, FOUR_NUMBERS, TWO_CHOICES)
    assert 12 in layer_widths(policy.model)


class EnvWithText(gym.Env):
    """Ray cannot batch its observations, so that rlcatalog encodes them inside the environment."""

    observation_space = Dict({"word": Text(3), "place": FOUR_NUMBERS})
    action_space = TWO_CHOICES

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"word": "ab", "place": np.zeros(4, np.float32)}, {}

    def step(self, action):
        obs, _ = self.reset()
        return obs, 0.0, False, True, {}


def test_environment_that_encodes_observations_has_the_catalog(rllib, catalog):
    config = configure(catalog, EnvWithText)
    runner = rllib.make_runner(config)

    runner.sample()

    assert config.env_config["catalog"] is catalog
    assert 12 in layer_widths(runner.module.model)
