"""Options of all algorithms: reward scaling, schedules of the learning rate and of the clip."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeReward

import rlcatalog
from rlcatalog.errors import ConfigError
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.config import parse
from rlcatalog_ppo.offline import Reader
from rlcatalog_ppo.reward_scale import RewardScale
from rlcatalog_ppo.rollout import Collector
from rlcatalog_runs.seeds import SeedStream, derive_seed

pytestmark = pytest.mark.twins

SMALL = {"num_envs": 3, "rollout_length": 20, "seed": 0, "model": {"fcnet_hiddens": [8]}}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


class Paying(gym.Env):
    """Pays large amounts; ends, is cut, or goes on for ever."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.ends = (config or {}).get("ends", True)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.ends and self.np_random.random() < 0.2
        cut = self.ends and self.t == 7
        return (
            self.np_random.uniform(-1, 1, 2).astype(np.float32),
            self.np_random.normal(50, 100),
            over,
            cut,
            {},
        )


def test_scaled_rewards_are_those_of_gymnasium_while_no_episode_ends():
    """Gymnasium's wrapper in truth: the same environments and actions from the same seed."""
    algo = PPO(
        Paying,
        {
            **SMALL,
            "minibatch_size": 60,
            "gamma": 0.9,
            "reward_scale": True,
            "env_config": {"ends": False},
        },
    )
    rollouts = [algo._collector.collect(20) for _ in range(2)]
    envs = NormalizeReward(SyncVectorEnv([lambda: Paying({"ends": False})] * 3), gamma=0.9)
    envs.reset(seed=[derive_seed(0, SeedStream.ENVIRONMENTS, i) for i in range(3)])
    for rollout in rollouts:
        for t in range(20):
            _, reward, *_ = envs.step(rollout.raw_action[t].reshape(3).astype(int))
            np.testing.assert_allclose(rollout.scaled[t], reward, rtol=1e-5)
    assert 5 < np.abs(rollouts[1].reward).mean() / np.abs(rollouts[1].scaled).mean() < 1000
    algo.stop()


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_sums_begin_anew_with_each_episode(mode):
    """Against sums over whole episodes; a step that only begins an episode is none."""
    envs = SyncVectorEnv([Paying] * 3, autoreset_mode=mode)
    policy = rlcatalog.build(env=Paying(), config={"fcnet_hiddens": [4]})
    rollout = Collector(policy, envs, 0, 0.9, scale=RewardScale(3, 0.9)).collect(40)
    idle = np.zeros((40, 3), bool) if rollout.idle is None else rollout.idle
    assert idle.any() == (mode is AutoresetMode.NEXT_STEP)
    assert rollout.done.sum() > 10
    seen, running = [], [[] for _ in range(3)]
    for t in range(40):
        for i in range(3):
            if not idle[t, i]:
                running[i].append(float(rollout.reward[t, i]))
                seen.append(
                    sum(
                        reward * 0.9 ** (len(running[i]) - 1 - k)
                        for k, reward in enumerate(running[i])
                    )
                )
            if rollout.done[t, i]:
                running[i] = []
        real = ~idle[t]
        expected = rollout.reward[t] / np.std(seen)
        if t > 20:  # the wrong beginning, a mean of 0 and a deviation of 1, has worn off
            np.testing.assert_allclose(rollout.scaled[t][real], expected[real], rtol=1e-3)


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
def test_learning_sees_scaled_rewards_and_everybody_else_those_of_the_environment(
    algorithm, tmp_path
):
    config = {**SMALL, "gamma": 0.0, "reward_scale": True, "reward_clip": 1.5}
    config |= {"minibatch_size": 60, "num_epochs": 1} if algorithm is PPO else {}
    algo = algorithm(Paying, config, record=tmp_path)
    rollout = algo._collector.collect(20)
    assert np.abs(rollout.scaled).max() == 1.5
    assert np.abs(rollout.reward).max() > 100
    batch = algo._batch(rollout)
    np.testing.assert_array_equal(batch["reward"], rollout.rows(rollout.reward))
    target = rollout.rows(rollout.scaled) - (0 if algorithm is PG else rollout.rows(rollout.value))
    np.testing.assert_allclose(batch["advantage"], target, rtol=1e-5, atol=1e-6)
    algo.train()
    assert max(abs(x) for x in algo._collector.episodes.returns) > 100
    assert np.abs(Reader(tmp_path).next()["rewards"]).max() > 100
    algo.stop()


def test_clip_alone_scales_nothing():
    algo = A2C(Paying, {**SMALL, "reward_clip": 60})
    rollout = algo._collector.collect(20)
    np.testing.assert_array_equal(rollout.scaled, np.clip(rollout.reward, -60, 60))
    algo.stop()
    assert A2C(Paying, SMALL)._collector.collect(3).scaled is None


