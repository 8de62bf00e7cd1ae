"""Sound parts in the third framework, of NumPy, which planted faults are made of."""

from __future__ import annotations

import math

import numpy as np
import toy_framework
import toy_own_parts
from planted_parts import TwoKinds


class Net(toy_own_parts.Net):
    """A linear net."""


class Dist(TwoKinds):
    """Choices for a Discrete, normal numbers for a Box."""

    framework_of_class = "toy"

    def __init__(self, inputs, model=None, discrete=True):
        super().__init__(inputs, model)
        self.discrete = discrete
        if discrete:
            self.logs = toy_framework.Categorical(inputs).log_probs
        else:
            self.means, logs = np.split(inputs, 2, axis=1)
            self.logs = logs.clip(-self.limit, self.limit)

    def sample(self):
        if self.discrete:
            self.last_sample = (
                self.logs + toy_framework.GENERATOR.gumbel(size=self.logs.shape)
            ).argmax(axis=1)
        else:
            noise = toy_framework.GENERATOR.normal(size=self.means.shape).astype(self.means.dtype)
            self.last_sample = self.means + np.exp(self.logs) * noise
        return self.last_sample

    def deterministic_sample(self):
        self.last_sample = self.logs.argmax(axis=1) if self.discrete else self.means
        return self.last_sample

    def logp(self, actions):
        if self.discrete:
            return np.take_along_axis(
                self.logs, np.asarray(actions).reshape(-1, 1).astype(int), axis=1
            )[:, 0]
        z = (actions - self.means) / np.exp(self.logs)
        return -(0.5 * z**2 + self.logs + 0.5 * math.log(2 * math.pi)).sum(axis=1)

    def entropy(self):
        if self.discrete:
            return -(np.exp(self.logs) * self.logs).sum(axis=1)
        return (self.logs + 0.5 * math.log(2 * math.pi * math.e)).sum(axis=1)

    def kl(self, other):
        if self.discrete:
            return (np.exp(self.logs) * (self.logs - other.logs)).sum(axis=1)
        ratio = (np.exp(2 * self.logs) + (self.means - other.means) ** 2) / (
            2 * np.exp(2 * other.logs)
        )
        return (other.logs - self.logs + ratio - 0.5).sum(axis=1)


model, action_dist = Net, Dist
