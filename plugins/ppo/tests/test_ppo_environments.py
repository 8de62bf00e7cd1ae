"""Environments as people have them, under the on-policy algorithms: made, or passed
by the caller.
"""

from __future__ import annotations

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import ClipReward, TransformObservation
from gymnasium.wrappers.vector import ClipReward as ClipVectorReward

from rlcatalog.errors import (
    ConfigError,
    EnvironmentFaultError,
    ModelContractError,
    ResumeWarning,
)
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.callbacks import Evaluation
from rlcatalog_runs.seeds import SeedStream, derive_seed

pytestmark = pytest.mark.twins

SMALL = {"rollout_length": 30, "seed": 0, "framework": "torch", "model": {"fcnet_hiddens": [4]}}
#: Without PPO's many passes.
QUICK = {**SMALL, "num_epochs": 2, "minibatch_size": 30}
SIZES = (3, 5)


class Walk(gym.Env):
    """Drifts at random, ends at random or after 9 steps, and notes what was done with it."""

    def __init__(self, size=SIZES[0]):
        self.observation_space, self.action_space = (
            gym.spaces.Box(-9, 9, (size,)),
            gym.spaces.Discrete(2),
        )
        self.closed, self.steps, self.seeds = False, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.t = 0
        return self._observation(), {}

    def step(self, action):
        self.t, self.steps = self.t + 1, self.steps + 1
        over = bool(self.np_random.random() < 0.1)
        return self._observation(), float(action), over, self.t == 9 and not over, {"t": self.t}

    def close(self):
        self.closed = True

    def _observation(self):
        return self.np_random.uniform(-1, 1, self.observation_space.shape).astype(np.float32)


def vector(size=SIZES[0], mode=AutoresetMode.SAME_STEP, n=2):
    return SyncVectorEnv([functools.partial(Walk, size)] * n, autoreset_mode=mode)


def weights(algo):
    return algo.policy.model.get_weights()


def same_weights(one, other):
    assert all(np.array_equal(array, weights(other)[name]) for name, array in weights(one).items())


def trained(*args, iterations=2, **kwargs):
    """Return an algorithm after some iterations, and its last result; PyTorch's generator is the
    process's.
    """
    algo = PPO(*args, **kwargs)
    return algo, [algo.train() for _ in range(iterations)][-1]


@pytest.mark.parametrize(
    ("framework", "n", "size"),
    [("torch", 1, 3), ("torch", 1, 5), ("torch", 2, 3), ("torch", 2, 5), ("tf", 2, 5)],
)
def test_what_is_passed_learns_what_is_made(framework, n, size):
    """One environment and a vector environment take the steps of environments that the algorithm
    makes.
    """
    config = {**QUICK, "framework": framework}
    passed = Walk(size) if n == 1 else vector(size)
    one, result = trained(passed, config)
    other, expected = trained(functools.partial(Walk, size), {**config, "num_envs": n})
    assert one.config.num_envs == n
    assert result["episode_return_mean"] == expected["episode_return_mean"]
    assert one.policy.observation_space.shape == (size,)
    same_weights(one, other)
    one.stop()
    envs = getattr(passed, "envs", [passed])
    assert not any(env.closed for env in envs)  # the caller closes them
    seeds = [derive_seed(0, SeedStream.ENVIRONMENTS, i) for i in range(n)]
    assert [env.seeds[0] for env in envs] == seeds
    assert [env.steps for env in envs] == [60] * n
    other.stop()


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
def test_every_algorithm_takes_every_form(algorithm):
    forms = {
        "CartPole-v1": 4,
        Walk: 3,
        (lambda: Walk(5)): 5,
        Walk(5): 5,
        gym.make("CartPole-v1"): 4,
        vector(5): 5,
    }
    for env, size in forms.items():
        algo = algorithm(env, QUICK if algorithm is PPO else SMALL)
        algo.train()
        made = isinstance(env, str) or not hasattr(env, "reset") or isinstance(env, type)
        assert algo.config.num_envs == (8 if made else getattr(env, "num_envs", 1))
        assert algo.policy.observation_space.shape == (size,)
        algo.stop()


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("size", SIZES)
def test_vector_environment_resets_in_its_own_way(mode, size):
    """Against what the environments wrote down: a step that only begins an episode is none of
    theirs.
    """
    envs = vector(size, mode, n=3)
    algo = PPO(envs, QUICK)
    result = algo.train()
    assert result["timesteps_total"] == sum(env.steps for env in envs.envs)
    assert (result["timesteps_total"] < 90) == (mode is AutoresetMode.NEXT_STEP)
    begun = sum(len(env.seeds) for env in envs.envs)
    in_progress = 3 - int(algo._collector._idle.sum())
    assert result["episodes_total"] == begun - in_progress


