"""Summaries of models and pictures of lookups: held to what is built, and to what is drawn."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import gymnasium as gym
import numpy as np
import pytest
import warm
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from typer.testing import CliRunner

import rlcatalog
from rlcatalog import Match, ModelSpec, Rank
from rlcatalog.errors import MissingExtraError
from rlcatalog.plugins import install_hint
from rlcatalog_cli.app import make_app
from rlcatalog_policy.summary import summarize_layers
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

# One config serves parts of every kind here.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

VECTOR, IMAGE = Box(-1, 1, (4,), np.float32), Box(0, 255, (84, 84, 3), np.uint8)
MASKED = Dict({"action_mask": Box(0, 1, (3,), np.int8), "obs": VECTOR})
EMBEDDED = Dict({"avail_actions": Box(-1, 1, (3, 5), np.float32), "obs": VECTOR})
BOTH = Dict({"eye": Box(0, 255, (42, 42, 3), np.uint8), "speed": VECTOR})
PARTS = Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)])
APART = {"vf_share_layers": False, "fcnet_hiddens": [7, 5]}
LSTM = {"use_lstm": True, "lstm_cell_size": 6, "lstm_use_prev_action": True}
ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_num_transformer_units": 2}
LOOKUPS = {
    "fcnet, apart": (VECTOR, Discrete(3), APART),
    "fcnet, free_log_std": (VECTOR, Box(-1, 1, (2,), np.float32), {**APART, "free_log_std": True}),
    "no_final_linear": (VECTOR, Discrete(3), {**APART, "no_final_linear": True}),
    "visionnet, apart": (IMAGE, Discrete(3), {"vf_share_layers": False, "post_fcnet_hiddens": [9]}),
    "visionnet, no_final_linear": (
        Box(0, 255, (42, 42, 3), np.uint8),
        Discrete(3),
        {"no_final_linear": True},
    ),
    "nature": (IMAGE, Discrete(3), {"conv_filters": "nature"}),
    "impala, apart": (IMAGE, Discrete(3), {"conv_filters": "impala", "vf_share_layers": False}),
    "complex_input, apart": (BOTH, Discrete(3), {**APART, "post_fcnet_hiddens": [6]}),
    "lstm": (VECTOR, MultiDiscrete([2, 3]), LSTM),
    "lstm, apart": (VECTOR, MultiDiscrete([2, 3]), {**APART, **LSTM}),
    "lstm, apart without a memory": (VECTOR, Discrete(3), {**APART, **LSTM, "vf_memory": "none"}),
    "attention, apart": (
        VECTOR,
        Discrete(3),
        {**APART, **ATTENTION, "attention_use_n_prev_actions": 2},
    ),
    "gtrxl": (
        VECTOR,
        Discrete(3),
        {"custom_model": "gtrxl", "custom_model_config": {"num_heads": 3}},
    ),
    "parametric, apart": (MASKED, Discrete(3), APART),
    "parametric with embeddings, apart": (EMBEDDED, Discrete(3), {**APART, "use_parametric": True}),
    "parametric around lstm, apart": (
        EMBEDDED,
        Discrete(3),
        {**APART, **LSTM, "use_parametric": True},
    ),
    "autoregressive, apart": (
        VECTOR,
        PARTS,
        {**APART, "use_autoregressive": True, "autoregressive_hiddens": [4, 3]},
    ),
    "embeddings and a mask": (
        Dict({**EMBEDDED, "action_mask": MASKED["action_mask"]}),
        Discrete(3),
        {},
    ),
    "all": (
        BOTH,
        MultiDiscrete([3, 4]),
        {**LSTM, "use_autoregressive": True, "post_fcnet_hiddens": [6]},
    ),
    "autoregressive around lstm": (VECTOR, PARTS, {**LSTM, "use_autoregressive": True}),
    "autoregressive around bare lstm": (
        VECTOR,
        PARTS,
        {**APART, **LSTM, "lstm_cell_size": 5, "vf_memory": "none", "use_autoregressive": True},
    ),
}
#: Each part is in one of the first; `make attack` draws all of them.
_FIRST = ("complex_input, apart", "attention, apart", "parametric around lstm, apart", "all")
DRAWN = [
    lookup if lookup in _FIRST else pytest.param(lookup, marks=pytest.mark.attack)
    for lookup in LOOKUPS
]


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("lookup", LOOKUPS)
def test_weights_are_counted_before_anything_is_built(lookup, framework):
    *spaces, config = LOOKUPS[lookup]
    found = summarize_layers(rlcatalog.default_catalog().resolve(*spaces, config, framework))
    policy = rlcatalog.build(*spaces, config, framework)
    assert found is not None
    assert not found.built
    assert found.weights == sum(array.size for array in policy.model.get_weights().values())
    assert policy.summary() == found
    assert f"{found.weights:,} numbers" in repr(found)


class Torch(TorchModelV2):
    def __init__(self, *arguments):
        import torch

        super().__init__(*arguments)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        self.num_outputs = self.num_outputs or 8
        self.last = torch.nn.Linear(8, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.last(self.body(input_dict["obs_flat"])), state


class TF(TFModelV2):
    def __init__(self, *arguments):
        import tensorflow as tf

        super().__init__(*arguments)
        self.num_outputs = self.num_outputs or 8
        self.body, self.last = (
            tf.keras.layers.Dense(8, "tanh"),
            tf.keras.layers.Dense(self.num_outputs),
        )

    def forward(self, input_dict, state, seq_lens):
        return self.last(self.body(input_dict["obs_flat"])), state


@pytest.mark.parametrize("model", [Torch, TF])
def test_the_weights_of_a_class_that_does_not_announce_them_are_counted_once_it_is_built(model):
    policy = rlcatalog.build(VECTOR, Discrete(3), {"custom_model": model, **LSTM})
    assert summarize_layers(policy.resolution) is None
    found, weights = policy.summary(), policy.model.get_weights()
    assert found.built
    assert found.parts == (model.__name__, "lstm")
    # By hand: 4x8 + 8, 8x8 + 8, gates 4·6·(8 + 3 + 6 + 1), logits 6x3 + 3.
    assert found.weights == 40 + 72 + 432 + 21 + 7 == sum(array.size for array in weights.values())
    assert sum(len(layer.arrays) for layer in found.layers) == len(weights)
    assert {tuple(shape) for layer in found.layers for shape in layer.arrays.values()} == {
        array.shape for array in weights.values()
    }
    assert model.__name__ in found._repr_html_()


def test_a_summary_imports_no_framework(tmp_path):
    code = (
        "import sys; from rlcatalog_cli import main; main(['summary', 'CartPole-v1', '--json']);"
        " assert not {'torch', 'tensorflow'} & set(sys.modules)"
    )
    run = warm.run(["-c", code], tmp_path, frameworks=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["weights"] == 5 * 256 + 257 * 256 + 257 * 3
    assert found["layers"][0] == {
        "name": "fcnet: hidden 1 (tanh)",
        "shape": [256],
        "weights": 1280,
        "arrays": {},
    }


def command(*arguments):
    return CliRunner().invoke(make_app(arguments), arguments, env={"COLUMNS": "100"})


def test_the_command_prints_layers_and_their_weights():
    said = command("summary", "CartPole-v1", "--model", "use_lstm=true").stdout
    assert "lstm around fcnet" in said
    assert [
        word
        for word in ("(B, 256)", "525,312", "593,155 numbers, 2.37 MB as float32")
        if word not in said
    ] == []


# --- pictures -------------------------------------------------------------------------------------


def texts(svg):
    """Return each text of a picture: what it says, its left and right end in pixels, its line, and
    its colour.
    """
    found = []
    for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        size, x = float(node.get("font-size")), float(node.get("x"))
        # One of the widest.
        font = FontProperties(family="DejaVu Sans", weight=node.get("font-weight"), size=size)
        width, _, _ = text_to_path.get_text_width_height_descent(node.text, font, ismath=False)
        left = x - width if node.get("text-anchor") == "end" else x
        found.append((node.text, left, left + width, float(node.get("y")), node.get("fill")))
    return found


def boxes(svg):
    """Return the rectangles of a picture: left, top, right, bottom, fill."""
    for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect"):
        x, y, width, height = (float(node.get(name)) for name in ("x", "y", "width", "height"))
        yield x, y, x + width, y + height, node.get("fill")


@pytest.mark.parametrize("lookup", DRAWN)
def test_a_picture_shows_each_part_and_nothing_overlaps(lookup):
    *spaces, config = LOOKUPS[lookup]
    explanation = rlcatalog.explain(*spaces, config)
    found, svg = explanation.as_dict(), explanation.svg()
    said = texts(svg)
    shown = " ".join(text for text, *_ in said)
    for slot in ("preprocessor", "filter", "model", "memory", "head", "action_dist"):
        assert (found[slot]["chosen"] or "") in shown
    assert "fcnet: " in shown or found["model"]["chosen"] == "fcnet"  # who lost, and why
    (_, _, right, bottom, _), *parts = boxes(svg)
    for text, start, end, y, _ in said:
        holding = [box for box in parts if box[0] <= start <= box[2] and box[1] <= y <= box[3]]
        assert end <= min([box[2] for box in holding] or [right]), text
        assert y < bottom
    lines = {}
    for text, start, end, y, _ in said:
        lines.setdefault(y, []).append((start, end, text))
    for line in lines.values():
        for (_, end, text), (start, _, other) in zip(sorted(line), sorted(line)[1:], strict=False):
            assert end <= start, f"{text!r} runs into {other!r}"


def test_a_package_has_one_colour_and_what_was_not_chosen_is_grey():
    said, parts = (
        made(rlcatalog.explain(VECTOR, Discrete(3)).svg())
        for made in (texts, lambda svg: [*boxes(svg)])
    )
    colour = {text: fill for text, *_, fill in said}
    (other,) = (
        text for text in colour if text.startswith("visionnet: takes images, Boxes of rank 3")
    )
    assert colour[other] == colour["not chosen"]
    assert colour["model: fcnet"] != colour["not chosen"]
    legend = {text: y for text, _, _, y, _ in said if text.startswith("rlcatalog-")}
    assert len(legend) == 3
    fills = [fill for *_, fill in parts[-3:]]
    assert len(set(fills)) == 3
    # Beside them, what is the environment's, and empty slots: filter, memory, head.
    preprocessor, model, dist = fills
    white = "#ffffff"
    drawn = [fill for *_, fill in parts[1:-3]]
    assert drawn == [white, preprocessor, white, model, white, white, dist, white]


def test_what_a_plugin_wrote_is_drawn_as_text():
    why = "<script>alert(1)</script> & \x00 \ud800 \n" + "x" * 500
    spec = ModelSpec(
        "rude", {"torch": "rude:Model"}, "", match=lambda request: Match(Rank.SPECIFIC, why)
    )
    plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme")
    parts = "rlcatalog-fcnet", "rlcatalog-preprocessors", "rlcatalog-categorical"
    svg = (
        isolated_catalog(*parts, plugin, prefer=["acme"])
        .explain(VECTOR, Discrete(3), {}, "torch")
        .svg()
    )
    svg.encode("utf-8")
    assert any(text.startswith("<script>alert(1)</script> &") for text, *_ in texts(svg))


def test_a_command_and_a_notebook_draw_it(tmp_path, monkeypatch):
    path = tmp_path / "cartpole.svg"
    ended = command("explain", "CartPole-v1", "--svg", str(path))
    assert ended.exit_code == 0, ended.output
    env = gym.make("CartPole-v1")
    explanation = rlcatalog.explain(env=env)
    assert path.read_text(encoding="utf-8") == explanation.svg()
    assert explanation._repr_html_().startswith(explanation.svg())
    monkeypatch.setitem(sys.modules, "drawsvg", None)
    monkeypatch.delitem(sys.modules, "rlcatalog_cli.picture")
    assert "<svg" not in explanation._repr_html_()
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("rlcatalog-cli[pictures]"))):
        explanation.svg()
