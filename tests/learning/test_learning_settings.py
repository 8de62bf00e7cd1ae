"""Settings of the comparison in each engine, and short runs of every kind."""

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
from benchmarks.learning.part_tasks import PARTS
from benchmarks.learning.tasks import TASKS
from rlcatalog_ppo.config import value_at

MASKED = "InvalidActionEnvDiscrete"


class RepeatPrevious(gym.Env):
    """An environment like POPGym's RepeatPreviousEasy: name the suit before the last."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.suits = [int(self.np_random.integers(4))]
        return self.suits[-1], {}

    def step(self, action):
        is_right = len(self.suits) > 1 and int(action) == self.suits[-2]
        self.suits.append(int(self.np_random.integers(4)))
        return self.suits[-1], float(is_right), len(self.suits) > 20, False, {}


class Pixels(gym.Env):
    """An environment like MinAtar's: four planes of 10 x 10 booleans."""

    observation_space = spaces.Box(0, 1, (10, 10, 4), bool)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.random((10, 10, 4)) < 0.1, {}

    def step(self, action):
        self.t += 1
        return self.np_random.random((10, 10, 4)) < 0.1, float(action), self.t == 10, False, {}


#: Task → replacement for an environment that may not be installed.
REPLACEMENTS = {
    "RepeatPreviousEasy": RepeatPrevious,
    "CountRecallEasy": RepeatPrevious,
    "MinAtar/Breakout-v1": Pixels,
}


def train_shortly(monkeypatch, name, engine, net, *, rollouts=2, **settings):
    """Train a task for some rollouts, play two episodes, and return the record of the run."""
    task = TASKS[name]
    settings = {**task.given, **settings}
    steps = rollouts * settings.get("envs", 1) * settings.get("length", 100)
    short_task = replace(
        task, make=REPLACEMENTS.get(name, task.make), steps={"sb3": steps}, settings=settings
    )
    monkeypatch.setitem(TASKS, name, short_task)
    monkeypatch.setattr(shared, "EPISODES", 2)
    return engines.train(engine, name, net, 0)


# --- every kind of run ----------------------------------------------------------------------------


#: One task of each kind, with settings that make its rollouts as short as it allows.
KINDS = [
    ("RepeatPreviousEasy", {"epochs": 2}), (MASKED, {"length": 256}),
    ("MiniGrid-Empty-Random-5x5-v0", {"length": 64}), ("MinAtar/Breakout-v1", {"length": 32}),
    ("Hopper-v5", {}), ("Pendulum-v1, SAC", {"learning_starts": 150}),
    ("Pendulum-v1, TD3", {"learning_starts": 150}),
    ("CartPole-v1, DQN", {"learning_starts": 50, "train_freq": 50, "gradient_steps": 2}),
    *((name, {"length": 32, "epochs": 1}) for name in PARTS),
]  # fmt: skip
#: What `make test` runs; `make attack` runs all.
SAMPLE = {
    ("RepeatPreviousEasy", "sb3", "own"), (MASKED, "sb3", "catalog"),
    ("Workshop", "ours", "catalog"), ("Weeds", "sb3", "numbers"),
}  # fmt: skip


def all_runs():
    for name, settings in KINDS:
        for engine, nets in TASKS[name].nets.items():
            for net in nets:
                marks = [] if (name, engine, net) in SAMPLE else [pytest.mark.slow]
                label = f"{name}-{engine}-{net}"
                yield pytest.param(name, engine, net, settings, marks=marks, id=label)


@pytest.mark.parametrize(("name", "engine", "net", "settings"), list(all_runs()))
def test_each_kind_of_run_trains_and_plays(name, engine, net, settings, monkeypatch):
    result = train_shortly(monkeypatch, name, engine, net, **settings)

    assert np.isfinite(result["return"])
    assert np.isfinite(result["greedy_return"])
    assert result["parameters"] > 100
    assert result["train_seconds"] > 0
    if not TASKS[name].explores:
        last_step, _ = result["curve"][-1]
        assert last_step == TASKS[name].steps_of(engine)


# --- settings in each engine ----------------------------------------------------------------------


def test_nets_with_a_memory_have_equally_many_weights(monkeypatch):
    def count_weights(engine, net):
        result = train_shortly(monkeypatch, "RepeatPreviousEasy", engine, net, rollouts=1, epochs=1)
        return result["parameters"]

    # In sb3-contrib, actor and critic each have an LSTM of 64 cells for 4 suits, and a layer of 64.
    # PyTorch's LSTM has four gates, and two biases for each.
    lstm = 4 * 64 * (4 + 64) + 2 * 4 * 64
    layer = 64 * 64 + 64
    logits = 64 * 4 + 4
    value = 64 + 1
    own_of_sb3 = 2 * (lstm + layer) + logits + value
    assert count_weights("sb3", "own") == own_of_sb3

    # The catalog's nets have nearly as many.
    catalog_in_sb3 = count_weights("sb3", "catalog")
    assert catalog_in_sb3 == count_weights("ours", "catalog")
    assert catalog_in_sb3 == pytest.approx(own_of_sb3, rel=0.01)
    assert count_weights("ours", "attention") == pytest.approx(own_of_sb3, rel=0.01)


