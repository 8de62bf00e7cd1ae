"""EnvPool's environments, as an object with its interface shows them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from other_environments import DmPool, Pool, install_module

import rlcatalog
from rlcatalog.catalog import count_envs, is_adapter_id, make_env, makes_vector
from rlcatalog.errors import ActionError, ConfigError, MissingExtraError, NotServedError
from rlcatalog_envs import EnvPoolEnvs

TINY = np.finfo(np.float64).tiny
MAX = np.finfo(np.float64).max


@pytest.fixture
def envpool(monkeypatch):
    """The module envpool, which keeps what it made last."""
    made = []

    def make(name, env_type, **arguments):
        assert (name, env_type) == ("Count-v1", "gymnasium")
        made.append(Pool(**arguments))
        return made[-1]

    install_module(monkeypatch, "envpool", make=make)
    return made


# --- spaces ---------------------------------------------------------------------------------------


def test_pool_is_adapted_where_it_comes_in():
    envs = make_env(Pool())

    assert isinstance(envs, EnvPoolEnvs)
    assert count_envs(envs) == 3
    assert make_env(envs) is envs


def test_spaces_are_batched():
    envs = make_env(Pool())

    assert envs.single_observation_space == spaces.Box(-9, 9, (2,), np.float32)
    assert envs.observation_space.shape == (3, 2)
    assert envs.action_space == spaces.MultiDiscrete([2, 2, 2])


def test_build_and_explain_take_one_environments_space():
    policy = rlcatalog.build(env=Pool(), config={"fcnet_hiddens": [4]})

    assert policy.observation_space.shape == (2,)
    assert rlcatalog.explain(env=Pool()).env == "Pool"


def test_bounds_that_mean_none_become_infinite():
    # C++'s smallest positive number and its largest one, as EnvPool's dm_control has them.
    inner = spaces.Box(np.array([TINY, -1.0]), np.array([MAX, 1.0]), dtype=np.float64)
    space = spaces.Dict({"speed": inner, "count": spaces.Discrete(3)})

    mended = make_env(Pool(observation_space=space)).single_observation_space

    np.testing.assert_array_equal(mended["speed"].low, [-np.inf, -1])
    np.testing.assert_array_equal(mended["speed"].high, [np.inf, 1])
    assert mended["count"] == spaces.Discrete(3)


def test_zero_stays_a_bound():
    space = spaces.Box(0.0, np.array([np.inf, 5.0]), dtype=np.float64)

    mended = make_env(Pool(observation_space=space)).single_observation_space

    assert mended == space


@pytest.mark.parametrize(
    ("package", "shape", "layout"),
    [
        ("envpool.atari", (4, 84, 84), "chw"),
        # Both readings would be possible.
        ("envpool.vizdoom", (12, 16, 16), "chw"),
        ("envpool.minigrid", (7, 7, 3), "hwc"),
        ("envpool.atari", (128,), None),  # the console's memory
        ("envpool.atari_of_others", (4, 84, 84), None),
    ],
)
def test_layout_of_images_is_that_of_their_package(package, shape, layout):
    base = type("Base", (), {"__module__": f"{package}.module"})
    own_class = type("OwnPool", (Pool, base), {})

    envs = make_env(own_class(observation_space=spaces.Box(0, 255, shape, np.uint8)))

    assert envs.metadata.get("image_layout") == layout


def test_layout_reaches_the_policy():
    base = type("Base", (), {"__module__": "envpool.vizdoom.module"})
    own_class = type("OwnPool", (Pool, base), {})
    image = spaces.Box(0, 255, (12, 42, 42), np.uint8)

    policy = rlcatalog.build(env=own_class(observation_space=image))

    assert policy.config["image_layout"] == "chw"


# --- steps ----------------------------------------------------------------------------------------


def test_environments_reset_in_the_next_step():
    envs = make_env(Pool())
    envs.reset()
    actions = np.zeros(3, np.int64)

    envs.step(actions)
    obs, reward, terminated, truncated, _ = envs.step(actions)
    next_obs, next_reward, *_ = envs.step(actions)

    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    # Environment 0 ends after 2 steps; this is its last observation, and then its first.
    np.testing.assert_array_equal(terminated, [True, False, False])
    np.testing.assert_array_equal(truncated, [False, False, False])
    np.testing.assert_array_equal(obs[0], [0, 2])
    np.testing.assert_array_equal(next_obs[0], [0, 0])
    np.testing.assert_array_equal(reward, [1, 1, 1])
    np.testing.assert_array_equal(next_reward, [0, 1, 1])


def test_infos_have_a_row_for_each_environment():
    envs = make_env(Pool(masks=True))
    _, infos = envs.reset()

    assert sorted(infos) == ["action_mask", "elapsed_step"]
    np.testing.assert_array_equal(infos["action_mask"], [[False, True]] * 3)


def test_reset_mask_returns_all_rows():
    envs = make_env(Pool(masks=True))
    envs.reset()
    envs.step(np.zeros(3, np.int64))
    rows = np.array([True, False, True])

    obs, infos = envs.reset(options={"reset_mask": rows})

    np.testing.assert_array_equal(obs, [[0, 0], [1, 1], [2, 0]])
    np.testing.assert_array_equal(infos["_action_mask"], rows)
    np.testing.assert_array_equal(infos["action_mask"][[0, 2]], [[False, True]] * 2)


def test_reset_mask_leaves_earlier_observations_alone():
    envs = make_env(Pool())
    envs.reset()
    obs_before, *_ = envs.step(np.zeros(3, np.int64))

    envs.reset(options={"reset_mask": np.array([True, True, True])})

    np.testing.assert_array_equal(obs_before[:, 1], [1, 1, 1])


@pytest.mark.parametrize(
    "actions",
    [
        pytest.param([0, 1, 2], id="too-large"),
        pytest.param([0, -1, 1], id="negative"),
        pytest.param([0.0, 1.0, 1.0], id="float"),
    ],
)
def test_actions_outside_the_space_are_errors(actions):
    envs = make_env(Pool())
    envs.reset()

    with pytest.raises(ActionError, match="expected integers from 0 to 1"):
        envs.step(actions)


def test_actions_arrive_as_arrays():
    pool = Pool(action_space=spaces.Dict({"gear": spaces.Discrete(3), "gas": spaces.Box(0, 1)}))
    envs = make_env(pool)
    envs.reset()

    envs.step({"gear": [0, 1, 2], "gas": [[0.0], [0.5], [1.0]]})

    [actions] = pool.actions
    assert actions["gear"].tolist() == [0, 1, 2]
    assert actions["gas"].shape == (3, 1)


# --- seeds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "seed"),
    [({"seed": 5}, 5), ({"seed": 0, "env_seed": [5, 6, 7]}, [5, 6, 7])],
    ids=["one", "each"],
)
def test_seed_of_the_pool_is_accepted_at_the_first_reset(config, seed):
    envs = make_env(Pool(**config))

    envs.reset(seed=seed)

    assert envs.metadata["seed"] == seed
    with pytest.raises(ConfigError, match="has been reset before"):
        envs.reset(seed=seed)


def test_another_seed_is_an_error():
    envs = make_env(Pool(seed=5))

    with pytest.raises(ConfigError, match="this one was made with seed=5"):
        envs.reset(seed=6)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        pytest.param(Pool(batch_size=2), "Pool is asynchronous", id="asynchronous"),
        pytest.param(Pool(max_num_players=4), "up to 4 players", id="players"),
        pytest.param(DmPool(), "env_type='gymnasium'", id="dm"),
    ],
)
def test_pool_without_a_row_for_each_environment_is_refused(pool, problem):
    with pytest.raises(NotServedError, match=problem):
        make_env(pool)


# --- ids ------------------------------------------------------------------------------------------


def test_id_makes_a_pool_with_the_arguments(envpool):
    envs = make_env("envpool:Count-v1", {"num_envs": 5, "seed": 3, "num_threads": 2})

    [pool] = envpool
    assert envs.num_envs == 5
    assert pool.config["seed"] == 3
    assert pool.config["num_threads"] == 2


def test_id_makes_all_environments_at_once():
    assert makes_vector("envpool:Count-v1")
    assert is_adapter_id("envpool:Count-v1")
    assert not is_adapter_id("envpool:json:Count-v1")


def test_id_without_envpool_names_its_package():
    with pytest.raises(MissingExtraError, match="pip install envpool"):
        make_env("envpool:CartPole-v1")


def test_closing_closes_the_pool():
    pool = Pool()

    make_env(pool).close()

    assert pool.is_closed
