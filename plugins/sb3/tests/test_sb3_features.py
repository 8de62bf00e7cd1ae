"""`CatalogExtractor`: catalog trunks under DQN, SAC and TD3."""

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


class RandomEnv(gym.Env):
    """Random observations, which it records; pays for small actions, in episodes of ten steps."""

    def __init__(self, observation_space, action_space):
        self.observation_space = observation_space
        self.action_space = action_space
        self.observations = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self._observe(), float(-np.abs(action).sum()), False, self.steps == 10, {}

    def _observe(self):
        self.observations.append(self.observation_space.sample())
        return self.observations[-1]


def extractor_kwargs(config):
    """Return the `policy_kwargs` for a trunk with a model config."""
    return {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {"model_config": config},
    }


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
#: Spaces with a config, and whether for_sb3 flattens them.
CASES = []
for name, (space, config) in OBSERVATIONS.items():
    CASES.append(pytest.param(space, config, True, id=f"{name}-flat"))
    if name != "choice with an offset":  # rejected, see below
        CASES.append(pytest.param(space, config, False, id=f"{name}-own"))


def make_dqn(env, config, *, normalize_images=True):
    """Return DQN whose Q-values are one linear layer after a catalog trunk."""
    policy_name = "MultiInputPolicy" if isinstance(env.observation_space, Dict) else "MlpPolicy"
    return DQN(
        policy_name,
        env,
        policy_kwargs={
            **extractor_kwargs(config),
            "normalize_images": normalize_images,
            "net_arch": [],
        },
        learning_starts=4,
        buffer_size=50,
        train_freq=1,
        device="cpu",
        seed=0,
    )


@pytest.mark.grid
@pytest.mark.parametrize("normalize_images", [True, False], ids=["scaled", "unscaled"])
@pytest.mark.parametrize(("observation_space", "config", "flatten"), CASES)
def test_q_values_equal_those_of_the_same_catalog_model(
    observation_space, config, flatten, normalize_images
):
    observation_space.seed(0)
    env = RandomEnv(observation_space, Discrete(3))
    shown_env = for_sb3(env, config) if flatten else env
    dqn = make_dqn(shown_env, config, normalize_images=normalize_images)
    dqn.learn(8)
    first_six = dqn.replay_buffer._get_samples(np.arange(6)).observations

    with torch.no_grad():
        q_values = dqn.policy.q_net(first_six).numpy()

    # The catalog's model has the trunk, and the layer after it as its layer of logits.
    policy = rlcatalog.build(observation_space, Discrete(3), config)
    trunk = dqn.policy.q_net.features_extractor.trunk.get_weights()
    last_layer = dqn.policy.q_net.q_net[0]
    logits = {
        "outputs.logits.weight": last_layer.weight.detach().numpy(),
        "outputs.logits.bias": last_layer.bias.detach().numpy(),
    }
    weights = policy.model.get_weights()
    assert weights.keys() >= trunk.keys()
    policy.model.set_weights({**weights, **trunk, **logits})
    expected = policy.act(env.observations[:6]).dist_inputs
    np.testing.assert_allclose(q_values, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalize_images", [True, False], ids=["scaled", "unscaled"])
def test_extractor_rejects_choices_with_an_offset(normalize_images):
    env = RandomEnv(Discrete(5, start=2), Discrete(3))

    with pytest.raises(NotServedError, match="one-hots that start at 0") as caught:
        make_dqn(env, {"fcnet_hiddens": [16]}, normalize_images=normalize_images)

    assert "Wrap the environment: for_sb3(env" in str(caught.value)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [SAC, TD3])
@pytest.mark.parametrize("bounds", [{}, {"action_bounds": "clip"}], ids=["affine", "clip"])
def test_continuous_actions_are_within_their_bounds(algorithm, bounds):
    action_space = Box(np.array([-3, 0.5]), np.array([1, 0.75]), dtype=np.float64)
    env = RandomEnv(Dict({"a": Tuple([Box(-1, 1, (2,))])}), action_space)
    flat_env = for_sb3(env, {"fcnet_hiddens": [16], **bounds})
    model = algorithm(
        "MlpPolicy",
        flat_env,
        policy_kwargs={"features_extractor_class": CatalogExtractor, "net_arch": [8]},
        learning_starts=4,
        buffer_size=50,
        device="cpu",
        seed=0,
    )

    model.learn(12)

    predicted, _ = model.predict(model.env.reset(), deterministic=True)
    action = flat_env.flattening.act(predicted[0])
    assert action_space.contains(np.asarray(action))
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
    model = DQN(
        "MlpPolicy",
        for_sb3(Buttons()),
        policy_kwargs={**extractor_kwargs({"fcnet_hiddens": [16]}), "net_arch": []},
        gamma=0.0,
        learning_starts=50,
        learning_rate=1e-2,
        exploration_fraction=0.3,
        target_update_interval=50,
        device="cpu",
        seed=0,
    )

    model.learn(800)

    one_hots = np.eye(3, dtype=np.float32)
    actions = [int(model.predict(one_hot, deterministic=True)[0]) for one_hot in one_hots]
    assert actions == [0, 1, 2]
    last_episode = list(model.ep_info_buffer)[-1]
    assert last_episode["r"] > 6  # guessing gives 8 / 3


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
    before = weights_of_actor_trunk(model)

    model.learn(15)

    for name, array in weights_of_actor_trunk(model).items():
        assert not np.array_equal(array, before[name]), name


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
        del model.rlcatalog_rules  # files of earlier versions, which did not scale, lack it
    model.save(tmp_path / "model")

    loaded = DQN.load(tmp_path / "model")

    assert (loaded.q_net.features_extractor.trunk.scaled is None) == is_earlier
    assert (to_policy(loaded).model.scaled is None) == is_earlier
