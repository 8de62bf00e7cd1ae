"""Resumed runs of PPO: equal to runs that were not stopped, bit by bit."""

import random
import time

import drift_env
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.wrappers import (
    FrameStackObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    TimeLimit,
)

from rlcatalog.errors import CatalogWarning, ConfigError, ResumeWarning, SavedPolicyError
from rlcatalog_ppo import A2C, PPO, callbacks
from rlcatalog_ppo.trees import take_apart
from rlcatalog_runs.checkpoints import checkpoints_of

pytestmark = pytest.mark.twins

#: An iteration is 30 steps: 10 in each of 3 environments.
SMALL = {
    "num_envs": 3,
    "rollout_length": 10,
    "minibatch_size": 16,
    "num_epochs": 2,
    "seed": 3,
    "total_steps": 400,
    "kl_coeff": 0.3,
}
NET = {"fcnet_hiddens": [8]}
SMALL_TORCH = {**SMALL, "framework": "torch", "model": NET}
NET_FOR_SEQUENCES = {**NET, "max_seq_len": 4}
MODELS = {
    "filter": {**NET, "observation_filter": "MeanStdFilter"},
    "lstm": {
        **NET_FOR_SEQUENCES,
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
    "attention": {
        **NET_FOR_SEQUENCES,
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_memory_inference": 4,
        "attention_memory_training": 4,
    },
    "autoregressive": {**NET, "use_autoregressive": True},
    "recurrent_critic": {
        **NET_FOR_SEQUENCES,
        "critic": {**NET, "use_lstm": True, "lstm_cell_size": 5},
    },
}


class Drift(drift_env.Drift):
    """The same, but it overwrites its observations."""

    def reset(self, *, seed=None, options=None):
        self.shown, info = super().reset(seed=seed)
        return self.shown, info

    def step(self, action):
        self.shown[...], *rest = super().step(action)
        return self.shown, *rest


class HiddenGenerator(drift_env.Drift):
    """Draws from a generator that Gymnasium does not know, and cannot save its state."""

    def __init__(self):
        self.hidden_generator = random.Random(1)

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        self.x += np.float32(self.hidden_generator.random())
        return self.x.copy(), info


class SavesItsState(HiddenGenerator):
    """The same, but it can save its state."""

    def get_state(self):
        return {"own": self.hidden_generator.getstate(), "t": self.t, "x": self.x.copy()}

    def set_state(self, state):
        self.hidden_generator.setstate(state["own"])
        self.t = state["t"]
        self.x = state["x"]


def state_as_data(algo):
    """Return an algorithm's state as JSON and arrays, without what may differ when it resumes."""
    arrays = {}
    state = algo.state()
    del state["seconds"]
    data = take_apart(state, arrays)
    for place in data["environments"]:
        for record in (place, place.get("before", {})):
            if record.get("begun", {}).get("seed") is not None:
                # A reset with a seed makes a new generator, so the former one does not matter.
                del record["begun"]["generator"]
    return data, arrays


def assert_same_state(algo, other):
    """Compare the states of two algorithms bit by bit."""
    data, arrays = state_as_data(algo)
    other_data, other_arrays = state_as_data(other)
    assert data == other_data
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)


def train(algo, *, iterations):
    """Train, and return the result of each iteration without its times."""
    times = ("time_total_s", "steps_per_second")
    results = []
    for _ in range(iterations):
        result = algo.train()
        results.append({name: value for name, value in result.items() if name not in times})
    return results


def train_and_save(make_env, config, folder, *, iterations):
    """Train a new algorithm, write a checkpoint, and return the algorithm."""
    algo = PPO(make_env, config)
    train(algo, iterations=iterations)
    algo.save_checkpoint(folder)
    return algo


