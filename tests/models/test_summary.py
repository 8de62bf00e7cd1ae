"""Summaries of models, and pictures of lookups."""

from __future__ import annotations

import itertools
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import warm
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
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

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
IMAGE = Box(0, 255, (84, 84, 3), np.uint8)
MASKED = Dict({"action_mask": Box(0, 1, (3,), np.int8), "obs": FOUR_FEATURES})
EMBEDDED = Dict({"avail_actions": Box(-1, 1, (3, 5), np.float32), "obs": FOUR_FEATURES})
IMAGE_AND_VECTOR = Dict({"eye": Box(0, 255, (42, 42, 3), np.uint8), "speed": FOUR_FEATURES})
PARTS = Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)])
SEPARATE = {"vf_share_layers": False, "fcnet_hiddens": [7, 5]}
LSTM = {"use_lstm": True, "lstm_cell_size": 6, "lstm_use_prev_action": True}
ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_num_transformer_units": 2}
LOOKUPS = {
    "fcnet, separate": (FOUR_FEATURES, Discrete(3), SEPARATE),
    "fcnet, free_log_std": (
        FOUR_FEATURES,
        Box(-1, 1, (2,), np.float32),
        {**SEPARATE, "free_log_std": True},
    ),
    "no_final_linear": (FOUR_FEATURES, Discrete(3), {**SEPARATE, "no_final_linear": True}),
    "visionnet, separate": (
        IMAGE,
        Discrete(3),
        {"vf_share_layers": False, "post_fcnet_hiddens": [9]},
    ),
    "visionnet, no_final_linear": (
        Box(0, 255, (42, 42, 3), np.uint8),
        Discrete(3),
        {"no_final_linear": True},
    ),
    "nature": (IMAGE, Discrete(3), {"conv_filters": "nature"}),
    "impala, separate": (IMAGE, Discrete(3), {"conv_filters": "impala", "vf_share_layers": False}),
    "complex_input, separate": (
        IMAGE_AND_VECTOR,
        Discrete(3),
        {**SEPARATE, "post_fcnet_hiddens": [6]},
    ),
    "lstm": (FOUR_FEATURES, MultiDiscrete([2, 3]), LSTM),
    "lstm, separate": (FOUR_FEATURES, MultiDiscrete([2, 3]), {**SEPARATE, **LSTM}),
    "lstm, separate without a memory": (
        FOUR_FEATURES,
        Discrete(3),
        {**SEPARATE, **LSTM, "vf_memory": "none"},
    ),
    "attention, separate": (
        FOUR_FEATURES,
        Discrete(3),
        {**SEPARATE, **ATTENTION, "attention_use_n_prev_actions": 2},
    ),
    "gtrxl": (
        FOUR_FEATURES,
        Discrete(3),
        {"custom_model": "gtrxl", "custom_model_config": {"num_heads": 3}},
    ),
    "parametric, separate": (MASKED, Discrete(3), SEPARATE),
    "parametric with embeddings, separate": (
        EMBEDDED,
        Discrete(3),
        {**SEPARATE, "use_parametric": True},
    ),
    "parametric around lstm, separate": (
        EMBEDDED,
        Discrete(3),
        {**SEPARATE, **LSTM, "use_parametric": True},
    ),
    "autoregressive, separate": (
        FOUR_FEATURES,
        PARTS,
        {**SEPARATE, "use_autoregressive": True, "autoregressive_hiddens": [4, 3]},
    ),
    "embeddings and a mask": (
        Dict({**EMBEDDED, "action_mask": MASKED["action_mask"]}),
        Discrete(3),
        {},
    ),
    "all": (
        IMAGE_AND_VECTOR,
        MultiDiscrete([3, 4]),
        {**LSTM, "use_autoregressive": True, "post_fcnet_hiddens": [6]},
    ),
    "autoregressive around lstm": (FOUR_FEATURES, PARTS, {**LSTM, "use_autoregressive": True}),
    "autoregressive around bare lstm": (
        FOUR_FEATURES,
        PARTS,
        {**SEPARATE, **LSTM, "lstm_cell_size": 5, "vf_memory": "none", "use_autoregressive": True},
    ),
}
#: Each part is in one of these; `make attack` draws all lookups.
_FIRST = (
    "complex_input, separate",
    "attention, separate",
    "parametric around lstm, separate",
    "all",
)
DRAWN = [
    lookup if lookup in _FIRST else pytest.param(lookup, marks=pytest.mark.slow)
    for lookup in LOOKUPS
]