def test_run_that_goes_on_scales_as_it_would_have():
    algo = A2C(Paying, {**SMALL, "reward_scale": True})
    algo.train()
    scale = algo._collector.scale
    kept = scale.get_state()
    assert kept["moments"][2] == pytest.approx(60, abs=1e-3)
    assert all(isinstance(part, np.ndarray) for part in kept.values())
    assert algo._collector.get_state()["scale"].keys() == kept.keys()
    fresh, rewards = RewardScale(3, 0.99), np.float32([100, -30, 7])
    fresh.set_state(kept)
    none = np.zeros(3, bool)
    for _ in range(3):
        np.testing.assert_array_equal(fresh(rewards, none, none), scale(rewards, none, none))
    scale.begin_anew(np.array([True, False, True]))
    assert (scale.get_state()["sums"] == 0).tolist() == [True, False, True]
    algo.stop()


def test_run_that_goes_on_may_begin_to_scale(tmp_path):
    algo = A2C(Paying, SMALL)
    algo.train()
    algo.save_checkpoint(tmp_path / "checkpoint")
    algo.stop()
    scaling = A2C.restore(tmp_path / "checkpoint", Paying, config={"reward_scale": True})
    scaling.train()
    assert scaling._collector.scale.get_state()["moments"][2] == pytest.approx(60, abs=1e-3)
    scaling.stop()


@frameworks
def test_learning_rate_goes_along_its_schedule(framework):
    """Whatever lr, anneal_lr and total_steps say; the optimiser is given it."""
    schedule = [[60, 0.1], [180, 0.04], [240, 0.0]]
    algo = A2C(
        Paying,
        {
            **SMALL,
            "framework": framework,
            "lr": 9.0,
            "total_steps": 100,
            "rollout_length": 20,
            "lr_schedule": schedule,
            "grad_clip": None,
        },
    )
    rates, moves = [], []
    for _ in range(6):
        before = algo.policy.model.get_weights()
        rates.append(algo.train()["info"]["learner"]["lr"])
        after = algo.policy.model.get_weights()
        moves.append(
            max(float(np.abs(after[name] - weight).max()) for name, weight in before.items())
        )
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.07, 0.04, 0.0, 0.0], atol=1e-12)
    assert moves[0] == pytest.approx(0.1, rel=1e-2)  # the first step of Adam is as long as the rate
    assert moves[4] == moves[5] == 0
    algo.stop()


@frameworks
def test_clip_goes_along_its_schedule(framework):
    """With a limit of 0 no ratio but 1 counts: from the second minibatch on almost
    all are cut off.
    """
    algo = PPO(
        Paying,
        {
            **SMALL,
            "framework": framework,
            "minibatch_size": 30,
            "num_epochs": 3,
            "lr": 0.01,
            "clip_schedule": [[0, 100.0], [60, 100.0], [61, 0.0]],
        },
    )
    found = [algo.train()["info"]["learner"] for _ in range(4)]
    assert [figures["clip_param"] for figures in found] == [100, 100, 0, 0]
    assert [figures["clip_fraction"] > 0.9 for figures in found] == [False, False, True, True]
    algo.stop()


@frameworks
def test_scheduled_clip_learns_as_a_fixed_one(framework):
    config = {**SMALL, "framework": framework, "minibatch_size": 30, "num_epochs": 2}
    found = []
    for own in ({"clip_param": 0.05}, {"clip_schedule": [[0, 0.05]]}):
        algo = PPO(Paying, {**config, **own})
        for _ in range(2):
            algo.train()
        found.append(algo.policy.model.get_weights())
        algo.stop()
    for name, weight in found[0].items():
        np.testing.assert_allclose(found[1][name], weight, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lr_schedule", [], "lr_schedule: expected"),
        ("lr_schedule", [[10, 0.1], [10, 0.2]], "increasing steps"),
        ("clip_schedule", [[10, 0.1], [5, 0.2]], "clip_schedule: expected"),
        ("lr_schedule", [[0, -1.0]], "'lr_schedule'"),
        ("lr_schedule", [[0, 0.1, 2]], "'lr_schedule'"),
        ("lr_schedule", 0.1, "'lr_schedule'"),
        ("reward_clip", 0, "'reward_clip'"),
        ("rollout_length", 10**9, "'rollout_length'"),  # lies in memory
        ("num_epochs", 2**63, "'num_epochs'"),  # would not end
    ],
)
def test_bad_options(key, value, message):
    with pytest.raises(ConfigError, match=message):
        parse({key: value})
