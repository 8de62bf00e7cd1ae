"""Rollouts from environments that log their episodes, in each mode of resetting them."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from short_env import CountsToFive

import rlcatalog
from rlcatalog.spaces import Repeated
from rlcatalog_ppo import PPO
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_ppo.collector import Collector
from rlcatalog_ppo.env_state import Resumable
from rlcatalog_runs.evaluation import play, play_episodes
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
all_modes = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
TERMINATED = (True, False)
TRUNCATED = (False, True)
TERMINATED_AND_TRUNCATED = (True, True)


class LoggingEnv(gym.Env):
    """Logs its episodes, and reuses one array for all observations.

    The log has a dict for each episode: `obs`, one more than `rewards`, and `end`, which is
    (terminated, truncated), or None while the episode goes on. Episodes take 2 to 5 steps.
    """

    observation_space = Box(-100, 100, (2,), np.float32)
    action_space = Discrete(3)
    ends = (TERMINATED, TRUNCATED, TERMINATED_AND_TRUNCATED, TRUNCATED)

    def __init__(self, number=0):
        self.number = number
        self.log = []
        self.obs = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.obs[:] = [len(self.log) + 0.1 * self.number, 0]
        self.log.append({"obs": [self.obs.copy()], "rewards": [], "end": None})
        return self.obs, {}

    def step(self, action):
        episode = self.log[-1]
        assert episode["end"] is None, "a step after the end"
        t = len(episode["rewards"]) + 1
        reward = float(np.sin(3 * t + len(self.log)))
        self.obs[1] += 0.1 * float(action) + 0.5
        episode["obs"].append(self.obs.copy())
        episode["rewards"].append(reward)
        kind = (len(self.log) + self.number) % 4
        if t < 2 + kind:
            return self.obs, reward, False, False, {}
        episode["end"] = self.ends[kind]
        return self.obs, reward, *episode["end"], {}


def make_logging_envs(mode, n=3):
    """Return a vector environment, and its `LoggingEnv`s."""
    logging_envs = [LoggingEnv(number) for number in range(n)]
    members = logging_envs
    # Under SAME_STEP the vector environment resets before anyone sees the last observation, so the
    # environments must return copies of it.
    if mode is AutoresetMode.SAME_STEP:
        members = [Resumable(env) for env in logging_envs]
    makes = [partial(return_env, env) for env in members]
    return SyncVectorEnv(makes, copy=False, autoreset_mode=mode), logging_envs


def return_env(env):
    return env


def list_episodes(logging_envs):
    """Return the logged episodes that have steps, one environment after another."""
    return [episode for env in logging_envs for episode in env.log if episode["rewards"]]


class KnownValue(TorchModelV2):
    """A model whose value estimate is `value_of(obs)`."""

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = torch.nn.Linear(2, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self._value = value_of(input_dict["obs"])
        return self.layer(input_dict["obs"]), state

    def value_function(self):
        return self._value


def value_of(obs):
    return obs[..., 0] * 0.3 - obs[..., 1] ** 2


def lambda_returns(episode, gamma, lambda_):
    """Return an episode's lambda-returns, which are weighted means of n-step returns.

    See Sutton and Barto, section 12.2.
    """
    rewards = episode["rewards"]
    values = [float(value_of(obs)) for obs in episode["obs"]]
    if episode["end"] in (TERMINATED, TERMINATED_AND_TRUNCATED):
        values[-1] = 0.0
    returns = []
    for t in range(len(rewards)):
        steps_left = len(rewards) - t
        lambda_return = 0.0
        for n in range(1, steps_left + 1):
            discounted = [gamma**k * rewards[t + k] for k in range(n)]
            n_step_return = sum(discounted) + gamma**n * values[t + n]
            if n < steps_left:
                weight = (1 - lambda_) * lambda_ ** (n - 1)
            else:
                weight = lambda_ ** (n - 1)
            lambda_return += weight * n_step_return
        returns.append(lambda_return)
    return returns


# --- batches --------------------------------------------------------------------------------------


@all_modes
def test_batch_has_the_steps_of_the_environments(mode):
    envs, logging_envs = make_logging_envs(mode)
    policy = rlcatalog.build(env=LoggingEnv(), config={"custom_model": KnownValue})
    collector = Collector(policy, envs, seed=0, gamma=0.9)

    batch = training_batch(collector.collect(23), gamma=0.9, lambda_=0.7)

    # The environments have logged their episodes. No action follows the last observation of one.
    episodes = list_episodes(logging_envs)
    obs = np.concatenate([episode["obs"][:-1] for episode in episodes])
    rewards = np.concatenate([episode["rewards"] for episode in episodes])
    np.testing.assert_array_equal(batch["obs"], obs)
    np.testing.assert_allclose(batch["reward"], rewards, rtol=1e-6)


@all_modes
def test_targets_are_lambda_returns(mode):
    envs, logging_envs = make_logging_envs(mode)
    policy = rlcatalog.build(env=LoggingEnv(), config={"custom_model": KnownValue})
    collector = Collector(policy, envs, seed=0, gamma=0.9)

    batch = training_batch(collector.collect(23), gamma=0.9, lambda_=0.7)

    episodes = list_episodes(logging_envs)
    # All kinds of ends occur; None is that of episodes in progress.
    ends = {episode["end"] for episode in episodes}
    assert ends == {TERMINATED, TRUNCATED, TERMINATED_AND_TRUNCATED, None}
    returns = [lambda_returns(episode, gamma=0.9, lambda_=0.7) for episode in episodes]
    np.testing.assert_allclose(batch["target"], np.concatenate(returns), rtol=1e-4, atol=1e-4)


@all_modes
def test_ended_episodes_are_counted_over_rollouts(mode):
    envs, logging_envs = make_logging_envs(mode)
    policy = rlcatalog.build(env=LoggingEnv(), config={"custom_model": KnownValue})
    collector = Collector(policy, envs, seed=0, gamma=0.9)

    for steps in (1, 7, 2, 9):
        collector.collect(steps)

    # The environments have logged their episodes, including those in progress.
    ended = [episode for episode in list_episodes(logging_envs) if episode["end"] is not None]
    returns = sorted(sum(episode["rewards"]) for episode in ended)
    lengths = sorted(len(episode["rewards"]) for episode in ended)
    assert collector.episodes.total == len(ended)
    np.testing.assert_allclose(sorted(collector.episodes.returns), returns, rtol=1e-5)
    assert sorted(collector.episodes.lengths) == lengths


@all_modes
def test_filter_learns_only_from_observations_acted_on(mode):
    envs, logging_envs = make_logging_envs(mode)
    config = {"observation_filter": "MeanStdFilter", "fcnet_hiddens": [4]}
    policy = rlcatalog.build(env=LoggingEnv(), config=config)
    collector = Collector(policy, envs, seed=0, gamma=0.9)

    collector.collect(5)
    collector.collect(12)

    observations = []
    for env in logging_envs:
        for episode in env.log:
            observations.extend(episode["obs"])
            if episode["end"] is not None:
                observations.pop()  # no action follows the last observation of an episode
    learned = policy.filter.get_state()
    assert learned["n"] == len(observations)
    np.testing.assert_allclose(learned["mean"], np.mean(observations, axis=0), rtol=1e-5)
    # The filter stores the sum of squared deviations.
    variance = learned["m2"] / learned["n"]
    np.testing.assert_allclose(variance, np.var(observations, axis=0), rtol=1e-4)


# --- memories -------------------------------------------------------------------------------------

MEMORIES = {
    "lstm": {"fcnet_hiddens": [8], "max_seq_len": 4, "use_lstm": True, "lstm_cell_size": 5,
             "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "attention": {"fcnet_hiddens": [8], "max_seq_len": 3, "use_attention": True, "attention_dim": 8,
                  "attention_head_dim": 4, "attention_use_n_prev_rewards": 2},
}  # fmt: skip
some_memories = pytest.mark.parametrize(
    ("memory", "framework"), [("lstm", "torch"), ("attention", "torch"), ("lstm", "tf")]
)


@all_modes
def test_evaluation_of_stored_sequences_gives_what_acting_gave(mode):
    envs, _ = make_logging_envs(mode)
    policy = rlcatalog.build(env=LoggingEnv(), config=MEMORIES["lstm"], framework="torch")
    collector = Collector(policy, envs, seed=0, gamma=0.9)
    collector.collect(10)

    rollout = collector.collect(8)  # it begins in the middle of episodes
    batch = training_batch(rollout, gamma=0.9, lambda_=0.7)
    evaluation = policy.evaluate(batch)

    assert batch["seq_lens"].sum() == rollout.steps
    np.testing.assert_allclose(
        evaluation.logp.detach().numpy(), batch["logp"], rtol=1e-3, atol=1e-4
    )
    # The target is the sum of the value and the advantage.
    values_of_acting = batch["target"] - batch["advantage"]
    np.testing.assert_allclose(
        evaluation.value.detach().numpy(), values_of_acting, rtol=1e-3, atol=1e-4
    )


def match_episodes(logging_envs, rollouts):
    """Return each logged episode with the raw actions, values and bootstraps of its steps."""
    pairs = []
    for i, env in enumerate(logging_envs):
        steps = []
        for rollout in rollouts:
            for t in range(len(rollout.done)):
                if rollout.idle is None or not rollout.idle[t, i]:
                    steps.append(
                        (rollout.raw_action[t, i], rollout.value[t, i], rollout.bootstrap[t, i])
                    )
        for episode in list_episodes([env]):
            length = len(episode["rewards"])
            actions, values, bootstraps = zip(*steps[:length], strict=True)
            recorded = SimpleNamespace(actions=actions, values=values, bootstraps=bootstraps)
            pairs.append((episode, recorded))
            del steps[:length]
        assert not steps
    return pairs


def value_episode(policy, episode, actions):
    """Return the values of an episode's observations, from a fresh state, with these actions."""
    state = None
    reward = None
    values = []
    for obs, action, next_reward in zip(episode["obs"], actions, episode["rewards"], strict=False):
        values.append(policy.values(policy.preprocess(obs[None]), state, prev_reward=reward)[0])
        state = policy.act(obs[None], state, prev_reward=reward).state
        if "action_inputs" in state.history.windows:
            # The action that was taken, instead of the one that was drawn here.
            state.history.windows["action_inputs"][:, -1] = np.eye(3)[action[0]]
        reward = np.array([next_reward])
    last_obs = policy.preprocess(episode["obs"][-1][None])
    values.append(policy.values(last_obs, state, prev_reward=reward)[0])
    return values


