"""Sound parts in the third framework, tape, which planted faults are made of."""

from __future__ import annotations

import math

import tape
import tape_own_parts
from planted_parts import TwoKinds
from tape import Array

from rlcatalog_tape.categorical import Categorical
from rlcatalog_tape.random import GENERATOR


class Net(tape_own_parts.Net):
    """A linear net."""


class Dist(TwoKinds):
    """Choices for a Discrete, normal numbers for a Box."""

    framework_of_class = "tape"

    def __init__(self, inputs, model=None, discrete=True):
        super().__init__(inputs, model)
        self.discrete = discrete
        if discrete:
            self.choice = Categorical(inputs)
            self.logs = self.choice.log_probs
        else:
            half = inputs.shape[1] // 2
            self.means = inputs[:, :half]
            self.logs = tape.clip(inputs[:, half:], -self.limit, self.limit)

    def sample(self):
        if self.discrete:
            self.last_sample = self.choice.sample()
        else:
            noise = GENERATOR.normal(size=self.means.shape).astype(self.means.dtype)
            self.last_sample = (self.means + tape.exp(self.logs) * Array(noise)).constant()
        return self.last_sample

    def deterministic_sample(self):
        self.last_sample = self.choice.deterministic_sample() if self.discrete else self.means
        return self.last_sample

    def logp(self, actions):
        if self.discrete:
            self.choice.log_probs = self.logs
            return self.choice.logp(actions)
        z = (actions - self.means) / tape.exp(self.logs)
        return -(0.5 * z**2 + self.logs + 0.5 * math.log(2 * math.pi)).sum(axis=1)

    def entropy(self):
        if self.discrete:
            return self.choice.entropy()
        return (self.logs + 0.5 * math.log(2 * math.pi * math.e)).sum(axis=1)

    def kl(self, other):
        if self.discrete:
            return self.choice.kl(other.choice)
        squares = tape.exp(2 * self.logs) + (self.means - other.means) ** 2
        ratio = squares / (2 * tape.exp(2 * other.logs))
        return (other.logs - self.logs + ratio - 0.5).sum(axis=1)


model, action_dist = Net, Dist
