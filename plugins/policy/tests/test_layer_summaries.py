"""Summaries of policies: the layers, their numbers of weights, and how these are printed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from typer.testing import CliRunner

import rlcatalog
from rlcatalog_cli.app import make_app
from rlcatalog_policy import Summary
from rlcatalog_policy.summary import Layer, summarize_layers
from rlcatalog_torch import TorchModelV2

FOUR_NUMBERS = spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)


class ModelWithoutDeclaration(TorchModelV2):
    """A model that does not declare its weights: 15 in `body`, 8 in `last` for 2 outputs, and 1."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.num_outputs = self.num_outputs or 3
        self.body = torch.nn.Linear(4, 3)
        self.last = torch.nn.Linear(3, self.num_outputs)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, input_dict, state, seq_lens):
        return self.last(self.body(input_dict["obs_flat"])) * self.scale, state


def make_summary(*layers, built=False):
    return Summary(("fcnet", "lstm"), "torch", tuple(layers), built)


def read_table(text, *, title):
    """Return the cells of the table below a title; two or more spaces separate them."""
    lines = text.partition(f"{title}:\n")[2].splitlines()
    rows = [line.split("  ") for line in lines]
    return [[cell.strip() for cell in row if cell.strip()] for row in rows]


# --- printing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "size"),
    [
        (0, "0 bytes"),
        (249, "996 bytes"),
        (250, "1 kB"),
        (2_500, "10 kB"),
        (249_000, "996 kB"),
        (250_000, "1 MB"),
        (1_234_567, "4.94 MB"),
        (250_000_000, "1 GB"),
        (2_500_000_000, "10 GB"),
    ],
)
def test_size_of_weights_has_a_readable_unit(weights, size):
    summary = make_summary(Layer("a", shape=(2,), weights=weights))

    assert summary.weights == weights
    assert f"weights: {weights:,} numbers, {size} as float32" in repr(summary).splitlines()


def test_summary_begins_with_parts_framework_and_weights():
    layers = [Layer("a", shape=(2, 3), weights=1_000), Layer("b", shape=None, weights=20)]

    lines = repr(make_summary(*layers)).splitlines()

    assert lines[:3] == [
        "lstm around fcnet",
        "framework: torch",
        "weights: 1,020 numbers, 4.08 kB as float32",
    ]


def test_summary_lists_outputs_of_layers():
    summary = make_summary(
        Layer("a", shape=(2, 3), weights=1_000),
        Layer("b", shape=None, weights=20),
        Layer("c", shape=(), weights=0),
    )

    # "B" is the number of rows in a batch; the output of "b" is not known.
    assert read_table(repr(summary), title="layers") == [
        ["layer", "output", "weights"],
        ["a", "(B, 2, 3)", "1,000"],
        ["b", "-", "20"],
        ["c", "(B)", "0"],
    ]


def test_summary_of_a_built_model_lists_arrays_of_layers():
    layer = Layer("a", shape=None, weights=7, arrays={"weight": (2, 3), "bias": ()})

    table = read_table(repr(make_summary(layer, built=True)), title="layers")

    assert table == [["layer", "arrays", "weights"], ["a", "weight 2x3, bias 1", "7"]]


def test_summary_is_a_table_in_notebooks():
    layer = Layer("a", shape=None, weights=7, arrays={"weight": (2, 3), "bias": ()})

    assert "<table>" in make_summary(layer, built=True)._repr_html_()


def test_summary_lists_200_layers():
    layers = [Layer(f"layer{i}", shape=None, weights=1) for i in range(200)]

    text = repr(make_summary(*layers))

    assert "layer199" in text
    assert "more" not in text


def test_summary_does_not_list_more_than_200_layers():
    layers = [Layer(f"layer{i}", shape=None, weights=1) for i in range(201)]

    text = repr(make_summary(*layers))

    assert "layer199" in text
    assert "layer200" not in text
    assert "... 1 more" in text


def test_summary_as_data_contains_the_sum_of_weights():
    summary = make_summary(
        Layer("a", shape=(2,), weights=5),
        Layer("b", shape=None, weights=6, arrays={"w": (2, 3)}),
        built=True,
    )

    assert summary.as_dict() == {
        "parts": ["fcnet", "lstm"],
        "framework": "torch",
        "layers": [
            {"name": "a", "shape": [2], "weights": 5, "arrays": {}},
            {"name": "b", "shape": None, "weights": 6, "arrays": {"w": [2, 3]}},
        ],
        "built": True,
        "weights": 11,
    }


# --- counting -------------------------------------------------------------------------------------


def make_stage(name, *, weights, whole=True):
    """Return a stage of a resolution; `whole` says that its weights are all of them."""
    return SimpleNamespace(name=name, shape=(2,), weights=weights, whole=whole)


def summarize_stages(*stages):
    return summarize_layers(SimpleNamespace(stages=stages, model_parts=("a",), framework="tf"))


def test_stages_that_declare_their_weights_are_layers():
    summary = summarize_stages(make_stage("a", weights=3), make_stage("b", weights=0))

    layers = (Layer("a", shape=(2,), weights=3), Layer("b", shape=(2,), weights=0))
    assert summary == Summary(("a",), "tf", layers, built=False)


