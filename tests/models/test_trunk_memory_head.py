"""A trunk, a memory around it, a head around that, and an interface over all."""

from __future__ import annotations

import sys
from types import ModuleType

import msgspec
import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import sample_observations
from gymnasium import spaces
from gymnasium.spaces import Discrete
from seed_models import DuelingQModel, TorchRNN
from torch import nn

import rlcatalog
from rlcatalog import Catalog, ModelCatalog, ModelSpec
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import PluginEntryPoint, plugin_of
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = Discrete(2)


def sample_rows(rows):
    return np.stack(sample_observations(FOUR_FEATURES, rows))


# --- a plugin with a memory and a head ------------------------------------------------------------


class RecallConfig(msgspec.Struct, frozen=True, kw_only=True):
    __module__ = "made_up_recall"

    recall_cell: int | None = None
    recall_head: bool = False


#: Part and `num_outputs` of each model that was built, in order.
BUILT = []


class Recall(TorchModelV2):
    """A memory: a GRU cell around its trunk. The config sets its width, `recall_cell`."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        BUILT.append(("memory", num_outputs))
        self.trunk = trunk
        self.size = model_config["recall_cell"]
        self.cell = nn.GRUCell(trunk.num_outputs, self.size)
        self.num_outputs = self.size if num_outputs is None else num_outputs
        self.logits = None
        self.value = None
        if num_outputs is not None:
            self.logits = nn.Linear(self.size, num_outputs)
            self.value = nn.Linear(self.size, 1)

    def forward(self, input_dict, state, seq_lens):
        features, _ = self.trunk(input_dict)
        self.features = self.cell(features, state[0])
        outputs = self.features if self.logits is None else self.logits(self.features)
        return outputs, [self.features]

    def value_function(self):
        return self.value(self.features)[:, 0]

    def get_initial_state(self):
        return [torch.zeros(self.size)]


class Head(TorchModelV2):
    """A head: one more layer around its trunk."""

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
        BUILT.append(("head", num_outputs))
        self.trunk = trunk
        self.layer = nn.Linear(trunk.num_outputs, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        features, new_state = self.trunk(input_dict, state, seq_lens)
        return self.layer(features), new_state

    def get_initial_state(self):
        return self.trunk.get_initial_state()


class Trunk(FullyConnectedNetwork):
    """A trunk that adds itself to `BUILT`."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        BUILT.append(("trunk", num_outputs))
        super().__init__(obs_space, action_space, num_outputs, model_config, name)


@pytest.fixture
def catalog_with_recall(monkeypatch):
    """A catalog with a plugin that declares the memory `Recall` and the head `Head`."""
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


def build_policy(catalog, **config):
    return rlcatalog.build(
        FOUR_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [8], **config}, catalog=catalog
    )


# --- trunks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("hiddens", "width"), [([], 4), ([8], 8), ([8, 6], 6)], ids=["no layer", "one", "two"]
)
def test_trunk_announces_its_width(framework, hiddens, width):
    config = {"fcnet_hiddens": hiddens}
    to_tensor = torch.from_numpy if framework == "torch" else tf.constant

    # num_outputs=None builds a trunk, without layers for logits and value.
    model = ModelCatalog.get_model_v2(FOUR_FEATURES, TWO_ACTIONS, None, config, framework)
    output, _ = model({"obs": to_tensor(sample_rows(rows=6))})

    assert model.num_outputs == width
    assert tuple(output.shape) == (6, width)


def test_trunk_without_num_outputs_is_refused(catalog_with_recall):
    class WithoutWidth(TorchModelV2):
        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    message = r"WithoutWidth was built as the trunk of Recall.*self\.num_outputs"
    with pytest.raises(ModelContractError, match=message):
        build_policy(catalog_with_recall, custom_model=WithoutWidth, recall_cell=5)


