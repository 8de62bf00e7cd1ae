"""Forms of environments that algorithms take: ids, classes, functions, instances and vectors."""

from __future__ import annotations

import functools

import gymnasium as gym
import numpy as np
import pytest
from builders import assert_same_weights
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import ClipReward, TransformObservation
from gymnasium.wrappers.vector import ClipReward as ClipVectorReward

from rlcatalog.errors import (
    ConfigError,
    EnvironmentFaultError,
    ResumeWarning,
)
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.callbacks import Evaluation
from rlcatalog_runs.seeds import SeedStream, derive_seed

pytestmark = pytest.mark.twins

SMALL = {"rollout_length": 30, "seed": 0, "framework": "torch", "model": {"fcnet_hiddens": [4]}}
#: With fewer passes and smaller minibatches than PPO's defaults.
SMALL_PPO = {**SMALL, "num_epochs": 2, "minibatch_size": 30}


class RandomWalk(gym.Env):
    """Observes random numbers, terminates at random, and is truncated after nine steps.

    It keeps the seeds of its resets, its number of steps, and whether it was closed.
    """

    def __init__(self, size=3):
        self.observation_space = gym.spaces.Box(-9, 9, (size,))
        self.action_space = gym.spaces.Discrete(2)
        self.seeds = []
        self.steps = 0
        self.is_closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        self.t += 1
        self.steps += 1
        terminated = bool(self.np_random.random() < 0.1)
        truncated = self.t == 9 and not terminated
        return self._observe(), float(action), terminated, truncated, {"t": self.t}

    def close(self):
        self.is_closed = True

    def _observe(self):
        return self.np_random.uniform(-1, 1, self.observation_space.shape).astype(np.float32)


def make_vector(size=3, mode=AutoresetMode.SAME_STEP, n=2):
    """Return a vector environment of `RandomWalk`s."""
    return SyncVectorEnv([functools.partial(RandomWalk, size)] * n, autoreset_mode=mode)


def train_ppo(env, config=SMALL_PPO, iterations=2):
    """Return PPO after its iterations, and the result of the last one."""
    algo = PPO(env, config)
    for _ in range(iterations):
        result = algo.train()
    return algo, result


# --- passed environments --------------------------------------------------------------------------


def make_passed(n):
    """Return one environment or a vector environment, and its members."""
    if n == 1:
        env = RandomWalk()
        return env, [env]
    envs = make_vector(n=n)
    return envs, envs.envs


def test_passed_environment_trains_like_one_that_is_made():
    passed, _ = train_ppo(RandomWalk(), SMALL_PPO)
    made, _ = train_ppo(RandomWalk, {**SMALL_PPO, "num_envs": 1})

    assert passed.config.num_envs == 1
    assert_same_weights(passed, made)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_passed_vector_environment_trains_like_made_ones(framework):
    config = {**SMALL_PPO, "framework": framework}

    passed, _ = train_ppo(make_vector(n=2), config)
    made, _ = train_ppo(RandomWalk, {**config, "num_envs": 2})

    assert passed.config.num_envs == 2
    assert_same_weights(passed, made)


@pytest.mark.parametrize("n", [1, 2], ids=["instance", "vector"])
def test_passed_environment_is_left_open(n):
    env, members = make_passed(n)
    algo, _ = train_ppo(env)

    algo.stop()

    assert not any(member.is_closed for member in members)


def make_walk():
    return RandomWalk(5)


@pytest.mark.parametrize(
    ("make_env", "num_envs", "size"),
    [
        pytest.param(lambda: "CartPole-v1", 8, 4, id="id"),  # 8 is the default
        pytest.param(lambda: RandomWalk, 8, 3, id="class"),
        pytest.param(lambda: make_walk, 8, 5, id="function"),
        pytest.param(lambda: RandomWalk(5), 1, 5, id="instance"),
        pytest.param(lambda: gym.make("CartPole-v1"), 1, 4, id="made by Gymnasium"),
        pytest.param(lambda: make_vector(size=5, n=2), 2, 5, id="vector"),
    ],
)
def test_ppo_takes_environments_in_every_form(make_env, num_envs, size):
    algo = PPO(make_env(), SMALL_PPO)

    algo.train()

    assert algo.config.num_envs == num_envs
    assert algo.policy.observation_space.shape == (size,)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_steps_of_a_vector_environment_are_counted(mode):
    envs = make_vector(mode=mode, n=3)

    _, result = train_ppo(envs, {**SMALL_PPO, "rollout_length": 30}, iterations=1)

    steps = sum(env.steps for env in envs.envs)
    assert result["timesteps_total"] == steps
    if mode is AutoresetMode.NEXT_STEP:
        assert steps < 3 * 30  # some steps only begin an episode
    else:
        assert steps == 3 * 30


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_episodes_of_a_vector_environment_are_counted(mode):
    envs = make_vector(mode=mode, n=3)

    algo, result = train_ppo(envs, iterations=1)

    episodes_begun = sum(len(env.seeds) for env in envs.envs)
    # In mode NEXT_STEP, an environment may wait for its next episode.
    episodes_in_progress = 3 - int(algo._collector._inputs.idle.sum())
    assert result["episodes_total"] == episodes_begun - episodes_in_progress


