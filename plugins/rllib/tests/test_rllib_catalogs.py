"""Catalogs other than the default one under RLlib: choosing, building, training and pickling."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import cloudpickle
from engine_models import catalog_with_twelve, layer_widths
from gymnasium.spaces import Box, Dict, Discrete, Text
from torch_weights import assert_every_weight_changed, copy_weights

from rlcatalog import Catalog
from rlcatalog.catalog import pickling
from rlcatalog.errors import UnknownNameError
from rlcatalog_rllib import env_to_module, spec, to_policy
from rlcatalog_rllib.recipe import build_policy, choose_parts

FOUR_NUMBERS = Box(-1, 1, (4,), np.float32)
TWO_CHOICES = Discrete(2)


@pytest.fixture
def catalog():
    """A catalog with the model "twelve", a layer of 12 units, which the default catalog lacks."""
    return catalog_with_twelve()


def test_model_of_another_catalog_is_unknown_to_the_default():
    with pytest.raises(UnknownNameError, match="twelve"):
        spec(FOUR_NUMBERS, TWO_CHOICES, {"custom_model": "twelve"})


def test_runner_builds_a_model_of_the_catalog(rllib, catalog):
    runner = rllib.make_runner(
        rllib.configure("CartPole-v1", {"custom_model": "twelve"}, catalog=catalog)
    )

    assert 12 in layer_widths(runner.module.model)
    assert to_policy(runner.module).catalog is catalog


def test_learner_trains_a_model_of_the_catalog(rllib, catalog):
    runner, learner, module = rllib.make_training(
        rllib.configure("CartPole-v1", {"custom_model": "twelve"}, catalog=catalog)
    )
    weights_before = copy_weights(module.model)

    rllib.update(learner, runner.sample())

    assert 12 in layer_widths(module.model)
    assert_every_weight_changed(module.model, weights_before)


def test_spec_of_q_values_takes_a_catalog(catalog):
    module = spec(
        FOUR_NUMBERS, TWO_CHOICES, {"custom_model": "twelve"}, q_values=True, catalog=catalog
    ).build()

    assert 12 in layer_widths(module.model)


def test_env_to_module_takes_a_catalog(catalog):
    connector = env_to_module({"custom_model": "twelve"}, catalog)

    assert connector.encode.keywords["recipe"].catalog is catalog


def test_pickled_spec_contains_the_catalog(catalog, monkeypatch):
    module_spec = spec(FOUR_NUMBERS, TWO_CHOICES, {"custom_model": "twelve"}, catalog=catalog)
    pickled = cloudpickle.dumps(module_spec)  # as Ray sends it to workers
    # Another process has none of the catalogs of this one.
    monkeypatch.setattr(pickling, "_CATALOGS", {})

    module = cloudpickle.loads(pickled).build()

    assert module.policy.catalog is not catalog
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
    config = rllib.configure(EnvWithText, {"custom_model": "twelve"}, catalog=catalog)
    runner = rllib.make_runner(config)

    runner.sample()

    assert config.env_config["catalog"] is catalog
    assert 12 in layer_widths(runner.module.model)
