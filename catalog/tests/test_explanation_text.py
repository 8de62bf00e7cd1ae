"""Explanations and policies as text and HTML, as a notebook and the command line show them."""

from __future__ import annotations

import html.parser
import re

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog import Match, ModelSpec, Rank, Stage
from rlcatalog_cli import main
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)
MASKED = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(2), "x": THREE_FEATURES})
PARTS = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-lstm",
    "rlcatalog-visionnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
    "rlcatalog-filters",
    "rlcatalog-multi-action",
)


@pytest.fixture(scope="module")
def read_only_catalog():
    """A catalog for tests that only read it."""
    return isolated_catalog(*PARTS)


def make_plugin(*, reason="fits", describe=None, version="1.0"):
    """Return a plugin of acme whose model fits everything, for this reason."""

    def match(request):
        return Match(Rank.SPECIFIC, reason)

    spec = ModelSpec("fine", {"torch": "m:C"}, "", match=match, describe=describe)
    return PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme", version=version)


# --- explanations as text -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explanation(read_only_catalog):
    """An explanation of a lookup with a filter, a memory, and a key that nothing reads."""
    config = {
        "use_lstm": True,
        "lstm_cell_size": 5,
        "conv_filters": "nature",
        "observation_filter": "MeanStdFilter",
    }
    return read_only_catalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch")


def test_explanation_text_is_short(explanation):
    assert str(explanation) == repr(explanation)
    assert len(repr(explanation)) < 3000


@pytest.mark.parametrize(
    "heading",
    [
        "preprocessor: none",
        "filter: MeanStdFilter",
        "model: fcnet",
        "memory: lstm",
        "action_dist: categorical",
    ],
)
def test_explanation_text_names_each_chosen_part(explanation, heading):
    # Two spaces stand between the columns of a line.
    first_columns = [line.split("  ")[0] for line in repr(explanation).splitlines()]

    assert heading in first_columns


def test_explanation_text_has_stages_and_plan(explanation):
    text = repr(explanation)

    for stage in explanation.as_dict()["shapes"]:
        assert stage["stage"] in text
    assert re.search(r"^  obs +\(3,\) +box, 0:3$", text, re.MULTILINE)


def test_explanation_text_names_parts_that_do_not_learn(read_only_catalog):
    config = {"fcnet_hiddens": [5], "freeze_parts": ["trunk", "value"]}

    frozen = read_only_catalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch")

    assert "parts that do not learn: trunk, value" in repr(frozen).splitlines()
    assert frozen.as_dict()["freeze_parts"] == ["trunk", "value"]
    no_parts = read_only_catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch")
    assert "freeze_parts" not in no_parts.as_dict()


def test_explanation_text_names_unread_keys(explanation):
    assert repr(explanation).splitlines()[-2] == "not read by any part: conv_filters"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(r"memory reads: use_lstm, lstm_cell_size, ", id="config-keys"),
        pytest.param(r"  not chosen: visionnet +takes images", id="other-candidates"),
    ],
)
def test_explanation_text_has_details_only_on_request(explanation, line):
    assert re.search(f"^{line}", explanation.text(all=True), re.MULTILINE)
    assert not re.search(f"^{line}", repr(explanation), re.MULTILINE)


def test_explanation_text_of_200_parts_is_cut(read_only_catalog):
    space = gym.spaces.Dict({f"part {i:03d}": THREE_FEATURES for i in range(200)})

    text = repr(read_only_catalog.explain(space, TWO_ACTIONS, {}, "torch"))

    assert len(text) < 6000
    assert "... 176 more" in text  # 24 lines are shown
    assert max(len(line) for line in text.splitlines()) <= 700


