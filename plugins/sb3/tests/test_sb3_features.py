"""`CatalogExtractor` under DQN, SAC and TD3: what reaches the trunk is what the
environment emits.
"""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from stable_baselines3 import DQN, SAC, TD3

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog_sb3 import CatalogExtractor, for_sb3, to_policy

IMAGE = Box(0, 255, (12, 10, 3), np.uint8)
CONVS = {"conv_filters": [[4, 3, 2], [8, 4, 1]], "conv_flatten": True}
SMALL = {"fcnet_hiddens": [16]}

OBSERVATIONS = {
    "vector": (Box(-1, 1, (3,), np.float64), SMALL),
    "choice": (Discrete(5), SMALL),
    "choice with an offset": (Discrete(5, start=2), SMALL),
    "choices": (MultiDiscrete([2, 3]), SMALL),
    "bits": (MultiBinary(3), SMALL),
    "image": (IMAGE, CONVS),
    "image, another scale": (IMAGE, {**CONVS, "image_scale": 0.5}),
    "image, channels first": (Box(0, 255, (3, 12, 10), np.uint8), {**CONVS, "image_layout": "chw"}),
    "image of floats": (Box(0, 1, (12, 10, 3)), CONVS),
    "dict with image": (
        Dict({"i": IMAGE, "n": Discrete(3), "x": Box(-1, 1, (2,))}),
        {**CONVS, **SMALL},
    ),
}


class Emits(gym.Env):
    """Random observations; pays for small actions."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space, self.seen = observation_space, action_space, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return self._look(), float(-np.abs(action).sum()), False, self.t == 10, {}

    def _look(self):
        self.seen.append(self.observation_space.sample())
        return self.seen[-1]


@pytest.mark.grid
@pytest.mark.parametrize("normalize_images", [True, False], ids=["scaled", "unscaled"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["own", "flat"])
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_features_equal_those_of_the_same_trunk_in_rlcatalog(name, wrapped, normalize_images):
    space, config = OBSERVATIONS[name]
    space.seed(0)
    env = Emits(space, Discrete(3))
    kwargs = {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {"model_config": config},
        "normalize_images": normalize_images,
        "net_arch": [],
    }
    shown = for_sb3(env, config) if wrapped else env
    policy = "MlpPolicy" if wrapped or not isinstance(space, Dict) else "MultiInputPolicy"
    if "offset" in name and not wrapped:
        with pytest.raises(
            NotServedError, match=r"one-hots that start at 0. Wrap the environment: for_sb3\(env"
        ):
            DQN(policy, shown, policy_kwargs=kwargs, device="cpu")
        return
    model = DQN(
        policy,
        shown,
        policy_kwargs=kwargs,
        learning_starts=4,
        buffer_size=50,
        train_freq=1,
        device="cpu",
        seed=0,
    )
    model.learn(8)
    own = rlcatalog.build(space, Discrete(3), config)
    weights = own.model.get_weights()
    trunk = model.policy.q_net.features_extractor.trunk.get_weights()
    assert set(trunk) <= set(weights)
    head = model.policy.q_net.q_net[0]
    logits = {
        "outputs.logits.weight": head.weight.detach().numpy(),
        "outputs.logits.bias": head.bias.detach().numpy(),
    }
    own.model.set_weights({**weights, **trunk, **logits})
    stored = model.replay_buffer._get_samples(np.arange(6)).observations
    with torch.no_grad():
        found = model.policy.q_net(stored).numpy()
    np.testing.assert_allclose(found, own.act(env.seen[:6]).dist_inputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", [SAC, TD3])
@pytest.mark.parametrize("config", [{}, {"action_bounds": "clip"}])
def test_continuous_actions_arrive_in_their_bounds(algorithm, config):
    env = Emits(
        Dict({"a": Tuple([Box(-1, 1, (2,))])}),
        Box(np.array([-3, 0.5]), np.array([1, 0.75]), dtype=np.float64),
    )
    kwargs = {"features_extractor_class": CatalogExtractor, "net_arch": [8]}
    shown = for_sb3(env, {**SMALL, **config})
    model = algorithm(
        "MlpPolicy",
        shown,
        policy_kwargs=kwargs,
        learning_starts=4,
        buffer_size=50,
        device="cpu",
        seed=0,
    )
    model.learn(12)
    taken = np.stack(
        [shown.flattening.act(a) for a in model.predict(model.env.reset(), deterministic=True)[0]]
    )
    assert env.action_space.contains(taken[0])
    assert model.policy.actor.features_extractor.features_dim == 16


def test_dqn_learns_which_action_pays_a_little():
    """The button shown pays 1; guessing gets 8 / 3."""

    class Button(Emits):
        def step(self, action):
            right = float(action == self.seen[-1])
            obs, _, terminated, _, info = super().step(action)
            return obs, right, terminated, self.t == 8, info

    kwargs = {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {"model_config": SMALL},
        "net_arch": [],
    }
    model = DQN(
        "MlpPolicy",
        for_sb3(Button(Discrete(3), Discrete(3, start=0))),
        policy_kwargs=kwargs,
        gamma=0.0,
        learning_starts=50,
        learning_rate=1e-2,
        exploration_fraction=0.3,
        target_update_interval=50,
        device="cpu",
        seed=0,
    )
    model.learn(800)
    assert [
        int(model.predict(np.eye(3, dtype=np.float32)[i], deterministic=True)[0]) for i in range(3)
    ] == [0, 1, 2]
    assert list(model.ep_info_buffer)[-1]["r"] > 6


def test_the_extractors_weights_are_trained_and_saved(tmp_path):
    kwargs = {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {"model_config": SMALL},
    }
    model = SAC(
        "MlpPolicy", "Pendulum-v1", policy_kwargs=kwargs, learning_starts=5, device="cpu", seed=0
    )
    before = model.policy.actor.features_extractor.trunk.get_weights()
    model.learn(15)
    after = model.policy.actor.features_extractor.trunk.get_weights()
    assert not any(np.array_equal(before[name], after[name]) for name in before)
    model.save(tmp_path / "model.zip")
    loaded = SAC.load(tmp_path / "model.zip", env=gym.make("Pendulum-v1"), device="cpu")
    for name, value in loaded.policy.actor.features_extractor.trunk.get_weights().items():
        np.testing.assert_array_equal(value, after[name])
    loaded.learn(10)


class Bytes(gym.Env):
    """Shows random bytes."""

    observation_space = Box(0, 255, (6,), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, True, {}


@pytest.mark.parametrize("is_earlier", [False, True], ids=["today's file", "an earlier file"])
def test_loaded_extractor_scales_as_it_did(tmp_path, is_earlier):
    kwargs = {"features_extractor_class": CatalogExtractor}
    model = DQN("MlpPolicy", Bytes(), policy_kwargs=kwargs, learning_starts=2).learn(4)
    if is_earlier:
        del model.rlcatalog_rules  # files of earlier versions, which did not scale, lack it
    model.save(tmp_path / "model")

    loaded = DQN.load(tmp_path / "model")

    assert (loaded.q_net.features_extractor.trunk.scaled is None) == is_earlier
    assert (to_policy(loaded).model.scaled is None) == is_earlier