def test_summary_of_no_stages_has_no_layers():
    assert summarize_stages() == Summary(("a",), "tf", (), built=False)


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(make_stage("b", weights=None), id="no-number"),
        pytest.param(make_stage("b", weights=3, whole=False), id="part-of-the-number"),
        pytest.param(make_stage("b", weights=None, whole=False), id="no-part"),
    ],
)
def test_layers_are_unknown_unless_stages_declare_all_weights(stage):
    assert summarize_stages(make_stage("a", weights=3), stage) is None


@pytest.fixture
def fcnet_policy():
    """A policy with 4 inputs, a hidden layer of 3, and 2 outputs."""
    return rlcatalog.build(FOUR_NUMBERS, TWO_ACTIONS, {"fcnet_hiddens": [3]}, "torch")


def test_summary_of_a_policy_counts_weights_without_building(fcnet_policy):
    summary = fcnet_policy.summary()

    assert not summary.built
    assert [(layer.name, layer.weights) for layer in summary.layers] == [
        ("fcnet: hidden 1 (tanh)", (4 + 1) * 3),
        ("fcnet: value", 3 + 1),
        ("fcnet: logits (linear)", (3 + 1) * 2),
    ]


def test_summary_of_an_undeclared_model_groups_its_arrays():
    # It consists of the layers body = Linear(4, 3), which has 4 * 3 + 3 weights, and
    # last = Linear(3, 2), which has 3 * 2 + 2 weights, and of a number, scale.
    config = {"custom_model": ModelWithoutDeclaration}
    policy = rlcatalog.build(FOUR_NUMBERS, TWO_ACTIONS, config, "torch")

    summary = policy.summary()

    layers = sorted(summary.layers, key=lambda layer: layer.name)
    assert layers == [
        Layer("body", shape=None, weights=15, arrays={"weight": (3, 4), "bias": (3,)}),
        Layer("last", shape=None, weights=8, arrays={"weight": (2, 3), "bias": (2,)}),
        Layer("scale", shape=None, weights=1, arrays={"scale": ()}),
    ]
    assert summary.weights == 15 + 8 + 1
    assert summary.built  # the model had to be built to count its weights


# --- the sheet of a policy ------------------------------------------------------------------------


def test_policy_prints_its_weights_and_config(fcnet_policy):
    text = repr(fcnet_policy)

    assert text.startswith("Policy (torch)\n")
    assert "weights: 27 numbers in 6 arrays" in text  # hidden layer, logits and value
    assert text.endswith("config: fcnet_hiddens")


def test_policy_prints_its_parts(fcnet_policy):
    rows = [line.split() for line in repr(fcnet_policy).splitlines()]

    assert ["trunk", "fcnet", "rlcatalog-fcnet"] in [row[:3] for row in rows]


def test_policy_is_a_table_in_notebooks(fcnet_policy):
    assert "<table>" in fcnet_policy._repr_html_()


def test_policy_prints_that_its_config_is_the_default():
    policy = rlcatalog.build(FOUR_NUMBERS, TWO_ACTIONS, framework="torch")

    assert repr(policy).endswith("config: all defaults")


CUSTOM_CONFIG = {
    "custom_model": ModelWithoutDeclaration,
    "fcnet_hiddens": [3],
    "use_lstm": True,
}


def test_policy_prints_the_keys_of_its_config():
    policy = rlcatalog.build(FOUR_NUMBERS, TWO_ACTIONS, CUSTOM_CONFIG, "torch")

    assert repr(policy).endswith("config: custom_model, fcnet_hiddens, use_lstm")


@pytest.mark.parametrize("config", [{}, CUSTOM_CONFIG], ids=["default", "custom-model"])
def test_policy_prints_shapes_with_a_dash_for_unknown_ones(config):
    policy = rlcatalog.build(FOUR_NUMBERS, TWO_ACTIONS, config, "torch")
    stages = policy.resolution.shapes

    _, *rows = read_table(repr(policy), title="shapes")

    expected = ["-" if stage.shape is None else str(stage.shape) for stage in stages]
    assert [row[-1] for row in rows[: len(stages)]] == expected


# --- the command ----------------------------------------------------------------------------------


def run_command(*arguments):
    return CliRunner().invoke(make_app(arguments), arguments, env={"COLUMNS": "100"})


def test_summary_command_prints_text():
    result = run_command("summary", "CartPole-v1", "--model", "fcnet_hiddens=[3]")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("fcnet\n")
    # Four inputs, a hidden layer of three, two logits and a value: 15 + 8 + 4.
    assert "weights: 27 numbers, 108 bytes as float32" in result.stdout


def test_summary_command_prints_json():
    result = run_command("summary", "CartPole-v1", "--model", "fcnet_hiddens=[3]", "--json")

    data = json.loads(result.stdout)
    assert data["env"] == "CartPole-v1"
    assert data["weights"] == 27
    assert data["built"] is False
    assert [layer["weights"] for layer in data["layers"]] == [15, 4, 8]


def test_summary_command_builds_a_model_without_declaration():
    rlcatalog.ModelCatalog.register_custom_model("undeclared", ModelWithoutDeclaration)

    result = run_command("summary", "CartPole-v1", "--model", "custom_model=undeclared", "--json")

    data = json.loads(result.stdout)
    assert data["weights"] == 24  # Linear(4, 3), Linear(3, 2) and a number
    assert data["built"] is True
