"""Toy parts that keep their contracts, and the same with one line broken: for the
conformance kit.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np
import torch
from gymnasium import spaces
from msgspec import Meta
from torch import nn

from rlcatalog import Match, ModelSpec, Rank, Stage
from rlcatalog.config import read_config
from rlcatalog.models import ModelV2, plan_dense_layers
from rlcatalog_testing import Example
from rlcatalog_torch import OutputLayers, TorchModelV2, steps_of

VECTOR = spaces.Box(-1, 1, (4,), np.float32)


class AcmeConfig(msgspec.Struct, frozen=True, kw_only=True):
    acme_width: Annotated[int, Meta(ge=1, description="width of the layer")] = 6


class BareConfig(msgspec.Struct, frozen=True, kw_only=True):
    acme_width: Annotated[int, Meta(ge=1)] = 6


class MemoryConfig(msgspec.Struct, frozen=True, kw_only=True):
    acme_recall: Annotated[bool, Meta(description="switch the memory on")] = False
    acme_size: Annotated[int, Meta(ge=1, description="width of the state")] = 5


class SwitchedConfig(AcmeConfig, frozen=True, kw_only=True):
    acme_net_use: Annotated[bool, Meta(description="switch the trunk on")] = False


class HeadConfig(msgspec.Struct, frozen=True, kw_only=True):
    acme_goal: Annotated[bool, Meta(description="switch the head on")] = False


def examples():
    return [
        Example(VECTOR, spaces.Discrete(3, start=1)),
        Example(spaces.Box(0, 255, (5, 5, 1), np.uint8), spaces.Box(-1, 1, (2,))),
    ]


def switched_examples():
    return [Example(VECTOR, spaces.Discrete(3), {"acme_net_use": True})]


def memory_examples():
    return [Example(VECTOR, spaces.Discrete(3), {"acme_recall": True})]


def head_examples():
    obs = spaces.Dict({"goal": spaces.Box(-1, 1, (2,)), "state": VECTOR})
    return [Example(obs, spaces.Discrete(3), {"acme_goal": True})]


# --- trunks ---------------------------------------------------------------------------------------


def describe(request):
    width, inputs = request.config["acme_width"], request.encoded_size
    layer = Stage("layer", (width,), (inputs + 1) * width)
    return (
        [layer] if request.num_outputs is None else [layer, Stage("logits", (request.num_outputs,))]
    )


class Net(TorchModelV2):
    """One layer, logits and value."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.width = read_config(self.model_config, AcmeConfig).acme_width
        self.layer = nn.Linear(math.prod(obs_space.shape), self.width)
        self.logits = self.value = None
        if num_outputs is None:
            self.num_outputs = self.width
        else:
            self.logits, self.value = nn.Linear(self.width, num_outputs), nn.Linear(self.width, 1)

    def features(self, input_dict):
        return torch.tanh(self.layer(input_dict["obs_flat"].float()))

    def forward(self, input_dict, state, seq_lens):
        self.last = self.features(input_dict)
        return (self.last if self.logits is None else self.logits(self.last)), state

    def value_function(self):
        return self.value(self.last).squeeze(1)