def make_cartpole_vector():
    """Return Gymnasium's CartPole for many environments in NumPy, which has no members."""
    return gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")


def test_vector_environment_without_members_trains():
    algo, result = train_ppo(make_cartpole_vector(), iterations=1)

    assert algo.config.num_envs == 2
    assert 40 < result["timesteps_total"] <= 60  # without the steps that only begin an episode


def test_vector_environment_without_members_is_not_made_again():
    algo = PPO(make_cartpole_vector(), SMALL_PPO)

    with pytest.raises(ConfigError, match=r"environment of 2 \(CartPoleVectorEnv\)"):
        algo.evaluate(2)
    assert len(algo.evaluate(3, env="CartPole-v1")) == 3


# --- lengths of rollouts --------------------------------------------------------------------------

TINY = {"framework": "torch", "model": {"fcnet_hiddens": [4]}}


@pytest.mark.parametrize(
    ("algorithm", "usual_length"), [(PPO, 128), (A2C, 5), (PG, 200)], ids=["PPO", "A2C", "PG"]
)
@pytest.mark.parametrize("n", [1, 2, 16])
def test_few_passed_environments_have_longer_rollouts(algorithm, usual_length, n):
    """As many steps in all as eight environments take."""
    env = RandomWalk() if n == 1 else make_vector(n=n)

    config = algorithm(env, TINY).config

    lengths = {1: 8 * usual_length, 2: 4 * usual_length, 16: usual_length}
    assert config.num_envs == n
    assert config.rollout_length == lengths[n]


def test_rollout_length_of_the_config_is_kept():
    config = PPO(RandomWalk(), {**TINY, "rollout_length": 30, "minibatch_size": 30}).config

    assert config.rollout_length == 30


def test_few_environments_that_are_made_have_usual_rollouts():
    config = PPO(RandomWalk, {**TINY, "num_envs": 4}).config

    assert config.rollout_length == 128


# --- errors of configs ----------------------------------------------------------------------------


@pytest.fixture
def fail_if_policy_is_built(monkeypatch):
    monkeypatch.setattr(PPO, "_seed_and_build", lambda *_: pytest.fail("a policy was built"))


@pytest.mark.usefixtures("fail_if_policy_is_built")
@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("num_envs", 4, r"expected 1, .*; found 4\. Remove num_envs"),
        ("vector", "async", r"expected 'sync', .*; found 'async'\. Remove vector"),
        ("env_config", {"size": 5}, r"expected {}, .*; found {'size': 5}\. Remove env_config"),
    ],
)
def test_passed_environment_is_only_one(key, value, problem):
    with pytest.raises(ConfigError, match=f"^{key}: {problem}") as caught:
        PPO(RandomWalk(), {**SMALL_PPO, key: value})

    message = str(caught.value)
    assert "because env is one environment (RandomWalk)" in message
    assert "or pass the id, the class" in message
    assert message.endswith(": env=RandomWalk.")


@pytest.mark.usefixtures("fail_if_policy_is_built")
def test_passed_vector_environment_has_its_own_number():
    with pytest.raises(ConfigError, match=r"found 4\. Remove num_envs") as caught:
        PPO(make_vector(n=2), {**SMALL_PPO, "num_envs": 4})

    message = str(caught.value)
    assert message.startswith("num_envs: expected 2,")
    assert "because env is a vector environment of 2 (SyncVectorEnv)" in message
    assert message.endswith(": env=MyEnv.")


