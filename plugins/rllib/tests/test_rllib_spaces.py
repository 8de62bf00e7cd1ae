"""Every kind of observation space, action space and mask in Ray's runners and learners."""

import platform

import gymnasium as gym
import numpy as np
import pytest
from action_kinds import ACTIONS as ACTION_SPACES, Anything
from gymnasium.spaces import Box, Dict, Text
from masked_env import MASKED, Masked
from observation_kinds import KINDS as OBSERVATION_SPACES, Emitter
from torch_weights import copy_weights

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import rlcatalog
from rlcatalog.errors import ActionMaskError, ConfigError, UnknownNameError
from rlcatalog_rllib import CatalogEnv, CatalogRLModule

# One config serves spaces of several kinds, which read different keys.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")


def assert_finite(module):
    for name, weight in module.named_parameters():
        assert weight.isfinite().all(), name


# --- observations ---------------------------------------------------------------------------------


class RecordingEmitter(Emitter):
    """Emits samples of a space, and records those of the last environment that was reset."""

    recorded = None

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        self.observations.append(obs)
        return obs, reward, terminated, truncated, info

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        if not hasattr(self, "observations"):
            self.observations = []
            RecordingEmitter.recorded = self.observations
        self.observations.append(obs)
        return obs, info


def encoded_observations(episode):
    """Return an episode's observations, without masks and views beside them."""
    obs = episode.get_observations()
    return obs["obs"] if isinstance(obs, dict) else obs


@pytest.mark.parametrize(("space", "model"), OBSERVATION_SPACES.values(), ids=OBSERVATION_SPACES)
def test_observations_are_stored_as_preprocessors_encode_them(rllib, space, model):
    config = rllib.configure(lambda: RecordingEmitter(space), model, num_envs=1, steps_per_env=13)

    episodes = rllib.make_runner(config).sample()

    # The environment's episodes have ten steps, so these have ten and three.
    first, second = [encoded_observations(episode) for episode in episodes]
    policy = rlcatalog.build(space, Emitter.action_space, {"fcnet_hiddens": [8], **model})
    expected = policy.preprocess(RecordingEmitter.recorded)
    np.testing.assert_allclose(np.concatenate([first, second]), expected, rtol=1e-6)
    assert first.dtype == expected.dtype


@pytest.mark.parametrize(
    "kind",
    # Encoded observations of the other kinds have the same form.
    [
        "box of rank 1",
        "box of rank 3, bytes",
        "discrete",
        "sequence",
        "dict",
        "all in one",
        "discrete, embedded",
        "dict, embedded",
        "repeated, embedded",
    ],
)
def test_learner_trains_on_encoded_observations(rllib, kind):
    space, model = OBSERVATION_SPACES[kind]
    config = rllib.configure(lambda: Emitter(space), model, num_envs=1, steps_per_env=13)
    runner, learner, module = rllib.make_training(config)
    weights_before = copy_weights(module)

    rllib.update(learner, runner.sample())

    weights = copy_weights(module)
    assert any(not weights[name].equal(before) for name, before in weights_before.items())
    assert_finite(module)


# --- actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action_space", "model"), ACTION_SPACES.values(), ids=ACTION_SPACES)
def test_raw_actions_are_stored_and_trained_on(rllib, action_space, model):
    # The divergence of this distribution has no closed form.
    use_kl_loss = model != {"custom_action_dist": "gumbel_softmax"}
    config = rllib.configure(lambda: Anything(action_space), model, use_kl_loss=use_kl_loss)
    runner, learner, module = rllib.make_training(config)

    episodes = runner.sample()  # the environment rejects actions outside the space
    rllib.update(learner, episodes)

    codec = module.policy.action_codec
    for episode in episodes:
        raw_actions = episode.get_actions()
        if codec.scalar:
            assert raw_actions.shape == (len(episode),)
        else:
            assert raw_actions.shape == (len(episode), codec.width)
    assert_finite(module)


class RecordingEnv(Anything):
    """Takes any action of a space, and records it."""

    actions = None

    def step(self, action):
        RecordingEnv.actions.append(np.array(action))
        return super().step(action)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"normalize_actions": True}, id="Ray would scale"),
        pytest.param({"normalize_actions": False, "clip_actions": True}, id="Ray would clip"),
    ],
)
def test_ray_neither_scales_nor_clips_sampled_actions(rllib, settings):
    RecordingEnv.actions = []
    space = Box(np.array([-2, 0.5], np.float32), np.array([3, 20], np.float32))
    # This distribution samples within the bounds.
    model = {"custom_action_dist": "squashed_gaussian"}
    config = rllib.configure(lambda: RecordingEnv(space), model, num_envs=1)
    config.environment(**settings)

    (episode,) = rllib.make_runner(config).sample(num_timesteps=7)

    sampled_actions = episode.get_actions()
    np.testing.assert_allclose(RecordingEnv.actions, sampled_actions, rtol=1e-6)


# --- masks ----------------------------------------------------------------------------------------