# --- models and environments ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "model"),
    [
        ("torch", "filter"),
        ("torch", "lstm"),
        ("torch", "attention"),
        ("torch", "autoregressive"),
        ("torch", "recurrent_critic"),
        # TensorFlow is slow: it traces each model twice.
        ("tf", "lstm"),
        pytest.param("tf", "filter", marks=pytest.mark.slow),
        pytest.param("tf", "attention", marks=pytest.mark.slow),
        pytest.param("tf", "autoregressive", marks=pytest.mark.slow),
        pytest.param("tf", "recurrent_critic", marks=pytest.mark.slow),
    ],
)
def test_resumed_run_equals_an_uninterrupted_run(framework, model, tmp_path):
    config = {**SMALL, "framework": framework, "model": MODELS[model]}
    uninterrupted = train_and_save(Drift, config, tmp_path / "checkpoint", iterations=2)
    expected_results = train(uninterrupted, iterations=3)
    # Another process has other global random states.
    random.seed(99)
    np.random.seed(99)

    resumed = PPO.restore(tmp_path / "checkpoint", Drift)

    assert resumed.iterations == 2
    assert resumed.new_episode_reasons == {}  # all environments continue their episodes
    assert train(resumed, iterations=3) == expected_results
    assert_same_state(resumed, uninterrupted)


class NestedDrift(Drift):
    """Observes a dict."""

    observation_space = Dict({"x": Box(-10, 10, (3,), np.float32), "t": Discrete(20)})

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return {"x": obs, "t": self.t}, info

    def step(self, action):
        obs, *rest = super().step(action)
        return {"x": obs, "t": self.t}, *rest


@pytest.mark.parametrize(
    "make_env",
    [
        pytest.param(NestedDrift, id="dict"),
        pytest.param(SavesItsState, id="saves-its-state"),
        pytest.param(lambda: TimeLimit(SavesItsState(), 13), id="saves-its-state-time-limit"),
        pytest.param(lambda: FrameStackObservation(TimeLimit(Drift(), 13), 3), id="is-replayed"),
        pytest.param(lambda: FrameStackObservation(SavesItsState(), 3), id="stack-of-frames"),
    ],
)
def test_resumed_run_is_equal_in_the_middle_of_episodes(make_env, tmp_path):
    uninterrupted = train_and_save(make_env, SMALL_TORCH, tmp_path / "checkpoint", iterations=1)
    expected_results = train(uninterrupted, iterations=2)

    resumed = PPO.restore(tmp_path / "checkpoint", make_env)

    assert resumed.new_episode_reasons == {}  # all environments continue their episodes
    assert train(resumed, iterations=2) == expected_results
    assert_same_state(resumed, uninterrupted)


@pytest.mark.parametrize(
    "preprocessing", ["deepmind", pytest.param("rllib", marks=pytest.mark.slow)]
)
def test_resumed_run_is_equal_in_an_atari_game(preprocessing, tmp_path):
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    model = {"preprocessor_pref": preprocessing, "dim": 42}
    config = {**SMALL, "num_envs": 2, "rollout_length": 20, "framework": "torch", "model": model}

    def make_env():
        return TimeLimit(gym.make("ALE/Breakout-v5"), max_episode_steps=31)

    # Breakout-v5 repeats actions at random. In the first episode only the seed determines when, so
    # save the run in the second: after 40 steps, where an episode has 31.
    uninterrupted = train_and_save(make_env, config, tmp_path / "checkpoint", iterations=2)
    expected_results = train(uninterrupted, iterations=2)

    resumed = PPO.restore(tmp_path / "checkpoint", make_env)

    assert resumed.new_episode_reasons == {}  # both environments continue their episodes
    assert train(resumed, iterations=2) == expected_results
    assert_same_state(resumed, uninterrupted)


# --- environments whose episodes cannot be resumed ------------------------------------------------


def test_environment_without_a_state_begins_a_new_episode(tmp_path):
    config = {**SMALL, "model": MODELS["lstm"], "framework": "torch"}
    train_and_save(HiddenGenerator, config, tmp_path / "checkpoint", iterations=6)

    with pytest.warns(ResumeWarning, match=r"replayed episode (has|ends after)"):
        resumed = PPO.restore(tmp_path / "checkpoint", HiddenGenerator)

    assert sorted(resumed.new_episode_reasons) == [0, 1, 2]
    collector = resumed._collector
    for env, obs in zip(resumed._envs.envs, collector._inputs.obs, strict=True):
        np.testing.assert_array_equal(obs, env.unwrapped.x)
    assert not collector._in_progress.lengths.any()
    assert not collector._in_progress.returns.any()
    assert not any(part.any() for part in collector._inputs.state.memory)  # the LSTM's
    resumed.train()


