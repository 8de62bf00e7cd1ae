"""Real environments through wrappers, preprocessor and filter, single and in vector
environments.
"""

import contextlib

import gymnasium as gym
import numpy as np
import pytest
import slow_codec
from builders import assert_every_weight_changed
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcatalog
from rlcatalog.errors import CatalogWarning
from rlcatalog_ppo import PPO

# One config serves parts of every kind here.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

some_steps = pytest.mark.parametrize("steps", [40, pytest.param(1000, marks=pytest.mark.slow)])


def plain(env_id):
    return pytest.param(env_id, {}, {}, id=env_id)


def breakout(obs_type, preprocessor_pref, **options):
    config = {"preprocessor_pref": preprocessor_pref, "filter_include": ["obs"]}
    label = f"Breakout {obs_type}, {preprocessor_pref}"
    arguments = {"obs_type": obs_type}
    return pytest.param("ale_py:ALE/Breakout-v5", arguments, config, id=label, **options)


each_environment = pytest.mark.parametrize(
    ("env_id", "arguments", "keys"),
    [
        plain("CartPole-v1"),
        plain("Pendulum-v1"),
        plain("Taxi-v4"),
        plain("Blackjack-v1"),
        plain("FrozenLake-v1"),
        plain("HalfCheetah-v5"),
        pytest.param(
            "minigrid:MiniGrid-DoorKey-5x5-v0",
            {},
            # A text and an image, which is the only part that can be filtered.
            {"text_max_length": 60, "filter_include": ["obs['image']"]},
            id="MiniGrid",
        ),
        breakout("rgb", "deepmind"),
        breakout("ram", "rllib"),
        breakout("ram", None, marks=pytest.mark.slow),
        breakout("rgb", "rllib", marks=pytest.mark.slow),
        breakout("rgb", None, marks=pytest.mark.slow),
        breakout("ram", "deepmind", marks=pytest.mark.slow),
    ],
)


@pytest.fixture
def config(keys):
    return {
        "observation_filter": "MeanStdFilter",
        "check_observations": "always",
        "fcnet_hiddens": [1],
        **keys,
    }


def build(env, config, env_id):
    """Build a policy; it warns if observations are only one-hots, which are not filtered."""
    if env_id in ("Taxi-v4", "Blackjack-v1", "FrozenLake-v1"):
        expected = pytest.warns(CatalogWarning, match="has nothing to filter")
    else:
        expected = contextlib.nullcontext()
    with expected:
        return rlcatalog.build(env=env, config=config)


# --- encoding -------------------------------------------------------------------------------------


def encode_slowly(space, obs, config):
    """Return what a slow and simple preprocessor makes of an observation."""
    if isinstance(space, gym.spaces.Box):  # an array that is no part of a structure is kept
        return np.asarray(obs, space.dtype)
    return np.array(slow_codec.encoded(space, obs, config), np.float32)


def play(env, steps):
    """Yield the observations of random actions; begin a new episode after each one."""
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        yield obs
        obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()


def play_vector(envs, steps):
    """Yield the batches of observations of random actions."""
    envs.action_space.seed(0)
    obs, _ = envs.reset(seed=0)
    for _ in range(steps):
        yield obs
        obs, *_ = envs.step(envs.action_space.sample())
    envs.close()


@pytest.fixture
def single(env_id, arguments, config):
    """A policy, and the environment that it wraps."""
    env = gym.make(env_id, **arguments)
    policy = build(env, config, env_id)
    return policy, policy.wrap_env(env)


