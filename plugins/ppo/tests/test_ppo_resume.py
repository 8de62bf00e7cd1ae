"""Resumed runs of PPO: equal to runs that were not stopped, bit by bit."""

import copy
import json
import random
import time
import warnings

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

import rlcatalog
from rlcatalog.errors import CatalogWarning, ConfigError, ResumeWarning, SavedPolicyError
from rlcatalog_ppo import PPO, callbacks
from rlcatalog_ppo.env_state import Resumable, fingerprint
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
        # TensorFlow is slow: it traces each model twice.
        ("tf", "lstm"),
        pytest.param("tf", "filter", marks=pytest.mark.attack),
        pytest.param("tf", "attention", marks=pytest.mark.attack),
        pytest.param("tf", "autoregressive", marks=pytest.mark.attack),
    ],
)
def test_resumed_run_equals_an_uninterrupted_run(framework, model, tmp_path):
    config = {**SMALL, "framework": framework, "model": MODELS[model]}
    uninterrupted = train_and_save(Drift, config, tmp_path / "checkpoint", iterations=2)
    results = train(uninterrupted, iterations=3)
    # Another process has other global random states.
    random.seed(99)
    np.random.seed(99)

    resumed = PPO.restore(tmp_path / "checkpoint", Drift)

    assert resumed.iterations == 2
    assert resumed.begun_anew == {}
    assert train(resumed, iterations=3) == results
    assert_same_state(resumed, uninterrupted)


@pytest.mark.parametrize(
    "make_env",
    [
        pytest.param(SavesItsState, id="saves-its-state"),
        pytest.param(lambda: TimeLimit(SavesItsState(), 13), id="saves-its-state-time-limit"),
        pytest.param(lambda: FrameStackObservation(TimeLimit(Drift(), 13), 3), id="is-replayed"),
        pytest.param(lambda: FrameStackObservation(SavesItsState(), 3), id="stack-of-frames"),
    ],
)
def test_resumed_run_is_equal_in_the_middle_of_episodes(make_env, tmp_path):
    uninterrupted = train_and_save(make_env, SMALL_TORCH, tmp_path / "checkpoint", iterations=1)
    results = train(uninterrupted, iterations=2)

    resumed = PPO.restore(tmp_path / "checkpoint", make_env)

    assert resumed.begun_anew == {}
    assert train(resumed, iterations=2) == results
    assert_same_state(resumed, uninterrupted)


