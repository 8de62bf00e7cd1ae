"""`CatalogExtractor`: catalog trunks under DQN, SAC and TD3."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from random_observations import RandomObservations
from sb3_helpers import extractor_kwargs
from stable_baselines3 import DQN, SAC, TD3
from torch_weights import assert_every_weight_changed, copy_weights

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog_sb3 import CatalogExtractor, for_sb3, to_policy


class RandomEnv(RandomObservations):
    """Random observations, which it records; pays for small actions, in episodes of ten steps."""

    def __init__(self, observation_space, action_space):
        super().__init__(observation_space, action_space)
        self.observations = []

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observe(), float(-np.abs(action).sum()), False, self.steps == 10, {}

    def observe(self):
        self.observations.append(self.observation_space.sample())
        return self.observations[-1]


# --- features -------------------------------------------------------------------------------------

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
FLATTENED = [pytest.param(space, config, id=name) for name, (space, config) in OBSERVATIONS.items()]
NOT_FLATTENED = [case for case in FLATTENED if case.id != "choice with an offset"]  # is rejected


def make_dqn(env, config, *, normalize_images=True):
    """Return DQN whose Q-values are one linear layer after a catalog trunk."""
    policy_name = "MultiInputPolicy" if isinstance(env.observation_space, Dict) else "MlpPolicy"
    return DQN(
        policy_name,
        env,
        policy_kwargs=extractor_kwargs(config, normalize_images=normalize_images, net_arch=[]),
        learning_starts=4,
        buffer_size=50,
        train_freq=1,
        device="cpu",
        seed=0,
    )


def copy_q_net(dqn, policy):
    """Copy the weights of DQN's Q-net, a trunk and a layer, to a catalog policy."""
    trunk_weights = dqn.policy.q_net.features_extractor.trunk.get_weights()
    last_layer = dqn.policy.q_net.q_net[0]
    weights = policy.model.get_weights()
    assert weights.keys() >= trunk_weights.keys()
    weights = {**weights, **trunk_weights}
    weights["outputs.logits.weight"] = last_layer.weight.detach().numpy()
    weights["outputs.logits.bias"] = last_layer.bias.detach().numpy()
    policy.model.set_weights(weights)


def check_q_values(dqn, env, config):
    """Compare DQN's Q-values with the outputs of a catalog policy, for the first six observations
    of an environment.
    """
    dqn.learn(8)
    stored_observations = dqn.replay_buffer._get_samples(np.arange(6)).observations
    policy = rlcatalog.build(env.observation_space, env.action_space, config)
    copy_q_net(dqn, policy)

    q_values = dqn.policy.q_net(stored_observations).detach().numpy()

    expected = policy.act(env.observations[:6]).dist_inputs
    np.testing.assert_allclose(q_values, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.grid
@pytest.mark.parametrize(("observation_space", "config"), FLATTENED)
@pytest.mark.parametrize("normalize_images", [True, False], ids=["scaled", "unscaled"])
def test_q_values_equal_those_of_the_same_catalog_model(
    observation_space, config, normalize_images
):
    env = RandomEnv(observation_space, Discrete(3))
    dqn = make_dqn(for_sb3(env, config), config, normalize_images=normalize_images)

    check_q_values(dqn, env, config)


@pytest.mark.grid
@pytest.mark.parametrize(("observation_space", "config"), NOT_FLATTENED)
@pytest.mark.parametrize("normalize_images", [True, False], ids=["scaled", "unscaled"])
def test_q_values_are_equal_without_flattening(observation_space, config, normalize_images):
    env = RandomEnv(observation_space, Discrete(3))
    dqn = make_dqn(env, config, normalize_images=normalize_images)

    check_q_values(dqn, env, config)


def test_extractor_rejects_choices_with_an_offset():
    env = RandomEnv(Discrete(5, start=2), Discrete(3))

    with pytest.raises(NotServedError, match="one-hots that start at 0") as caught:
        make_dqn(env, {"fcnet_hiddens": [16]})

    assert "Wrap the environment: for_sb3(env" in str(caught.value)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [SAC, TD3])