class RandomReward(gym.Wrapper):
    """Adds to rewards from a generator that Gymnasium does not know."""

    def __init__(self, env):
        super().__init__(env)
        self.hidden_generator = np.random.default_rng(7)

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, float(reward + self.hidden_generator.normal()), *rest


class ShorterEachTime(gym.Wrapper):
    """Truncates each episode a step sooner than the one before."""

    def __init__(self, env):
        super().__init__(env)
        self.episodes = 0

    def reset(self, **arguments):
        self.episodes += 1
        return self.env.reset(**arguments)

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        limit = max(2, 9 - self.episodes)
        truncated = truncated or self.unwrapped.t >= limit
        return obs, reward, terminated, truncated, info


class CountInInfo(gym.Wrapper):
    """Counts the steps of all episodes, and shows the number in infos alone."""

    steps = 0

    def reset(self, **options):
        obs, info = self.env.reset(**options)
        return obs, {**info, "place": {"level": self.steps}}

    def step(self, action):
        *rest, info = self.env.step(action)
        self.steps += 1
        return *rest, {**info, "place": {"level": self.steps}, "speed": time.perf_counter()}


class TimesInInfo(gym.Wrapper):
    """Has times and objects in its infos, which differ in each run."""

    def step(self, action):
        *rest, info = self.env.step(action)
        own_info = {
            "now": time.time(),
            "took": {"s": np.float64(time.perf_counter())},
            "env": object(),
        }
        return *rest, {**info, **own_info}


@pytest.mark.parametrize(
    ("wrapper", "difference"),
    [
        (RandomReward, "has different rewards"),
        (NormalizeReward, "has different rewards"),
        (ShorterEachTime, "has different rewards or a different end"),
        (CountInInfo, "has different infos: place"),
    ],
)
def test_warning_names_what_a_replay_does_not_restore(wrapper, difference, tmp_path):
    def make_env():
        return wrapper(drift_env.Drift())

    uninterrupted = train_and_save(make_env, SMALL_TORCH, tmp_path / "checkpoint", iterations=6)
    results = train(uninterrupted, iterations=2)

    with pytest.warns(ResumeWarning, match=f"3 of 3 .* replayed episode {difference}"):
        resumed = PPO.restore(tmp_path / "checkpoint", make_env)

    # All three environments begin new episodes, so the run continues in another way.
    assert resumed.new_episode_reasons.keys() == {0, 1, 2}
    assert train(resumed, iterations=2) != results


@pytest.mark.parametrize("wrapper", [TimesInInfo, RecordEpisodeStatistics])
def test_replay_ignores_times_in_infos(wrapper, tmp_path):
    def make_env():
        return wrapper(drift_env.Drift())

    uninterrupted = train_and_save(make_env, SMALL_TORCH, tmp_path / "checkpoint", iterations=6)
    expected_results = train(uninterrupted, iterations=2)

    resumed = PPO.restore(tmp_path / "checkpoint", make_env)

    assert resumed.new_episode_reasons == {}  # all environments continue their episodes
    assert train(resumed, iterations=2) == expected_results


# --- checkpoints and evaluations during a run -----------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_checkpoints_and_evaluations_do_not_change_a_run(framework, tmp_path):
    config = {**SMALL, "model": MODELS["filter"], "framework": framework}
    plain = PPO(Drift, config)
    plain.learn(120)

    evaluation = callbacks.Evaluation(every=30, episodes=2, folder=tmp_path / "best")
    checkpoints = callbacks.Checkpoints(tmp_path, every=30)
    watched = PPO(Drift, config, callbacks=[evaluation, checkpoints])
    result = watched.learn(120)

    assert result["evaluation"]["episodes"] == 2
    assert len(checkpoints_of(tmp_path)) == 2  # the last two are kept
    watched.callbacks = []  # their states are part of the algorithm's
    assert_same_state(watched, plain)