def test_resumed_run_is_equal_with_nested_observations(tmp_path):
    class NestedDrift(Drift):
        observation_space = Dict({"x": Box(-10, 10, (3,), np.float32), "n": Discrete(4)})

        def reset(self, *, seed=None, options=None):
            obs, info = super().reset(seed=seed)
            return {"x": obs, "n": 1}, info

        def step(self, action):
            obs, *rest = super().step(action)
            return {"x": obs, "n": 2}, *rest

    uninterrupted = train_and_save(NestedDrift, SMALL_TORCH, tmp_path / "checkpoint", iterations=1)
    train(uninterrupted, iterations=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        resumed = PPO.restore(tmp_path / "checkpoint", NestedDrift)
    train(resumed, iterations=1)

    assert_same_state(resumed, uninterrupted)


@pytest.mark.parametrize(
    "preprocessing", ["deepmind", pytest.param("rllib", marks=pytest.mark.attack)]
)
def test_resumed_run_is_equal_in_an_atari_game(preprocessing, tmp_path):
    """Breakout-v5 repeats actions by chance, with a generator inside the game."""
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    config = {
        "num_envs": 2,
        "rollout_length": 20,
        "minibatch_size": 20,
        "num_epochs": 1,
        "seed": 3,
        "lr": 1e-2,
        "framework": "torch",
        "model": {"preprocessor_pref": preprocessing, "dim": 42},
    }

    def make_env():
        return TimeLimit(gym.make("ALE/Breakout-v5"), 31)

    # The seed determines all chance in the first episode, so go on beyond it.
    uninterrupted = train_and_save(make_env, config, tmp_path / "checkpoint", iterations=2)
    assert uninterrupted._collector.episodes.total
    results = train(uninterrupted, iterations=2)

    resumed = PPO.restore(tmp_path / "checkpoint", make_env)

    assert resumed.begun_anew == {}
    assert train(resumed, iterations=2) == results
    assert_same_state(resumed, uninterrupted)


# --- environments whose episodes cannot be resumed ------------------------------------------------


@pytest.fixture
def resumed_with_new_episodes(tmp_path):
    """A resumed LSTM whose 3 environments had to begin new episodes."""
    config = {**SMALL, "model": MODELS["lstm"], "framework": "torch"}
    train_and_save(HiddenGenerator, config, tmp_path / "checkpoint", iterations=6)
    with pytest.warns(
        ResumeWarning, match=r"3 of 3 .* its replayed episode (has a? ?different|ends after)"
    ):
        return PPO.restore(tmp_path / "checkpoint", HiddenGenerator)


def test_environment_without_a_state_begins_a_new_episode(resumed_with_new_episodes):
    assert sorted(resumed_with_new_episodes.begun_anew) == [0, 1, 2]

    envs = resumed_with_new_episodes._envs.envs
    last_observations = resumed_with_new_episodes._collector._encoded
    for env, obs in zip(envs, last_observations, strict=True):
        np.testing.assert_array_equal(obs, env.unwrapped.x)


def test_new_episode_of_a_resumed_run_starts_from_zero(resumed_with_new_episodes):
    collector = resumed_with_new_episodes._collector

    assert not collector._lengths.any()
    assert not collector._returns.any()
    assert not any(part.any() for part in collector._state.memory)  # the LSTM's


def test_run_with_new_episodes_trains_on(resumed_with_new_episodes):
    resumed_with_new_episodes.train()


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
    ("framework", "wrap", "difference"),
    [
        ("torch", RandomReward, "has different rewards"),
        ("torch", NormalizeReward, "has different rewards"),
        ("torch", ShorterEachTime, "has different rewards or a different end"),
        ("torch", CountInInfo, "has different infos: place"),
        ("tf", ShorterEachTime, "has different rewards or a different end"),
        pytest.param("tf", RandomReward, "has different rewards", marks=pytest.mark.attack),
        pytest.param("tf", NormalizeReward, "has different rewards", marks=pytest.mark.attack),
        pytest.param("tf", CountInInfo, "has different infos: place", marks=pytest.mark.attack),
    ],
)
def test_warning_names_what_a_replay_does_not_restore(framework, wrap, difference, tmp_path):
    def make_env():
        return wrap(drift_env.Drift())

    config = {**SMALL, "framework": framework, "model": NET}
    uninterrupted = train_and_save(make_env, config, tmp_path / "checkpoint", iterations=6)
    results = train(uninterrupted, iterations=2)

    with pytest.warns(ResumeWarning, match=f"3 of 3 .* its replayed episode {difference}"):
        resumed = PPO.restore(tmp_path / "checkpoint", make_env)

    assert len(resumed.begun_anew) == 3
    assert train(resumed, iterations=2) != results


@pytest.mark.parametrize("wrap", [TimesInInfo, RecordEpisodeStatistics])
def test_replay_ignores_times_in_infos(wrap, tmp_path):
    def make_env():
        return wrap(drift_env.Drift())

    uninterrupted = train_and_save(make_env, SMALL_TORCH, tmp_path / "checkpoint", iterations=6)
    results = train(uninterrupted, iterations=2)

    resumed = PPO.restore(tmp_path / "checkpoint", make_env)

    assert resumed.begun_anew == {}
    assert train(resumed, iterations=2) == results


# --- replay of one environment --------------------------------------------------------------------


ACTION = np.array([2, 1])


@pytest.fixture
def env_after_four_steps():
    env = Resumable(Drift())
    env.reset(seed=5)
    for _ in range(4):
        env.step(ACTION)
    return env


def test_replay_restores_observation_and_record(env_after_four_steps):
    place = env_after_four_steps.where()
    new_env = Resumable(Drift())

    difference = new_env.go_to([place])

    assert difference is None
    np.testing.assert_array_equal(new_env.unwrapped.x, env_after_four_steps.unwrapped.x)
    assert new_env.where() == place


