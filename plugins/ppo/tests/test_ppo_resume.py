"""A run that goes on from a checkpoint is the run that was not stopped, bit by bit."""

import copy
import itertools
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
from rlcatalog_ppo.trees import put_together, take_apart
from rlcatalog_runs.checkpoints import checkpoints_of

pytestmark = pytest.mark.twins

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
REMEMBERS = {**NET, "max_seq_len": 4}
MODELS = {
    "filter": {**NET, "observation_filter": "MeanStdFilter"},
    "lstm": {
        **REMEMBERS,
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
    "attention": {
        **REMEMBERS,
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_memory_inference": 4,
        "attention_memory_training": 4,
    },
    "autoregressive": {**NET, "use_autoregressive": True},
}


class Drift(drift_env.Drift):
    """The same, but it writes over its observations."""

    def reset(self, *, seed=None, options=None):
        self.shown, info = super().reset(seed=seed)
        return self.shown, info

    def step(self, action):
        self.shown[...], *rest = super().step(action)
        return self.shown, *rest


class Stateful(drift_env.Drift):
    """Draws from a generator that Gymnasium knows nothing of, so that only it can say where it
    stands.
    """

    def __init__(self):
        self.own = random.Random(1)

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        self.x += np.float32(self.own.random())
        return self.x.copy(), info

    def get_state(self):
        return {"own": self.own.getstate(), "t": self.t, "x": self.x.copy()}

    def set_state(self, state):
        self.own.setstate(state["own"])
        self.t, self.x = state["t"], state["x"]


class Mute(Stateful):
    """The same, but it does not say."""

    get_state = set_state = None


def numbers(algo):
    """Return all that must be equal, as JSON and arrays."""
    arrays = {}
    told = take_apart({k: v for k, v in algo.state().items() if k != "seconds"}, arrays)
    for place in told["environments"]:
        for record in (place, place.get("before", {})):
            if record.get("begun", {}).get("seed") is not None:
                del record["begun"]["generator"]  # the first reset's seed makes another
    return told, arrays


def same(one, other):
    """Raise unless two algorithms are in the same state, bit by bit."""
    (told, arrays), (told2, arrays2) = numbers(one), numbers(other)
    assert told == told2
    assert arrays.keys() == arrays2.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, arrays2[name], err_msg=name)


def timeless(result):
    return {
        name: value
        for name, value in result.items()
        if name not in ("time_total_s", "steps_per_second")
    }


@pytest.mark.parametrize(
    ("framework", "model"),
    [
        # TensorFlow traces each model twice.
        (framework, model)
        if framework == "torch" or model == "lstm"
        else pytest.param(framework, model, marks=pytest.mark.attack)
        for framework, model in itertools.product(["torch", "tf"], MODELS)
    ],
)
def test_the_rest_of_a_run_is_what_it_would_have_been(framework, model, tmp_path):
    config = {**SMALL, "framework": framework, "model": MODELS[model]}
    whole = PPO(Drift, config)
    for _ in range(2):
        whole.train()
    whole.save_checkpoint(tmp_path / "checkpoint")
    rest = [timeless(whole.train()) for _ in range(3)]
    random.seed(99), np.random.seed(99)  # of another process
    gone_on = PPO.restore(tmp_path / "checkpoint", Drift)
    assert gone_on.iterations == 2
    assert gone_on.begun_anew == {}
    assert [timeless(gone_on.train()) for _ in range(3)] == rest
    same(gone_on, whole)


@pytest.mark.parametrize(
    "env",
    [
        Stateful,
        lambda: TimeLimit(Stateful(), 13),
        lambda: FrameStackObservation(TimeLimit(Drift(), 13), 3),
        lambda: FrameStackObservation(Stateful(), 3),
    ],
)
def test_environments_say_their_state_or_play_again(env, tmp_path):
    whole = PPO(env, {**SMALL, "model": NET, "framework": "torch"})
    whole.train()
    whole.save_checkpoint(tmp_path / "checkpoint")
    rest = [timeless(whole.train()) for _ in range(2)]
    gone_on = PPO.restore(tmp_path / "checkpoint", env)
    assert gone_on.begun_anew == {}
    assert [timeless(gone_on.train()) for _ in range(2)] == rest
    same(gone_on, whole)