@pytest.mark.parametrize("name", ["RepeatPreviousEasy", "MinAtar/Breakout-v1"])
@pytest.mark.parametrize("key", ["lr", "clip"])
def test_schedules_agree_at_each_update(name, key):
    task = TASKS[name]
    settings = task.given
    steps = task.steps_of("ours")
    steps_of_rollout = settings["envs"] * settings["length"]
    starts = range(0, steps, steps_of_rollout)
    assert len(starts) > 100

    # rlcatalog-ppo reads its schedule at the start of a rollout.
    points = engines._ours_config(task, steps)[f"{key}_schedule"]
    values_of_ours = [value_at(points, start) for start in starts]
    # SB3 reads its schedule after a rollout, from the share of steps that are left.
    schedule = sb3_engine._falling(settings[key])
    values_of_sb3 = [schedule(1 - (start + steps_of_rollout) / steps) for start in starts]

    np.testing.assert_allclose(values_of_ours, values_of_sb3, atol=settings[key] * 1e-6)


@pytest.fixture
def hopper():
    """The task that sets all hyperparameters."""
    return TASKS["Hopper-v5"]


@pytest.mark.parametrize("net", ["own", "catalog"])
def test_settings_of_hopper_reach_sb3(hopper, net):
    from stable_baselines3.common.env_util import make_vec_env

    algo = sb3_engine._on_policy(hopper, make_vec_env(hopper.make, 1), net, 0)

    # The published hyperparameters, under the names of SB3's attributes.
    assert algo.learning_rate == 9.80828e-05
    assert algo.gamma == 0.999
    assert algo.gae_lambda == 0.99
    assert algo.n_steps == 512
    assert algo.batch_size == 32
    assert algo.n_epochs == 5
    assert algo.max_grad_norm == 0.7
    assert algo.clip_range(1.0) == 0.2
    assert algo.ent_coef == 0.00229519
    assert algo.vf_coef == 0.835671


@pytest.mark.parametrize("net", ["own", "catalog"])
def test_net_of_hopper_has_its_sizes_in_sb3(hopper, net):
    from stable_baselines3.common.env_util import make_vec_env

    policy = sb3_engine._on_policy(hopper, make_vec_env(hopper.make, 1), net, 0).policy
    weights = dict(policy.named_parameters())

    # Two nets for 11 numbers with layers of 256 and 256; 3 actions and a value.
    shapes = [tuple(weight.shape) for weight in weights.values() if weight.ndim == 2]
    hidden = [(256, 11), (256, 256)]
    assert sorted(shapes) == sorted([*hidden, *hidden, (3, 256), (1, 256)])
    [log_std] = [weight for name, weight in weights.items() if name.endswith("log_std")]
    assert log_std.tolist() == [-2.0, -2.0, -2.0]


def test_settings_of_hopper_reach_rlcatalog_ppo(hopper):
    config = engines._ours_config(hopper, 1000)
    expected = {
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
    assert {key: config[key] for key in expected} == expected
    # rlcatalog's value loss is half the squared error.
    assert config["vf_loss_coeff"] == 2 * hopper.given["value"]


def test_model_config_of_hopper_filters_observations(hopper):
    model = engines._ours_model(hopper, "catalog", hopper.make())
    assert model["observation_filter"] == "MeanStdFilter"
    assert model["filter_clip"] == 10.0
    assert model["free_log_std"] is True
    assert model["vf_share_layers"] is False


@pytest.mark.parametrize("net", ["catalog", "attention"])
def test_ppo_trains_on_whole_rollouts_as_sb3_contrib_does(net):
    task = TASKS["RepeatPreviousEasy"]
    assert engines._ours_model(task, net, RepeatPrevious())["max_seq_len"] == 32
    assert engines._ours_config(task, 1000)["rollout_length"] == 32


@pytest.mark.parametrize("net", ["catalog", "attention"])
def test_max_seq_len_is_the_default_without_recurrent_ppo(net):
    task = replace(TASKS["RepeatPreviousEasy"], algorithm="PPO")
    assert "max_seq_len" not in engines._ours_model(task, net, RepeatPrevious())


# --- environments ---------------------------------------------------------------------------------


def test_both_views_of_minigrid_have_the_same_numbers():
    raw = minigrid_dict()
    flat = minigrid_numbers()

    raw_obs, _ = raw.reset(seed=3)
    flat_obs, _ = flat.reset(seed=3)

    assert raw.observation_space.contains(raw_obs)
    assert flat.observation_space.contains(flat_obs)
    assert set(raw_obs) == {"image", "direction"}
    assert set(flat_obs) == {"image", "direction"}
    assert raw_obs["image"].dtype == np.uint8
    np.testing.assert_array_equal(raw_obs["image"], flat_obs["image"])


def play_masked_episode(seed):
    """Return the observation and the 80 mask bits of the first 21 steps."""
    env = masked()
    obs, _ = env.reset(seed=seed)
    steps = [(obs, *env.action_masks())]
    for _ in range(20):
        obs, _, _, _, _ = env.step(0)
        steps.append((obs, *env.action_masks()))
    return np.array(steps)


def test_masked_episodes_depend_on_the_seed_alone():
    first = play_masked_episode(seed=1)
    np.testing.assert_array_equal(first, play_masked_episode(seed=1))
    assert not np.array_equal(first, play_masked_episode(seed=2))


def test_masked_environment_forbids_60_of_80_actions():
    masks = play_masked_episode(seed=1)[:, 1:]
    assert masks.shape == (21, 80)
    assert (masks.sum(axis=1) == 20).all()


def test_masked_environment_allows_the_right_action():
    episode = play_masked_episode(seed=1)
    observations = episode[:, 0]  # each is the number of the right action
    masks = episode[:, 1:]
    assert masks[np.arange(21), observations].all()