def test_replay_with_other_actions_finds_another_observation(env_after_four_steps):
    place = env_after_four_steps.where()
    place["actions"][0] = [0, 0]

    difference = Resumable(Drift()).go_to([place])

    assert "different observation" in difference


def test_replay_finds_another_state_of_the_generator(env_after_four_steps):
    place = copy.deepcopy(env_after_four_steps.where())
    place["generator"]["state"]["state"] += 2
    new_env = Resumable(Drift())

    difference = new_env.go_to([place])

    assert "generator is in a different state" in difference
    # The new episode is drawn from the saved state.
    assert new_env.where()["generator"] == place["generator"]


class GreetsIfPolite(gym.Wrapper):
    """Adds a greeting to its infos if it is polite."""

    def __init__(self, env, *, polite):
        super().__init__(env)
        self.polite = polite

    def step(self, action):
        *rest, info = self.env.step(action)
        if self.polite:
            info = {**info, "greeting": "hello"}
        return *rest, info


@pytest.mark.parametrize("was_polite", [True, False], ids=["missing", "new"])
def test_replay_finds_missing_and_new_infos(was_polite):
    env = Resumable(GreetsIfPolite(drift_env.Drift(), polite=was_polite))
    env.reset(seed=5)
    env.step(ACTION)
    new_env = Resumable(GreetsIfPolite(drift_env.Drift(), polite=not was_polite))

    difference = new_env.go_to([env.where()])

    assert difference == "its replayed episode has different infos: greeting"


@pytest.fixture
def env_after_two_episodes():
    """An environment with random rewards, at the start of its third episode."""
    env = Resumable(RandomReward(drift_env.Drift()))
    env.reset(seed=5)
    for _ in range(2):
        done = False
        while not done:
            _, _, terminated, truncated, _ = env.step(ACTION)
            done = terminated or truncated
        env.reset()
    return env


def test_replay_of_the_episode_before_finds_other_rewards(env_after_two_episodes):
    """The episode in progress has no reward yet, so only the one before can differ."""
    place = env_after_two_episodes.where()
    assert place["actions"] == []

    difference = Resumable(RandomReward(drift_env.Drift())).go_to([place])

    assert "has different rewards" in difference


def test_replay_of_the_episode_before_finds_equal_rewards(env_after_two_episodes):
    place = env_after_two_episodes.where()
    new_env = Resumable(RandomReward(drift_env.Drift()))
    # Rewards are equal from the generator's state before the second episode: one draw a step ago.
    new_env.env.hidden_generator = copy.deepcopy(env_after_two_episodes.env.hidden_generator)
    steps_of_second_episode = len(place["before"]["actions"])
    new_env.env.hidden_generator.bit_generator.advance(-steps_of_second_episode)

    assert new_env.go_to([place]) is None


def test_fingerprint_differs_with_values_dtypes_and_shapes():
    observations = [
        {"a": np.zeros(2), "b": 1},
        {"a": np.zeros(2, np.float32), "b": 1},
        {"a": np.zeros((2, 1)), "b": 1},
        {"a": np.zeros(2), "b": 2},
        (np.zeros(2), 1),
        (np.zeros(2), (1,)),
        ("text", 1),
    ]

    fingerprints = {fingerprint(obs) for obs in observations}

    assert len(fingerprints) == len(observations)


def test_fingerprint_ignores_the_order_of_keys():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


# --- checkpoints and evaluations during a run -----------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_checkpoints_and_evaluations_do_not_change_a_run(framework, tmp_path):
    config = {**SMALL, "model": MODELS["filter"], "framework": framework}
    plain = PPO(Drift, config)
    plain.learn(120)

    evaluation = callbacks.Evaluation(30, 2, tmp_path / "best")
    checkpoints = callbacks.Checkpoints(tmp_path, 30, keep=2)
    watched = PPO(Drift, config, callbacks=[evaluation, checkpoints])
    result = watched.learn(120)

    assert set(result["evaluation"]) == {
        "return_mean",
        "return_std",
        "sampled_return_mean",
        "episodes",
    }
    watched.callbacks = []  # whose own states are part of the algorithm's
    assert_same_state(watched, plain)
    # The last two of one every 30 steps.
    assert [path.name for path in checkpoints_of(tmp_path)] == ["step-000000090", "step-000000120"]
    for folder in ("best", "policy", "checkpoints/step-000000120/policy"):
        rlcatalog.load(tmp_path / folder)