def test_vector_environment_written_as_one_is_taken():
    """Gymnasium's CartPole in NumPy, whose observations are of a batch and whose
    infos are empty.
    """
    envs = gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    algo = PPO(envs, QUICK)
    assert 40 < algo.train()["timesteps_total"] <= 60
    assert algo.config.num_envs == 2
    with pytest.raises(ConfigError, match=r"found a vector environment of 2 \(CartPoleVectorEnv\)"):
        algo.evaluate(2)
    assert len(algo.evaluate(3, env="CartPole-v1")) == 3


def test_few_environments_have_longer_rollouts():
    """As many steps in all as eight environments take, and no warning of PPO's
    default minibatch.
    """
    for env, n in ((Walk(), 1), (vector(), 2), (vector(n=16), 16)):
        for algorithm, usual in ((PPO, 128), (A2C, 5), (PG, 200)):
            config = algorithm(env, {"framework": "torch", "model": {"fcnet_hiddens": [4]}}).config
            assert config.rollout_length == max(usual, 8 * usual // n)
            assert config.num_envs == n
    assert PPO(Walk(), SMALL | {"minibatch_size": 30}).config.rollout_length == 30
    algo = PPO(Walk, {"framework": "torch", "num_envs": 4, "model": {"fcnet_hiddens": [4]}})
    assert algo.config.rollout_length == 128


ONE = (
    r"because env is one environment \(Walk\); found {}\. Remove {}, or pass the id, the class"
    r" .*: env=Walk\."
)
TWO = (
    r"because env is a vector environment of 2 \(SyncVectorEnv\); found {}\. Remove {}, or pass"
    r" .*: env=MyEnv\."
)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("num_envs", 4, "{n}"), ("vector", "async", "'sync'"), ("env_config", {"size": 5}, r"\{{\}}")],
)
@pytest.mark.parametrize(
    ("env", "n", "message"), [(Walk, 1, ONE), (vector, 2, TWO)], ids=["one", "vector"]
)
def test_passed_environment_is_not_several(env, n, message, key, value, expected, monkeypatch):
    monkeypatch.setattr(PPO, "_build", lambda *_: pytest.fail("a policy was built"))
    found = message.format(repr(value).replace("{", r"\{"), key)
    with pytest.raises(ConfigError, match=f"^{key}: expected {expected.format(n=n)}, {found}"):
        PPO(env(), {**QUICK, key: value})


def test_errors_name_what_to_pass(monkeypatch):
    monkeypatch.setattr(PPO, "_build", lambda *_: pytest.fail("a policy was built"))
    with pytest.raises(
        ConfigError, match=r"one environment \(CartPoleEnv\); found 4\. .*: env='CartPole-v1'\."
    ):
        PPO(gym.make("CartPole-v1"), {**QUICK, "num_envs": 4})
    with pytest.raises(ConfigError, match=r"env: expected a Gymnasium id, .*; found 3\."):
        PPO(3, QUICK)
    with pytest.raises(
        ModelContractError, match=r"expected a gymnasium\.Env, found .*SyncVectorEnv"
    ):
        PPO(vector, QUICK)
    with pytest.raises(
        ConfigError,
        match=r"evaluation: expected environments other .*found one environment \(Walk\)",
    ):
        PPO(Walk(), QUICK, callbacks=[Evaluation(10)])
    silent = vector()
    silent.autoreset_mode, silent.metadata = None, {}
    with pytest.raises(ConfigError, match="does not declare when it resets its environments"):
        PPO(silent, QUICK)


# --- evaluation beside training -------------------------------------------------------------------


