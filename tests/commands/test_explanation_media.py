"""An explanation as text, HTML, picture and data: each shows the same facts."""

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree as ElementTree

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

import rlcatalog
from rlcatalog.choice.explanation import explanation_html, explanation_sheet
from rlcatalog.choice.sheet import Sheet
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog_cli.app import main
from rlcatalog_cli.picture import pipeline_svg

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
MASKED = Dict(
    {
        "action_mask": MultiBinary(3),
        "eye": Box(0, 255, (42, 42, 3), np.uint8),
        "speed": FOUR_FEATURES,
    }
)


# --- the same facts -------------------------------------------------------------------------------


def explain_mask_and_filter():
    config = {
        "use_lstm": True,
        "observation_filter": "MeanStdFilter",
        "attention_dim": 8,
        "vf_share_layers": False,
    }
    return rlcatalog.explain(MASKED, Discrete(3), config, "torch").as_dict()


def explain_parts_of_an_action():
    obs = Dict({"deep": Dict({"action_mask": MultiBinary(2), "x": FOUR_FEATURES})})
    action = Tuple([Discrete(2), FOUR_FEATURES])
    return rlcatalog.explain(obs, action, {"use_autoregressive": True}, "tf").as_dict()


def explain_environment():
    return rlcatalog.explain(env=gym.make("CartPole-v1"), config={"use_attention": True}).as_dict()


def explain_wrappers_and_frozen_policy():
    explanation = rlcatalog.explain(env=gym.make("CartPole-v1")).as_dict()
    explanation["frozen"] = "acts from a recorded graph"
    for applied in (True, True, False):
        wrapper = {"name": "acme", "provider": "acme 1", "applied": applied, "reason": "because"}
        explanation["env_wrappers"].append(wrapper)
    return explanation


EXPLANATIONS = [
    explain_mask_and_filter,
    explain_parts_of_an_action,
    explain_environment,
    explain_wrappers_and_frozen_policy,
]


class PageTexts(html.parser.HTMLParser):
    """The texts of an HTML page."""

    def __init__(self, page):
        super().__init__()
        self.texts = []
        self.feed(page)

    def handle_data(self, data):
        self.texts.append(data)


def show_as_text(explanation):
    return explanation_sheet(explanation, all=True).text()


def show_as_html(explanation):
    return " ".join(PageTexts(explanation_html(explanation)).texts)


def show_as_picture(explanation):
    nodes = ElementTree.fromstring(pipeline_svg(explanation, all=True)).iter()
    return " ".join(node.text for node in nodes if node.text)


MEDIA = [show_as_text, show_as_html, show_as_picture]
#: Titles by which a medium finds what belongs to a part, so they cannot be marked.
UNMARKED_STAGES = (
    "observation",
    "action",
    "preprocessor: none",
    "preprocessor: dict",
    "filter: MeanStdFilter",
)