def configure_masked_env(rllib, kind, model):
    """Return a config with two environments, which raise an error at a forbidden action."""
    return rllib.configure(lambda: Masked(kind), model, num_envs=2, steps_per_env=30)


def join_masks(episodes):
    masks = [episode.get_observations(slice(0, len(episode)))["mask"] for episode in episodes]
    return np.concatenate(masks)


LSTM = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}
each_masked_space = pytest.mark.parametrize(
    ("kind", "model"),
    [
        *(pytest.param(kind, {}, id=kind) for kind in MASKED),
        pytest.param("discrete", LSTM, id="discrete, lstm"),
        pytest.param("dict", LSTM, id="dict, lstm"),
    ],
)


@each_masked_space
def test_masks_are_obeyed_stored_and_trained_with(rllib, kind, model):
    config = configure_masked_env(rllib, kind, model)
    runner, learner, module = rllib.make_training(config)

    episodes = runner.sample()

    masks = join_masks(episodes)
    assert masks.shape[1] == module.policy.masks.size
    assert 0 < masks.mean() < 1
    rllib.update(learner, episodes)
    assert_finite(module)


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        pytest.param("discrete", {}, id="discrete"),
        pytest.param("discrete", LSTM, id="discrete, lstm"),
        pytest.param("discrete, mask of floats", {}, id="discrete, mask of floats"),
        pytest.param("multi_discrete", {}, id="multi_discrete"),
        pytest.param("multi_discrete, mask in a row", {}, id="multi_discrete, mask in a row"),
    ],
)
def test_stored_logits_of_forbidden_choices_are_minus_infinity(rllib, kind, model):
    episodes = rllib.make_runner(configure_masked_env(rllib, kind, model)).sample()

    logits = np.concatenate(
        [episode.get_extra_model_outputs("action_dist_inputs") for episode in episodes]
    )

    # They are the lowest float32 or nearly so.
    assert ((logits < -1e38) == (join_masks(episodes) == 0)).all()


class EnvWithEmptyMasks(Masked):
    """Allows no action in the last steps of an episode of ten steps.

    Args:
        last_steps: Number of steps before the end without an allowed action, where 0 means only
            the last observation.
        with_text: Whether observations contain a text, which Ray cannot batch; then rlcatalog
            encodes observations inside the environment instead of in a connector.
    """

    def __init__(self, last_steps, with_text):
        super().__init__("discrete")
        self.last_steps = last_steps
        self.with_text = with_text
        if with_text:
            self.observation_space = Dict({**self.observation_space.spaces, "word": Text(3)})

    def _look(self):
        obs = super()._look()
        if self.left <= self.last_steps:
            obs["action_mask"] = obs["action_mask"] * 0
        if self.with_text:
            obs["word"] = "abc"
        return obs


@pytest.mark.parametrize("with_text", [False, True], ids=["connector", "environment"])
def test_last_observation_may_allow_no_action(rllib, with_text):
    config = rllib.configure(lambda: EnvWithEmptyMasks(last_steps=0, with_text=with_text))

    episodes = rllib.make_runner(config).sample(num_timesteps=40)

    assert sum(episode.is_done for episode in episodes) >= 2


def test_other_observations_must_allow_an_action(rllib):
    config = rllib.configure(lambda: EnvWithEmptyMasks(last_steps=3, with_text=False))
    runner = rllib.make_runner(config)

    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        runner.sample(num_timesteps=40)


def test_observations_with_a_text_must_allow_an_action(rllib):
    # Ray cannot batch texts, so rlcatalog encodes these observations inside the environment.
    # In the last three steps of an episode, their masks allow no action.
    config = rllib.configure(lambda: EnvWithEmptyMasks(last_steps=3, with_text=True))
    runner = rllib.make_runner(config)

    # Ray raises its own error, whose cause is the environment's.
    with pytest.raises(RuntimeError) as caught:
        runner.sample(num_timesteps=40)

    error = caught.value.__cause__
    assert isinstance(error, ActionMaskError)
    assert "row 0 allows no action" in str(error)


# --- environments and modules ---------------------------------------------------------------------


def test_wrappers_of_rlcatalog_atari_are_applied(rllib):
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    pytest.importorskip("rlcatalog_atari", reason="rlcatalog-atari is not installed")
    config = rllib.configure("ale_py:ALE/Pong-v5", {"dim": 42}, num_envs=1)

    (episode,) = rllib.make_runner(config).sample(num_timesteps=6)

    # Seven observations of four gray frames, shrunk to 42 x 42.
    assert encoded_observations(episode).shape == (7, 42, 42, 4)


def test_unknown_environment_error_names_the_node():
    with pytest.raises(UnknownNameError, match=platform.node()):
        CatalogEnv({"env": "Nowhere-v0", "model": {}})


def test_module_without_connectors_names_configure():
    env = gym.make("CartPole-v1")

    with pytest.raises(ConfigError, match=r"\.configure.*env_to_module_connector"):
        CatalogRLModule(
            observation_space=env.observation_space, action_space=env.action_space, model_config={}
        )