def test_evaluation_makes_what_gymnasium_made():
    """From its spec, wrappers included; training goes on as if nothing had been played."""
    env = TransformObservation(
        gym.make("CartPole-v1", max_episode_steps=7), lambda obs: obs * 2, None
    )
    clipped = [ClipReward(gym.make("CartPole-v1", max_episode_steps=7), 0, 0.5) for _ in range(2)]
    quiet, _ = trained(clipped[0], QUICK)
    algo, _ = trained(clipped[1], QUICK, iterations=1)
    assert max(algo.evaluate(5)) == 3.5  # seven steps of a half
    algo.train()
    same_weights(quiet, algo)
    assert (
        max(PPO(gym.make_vec("CartPole-v1", 2, "sync", max_episode_steps=7), QUICK).evaluate(5))
        == 7
    )
    algo = PPO(env, QUICK)
    assert max(algo.evaluate(5)) <= 7
    with pytest.raises(ConfigError, match="expected environments other than the training ones"):
        algo.evaluate(5, env=env)
    with pytest.raises(ConfigError, match="expected environments other than the training ones"):
        algo.evaluate(5, env=env.unwrapped)


class Unrecorded(gym.Wrapper):
    """A wrapper whose arguments no spec holds."""


def test_evaluation_shows_no_window_and_leaves_no_wrapper_out():
    algo = PPO(gym.make("CartPole-v1", render_mode="rgb_array"), QUICK)
    assert algo._make_env.beside()().render_mode is None
    algo = PPO(Unrecorded(gym.make("CartPole-v1")), QUICK)
    with pytest.raises(ConfigError, match="expected environments other than the training ones"):
        algo.evaluate(2)
    envs = gym.make_vec("CartPole-v1", 2, "sync")
    with pytest.raises(ConfigError, match="expected environments other than the training ones"):
        PPO(gym.wrappers.vector.RecordEpisodeStatistics(envs), QUICK).evaluate(2)


def test_evaluation_takes_an_environment_in_every_form():
    algo = PPO(Walk(), QUICK)
    other = Walk()
    with pytest.raises(
        ConfigError,
        match=r"evaluate\(env=\.\.\.\) or Evaluation\(\.\.\., env=\.\.\.\), or pass the id",
    ):
        algo.evaluate(2)
    wanted = algo.evaluate(3, env=other, seed=5)
    assert len(wanted) == 3
    assert not other.closed
    assert other.seeds[0] == derive_seed(5, SeedStream.EVALUATION)
    assert (
        algo.evaluate(3, env=Walk, seed=5)[0]
        == algo.evaluate(3, env=vector(n=3), seed=5)[0]
        == wanted[0]
    )
    watched = PPO(Walk(), QUICK, callbacks=[Evaluation(30, 2, env=Walk)])
    assert watched.train()["evaluation"]["episodes"] == 2


# --- resuming -------------------------------------------------------------------------------------


def test_passed_environment_goes_on_where_it_was(tmp_path):
    whole, _ = trained(Walk(), QUICK)
    first, _ = trained(Walk(), QUICK, iterations=1)
    first.save_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match="was not a Gymnasium id; pass it"):
        PPO.restore(tmp_path / "checkpoint")
    again = PPO.restore(tmp_path / "checkpoint", Walk())
    assert not again.begun_anew
    again.train()
    same_weights(whole, again)
    with pytest.raises(ConfigError, match=r"num_envs: expected 2, .*; found 1"):
        PPO.restore(tmp_path / "checkpoint", vector())


class WithoutOptions(SyncVectorEnv):
    """Refuses options that it does not know, as an environment may."""

    def reset(self, *, seed=None, options=None):
        assert options is None
        return super().reset(seed=seed)


def test_vector_environment_begins_other_episodes(tmp_path):
    first = PPO(vector(), QUICK)
    first.train()
    with pytest.warns(ResumeWarning, match="2 of 2 environments will begin new episodes"):
        first.save_checkpoint(tmp_path / "checkpoint")
    envs = WithoutOptions([Walk] * 2)
    for env in (envs, Walk):
        with pytest.warns(
            ResumeWarning,
            match="2 of 2 environments cannot resume.*belongs to a passed vector environment",
        ):
            again = PPO.restore(tmp_path / "checkpoint", env)
        assert again.begun_anew.keys() == {0, 1}
        same_weights(first, again)
        again.train()
        again.stop()
    assert [len(env.seeds) for env in envs.envs] > [1, 1]
    assert not envs.envs[0].closed


