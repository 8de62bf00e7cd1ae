"""`make peers`: every library does the same work, and the pages show what is stored."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import page
from benchmarks.peers import __main__ as command, report, work

#: Weights of two nets of two layers of 64 on four numbers, one with two outputs and one with one.
WEIGHTS = sum((4 + 1) * 64 + (64 + 1) * 64 + (64 + 1) * outputs for outputs in (2, 1))


# Each process takes some seconds.
@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.attack) for name in work.LIBRARIES]
)
def answers(request):
    """What a library's process tells of its work."""
    try:
        with command.workers([request.param], command.BESIDE) as running:
            if not running:
                pytest.skip(f"{request.param} is not installed here")
            assert running[0].memory > 50 * 2**20
            return {"library": request.param, **running[0].ask("check")}
    except RuntimeError as error:
        pytest.fail(str(error))


def test_every_library_builds_nets_of_the_same_size(answers):
    assert answers["parameters"] == WEIGHTS


def test_acting_gives_an_action_its_density_and_a_value_for_each_row(answers):
    assert answers["act"] == [[1, 1, 1], [64, 64, 64]]


def test_every_library_computes_gradients_equally_often(answers):
    assert answers["train"] == work.MINIBATCHES == 40
    assert answers.get("ppo", 40) == 40


def test_densities_and_entropies_are_those_of_scipy(answers):
    logits, log_std = (array.astype(np.float64) for array in work.some_inputs())
    sample, logp, entropy = map(np.array, answers["categorical"])
    logps = logits - special.logsumexp(logits, axis=1, keepdims=True)
    np.testing.assert_allclose(
        logp, logps[np.arange(len(logps)), sample.astype(int)], rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(entropy, stats.entropy(np.exp(logps), axis=1), rtol=1e-5, atol=1e-5)
    sample, logp, entropy = map(np.array, answers["gaussian"])
    normal = stats.norm(logits, np.exp(log_std))
    np.testing.assert_allclose(logp, normal.logpdf(sample).sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(entropy, normal.entropy().sum(1), rtol=1e-5, atol=1e-5)


def test_preprocessing_gives_the_same_numbers_in_some_order(answers):
    if answers["library"] in ("tianshou", "cleanrl"):  # they leave it to the user
        assert "preprocess" not in answers
        return
    observed = work.some_observed()
    expected = np.concatenate(
        [
            np.eye(5)[observed["gear"]],
            *(observed[name] for name in ("lamps", "position", "velocity")),
        ],
        1,
    )
    np.testing.assert_allclose(np.sort(answers["preprocess"]), np.sort(expected), rtol=1e-6)


@pytest.mark.attack
def test_a_library_that_is_not_installed_is_named_and_left_out(tmp_path, capsys):
    if importlib.util.find_spec("tianshou"):
        pytest.skip("tianshou is installed")
    with command.workers(["tianshou"], tmp_path) as running:
        assert running == []
    assert "tianshou is left out: No module named 'tianshou'" in capsys.readouterr().err


# --- rounds ---------------------------------------------------------------------------------------


class Fake:
    """A library that takes as many seconds as it was measured times, or has no such work."""

    def __init__(self, library, able, asked):
        self.library, self.able, self.asked, self.times = library, able, asked, 0

    def prepare(self, name):
        self.asked.append(name)
        return self.able

    def seconds(self):
        self.asked.append(self.library)
        self.times += 1
        return float(self.times)


def test_each_round_begins_with_another_library():
    asked: list[str] = []
    running = [
        Fake(library, library != "rllib", asked) for library in ("ours", "sb3", "rllib", "torchrl")
    ]
    found = command.timed(running, "preprocess", 3)
    assert found == {"ours": [1, 2, 3], "sb3": [1, 2, 3], "rllib": None, "torchrl": [1, 2, 3]}
    assert asked == [
        *["preprocess"] * 4,
        "ours",
        "sb3",
        "torchrl",
        "sb3",
        "torchrl",
        "ours",
        "torchrl",
        "ours",
        "sb3",
    ]


# --- the table ------------------------------------------------------------------------------------


STORED = {
    "date": "2020-01-02",
    "machine": "a machine",
    "rounds": 3,
    "libraries": ["ours", "sb3", "cleanrl"],
    "versions": {"torch": "2.0", "ray": "2.1"},
    "rows": {
        "act 1": report.entry(
            {"ours": [2e-4, 1e-4, 4e-4], "sb3": [4e-4, 3e-4, 4.8e-4], "cleanrl": [1e-4, 9e-5, 1e-4]}
        ),
        "preprocess": report.entry({"ours": [2e-3], "sb3": [42e-3], "cleanrl": None}),
        "ppo 8": report.entry({"ours": [2.5e-4], "sb3": [2.5e-4], "cleanrl": [4e-4]}),
        "memory": report.entry({"ours": [2**28], "sb3": [2**29], "cleanrl": [2**28 * 0.994]}),
    },
}


def test_a_ratio_is_that_of_a_round():
    kept = STORED["rows"]["act 1"]["sb3"]
    assert kept == {"value": [3e-4, 4e-4, 4.8e-4], "ratio": [1.2, 2.0, 3.0]}
    assert "ratio" not in STORED["rows"]["act 1"]["ours"]


def test_the_table_shows_our_figures_and_the_other_libraries_ratios():
    assert report.table(STORED).splitlines() == [
        "| | rlcatalog | Stable-Baselines3 | CleanRL-style file |",
        "|---|---:|---:|---:|",
        "| act on one observation | 200 µs | 2.0 × | 0.50 × |",
        "| preprocess 256 Dict observations | 2.0 ms | 21 × | – |",
        "| PPO on CartPole, 8 environments | 4,000 steps/s | 1.0 × | 1.6 × |",
        "| memory after acting once | 256 MiB | 2.0 × | 0.99 × |",
    ]


def test_where_another_library_is_ahead_a_sentence_names_it():
    assert report.faster(STORED) == (
        "Ahead of rlcatalog: CleanRL-style file (act on one observation, 0.50 ×; memory after"
        " acting once, 0.99 ×)."
    )
    assert (
        report.faster(STORED, ["ppo 8", "preprocess"])
        == "No library is ahead of rlcatalog in these rows."
    )


def test_the_pages_hold_the_stored_figures():
    stored = json.loads(report.STORED.read_text(encoding="utf-8"))
    assert set(stored["libraries"]) == set(work.LIBRARIES)
    assert list(stored["rows"]) == list(work.WORK)
    for path, text in report.texts(stored).items():
        shown = path.read_text(encoding="utf-8")
        current = page.replaced(shown, report.BEGIN, text)
        assert current == shown, f"{path.name}: run python -m benchmarks.peers --report"


def test_a_page_keeps_what_surrounds_the_table():
    shown = f"before\n{report.BEGIN}\nold\n{page.END}\nafter {page.END}"
    wanted = f"before\n{report.BEGIN}\n\nnew\n\n{page.END}\nafter {page.END}"
    assert page.replaced(shown, report.BEGIN, "new") == wanted
    with pytest.raises(SystemExit, match="must hold the lines"):
        page.replaced("no region", report.BEGIN, "new")


@pytest.mark.parametrize(
    "given", [["--save", "--work", "act 1"], ["--save", "--report"], ["--rounds", "0"]]
)
def test_a_command_line_that_would_store_a_part_is_refused(given, capsys):
    with pytest.raises(SystemExit):
        command.main(given)
    assert (
        "--save stores the whole table" in (said := capsys.readouterr().err) or "at least 1" in said
    )
