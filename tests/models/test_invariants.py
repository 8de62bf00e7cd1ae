"""What holds for every combination of parts, over random ones: what was stored is what is scored.

Space x mask x memory x filter x distribution x head x sharing x autoreset mode x framework. Before
the first update a stored action has the log density and the observation the value they had when it
was drawn (ratio 1), the divergence from the stored parameters is 0, every gradient is finite, every
action is legal, and a sequence among padded ones is what it is alone.
"""

from __future__ import annotations

import random
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcatalog
from rlcatalog.errors import NoClosedFormError
from rlcatalog.spaces import Repeated
from rlcatalog_ppo.rollout import Collector

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

COMBINATIONS = {"torch": 180, "tf": 24}
#: Of as many parts `make test` runs the first, `make attack` the others.
PARTS = 8
VECTOR = Box(-2, 2, (3,), np.float32)
OBS = {
    "vector": VECTOR,
    "choice": Discrete(4, start=2),
    "bits": MultiBinary(3),
    "image": Box(0, 255, (10, 10, 1), np.uint8),
    "dict": Dict({"a": VECTOR, "b": Tuple([Discrete(3), MultiDiscrete([2, 3])])}),
    "list": Dict({"seen": Repeated(VECTOR, 3), "me": Discrete(2)}),
    "eye": Dict({"eye": Box(0, 255, (10, 10, 1), np.uint8), "me": VECTOR}),
}
#: What has numbers for a filter to learn from.
FILTERED = ("vector", "dict", "eye")
AIM = Box(np.array([-1, 2], np.float32), np.array([1, 5], np.float32))
#: Space, and the configs that choose how it is acted in.
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


class Walk(gym.Env):
    """Short episodes of any spaces, ended and cut at random; insists that each action is legal."""

    def __init__(self, obs, action, masked):
        self.action_space, self.masked = action, masked
        self.sizes = (
            [int(action.n)] if isinstance(action, Discrete) else list(getattr(action, "nvec", []))
        )
        self.observation_space = obs
        if masked:
            entries = dict(obs.spaces) if isinstance(obs, Dict) else {"rest": obs}
            self.observation_space = Dict(
                {**entries, "action_mask": MultiBinary(int(sum(self.sizes)))}
            )
        self.obs = obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.obs.seed(seed)
        return self._look(), {}

    def step(self, action):
        action = (
            np.asarray(action, self.action_space.dtype)
            if isinstance(self.action_space, Box)
            else action
        )
        assert self.action_space.contains(action), (self.action_space, action)
        if self.masked:
            for part, allowed in zip(
                np.ravel(action) - np.ravel(self.action_space.start), self.allowed, strict=True
            ):
                assert allowed[int(part)], (action, self.allowed)
        ended, cut = self.np_random.random(2) < (0.15, 0.1)
        return self._look(), float(self.np_random.normal()), bool(ended), bool(cut), {}

    def _look(self):
        seen = self.obs.sample()
        if not self.masked:
            return seen
        self.allowed = [self.np_random.random(n) < 0.6 for n in self.sizes]
        for allowed in self.allowed:
            allowed[self.np_random.integers(len(allowed))] = True
        entries = seen if isinstance(seen, dict) else {"rest": seen}
        return {**entries, "action_mask": np.concatenate(self.allowed).astype(np.int8)}


def combination(framework, number):
    """Return the spaces and settings of a random combination that is served."""
    rng = random.Random(f"{framework} {number}")
    kinds = [(name, config) for name, (_, configs) in ACTIONS.items() for config in configs]
    name, chosen = kinds[number % len(kinds)]
    config = {**SMALL, **chosen}
    masked = name in MASKED and "custom_action_dist" not in config and rng.random() < 0.8
    if masked and "use_autoregressive" not in config and rng.random() < 0.6:
        config["use_parametric"] = True
    memory, obs = rng.choice(list(MEMORIES)), list(OBS)[number % len(OBS)]
    config |= MEMORIES[memory]
    if obs in FILTERED:
        config["observation_filter"] = rng.choice(["NoFilter", "MeanStdFilter"])
    config["vf_share_layers"] = rng.random() < 0.5
    mode = rng.choice(list(AutoresetMode))
    return obs, name, masked, memory, mode, config


def collected(obs, name, masked, mode, config, framework, seed):
    """Build a policy for a combination and collect a rollout with it."""
    envs = SyncVectorEnv(
        [lambda: Walk(OBS[obs], ACTIONS[name][0], masked)] * 3, autoreset_mode=mode
    )
    policy = rlcatalog.build(
        envs.single_observation_space, envs.single_action_space, config, framework
    )
    collector = Collector(policy, envs, seed, 0.99)
    rollouts = [collector.collect(length) for length in (9, 6)]
    return policy, rollouts


def array(tensor):
    return tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)


def evaluated(policy, batch):
    """Return the evaluation of a batch, with the divergence where there is a closed form."""
    try:
        return policy.evaluate(batch), True
    except NoClosedFormError:
        return policy.evaluate(
            {key: value for key, value in batch.items() if key != "dist_inputs"}
        ), False


