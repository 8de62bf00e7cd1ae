"""Summaries of policies: the numbers in them, and how sizes, shapes and missing
values are written.
"""

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

OBS, TWO = spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)


class Plain(TorchModelV2):
    """A model that does not declare its weights."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.num_outputs = self.num_outputs or 3
        self.body = torch.nn.Linear(4, 3)
        self.last = torch.nn.Linear(3, self.num_outputs)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, input_dict, state, seq_lens):
        return self.last(self.body(input_dict["obs_flat"])) * self.scale, state


def summary_of(*layers, built=False):
    return Summary(("fcnet", "lstm"), "torch", tuple(layers), built)


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
def test_sizes_have_readable_units(weights, size):
    summary = summary_of(Layer("a", (2,), weights))
    assert summary.weights == weights
    assert f"weights: {weights:,} numbers, {size} as float32\n" in f"{summary!r}\n"


def test_summary_shows_outputs_or_arrays():
    layers = Layer("a", (2, 3), 1_000), Layer("b", None, 20), Layer("c", (), 0)
    lines = repr(summary_of(*layers)).splitlines()
    assert lines[0] == "lstm around fcnet"
    assert lines[1:3] == ["framework: torch", "weights: 1,020 numbers, 4.08 kB as float32"]
    rows = [line.split("  ") for line in lines[4:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells[1:] == [
        ["layer", "output", "weights"],
        ["a", "(B, 2, 3)", "1,000"],
        ["b", "-", "20"],
        ["c", "(B)", "0"],
    ]
    built = summary_of(Layer("a", None, 7, {"weight": (2, 3), "bias": ()}), built=True)
    assert [line.split() for line in repr(built).splitlines()[5:]] == [
        ["layer", "arrays", "weights"],
        ["a", "weight", "2x3,", "bias", "1", "7"],
    ]
    assert "<table>" in built._repr_html_()


def test_at_most_200_layers_are_shown():
    layers = [Layer(f"layer{i}", None, 1) for i in range(201)]
    assert "more" not in repr(summary_of(*layers[:200]))
    assert "layer199" in repr(summary_of(*layers))
    assert "layer200" not in repr(summary_of(*layers))
    assert "... 1 more" in repr(summary_of(*layers))


def test_summary_as_data_has_its_sum():
    data = summary_of(Layer("a", (2,), 5), Layer("b", None, 6, {"w": (2, 3)}), built=True).as_dict()
    layers = [
        {"name": "a", "shape": [2], "weights": 5, "arrays": {}},
        {"name": "b", "shape": None, "weights": 6, "arrays": {"w": [2, 3]}},
    ]
    assert data == {
        "parts": ["fcnet", "lstm"],
        "framework": "torch",
        "layers": layers,
        "built": True,
        "weights": 11,
    }


def stage(name, weights, whole=True):
    return SimpleNamespace(name=name, shape=(2,), weights=weights, whole=whole)


def test_only_stages_that_declare_all_their_weights_are_layers():
    def of(*stages):
        return summarize_layers(SimpleNamespace(layers=stages, model_parts=("a",), framework="tf"))

    assert of(stage("a", 3), stage("b", 0)) == Summary(
        ("a",), "tf", (Layer("a", (2,), 3), Layer("b", (2,), 0)), False
    )
    assert of() == Summary(("a",), "tf", (), False)
    for other in (stage("b", None), stage("b", 3, whole=False), stage("b", None, whole=False)):
        assert of(stage("a", 3), other) is None


def test_layers_of_a_policy_are_counted_by_hand():
    policy = rlcatalog.build(OBS, TWO, {"fcnet_hiddens": [3]}, "torch")
    summary = policy.summary()
    assert not summary.built
    assert [(layer.name, layer.weights) for layer in summary.layers] == [
        ("fcnet: hidden 1 (tanh)", 15),
        ("fcnet: value", 4),
        ("fcnet: logits (linear)", 8),
    ]
    sheet = repr(policy)
    assert sheet.startswith("Policy (torch)\n")
    assert "weights: 27 numbers in 6 arrays" in sheet
    assert sheet.endswith("config: fcnet_hiddens")
    rows = [line.split() for line in sheet.splitlines()]
    assert ["trunk", "fcnet", "rlcatalog-fcnet"] in [row[:3] for row in rows]
    assert "<table>" in policy._repr_html_()


def test_weights_of_a_model_are_grouped_by_their_layers():
    policy = rlcatalog.build(OBS, TWO, {"custom_model": Plain}, "torch")
    summary = policy.summary()
    assert summary.built
    groups = {
        layer.name: (layer.shape, layer.weights, dict(layer.arrays)) for layer in summary.layers
    }
    assert groups == {
        "body": (None, 15, {"weight": (3, 4), "bias": (3,)}),
        "last": (None, 8, {"weight": (2, 3), "bias": (2,)}),
        "scale": (None, 1, {"scale": ()}),
    }
    assert summary.weights == 24


def test_a_policy_says_that_its_config_is_the_default_and_which_shapes_are_unknown():
    policy = rlcatalog.build(OBS, TWO, framework="torch")
    assert repr(policy).endswith("config: all defaults")
    stages = policy.resolution.shapes
    rows = [
        line.strip().split("  ")[-1].strip()
        for line in repr(policy).partition("shapes:\n")[2].splitlines()
    ]
    expected = ["-" if one.shape is None else str(one.shape) for one in stages]
    assert rows[1 : 1 + len(stages)] == expected
    own = rlcatalog.build(
        OBS, TWO, {"custom_model": Plain, "fcnet_hiddens": [3], "use_lstm": True}, "torch"
    )
    assert repr(own).endswith("config: custom_model, fcnet_hiddens, use_lstm")
    rows = [
        line.strip().split("  ")[-1].strip()
        for line in repr(own).partition("shapes:\n")[2].splitlines()
    ]
    assert rows[1 : 1 + len(own.resolution.shapes)] == [
        "-" if one.shape is None else str(one.shape) for one in own.resolution.shapes
    ]


# --- the command ----------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(make_app(arguments), arguments, env={"COLUMNS": "100"})


def test_command_prints_text_or_json():
    small = ("summary", "CartPole-v1", "--model", "fcnet_hiddens=[3]")
    text = command(*small)
    assert text.exit_code == 0, text.output
    assert text.stdout.startswith("fcnet\n")
    assert "weights: 27 numbers, 108 bytes as float32" in text.stdout
    data = json.loads(command(*small, "--json").stdout)
    assert (data["env"], data["weights"], data["built"]) == ("CartPole-v1", 27, False)
    assert [layer["weights"] for layer in data["layers"]] == [15, 4, 8]


def test_command_builds_a_model_that_declares_nothing():
    rlcatalog.ModelCatalog.register_custom_model("plain", Plain)
    data = json.loads(
        command("summary", "CartPole-v1", "--model", "custom_model=plain", "--json").stdout
    )
    assert (data["weights"], data["built"]) == (24, True)