def test_space_of_a_subclass_is_restored_as_its_base(tmp_path):
    """A checkpoint contains standard spaces, and restoring leaves the environment open."""

    class Odd(gym.spaces.Box):
        pass

    class Oddly(Walk):
        def __init__(self):
            super().__init__()
            self.observation_space = Odd(-9, 9, (3,))

    PPO(Oddly(), QUICK).save_checkpoint(tmp_path / "one")
    env = Oddly()
    restored = PPO.restore(tmp_path / "one", env)
    assert restored.policy.observation_space == gym.spaces.Box(-9, 9, (3,))
    assert not env.closed


# --- faults ---------------------------------------------------------------------------------------


class Faulty(SyncVectorEnv):
    """Returns something else from the third step on."""

    def __init__(self, change, mode=AutoresetMode.NEXT_STEP):
        super().__init__([Walk] * 2, autoreset_mode=mode)
        self.change, self.count = change, 0

    def step(self, actions):
        self.count += 1
        returned = super().step(actions)
        return self.change(*returned) if self.count > 2 else returned


def broken(*_):
    raise RuntimeError("no more steps")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            broken,
            r"Faulty raised RuntimeError: no more steps \(.*test_ppo_environments\.py:\d+, in"
            r" broken\)",
        ),
        (
            lambda obs, r, t, u, i: (obs, r, t, i),
            r"returned .*; expected \(obs, reward, terminated, .*, infos\)",
        ),
        (
            lambda obs, r, t, u, i: (obs, r[:, None], t, u, i),
            r"reward of shape \(2, 1\) and float64; .* \(2,\)",
        ),
        (
            lambda obs, r, t, u, i: (obs, r, t.astype(float), u, i),
            r"terminated of shape \(2,\) and float64.*booleans",
        ),
        (
            lambda obs, r, t, u, i: (obs, ["a", "b"], t, u, i),
            r"returned reward of .*expected shape \(2,\) and numbers",
        ),
    ],
)
def test_fault_of_a_vector_environment_is_named(change, message):
    algo = PPO(Faulty(change), QUICK)
    with pytest.raises(EnvironmentFaultError, match=f"^the vector environment .*{message}"):
        algo.train()


def test_last_observation_that_is_missing_is_named():
    algo = PPO(Faulty(lambda *parts: (*parts[:4], {}), AutoresetMode.SAME_STEP), QUICK)
    with pytest.raises(
        EnvironmentFaultError,
        match=r'returned no infos\["final_obs"\], which mode SAME_STEP requires',
    ):
        algo.train()


# --- masks outside the observation ----------------------------------------------------------------


class Forbidding(Walk):
    """Has the method that sb3-contrib calls; it allows the first action alone."""

    def action_masks(self):
        return np.array([True, False])


class Batched(CartPoleVectorEnv):
    """A vector environment without members, which returns the masks of all at once."""

    def action_masks(self):
        return np.array([[True, False]] * self.num_envs)


class Showing(gym.ObservationWrapper):
    """Puts the mask into the observation."""

    def __init__(self, env):
        super().__init__(env)
        mask = gym.spaces.MultiBinary(2)
        self.observation_space = gym.spaces.Dict(
            {"action_mask": mask, "obs": env.observation_space}
        )

    def observation(self, obs):
        return {"action_mask": self.unwrapped.action_masks().astype(np.int8), "obs": obs}


FORMS = {
    "class": (Forbidding, SMALL),
    "wrapped": (lambda: ClipReward(Forbidding(), -1, 1), SMALL),
    "vector": (lambda: SyncVectorEnv([Forbidding] * 2), SMALL),
    "wrapped vector": (lambda: ClipVectorReward(SyncVectorEnv([Forbidding] * 2), -1, 1), SMALL),
    "batched": (lambda: Batched(2), SMALL),
    "async": (Forbidding, {**SMALL, "num_envs": 2, "vector": "async"}),
    "in the observation": (lambda: Showing(Forbidding()), SMALL),
}


@pytest.mark.grid
@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
@pytest.mark.parametrize("form", FORMS)
def test_action_masks_is_called_in_every_form(algorithm, form):
    """The method allows the first action alone; pytest makes any warning an error."""
    make, config = FORMS[form]
    env = make() if "vector" in form or form == "batched" else make
    algo = algorithm(env, {**config, "rollout_length": 128})  # PPO's minibatches fit
    assert not np.any(algo._collector.collect(30).raw_action)
    algo.stop()


def test_attribute_of_that_name_is_no_mask():
    class Noting(Walk):
        action_masks = None

    PPO(Noting, QUICK).stop()
