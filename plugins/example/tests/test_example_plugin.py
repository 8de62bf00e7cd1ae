"""The example plugin, tested as its author would test it."""

import importlib.util
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import DeclarationError, PluginWarning, UnsupportedSpaceError
from rlcatalog_testing import PluginEntryPoint, check_plugin, isolated_catalog

PACKAGE = Path(__file__).resolve().parents[1]
BUILT_IN = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
)
BOX = gym.spaces.Box(-1, 1, (4,), np.float32)
THREE_ACTIONS = gym.spaces.Discrete(3)


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
    policy = rlcatalog.build(BOX, THREE_ACTIONS, config, framework, catalog=catalog)
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)

    step = policy.act(obs)

    weights = policy.model.get_weights()
    linear = obs @ weights["gated.weight"].T + weights["gated.bias"]
    values, gates = np.split(linear, 2, axis=1)
    features = values / (1 + np.exp(-gates))  # values times sigmoid(gates)
    logits = features @ weights["logits.weight"].T
    [value_of_row] = (features @ weights["value.weight"].T).T
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-5)
    np.testing.assert_allclose(step.value, value_of_row, atol=1e-5)


def test_explanation_names_the_plugin(catalog):
    config = {"custom_model": "example_compass_glu"}

    explanation = catalog.explain(BOX, THREE_ACTIONS, config, "torch").as_dict()

    assert explanation["model"]["distribution"] == "example-compass"


# --- the space ------------------------------------------------------------------------------------


def test_compass_is_encoded_as_a_point_on_the_circle(catalog):
    from example_compass.spaces import Compass

    preprocessor = catalog.preprocessor_for(Compass(4))

    points = [preprocessor.transform(direction) for direction in range(4)]

    np.testing.assert_allclose(points, [[1, 0], [0, 1], [-1, 0], [0, -1]], atol=1e-6)


def test_compass_in_a_dict_is_encoded(catalog):
    from example_compass.spaces import Compass

    space = gym.spaces.Dict({"heading": Compass(8), "speed": gym.spaces.Box(0, 1, (1,))})
    preprocessor = catalog.preprocessor_for(space)
    observations = [space.sample() for _ in range(6)]

    encoded = preprocessor.transform_batch(observations)

    angles = np.array([obs["heading"] for obs in observations]) * np.pi / 4  # 8 directions
    speeds = [obs["speed"][0] for obs in observations]
    expected = np.stack([np.cos(angles), np.sin(angles), speeds], axis=1)
    np.testing.assert_allclose(encoded, expected, atol=1e-6)


def test_policy_acts_on_a_compass(catalog):
    from example_compass.spaces import Compass

    space = gym.spaces.Dict({"heading": Compass(8), "speed": gym.spaces.Box(0, 1, (1,))})
    policy = rlcatalog.build(space, THREE_ACTIONS, catalog=catalog)

    step = policy.act([space.sample() for _ in range(6)])

    assert step.action.shape == (6,)


def test_compass_without_the_plugin_is_an_error():
    from example_compass.spaces import Compass

    space = gym.spaces.Dict({"heading": Compass(8)})

    with pytest.raises(UnsupportedSpaceError, match="no installed preprocessor supports") as caught:
        rlcatalog.build(space, THREE_ACTIONS, catalog=isolated_catalog(*BUILT_IN))

    assert str(caught.value).startswith("obs['heading']: ")


# --- training -------------------------------------------------------------------------------------


def make_steering_env():
    """Return an environment with a reward for turning towards heading 0."""
    from example_compass.spaces import Compass

    class SteeringEnv(gym.Env):
        observation_space = Compass(8)
        action_space = gym.spaces.Discrete(3)

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
    assert any(np.any(weights[name] != weights_before[name]) for name in weights)


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
    with pytest.warns(PluginWarning, match="is not one of rlcatalog's hooks") as caught:
        catalog = isolated_catalog(broken_plugin, *BUILT_IN)

    assert "'rlcatalog_model' is not one of rlcatalog's hooks. Did you mean" in str(
        caught[0].message
    )
    assert find_record(catalog).status == "failed"


def test_misspelt_hook_leaves_other_plugins_working(broken_plugin):
    with pytest.warns(PluginWarning, match="'rlcatalog_model'"):
        catalog = isolated_catalog(broken_plugin, *BUILT_IN)

    policy = rlcatalog.build(BOX, THREE_ACTIONS, catalog=catalog)

    assert policy.act(np.zeros((1, 4), np.float32)).logp.shape == (1,)


def test_misspelt_hook_is_an_error_in_strict_mode(broken_plugin):
    with pytest.raises(DeclarationError, match="rlcatalog_model"):
        isolated_catalog(broken_plugin, environ={"RLCATALOG_STRICT_PLUGINS": "1"})