@pytest.mark.grid
@some_memories
@all_modes
def test_values_are_those_of_episodes_played_alone(memory, framework, mode):
    envs, logging_envs = make_logging_envs(mode)
    policy = rlcatalog.build(env=LoggingEnv(), config=MEMORIES[memory], framework=framework)
    collector = Collector(policy, envs, seed=0, gamma=0.9)

    rollouts = [collector.collect(10), collector.collect(8)]

    for episode, recorded in match_episodes(logging_envs, rollouts):
        *expected, _ = value_episode(policy, episode, recorded.actions)
        np.testing.assert_allclose(recorded.values, expected, atol=1e-4)


@pytest.mark.grid
@some_memories
@all_modes
def test_bootstraps_are_those_of_episodes_played_alone(memory, framework, mode):
    envs, logging_envs = make_logging_envs(mode)
    policy = rlcatalog.build(env=LoggingEnv(), config=MEMORIES[memory], framework=framework)
    collector = Collector(policy, envs, seed=0, gamma=0.9)

    rollouts = [collector.collect(10), collector.collect(8)]

    # The last step of a truncated episode gets the discounted value of the last observation.
    for episode, recorded in match_episodes(logging_envs, rollouts):
        *_, last_value = value_episode(policy, episode, recorded.actions)
        if episode["end"] == TRUNCATED:
            np.testing.assert_allclose(recorded.bootstraps[-1], 0.9 * last_value, atol=1e-4)
        else:
            assert recorded.bootstraps[-1] == 0.0