class BreakIteration(callbacks.Callback):
    """Changes the weights and raises an error in the middle of an iteration."""

    def __init__(self, error, *, iteration):
        self.error = error
        self.iteration = iteration
        self.rollouts = 0

    def on_rollout(self, algo, rollout):
        self.rollouts += 1
        if self.rollouts == self.iteration:
            weights = algo.policy.model.get_weights()
            algo.policy.model.set_weights({name: array + 1 for name, array in weights.items()})
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("gone"), KeyboardInterrupt()], ids=repr)
def test_broken_run_resumes_from_a_complete_iteration(error, tmp_path):
    config = {**SMALL, "model": MODELS["filter"], "framework": "torch"}
    break_third_iteration = BreakIteration(error, iteration=3)
    checkpoints = callbacks.Checkpoints(tmp_path, every=0)  # only at the start and the end
    broken = PPO(Drift, config, callbacks=[break_third_iteration, checkpoints])
    with pytest.raises(type(error)):
        broken.learn(300)

    resumed = PPO.restore(tmp_path, Drift)

    # An iteration has 30 steps. The state is copied now and then, not after each iteration.
    assert resumed.steps in (0, 30, 60)
    unbroken = PPO(Drift, config)
    unbroken.learn(resumed.steps)
    assert_same_state(resumed, unbroken)


# --- `learn` --------------------------------------------------------------------------------------


def test_learn_takes_whole_iterations():
    algo = PPO(Drift, SMALL)  # 30 steps in each iteration

    assert algo.learn(50)["timesteps_total"] == 60
    assert algo.learn(61)["timesteps_total"] == 90


def test_learn_of_steps_taken_before_restore_warns(tmp_path):
    algo = PPO(Drift, SMALL)
    algo.learn(90)
    algo.save_checkpoint(tmp_path)
    resumed = PPO.restore(tmp_path, Drift)

    with pytest.warns(CatalogWarning, match="90 steps were already taken"):
        result = resumed.learn(80)

    assert result is None  # a checkpoint contains no result


def test_learn_after_stop_training_warns_until_it_is_cleared():
    algo = PPO(Drift, SMALL)
    algo.learn(90)
    algo.stop_training("that will do")

    with pytest.warns(CatalogWarning, match="that will do. To train further") as caught:
        algo.learn(200)
    assert "set algo.stopping = None" in str(caught[0].message)

    algo.stopping = None
    assert algo.learn(120)["timesteps_total"] == 120  # 30 more


# --- checkpoints that cannot be resumed or written ------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path):
    """The folder of a checkpoint of PPO in Drift, which is not registered in Gymnasium."""
    PPO(Drift, SMALL_TORCH).save_checkpoint(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_restore_needs_an_environment_without_an_id(checkpoint):
    with pytest.raises(ConfigError, match="was not a Gymnasium id; pass it"):
        PPO.restore(checkpoint)


def test_restore_refuses_another_model(checkpoint):
    with pytest.raises(ConfigError, match="the saved model is used"):
        PPO.restore(checkpoint, Drift, config={"model": {"fcnet_hiddens": [3]}})


def test_restore_refuses_another_framework(checkpoint):
    with pytest.raises(ConfigError, match="was trained with framework='torch'") as caught:
        PPO.restore(checkpoint, Drift, config={"framework": "tf"})

    way_out = f"policy=rlcatalog.load({str(checkpoint / 'policy')!r}, framework='tf')"
    assert str(caught.value).endswith(way_out)


def test_restore_accepts_its_own_framework(checkpoint):
    algo = PPO.restore(checkpoint, Drift, config={"framework": "torch", "lr": 0.1})
    assert algo.policy.framework == "torch"


def test_restore_refuses_the_checkpoint_of_another_algorithm(checkpoint):
    with pytest.raises(SavedPolicyError, match="PPO wrote this checkpoint") as caught:
        A2C.restore(checkpoint, Drift)

    assert "A2C cannot resume it" in str(caught.value)


def test_restore_refuses_an_environment_with_other_spaces(checkpoint):
    with pytest.raises(ConfigError, match="policy: its observation_space is"):
        PPO.restore(checkpoint, "CartPole-v1")


def test_config_that_cannot_be_saved_keeps_the_old_checkpoint(checkpoint):
    env_config = {"map": object()}
    algo = PPO(lambda config: Drift(), {**SMALL_TORCH, "env_config": env_config})

    with pytest.raises(SavedPolicyError, match="the run cannot be saved") as caught:
        algo.save_checkpoint(checkpoint)

    assert "config/env_config/map: object cannot" in str(caught.value)
    assert PPO.restore(checkpoint, Drift).steps == 0
