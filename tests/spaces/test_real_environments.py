"""Real environments, hundreds of steps each through wrappers, preprocessor and filter, single and
side by side.
"""

import contextlib

import gymnasium as gym
import numpy as np
import pytest
import slow_codec
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcatalog
from rlcatalog.errors import CatalogWarning
from rlcatalog_ppo import PPO

# One config serves parts of every kind here.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

SIDE_BY_SIDE = 4
some_steps = pytest.mark.parametrize("steps", [40, pytest.param(1000, marks=pytest.mark.attack)])
#: Of MiniGrid, whose image is the only quantity that could be filtered.
MISSIONS = {"text_max_length": 60, "filter_include": ["obs['image']"]}


def breakout(kind, pref, **more):
    return pytest.param(
        "ale_py:ALE/Breakout-v5",
        {"obs_type": kind},
        {"preprocessor_pref": pref, "filter_include": ["obs"]},
        id=f"Breakout {kind}, {pref}",
        **more,
    )


CASES = [
    *(
        pytest.param(name, {}, {}, id=name)
        for name in (
            "CartPole-v1",
            "Pendulum-v1",
            "Taxi-v4",
            "Blackjack-v1",
            "FrozenLake-v1",
            "HalfCheetah-v5",
        )
    ),
    pytest.param("minigrid:MiniGrid-DoorKey-5x5-v0", {}, MISSIONS, id="MiniGrid"),
    breakout("rgb", "deepmind"),
    breakout("ram", "rllib"),
    *(
        breakout(kind, pref, marks=pytest.mark.attack)
        for kind, pref in (("ram", None), ("rgb", "rllib"), ("rgb", None), ("ram", "deepmind"))
    ),
]


def config_of(keys):
    return {
        "observation_filter": "MeanStdFilter",
        "check_observations": "always",
        "fcnet_hiddens": [1],
        **keys,
    }


def build(env, config, name):
    """Build a policy; a filter that finds one-hots alone says so."""
    idle = name in ("Taxi-v4", "Blackjack-v1", "FrozenLake-v1")
    expected = (
        pytest.warns(CatalogWarning, match="has nothing to filter")
        if idle
        else contextlib.nullcontext()
    )
    with expected:
        return rlcatalog.build(env=env, config=config)


def numeric(policy):
    """Which columns of an encoded observation the filter works on: those of boxes of numbers."""
    columns = np.zeros(policy.preprocessor.size, bool)
    for leaf in policy.preprocessor.leaves():
        columns[leaf.start : leaf.stop] = leaf.kind == "box"
    return columns


def filtered_by_hand(columns, history, rows):
    """Normalise the numeric columns of rows `[B, n]` by what was seen, `[N, n]`; columns in pieces,
    for memory.
    """
    expected = rows.astype(np.float64)
    places = np.flatnonzero(columns)
    for piece in np.array_split(places, max(1, len(places) // 4096)):
        seen = history[:, piece].astype(np.float64)
        expected[:, piece] = (expected[:, piece] - seen.mean(axis=0)) / (
            seen.std(axis=0, ddof=1) + 1e-6
        )
    expected[:, places] = expected[:, places].clip(-10, 10)
    return expected


def by_the_reference(space, obs, config):
    if isinstance(space, gym.spaces.Box):  # at the root an array stays as it is
        return np.asarray(obs, space.dtype)
    return np.array(slow_codec.encoded(space, obs, config), np.float32)


@some_steps
@pytest.mark.parametrize(("name", "arguments", "keys"), CASES)
def test_single(name, arguments, keys, steps):
    config = config_of(keys)
    raw = gym.make(name, **arguments)
    policy = build(raw, config, name)
    env = policy.wrap_env(raw)
    space, columns = env.observation_space, numeric(policy)
    history = np.empty(
        (steps, policy.preprocessor.size), policy.preprocessor.observation_space.dtype
    )
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    for t in range(steps):
        encoded = policy.preprocessor.transform(obs)
        np.testing.assert_array_equal(encoded, by_the_reference(space, obs, config))
        assert policy.preprocessor.observation_space.contains(encoded)
        history[t] = encoded.ravel()
        filtered = policy.preprocess([obs], update=True)
        assert filtered.dtype == np.float32
        assert policy.encoded_space.contains(filtered[0])
        if t % 120 == 119 or t == steps - 1:
            expected = filtered_by_hand(columns, history[: t + 1], history[t : t + 1])
            np.testing.assert_allclose(filtered.reshape(1, -1), expected, rtol=1e-4, atol=1e-4)
        obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()


@some_steps
@pytest.mark.parametrize(("name", "arguments", "keys"), CASES)
def test_side_by_side(name, arguments, keys, steps):
    config = config_of(keys)

    def make():
        return rlcatalog.wrap_env(gym.make(name, **arguments), config, move_masks=False)

    envs = SyncVectorEnv([make] * SIDE_BY_SIDE, autoreset_mode=AutoresetMode.SAME_STEP)
    policy = build(envs, config, name)
    space, columns, history = envs.single_observation_space, numeric(policy), []
    envs.action_space.seed(0)
    obs, _ = envs.reset(seed=0)
    for _ in range(steps // SIDE_BY_SIDE):
        encoded = policy.preprocessor.transform_batch(obs)
        rows = list(gym.vector.utils.iterate(envs.observation_space, obs))
        for one, row in zip(encoded, rows, strict=True):
            np.testing.assert_array_equal(one, by_the_reference(space, row, config))
        history.append(encoded.reshape(SIDE_BY_SIDE, -1))
        filtered = policy.preprocess(obs, update=True)
        assert all(policy.encoded_space.contains(row) for row in filtered)
        obs, *_ = envs.step(envs.action_space.sample())
    expected = filtered_by_hand(columns, np.concatenate(history), history[-1])
    np.testing.assert_allclose(filtered.reshape(SIDE_BY_SIDE, -1), expected, rtol=1e-4, atol=1e-4)
    assert np.isfinite(policy.act(obs).logp).all()
    envs.close()


@pytest.mark.parametrize(
    ("keys", "shape"),
    [
        ({}, (42, 42, 4)),
        pytest.param({"framestack": False}, (42, 42, 1), marks=pytest.mark.attack),
        pytest.param({"preprocessor_pref": "rllib"}, (42, 42, 3), marks=pytest.mark.attack),
        (
            {
                "preprocessor_pref": "rllib",
                "observation_filter": "MeanStdFilter",
                "filter_include": ["obs"],
            },
            (42, 42, 3),
        ),
    ],
)
def test_ppo_trains_on_what_the_wrappers_make(keys, shape):
    config = {"num_envs": 2, "rollout_length": 8, "minibatch_size": 16, "num_epochs": 1, "seed": 0}
    algo = PPO(
        "ale_py:ALE/Breakout-v5", {**config, "model": {"fcnet_hiddens": [8], "dim": 42, **keys}}
    )
    assert algo.policy.observation_space.shape == shape
    before = algo.policy.model.get_weights()
    loss = algo.train()["info"]["learner"]["policy_loss"]
    after = algo.policy.model.get_weights()
    algo.stop()
    assert np.isfinite(loss)
    assert sorted(name for name in before if np.array_equal(before[name], after[name])) == []
