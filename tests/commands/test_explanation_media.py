"""An explanation as text, HTML, picture and data: every medium shows the same facts."""

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import count

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

VECTOR = Box(-1, 1, (4,), np.float32)
MASKED = Dict(
    {"action_mask": MultiBinary(3), "eye": Box(0, 255, (42, 42, 3), np.uint8), "speed": VECTOR}
)


def masked_and_filtered():
    config = {
        "use_lstm": True,
        "observation_filter": "MeanStdFilter",
        "attention_dim": 8,
        "vf_share_layers": False,
    }
    return rlcatalog.explain(MASKED, Discrete(3), config, "torch").as_dict()


def parts_of_an_action():
    nested = Dict({"deep": Dict({"action_mask": MultiBinary(2), "x": VECTOR})})
    return rlcatalog.explain(
        nested, Tuple([Discrete(2), VECTOR]), {"use_autoregressive": True}, "tf"
    ).as_dict()


def an_environment():
    return rlcatalog.explain(env=gym.make("CartPole-v1"), config={"use_attention": True}).as_dict()


def wrapped_and_frozen():
    found = rlcatalog.explain(env=gym.make("CartPole-v1")).as_dict() | {
        "frozen": "acts from a recorded graph"
    }
    for applied in (True, True, False):
        found["env_wrappers"].append(
            {"name": "acme", "provider": "acme 1", "applied": applied, "reason": "because"}
        )
    return found


TITLES = (
    "observation",
    "action",
    "preprocessor: none",
    "preprocessor: dict",
    "filter: MeanStdFilter",
)
EXPLANATIONS = [masked_and_filtered, parts_of_an_action, an_environment, wrapped_and_frozen]


def marked(found):
    """Return an explanation in which every fact is one of a kind, and the marks that each medium
    must show.
    """
    marks, numbers = [], count(1001)

    def mark(value, name=""):
        if isinstance(value, dict):
            return {key: mark(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [mark(item, name) for item in value]
        # Names that say what belongs together are as they were.
        if (
            isinstance(value, bool)
            or value is None
            or name == "chosen"
            or (name == "stage" and value in TITLES)
        ):
            return value
        marks.append(str(next(numbers)))
        return int(marks[-1]) if isinstance(value, int) else f"{value} t{marks[-1]}"

    made = mark(found)
    for choice in [
        part for part in [*made.values(), *made["action_parts"]] if isinstance(part, dict)
    ]:
        for part in choice["candidates"][: choice["chosen"] is not None]:  # it stands there, too
            same = {
                "name": choice["chosen"],
                **{key: choice[key] for key in ("distribution", "version", "reason")},
            }
            for key in same:
                marks.remove(re.sub(r".* t", "", part[key]))
            part.update(same)
    return made, marks


class Texts(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.texts = []
        self.feed(page)

    def handle_data(self, data):
        self.texts.append(data)


def as_text(found):
    return explanation_sheet(found, all=True).text()


def as_html(found):
    return " ".join(Texts(explanation_html(found)).texts)


def as_picture(found):
    return " ".join(
        node.text or "" for node in ElementTree.fromstring(pipeline_svg(found)).iter() if node.text
    )


@pytest.mark.parametrize("medium", [as_text, as_html, as_picture])
@pytest.mark.parametrize("explanation", EXPLANATIONS)
def test_every_fact_of_the_data_is_in_every_medium(explanation, medium):
    found, marks = marked(explanation())
    shown = set(re.findall(r"\d{4,}", medium(found)))
    assert len(marks) > 100
    assert [mark for mark in marks if mark not in shown] == []


@pytest.mark.parametrize("explanation", EXPLANATIONS)
def test_the_short_text_leaves_out_others_and_keys_and_says_so(explanation):
    found = explanation()
    short, whole = (
        explanation_sheet(found, all=both).text().splitlines() for both in (False, True)
    )
    *kept, last = (re.sub(" +", " ", line) for line in short)
    left = [line for line in (re.sub(" +", " ", line) for line in whole) if line not in kept]
    assert set(kept) <= {re.sub(" +", " ", line) for line in whole}
    others = [line for line in left if line.startswith(" not chosen: ")]
    assert [
        line for line in left if line not in others and not re.match(r"\S+ reads: ", line)
    ] == []
    assert last.startswith(f"not shown: {len(others)} other parts, and the config keys read")


def test_a_sheet_cuts_its_tables_alike_in_text_and_html():
    rows = [("layer", "weights"), *((f"layer {i}", str(i)) for i in range(4))]
    sheet = Sheet(
        "net",
        [("framework", "torch")],
        {"layers": rows, "": [(), *rows[1:]], "none": rows[:1]},
        most=2,
    )
    assert sheet.text().splitlines() == [
        "net",
        "framework: torch",
        "",
        "layers:",
        "  layer       weights",
        "  layer 0     0",
        "  layer 1     1",
        "  ... 2 more",
        "layer 0     0",
        "layer 1     1",
        "... 2 more",
    ]
    cells = [text for text in Texts(sheet.html()).texts if text != "net"]
    body = ["layer 0", "0", "layer 1", "1", "... 2 more"]
    assert cells == ["framework: torch", "layers", "layer", "weights", *body, *body]


def test_the_command_prints_the_text_or_the_data_of_the_explanation(capsys):
    env = gym.make("CartPole-v1")
    explanation = rlcatalog.explain(env=env)
    data = json.dumps(explanation.as_dict())
    for options, text in (
        ((), repr(explanation)),
        (("--all",), explanation.text(all=True)),
        (("--json",), data),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["explain", "CartPole-v1", *options])
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        assert (
            (json.loads(printed) == json.loads(text))
            if options == ("--json",)
            else (printed == f"{text}\n")
        )


def test_an_ordinary_explanation_is_read_at_a_glance():
    lines = repr(rlcatalog.explain(env=gym.make("CartPole-v1"))).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert not any("fcnet_hiddens" in line or "visionnet" in line for line in lines)


def test_spaces_or_an_environment_are_needed():
    for call in (rlcatalog.build, rlcatalog.explain):
        with pytest.raises(
            UnsupportedSpaceError, match=rf"{call.__name__}\(\) needs two spaces or env=, but both"
        ):
            call(Discrete(2), env="CartPole-v1")
    with pytest.raises(
        UnsupportedSpaceError,
        match=r"explain\(\) needs an observation space and an action space, or",
    ):
        rlcatalog.explain(VECTOR)
    assert rlcatalog.explain(env="CartPole-v1").as_dict()["env"] == "CartPole-v1"
    envs = gym.make_vec("CartPole-v1", num_envs=2)
    assert rlcatalog.explain(env=envs).as_dict()["env"] == "CartPole-v1"
    envs.close()


@pytest.mark.parametrize("medium", [as_text, as_html, as_picture])
def test_a_reason_may_be_empty(medium):
    found = wrapped_and_frozen()
    for wrapper in found["env_wrappers"]:
        wrapper["reason"] = " "
    assert medium(found).count("env_wrapper: acme") >= 2