def test_best_return_is_kept_when_a_run_resumes(tmp_path):
    def make_callbacks():
        return [callbacks.Evaluation(30, 2, tmp_path / "best"), callbacks.Checkpoints(tmp_path, 30)]

    algo = PPO(Drift, SMALL_TORCH, callbacks=make_callbacks())
    algo.learn(60)
    unreachable_return = 1e9
    algo.callbacks[0].best = unreachable_return
    algo.save_checkpoint(tmp_path / "other")
    best_policy = (tmp_path / "best" / "policy.json").read_bytes()

    resumed = PPO.restore(tmp_path / "other", Drift, callbacks=make_callbacks())
    assert resumed.callbacks[0].best == unreachable_return
    resumed.learn(120)

    assert (tmp_path / "best" / "policy.json").read_bytes() == best_policy


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


@pytest.mark.parametrize(
    ("error", "iteration"),
    [
        pytest.param(RuntimeError("gone"), 1, id="error-at-once"),
        pytest.param(RuntimeError("gone"), 3, id="error"),
        pytest.param(KeyboardInterrupt(), 3, id="interrupt"),
    ],
)
def test_broken_run_resumes_from_a_complete_iteration(error, iteration, tmp_path):
    config = {**SMALL, "model": MODELS["filter"], "framework": "torch"}
    break_iteration = BreakIteration(error, iteration=iteration)
    checkpoints = callbacks.Checkpoints(tmp_path, 0)
    broken = PPO(Drift, config, callbacks=[break_iteration, checkpoints])
    with pytest.raises(type(error)):
        broken.learn(300)

    resumed = PPO.restore(tmp_path, Drift)

    # An iteration has 30 steps. The state is not copied after each of them, so the run may
    # resume from any before the broken one.
    assert resumed.steps in range(0, 30 * iteration, 30)
    unbroken = PPO(Drift, config)
    unbroken.learn(resumed.steps)
    assert_same_state(resumed, unbroken)
    weights = unbroken.policy.model.get_weights()
    saved_policy = rlcatalog.load(tmp_path / "policy")
    for name, array in saved_policy.model.get_weights().items():
        np.testing.assert_array_equal(array, weights[name])


# --- `learn` after its last step ------------------------------------------------------------------


def test_learn_takes_whole_iterations():
    algo = PPO(Drift, SMALL)

    result = algo.learn(50)

    assert algo.steps == 60  # 2 iterations of 30
    assert result["timesteps_total"] == 60


def test_learn_of_steps_already_taken_warns():
    algo = PPO(Drift, SMALL)
    last_result = algo.learn(50)

    with pytest.warns(CatalogWarning, match=r"learn\(50\) trains nothing") as caught:
        result = algo.learn(50)

    assert result is last_result
    message = str(caught[0].message)
    assert "60 steps were already taken" in message
    assert " total, such as learn(110)" in message  # 60 and 50 more


def test_learn_of_exactly_the_steps_taken_warns():
    algo = PPO(Drift, SMALL)
    algo.learn(60)

    with pytest.warns(CatalogWarning, match=r"such as learn\(120\)"):
        algo.learn(60)


def test_learn_of_a_step_more_trains_an_iteration():
    algo = PPO(Drift, SMALL)
    algo.learn(60)

    result = algo.learn(61)

    assert result["timesteps_total"] == algo.steps == 90


def test_learn_of_steps_taken_before_restore_warns(tmp_path):
    algo = PPO(Drift, SMALL)
    algo.learn(90)
    algo.save_checkpoint(tmp_path)
    resumed = PPO.restore(tmp_path, Drift)

    with pytest.warns(CatalogWarning, match="90 steps were already taken") as caught:
        result = resumed.learn(80)

    assert "such as learn(170)" in str(caught[0].message)
    assert result is None  # a checkpoint contains no result


