"""The example plugin as its author would test it."""

import importlib.util
import re
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import DeclarationError, PluginWarning
from rlcatalog_testing import PluginEntryPoint, check_plugin, isolated_catalog

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
)
ACTIONS = gym.spaces.Discrete(3)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE / "src"))
    yield
    for name in [name for name in sys.modules if name.startswith("example_compass")]:
        del sys.modules[name]


def catalog(environ=None):
    return isolated_catalog(
        PluginEntryPoint("example_compass.plugin", "example-compass"), *INSTALLED, environ=environ
    )


def test_loads():
    [record] = [r for r in catalog().plugins if r.distribution == "example-compass"]
    assert (record.status, record.error) == ("loaded", None)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_own_model_by_name(framework):
    config = {"custom_model": "example_compass_glu", "example_compass_width": 8}
    policy = rlcatalog.build(
        gym.spaces.Box(-1, 1, (4,)), ACTIONS, config, framework, catalog=catalog()
    )
    assert policy.explain().as_dict()["model"]["distribution"] == "example-compass"
    weights = policy.model.get_weights()
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)
    a, b = np.split(obs @ weights["gated.weight"].T + weights["gated.bias"], 2, axis=1)
    features = a / (1 + np.exp(-b))
    step = policy.act(obs)
    np.testing.assert_allclose(step.dist_inputs, features @ weights["logits.weight"].T, atol=1e-5)
    np.testing.assert_allclose(step.value, (features @ weights["value.weight"].T)[:, 0], atol=1e-5)


def test_own_space_alone_and_nested():
    from example_compass.spaces import Compass

    found = catalog()
    encode = found.preprocessor_for(Compass(4)).transform
    np.testing.assert_allclose(
        [encode(i) for i in range(4)], [[1, 0], [0, 1], [-1, 0], [0, -1]], atol=1e-6
    )
    space = gym.spaces.Dict({"heading": Compass(8), "speed": gym.spaces.Box(0, 1, (1,))})
    observations = [space.sample() for _ in range(6)]
    preprocessor = found.preprocessor_for(space)
    angle = np.array([obs["heading"] for obs in observations]) * np.pi / 4
    speed = np.array([obs["speed"][0] for obs in observations])
    expected = np.stack([np.cos(angle), np.sin(angle), speed], axis=1)
    np.testing.assert_allclose(preprocessor.transform_batch(observations), expected, atol=1e-6)
    assert rlcatalog.build(space, ACTIONS, catalog=found).act(observations).action.shape == (6,)


def test_without_the_plugin_the_space_is_refused_by_name():
    from example_compass.spaces import Compass
    from rlcatalog.errors import UnsupportedSpaceError

    space = gym.spaces.Dict({"heading": Compass(8)})
    with pytest.raises(
        UnsupportedSpaceError, match=re.escape("obs['heading']: no installed preprocessor supports")
    ):
        rlcatalog.build(space, ACTIONS, catalog=isolated_catalog(*INSTALLED))


def test_trains_under_ppo(recwarn):
    from example_compass.spaces import Compass
    from rlcatalog_ppo import PPO

    class Steering(gym.Env):
        """Reward for turning towards heading 0."""

        observation_space, action_space = Compass(8), gym.spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.heading, self.steps = int(self.np_random.integers(8)), 0
            return self.heading, {}

        def step(self, action):
            self.heading = (self.heading + int(action) - 1) % 8
            self.steps += 1
            return (
                self.heading,
                float(np.cos(self.heading * np.pi / 4)),
                False,
                self.steps == 16,
                {},
            )

    model = {"custom_model": "example_compass_glu"}
    config = {"model": model, "num_envs": 2, "rollout_length": 32, "minibatch_size": 32, "seed": 0}
    algo = PPO(Steering, config, catalog=catalog())
    before = algo.policy.model.get_weights()
    result = algo.train()
    assert result["timesteps_total"] == 64
    assert any(
        np.any(before[name] != value) for name, value in algo.policy.model.get_weights().items()
    )


def test_broken_variant_is_reported_and_harms_nobody():
    spec = importlib.util.spec_from_file_location(
        "broken_plugin", Path(__file__).with_name("broken_plugin.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    entry = PluginEntryPoint(module, "example-compass")
    with pytest.warns(
        PluginWarning, match="'rlcatalog_model' is not one of rlcatalog's hooks. Did you mean"
    ):
        found = isolated_catalog(entry, *INSTALLED)
    assert [r.status for r in found.plugins if r.distribution == "example-compass"] == ["failed"]
    assert rlcatalog.build(gym.spaces.Box(-1, 1, (4,)), ACTIONS, catalog=found).act(
        np.zeros((1, 4), np.float32)
    ).logp.shape == (1,)
    with pytest.raises(DeclarationError, match="rlcatalog_model"):
        isolated_catalog(entry, environ={"RLCATALOG_STRICT_PLUGINS": "1"})


def test_keeps_the_contracts():
    ended = check_plugin("example-compass", catalog=catalog())
    assert sum(outcome.status == "passed" for outcome in ended) > 40
