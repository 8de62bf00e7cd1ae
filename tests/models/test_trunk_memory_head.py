"""The contract on paper: a trunk, a memory around it, a head around that, and an interface over
all.
"""

from __future__ import annotations

import sys
from types import ModuleType

import msgspec
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete
from seed_models import DuelingQModel, TorchRNN
from torch import nn

import rlcatalog
from rlcatalog import Catalog, ModelCatalog, ModelSpec
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import PluginEntryPoint, plugin_of
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)
SMALL = {"fcnet_hiddens": [8]}


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


class RecallConfig(msgspec.Struct, frozen=True, kw_only=True):
    __module__ = "made_up_recall"

    recall_cell: int | None = None
    recall_head: bool = False


BUILT = []


class Recall(TorchModelV2):
    """A memory: a cell around its trunk."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        BUILT.append(("memory", num_outputs, trunk))
        self.trunk, self.size = trunk, model_config["recall_cell"]
        self.cell = nn.GRUCell(trunk.num_outputs, self.size)
        self.num_outputs = self.size if num_outputs is None else num_outputs
        self.logits = self.value = None
        if num_outputs is not None:
            self.logits, self.value = nn.Linear(self.size, num_outputs), nn.Linear(self.size, 1)

    def forward(self, input_dict, state, seq_lens):
        features, _ = self.trunk(input_dict)
        self.features = self.cell(features, state[0])
        return (self.features if self.logits is None else self.logits(self.features)), [
            self.features
        ]

    def value_function(self):
        return self.value(self.features)[:, 0]

    def get_initial_state(self):
        return [torch.zeros(self.size)]


class Head(TorchModelV2):
    """A head: one more layer around what it holds."""

    def __init__(
        self,
        obs_space,
        action_space,
        num_outputs,
        model_config,
        name,
        *,
        trunk,
        value_trunk,
        action_dist,
    ):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        BUILT.append(("head", num_outputs, trunk))
        self.trunk = trunk
        self.layer = nn.Linear(trunk.num_outputs, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        features, new_state = self.trunk(input_dict, state, seq_lens)
        return self.layer(features), new_state

    def get_initial_state(self):
        return self.trunk.get_initial_state()


class Noted(FullyConnectedNetwork):
    """A trunk that says how it was built."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        BUILT.append(("trunk", num_outputs, None))
        super().__init__(obs_space, action_space, num_outputs, model_config, name)


@pytest.fixture
def recall(monkeypatch):
    """A catalog with a plugin that declares a memory and a head."""
    module = ModuleType("made_up_recall")
    vars(module).update(Recall=Recall, Head=Head, RecallConfig=RecallConfig)
    monkeypatch.setitem(sys.modules, "made_up_recall", module)

    config = "made_up_recall:RecallConfig"
    specs = [
        ModelSpec(
            "recall",
            {"torch": "made_up_recall:Recall"},
            "a cell",
            switch="recall_cell",
            config=config,
            slot="memory",
        ),
        ModelSpec(
            "recall_head",
            {"torch": "made_up_recall:Head"},
            "a layer",
            switch="recall_head",
            config=config,
            slot="head",
        ),
    ]
    BUILT.clear()
    point = PluginEntryPoint(plugin_of(rlcatalog_models=specs), "recall")
    return Catalog([*scan(), point], environ={"RLCATALOG_STRICT_PLUGINS": "1"})


def test_a_trunk_announces_its_width():
    for hiddens, width in (([], 4), ([8], 8), ([8, 6], 6)):
        for framework in ("torch", "tf"):
            model = ModelCatalog.get_model_v2(BOX, TWO, None, {"fcnet_hiddens": hiddens}, framework)
            assert model.num_outputs == width
            convert = torch.from_numpy if framework == "torch" else tf.constant
            output, _ = model({"obs": convert(np.stack(observations()))})
            assert tuple(output.shape) == (6, width)


def test_a_memory_holds_its_trunk_and_is_built_after_it(recall):
    policy = rlcatalog.build(
        BOX, TWO, {"custom_model": Noted, "recall_cell": 5, **SMALL}, catalog=recall
    )
    model = policy.model
    assert type(model) is Recall
    assert type(model.trunk) is Noted
    assert [entry[:2] for entry in BUILT] == [("trunk", None), ("memory", 2)]
    assert BUILT[1][2] is model.trunk
    assert model.trunk.num_outputs == 8
    assert model.trunk.outputs is None  # logits and value belong to the outermost part
    found = policy.explain().as_dict()
    assert (found["memory"]["chosen"], found["memory"]["distribution"]) == ("recall", "recall")
    assert found["memory"]["config_keys"] == ["recall_cell", "recall_head"]
    assert found["head"]["chosen"] is None
    # Acting and training, as with any recurrent model; parameters of the trunk are the memory's.
    obs = np.stack(observations(n=2))
    first = policy.act(obs)
    second = policy.act(obs, first.state)
    assert first.state.memory[0].shape == (2, 5)
    assert not np.allclose(first.dist_inputs, second.dist_inputs)
    evaluation = policy.evaluate(
        {"obs": obs, "raw_action": second.raw_action, "state": first.state}
    )
    np.testing.assert_allclose(evaluation.logp.detach(), second.logp, rtol=1e-5)
    (evaluation.logp.sum() + evaluation.value.sum()).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {
        "trunk",
        "cell",
        "logits",
        "value",
    }


