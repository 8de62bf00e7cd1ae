"""Attacks on the folders of runs: crafted checkpoints, links and pipes under every name, ends at
any moment.

What forks and kills processes runs in `runs_child.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import warm

SUPPORT = Path(__file__).parent.parent / "support"
full = pytest.mark.attack


def attack(name, folder, *arguments):
    """Run an attack in a process of its own and return what it found."""
    command = [str(SUPPORT / "runs_child.py"), name, str(folder), *map(str, arguments)]
    run = warm.run(
        command,
        SUPPORT,
        {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("framework", "times"),
    [("torch", 5), pytest.param("torch", 600, marks=full), pytest.param("tf", 300, marks=full)],
)
def test_a_crafted_checkpoint_goes_on_or_is_refused(tmp_path, framework, times):
    found = attack("checkpoints", tmp_path, framework, times, 4)
    assert found["wrong"] == []
    assert sum(found["kinds"].values()) == times
    assert found["kinds"]["refused"] > times // 2
    assert found["kinds"]["accepted"]  # another seed, say, is as good as the true one


@pytest.mark.parametrize(
    ("framework", "times"),
    [("torch", 5), pytest.param("torch", 600, marks=full), pytest.param("tf", 200, marks=full)],
)
def test_a_flipped_bit_of_a_checkpoint_is_noticed(tmp_path, framework, times):
    found = attack("flipped", tmp_path, framework, times, 4)
    assert found["wrong"] == []
    assert found["kinds"]["refused"] > 0.9 * times  # spaces between words may become other spaces


@pytest.mark.parametrize("times", [5, pytest.param(500, marks=full)])
def test_crafted_configs_records_and_metrics_end_no_command_in_a_raw_error(tmp_path, times):
    found = attack("summaries", tmp_path, times, 6)
    assert found["wrong"] == []
    assert found["kinds"] == {"ended": times}


@pytest.mark.parametrize(
    ("every", "first"), [(300, 7), *(pytest.param(4, first, marks=full) for first in range(4))]
)
def test_nothing_is_written_or_waited_for_outside_a_runs_folder(tmp_path, every, first):
    found = attack("links", tmp_path, every, first)
    assert found["wrong"] == []
    assert found["kinds"].keys() <= {"accepted", "refused", "ended"}
    assert sum(found["kinds"].values()) > 300 // every


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=full)])
def test_a_checkpoint_that_is_replaced_is_never_lost(tmp_path, every):
    found = attack("replaced", tmp_path, 5, every)["found"]
    kept = [steps for _, _, steps, _, _ in found]
    assert kept == sorted(kept)  # the former one, until it is the later one
    assert set(kept) == {8, 16}
    assert all(steps == 16 for *_, steps, _ in found)
    assert all(names == ["checkpoint"] for *_, names in found)
    assert len(found) > 60 // every
