"""Settings of the comparison reach all engines, and each kind of run trains and plays."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.learning import engine as shared, engines, sb3_engine
from benchmarks.learning.environments import masked, minigrid_dict, minigrid_numbers
from benchmarks.learning.tasks import TASKS

MASKED = "InvalidActionEnvDiscrete"


class Repeat(gym.Env):
    """As RepeatPreviousEasy: name the suit before the last.

    So the memory's task needs no popgym here.
    """

    observation_space = action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.suits = [int(self.np_random.integers(4))]
        return self.suits[-1], {}

    def step(self, action):
        reward = float(len(self.suits) > 1 and int(action) == self.suits[-2])
        self.suits.append(int(self.np_random.integers(4)))
        return self.suits[-1], reward, len(self.suits) > 20, False, {}


class Pixels(gym.Env):
    """As MinAtar: four planes of 10 x 10 booleans."""

    observation_space, action_space = spaces.Box(0, 1, (10, 10, 4), bool), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.random((10, 10, 4)) < 0.1, {}

    def step(self, action):
        self.t += 1
        return self.np_random.random((10, 10, 4)) < 0.1, float(action), self.t == 10, False, {}


#: Task → what takes the place of an environment that is not installed here.
INSTEAD = {"RepeatPreviousEasy": Repeat, "CountRecallEasy": Repeat, "MinAtar/Breakout-v1": Pixels}


def trained(name, engine, net, monkeypatch, rollouts=2, **settings):
    """Train a task for some rollouts, and return what `train` returns."""
    task = TASKS[name]
    given = {**task.given, **settings}
    steps = {"sb3": rollouts * given.get("envs", 1) * given.get("length", 100)}
    make = INSTEAD.get(name, task.make)
    monkeypatch.setitem(TASKS, name, replace(task, make=make, steps=steps, settings=given))
    monkeypatch.setattr(shared, "EPISODES", 2)
    return engines.train(engine, name, net, 0)


#: Everything that a new kind of run can break, with rollouts as short as it allows.
KINDS = [
    ("RepeatPreviousEasy", {"epochs": 2}), (MASKED, {"length": 256}),
    ("MiniGrid-Empty-Random-5x5-v0", {"length": 64}), ("MinAtar/Breakout-v1", {"length": 32}),
    ("Hopper-v5", {}), ("Pendulum-v1, SAC", {"learning_starts": 150}),
    ("Pendulum-v1, TD3", {"learning_starts": 150}),
    ("CartPole-v1, DQN", {"learning_starts": 50, "train_freq": 50, "gradient_steps": 2}),
]  # fmt: skip
SIDES = [
    (name, settings, engine, net)
    for name, settings in KINDS
    for engine, nets in TASKS[name].nets.items()
    for net in nets
]
SAMPLED = {("RepeatPreviousEasy", "sb3", "own"), (MASKED, "sb3", "catalog")}


@pytest.mark.parametrize(
    ("name", "settings", "engine", "net"),
    [
        pytest.param(
            *side,
            marks=[] if (side[0], *side[2:]) in SAMPLED else pytest.mark.attack,
            id=f"{side[0]}-{side[2]}-{side[3]}",
        )
        for side in SIDES
    ],
)
def test_each_kind_of_run_trains_and_plays(name, settings, engine, net, monkeypatch):
    result = trained(name, engine, net, monkeypatch, **settings)
    assert np.isfinite([result["return"], result["greedy_return"]]).all()
    assert result["parameters"] > 100
    assert result["train_seconds"] > 0
    if not TASKS[name].explores:
        assert result["curve"][-1][0] == TASKS[name].steps_of(engine)


def test_nets_with_a_memory_have_equally_many_weights(monkeypatch):
    counts = {
        side: trained("RepeatPreviousEasy", *side, monkeypatch, 1, epochs=1)["parameters"]
        for side in (("sb3", "own"), ("sb3", "catalog"), ("ours", "catalog"), ("ours", "attention"))
    }
    lstm = 4 * 64 * (4 + 64) + 2 * 4 * 64  # PyTorch's LSTM has two biases
    assert counts["sb3", "own"] == 2 * (lstm + 64 * 64 + 64) + 64 * 4 + 4 + 64 + 1
    assert counts["sb3", "catalog"] == counts["ours", "catalog"]
    assert all(abs(count / counts["sb3", "own"] - 1) < 0.01 for count in counts.values()), counts


@pytest.mark.parametrize("name", ["RepeatPreviousEasy", "MinAtar/Breakout-v1"])
def test_schedules_agree_at_each_update(name):
    from rlcatalog_ppo.config import value_at

    task = TASKS[name]
    given, steps = task.given, task.steps_of("ours")
    config, size = engines._ours_config(task, steps), given["envs"] * given["length"]
    for key in ("lr", "clip"):
        schedule = sb3_engine._falling(given[key])
        # After the rollout.
        theirs = [schedule(1 - (done + size) / steps) for done in range(0, steps, size)]
        # Before it.
        ours = [value_at(config[f"{key}_schedule"], done) for done in range(0, steps, size)]
        np.testing.assert_allclose(ours, theirs, atol=given[key] * 1e-6)
        assert len(ours) > 100


def test_settings_reach_both_engines(monkeypatch):
    """Those of Hopper, which sets all of them."""
    from stable_baselines3.common.env_util import make_vec_env

    task = TASKS["Hopper-v5"]
    given = task.given
    for net in ("own", "catalog"):
        algo = sb3_engine._on_policy(task, make_vec_env(task.make, 1), net, 0)
        assert (algo.gamma, algo.gae_lambda, algo.n_steps) == (0.999, 0.99, 512)
        assert (algo.batch_size, algo.n_epochs, algo.max_grad_norm) == (32, 5, 0.7)
        assert (algo.clip_range(1.0), algo.ent_coef, algo.vf_coef) == (0.2, 0.00229519, 0.835671)
        assert algo.learning_rate == 9.80828e-05
        deviations = [
            weight for key, weight in algo.policy.named_parameters() if key.endswith("log_std")
        ]
        np.testing.assert_array_equal(
            [weight.detach().numpy() for weight in deviations], [[-2.0] * 3]
        )
        hidden = [weight.shape for weight in algo.policy.parameters() if weight.ndim == 2]
        assert sorted(tuple(shape) for shape in hidden) == sorted(
            [(256, 11), (256, 256)] * 2 + [(3, 256), (1, 256)]
        )
    config = engines._ours_config(task, 1000)
    assert {
        key: config[key]
        for key in (
            "gamma",
            "lambda_",
            "rollout_length",
            "minibatch_size",
            "num_epochs",
            "lr",
            "grad_clip",
            "clip_param",
            "entropy_coeff",
            "reward_scale",
            "reward_clip",
        )
    } == {
        "gamma": 0.999,
        "lambda_": 0.99,
        "rollout_length": 512,
        "minibatch_size": 32,
        "num_epochs": 5,
        "lr": 9.80828e-05,
        "grad_clip": 0.7,
        "clip_param": 0.2,
        "entropy_coeff": 0.00229519,
        "reward_scale": True,
        "reward_clip": 10.0,
    }
    assert 0.5 * config["vf_loss_coeff"] == given["value"]  # of half the squared error
    model = engines._ours_model(task, "catalog", task.make())
    assert model["observation_filter"] == "MeanStdFilter"
    assert (model["filter_clip"], model["free_log_std"], model["vf_share_layers"]) == (
        10.0,
        True,
        False,
    )


@pytest.mark.parametrize("net", ["catalog", "attention"])
def test_ppo_trains_on_whole_rollouts_as_sb3_contrib_does(net):
    task = TASKS["RepeatPreviousEasy"]
    model = engines._ours_model(task, net, Repeat())
    assert (
        model["max_seq_len"]
        == engines._ours_config(task, 1000)["rollout_length"]
        == task.given["length"]
        == 32
    )
    assert "max_seq_len" not in engines._ours_model(replace(task, algorithm="PPO"), net, Repeat())


def test_both_views_of_minigrid_have_the_same_numbers():
    raw, flat = minigrid_dict(), minigrid_numbers()
    (seen, _), (numbers, _) = raw.reset(seed=3), flat.reset(seed=3)
    assert seen.keys() == numbers.keys() == {"image", "direction"}
    assert seen["image"].dtype == np.uint8
    np.testing.assert_array_equal(seen["image"], numbers["image"])
    assert raw.observation_space.contains(seen)
    assert flat.observation_space.contains(numbers)


def test_masked_episodes_depend_on_the_seed_alone():
    def episode(seed):
        env = masked()
        obs, _ = env.reset(seed=seed)
        seen = [(obs, *env.action_masks())]
        for _ in range(20):
            obs, _, _, _, _ = env.step(0)
            seen.append((obs, *env.action_masks()))
        return np.array(seen)

    first = episode(1)
    np.testing.assert_array_equal(first, episode(1))
    assert not np.array_equal(first, episode(2))
    assert (first[:, 1:].sum(1) == 20).all()  # 60 of 80 are forbidden
    assert first[np.arange(21), 1 + first[:, 0]].all()  # never the right one