def test_explanation_text_has_no_control_characters():
    plugin = make_plugin(reason="\x1b[2Jgone\nrow")
    catalog = isolated_catalog(*PARTS, plugin, prefer=["acme"])

    text = repr(catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch"))

    assert "\x1b" not in text
    assert any("gone row" in line for line in text.splitlines())


def test_explanation_text_lists_keys_of_the_head():
    catalog = isolated_catalog(*PARTS, "rlcatalog-parametric")

    explanation = catalog.explain(MASKED, TWO_ACTIONS, {}, "torch")

    assert explanation.as_dict()["head"]["chosen"] == "parametric"
    assert re.search(r"^head reads: use_parametric, ", explanation.text(all=True), re.MULTILINE)


def test_explain_command_lists_keys_without_warnings(capsys, monkeypatch):
    catalog = isolated_catalog(*PARTS, "rlcatalog-parametric")
    monkeypatch.setattr("rlcatalog_cli.app.default_catalog", lambda: catalog)
    arguments = ["explain", "CartPole-v1", "--framework", "torch", "--all"]
    for setting in ("use_lstm=true", "use_parametric=false", "conv_filters=nature"):
        arguments += ["--model", setting]

    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert any(line.startswith("memory reads: use_lstm, lstm_cell_size, ") for line in lines)
    assert "not read by any part: conv_filters" in lines
    assert output.err == ""


# --- explanations as HTML -------------------------------------------------------------------------


class ParsedPage(html.parser.HTMLParser):
    """The tags and the texts of a page; it fails if a tag is not closed."""

    def __init__(self, page):
        super().__init__()
        self.open_tags = []
        self.tags = []
        self.texts = []
        self.feed(page)
        assert self.open_tags == []

    def handle_starttag(self, tag, attrs):
        self.open_tags.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


SCRIPT = "<script>alert('&')</script>"
EXPLANATION_TAGS = {
    "div", "p", "b", "ul", "li", "table", "caption", "tbody", "tr", "td", "details", "summary",
}  # fmt: skip


@pytest.fixture(scope="module")
def explanation_of_scripts():
    """An explanation of a plugin that wrote HTML into its reason, its stage and its version."""

    def describe(request):
        return [Stage(SCRIPT, (3,))]

    plugin = make_plugin(reason=SCRIPT, describe=describe, version="1<2")
    catalog = isolated_catalog(*PARTS, plugin, prefer=["acme"])
    return catalog.explain(THREE_FEATURES, TWO_ACTIONS, {"conv_filters": "nature"}, "torch")


def read_tables(explanation):
    """Return the page of an explanation, parsed, without the picture that may stand before it."""
    page = explanation._repr_html_()
    return ParsedPage(page[page.index("<div>") :])


def test_explanation_html_escapes_texts_of_plugins(explanation_of_scripts):
    page = read_tables(explanation_of_scripts)

    assert "<script" not in explanation_of_scripts._repr_html_()
    assert set(page.tags) == EXPLANATION_TAGS
    assert f"{SCRIPT} (SPECIFIC)" in page.texts
    assert "acme 1<2" in page.texts


def test_explanation_html_has_unread_keys_and_stages(explanation_of_scripts):
    page = read_tables(explanation_of_scripts)

    assert "not read by any part: conv_filters" in page.texts
    cells = {text.strip() for text in page.texts}
    for stage in explanation_of_scripts.as_dict()["shapes"]:
        assert stage["stage"] in cells


# --- policies -------------------------------------------------------------------------------------

#: Weights and biases of a net with three inputs, hidden layers of 5 and 4, two logits, one value.
NUMBER_OF_WEIGHTS = (3 * 5 + 5) + (5 * 4 + 4) + (4 * 2 + 2) + (4 + 1)


@pytest.fixture(params=["torch", "tf"])
def policy(read_only_catalog, request):
    module = {"torch": "torch", "tf": "tensorflow"}[request.param]
    pytest.importorskip(module, reason=f"{module} is not installed")
    return rlcatalog.build(
        THREE_FEATURES,
        TWO_ACTIONS,
        {"fcnet_hiddens": [5, 4]},
        request.param,
        catalog=read_only_catalog,
    )


def test_policy_text_names_parts_and_shapes(policy):
    text = repr(policy)

    assert text.startswith(f"Policy ({policy.framework})\n")
    assert "fcnet" in text
    assert "rlcatalog-fcnet" in text
    assert "fcnet: hidden 2 (tanh)" in text
    assert "(4,)" in text
    assert "config: fcnet_hiddens" in text
    assert len(text) < 1500


def test_policy_text_and_html_count_weights(policy):
    line = f"weights: {NUMBER_OF_WEIGHTS} numbers in 8 arrays"

    assert line in repr(policy)
    assert line in ParsedPage(policy._repr_html_()).texts