def gradients(policy, batch):
    if policy.framework == "torch":
        policy.model.zero_grad()
        found, _ = evaluated(policy, batch)
        (found.logp.sum() + found.value.square().sum() + found.entropy.sum()).backward()
        return {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    variables = policy.model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        found, _ = evaluated(policy, batch)
        loss = (
            tf.reduce_sum(found.logp) + tf.reduce_sum(found.value**2) + tf.reduce_sum(found.entropy)
        )
    return {
        k: g
        for k, g in zip(variables, tape.gradient(loss, list(variables.values())), strict=True)
        if g is not None
    }


def alone(batch, s):
    """Return the batch of its sequence `s`."""
    lengths = batch["seq_lens"]
    rows = slice(int(lengths[:s].sum()), int(lengths[: s + 1].sum()))
    found = {
        key: value for key, value in batch.items() if key not in ("seq_lens", "state", "views")
    }
    found = {key: value[rows] for key, value in found.items()}
    if "views" in batch:
        found["views"] = {name: view[rows] for name, view in batch["views"].items()}
    return {
        **found,
        "seq_lens": lengths[s : s + 1],
        "state": [part[s : s + 1] for part in batch["state"]],
    }


@pytest.fixture
def eager_tensorflow(monkeypatch):
    """Acting without traces: those are tested elsewhere, and take a second each."""
    from rlcatalog_tf.backend import TFBackend

    monkeypatch.setattr(
        TFBackend, "_program", lambda self, explore, masked: self._runner(explore, masked)
    )


@pytest.mark.usefixtures("eager_tensorflow")
@pytest.mark.parametrize(
    ("framework", "part"),
    [
        pytest.param(framework, part, marks=pytest.mark.attack if part or framework == "tf" else ())
        for framework in COMBINATIONS
        for part in range(PARTS)
    ],
)
def test_what_was_stored_is_what_is_scored(framework, part):
    for number in range(part, COMBINATIONS[framework], PARTS):
        obs, name, masked, memory, mode, config = combination(framework, number)
        what = (
            f"{framework} {number}: {obs}, {name}, masked {masked}, {memory}, {mode.name}, {config}"
        )
        try:
            check(*collected(obs, name, masked, mode, config, framework, number))
        except Exception as error:
            raise AssertionError(what) from error


def check(policy, rollouts):
    for rollout in rollouts:
        batch = rollout.batch(0.99, 0.95, dist_inputs=True)
        found, closed = evaluated(policy, batch)
        ratio = np.exp(array(found.logp) - batch["logp"])
        np.testing.assert_allclose(ratio, 1.0, rtol=2e-3)
        np.testing.assert_allclose(
            array(found.value), rollout.rows(rollout.value), rtol=1e-3, atol=1e-4
        )
        assert np.isfinite(array(found.entropy)).all()
        if closed:
            np.testing.assert_allclose(array(found.kl), 0.0, atol=1e-4)
        if rollout.starts is not None:
            assert_episodes_begin_with_the_initial_memory(policy, rollout)
    grads = gradients(policy, batch)
    assert grads
    assert all(np.isfinite(array(g)).all() for g in grads.values())
    if "seq_lens" not in batch:
        return
    lengths = batch["seq_lens"]
    assert lengths.min() < lengths.max()
    for s in np.argsort(lengths, kind="stable")[[0, -1]]:
        first = int(lengths[:s].sum())
        one, _ = evaluated(policy, alone(batch, s))
        rows = slice(first, first + int(lengths[s]))
        np.testing.assert_allclose(array(one.logp), array(found.logp)[rows], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(array(one.value), array(found.value)[rows], rtol=1e-3, atol=1e-4)


def assert_episodes_begin_with_the_initial_memory(policy, rollout):
    over = rollout.done if rollout.idle is None else rollout.idle
    for k, (n, t) in enumerate(zip(*np.nonzero(rollout.starts.T), strict=True)):
        if t and over[t - 1, n]:
            for part, first in zip(rollout.memory, policy.memory.initial, strict=True):
                np.testing.assert_array_equal(part[k], first)


def test_the_sample_holds_every_choice():
    """Enough combinations, and each choice of each factor among them, in both frameworks."""
    assert sum(COMBINATIONS.values()) >= 200
    for framework, count in COMBINATIONS.items():
        seen = Counter()
        for number in range(count):
            obs, name, masked, memory, mode, config = combination(framework, number)
            seen.update(
                [obs, name, f"masked {masked}", memory, mode, config.get("observation_filter")]
            )
            seen.update(
                key
                for key in ("use_autoregressive", "use_parametric", "free_log_std")
                if key in config
            )
            seen.update([str(config.get("custom_action_dist"))])
        wanted = {
            *OBS,
            *ACTIONS,
            *MEMORIES,
            *AutoresetMode,
            "masked True",
            "NoFilter",
            "MeanStdFilter",
            "use_autoregressive",
            "use_parametric",
            "free_log_std",
            "beta",
            "squashed_gaussian",
            "gumbel_softmax",
        }
        assert not wanted - seen.keys(), (framework, wanted - seen.keys())