def test_wrapped_custom_model_gets_its_keyword_arguments(catalog_with_recall):
    # In RLlib, a model inside an LSTM gets none of them.
    class WithWidth(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
            config = {**model_config, "fcnet_hiddens": [width]}
            super().__init__(obs_space, action_space, num_outputs, config, name)

    policy = build_policy(
        catalog_with_recall,
        custom_model=WithWidth,
        custom_model_config={"width": 11},
        recall_cell=5,  # wraps the model in a memory
    )

    assert policy.model.trunk.num_outputs == 11


# --- memories -------------------------------------------------------------------------------------


def test_memory_is_built_around_its_trunk(catalog_with_recall):
    model = build_policy(catalog_with_recall, custom_model=Trunk, recall_cell=5).model

    assert type(model) is Recall
    assert type(model.trunk) is Trunk
    # The memory, as the outermost part, has the logits of two actions; the trunk has none.
    assert BUILT == [("trunk", None), ("memory", 2)]
    assert model.trunk.num_outputs == 8
    assert model.trunk.outputs is None


def test_memory_has_the_weights_of_its_trunk(catalog_with_recall):
    model = build_policy(catalog_with_recall, recall_cell=5).model
    layers = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert layers == {"trunk", "cell", "logits", "value"}


def test_explanation_names_memory_and_no_head(catalog_with_recall):
    explanation = build_policy(catalog_with_recall, recall_cell=5).explain().as_dict()

    memory = explanation["memory"]
    assert memory["chosen"] == "recall"
    assert memory["distribution"] == "recall"
    assert memory["config_keys"] == ["recall_cell", "recall_head"]
    assert explanation["head"]["chosen"] is None


def test_policy_with_memory_acts_on_its_state(catalog_with_recall):
    policy = build_policy(catalog_with_recall, recall_cell=5)
    obs = sample_rows(rows=2)

    first = policy.act(obs)
    second = policy.act(obs, first.state)

    assert first.state.memory[0].shape == (2, 5)
    assert not np.allclose(first.dist_inputs, second.dist_inputs)


def test_policy_with_memory_scores_steps_as_acting(catalog_with_recall):
    policy = build_policy(catalog_with_recall, recall_cell=5)
    obs = sample_rows(rows=2)
    state = policy.act(obs).state
    step = policy.act(obs, state)

    batch = {"obs": obs, "raw_action": step.raw_action, "state": state}
    evaluation = policy.evaluate(batch)

    np.testing.assert_allclose(evaluation.logp.detach(), step.logp, rtol=1e-5)


def test_policy_with_memory_trains_every_weight(catalog_with_recall):
    policy = build_policy(catalog_with_recall, recall_cell=5)
    obs = sample_rows(rows=2)
    state = policy.act(obs).state
    step = policy.act(obs, state)

    batch = {"obs": obs, "raw_action": step.raw_action, "state": state}
    evaluation = policy.evaluate(batch)
    loss = evaluation.logp.sum() + evaluation.value.sum()
    loss.backward()

    assert all(parameter.grad is not None for parameter in policy.model.parameters())


def test_memory_and_head_need_their_config_keys(catalog_with_recall):
    policy = build_policy(catalog_with_recall)

    assert type(policy.model) is FullyConnectedNetwork
    memory = policy.explain().as_dict()["memory"]
    assert memory["chosen"] is None
    reasons = {candidate["name"]: candidate["reason"] for candidate in memory["candidates"]}
    assert reasons["recall"] == "recall_cell is not set; to choose it: recall_cell=True"


class RecurrentTrunk(TorchRNN):
    """An LSTM of 6 cells that can be a trunk of width 3."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs or 3, model_config, name)


def test_memory_refuses_a_recurrent_trunk(catalog_with_recall):
    with pytest.raises(NotServedError, match="RecurrentTrunk is itself recurrent"):
        build_policy(catalog_with_recall, custom_model=RecurrentTrunk, recall_cell=5)


# --- heads ----------------------------------------------------------------------------------------


def test_head_accepts_a_recurrent_trunk(catalog_with_recall):
    policy = build_policy(catalog_with_recall, custom_model=RecurrentTrunk, recall_head=True)

    state = policy.act(sample_rows(rows=6)).state

    # The hidden state and the cell state of 6 cells, for each row.
    assert [part.shape for part in state.memory] == [(6, 6), (6, 6)]


def test_head_is_built_around_the_memory(catalog_with_recall):
    model = build_policy(
        catalog_with_recall, custom_model=Trunk, recall_cell=5, recall_head=True
    ).model

    assert type(model) is Head
    assert type(model.trunk) is Recall
    assert type(model.trunk.trunk) is Trunk
    assert BUILT == [("trunk", None), ("memory", None), ("head", 2)]
    assert model.layer.in_features == 5  # the width of the memory


def test_head_around_a_memory_passes_its_state_on(catalog_with_recall):
    policy = build_policy(catalog_with_recall, recall_cell=5, recall_head=True)

    step = policy.act(sample_rows(rows=6))

    assert step.dist_inputs.shape == (6, 2)
    assert step.state.memory[0].shape == (6, 5)
    assert step.value is None  # `Head` has no value_function


def test_head_without_memory_has_no_state(catalog_with_recall):
    policy = build_policy(catalog_with_recall, recall_head=True)

    assert type(policy.model) is Head
    assert type(policy.model.trunk) is FullyConnectedNetwork
    assert policy.act(sample_rows(rows=6)).state is None


# --- interfaces -----------------------------------------------------------------------------------


@pytest.fixture
def dueling_model_with_memory(catalog_with_recall):
    """The interface `DuelingQModel` over a memory of 5 cells around `Trunk`."""
    config = {"custom_model": Trunk, "recall_cell": 5, "fcnet_hiddens": [8]}
    return catalog_with_recall.model_v2(
        FOUR_FEATURES, TWO_ACTIONS, 2, config, "torch", "my_dueling_model", DuelingQModel
    )


def test_interface_is_built_around_the_memory(dueling_model_with_memory):
    # RLlib cannot build this model.
    model = dueling_model_with_memory
    assert type(model.inner) is Recall
    assert type(model.inner.trunk) is Trunk
    assert BUILT == [("trunk", None), ("memory", None)]
    assert model.num_outputs == 5
    assert model.A.in_features == 5


def test_interface_over_a_memory_has_its_state(dueling_model_with_memory):
    model = dueling_model_with_memory
    state = [torch.zeros(3, 5)]
    lengths = torch.ones(3, dtype=torch.int32)

    output, new_state = model({"obs": torch.zeros(3, 4)}, state, lengths)

    assert [part.shape for part in model.get_initial_state()] == [(5,)]
    assert new_state[0].shape == (3, 5)
    assert model.get_q_values(output).shape == (3, 2)
