"""A net and a distribution of their own in the framework "toy", beside what its package has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import toy_framework
from toy_framework import plugin

from rlcatalog import ActionDistSpec, Match, ModelSpec, Rank, Request, SpaceInfo, Stage
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.models import DensePlan, plan_dense_layers

[FRAMEWORK] = plugin.rlcatalog_frameworks()
[NET] = plugin.rlcatalog_models()
[DIST] = plugin.rlcatalog_action_dists()


class Net(toy_framework.NumpyModel):
    """A linear net."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        plan: DensePlan = plan_dense_layers(
            self.model_config, math.prod(obs_space.shape), [], num_outputs
        )
        self.weights = {
            "logits": 0.1
            * toy_framework.GENERATOR.normal(size=(plan.num_inputs, plan.num_outputs)),
            "value": 0.1 * toy_framework.GENERATOR.normal(size=plan.num_inputs),
        }

    def forward(self, input_dict, state, seq_lens):
        self.features = input_dict["obs_flat"].astype(np.float64)
        return self.features @ self.weights["logits"], state

    def value_function(self):
        return self.features @ self.weights["value"]


def targets(**named: str) -> dict[str, str]:
    return {name: f"toy_own_parts:{attribute}" for name, attribute in named.items()}


def match(request: Request) -> Match:
    if request.encoded_shape is None or len(request.encoded_shape) != 1:
        return Match(None, "takes vectors")
    return Match(Rank.FALLBACK, "takes any vector")


def describe(request: Request) -> list[Stage]:
    outputs, values = int(request.num_outputs or 0), request.encoded_size
    return [Stage("value", (), values), Stage("logits", (outputs,), request.encoded_size * outputs)]


def match_choice(request: Request) -> Match:
    return (
        Match(Rank.FALLBACK, "a choice")
        if request.action.kind == "discrete"
        else Match(None, "takes Discrete")
    )


def size_of_choice(action: SpaceInfo, config: Mapping[str, Any]) -> int:
    if action.kind != "discrete":
        raise UnsupportedSpaceError(f"{action.path}: takes Discrete, found {action.space}.")
    return int(action.space.n)


class Choice(toy_framework.Categorical):
    """A categorical distribution that reads no config."""

    @classmethod
    def options_for(cls, action, config):
        return {}


OWN_NET = ModelSpec(
    "toy_linear", targets(toy="Net"), "a linear net", match=match, describe=describe
)
OWN_DIST = ActionDistSpec(
    "toy_choice", targets(toy="Choice"), "one of n", match=match_choice, size=size_of_choice
)