class CriticUnderAnotherName(TorchModelV2):
    """A net whose value has a layer of its own, in an attribute that does not say so."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        inputs = math.prod(obs_space.shape)
        self.layer = nn.Linear(inputs, 6)
        self.outputs = None
        if num_outputs is None:
            self.num_outputs = 6
        else:
            self.second_layer = nn.Linear(inputs, 6)
            self.outputs = OutputLayers(plan_dense_layers(self.model_config, 6, [], num_outputs))

    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs_flat"].float()
        features = torch.tanh(self.layer(x))
        if self.outputs is None:
            return features, state
        self.value_features = torch.tanh(self.second_layer(x))
        return self.outputs(features), state

    def value_function(self):
        return self.outputs.values(self.value_features)


class OneOutputMore(Net):
    def forward(self, input_dict, state, seq_lens):
        found, state = super().forward(input_dict, state, seq_lens)
        return torch.cat([found, found[:, :1]], 1), state


class NoValue(Net):
    value_function = ModelV2.value_function


class OneValue(Net):
    def value_function(self):
        return super().value_function()[:1]


class Squeezed(Net):
    def features(self, input_dict):
        found = super().features(input_dict)
        return found / found.abs().max()  # of no rows there is no largest


class Centred(Net):
    def features(self, input_dict):
        found = super().features(input_dict)
        return found - found.mean(0)


class NotCast(Net):
    def features(self, input_dict):
        return torch.tanh(self.layer(input_dict["obs_flat"]))


class HiddenLayer(Net):
    def __init__(self, *args):
        super().__init__(*args)
        self.more = [nn.Linear(self.width, self.width)]  # a plain list: its weights are nobody's

    def features(self, input_dict):
        return self.more[0](super().features(input_dict))


class IdleLayer(Net):
    def __init__(self, *args):
        super().__init__(*args)
        self.idle = nn.Linear(2, 2)


class Detached(Net):
    def features(self, input_dict):
        return super().features(input_dict).detach()


class WritesIntoItsInput(Net):
    def forward(self, input_dict, state, seq_lens):
        input_dict["obs_flat"].mul_(0.5)
        return super().forward(input_dict, state, seq_lens)


class ForgottenNoise(Net):
    def __init__(self, *args):
        super().__init__(*args)
        self.scale = torch.rand(self.width)  # neither parameter nor buffer

    def features(self, input_dict):
        return super().features(input_dict) * self.scale


class OtherRowsInTraining(Net):
    def value_function(self):
        found = super().value_function()
        return found.mean()[None] if self.training else found


class IgnoresItsKey(Net):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(
            obs_space, action_space, num_outputs, {**model_config, "acme_width": 6}, name
        )


class ReadsAnothersKey(Net):
    def features(self, input_dict):
        return super().features(input_dict) * self.model_config["fcnet_hiddens"][0]


class SaysNoWidth(Net):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        if num_outputs is None:
            self.num_outputs = None


class SaysAnotherWidth(Net):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        if num_outputs is None:
            self.num_outputs = self.width + 1


class OneSize(Net):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer = nn.Linear(obs_space.original_space.shape[0] if num_outputs else 7, self.width)


# --- memories -------------------------------------------------------------------------------------


def recalls(request):
    is_on = request.config["acme_recall"]
    return Match(Rank.SPECIFIC, "switched on") if is_on else Match(None, "acme_recall is not set")


def describe_memory(request):
    size = request.config["acme_size"]
    return [
        Stage("cell", (size,)),
        *([Stage("logits", (request.num_outputs,))] if request.num_outputs else []),
    ]


class Recall(TorchModelV2):
    """A recurrent layer around a trunk."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.size = read_config(self.model_config, MemoryConfig).acme_size
        self.trunk = trunk
        self.cell = nn.Linear(trunk.num_outputs + self.size, self.size)
        self.logits = self.value = None
        if num_outputs is None:
            self.num_outputs = self.size
        else:
            self.logits, self.value = nn.Linear(self.size, num_outputs), nn.Linear(self.size, 1)

    def get_initial_state(self):
        return [np.zeros(self.size, np.float32)]

    def features(self, input_dict):
        return self.trunk(input_dict, [], None)[0]

    def order(self, steps):
        return range(steps)

    def carried(self, h):
        return h

    def kept(self, hs, seq_lens):
        """Return the state of each sequence after its last real step, of all `[B, T, n]`."""
        return hs[torch.arange(len(hs)), seq_lens.long() - 1]

    def forward(self, input_dict, state, seq_lens):
        features = self.features(input_dict)
        rows, h = len(features), self.carried(state[0])
        steps = steps_of(rows, len(seq_lens))
        features = self.prepared(
            features.reshape(len(seq_lens), steps, features.shape[1]), seq_lens
        )
        hs = [None] * steps
        for t in self.order(steps):
            h = hs[t] = torch.tanh(self.cell(torch.cat([features[:, t], h], 1)))
        hs = torch.stack(hs, 1)
        self.last = hs.reshape(rows, self.size)
        self.h = h.detach()
        return (self.last if self.logits is None else self.logits(self.last)), [
            self.kept(hs, seq_lens)
        ]

    def prepared(self, features, seq_lens):
        return features

    def value_function(self):
        return self.value(self.last).squeeze(1)


