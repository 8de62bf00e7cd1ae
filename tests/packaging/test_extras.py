"""The extras: what one of them installs is enough for what it promises."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

from export_cases import built, cases
from export_steps import near, task_for_child
from package_environments import FOLDERS, Environment, installed_by

pytestmark = pytest.mark.packaging

CHILD = Path(__file__).resolve().parents[1] / "support" / "export_child.py"
#: Exported policies: a filter with a Dict, text and OneOf, a graph and a sequence, and a Dict of
#: actions with an LSTM. `tests/export` has the others, without frameworks. TensorFlow's exporter is
#: the quicker one; the files do not depend on it.
EXPORTED = [
    "categorical, filter, tf",
    "dirichlet, text, tf",
    "slates, nature, sequences, tf",
    "parts, lstm, tf",
]
#: Most bytes that `[actor]` may install.
ACTOR_BYTES = 150_000_000

#: Sizes of the installed distributions, without the bytecode that Python writes by itself.
SIZES = """
from importlib import metadata

for distribution in metadata.distributions():
    files = [distribution.locate_file(path) for path in distribution.files if path.suffix != ".pyc"]
    report[distribution.name] = sum(file.stat().st_size for file in files if file.exists())
"""


def environment_of(extra: str, environment) -> Environment:
    """Make an environment with what an extra of the kernel installs, and nothing else."""
    distributions = installed_by(f"rlcatalog[{extra}]")
    ours = distributions & FOLDERS.keys()
    return environment(*ours, only=distributions - ours)


@pytest.fixture(scope="module")
def actor(environment) -> Environment:
    return environment_of("actor", environment)


@pytest.fixture(scope="module")
def steps(actor, tmp_path_factory):
    """Act from each exported policy in the environment of `[actor]`; name → what the policy did and
    what the actor did.
    """
    folder = tmp_path_factory.mktemp("exported")
    tasks, expected = {}, {}
    for place, name in enumerate(EXPORTED):
        policy = built(cases()[name])
        path = folder / f"{place}.onnx"
        interface = policy.export(path)
        tasks[name], expected[name] = task_for_child(cases()[name], policy, path, interface)
    (folder / "in").write_bytes(pickle.dumps(tasks))
    process = actor.run(str(CHILD), str(folder / "in"), str(folder / "out"))
    assert process.returncode == 0, process.stderr
    results = pickle.loads((folder / "out").read_bytes())
    return {name: (expected[name], results[name]) for name in EXPORTED}


@pytest.mark.parametrize("name", EXPORTED)
def test_actor_extra_acts_as_the_policy(steps, name):
    expected, found = steps[name]
    assert isinstance(found, list), found  # a string is the error's traceback
    for t, (one, other) in enumerate(zip(expected, found, strict=True)):
        near(one, other, cases()[name].tolerance, f"step {t}")


def test_actor_extra_installs_no_framework_and_no_writer(actor):
    report = actor.probe(
        "absent(['torch', 'tensorflow', 'keras', 'onnx', 'onnxscript', 'tf2onnx', 'typer'])"
        "\nimport rlcatalog\nreport['actor'] = rlcatalog.Actor.__module__"
    )
    assert report["actor"] == "rlcatalog_export.actor"


def test_actor_extra_is_small(actor):
    sizes = actor.probe(SIZES)
    assert {"rlcatalog", "rlcatalog-export", "numpy", "onnxruntime"} <= sizes.keys()
    total = sum(sizes.values())
    assert total <= ACTOR_BYTES, f"{total:,} bytes: {sizes}"


def test_testing_extra_brings_its_commands(environment):
    made = environment_of("testing", environment)
    new = made.run("-m", "rlcatalog_cli", "new", "filter", "acme-filter")
    assert new.returncode == 0, new.stderr
    assert (made.folder / "acme-filter" / "pyproject.toml").is_file()
    check = made.run("-m", "rlcatalog_cli", "check", "rlcatalog-cli")
    assert check.returncode == 0, check.stderr