def test_environment_that_tells_nothing_begins_its_next_episode(tmp_path):
    algo = PPO(Mute, {**SMALL, "model": MODELS["lstm"], "framework": "torch"})
    for _ in range(6):
        algo.train()
    algo.save_checkpoint(tmp_path / "checkpoint")
    with pytest.warns(
        ResumeWarning, match=r"3 of 3 .* its replayed episode (has a? ?different|ends after)"
    ):
        gone_on = PPO.restore(tmp_path / "checkpoint", Mute)
    assert sorted(gone_on.begun_anew) == [0, 1, 2]
    collector = gone_on._collector
    assert not collector._lengths.any()
    assert not collector._returns.any()
    assert not any(part.any() for part in collector._state.memory)
    for env, encoded in zip(gone_on._envs.envs, collector._encoded, strict=True):
        np.testing.assert_array_equal(encoded, env.unwrapped.x)
    gone_on.train()


def test_what_is_checked_is_the_observation_and_the_generator():
    env, other = Resumable(Drift()), Resumable(Drift())
    env.reset(seed=5)
    for _ in range(4):
        env.step(np.array([2, 1]))
    place = env.where()
    assert other.go_to([place]) is None
    np.testing.assert_array_equal(other.unwrapped.x, env.unwrapped.x)
    assert other.where() == place
    wrong = {**place, "actions": [[0, 0], *place["actions"][1:]]}
    assert "different observation" in other.go_to([wrong])
    drawn = copy.deepcopy(place)
    drawn["generator"]["state"]["state"] += 2
    assert "generator is in a different state" in other.go_to([drawn])
    # The next episode is drawn from where it stood.
    assert other.where()["generator"] == drawn["generator"]


class Paid(gym.Wrapper):
    """Pays by a generator of its own, which shows in the rewards alone."""

    def __init__(self, env):
        super().__init__(env)
        self.own = np.random.default_rng(7)

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, float(reward + self.own.normal()), *rest


class Curriculum(gym.Wrapper):
    """Ends episodes sooner, the more there were; nothing else shows it."""

    def __init__(self, env):
        super().__init__(env)
        self.episodes = 0

    def reset(self, **arguments):
        self.episodes += 1
        return self.env.reset(**arguments)

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return (
            obs,
            reward,
            terminated,
            truncated or self.unwrapped.t >= max(2, 9 - self.episodes),
            info,
        )


class Level(gym.Wrapper):
    """Counts its steps in the infos alone."""

    steps = 0

    def reset(self, **options):
        obs, info = self.env.reset(**options)
        return obs, {**info, "place": {"level": self.steps}}

    def step(self, action):
        *rest, info = self.env.step(action)
        self.steps += 1
        return *rest, {**info, "place": {"level": self.steps}, "speed": time.perf_counter()}


class Clocked(gym.Wrapper):
    """Shows times and objects in the infos, which differ from run to run by nature."""

    def step(self, action):
        *rest, info = self.env.step(action)
        return *rest, {
            **info,
            "now": time.time(),
            "took": {"s": np.float64(time.perf_counter())},
            "env": object(),
        }


def restored(make, folder, framework="torch"):
    """Return the reasons why environments began anew, and whether the rest of the run was what it
    would have been.
    """
    whole = PPO(make, {**SMALL, "model": {"fcnet_hiddens": [8]}, "framework": framework})
    for _ in range(6):
        whole.train()
    whole.save_checkpoint(folder)
    rest = [timeless(whole.train()) for _ in range(2)]
    gone_on = PPO.restore(folder, make)
    return list(gone_on.begun_anew.values()), [timeless(gone_on.train()) for _ in range(2)] == rest


LOST = [
    (Paid, "has different rewards"), (NormalizeReward, "has different rewards"),
    (Curriculum, "has different rewards or a different end"), (Level, "has different infos: place"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "wrap", "reason"),
    [
        *(("torch", *lost) for lost in LOST),
        ("tf", *LOST[2]),
        *(
            pytest.param("tf", *lost, marks=pytest.mark.attack)
            for lost in LOST
            if lost is not LOST[2]
        ),
    ],
)
def test_state_that_a_replay_does_not_bring_back_is_named(framework, wrap, reason, tmp_path):
    with pytest.warns(ResumeWarning, match=f"3 of 3 environments .* its replayed episode {reason}"):
        reasons, equal = restored(
            lambda: wrap(drift_env.Drift()), tmp_path / "checkpoint", framework
        )
    assert len(reasons) == 3
    assert not equal


@pytest.mark.parametrize("wrap", [Clocked, RecordEpisodeStatistics])
def test_times_in_infos_are_no_difference(wrap, tmp_path):
    assert restored(lambda: wrap(drift_env.Drift()), tmp_path / "checkpoint") == ([], True)


class Greeting(gym.Wrapper):
    """Greets in its infos, if it is polite."""

    polite = True

    def step(self, action):
        *rest, info = self.env.step(action)
        return *rest, {**info, **({"greeting": "hello"} if self.polite else {})}


