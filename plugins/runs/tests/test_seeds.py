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


def derive_with_numpy(seed, *, stream, child):
    """Return the seed of a child of a stream, both by number, from NumPy's `SeedSequence`."""
    streams = np.random.SeedSequence(seed).spawn(len(STREAMS))
    children = streams[stream].spawn(child + 1)
    [number] = children[child].generate_state(1)
    return int(number) >> 1  # 31 bits


def make_cartpole():
    return gym.make("CartPole-v1")


def test_streams_have_the_documented_order():
    assert [stream.name.lower() for stream in SeedStream] == [row["name"] for row in STREAMS]


@pytest.mark.parametrize("number", range(len(STREAMS)), ids=[row["name"] for row in STREAMS])
def test_stream_has_the_documented_values(number):
    values = [derive_seed(seed, SeedStream(number)) for seed in (0, 1)]

    assert values == STREAMS[number]["values"]


@pytest.mark.parametrize("number", range(len(STREAMS)), ids=[row["name"] for row in STREAMS])
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
@pytest.mark.parametrize("child", [0, 100])
def test_stream_has_numpys_seeds(number, seed, child):
    derived = derive_seed(seed, SeedStream(number), child)

    assert derived == derive_with_numpy(seed, stream=number, child=child)


def test_derived_seed_of_none_is_none():
    envs = SyncVectorEnv([make_cartpole, make_cartpole])

    assert derive_seed(None, SeedStream.FRAMEWORK) is None
    assert derive_env_seeds(None, SeedStream.ENVIRONMENTS, envs) is None


@pytest.mark.parametrize("seed", [-1, 0.5, "0"])
def test_impossible_seed_is_an_error(seed):
    with pytest.raises(ConfigError, match="seed: expected an integer of at least 0"):
        derive_seed(seed, SeedStream.ENVIRONMENTS)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_environments_have_different_seeds(num_envs):
    envs = SyncVectorEnv([make_cartpole] * num_envs)

    seeds = derive_env_seeds(4, SeedStream.EVALUATION, envs)

    stream = 1  # of evaluations
    expected = [derive_with_numpy(4, stream=stream, child=i) for i in range(num_envs)]
    assert seeds == expected
    envs.reset(seed=seeds)
    assert list(envs.get_attr("np_random_seed")) == seeds


def test_other_vector_classes_get_one_seed():
    envs = CartPoleVectorEnv(num_envs=3)  # its `reset` accepts an integer only

    seed = derive_env_seeds(4, SeedStream.ENVIRONMENTS, envs)

    assert seed == derive_with_numpy(4, stream=0, child=0)
    envs.reset(seed=seed)
