"""Every package works alone: built as a wheel, unpacked into an empty environment beside the
kernel, run from outside.

`conftest.py` builds the wheels and makes the environments.
"""

from __future__ import annotations

import json
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from package_environments import (
    FOLDERS,
    ProbeError,
    module_of,
    needed_by,
)
from package_probes import ALONE, COMMANDS, LOOKUPS, NOT_THERE, ONE_FRAMEWORK, WITHOUT_FRAMEWORKS

from rlcatalog.plugins import install_hint, install_hints

pytestmark = pytest.mark.packaging

PLUGINS = [name for name in FOLDERS if name != "rlcatalog"]

#: The smallest set that chooses and builds parts for CartPole, and what makes a policy of them.
PARTS = ["rlcatalog", "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical"]
GROUP = [*PARTS, "rlcatalog-policy"]

FRAMEWORKS = {"torch": "torch", "tf": "tensorflow"}


def beside(distribution: str) -> list[str]:
    """Return what a package is tried with: what it requires, both frameworks, and the codecs of
    Gymnasium's spaces.
    """
    if distribution in ("rlcatalog", "rlcatalog-torch", "rlcatalog-tf"):
        return needed_by(distribution)
    return list(
        dict.fromkeys(
            [*needed_by(distribution, *FRAMEWORKS), *needed_by("rlcatalog-preprocessors")]
        )
    )


# --- wheels ---------------------------------------------------------------------------------------


def wrong_contents(wheel: Path, distribution: str) -> list[str]:
    """Say what a wheel holds that it should not, and what it lacks."""
    module = module_of(distribution)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(
            name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")
        )
        entry_points = (
            archive.read(f"{info}/entry_points.txt").decode()
            if f"{info}/entry_points.txt" in names
            else ""
        )
    wrong = [
        f"a second top entry: {top}"
        for top in sorted({n.split("/")[0] for n in names} - {module, info})
    ]
    wrong += [
        f"not for users: {n}"
        for n in names
        if {"tests", "__pycache__", "conftest.py"} & set(n.split("/"))
    ]
    wrong += [f"not for users: {n}" for n in names if n.split("/")[-1].startswith("test_")]
    if distribution != "rlcatalog" and f"{module}.plugin" not in entry_points:
        wrong.append("its entry point is missing")
    if f"{module}/py.typed" not in names:
        wrong.append("no py.typed")
    return wrong