@pytest.mark.parametrize("polite", [True, False])
def test_info_that_is_missing_or_new_is_a_difference(polite):
    env, other = Resumable(Greeting(drift_env.Drift())), Resumable(Greeting(drift_env.Drift()))
    env.env.polite, other.env.polite = polite, not polite
    env.reset(seed=5)
    env.step(np.array([2, 1]))
    assert other.go_to([env.where()]) == "its replayed episode has different infos: greeting"


def test_episode_before_is_played_again_too():
    """At an episode's start nothing was paid yet: only the one before shows what was lost."""
    env, other = Resumable(Paid(drift_env.Drift())), Resumable(Paid(drift_env.Drift()))
    env.reset(seed=5)
    for _ in range(2):
        while not any(env.step(np.array([2, 1]))[2:4]):
            pass
        env.reset()
    place = env.where()
    assert place["actions"] == []
    assert "has different rewards" in other.go_to([place])
    again = Resumable(Paid(drift_env.Drift()))
    again.env.own = copy.deepcopy(env.env.own)
    again.env.own.bit_generator.advance(-len(place["before"]["actions"]))
    assert again.go_to([place]) is None


def test_fingerprints_differ_where_observations_do():
    found = [
        {"a": np.zeros(2), "b": 1},
        {"a": np.zeros(2, np.float32), "b": 1},
        {"a": np.zeros((2, 1)), "b": 1},
        {"a": np.zeros(2), "b": 2},
        (np.zeros(2), 1),
        (np.zeros(2), (1,)),
        ("text", 1),
    ]
    assert len({fingerprint(obs) for obs in found}) == len(found)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_checkpoints_and_evaluation_change_nothing(framework, tmp_path):
    config = {**SMALL, "model": MODELS["filter"], "framework": framework}
    plain = PPO(Drift, config)
    plain.learn(120)
    watched = [
        callbacks.Evaluation(30, 2, tmp_path / "best"),
        callbacks.Checkpoints(tmp_path, 30, keep=2),
    ]
    kept = PPO(Drift, config, callbacks=watched)
    last = kept.learn(120)
    assert set(last["evaluation"]) == {
        "return_mean",
        "return_std",
        "sampled_return_mean",
        "episodes",
    }
    kept.callbacks = []
    same(kept, plain)
    assert [path.name for path in checkpoints_of(tmp_path)] == ["step-000000090", "step-000000120"]
    for folder in ("best", "policy", "checkpoints/step-000000120/policy"):
        rlcatalog.load(tmp_path / folder)


def test_best_so_far_outlives_the_run(tmp_path):
    def watching():
        return [callbacks.Evaluation(30, 2, tmp_path / "best"), callbacks.Checkpoints(tmp_path, 30)]

    algo = PPO(Drift, {**SMALL, "model": NET, "framework": "torch"}, callbacks=watching())
    algo.learn(60)
    algo.callbacks[0].best = 1e9
    algo.save_checkpoint(tmp_path / "other")
    gone_on = PPO.restore(tmp_path / "other", Drift, callbacks=watching())
    assert gone_on.callbacks[0].best == 1e9
    before = (tmp_path / "best" / "policy.json").read_bytes()
    gone_on.learn(120)
    assert (tmp_path / "best" / "policy.json").read_bytes() == before


class Breaks(callbacks.Callback):
    """Ends the run in the middle of an iteration, once weights and filter have moved."""

    def __init__(self, error, at):
        self.error, self.at, self.calls = error, at, 0

    def on_rollout(self, algo, rollout):
        self.calls += 1
        if self.calls == self.at:
            algo.policy.model.set_weights(
                {k: v + 1 for k, v in algo.policy.model.get_weights().items()}
            )
            raise self.error


@pytest.mark.parametrize(
    ("error", "at"),
    [(RuntimeError("gone"), 1), (RuntimeError("gone"), 3), (KeyboardInterrupt(), 3)],
)
def test_what_ends_a_run_leaves_the_last_whole_iteration(error, at, tmp_path):
    config = {**SMALL, "model": MODELS["filter"], "framework": "torch"}
    broken = PPO(Drift, config, callbacks=[Breaks(error, at), callbacks.Checkpoints(tmp_path, 0)])
    with pytest.raises(type(error)):
        broken.learn(300)
    gone_on = PPO.restore(tmp_path, Drift)
    assert gone_on.steps in range(0, 30 * at, 30)  # the last that was noted
    whole = PPO(Drift, config)
    whole.learn(gone_on.steps)
    same(gone_on, whole)
    saved, weights = rlcatalog.load(tmp_path / "policy"), whole.policy.model.get_weights()
    assert all(
        np.array_equal(array, weights[name]) for name, array in saved.model.get_weights().items()
    )


