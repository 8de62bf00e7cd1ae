"""Small parts that keep their contracts, to be broken in one place each."""

from __future__ import annotations

import math
from typing import Annotated

import gymnasium as gym
import msgspec
import numpy as np
import tape_own_parts
import torch

import rlcatalog
import rlcatalog_tape.backend
import rlcatalog_tape.ops
from rlcatalog import ActionDistribution, Filter, Preprocessor
from rlcatalog.actions import ActionCodec
from rlcatalog.errors import NotServedError
from rlcatalog_export.torch.program import (
    ProgramRunner as ProgramRunner,
    write_program as write_program,
)
from rlcatalog_testing import Example
from rlcatalog_torch import FullyConnectedNetwork

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)


# --- distributions --------------------------------------------------------------------------------


class Choice(ActionDistribution):
    """One of n values."""

    framework_of_class = "torch"

    def __init__(self, inputs, model=None):
        super().__init__(inputs, model)
        self.logits = inputs.log_softmax(-1).clamp(min=torch.finfo(torch.float32).min)

    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return action_space.n

    def sample(self):
        self.last_sample = torch.multinomial(self.logits.exp(), 1)[:, 0]
        return self.last_sample

    def deterministic_sample(self):
        self.last_sample = self.logits.argmax(-1)
        return self.last_sample

    def logp(self, actions):
        return self.logits.gather(-1, actions.long().reshape(-1, 1))[:, 0]

    def entropy(self):
        return -(self.logits.exp() * self.logits).sum(-1)

    def kl(self, other):
        return (self.logits.exp() * (self.logits - other.logits)).sum(-1)


# --- an observation space and its codec -----------------------------------------------------------


class Heading(gym.Space):
    """An angle from 0 to 2π."""

    def __init__(self):
        super().__init__((), np.float64)

    def sample(self, mask=None, probability=None):
        return self.np_random.uniform(0, 2 * math.pi, ())

    def contains(self, x):
        return (
            isinstance(x, float | np.floating | np.ndarray)
            and np.shape(x) == ()
            and 0 <= float(x) <= 2 * math.pi
        )


class HeadingCodec(Preprocessor):
    """Cosine and sine."""

    def _init_shape(self, obs_space, options):
        return (2,)

    def writer(self, start):
        def write(obs, out):
            out[start : start + 2] = math.cos(obs), math.sin(obs)

        return write

    def batch_writer(self, start):
        def write(batch, out):
            angles = np.asarray(batch, np.float64)
            out[:, start : start + 2] = np.stack([np.cos(angles), np.sin(angles)], axis=1)

        return write

    def bounds(self):
        return np.full(2, -1, np.float32), np.full(2, 1, np.float32)


# --- an action space and its codec ----------------------------------------------------------------


class Pair(gym.Space):
    """Two of the numbers from 1 to n."""

    def __init__(self, n):
        self.n = n
        super().__init__((2,), np.int64)

    def sample(self, mask=None, probability=None):
        return self.np_random.integers(1, self.n + 1, 2)

    def contains(self, x):
        return (
            np.shape(x) == (2,) and x.dtype == np.int64 and bool(((x >= 1) & (x <= self.n)).all())
        )

    def __eq__(self, other):
        return isinstance(other, Pair) and other.n == self.n


class PairCodec(ActionCodec):
    """Raw values count from 0."""

    whole = True

    def __init__(self, info, *others):
        super().__init__(info, *others)
        n = info.space.n
        self.counts, self.choices = (n, n), [(f"{info.path}[{i}]", n) for i in range(2)]
        self.input_width = 2 * n

    def adapt(self, raw):
        return raw.astype(np.int64) + 1

    def invert(self, action):
        return super().invert(action) - 1

    def inputs(self, raw):
        return np.eye(self.counts[0], dtype=np.float32)[raw.astype(int)].reshape(len(raw), -1)

    @staticmethod
    def space_to_json(space):
        return {"n": space.n}

    @staticmethod
    def space_from_json(data):
        return Pair(data["n"])


# --- a filter -------------------------------------------------------------------------------------


class Largest(Filter):
    """Divides quantities by the largest magnitude seen."""

    def __init__(self, preprocessor, options):
        super().__init__(preprocessor, options)
        self.largest = np.ones(preprocessor.size, np.float32)
        self.numeric = np.zeros(preprocessor.size, bool)
        for leaf in preprocessor.leaves():
            self.numeric[leaf.start : leaf.stop] = leaf.numeric

    def __call__(self, encoded, *, update=False):
        flat = encoded.reshape(len(encoded), self.preprocessor.size)
        if update:
            self.learn(flat)
        return (
            np.where(self.numeric, flat / self.largest, flat)
            .astype(np.float32)
            .reshape(encoded.shape)
        )

    def learn(self, flat):
        self.largest = np.maximum(self.largest, np.abs(flat).max(axis=0))

    def processed_space(self, preprocessor):
        low, high = preprocessor.bounds()
        return preprocessor.processed_space(low.astype(np.float32), high.astype(np.float32))

    def get_state(self):
        return {"largest": self.largest.copy()}

    def set_state(self, state):
        self.largest = np.array(state["largest"])


# --- an environment wrapper -----------------------------------------------------------------------


class Doubled(gym.RewardWrapper):
    """Rewards, doubled."""

    def reward(self, reward):
        return 2 * reward


def doubled(env, config):
    return Doubled(env)


class DoubledConfig(msgspec.Struct, frozen=True, kw_only=True):
    acme_double: Annotated[bool, msgspec.Meta(description="double rewards")] = False


def pendulums():
    return [(lambda: gym.make("Pendulum-v1"), {"acme_double": True})]


# --- a framework ----------------------------------------------------------------------------------


class Backend(rlcatalog_tape.backend.Backend):
    """Runs a policy of tape's arrays, without gradients."""

    def evaluate(self, batch, entropy=True):
        raise NotServedError("it computes no gradients")


class Net(tape_own_parts.Net):
    """One linear layer."""

    framework_of_class = "plain"


class PlainChoice(tape_own_parts.Choice):
    """One of n values."""

    framework_of_class = "plain"


class Ops(rlcatalog_tape.ops.Ops):
    framework = "plain"


OPS = Ops()


# --- a trunk --------------------------------------------------------------------------------------


class Trunk(FullyConnectedNetwork):
    """A fully connected net."""


# --- examples -------------------------------------------------------------------------------------


def choices():
    return [Example(VECTOR, gym.spaces.Discrete(3, start=1))]


def headings():
    return [Example(Heading(), gym.spaces.Discrete(2))]


def pairs():
    return [Example(VECTOR, Pair(3))]


def mixed():
    both = gym.spaces.Dict({"a": VECTOR, "b": gym.spaces.Discrete(3)})
    return [Example(both, gym.spaces.Discrete(2), {"observation_filter": "acme_largest"})]


def matches_pendulum(request):
    if (
        request.env is not None
        and request.env.spec is not None
        and request.env.spec.id == "Pendulum-v1"
    ):
        return rlcatalog.Match(rlcatalog.Rank.SPECIFIC, "a pendulum")
    return rlcatalog.Match(None, "for pendulums")