class Forgetful(Recall):
    def get_initial_state(self):
        return []

    def forward(self, input_dict, state, seq_lens):
        rows = len(input_dict["obs_flat"])
        blank = torch.zeros(rows if seq_lens is None else len(seq_lens), self.size)
        return super().forward(
            input_dict, [blank], torch.ones(len(blank)) if seq_lens is None else seq_lens
        )[0], []


class SaysNothing(Recall):
    is_memory = False


class OneTrunkOnly(Recall):
    def features(self, input_dict):
        return super().features(input_dict) * torch.ones(256)


class NoTrunk(Recall):
    def features(self, input_dict):
        return input_dict["obs_flat"].float().sum(1, keepdim=True).repeat(1, self.trunk.num_outputs)


class TwiceTheState(Recall):
    def kept(self, hs, seq_lens):
        return super().kept(hs, seq_lens).repeat(1, 2)


class Backwards(Recall):
    def order(self, steps):
        return reversed(range(steps))


class KeepsItself(Recall):
    def carried(self, h):
        kept = getattr(self, "h", None)
        return h if kept is None or kept.shape != h.shape else kept


class LastPaddedState(Recall):
    def kept(self, hs, seq_lens):
        return hs[:, -1]


class MeetsPadding(Recall):
    def prepared(self, features, seq_lens):
        return features - features.mean(1, keepdim=True) if features.shape[1] > 1 else features


# --- a head ---------------------------------------------------------------------------------------


def aims(request):
    if request.config["acme_goal"] and request.obs.kind == "dict" and "goal" in request.obs.keys:
        return Match(Rank.SPECIFIC, "switched on")
    return Match(None, "acme_goal is not set")


def claims(request):
    return ["goal"]


class Aim(TorchModelV2):
    """Logits and value from a trunk's features and the goal."""

    def __init__(
        self,
        obs_space,
        action_space,
        num_outputs,
        model_config,
        name,
        trunk,
        value_trunk=None,
        action_dist=None,
    ):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk = trunk
        width = trunk.num_outputs + 2
        self.logits, self.value = nn.Linear(width, num_outputs), nn.Linear(width, 1)

    def features(self, input_dict, state, seq_lens):
        return self.trunk(input_dict, state, seq_lens)

    def forward(self, input_dict, state, seq_lens):
        features, state = self.features(input_dict, state, seq_lens)
        self.last = torch.cat([features, input_dict["obs"]["goal"].float()], 1)
        return self.logits(self.last), state

    def value_function(self):
        return self.value(self.last).squeeze(1)


class ShowsTheGoal(Aim):
    def features(self, input_dict, state, seq_lens):
        flat = input_dict["obs_flat"]
        return self.trunk.forward(
            {**input_dict, "obs_flat": flat[:, -math.prod(VECTOR.shape) :]}, state, seq_lens
        )


# --- declarations ---------------------------------------------------------------------------------


def spec(target="faulty_parts:Net", name="acme_net", **fields):
    """Return the declaration of a trunk that is chosen by name."""
    found = {
        "summary": "a toy",
        "describe": describe,
        "config": "faulty_parts:AcmeConfig",
        "examples": "faulty_parts:examples",
        **fields,
    }
    targets = found.pop("targets", {"torch": target})
    return ModelSpec(name, targets, found.pop("summary"), **found)


def memory(target="faulty_parts:Recall"):
    """Return the declaration of a memory."""
    return ModelSpec(
        "acme_recall",
        {"torch": target},
        "a toy",
        slot="memory",
        match=recalls,
        describe=describe_memory,
        config="faulty_parts:MemoryConfig",
        examples="faulty_parts:memory_examples",
    )


def head(target="faulty_parts:Aim"):
    """Return the declaration of a head."""
    return ModelSpec(
        "acme_aim",
        {"torch": target},
        "a toy",
        slot="head",
        match=aims,
        claims=claims,
        config="faulty_parts:HeadConfig",
        examples="faulty_parts:head_examples",
    )