def test_callbacks_are_told_in_order():
    told = []

    class Tells(callbacks.Callback):
        def on_start(self, algo):
            told.append("start")

        def on_step(self, algo, step):
            told.append("step")
            assert step["reward"].shape == (3,)

        def on_rollout(self, algo, rollout):
            told.append("rollout")
            assert rollout.reward.shape == (10, 3)

        def on_update(self, algo, result):
            told.append("update")
            if algo.iterations == 2:
                algo.stop_training("that will do")

        def on_end(self, algo, error):
            told.append(f"end {error}")

    algo = PPO(Drift, {**SMALL, "model": NET, "framework": "torch"}, callbacks=[Tells()])
    algo.learn(10_000)
    assert told == ["start", *(["step"] * 10 + ["rollout", "update"]) * 2, "end None"]
    assert algo.stopping == "that will do"
    assert algo.steps == 60


def test_run_stops_at_its_target():
    config = {
        "num_envs": 4,
        "rollout_length": 1000,  # more than 100 episodes of about 22 steps in 4 environments
        "num_epochs": 1,
        "seed": 0,
        "model": NET,
        "framework": "torch",
    }
    by_training = PPO("CartPole-v1", config, callbacks=[callbacks.StopAt(5, False)])
    by_training.learn(100_000)
    assert by_training.steps == 4000
    assert "the mean return of 100 episodes" in by_training.stopping
    found = [callbacks.Evaluation(30, 1), callbacks.StopAt(-1e9, True)]
    by_evaluation = PPO(Drift, {**SMALL, "model": NET, "framework": "torch"}, callbacks=found)
    by_evaluation.learn(10_000)
    assert by_evaluation.steps == 30
    assert "of an evaluation" in by_evaluation.stopping


def damaged(folder):
    about = json.loads((folder / "training.json").read_text())
    yield (
        "checksum differs",
        lambda: (folder / "training.json").write_text(
            json.dumps({**about, "state": {**about["state"], "steps": 7}})
        ),
    )
    yield (
        "format version 9",
        lambda: (folder / "training.json").write_text(json.dumps({**about, "format_version": 9})),
    )
    yield (
        "truncated or changed",
        lambda: next(folder.glob("*.safetensors")).write_bytes(b"\0" * 100),
    )
    yield "contains no checkpoint", lambda: (folder / "training.json").unlink()


@pytest.mark.parametrize("case", range(4))
def test_damage_is_said(case, tmp_path):
    algo = PPO(Drift, {**SMALL, "model": NET, "framework": "torch"})
    algo.save_checkpoint(tmp_path / "checkpoint")
    message, damage = list(damaged(tmp_path / "checkpoint"))[case]
    damage()
    with pytest.raises(SavedPolicyError, match=message):
        PPO.restore(tmp_path / "checkpoint", Drift)


def test_second_call_of_learn_says_that_the_total_is_reached(tmp_path):
    algo = PPO(Drift, SMALL)
    last = algo.learn(50)
    assert (algo.steps, last["timesteps_total"]) == (60, 60)
    with pytest.warns(
        CatalogWarning,
        match=r"learn\(50\) trains nothing\. 60 steps were already taken.* total, such as"
        r" learn\(110\)",
    ):
        assert algo.learn(50) is last
    with pytest.warns(CatalogWarning, match=r"such as learn\(120\)"):
        algo.learn(60)
    assert algo.learn(61)["timesteps_total"] == algo.steps == 90
    algo.save_checkpoint(tmp_path)
    again = PPO.restore(tmp_path, Drift)
    with pytest.warns(CatalogWarning, match=r"90 steps were already taken.*such as learn\(170\)"):
        assert again.learn(80) is None  # a checkpoint holds no result
    algo.stop_training("that will do")
    with pytest.warns(
        CatalogWarning, match="that will do. To train further, set algo.stopping = None"
    ):
        algo.learn(200)
    algo.stopping = None
    assert algo.learn(120)["timesteps_total"] == 120