@pytest.mark.parametrize("bounds", ["affine", "clip"])
def test_continuous_actions_are_within_their_bounds(algorithm, bounds):
    action_space = Box(np.array([-3, 0.5]), np.array([1, 0.75]), dtype=np.float64)
    env = RandomEnv(Box(-1, 1, (2,)), action_space)
    model = algorithm(
        "MlpPolicy",
        for_sb3(env, {"fcnet_hiddens": [16], "action_bounds": bounds}),
        policy_kwargs={"features_extractor_class": CatalogExtractor, "net_arch": [8]},
        learning_starts=4,
        buffer_size=50,
        device="cpu",
        seed=0,
    )

    model.learn(12)  # the environment raises an error at actions outside its space

    action = to_policy(model).act(np.zeros((1, 2), np.float32), explore=False).action
    assert action_space.contains(action[0])
    # The extractor has the config of the flattened environment: a layer of 16 units.
    assert model.policy.actor.features_extractor.features_dim == 16


class Buttons(RandomEnv):
    """Three buttons; the one that the observation shows pays 1. Episodes have eight steps."""

    def __init__(self):
        super().__init__(Discrete(3), Discrete(3))

    def step(self, action):
        reward = float(action == self.observations[-1])
        obs, _, terminated, _, info = super().step(action)
        return obs, reward, terminated, self.steps == 8, info


def test_dqn_learns_which_button_pays():
    # The observation shows which of three buttons pays 1. Episodes have eight steps.
    model = DQN(
        "MlpPolicy",
        for_sb3(Buttons()),
        policy_kwargs=extractor_kwargs({"fcnet_hiddens": [16]}, net_arch=[]),
        gamma=0.0,
        learning_starts=50,
        learning_rate=1e-2,
        exploration_fraction=0.3,
        target_update_interval=50,
        device="cpu",
        seed=0,
    )

    model.learn(800)

    button_shown_as_one_hot = np.eye(3, dtype=np.float32)
    actions, _ = model.predict(button_shown_as_one_hot, deterministic=True)
    assert actions.tolist() == [0, 1, 2]
    last_episode = model.ep_info_buffer[-1]
    assert last_episode["r"] > 6  # of at most 8; guessing returns 8 / 3


# --- saving ---------------------------------------------------------------------------------------


def make_sac():
    return SAC(
        "MlpPolicy",
        "Pendulum-v1",
        policy_kwargs=extractor_kwargs({"fcnet_hiddens": [16]}),
        learning_starts=5,
        device="cpu",
        seed=0,
    )


def weights_of_actor_trunk(model):
    return model.policy.actor.features_extractor.trunk.get_weights()


def test_training_changes_every_weight_of_the_extractor():
    model = make_sac()
    extractor = model.policy.actor.features_extractor
    weights_before = copy_weights(extractor)

    model.learn(15)

    assert_every_weight_changed(extractor, weights_before)


def test_saved_algorithm_has_the_weights_of_the_extractor(tmp_path):
    model = make_sac().learn(15)
    model.save(tmp_path / "model.zip")

    loaded = SAC.load(tmp_path / "model.zip", env=gym.make("Pendulum-v1"), device="cpu")

    expected = weights_of_actor_trunk(model)
    for name, array in weights_of_actor_trunk(loaded).items():
        np.testing.assert_array_equal(array, expected[name])
    loaded.learn(10)  # training goes on


class RandomBytes(gym.Env):
    """Random bytes, in episodes of one step."""

    observation_space = Box(0, 255, (6,), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, True, {}


@pytest.mark.parametrize("is_earlier", [False, True], ids=["this version", "earlier version"])
def test_loaded_extractor_scales_as_when_it_was_saved(tmp_path, is_earlier):
    kwargs = {"features_extractor_class": CatalogExtractor}
    model = DQN("MlpPolicy", RandomBytes(), policy_kwargs=kwargs, learning_starts=2).learn(4)
    if is_earlier:
        # Earlier versions did not scale bytes, and their files have no rules.
        del model.rlcatalog_rules
    model.save(tmp_path / "model")

    loaded = DQN.load(tmp_path / "model")

    # A model that does not scale has the scales None.
    scales_of_extractor = loaded.q_net.features_extractor.trunk.input_scaling
    scales_of_export = to_policy(loaded).model.input_scaling
    assert (scales_of_extractor is None) == is_earlier
    assert (scales_of_export is None) == is_earlier
