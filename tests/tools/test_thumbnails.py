"""The pictures of the gallery: curves show the numbers of the kept outputs, and every example has a
picture.
"""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import thumbnails

DOCS = Path(__file__).resolve().parents[2] / "docs/examples"
OUTPUTS = {
    name: record["output"]
    for name, record in json.loads((DOCS / "records.json").read_text("utf-8")).items()
}
CURVES = sorted(set(OUTPUTS) - set(thumbnails.POLICIES))


def lines_of(svg):
    """Return the points of the picture's curves, in pixels."""
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}polyline")
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in found
    ]


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_example_has_a_small_picture_in_the_table(name):
    picture = DOCS / f"pictures/{name}.svg"
    assert 300 < picture.stat().st_size < 15_000
    assert ElementTree.fromstring(picture.read_text("utf-8")).get("viewBox") == "0 0 200 112"
    assert f"](pictures/{name}.svg) | [" in (DOCS / "index.md").read_text("utf-8")


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_shows_the_numbers_of_the_output(name):
    """The points are where a linear map of the printed steps and numbers puts them."""
    told = [line.replace(",", " ").split() for line in OUTPUTS[name].splitlines()]
    rows = [
        words
        for words in told
        if len(words) > 3 and words[0].isdigit() and words[1] in ("steps", "updates")
    ]
    what = "loss" if name == "behaviour_cloning" else "return"
    told = [(words[0], words[words.index(what) + 1]) for words in rows]
    truth = [(float(steps), float(number)) for steps, number in told if number != "None"]
    points = [
        point
        for line in lines_of((DOCS / f"pictures/{name}.svg").read_text("utf-8"))
        for point in line
    ]
    assert len(points) == len(truth) >= thumbnails.FEWEST
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*truth, strict=True))
    for (x, y), (steps, number) in zip(points, truth, strict=True):
        assert x == pytest.approx(34 + 158 * steps / right, abs=0.06)
        assert y == pytest.approx(96 - 78 * (number - low) / (high - low), abs=0.06)
    assert left > 0


def test_each_run_of_an_output_is_a_curve_of_its_own():
    output = "\n".join(
        f"{n:7d} steps, mean return {r}"
        for n, r in [(1, 2.0), (2, 3.5), (3, -1), (1, 5), (2, 6), (3, 7)]
    )
    assert thumbnails.series(output) == (
        "mean return, steps",
        [[(1.0, 2.0), (2.0, 3.5), (3.0, -1.0)], [(1.0, 5.0), (2.0, 6.0), (3.0, 7.0)]],
    )
    assert thumbnails.series("1 steps, mean return 3\n2 steps, mean return 4") == (
        "mean return, steps",
        [],
    )
