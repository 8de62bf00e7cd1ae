"""A net and a distribution of their own in the framework "tape", beside what its package has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlcatalog import ActionDistSpec, Match, ModelSpec, Rank, Request, SpaceInfo, Stage
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.models import output_spec, plan_dense_layers
from rlcatalog_tape import plugin
from rlcatalog_tape.categorical import Categorical
from rlcatalog_tape.layers import Dense
from rlcatalog_tape.models import TapeModel

[FRAMEWORK] = plugin.rlcatalog_frameworks()
[NET] = plugin.rlcatalog_models()
[DIST] = plugin.rlcatalog_action_dists()


class Net(TapeModel):
    """A linear net."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        num_inputs = math.prod(obs_space.shape)
        plan = plan_dense_layers(self.model_config, num_inputs, [], num_outputs)
        self.logits = self.add("logits", Dense(num_inputs, output_spec(plan.num_outputs)))
        self.value = self.add("value", Dense(num_inputs, output_spec(1)))

    def forward(self, input_dict, state, seq_lens):
        self.features = input_dict["obs_flat"].astype("float32")
        return self.logits(self.features), state

    def value_function(self):
        return self.value(self.features)[:, 0]


def targets(**named: str) -> dict[str, str]:
    return {name: f"tape_own_parts:{attribute}" for name, attribute in named.items()}


def match(request: Request) -> Match:
    if request.encoded_shape is None or len(request.encoded_shape) != 1:
        return Match(None, "takes vectors")
    return Match(Rank.FALLBACK, "takes any vector")


def describe(request: Request) -> list[Stage]:
    num_outputs = int(request.num_outputs or 0)
    num_inputs = request.encoded_size
    return [
        Stage("value", (), num_inputs + 1),
        Stage("logits", (num_outputs,), (num_inputs + 1) * num_outputs),
    ]


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


class Choice(Categorical):
    """A categorical distribution that reads no config."""

    @classmethod
    def options_for(cls, action, config):
        return {}


OWN_NET = ModelSpec(
    "tape_linear", targets(tape="Net"), "a linear net", match=match, describe=describe
)
OWN_DIST = ActionDistSpec(
    "tape_choice", targets(tape="Choice"), "one of n", match=match_choice, size=size_of_choice
)