class Marker:
    """Gives each fact of an explanation a number that occurs nowhere else.

    Attributes:
        numbers: The numbers given so far.
    """

    def __init__(self):
        self.numbers = []

    def mark(self, value, key=""):
        """Return data with a number in each text and in place of each number."""
        if isinstance(value, dict):
            return {name: self.mark(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.mark(item, key) for item in value]
        is_title = key == "chosen" or (key == "stage" and value in UNMARKED_STAGES)
        if value is None or isinstance(value, bool) or is_title:
            return value
        number = 1001 + len(self.numbers)
        self.numbers.append(number)
        if isinstance(value, int):
            return number
        return f"{value} t{number}"

    def unmark_chosen_candidates(self, explanation):
        """Give the first candidate of each choice, which is the chosen part, its facts again."""
        choices = [part for part in explanation.values() if isinstance(part, dict)]
        for choice in [*choices, *explanation["action_parts"]]:
            if choice["chosen"] is None:
                continue
            candidate = choice["candidates"][0]
            for key in ("name", "distribution", "version", "reason"):
                self.numbers.remove(int(candidate[key].rpartition(" t")[2]))
                candidate[key] = choice["chosen" if key == "name" else key]


@pytest.mark.parametrize("show", MEDIA)
@pytest.mark.parametrize("explain", EXPLANATIONS)
def test_medium_shows_every_fact_of_the_data(explain, show):
    marker = Marker()
    explanation = marker.mark(explain())
    marker.unmark_chosen_candidates(explanation)
    assert len(marker.numbers) > 100

    text = re.sub(r"(?<=\d),(?=\d)", "", show(explanation))  # the number of weights has commas
    shown = set(map(int, re.findall(r"\d{4,}", text)))

    assert set(marker.numbers) - shown == set()


@pytest.mark.parametrize("show", MEDIA)
def test_medium_shows_wrapper_with_an_empty_reason(show):
    explanation = explain_wrappers_and_frozen_policy()
    for wrapper in explanation["env_wrappers"]:
        wrapper["reason"] = " "
    assert show(explanation).count("env_wrapper: acme") >= 2  # of those that apply


# --- the short text -------------------------------------------------------------------------------


def lines_of_text(explanation, *, all_lines):
    """Return the lines of a text without the spaces that align its columns."""
    lines = explanation_sheet(explanation, all=all_lines).text().splitlines()
    return [re.sub(" +", " ", line) for line in lines]


@pytest.mark.parametrize("explain", EXPLANATIONS)
def test_short_text_leaves_out_other_parts_and_read_keys(explain):
    *short, last_line = lines_of_text(explain(), all_lines=False)
    whole = lines_of_text(explain(), all_lines=True)

    left_out = [line for line in whole if line not in short]
    other_parts = [line for line in left_out if line.startswith(" not chosen: ")]
    read_keys = [line for line in left_out if " reads: " in line]
    # Nothing else is left out.
    assert sorted(left_out) == sorted(other_parts + read_keys)
    assert set(short) <= set(whole)
    expected = f"not shown: {len(other_parts)} other parts, and the config keys read"
    assert last_line.startswith(expected)


def test_short_text_of_cartpole_is_read_at_a_glance():
    text = repr(rlcatalog.explain(env=gym.make("CartPole-v1")))
    assert len(text.splitlines()) <= 35
    assert max(map(len, text.splitlines())) <= 100
    assert "fcnet_hiddens" not in text  # a key with its default
    assert "visionnet" not in text  # a part that was not chosen


# --- sheets ---------------------------------------------------------------------------------------


@pytest.fixture
def sheet():
    """A sheet that shows two rows of each of its tables, which have four."""
    rows = [(f"layer {number}", str(number)) for number in range(4)]
    heading = ("layer", "weights")
    no_heading = ()
    tables = {"layers": [heading, *rows], "": [no_heading, *rows], "none": [heading]}
    return Sheet("net", [("framework", "torch")], tables, most=2)


def test_text_of_a_sheet_cuts_its_tables(sheet):
    # Each table has four rows, of which the sheet shows two.
    assert sheet.text().splitlines() == [
        "net",
        "framework: torch",
        "",
        "layers:",
        "  layer       weights",
        "  layer 0     0",
        "  layer 1     1",
        "  ... 2 more",
        "",
        "layer 0     0",
        "layer 1     1",
        "... 2 more",
    ]


def test_html_of_a_sheet_cuts_its_tables(sheet):
    texts = [text for text in PageTexts(sheet.html()).texts if text != "net"]
    rows = ["layer 0", "0", "layer 1", "1", "... 2 more"]
    assert texts == ["framework: torch", "layers", "layer", "weights", *rows, *rows]


# --- the command and the function -----------------------------------------------------------------


@pytest.fixture
def run_explain(capsys, monkeypatch):
    """Return a function that runs `rlcatalog explain CartPole-v1` and returns its output."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*options):
        with pytest.raises(SystemExit) as ended:
            main(["explain", "CartPole-v1", *options])
        assert ended.value.code == 0
        return capsys.readouterr().out

    return run


def test_command_prints_the_text_of_the_explanation(run_explain):
    explanation = rlcatalog.explain(env=gym.make("CartPole-v1"))
    assert run_explain() == f"{explanation!r}\n"
    whole_sheet = explanation_sheet(explanation.as_dict(), all=True)
    assert run_explain("--all") == f"{whole_sheet.text(width=100)}\n"


def test_command_prints_the_data_of_the_explanation(run_explain):
    data = rlcatalog.explain(env=gym.make("CartPole-v1")).as_dict()
    # JSON has lists in place of tuples.
    assert json.loads(run_explain("--json")) == json.loads(json.dumps(data))


def test_explain_takes_an_id_or_an_environment():
    assert rlcatalog.explain(env="CartPole-v1").as_dict()["env"] == "CartPole-v1"
    envs = gym.make_vec("CartPole-v1", num_envs=2)
    assert rlcatalog.explain(env=envs).as_dict()["env"] == "CartPole-v1"
    envs.close()


@pytest.mark.parametrize("function", [rlcatalog.build, rlcatalog.explain])
def test_space_beside_an_environment_is_an_error(function):
    message = rf"{function.__name__}\(\) needs two spaces or env="
    with pytest.raises(UnsupportedSpaceError, match=message):
        function(Discrete(2), env="CartPole-v1")


def test_explain_of_one_space_is_an_error():
    with pytest.raises(UnsupportedSpaceError, match="needs an observation space and an action"):
        rlcatalog.explain(FOUR_FEATURES)