def test_a_head_is_built_after_the_memory(recall):
    policy = rlcatalog.build(
        BOX,
        TWO,
        {"custom_model": Noted, "recall_cell": 5, "recall_head": True, **SMALL},
        catalog=recall,
    )
    model = policy.model
    assert [type(part) for part in (model, model.trunk, model.trunk.trunk)] == [Head, Recall, Noted]
    assert [entry[:2] for entry in BUILT] == [("trunk", None), ("memory", None), ("head", 2)]
    assert model.layer.in_features == 5
    step = policy.act(observations())
    assert step.dist_inputs.shape == (6, 2)
    assert step.value is None
    assert step.state.memory[0].shape == (6, 5)


def test_a_head_without_a_memory(recall):
    policy = rlcatalog.build(BOX, TWO, {"recall_head": True, **SMALL}, catalog=recall)
    assert type(policy.model) is Head
    assert type(policy.model.trunk) is FullyConnectedNetwork
    assert policy.act(observations()).state is None


def test_without_their_keys_neither_is_chosen(recall):
    policy = rlcatalog.build(BOX, TWO, SMALL, catalog=recall)
    assert type(policy.model) is FullyConnectedNetwork
    found = policy.explain().as_dict()["memory"]
    assert found["chosen"] is None
    assert ("recall", "recall_cell is not set; to choose it: recall_cell=True") in [
        (c["name"], c["reason"]) for c in found["candidates"]
    ]


def test_a_recurrent_trunk_is_refused_by_a_memory(recall):
    class Trunk(TorchRNN):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs or 3, model_config, name)

    with pytest.raises(
        NotServedError, match=r"Trunk is itself recurrent \(get_initial_state\(\) is not em"
    ):
        rlcatalog.build(BOX, TWO, {"custom_model": Trunk, "recall_cell": 5}, catalog=recall)
    # A head takes it.
    policy = rlcatalog.build(BOX, TWO, {"custom_model": Trunk, "recall_head": True}, catalog=recall)
    assert [part.shape for part in policy.act(observations()).state.memory] == [(6, 6)] * 2


def test_a_trunk_that_does_not_announce_its_width_is_refused(recall):
    class Silent(TorchModelV2):
        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    with pytest.raises(
        ModelContractError, match=r"Silent was built as the trunk of Recall.*self\.num_outputs"
    ):
        rlcatalog.build(BOX, TWO, {"custom_model": Silent, "recall_cell": 5}, catalog=recall)


def test_a_wrapped_custom_model_gets_its_keyword_arguments(recall):
    # RLlib dropped them all once an LSTM was wrapped around the model.
    class Sized(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
            super().__init__(
                obs_space,
                action_space,
                num_outputs,
                {**model_config, "fcnet_hiddens": [width]},
                name,
            )

    config = {"custom_model": Sized, "custom_model_config": {"width": 11}, "recall_cell": 5}
    assert rlcatalog.build(BOX, TWO, config, catalog=recall).model.trunk.num_outputs == 11


def build_interface(interface, framework="torch", config=None, catalog=None):
    catalog = catalog or default_catalog()
    return catalog.model_v2(BOX, TWO, 2, config or SMALL, framework, "my_dueling_model", interface)


def test_an_interface_over_a_custom_model():
    model = build_interface(DuelingQModel, config={"custom_model": Noted, "fcnet_hiddens": [5]})
    assert type(model.inner) is Noted
    assert model.A.in_features == 5


def test_an_interface_is_the_last_of_all(recall):
    config = {"custom_model": Noted, "recall_cell": 5, "recall_head": False, **SMALL}
    model = build_interface(DuelingQModel, config=config, catalog=recall)
    assert [type(model.inner), type(model.inner.trunk)] == [Recall, Noted]
    assert [entry[:2] for entry in BUILT] == [("trunk", None), ("memory", None)]
    # RLlib could not build this one: the dueling head over a memory, on the memory's width.
    assert model.A.in_features == model.num_outputs == 5
    assert [part.shape for part in model.get_initial_state()] == [(5,)]
    output, state = model(
        {"obs": torch.zeros(3, 4)}, [torch.zeros(3, 5)], torch.ones(3, dtype=torch.int32)
    )
    assert model.get_q_values(output).shape == (3, 2)
    assert state[0].shape == (3, 5)
