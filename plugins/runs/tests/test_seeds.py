"""Seeds derived from a run's seed, against NumPy's `SeedSequence` by hand."""

import tomllib
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import SyncVectorEnv

from rlcatalog.errors import ConfigError
from rlcatalog_runs.seeds import SeedStream, derive_env_seeds, derive_seed

DATA = Path(__file__).parents[3] / "docs/seed_streams.toml"
STREAMS = tomllib.loads(DATA.read_text(encoding="utf-8"))["streams"]


def by_hand(seed, number, child):
    """Return the seed of a child of stream `number`, spawned one after another."""
    stream = np.random.SeedSequence(seed).spawn(len(STREAMS))[number]
    return int(stream.spawn(child + 1)[child].generate_state(1)[0]) >> 1


def test_streams_have_the_documented_order():
    assert [stream.name.lower() for stream in SeedStream] == [row["name"] for row in STREAMS]


@pytest.mark.parametrize("number", range(len(STREAMS)), ids=[row["name"] for row in STREAMS])
def test_stream_has_numpys_seeds(number):
    assert [derive_seed(seed, SeedStream(number)) for seed in (0, 1)] == STREAMS[number]["values"]
    for seed in (0, 1, 2**32 - 1):
        for child in (0, 1, 100):
            assert derive_seed(seed, SeedStream(number), child) == by_hand(seed, number, child)


def test_no_seed_stays_random():
    envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    assert derive_seed(None, SeedStream.FRAMEWORK) is None
    assert derive_env_seeds(None, SeedStream.ENVIRONMENTS, envs) is None


@pytest.mark.parametrize("seed", [-1, 0.5, "0"])
def test_impossible_seed_is_refused(seed):
    with pytest.raises(ConfigError, match="seed: expected an integer of at least 0"):
        derive_seed(seed, SeedStream.ENVIRONMENTS)


@pytest.mark.parametrize("n", [1, 3])
def test_environments_have_a_child_each(n):
    envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * n)
    seeds = derive_env_seeds(4, SeedStream.EVALUATION, envs)
    assert seeds == [by_hand(4, 1, i) for i in range(n)]
    envs.reset(seed=seeds)
    assert list(envs.get_attr("np_random_seed")) == seeds


def test_other_vector_classes_get_one_seed():
    envs = CartPoleVectorEnv(num_envs=3)  # `reset` takes an integer only
    seed = derive_env_seeds(4, SeedStream.ENVIRONMENTS, envs)
    assert seed == by_hand(4, 0, 0)
    envs.reset(seed=seed)