@pytest.mark.parametrize(
    "save", [lambda algo: algo.save, lambda algo: algo.policy.save], ids=["algo", "policy"]
)
def test_saved_policy_is_no_checkpoint_and_says_what_is(save, tmp_path):
    algo = PPO(Drift, SMALL)
    save(algo)(tmp_path)
    with pytest.raises(
        SavedPolicyError, match=r"contains a saved policy, not a checkpoint"
    ) as caught:
        PPO.restore(tmp_path, Drift)
    assert f"rlcatalog.load({str(tmp_path)!r})" in str(caught.value)
    assert "algo.save_checkpoint(folder)" in str(caught.value)
    rlcatalog.load(tmp_path)
    algo.save_checkpoint(tmp_path / "checkpoint")
    PPO.restore(tmp_path / "checkpoint", Drift)


def test_what_restore_refuses(tmp_path):
    algo = PPO(Drift, {**SMALL, "model": NET, "framework": "torch"})
    algo.save_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match="was not a Gymnasium id; pass it"):
        PPO.restore(tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match="the saved model is used"):
        PPO.restore(tmp_path / "checkpoint", Drift, config={"model": {"fcnet_hiddens": [3]}})
    with pytest.raises(ConfigError, match="policy: its observation_space is"):
        PPO.restore(tmp_path / "checkpoint", "CartPole-v1")

    class Other(PPO):
        pass

    with pytest.raises(SavedPolicyError, match="PPO wrote this checkpoint; Other cannot resume it"):
        Other.restore(tmp_path / "checkpoint", Drift)
    assert PPO.restore(tmp_path / "checkpoint", Drift, config={"lr": 0.5}).config.lr == 0.5


def test_unwritable_config_is_refused_before_anything_is_lost(tmp_path):
    config = {**SMALL, "model": NET, "framework": "torch"}
    PPO(Drift, config).save_checkpoint(tmp_path / "checkpoint")
    algo = PPO(lambda config: Drift(), {**config, "env_config": {"map": object()}})
    with pytest.raises(
        SavedPolicyError, match=r"the run cannot be saved: config/env_config/map: object cannot"
    ):
        algo.save_checkpoint(tmp_path / "checkpoint")
    assert PPO.restore(tmp_path / "checkpoint", Drift).steps == 0


def test_trees_come_back_as_they_were():
    tree = {
        "a": [1, 2.5, True, None, "text"],
        "b": (np.arange(3), float("inf"), -0.0),
        "c": {"d": b"\0\1", "e": {}},
        "f": np.float32(0.1),
        "g": 2**100,
        "h": [],
    }
    arrays = {}
    found = put_together(json.loads(json.dumps(take_apart(tree, arrays), allow_nan=False)), arrays)
    assert found.keys() == tree.keys()
    np.testing.assert_array_equal(found["b"][0], np.arange(3))
    assert found["b"][1:] == (float("inf"), -0.0)
    assert found["f"].dtype == np.float32
    assert {k: v for k, v in found.items() if k not in "bf"} == {
        k: v for k, v in tree.items() if k not in "bf"
    }
    with pytest.raises(TypeError, match="a/1/b: set cannot be saved"):
        take_apart({"a": [0, {"b": {1}}]}, {})
    with pytest.raises(TypeError, match=r"the key '\$array'"):
        take_apart({"$array": 1}, {})


def test_nested_observations(tmp_path):
    class Nested(Drift):
        observation_space = Dict({"x": Box(-10, 10, (3,), np.float32), "n": Discrete(4)})

        def reset(self, *, seed=None, options=None):
            obs, info = super().reset(seed=seed)
            return {"x": obs, "n": 1}, info

        def step(self, action):
            obs, *rest = super().step(action)
            return {"x": obs, "n": 2}, *rest

    whole = PPO(Nested, {**SMALL, "model": NET, "framework": "torch"})
    whole.train()
    whole.save_checkpoint(tmp_path / "checkpoint")
    whole.train()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        gone_on = PPO.restore(tmp_path / "checkpoint", Nested)
    gone_on.train()
    same(gone_on, whole)


@pytest.mark.parametrize(
    "preprocessing", ["deepmind", pytest.param("rllib", marks=pytest.mark.attack)]
)
def test_game_with_sticky_actions_goes_on_where_it_was(preprocessing, tmp_path):
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

    def env():
        return TimeLimit(gym.make("ALE/Breakout-v5"), 31)

    whole = PPO(env, config)
    for _ in range(2):  # beyond the first episode, whose chance the seed rules
        whole.train()
    assert whole._collector.episodes.total
    whole.save_checkpoint(tmp_path / "checkpoint")
    rest = [timeless(whole.train()) for _ in range(2)]
    gone_on = PPO.restore(tmp_path / "checkpoint", env)
    assert gone_on.begun_anew == {}
    assert [timeless(gone_on.train()) for _ in range(2)] == rest
    same(gone_on, whole)
