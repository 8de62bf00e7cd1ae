"""The pictures that `tools/pictures.py` draws show the measured numbers and the allowed imports."""

import json
import math
import xml.etree.ElementTree as ElementTree

import house_imports
import pictures
import pytest

SVG = "{http://www.w3.org/2000/svg}"


def words(svg):
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def bars(svg):
    _, *boxes = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return boxes


def test_bars_are_as_long_as_the_logarithm_of_the_measured_ratio():
    cases = json.loads((pictures.ROOT / "benchmarks/ratios.json").read_text("utf-8"))
    ours = cases["dists"]["cases"]["Categorical(18), torch, to torch.distributions, batch 1"][
        "ratio"
    ]
    theirs = cases["sb3"]["cases"]["Stable-Baselines3's PPO, CartPole, MlpPolicy, environments 1"][
        "ratio"
    ]
    told = words(pictures.speed())
    places = [
        told.index("torch.distributions: Categorical(18), batch 1"),
        told.index("Stable-Baselines3's own policy: PPO, CartPole, MlpPolicy, 1 env"),
    ]
    assert [told[place + 1] for place in places] == [f"{1 / ours:.2g}", f"{theirs:.2g}"]
    long, short = (float(bars(pictures.speed())[place // 2].get("width")) for place in places)
    assert long / short == pytest.approx(math.log(1 / ours) / math.log(theirs), rel=0.01)


def test_every_package_has_a_box_above_those_it_may_import():
    svg = pictures.packages()
    told, heights = words(svg), {}
    for text in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        heights[text.text] = float(text.get("y"))
    for path in pictures.ROOT.glob("plugins/*/pyproject.toml"):
        if (name := path.parent.name) != "example":
            assert name in told
            for part in house_imports.ALLOWED.get(f"rlcatalog_{name}", ()):
                assert heights[name] < heights[part.removeprefix("rlcatalog_")]
    listed = " ".join(told)
    assert all(
        path.parent.name in listed for path in pictures.ROOT.glob("builtin_*/*/pyproject.toml")
    )