# --- rewards and observations of short episodes ---------------------------------------------------


#: Two environments, twelve steps each.
SHORT = {"num_envs": 2, "rollout_length": 12, "minibatch_size": 8, "num_epochs": 1, "seed": 0}


class ValueOfHundredMore(TorchModelV2):
    """A model whose value estimate is the observation plus 100."""

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = torch.nn.Linear(1, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self._value = input_dict["obs"][:, 0] + 100.0
        return self.layer(input_dict["obs"]), state

    def value_function(self):
        return self._value


def test_environments_may_reuse_their_observation_array():
    """The value of the last observation, 5, is used, not that of the next episode's first, 0."""
    model = {"custom_model": ValueOfHundredMore}
    algo = PPO(CountsToFive, {**SHORT, "gamma": 0.5, "model": model})

    rollout = algo._collector.collect(12)

    # The episodes are truncated after 5 and 10 steps.
    expected = np.zeros((12, 2))
    expected[[4, 9]] = 0.5 * (5 + 100)
    np.testing.assert_allclose(rollout.bootstrap, expected)


def test_autoreset_mode_is_not_written_into_the_class():
    class WithOwnMetadata(CountsToFive):
        metadata: ClassVar = {"render_modes": []}

    PPO(WithOwnMetadata, {**SHORT, "model": {"fcnet_hiddens": [4]}})

    # All vector environments over the class share its metadata.
    assert WithOwnMetadata.metadata == {"render_modes": []}


# --- episodes that run out of actions -------------------------------------------------------------


class RunsOutOfActions(gym.Env):
    """Offers 3, 2, 1 and then 0 actions, by a list and by a mask; the episode is truncated at 0."""

    action_space = Discrete(4)
    observation_space = Dict(
        {
            "left": Box(0, 9, (1,)),
            "avail_actions": Repeated(Box(-1, 1, (2,)), 4),
            "action_mask": Box(0, 1, (4,), np.int8),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return self._observe(), {}

    def step(self, action):
        assert action < self.left
        self.left -= 1
        return self._observe(), 1.0, False, self.left == 0, {}

    def _observe(self):
        available = [np.full(2, 0.1 * i, np.float32) for i in range(self.left)]
        mask = (np.arange(4) < self.left).astype(np.int8)
        return {"left": np.float32([self.left]), "avail_actions": available, "action_mask": mask}


@all_modes
def test_rollout_leaves_out_observations_without_actions(mode):
    envs = SyncVectorEnv([RunsOutOfActions] * 2, autoreset_mode=mode)
    policy = rlcatalog.build(env=RunsOutOfActions(), config={"fcnet_hiddens": [8]})
    collector = Collector(policy, envs, seed=0, gamma=0.9)

    batch = training_batch(collector.collect(15), gamma=0.9, lambda_=0.7)

    # The three steps of an episode offer 3, 2 and 1 actions. Its last observation offers none, but
    # no action follows it.
    allowed_actions = batch["mask"].sum(axis=1).tolist()
    episodes = len(allowed_actions) // 3
    assert allowed_actions == [3, 2, 1] * episodes


@all_modes
def test_play_ends_episodes_that_run_out_of_actions(mode):
    envs = SyncVectorEnv([RunsOutOfActions] * 2, autoreset_mode=mode)
    policy = rlcatalog.build(env=RunsOutOfActions(), config={"fcnet_hiddens": [8]})

    assert play_episodes(policy, envs, 4) == [(3.0, 3)] * 4  # 3 steps that pay 1


class PaysForResets(SyncVectorEnv):
    """A vector environment that gives a reward for a step that only begins an episode."""

    def step(self, actions):
        begins_episode = self._autoreset_envs.copy()
        obs, rewards, *others = super().step(actions)
        return obs, rewards + 100 * begins_episode, *others


def test_play_ignores_the_reward_of_an_idle_step():
    envs = PaysForResets([RunsOutOfActions] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    policy = rlcatalog.build(env=RunsOutOfActions(), config={"fcnet_hiddens": [8]})

    assert play(policy, envs, 6) == [3.0] * 6


@both_frameworks
@pytest.mark.parametrize(
    "memory", [{}, {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}], ids=["", "lstm"]
)
def test_episode_may_be_truncated_where_it_runs_out_of_actions(framework, memory):
    model = {"fcnet_hiddens": [8], **memory}
    algo = PPO(RunsOutOfActions, {**SHORT, "framework": framework, "model": model})

    result = algo.train()

    assert result["episode_return_mean"] == 3.0  # three steps that pay 1
    # The last observation, which offers no action, has a value.
    assert np.isfinite(result["info"]["learner"]["vf_loss"])
    assert algo.evaluate(2) == [3.0, 3.0]


# --- playing --------------------------------------------------------------------------------------


@all_modes
def test_play_divides_episodes_among_environments(mode):
    envs, logging_envs = make_logging_envs(mode, n=2)
    policy = rlcatalog.build(env=LoggingEnv(), config=MEMORIES["lstm"])
    reported = []

    results = play_episodes(policy, envs, episodes=7, on_episode=reported.append)

    # Four episodes of the first environment, three of the second.
    episodes = [*logging_envs[0].log[:4], *logging_envs[1].log[:3]]
    expected = sorted(sum(episode["rewards"]) for episode in episodes)
    returns = sorted(result.episode_return for result in results)
    np.testing.assert_allclose(returns, expected, rtol=1e-5)
    lengths = sorted(result.length for result in results)
    assert lengths == sorted(len(episode["rewards"]) for episode in episodes)
    assert reported == results


def test_play_leaves_the_environment_open():
    envs, _ = make_logging_envs(AutoresetMode.SAME_STEP, n=2)
    policy = rlcatalog.build(env=LoggingEnv(), config={"fcnet_hiddens": [4]})

    play(policy, envs, 2)

    assert not envs.closed
    envs.reset()  # raises an error in a closed environment