@pytest.fixture
def vector(env_id, arguments, config):
    """A policy, and four environments side by side, which it needs not wrap."""

    def make_env():
        return rlcatalog.wrap_env(gym.make(env_id, **arguments), config, move_masks=False)

    envs = SyncVectorEnv([make_env] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    return build(envs, config, env_id), envs


@some_steps
@each_environment
def test_encoding_is_that_of_a_slow_codec(single, config, steps):
    policy, env = single
    for obs in play(env, steps):
        encoded = policy.preprocessor.transform(obs)

        expected = encode_slowly(env.observation_space, obs, config)
        np.testing.assert_array_equal(encoded, expected)
        assert policy.preprocessor.observation_space.contains(encoded)


@some_steps
@each_environment
def test_batch_encoding_is_that_of_a_slow_codec(vector, config, steps):
    policy, envs = vector
    for obs in play_vector(envs, steps // 4):
        encoded = policy.preprocessor.transform_batch(obs)

        rows = gym.vector.utils.iterate(envs.observation_space, obs)
        for encoded_row, row in zip(encoded, rows, strict=True):
            expected = encode_slowly(envs.single_observation_space, row, config)
            np.testing.assert_array_equal(encoded_row, expected)


# --- filtering ------------------------------------------------------------------------------------


def find_numeric_columns(policy):
    """Return which columns of an encoded observation the filter changes: those of Boxes."""
    columns = np.zeros(policy.preprocessor.size, bool)
    for leaf in policy.preprocessor.leaves():
        columns[leaf.start : leaf.stop] = leaf.kind == "box"
    return np.flatnonzero(columns)


def normalise(columns, history, rows):
    """Normalise some columns of rows `[B, n]` by the mean and deviation of a history `[N, n]`."""
    expected = rows.astype(np.float64)
    pieces = max(1, len(columns) // 4096)  # an image in float64 needs too much memory
    for piece in np.array_split(columns, pieces):
        past = history[:, piece].astype(np.float64)
        deviation = past.std(axis=0, ddof=1) + 1e-6
        expected[:, piece] = (expected[:, piece] - past.mean(axis=0)) / deviation
    expected[:, columns] = expected[:, columns].clip(-10, 10)
    return expected


@some_steps
@each_environment
def test_filter_normalises_by_what_it_saw(single, steps):
    policy, env = single
    columns = find_numeric_columns(policy)
    history = []
    for t, obs in enumerate(play(env, steps), start=1):
        history.append(policy.preprocessor.transform(obs).reshape(1, -1))

        filtered = policy.preprocess([obs], update=True)

        assert filtered.dtype == np.float32
        assert policy.encoded_space.contains(filtered[0])
        if t % 120 == 0 or t == steps:  # not in every step, because this is slow
            # The mean and the deviation are those of all observations so far.
            expected = normalise(columns, np.concatenate(history), rows=history[-1])
            np.testing.assert_allclose(filtered.reshape(1, -1), expected, rtol=1e-4, atol=1e-4)


@some_steps
@each_environment
def test_filter_of_batches_normalises_by_what_it_saw(vector, steps):
    policy, envs = vector
    columns = find_numeric_columns(policy)
    history = []
    for obs in play_vector(envs, steps // 4):  # four environments at once
        history.append(policy.preprocessor.transform_batch(obs).reshape(4, -1))

        filtered = policy.preprocess(obs, update=True)

        assert all(policy.encoded_space.contains(row) for row in filtered)
    # The mean and the deviation are those of all observations so far.
    expected = normalise(columns, np.concatenate(history), rows=history[-1])
    np.testing.assert_allclose(filtered.reshape(4, -1), expected, rtol=1e-4, atol=1e-4)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model_config", "shape"),
    [
        ({"preprocessor_pref": "deepmind"}, (42, 42, 4)),  # four grey frames
        (
            {
                "preprocessor_pref": "rllib",
                "observation_filter": "MeanStdFilter",
                "filter_include": ["obs"],
            },
            (42, 42, 3),  # three colours
        ),
    ],
)
def test_ppo_trains_on_wrapped_images(model_config, shape):
    config = {
        "model": {"fcnet_hiddens": [8], "dim": 42, **model_config},
        "num_envs": 2,
        "rollout_length": 8,
        "minibatch_size": 16,
        "num_epochs": 1,
        "seed": 0,
    }
    algo = PPO("ale_py:ALE/Breakout-v5", config)
    assert algo.policy.observation_space.shape == shape
    before = algo.policy.model.get_weights()

    algo.train()

    assert_every_weight_changed(before, algo.policy.model.get_weights())
    algo.stop()