# --- summaries ------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(("obs_space", "action_space", "config"), LOOKUPS.values(), ids=LOOKUPS)
def test_weights_are_counted_before_the_model_is_built(obs_space, action_space, config, framework):
    resolution = rlcatalog.default_catalog().resolve(obs_space, action_space, config, framework)

    summary = summarize_layers(resolution)

    assert not summary.built
    model = rlcatalog.build(obs_space, action_space, config, framework).model
    assert summary.weights == sum(array.size for array in model.get_weights().values())


def test_policy_of_default_parts_has_the_same_summary():
    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3))

    summary = policy.summary()

    assert summary == summarize_layers(policy.resolution)
    assert f"{summary.weights:,} numbers" in repr(summary)


class TorchNet(TorchModelV2):
    """A model of two layers, which does not say its weights before it is built."""

    def __init__(self, *arguments):
        import torch

        super().__init__(*arguments)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        self.num_outputs = self.num_outputs or 8
        self.last = torch.nn.Linear(8, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.last(self.body(input_dict["obs_flat"])), state


class TFNet(TFModelV2):
    """A model of two layers in TensorFlow."""

    def __init__(self, *arguments):
        import tensorflow as tf

        super().__init__(*arguments)
        self.num_outputs = self.num_outputs or 8
        self.body = tf.keras.layers.Dense(8, "tanh")
        self.last = tf.keras.layers.Dense(self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.last(self.body(input_dict["obs_flat"])), state


@pytest.fixture(params=[TorchNet, TFNet])
def policy_of_custom_model(request):
    """A policy with an LSTM around a custom model."""
    config = {"custom_model": request.param, **LSTM}
    return rlcatalog.build(FOUR_FEATURES, Discrete(3), config)


def test_custom_model_has_no_summary_before_it_is_built(policy_of_custom_model):
    assert summarize_layers(policy_of_custom_model.resolution) is None


def test_summary_lists_all_arrays_of_a_custom_model(policy_of_custom_model):
    weights = policy_of_custom_model.model.get_weights()

    summary = policy_of_custom_model.summary()

    assert summary.built
    assert summary.weights == sum(array.size for array in weights.values())
    shapes = [tuple(shape) for layer in summary.layers for shape in layer.arrays.values()]
    assert sorted(shapes) == sorted(array.shape for array in weights.values())


def test_summary_names_the_custom_model(policy_of_custom_model):
    name = type(policy_of_custom_model.model.trunk).__name__

    summary = policy_of_custom_model.summary()

    assert summary.parts == (name, "lstm")
    assert name in summary._repr_html_()


def run_command(*arguments):
    return CliRunner().invoke(make_app(arguments), arguments, env={"COLUMNS": "100"})


def test_summary_imports_no_framework(tmp_path):
    code = """
import sys
from rlcatalog_cli import main

main(["summary", "CartPole-v1", "--json"])
assert not {"torch", "tensorflow"} & set(sys.modules)
"""
    # The process that runs the code has not imported them before.
    run = warm.run(["-c", code], tmp_path, frameworks=False)

    assert run.returncode == 0, run.stderr


def test_summary_command_writes_layers_as_json():
    summary = json.loads(run_command("summary", "CartPole-v1", "--json").stdout)

    # CartPole has 4 numbers and 2 actions: two hidden layers, 2 logits and a value.
    hidden_1 = (4 + 1) * 256
    hidden_2 = (256 + 1) * 256
    logits_and_value = (256 + 1) * 3
    assert summary["weights"] == hidden_1 + hidden_2 + logits_and_value
    assert summary["layers"][0] == {
        "name": "fcnet: hidden 1 (tanh)",
        "shape": [256],
        "weights": hidden_1,
        "arrays": {},
    }


@pytest.mark.parametrize(
    "text", ["lstm around fcnet", "(B, 256)", "525,312", "593,155 numbers, 2.37 MB as float32"]
)
def test_summary_command_prints_layers_and_weights(text):
    assert text in run_command("summary", "CartPole-v1", "--model", "use_lstm=true").stdout


# --- pictures -------------------------------------------------------------------------------------


class Text(NamedTuple):
    """A text in a picture, with its position in pixels."""

    text: str
    left: float
    right: float
    y: float
    fill: str


class Rectangle(NamedTuple):
    """A box in a picture, with its position in pixels."""

    left: float
    top: float
    right: float
    bottom: float
    fill: str

    def contains(self, text):
        return self.left <= text.left <= self.right and self.top <= text.y <= self.bottom


def find_elements(svg, tag):
    return ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}")


def read_texts(svg):
    texts = []
    for node in find_elements(svg, "text"):
        size = float(node.get("font-size"))
        # DejaVu Sans is one of the widest fonts.
        font = FontProperties(family="DejaVu Sans", weight=node.get("font-weight"), size=size)
        width, _, _ = text_to_path.get_text_width_height_descent(node.text, font, ismath=False)
        left = float(node.get("x"))
        if node.get("text-anchor") == "end":
            left -= width
        texts.append(Text(node.text, left, left + width, float(node.get("y")), node.get("fill")))
    return texts


def read_rectangles(svg):
    """Return the rectangles of a picture: first the background, then boxes, then the legend."""
    rectangles = []
    for node in find_elements(svg, "rect"):
        x, y, width, height = [float(node.get(name)) for name in ("x", "y", "width", "height")]
        rectangles.append(Rectangle(x, y, x + width, y + height, node.get("fill")))
    return rectangles


@pytest.mark.parametrize("shows_all", [False, True], ids=["chosen parts", "all parts"])
@pytest.mark.parametrize("lookup", DRAWN)
def test_picture_shows_each_part_without_overlaps(lookup, shows_all):
    obs_space, action_space, config = LOOKUPS[lookup]
    explanation = rlcatalog.explain(obs_space, action_space, config)

    svg = explanation.svg(all=shows_all)
    texts = read_texts(svg)

    check_parts_are_shown(texts, explanation.as_dict())
    check_texts_fit_their_boxes(texts, read_rectangles(svg))
    check_texts_do_not_overlap(texts)


def check_parts_are_shown(texts, explanation):
    shown = " ".join(text.text for text in texts)
    for slot in ("preprocessor", "filter", "model", "memory", "head", "action_dist"):
        assert (explanation[slot]["chosen"] or "") in shown


def check_texts_fit_their_boxes(texts, rectangles):
    background, *boxes = rectangles
    for text in texts:
        ends = [box.right for box in boxes if box.contains(text)]
        assert text.right <= min(ends or [background.right]), text
        assert text.y < background.bottom


def check_texts_do_not_overlap(texts):
    lines = defaultdict(list)
    for text in texts:
        lines[text.y].append(text)
    for line in lines.values():
        line.sort(key=lambda text: text.left)
        for text, following in itertools.pairwise(line):
            assert text.right <= following.left, f"{text.text!r} runs into {following.text!r}"


@pytest.fixture
def picture_of_vector():
    """The whole picture for a vector and discrete actions: three packages have a part in it."""
    return rlcatalog.explain(FOUR_FEATURES, Discrete(3)).svg(all=True)


def test_picture_shows_candidates_not_chosen_in_grey(picture_of_vector):
    fills = {text.text: text.fill for text in read_texts(picture_of_vector)}
    grey = fills["not chosen"]

    reason = "visionnet: takes images, Boxes of rank 3"
    assert [fill for text, fill in fills.items() if text.startswith(reason)] == [grey]
    assert fills["model: fcnet"] != grey


def test_picture_has_a_colour_for_each_package(picture_of_vector):
    boxes = read_rectangles(picture_of_vector)[1:]  # without the background
    env, preprocessor, no_filter, model, no_memory, no_head, dist, actions, *legend = boxes

    colours = [rectangle.fill for rectangle in legend]
    assert len(set(colours)) == 3
    assert [preprocessor.fill, model.fill, dist.fill] == colours
    # The environment and empty slots belong to no package.
    assert {box.fill for box in (env, no_filter, no_memory, no_head, actions)} == {"#ffffff"}


def test_picture_leaves_out_what_was_not_chosen():
    svg = rlcatalog.explain(FOUR_FEATURES, Discrete(3)).svg()
    titles = [text.text for text in read_texts(svg) if text.fill == "#111827"]  # and shapes

    slots = [title.partition(":")[0] for title in titles if not title.startswith("(")]
    assert slots == ["observation", "preprocessor", "model", "action_dist", "action"]
    assert "visionnet" not in svg
    assert "fcnet_hiddens" not in svg  # a key that a part reads
    background, *_ = read_rectangles(svg)
    assert background.right <= 400  # a phone shows it in full size


MASKED_IMAGE = Dict(
    {
        "action_mask": MultiBinary(3),
        "camera": Box(0, 255, (40, 40, 3), np.uint8),
        "speed": FOUR_FEATURES,
    }
)
HYBRID_ACTION = Dict({"drive": Box(-1, 1, (2,), np.float32), "tool": Discrete(3)})


def find_rectangles_of(svg, names):
    """Return the rectangle around each of the texts that are given."""
    texts = {text.text: text for text in read_texts(svg)}
    _, *boxes = read_rectangles(svg)
    return [next(box for box in boxes if box.contains(texts[name])) for name in names]


def test_picture_branches_into_leaves_and_parts_of_an_action():
    svg = rlcatalog.explain(MASKED_IMAGE, HYBRID_ACTION, framework="torch").svg()

    for names in (["camera", "speed", "action mask"], ["drive", "tool"]):
        branches = find_rectangles_of(svg, names)
        assert len({branch.top for branch in branches}) == 1  # beside each other
        for branch, following in itertools.pairwise(branches):
            assert branch.right < following.left
    observation, preprocessor, dist, action = find_rectangles_of(
        svg, ["observation", "preprocessor: dict", "action_dist: multi_action", "action"]
    )
    [camera, drive] = find_rectangles_of(svg, ["camera", "drive"])
    assert observation.bottom < camera.top < camera.bottom < preprocessor.top
    assert dist.bottom < drive.top < drive.bottom < action.top


def test_line_of_the_mask_leads_to_the_distribution():
    svg = rlcatalog.explain(MASKED_IMAGE, HYBRID_ACTION, framework="torch").svg()
    [mask, dist] = find_rectangles_of(svg, ["action mask", "action_dist: multi_action"])

    dashed = [node.get("d") for node in find_elements(svg, "path") if node.get("stroke-dasharray")]

    [path] = [d for d in dashed if d]
    start, end = re.fullmatch(r"M[\d.]+,([\d.]+)H[\d.]+V([\d.]+)H[\d.]+", path).groups()
    assert mask.top < float(start) < mask.bottom
    assert dist.top < float(end) < dist.bottom


def test_many_leaves_are_lines_of_the_preprocessor():
    leaves = {f"leaf_{number}": FOUR_FEATURES for number in range(5)}
    svg = rlcatalog.explain(Dict(leaves), Discrete(3), framework="torch").svg()

    boxes = find_rectangles_of(svg, ["preprocessor: dict", "obs['leaf_4']: box, 16:20"])

    assert boxes[0] == boxes[1]


def test_picture_leads_past_a_critic_of_its_own():
    config = {"critic": {"fcnet_hiddens": [8]}}
    svg = rlcatalog.explain(FOUR_FEATURES, Discrete(3), config, "torch").svg()
    [critic, model] = find_rectangles_of(svg, ["critic: fcnet", "model: fcnet"])

    paths = [node.get("d") for node in find_elements(svg, "path")]

    # The policy's line passes on the left, and one to the critic ends at its right side.
    assert critic.left > model.left
    [past_critic] = [path for path in paths if "v" in path]
    assert model.left < float(re.search(r"H([\d.]+)V", past_critic)[1]) < critic.left
    [to_critic] = [path for path in paths if path.count("H") == 2 and "v" not in path]
    assert critic.top < float(re.search(r"V([\d.]+)", to_critic)[1]) < critic.bottom


def test_picture_names_the_package_of_each_colour(picture_of_vector):
    names = [text.text.split()[0] for text in read_texts(picture_of_vector)]  # without versions

    packages = [name for name in names if name.startswith("rlcatalog-")]

    assert packages == ["rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical"]


def test_picture_escapes_text_of_plugins():
    # Markup, characters that XML forbids, a lone surrogate, and more than a line holds.
    reason = "<script>alert(1)</script> & \x00 \ud800 \n" + "x" * 500
    spec = ModelSpec(
        "my_model",
        {"torch": "my_module:MyModel"},
        "a model",
        match=lambda request: Match(Rank.SPECIFIC, reason),
    )
    plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme")
    packages = ["rlcatalog-fcnet", "rlcatalog-preprocessors", "rlcatalog-categorical"]
    catalog = isolated_catalog(*packages, plugin, prefer=["acme"])

    svg = catalog.explain(FOUR_FEATURES, Discrete(3), {}, "torch").svg(all=True)

    svg.encode("utf-8")  # fails for a lone surrogate
    texts = [text.text for text in read_texts(svg)]
    assert any(text.startswith("<script>alert(1)</script> &") for text in texts)


def test_command_and_notebook_draw_the_picture(tmp_path):
    path = tmp_path / "cartpole.svg"
    explanation = rlcatalog.explain(env=gym.make("CartPole-v1"))

    result = run_command("explain", "CartPole-v1", "--svg", str(path))

    assert result.exit_code == 0, result.output
    assert path.read_text(encoding="utf-8") == explanation.svg()
    result = run_command("explain", "CartPole-v1", "--all", "--svg", str(path))
    assert result.exit_code == 0, result.output
    assert path.read_text(encoding="utf-8") == explanation.svg(all=True)
    assert explanation._repr_html_().startswith(explanation.svg())


def test_picture_without_drawsvg_error_names_extra(monkeypatch):
    explanation = rlcatalog.explain(env=gym.make("CartPole-v1"))
    # The import of drawsvg fails, and the module that imports it is loaded again.
    monkeypatch.setitem(sys.modules, "drawsvg", None)
    monkeypatch.delitem(sys.modules, "rlcatalog_cli.picture", raising=False)

    assert "<svg" not in explanation._repr_html_()
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("rlcatalog-cli[pictures]"))):
        explanation.svg()
