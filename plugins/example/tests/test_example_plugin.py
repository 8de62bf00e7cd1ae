"""The example plugin, tested as its author would test it."""

import importlib.util
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog.errors import PluginWarning, UnsupportedSpaceError
from rlcatalog_testing import PluginEntryPoint, check_plugin, isolated_catalog

PACKAGE = Path(__file__).resolve().parents[1]
BUILT_IN = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
)


@pytest.fixture(autouse=True)
def importable_plugin(monkeypatch):
    """Make the package importable, as if it were installed."""
    monkeypatch.syspath_prepend(str(PACKAGE / "src"))
    yield
    for name in list(sys.modules):
        if name.startswith("example_compass"):
            del sys.modules[name]


@pytest.fixture
def catalog():
    """A catalog of the plugin and some built-in packages."""
    plugin = PluginEntryPoint("example_compass.plugin", "example-compass")
    return isolated_catalog(plugin, *BUILT_IN)


def find_record(catalog):
    [record] = [plugin for plugin in catalog.plugins if plugin.distribution == "example-compass"]
    return record


def test_plugin_is_loaded(catalog):
    record = find_record(catalog)

    assert record.status == "loaded"
    assert record.error is None


def test_plugin_keeps_its_contracts(catalog):
    outcomes = check_plugin("example-compass", catalog=catalog)

    assert sum(outcome.status == "passed" for outcome in outcomes) > 40


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_model_is_a_gated_linear_layer(catalog, framework):
    config = {"custom_model": "example_compass_glu", "example_compass_width": 8}
    policy = rlcatalog.build(Box(-1, 1, (4,)), Discrete(3), config, framework, catalog=catalog)
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)

    step = policy.act(obs)

    weights = policy.model.get_weights()
    # One layer computes values and gates. The features are values times sigmoid(gates).
    linear = obs @ weights["gated.weight"].T + weights["gated.bias"]
    values, gates = np.split(linear, 2, axis=1)
    features = values / (1 + np.exp(-gates))
    logits = features @ weights["logits.weight"].T
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-5)
    estimates = features @ weights["value.weight"].T
    np.testing.assert_allclose(step.value, estimates[:, 0], atol=1e-5)


def test_explanation_names_the_plugin(catalog):
    config = {"custom_model": "example_compass_glu"}

    explanation = catalog.explain(Box(-1, 1, (4,)), Discrete(3), config, "torch").as_dict()

    assert explanation["model"]["distribution"] == "example-compass"


# --- the space ------------------------------------------------------------------------------------


def test_compass_is_encoded_as_a_point_on_the_circle(catalog):
    from example_compass.spaces import Compass

    preprocessor = catalog.preprocessor_for(Compass(4))

    points = [preprocessor.transform(direction) for direction in range(4)]

    np.testing.assert_allclose(points, [[1, 0], [0, 1], [-1, 0], [0, -1]], atol=1e-6)


def test_compass_in_a_dict_is_encoded(catalog):
    from example_compass.spaces import Compass

    space = gym.spaces.Dict({"heading": Compass(4), "speed": Box(0, 1, (1,))})
    observations = [
        {"heading": 0, "speed": np.array([0.25], np.float32)},
        {"heading": 1, "speed": np.array([0.5], np.float32)},
    ]

    encoded = catalog.preprocessor_for(space).transform_batch(observations)

    # Cosine and sine of 0 and 90 degrees, then the speed.
    np.testing.assert_allclose(encoded, [[1, 0, 0.25], [0, 1, 0.5]], atol=1e-6)


def test_policy_acts_on_a_compass(catalog):
    from example_compass.spaces import Compass

    space = gym.spaces.Dict({"heading": Compass(8), "speed": Box(0, 1, (1,))})
    policy = rlcatalog.build(space, Discrete(3), catalog=catalog)

    step = policy.act([space.sample() for _ in range(6)])

    assert step.action.shape == (6,)


def test_compass_without_the_plugin_is_an_error():
    from example_compass.spaces import Compass

    space = gym.spaces.Dict({"heading": Compass(8)})

    with pytest.raises(UnsupportedSpaceError, match="no installed preprocessor supports") as caught:
        rlcatalog.build(space, Discrete(3), catalog=isolated_catalog(*BUILT_IN))

    assert str(caught.value).startswith("obs['heading']: ")


# --- training -------------------------------------------------------------------------------------


def make_steering_env():
    """Return an environment with a reward for turning towards heading 0."""
    from example_compass.spaces import Compass

    class SteeringEnv(gym.Env):
        observation_space = Compass(8)
        action_space = Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.heading = int(self.np_random.integers(8))
            self.steps = 0
            return self.heading, {}

        def step(self, action):
            self.heading = (self.heading + int(action) - 1) % 8
            self.steps += 1
            reward = float(np.cos(self.heading * np.pi / 4))
            return self.heading, reward, False, self.steps == 16, {}

    return SteeringEnv()


def test_trains_under_ppo(catalog):
    from rlcatalog_ppo import PPO

    config = {
        "model": {"custom_model": "example_compass_glu"},
        "num_envs": 2,
        "rollout_length": 32,
        "minibatch_size": 32,
        "seed": 0,
    }
    algo = PPO(make_steering_env, config, catalog=catalog)
    weights_before = algo.policy.model.get_weights()

    result = algo.train()

    assert result["timesteps_total"] == 64  # 2 environments of 32 steps
    weights = algo.policy.model.get_weights()
    assert not np.array_equal(weights["gated.weight"], weights_before["gated.weight"])


# --- a variant that does not load -----------------------------------------------------------------


@pytest.fixture
def broken_plugin():
    """The plugin in `broken_plugin.py`, whose only hook is misspelt."""
    path = Path(__file__).with_name("broken_plugin.py")
    spec = importlib.util.spec_from_file_location("broken_plugin", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return PluginEntryPoint(module, "example-compass")


def test_misspelt_hook_warning_suggests_the_right_name(broken_plugin):
    with pytest.warns(PluginWarning, match="Did you mean 'rlcatalog_models'"):
        catalog = isolated_catalog(broken_plugin, *BUILT_IN)

    assert find_record(catalog).status == "failed"