@pytest.mark.usefixtures("fail_if_policy_is_built")
def test_error_names_the_id_to_pass():
    message = r"one environment \(CartPoleEnv\); found 4\. .*: env='CartPole-v1'\."
    with pytest.raises(ConfigError, match=message):
        PPO(gym.make("CartPole-v1"), {**SMALL_PPO, "num_envs": 4})


@pytest.mark.usefixtures("fail_if_policy_is_built")
def test_number_is_not_an_environment():
    with pytest.raises(ConfigError, match=r"expected a Gymnasium id, .*; found 3\."):
        PPO(3, SMALL_PPO)


def test_function_may_return_a_vector_environment():
    algo = PPO(make_vector, {**SMALL_PPO, "num_envs": 2})

    algo.train()

    assert algo.steps == 2 * SMALL_PPO["rollout_length"]
    assert len(algo.evaluate(3)) == 3
    algo.stop()


@pytest.mark.usefixtures("fail_if_policy_is_built")
def test_number_of_made_environments_must_match():
    message = "num_envs: expected 2, because env makes a vector environment"
    with pytest.raises(ConfigError, match=message):
        PPO(make_vector, {**SMALL_PPO, "num_envs": 3})


class VectorInOneClass(gym.Env):
    """A `gymnasium.Env` of two random walks, counted by `num_envs`; its spec has no id."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012, as Gymnasium writes it
    spec = object()

    def __init__(self):
        self.envs_inside = make_vector()
        self.num_envs = self.envs_inside.num_envs
        self.single_observation_space = self.envs_inside.single_observation_space
        self.single_action_space = self.envs_inside.single_action_space
        self.observation_space = self.envs_inside.observation_space
        self.action_space = self.envs_inside.action_space

    def reset(self, *, seed=None, options=None):
        return self.envs_inside.reset(seed=seed, options=options)

    def step(self, action):
        return self.envs_inside.step(action)


@pytest.mark.parametrize("wrap", [lambda env: env, gym.Wrapper], ids=["bare", "wrapped"])
def test_environments_in_one_class_are_all_trained(wrap):
    algo = PPO(wrap(VectorInOneClass()), SMALL_PPO)

    algo.train()

    assert algo.config.num_envs == 2
    assert algo.steps == 2 * algo.config.rollout_length
    algo.stop()


@pytest.mark.usefixtures("fail_if_policy_is_built")
def test_evaluation_callback_needs_another_environment():
    message = r"evaluation: expected environments other .*found one environment \(RandomWalk\)"
    with pytest.raises(ConfigError, match=message):
        PPO(RandomWalk(), SMALL_PPO, callbacks=[Evaluation(10)])


@pytest.mark.usefixtures("fail_if_policy_is_built")
def test_vector_environment_must_declare_its_autoreset_mode():
    envs = make_vector()
    envs.autoreset_mode = None
    envs.metadata = {}

    with pytest.raises(ConfigError, match="does not declare when it resets"):
        PPO(envs, SMALL_PPO)


# --- evaluation beside training -------------------------------------------------------------------

IN_TRAINING_ENV = "expected environments other than the training ones"


def make_clipped_cartpole():
    """Return CartPole with at most seven steps, which pay 0.5 each."""
    return ClipReward(gym.make("CartPole-v1", max_episode_steps=7), 0, 0.5)


def test_evaluation_makes_an_environment_from_its_spec():
    algo = PPO(make_clipped_cartpole(), SMALL_PPO)

    assert max(algo.evaluate(5)) == 3.5  # the wrapper pays 0.5 in each of seven steps


def test_evaluation_does_not_change_training():
    without, _ = train_ppo(make_clipped_cartpole(), iterations=2)

    algo, _ = train_ppo(make_clipped_cartpole(), iterations=1)
    algo.evaluate(5)
    algo.train()

    assert_same_weights(without, algo)


def double(obs):
    return obs * 2


def test_evaluation_repeats_a_wrapper_with_a_function():
    cartpole = gym.make("CartPole-v1", max_episode_steps=7)
    algo = PPO(TransformObservation(cartpole, double, None), SMALL_PPO)

    assert max(algo.evaluate(5)) <= 7


def test_evaluation_does_not_leave_a_vector_wrapper_out():
    envs = gym.make_vec("CartPole-v1", 2, "sync")
    algo = PPO(gym.wrappers.vector.RecordEpisodeStatistics(envs), SMALL_PPO)

    with pytest.raises(ConfigError, match=IN_TRAINING_ENV):
        algo.evaluate(2)


def test_evaluation_error_names_the_ways_to_pass_an_environment():
    algo = PPO(RandomWalk(), SMALL_PPO)

    message = r"evaluate\(env=\.\.\.\) or Evaluation\(\.\.\., env=\.\.\.\), or pass the id"
    with pytest.raises(ConfigError, match=message):
        algo.evaluate(2)


def test_evaluation_leaves_a_passed_environment_open():
    algo = PPO(RandomWalk(), SMALL_PPO)
    env = RandomWalk()

    returns = algo.evaluate(3, env=env, seed=5)

    assert len(returns) == 3
    assert env.seeds[0] == derive_seed(5, SeedStream.EVALUATION)
    assert not env.is_closed


def test_evaluation_gives_the_same_returns_in_every_form():
    algo = PPO(RandomWalk(), SMALL_PPO)

    in_instance = algo.evaluate(1, env=RandomWalk(), seed=5)
    in_class = algo.evaluate(1, env=RandomWalk, seed=5)
    in_vector = algo.evaluate(1, env=make_vector(n=1), seed=5)
    assert in_class == in_instance
    assert in_vector == in_instance

    # Several episodes are played side by side, and come in the order in which they end.
    several_in_class = algo.evaluate(3, env=RandomWalk, seed=5)
    several_in_vector = algo.evaluate(3, env=make_vector(n=3), seed=5)
    assert several_in_vector == several_in_class


def test_evaluation_callback_takes_an_environment():
    callback = Evaluation(30, 2, env=RandomWalk)  # after every 30 steps, two episodes
    algo = PPO(RandomWalk(), SMALL_PPO, callbacks=[callback])

    assert algo.train()["evaluation"]["episodes"] == 2


# --- resuming -------------------------------------------------------------------------------------


def test_passed_environment_goes_on_where_it_was(tmp_path):
    uninterrupted, _ = train_ppo(RandomWalk(), iterations=2)
    first_half, _ = train_ppo(RandomWalk(), iterations=1)
    first_half.save_checkpoint(tmp_path / "run")

    resumed = PPO.restore(tmp_path / "run", RandomWalk())
    resumed.train()

    assert not resumed.new_episode_reasons
    assert_same_weights(uninterrupted, resumed)


def test_restore_needs_as_many_environments(tmp_path):
    PPO(RandomWalk(), SMALL_PPO).save_checkpoint(tmp_path / "run")

    with pytest.raises(ConfigError, match=r"num_envs: expected 2, .*; found 1"):
        PPO.restore(tmp_path / "run", make_vector(n=2))


class WithoutOptions(SyncVectorEnv):
    """Refuses options that it does not know, as an environment may."""

    def reset(self, *, seed=None, options=None):
        assert options is None
        return super().reset(seed=seed)


def save_vector_run(directory):
    """Return PPO after an iteration in a vector environment of two, saved in the directory."""
    algo, _ = train_ppo(make_vector(n=2), iterations=1)
    with pytest.warns(ResumeWarning, match="2 of 2 environments will begin new"):
        algo.save_checkpoint(directory)
    return algo


@pytest.mark.parametrize(
    "make_env",
    [lambda: WithoutOptions([RandomWalk, RandomWalk]), lambda: RandomWalk],
    ids=["vector", "class"],
)
def test_resumed_vector_environment_begins_new_episodes(make_env, tmp_path):
    saved = save_vector_run(tmp_path / "run")

    message = "2 of 2 environments cannot resume.*belongs to a passed vector environment"
    with pytest.warns(ResumeWarning, match=message):
        resumed = PPO.restore(tmp_path / "run", make_env())

    assert resumed.new_episode_reasons.keys() == {0, 1}
    assert_same_weights(saved, resumed)
    resumed.train()


def test_resumed_vector_environment_is_left_open(tmp_path):
    save_vector_run(tmp_path / "run")
    envs = WithoutOptions([RandomWalk, RandomWalk])
    with pytest.warns(ResumeWarning):  # its episodes begin anew
        resumed = PPO.restore(tmp_path / "run", envs)

    resumed.train()
    resumed.stop()

    for env in envs.envs:
        assert env.steps > 0
        assert not env.is_closed


class BoxSubclass(gym.spaces.Box):
    """A space that a checkpoint cannot contain."""


class WithBoxSubclass(RandomWalk):
    def __init__(self):
        super().__init__()
        self.observation_space = BoxSubclass(-9, 9, (3,))


def test_subclass_of_a_space_is_restored_as_its_base(tmp_path):
    PPO(WithBoxSubclass(), SMALL_PPO).save_checkpoint(tmp_path / "run")
    env = WithBoxSubclass()

    restored = PPO.restore(tmp_path / "run", env)

    assert restored.policy.observation_space == gym.spaces.Box(-9, 9, (3,))
    assert not env.is_closed


# --- faults of vector environments ----------------------------------------------------------------


class FaultyVector(SyncVectorEnv):
    """Returns `change(...)` of its third step and of later ones."""

    def __init__(self, change):
        super().__init__([RandomWalk] * 2)
        self.change = change
        self.steps_taken = 0

    def step(self, actions):
        self.steps_taken += 1
        returned = super().step(actions)
        if self.steps_taken < 3:
            return returned
        return self.change(*returned)


def raise_error(obs, reward, terminated, truncated, infos):
    raise RuntimeError("no more steps")


def return_four(obs, reward, terminated, truncated, infos):
    return obs, reward, terminated, infos


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            raise_error,
            r"FaultyVector raised RuntimeError: no more steps \(.*test_ppo_environments\.py:\d+,"
            r" in raise_error\)",
        ),
        (return_four, r"returned .*; expected \(obs, reward, terminated, .*, infos\)"),
    ],
)
def test_fault_of_a_vector_environment_is_named(change, message):
    algo = PPO(FaultyVector(change), SMALL_PPO)

    with pytest.raises(EnvironmentFaultError, match=f"^the vector environment .*{message}"):
        algo.train()


# --- the method action_masks ----------------------------------------------------------------------


class FirstActionOnly(RandomWalk):
    """Has the method that sb3-contrib calls; it allows only the first action."""

    def action_masks(self):
        return np.array([True, False])


class CartPolesFirstActionOnly(CartPoleVectorEnv):
    """A vector environment without members, which returns the masks of all environments."""

    def action_masks(self):
        return np.array([[True, False]] * self.num_envs)


class MaskInObservation(gym.ObservationWrapper):
    """Puts the mask into the observation."""

    def __init__(self, env):
        super().__init__(env)
        mask = gym.spaces.MultiBinary(2)
        self.observation_space = gym.spaces.Dict(
            {"action_mask": mask, "obs": env.observation_space}
        )

    def observation(self, obs):
        return {"action_mask": self.unwrapped.action_masks().astype(np.int8), "obs": obs}


def make_wrapped():
    return ClipReward(FirstActionOnly(), -1, 1)


def make_with_mask_in_observation():
    return MaskInObservation(FirstActionOnly())


def make_masked_vector():
    return SyncVectorEnv([FirstActionOnly] * 2)


def make_wrapped_vector():
    return ClipVectorReward(make_masked_vector(), -1, 1)


def make_vector_without_members():
    return CartPolesFirstActionOnly(2)


def assert_only_first_actions(algorithm, env, **config):
    # The rollout is as long as PPO's default minibatch.
    algo = algorithm(env, {**SMALL, "rollout_length": 256, **config})
    assert not algo._collector.collect(30).raw_action.any()
    algo.stop()


# pytest makes any warning an error.


@pytest.mark.parametrize(
    ("algorithm", "make_env"),
    [
        pytest.param(PPO, FirstActionOnly, id="instance"),
        pytest.param(A2C, make_wrapped, id="wrapped"),
        pytest.param(PG, make_with_mask_in_observation, id="mask-in-observation"),
        pytest.param(A2C, make_masked_vector, id="vector"),
        pytest.param(PG, make_wrapped_vector, id="wrapped-vector"),
        pytest.param(PPO, make_vector_without_members, id="vector-without-members"),
    ],
)
def test_action_masks_of_an_environment_are_used(algorithm, make_env):
    assert_only_first_actions(algorithm, make_env())


def test_attribute_action_masks_is_not_a_mask():
    class WithAttribute(RandomWalk):
        action_masks = None

    algo = PPO(WithAttribute, SMALL_PPO)

    assert algo._collector.collect(1).mask is None
    algo.stop()