@pytest.mark.parametrize("distribution", FOLDERS)
def test_a_wheel_holds_one_package_and_all_of_it(wheels, distribution):
    assert wrong_contents(wheels[distribution], distribution) == []
    source = FOLDERS[distribution] / "src"
    files = {
        p.relative_to(source).as_posix()
        for p in source.rglob("*")
        if p.is_file() and p.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheels[distribution]) as archive:
        assert files == {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_contents_check_finds_a_second_package_and_tests(wheels, tmp_path):
    """A check that could not fail would prove nothing."""
    bad = tmp_path / wheels["rlcatalog-fcnet"].name
    with zipfile.ZipFile(wheels["rlcatalog-fcnet"]) as good, zipfile.ZipFile(bad, "w") as archive:
        for name in good.namelist():
            if not name.endswith(("py.typed", "entry_points.txt")):
                archive.writestr(name, good.read(name))
        archive.writestr("helpers/__init__.py", "")
        archive.writestr("rlcatalog_fcnet/tests/test_x.py", "")
    assert wrong_contents(bad, "rlcatalog-fcnet") == [
        "a second top entry: helpers",
        "not for users: rlcatalog_fcnet/tests/test_x.py",
        "not for users: rlcatalog_fcnet/tests/test_x.py",
        "its entry point is missing",
        "no py.typed",
    ]


def siblings_of(*distributions: str) -> list[str]:
    return [module_of(name) for name in FOLDERS if name not in distributions]


# --- each package alone ---------------------------------------------------------------------------


@pytest.fixture(scope="session")
def alone(environment, request) -> dict[str, Future]:
    """Start the slow probes, in one process that has imported the frameworks; distribution → its
    report to come.
    """
    pool = ThreadPoolExecutor(1)

    empty = environment()

    def probe(distribution: str) -> dict:
        needed = beside(distribution)
        return environment(*needed).probe(
            ALONE,
            empty,
            distribution=distribution,
            module=module_of(distribution),
            siblings=siblings_of(*needed),
        )

    tests = [
        item
        for item in request.session.items
        if item.path == Path(__file__) and "alone" in item.fixturenames
    ]
    asked = {item.callspec.params["distribution"] for item in tests}
    reports = {name: pool.submit(probe, name) for name in FOLDERS if name in asked}
    pool.shutdown(wait=False)
    return reports


#: In `make test` every third; the contracts of imports and the one lookup without siblings are
#: tried of all.
SOME_ALONE = [
    name if place % 3 == 0 else pytest.param(name, marks=pytest.mark.attack)
    for place, name in enumerate(FOLDERS)
]


@pytest.mark.parametrize("distribution", SOME_ALONE)
def test_a_package_works_alone_beside_the_kernel(alone, distribution):
    report = alone[distribution].result()
    plugins = [name for name in beside(distribution) if name != "rlcatalog"]
    assert [name for name, *_ in report["plugins"]] == sorted(plugins)
    for name, status, error in report["plugins"]:
        assert status == "loaded", (name, error)
    assert sorted(report["worked"] + report["imported"]) == sorted(report["components"])
    if distribution == "rlcatalog":
        assert report["components"] == []
        return
    assert report["components"]
    # Commands, engines, checks and formats are for parts of other packages.
    parts = [
        part
        for part in report["components"]
        if not part.startswith(("command/", "engine/", "check/", "exporter/"))
    ]
    if parts:
        assert report["worked"]
    for framework in {part.rpartition("/")[2] for part in parts}:
        assert any(part.endswith(f"/{framework}") for part in report["worked"])


#: In `make test` every fourth: what they say is the kernel's, and their extras are looked at where
#: each works alone.
OF_ALL_KINDS = [
    name if place % 4 == 0 else pytest.param(name, marks=pytest.mark.attack)
    for place, name in enumerate(
        name for name in FOLDERS if name not in ("rlcatalog-torch", "rlcatalog-tf")
    )
]


@pytest.mark.parametrize("distribution", OF_ALL_KINDS)
def test_without_a_framework_a_package_names_the_extra(environment, bare, distribution):
    needed = needed_by(distribution)
    made = environment(*needed, without=("torch", "tensorflow"))
    report = made.probe(WITHOUT_FRAMEWORKS, bare, distribution=distribution)
    assert set(report["statuses"]) <= {"loaded"}
    said = report["said"]
    for framework in FRAMEWORKS:
        assert install_hint(f"rlcatalog[{framework}]") in said.pop(framework)
    for part, message in said.items():
        framework = part.partition("/")[2]
        assert f"framework={framework!r} needs the package" in message
        assert install_hint(f"rlcatalog[{framework}]") in message
    folder = FOLDERS[distribution].parent.name
    assert len(said) >= 2 or not folder.startswith("builtin")


# --- a few together -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "missing"),
    [("torch", "tf"), pytest.param("tf", "torch", marks=pytest.mark.attack)],
)
def test_a_few_packages_act_with_one_framework_and_name_the_other_ones_extra(
    environment, framework, missing
):
    group = [*GROUP, f"rlcatalog-{framework}"]
    report = environment(*group, without=(FRAMEWORKS[missing],)).probe(
        ONE_FRAMEWORK,
        framework=framework,
        missing=missing,
        missing_module=FRAMEWORKS[missing],
        siblings=siblings_of(*group),
        ours=[module_of(name) for name in group],
    )
    assert report["shapes"] == [[1], [1, 2], [1]]
    assert report["modules"] == [FRAMEWORKS[framework]]
    assert f"framework={missing!r} needs the package 'rlcatalog-{missing}'" in report["said"]
    assert f"[{missing}]'" in report["said"]


def test_the_kernel_alone_lists_nothing_and_says_what_to_install(environment, bare, monkeypatch):
    alone = environment("rlcatalog", "rlcatalog-cli", without=("torch", "tensorflow"))
    listing = alone.run("-m", "rlcatalog_cli", "list", warmed=bare)
    assert listing.returncode == 0, listing.stderr
    assert "No parts are installed" in listing.stdout
    assert install_hint("rlcatalog[torch]") in " ".join(listing.stdout.split())
    as_json = alone.run("-m", "rlcatalog_cli", "list", "--json", warmed=bare)
    assert as_json.returncode == 0, as_json.stderr
    assert [plugin["distribution"] for plugin in json.loads(as_json.stdout)["plugins"]] == [
        "rlcatalog-cli"
    ]
    explained = alone.run("-m", "rlcatalog_cli", "explain", "CartPole-v1", warmed=bare)
    assert explained.returncode == 1
    assert install_hint("rlcatalog-preprocessors") in explained.stderr
    assert "Traceback" not in explained.stderr
    report = alone.probe(NOT_THERE, bare)
    assert install_hint("rlcatalog-preprocessors") in report["explain"]
    # What Actor's package requires is not installed there either.
    monkeypatch.setattr(install_hints, "missing_distributions", list)
    for name, owner in {
        **dict.fromkeys(("build", "load", "Policy"), "rlcatalog-policy"),
        "Actor": "rlcatalog-export",
    }.items():
        assert report[name] == (
            f"rlcatalog.{name} is provided by {owner}, which is not installed."
            f" {install_hint(owner)}"
        )
    assert report["framework"].endswith(install_hint("rlcatalog[torch]"))


def test_parts_are_looked_up_and_work_without_the_policy(environment):
    group = [*PARTS, "rlcatalog-torch"]
    report = environment(*group, without=("tensorflow",)).probe(
        LOOKUPS, siblings=siblings_of(*group)
    )
    assert report["logp"] == pytest.approx(report["expected"], rel=1e-5)
    assert report["value"] == [1]


# --- uninstalling ---------------------------------------------------------------------------------

NEEDED_BY_CARTPOLE = PARTS[1:]