def test_learn_after_stop_training_warns_until_it_is_cleared():
    algo = PPO(Drift, SMALL)
    algo.learn(90)
    algo.stop_training("that will do")

    with pytest.warns(CatalogWarning, match="that will do. To train further") as caught:
        algo.learn(200)
    assert "set algo.stopping = None" in str(caught[0].message)

    algo.stopping = None
    assert algo.learn(120)["timesteps_total"] == 120


# --- checkpoints that cannot be resumed or written ------------------------------------------------


def edit_training_json(folder, **changes):
    path = folder / "training.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, **changes}))


def change_the_state(folder):
    state = json.loads((folder / "training.json").read_text())["state"]
    edit_training_json(folder, state={**state, "steps": 7})


def change_the_format(folder):
    edit_training_json(folder, format_version=9)


def overwrite_the_arrays(folder):
    path = next(folder.glob("*.safetensors"))
    path.write_bytes(b"\0" * 100)


def delete_training_json(folder):
    (folder / "training.json").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (change_the_state, "checksum differs"),
        (change_the_format, "format version 9"),
        (overwrite_the_arrays, "truncated or changed"),
        (delete_training_json, "contains no checkpoint"),
    ],
)
def test_restore_of_a_damaged_checkpoint_is_an_error(damage, message, tmp_path):
    PPO(Drift, SMALL_TORCH).save_checkpoint(tmp_path / "checkpoint")
    damage(tmp_path / "checkpoint")

    with pytest.raises(SavedPolicyError, match=message):
        PPO.restore(tmp_path / "checkpoint", Drift)


@pytest.mark.parametrize(
    "save",
    [
        pytest.param(lambda algo, folder: algo.save(folder), id="algo"),
        pytest.param(lambda algo, folder: algo.policy.save(folder), id="policy"),
    ],
)
def test_restore_of_a_saved_policy_says_what_to_do(save, tmp_path):
    save(PPO(Drift, SMALL), tmp_path)

    with pytest.raises(SavedPolicyError, match="contains a saved policy") as caught:
        PPO.restore(tmp_path, Drift)

    message = str(caught.value)
    assert "contains a saved policy, not a checkpoint" in message
    assert f"rlcatalog.load({str(tmp_path)!r})" in message
    assert "algo.save_checkpoint(folder)" in message


def test_restore_works_as_its_error_for_saved_policies_says(tmp_path):
    algo = PPO(Drift, SMALL)
    algo.save(tmp_path)
    algo.save_checkpoint(tmp_path / "checkpoint")

    rlcatalog.load(tmp_path)
    PPO.restore(tmp_path / "checkpoint", Drift)


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


def test_restore_refuses_an_environment_with_other_spaces(checkpoint):
    with pytest.raises(ConfigError, match="policy: its observation_space is"):
        PPO.restore(checkpoint, "CartPole-v1")


def test_restore_refuses_the_checkpoint_of_another_algorithm(checkpoint):
    class OtherAlgorithm(PPO):
        pass

    with pytest.raises(SavedPolicyError, match="PPO wrote this checkpoint") as caught:
        OtherAlgorithm.restore(checkpoint, Drift)

    assert "OtherAlgorithm cannot resume it" in str(caught.value)


def test_restore_accepts_other_settings(checkpoint):
    resumed = PPO.restore(checkpoint, Drift, config={"lr": 0.5})

    assert resumed.config.lr == 0.5


def test_config_that_cannot_be_saved_keeps_the_old_checkpoint(checkpoint):
    env_config = {"map": object()}
    algo = PPO(lambda config: Drift(), {**SMALL_TORCH, "env_config": env_config})

    with pytest.raises(SavedPolicyError, match="the run cannot be saved") as caught:
        algo.save_checkpoint(checkpoint)

    assert "config/env_config/map: object cannot" in str(caught.value)
    assert PPO.restore(checkpoint, Drift).steps == 0
