"""Folders of runs that were changed: crafted and damaged files, links and pipes, and processes that
end at any moment.

The attacks run in `tests/support/runs_child.py`, because they fork and kill processes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import warm

SUPPORT = Path(__file__).parent.parent / "support"

#: The attacks of `make test`, with the arguments that the tests below pass.
SHORT = [
    ("checkpoints", "torch", 5, 4),
    ("flipped", "torch", 5, 4),
    ("summaries", 5, 6),
    ("links", 300, 7),
    ("replaced", 5, 9),
]


def run_attacks(folder, *attacks):
    """Run attacks in another process, and return what each of them reports."""
    command = [str(SUPPORT / "runs_child.py"), str(folder), json.dumps(attacks)]
    environment = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    run = warm.run(command, SUPPORT, environment)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def short_reports(tmp_path_factory):
    """Name of each attack of `make test` → what it reports; they share one trained run."""
    reports = run_attacks(tmp_path_factory.mktemp("short"), *SHORT)
    return {name: report for (name, *_), report in zip(SHORT, reports, strict=True)}


@pytest.fixture
def attack(request, tmp_path):
    """Function that runs an attack, and returns what it reports."""

    def run(*name_and_arguments):
        if name_and_arguments in SHORT:
            return request.getfixturevalue("short_reports")[name_and_arguments[0]]
        [report] = run_attacks(tmp_path, name_and_arguments)
        return report

    return run


@pytest.mark.parametrize(
    ("framework", "times"),
    [
        ("torch", 5),
        pytest.param("torch", 600, marks=pytest.mark.slow),
        pytest.param("tf", 300, marks=pytest.mark.slow),
    ],
)
def test_crafted_checkpoint_resumes_or_is_rejected(attack, framework, times):
    seed = 4
    report = attack("checkpoints", framework, times, seed)

    assert report["wrong"] == []
    assert sum(report["kinds"].values()) == times
    assert report["kinds"]["refused"] > times // 2
    # Some changes are valid, such as another seed.
    assert report["kinds"]["accepted"]


@pytest.mark.parametrize(
    ("framework", "times"),
    [
        ("torch", 5),
        pytest.param("torch", 600, marks=pytest.mark.slow),
        pytest.param("tf", 200, marks=pytest.mark.slow),
    ],
)
def test_flipped_bit_in_a_checkpoint_is_detected(attack, framework, times):
    seed = 4
    report = attack("flipped", framework, times, seed)

    assert report["wrong"] == []
    # Almost always: a space between two words of JSON may become another space.
    assert report["kinds"]["refused"] > 0.9 * times


@pytest.mark.parametrize("times", [5, pytest.param(500, marks=pytest.mark.slow)])
def test_crafted_records_end_commands_with_typed_errors(attack, times):
    seed = 6
    report = attack("summaries", times, seed)

    assert report["wrong"] == []
    assert report["kinds"] == {"ended": times}


#: Which of the combinations of file, link and command run: each n-th, from a first one on.
EACH_300TH = (300, 7)
QUARTERS = [pytest.param(4, first, marks=pytest.mark.slow) for first in range(4)]


@pytest.mark.parametrize(("every", "first"), [EACH_300TH, *QUARTERS])
def test_links_and_pipes_in_a_run_folder_are_not_followed(attack, every, first):
    report = attack("links", every, first)

    assert report["wrong"] == []
    assert report["kinds"].keys() <= {"accepted", "refused", "ended"}
    assert sum(report["kinds"].values()) > 300 // every


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_checkpoint_being_replaced_is_never_lost(attack, every):
    # A checkpoint of step 8 is replaced by one of step 16. The process is killed at each of its
    # system calls, or at every ninth one.
    seed = 5
    report = attack("replaced", seed, every)["found"]

    assert len(report) > 60 // every  # a replacement makes more than 60 system calls
    steps_after_kills = []
    for _call, _status, steps, steps_after_another_save, files in report:
        steps_after_kills.append(steps)
        assert steps_after_another_save == 16
        assert files == ["checkpoint"]
    # The earlier checkpoint is there until the later one is.
    assert set(steps_after_kills) == {8, 16}
    assert steps_after_kills == sorted(steps_after_kills)