#: An environment that cannot be served once a package is gone.
MISSED = {**dict.fromkeys(NEEDED_BY_CARTPOLE, "CartPole-v1"), "rlcatalog-gaussian": "Pendulum-v1"}


#: Ours, without the outsider's example.
OURS = [name for name in PLUGINS if name.startswith("rlcatalog-")]


@pytest.fixture(scope="session")
def full(environment):
    """An environment with every package of ours, without frameworks: nothing below needs one."""
    return environment("rlcatalog", *OURS, without=("torch", "tensorflow"))


@pytest.mark.parametrize(
    "distribution",
    [
        name
        if name in (*MISSED, "rlcatalog-policy", "rlcatalog-lstm")
        else pytest.param(name, marks=pytest.mark.attack)
        for name in OURS
        if name != "rlcatalog-cli"
    ],
)
def test_uninstalling_one_package_leaves_the_others_working(full, bare, wheels, distribution):
    missed = MISSED.get(distribution, "CartPole-v1")
    lines = [["list", "--json"], ["explain", missed], ["explain", "CartPole-v1", "--json"]]
    full.uninstall(distribution)
    try:
        process = full.run("-c", COMMANDS, json.dumps(lines), warmed=bare)
    finally:
        full.install(wheels[distribution])
    assert process.returncode == 0, process.stderr
    (listed, listing, said), (refused, _, why), (explained, choices, error) = json.loads(
        process.stdout
    )
    assert listed == 0, said
    statuses = {
        plugin["distribution"]: plugin["status"] for plugin in json.loads(listing)["plugins"]
    }
    assert statuses == dict.fromkeys(set(OURS) - {distribution}, "loaded")
    if distribution in MISSED:
        assert refused == 1
        assert f"{distribution}, which is not installed. {install_hint(distribution)}" in why
        assert "Traceback" not in why
    if distribution not in NEEDED_BY_CARTPOLE:
        assert explained == 0, error
        assert json.loads(choices)["action_dist"]["chosen"] == "categorical"


# --- the probes can fail --------------------------------------------------------------------------


def wheel_of(folder: Path, distribution: str, **modules: str) -> Path:
    """Write a wheel by hand."""
    module = module_of(distribution)
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, source in {"__init__": "", **modules}.items():
            archive.writestr(f"{module}/{name}.py", source)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/entry_points.txt", f"[rlcatalog.plugins]\n{module} = {module}.plugin\n"
        )
    return path


HONEST = """
import rlcatalog

@rlcatalog.hookimpl
def rlcatalog_filters():
    return []
"""


def probe_of_stranger(environment, distribution: str, *extra: str) -> dict:
    return environment.probe(
        ALONE,
        distribution=distribution,
        module=module_of(distribution),
        siblings=siblings_of("rlcatalog", *extra),
    )


def test_a_package_that_uses_a_sibling_it_does_not_declare_is_found(environment, tmp_path):
    made = environment("rlcatalog", without=("torch", "tensorflow"))
    made.install(wheel_of(tmp_path, "honest", plugin=HONEST))
    assert probe_of_stranger(made, "honest")["plugins"] == [["honest", "loaded", None]]
    made = environment("rlcatalog", without=("torch", "tensorflow"))
    made.install(
        wheel_of(
            tmp_path, "sneaky", plugin="import rlcatalog", deep="from rlcatalog_fcnet import config"
        )
    )
    with pytest.raises(ProbeError, match="No module named 'rlcatalog_fcnet'"):
        probe_of_stranger(made, "sneaky")


def test_a_sibling_that_is_there_is_found(environment, tmp_path):
    made = environment("rlcatalog", "rlcatalog-fcnet", without=("torch", "tensorflow"))
    made.install(wheel_of(tmp_path, "honest", plugin=HONEST))
    with pytest.raises(ProbeError, match="rlcatalog_fcnet is there"):
        probe_of_stranger(made, "honest")


def test_a_module_from_outside_the_environment_is_found(environment, tmp_path):
    made = environment("rlcatalog", without=("torch", "tensorflow"))
    (tmp_path / "outside.py").write_text("", encoding="utf-8")
    (made.site / "outside.pth").write_text(f"{tmp_path}\n", encoding="utf-8")
    with pytest.raises(ProbeError, match=r"AssertionError: .*outside\.py"):
        made.probe("import outside\nfiles_are_here('outside')")


def test_a_plugin_that_does_not_load_is_found(environment, tmp_path):
    made = environment("rlcatalog", without=("torch", "tensorflow"))
    made.install(
        wheel_of(tmp_path, "broken", plugin="import rlcatalog\nraise RuntimeError('no')", deep="")
    )
    made.install(wheel_of(tmp_path, "entryless", plugin="import rlcatalog"))
    (made.site / "entryless-1.0.dist-info" / "entry_points.txt").unlink()
    report = made.probe(
        "import warnings, rlcatalog\nwarnings.simplefilter('ignore')\nreport['plugins'] ="
        " [[r.distribution, r.status] for r in rlcatalog.Catalog(environ={}).plugins]"
    )
    assert report["plugins"] == [["broken", "failed"]]
