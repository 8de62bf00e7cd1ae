"""Random combinations of parts: before the first update, steps are scored as they were stored.

A combination has an observation space, an action space, a mask, a memory, a filter, a distribution,
a head, shared or separate weights, an autoreset mode and a framework. For each of them:

- A stored action has the log density that it had when it was sampled, and its observation the same
  value. The divergence from the stored distribution is 0.
- Every gradient is finite, and every action is legal.
- A sequence in a padded batch has the same results as alone.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from builders import to_array
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcatalog
from rlcatalog.errors import NoClosedFormError
from rlcatalog.spaces import Repeated
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_ppo.collector import Collector

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded", "eager_tensorflow"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

#: Framework → number of combinations.
COMBINATIONS = {"torch": 180, "tf": 24}
THREE_FEATURES = Box(-2, 2, (3,), np.float32)
OBS = {
    "vector": THREE_FEATURES,
    "choice": Discrete(4, start=2),
    "bits": MultiBinary(3),
    "image": Box(0, 255, (10, 10, 1), np.uint8),
    "dict": Dict({"a": THREE_FEATURES, "b": Tuple([Discrete(3), MultiDiscrete([2, 3])])}),
    "list": Dict({"seen": Repeated(THREE_FEATURES, 3), "me": Discrete(2)}),
    "eye": Dict({"eye": Box(0, 255, (10, 10, 1), np.uint8), "me": THREE_FEATURES}),
}
#: Observations with numbers that a filter can learn from.
FILTERED = ("vector", "dict", "eye")
AIM = Box(np.array([-1, 2], np.float32), np.array([1, 5], np.float32))
#: Name → space, and the configs that choose a distribution or a head for it.
ACTIONS = {
    "discrete": (Discrete(3, start=-1), [{}, {"custom_action_dist": "gumbel_softmax"}]),
    "multi_discrete": (MultiDiscrete([3, 2], start=[1, 0]), [{}, {"use_autoregressive": True}]),
    "bits": (MultiBinary(3), [{}]),
    "box": (
        AIM,
        [
            {},
            {"custom_action_dist": "beta"},
            {"custom_action_dist": "squashed_gaussian"},
            {"action_bounds": "affine"},
            {"free_log_std": True},
        ],
    ),
    "whole": (Box(np.array([-3, 250]), np.array([2, 254]), dtype=np.int32), [{}]),
    "tuple": (
        Tuple([Discrete(3), AIM]),
        [{}, {"use_autoregressive": True}, {"_disable_action_flattening": True}],
    ),
    "dict": (
        Dict({"go": Discrete(2), "more": Tuple([MultiDiscrete([2, 2]), AIM])}),
        [{}, {"use_autoregressive": True}, {"custom_action_dist": {"action['more'][1]": "beta"}}],
    ),
}
MASKED = ("discrete", "multi_discrete")
LSTM = {"use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {
    "use_attention": True, "attention_dim": 8, "attention_num_heads": 2, "attention_head_dim": 4,
    "attention_memory_inference": 4, "attention_memory_training": 4,
    "attention_position_wise_mlp_dim": 6,
}  # fmt: skip
MEMORIES = {
    "none": {},
    "lstm": LSTM,
    "lstm, past": {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "attention": ATTENTION,
    "attention, past": {
        **ATTENTION,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 1,
    },
}
SMALL = {
    "fcnet_hiddens": [6],
    "post_fcnet_hiddens": [],
    "max_seq_len": 4,
    "autoregressive_hiddens": [4],
}


class RandomWalk(gym.Env):
    """Random observations of any space, in short episodes; rejects illegal actions.

    Args:
        obs: The space of observations, without a mask.
        action: The space of actions.
        masked: Whether observations have an action mask.
    """

    def __init__(self, obs, action, masked):
        self.action_space = action
        self.masked = masked
        self.obs = obs
        if isinstance(action, Discrete):
            self.sizes = [int(action.n)]
        else:
            self.sizes = list(getattr(action, "nvec", []))
        self.observation_space = obs
        if masked:
            entries = dict(obs.spaces) if isinstance(obs, Dict) else {"rest": obs}
            entries["action_mask"] = MultiBinary(int(sum(self.sizes)))
            self.observation_space = Dict(entries)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.obs.seed(seed)
        return self.observe(), {}

    def step(self, action):
        if isinstance(self.action_space, Box):
            action = np.asarray(action, self.action_space.dtype)
        assert self.action_space.contains(action), (self.action_space, action)
        if self.masked:
            self.check_mask(action)
        terminated = bool(self.np_random.random() < 0.15)
        truncated = bool(self.np_random.random() < 0.1)
        obs = self.observe()
        reward = float(self.np_random.normal())
        return obs, reward, terminated, truncated, {}

    def check_mask(self, action):
        choices = np.ravel(action) - np.ravel(self.action_space.start)
        for choice, allowed in zip(choices, self.allowed, strict=True):
            assert allowed[int(choice)], (action, self.allowed)

    def observe(self):
        obs = self.obs.sample()
        if not self.masked:
            return obs
        self.allowed = [self.np_random.random(n) < 0.6 for n in self.sizes]
        for allowed in self.allowed:
            allowed[self.np_random.integers(len(allowed))] = True
        entries = obs if isinstance(obs, dict) else {"rest": obs}
        return {**entries, "action_mask": np.concatenate(self.allowed).astype(np.int8)}


class Combination(NamedTuple):
    """A policy, its environment, and how the environment resets."""

    obs: str
    action: str
    masked: bool
    memory: str
    mode: AutoresetMode
    config: dict[str, Any]

    def make_env(self):
        action_space, _ = ACTIONS[self.action]
        return RandomWalk(OBS[self.obs], action_space, self.masked)


def choose_combination(framework, number):
    """Return a random combination that rlcatalog supports; equal numbers have equal ones."""
    rng = random.Random(f"{framework} {number}")
    kinds = [(name, config) for name, (_, configs) in ACTIONS.items() for config in configs]
    action, action_config = kinds[number % len(kinds)]
    config = {**SMALL, **action_config}
    masked = action in MASKED and "custom_action_dist" not in config and rng.random() < 0.8
    if masked and "use_autoregressive" not in config and rng.random() < 0.6:
        config["use_parametric"] = True
    memory = rng.choice(list(MEMORIES))
    obs = list(OBS)[number % len(OBS)]
    config |= MEMORIES[memory]
    if obs in FILTERED:
        config["observation_filter"] = rng.choice(["NoFilter", "MeanStdFilter"])
    config["vf_share_layers"] = rng.random() < 0.5
    mode = rng.choice(list(AutoresetMode))
    return Combination(obs, action, masked, memory, mode, config)


def collect_rollouts(combination, framework, seed):
    """Build a policy, and collect two rollouts of three environments with it."""
    envs = SyncVectorEnv([combination.make_env] * 3, autoreset_mode=combination.mode)
    policy = rlcatalog.build(
        envs.single_observation_space, envs.single_action_space, combination.config, framework
    )
    collector = Collector(policy, envs, seed, 0.99)
    return policy, [collector.collect(9), collector.collect(6)]


def make_batch(rollout, dist_inputs=False):
    return training_batch(rollout, gamma=0.99, lambda_=0.95, dist_inputs=dist_inputs)


def compute_gradients(policy, batch):
    if policy.framework == "torch":
        policy.model.zero_grad()
        result = policy.evaluate(batch)
        loss = result.logp.sum() + result.value.square().sum() + result.entropy.sum()
        loss.backward()
        return [p.grad for p in policy.model.parameters() if p.grad is not None]
    variables = policy.model.trainable_variables()
    with tf.GradientTape() as tape:
        result = policy.evaluate(batch)
        loss = tf.reduce_sum(result.logp) + tf.reduce_sum(result.value**2)
        loss += tf.reduce_sum(result.entropy)
    return [grad for grad in tape.gradient(loss, variables) if grad is not None]


@pytest.fixture
def eager_tensorflow(monkeypatch):
    """Let TensorFlow act without traces: other tests cover those, and each takes a second."""
    from rlcatalog_tf.backend import TFBackend

    monkeypatch.setattr(TFBackend, "_program", TFBackend._runner)


def all_combinations():
    for framework, count in COMBINATIONS.items():
        for number in range(count):
            runs_in_make_test = framework == "torch" and number % 8 == 0
            marks = [] if runs_in_make_test else [pytest.mark.slow]
            yield pytest.param(framework, number, marks=marks)


@pytest.mark.parametrize(("framework", "number"), list(all_combinations()))
def test_policy_scores_steps_as_stored(framework, number):
    combination = choose_combination(framework, number)
    policy, rollouts = collect_rollouts(combination, framework, seed=number)

    for rollout in rollouts:
        check_scores(policy, rollout)
        check_divergence(policy, rollout)
        check_first_memory_of_episodes(policy, rollout)
    check_gradients(policy, rollouts[-1])
    check_sequences(policy, rollouts[-1])


def check_scores(policy, rollout):
    """Compare log densities and values with the stored ones."""
    batch = make_batch(rollout)
    result = policy.evaluate(batch)

    ratio = np.exp(to_array(result.logp) - batch["logp"])
    np.testing.assert_allclose(ratio, 1.0, rtol=2e-3)
    stored_values = rollout.rows(rollout.value)
    np.testing.assert_allclose(to_array(result.value), stored_values, rtol=1e-3, atol=1e-4)
    assert np.isfinite(to_array(result.entropy)).all()


def check_divergence(policy, rollout):
    """Compare the distribution with the stored one, if there is a formula for their divergence."""
    try:
        result = policy.evaluate(make_batch(rollout, dist_inputs=True))
    except NoClosedFormError:
        return
    np.testing.assert_allclose(to_array(result.kl), 0.0, atol=1e-4)


def check_gradients(policy, rollout):
    gradients = compute_gradients(policy, make_batch(rollout))
    assert gradients
    for gradient in gradients:
        assert np.isfinite(to_array(gradient)).all()


def check_sequences(policy, rollout):
    """Compare the results of the shortest and the longest sequence with those in the batch."""
    batch = make_batch(rollout)
    if "seq_lens" not in batch:
        return
    result = policy.evaluate(batch)
    lengths = batch["seq_lens"]
    assert lengths.min() < lengths.max()
    by_length = np.argsort(lengths, kind="stable")
    for index in (by_length[0], by_length[-1]):
        alone = policy.evaluate(select_sequence(batch, index))
        rows = rows_of_sequence(batch, index)
        for name in ("logp", "value"):
            expected = to_array(getattr(result, name))[rows]
            numbers = to_array(getattr(alone, name))
            np.testing.assert_allclose(numbers, expected, rtol=1e-3, atol=1e-4)


def rows_of_sequence(batch, index):
    first = int(batch["seq_lens"][:index].sum())
    return slice(first, first + int(batch["seq_lens"][index]))


def select_sequence(batch, index):
    """Return a batch of one sequence."""
    rows = rows_of_sequence(batch, index)
    columns = batch.keys() - {"seq_lens", "state", "views"}
    selected = {name: batch[name][rows] for name in columns}
    if "views" in batch:
        selected["views"] = {name: view[rows] for name, view in batch["views"].items()}
    selected["seq_lens"] = batch["seq_lens"][index : index + 1]
    selected["state"] = [part[index : index + 1] for part in batch["state"]]
    return selected


def check_first_memory_of_episodes(policy, rollout):
    """Check that a sequence after the end of an episode begins with the initial memory."""
    if rollout.starts is None:
        return
    is_over = rollout.done if rollout.idle is None else rollout.idle
    for k, (env, step) in enumerate(zip(*np.nonzero(rollout.starts.T), strict=True)):
        if step and is_over[step - 1, env]:
            for part, initial in zip(rollout.memory, policy.memory.initial, strict=True):
                np.testing.assert_array_equal(part[k], initial)
