"""`make peers`: every library does the same work, and the pages show the stored figures."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import page
from benchmarks.peers import __main__ as command, report, work

# --- the work, by each library --------------------------------------------------------------------


# Each process takes some seconds.
@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in work.LIBRARIES]
)
def library(request):
    return request.param


@pytest.fixture(scope="module")
def answers(library):
    """The results of a library's work, computed in a process that has it installed."""
    try:
        with command.workers([library], command.BESIDE) as workers:
            if not workers:
                pytest.skip(f"{library} is not installed here")
            assert workers[0].memory > 50 * 2**20
            return workers[0].ask("check")
    except RuntimeError as error:
        pytest.fail(str(error))


def number_of_weights(*widths):
    """Return how many weights and biases the dense layers between the widths have."""
    return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(widths))


def test_library_builds_nets_of_the_same_size(answers):
    actor = number_of_weights(4, 64, 64, 2)
    critic = number_of_weights(4, 64, 64, 1)
    assert answers["parameters"] == actor + critic


def test_library_acts_on_each_row(answers):
    # Actions, log densities and values, for a batch of 1 and one of 64.
    assert answers["act"] == [[1, 1, 1], [64, 64, 64]]


def test_library_computes_gradients_equally_often(answers):
    assert answers["train"] == work.MINIBATCHES == 40
    if "ppo" in answers:
        assert answers["ppo"] == 40


def test_categorical_agrees_with_scipy(answers):
    logits, _ = work.some_inputs()
    log_probabilities = special.log_softmax(logits.astype(np.float64), axis=1)

    sample, logp, entropy = map(np.array, answers["categorical"])

    # The sample is the index of an action in each row.
    rows = np.arange(len(logits))
    expected_logp = log_probabilities[rows, sample.astype(int)]
    expected_entropy = stats.entropy(np.exp(log_probabilities), axis=1)
    np.testing.assert_allclose(logp, expected_logp, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(entropy, expected_entropy, rtol=1e-5, atol=1e-5)


def test_gaussian_agrees_with_scipy(answers):
    mean, log_std = (array.astype(np.float64) for array in work.some_inputs())
    normal = stats.norm(mean, np.exp(log_std))

    sample, logp, entropy = map(np.array, answers["gaussian"])

    np.testing.assert_allclose(logp, normal.logpdf(sample).sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(entropy, normal.entropy().sum(1), rtol=1e-5, atol=1e-5)


def test_library_preprocesses_to_the_same_numbers(answers, library):
    if library in ("tianshou", "cleanrl"):
        pytest.skip("leaves preprocessing to its user")
    observations = work.some_observed()
    parts = [np.eye(5)[observations["gear"]]]  # a Discrete(5), as one-hot
    parts += [observations[name] for name in ("lamps", "position", "velocity")]
    expected = np.concatenate(parts, axis=1)
    # Sorted, because each library has an order of its own.
    np.testing.assert_allclose(np.sort(answers["preprocess"]), np.sort(expected), rtol=1e-6)


@pytest.mark.slow
def test_missing_library_is_named_and_left_out(tmp_path, capsys):
    if importlib.util.find_spec("tianshou"):
        pytest.skip("tianshou is installed")
    with command.workers(["tianshou"], tmp_path) as workers:
        assert workers == []
    assert "tianshou is left out: No module named 'tianshou'" in capsys.readouterr().err


# --- rounds ---------------------------------------------------------------------------------------


class FakeWorker:
    """A library whose first measurement takes one second, the second two, and so on."""

    def __init__(self, library, measured, *, can_do_it=True):
        self.library = library
        self.measured = measured
        self.can_do_it = can_do_it
        self.count = 0

    def prepare(self, name):
        return self.can_do_it

    def seconds(self):
        self.measured.append(self.library)
        self.count += 1
        return float(self.count)


def test_rounds_begin_with_different_libraries():
    measured: list[str] = []
    workers = [FakeWorker(library, measured) for library in ("ours", "sb3", "torchrl")]

    command.timed(workers, "preprocess", 3)

    assert measured[:3] == ["ours", "sb3", "torchrl"]
    assert measured[3:6] == ["sb3", "torchrl", "ours"]
    assert measured[6:] == ["torchrl", "ours", "sb3"]


def test_library_without_such_work_has_no_times():
    measured: list[str] = []
    workers = [FakeWorker("ours", measured), FakeWorker("rllib", measured, can_do_it=False)]
    seconds = command.timed(workers, "preprocess", 3)
    assert seconds == {"ours": [1, 2, 3], "rllib": None}


# --- the table ------------------------------------------------------------------------------------


def test_entry_keeps_ratios_within_a_round():
    entry = report.entry({"ours": [2.0, 1.0, 4.0], "sb3": [4.0, 3.0, 4.8]})
    assert entry["sb3"]["value"] == [3.0, 4.0, 4.8]  # lowest, median, highest
    assert entry["sb3"]["ratio"] == [1.2, 2.0, 3.0]  # of 4/2, 3/1 and 4.8/4
    assert "ratio" not in entry["ours"]


def test_stored_figures_are_of_all_libraries_and_work():
    stored = json.loads(report.STORED.read_text(encoding="utf-8"))
    assert set(stored["libraries"]) == set(work.LIBRARIES)
    assert list(stored["rows"]) == list(work.WORK)


def test_pages_show_the_stored_figures():
    stored = json.loads(report.STORED.read_text(encoding="utf-8"))
    for path, text in report.texts(stored).items():
        shown = path.read_text(encoding="utf-8")
        fresh = page.replaced(shown, report.BEGIN, text)
        assert shown == fresh, f"{path.name}: run python -m benchmarks.peers --report"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--save", "--work", "act 1"], "--save stores the whole table"),
        (["--save", "--report"], "--save stores the whole table"),
        (["--rounds", "0"], "at least 1"),
    ],
)
def test_unusable_options_are_rejected(options, message, capsys):
    with pytest.raises(SystemExit):
        command.main(options)
    assert message in capsys.readouterr().err
