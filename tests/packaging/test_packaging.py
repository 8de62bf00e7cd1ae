"""Every package works alone: as a wheel in an environment with nothing but what it requires.

`conftest.py` builds the wheels and makes the environments. The programs that run in them are in
`tests/support/package_probes.py`.
"""

from __future__ import annotations

import json
import tomllib
import zipfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from package_environments import (
    FOLDERS,
    ProbeError,
    module_of,
    needed_by,
)
from package_probes import ALONE, COMMANDS, LOOKUPS, NOT_THERE, ONE_FRAMEWORK, WITHOUT_FRAMEWORKS
from packaging.requirements import Requirement

from rlcatalog.plugins import install_hint, install_hints

pytestmark = pytest.mark.packaging

FRAMEWORKS = {"torch": "torch", "tf": "tensorflow"}
#: The smallest set whose parts serve CartPole.
PARTS = ["rlcatalog", "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical"]
#: Our packages, without the kernel and the example of an outsider.
PLUGINS = [name for name in FOLDERS if name.startswith("rlcatalog-")]


def environment_of(distribution: str) -> list[str]:
    """Return the packages beside which a package is tried: those that it requires, both frameworks,
    and the codecs of Gymnasium's spaces.
    """
    if distribution in ("rlcatalog", "rlcatalog-torch", "rlcatalog-tf"):
        return needed_by(distribution)
    names = needed_by(distribution, *FRAMEWORKS) + needed_by("rlcatalog-preprocessors")
    return list(dict.fromkeys(names))  # each once


def modules_without(*distributions: str) -> list[str]:
    """Return the modules of our packages except some, which must be absent from an environment."""
    return [module_of(name) for name in FOLDERS if name not in distributions]


def engines_missing_for(distribution: str) -> list[str]:
    """Return the packages of others that a package requires and that are not installed here."""
    missing = []
    for ours in environment_of(distribution):
        project = tomllib.loads((FOLDERS[ours] / "pyproject.toml").read_text(encoding="utf-8"))
        for line in project["project"]["dependencies"]:
            name = Requirement(line).name
            if name not in FOLDERS and not is_installed(name):
                missing.append(name)
    return missing


def is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def run_every(distributions: Iterable[str], *, step: int) -> list[Any]:
    """Return cases of which `make test` runs the first of every few, and `make attack` the rest."""
    cases = []
    for place, name in enumerate(distributions):
        marks = [] if place % step == 0 else [pytest.mark.slow]
        cases.append(pytest.param(name, marks=marks))
    return cases


# --- wheels ---------------------------------------------------------------------------------------


def find_faults_of_wheel(wheel: Path, distribution: str) -> list[str]:
    """Return what a wheel contains and should not, and what it lacks."""
    module = module_of(distribution)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        entry_points = ""
        if f"{metadata}/entry_points.txt" in names:
            entry_points = archive.read(f"{metadata}/entry_points.txt").decode()
    faults = []
    for top in sorted({name.split("/")[0] for name in names} - {module, metadata}):
        faults.append(f"a second top entry: {top}")
    for name in names:
        *folders, file = name.split("/")
        is_of_tests = "tests" in folders or file.startswith("test_") or file == "conftest.py"
        if is_of_tests or "__pycache__" in folders:
            faults.append(f"not for users: {name}")
    if distribution != "rlcatalog" and f"{module}.plugin" not in entry_points:
        faults.append("its entry point is missing")
    if f"{module}/py.typed" not in names:
        faults.append("no py.typed")
    return faults


@pytest.mark.parametrize("distribution", FOLDERS)
def test_wheel_contains_one_package_for_users(wheels, distribution):
    assert find_faults_of_wheel(wheels[distribution], distribution) == []


@pytest.mark.parametrize("distribution", FOLDERS)
def test_wheel_contains_every_source_file(wheels, distribution):
    folder = FOLDERS[distribution] / "src"
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    sources = {path.relative_to(folder).as_posix() for path in files}
    with zipfile.ZipFile(wheels[distribution]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == sources


def test_faults_of_a_wheel_are_found(wheels, tmp_path):
    # A copy of a good wheel with two files too few and two too many.
    bad_wheel = tmp_path / wheels["rlcatalog-fcnet"].name
    with (
        zipfile.ZipFile(wheels["rlcatalog-fcnet"]) as good,
        zipfile.ZipFile(bad_wheel, "w") as bad,
    ):
        for name in good.namelist():
            if not name.endswith(("py.typed", "entry_points.txt")):
                bad.writestr(name, good.read(name))
        bad.writestr("helpers/__init__.py", "")
        bad.writestr("rlcatalog_fcnet/tests/test_x.py", "")
    assert find_faults_of_wheel(bad_wheel, "rlcatalog-fcnet") == [
        "a second top entry: helpers",
        "not for users: rlcatalog_fcnet/tests/test_x.py",
        "its entry point is missing",
        "no py.typed",
    ]


# --- each package alone ---------------------------------------------------------------------------


@pytest.fixture(scope="session")
def reports(environment, request) -> dict[str, Future]:
    """Distribution → the report to come of its probe.

    The probes are slow, so they start together, in a process that has imported the frameworks.
    """
    empty = environment()

    def run_probe(distribution: str) -> dict:
        packages = environment_of(distribution)
        return environment(*packages).probe(
            ALONE,
            empty,
            distribution=distribution,
            module=module_of(distribution),
            siblings=modules_without(*packages),
        )

    wanted = set()
    for item in request.session.items:
        if item.path == Path(__file__) and "reports" in item.fixturenames:
            distribution = item.callspec.params["distribution"]
            if not engines_missing_for(distribution):
                wanted.add(distribution)
    pool = ThreadPoolExecutor(1)
    futures = {name: pool.submit(run_probe, name) for name in FOLDERS if name in wanted}
    pool.shutdown(wait=False)
    return futures


@pytest.mark.parametrize("distribution", run_every(FOLDERS, step=3))
class TestAlone:
    """A package beside the packages that it requires."""

    @pytest.fixture(autouse=True)
    def skip_without_its_engine(self, distribution):
        missing = engines_missing_for(distribution)
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")

    def test_package_is_loaded(self, reports, distribution):
        report = reports[distribution].result()
        names = [name for name in environment_of(distribution) if name != "rlcatalog"]
        assert report["plugins"] == [[name, "loaded", None] for name in sorted(names)]

    def test_parts_work_or_can_be_imported(self, reports, distribution):
        report = reports[distribution].result()
        assert sorted(report["worked"] + report["imported"]) == sorted(report["parts"])

    def test_kernel_has_no_parts_and_others_have_some(self, reports, distribution):
        report = reports[distribution].result()
        # The package for plain modules adds code to the frameworks' parts.
        has_parts = distribution not in ("rlcatalog", "rlcatalog-plain")
        assert bool(report["parts"]) == has_parts

    def test_some_part_works_in_each_framework(self, reports, distribution):
        report = reports[distribution].result()
        # These kinds are for parts of other packages, so they have nothing to work on.
        for_others = ("command/", "engine/", "check/", "exporter/", "env_adapter/")
        parts = [part for part in report["parts"] if not part.startswith(for_others)]
        for framework in {part.rpartition("/")[2] for part in parts}:
            assert any(part.endswith(f"/{framework}") for part in report["worked"])


WITH_FRAMEWORK_EXTRAS = [
    name for name in FOLDERS if name not in ("rlcatalog-torch", "rlcatalog-tf")
]


@pytest.mark.parametrize("distribution", run_every(WITH_FRAMEWORK_EXTRAS, step=4))
def test_package_without_a_framework_names_the_extra(environment, bare, distribution):
    env = environment(*needed_by(distribution), without=("torch", "tensorflow"))

    # The program asks for both frameworks, and for each part of the package in both.
    report = env.probe(WITHOUT_FRAMEWORKS, bare, distribution=distribution)

    assert set(report["statuses"]) <= {"loaded"}
    messages = report["said"]
    assert install_hint("rlcatalog[torch]") in messages.pop("torch")
    assert install_hint("rlcatalog[tf]") in messages.pop("tf")
    for part, message in messages.items():
        framework = part.partition("/")[2]  # of a name such as "fcnet/torch"
        assert f"framework={framework!r} needs the package" in message
        assert install_hint(f"rlcatalog[{framework}]") in message
    is_built_in = FOLDERS[distribution].parent.name.startswith("builtin")
    if is_built_in and distribution != "rlcatalog-plain":  # which has code for frameworks, no part
        assert len(messages) >= 2  # a part in each framework


# --- some packages --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "missing"),
    [("torch", "tf"), pytest.param("tf", "torch", marks=pytest.mark.slow)],
)
def test_policy_acts_with_one_framework_and_names_the_other(environment, framework, missing):
    packages = [*PARTS, "rlcatalog-policy", f"rlcatalog-{framework}"]
    env = environment(*packages, without=(FRAMEWORKS[missing],))

    # The program acts with the installed framework, and then asks for the missing one.
    report = env.probe(
        ONE_FRAMEWORK,
        framework=framework,
        missing=missing,
        missing_module=FRAMEWORKS[missing],
        siblings=modules_without(*packages),
        ours=[module_of(name) for name in packages],
    )

    assert report["shapes"] == [[1], [1, 2], [1]]  # of actions, logits and values
    assert report["modules"] == [FRAMEWORKS[framework]]
    error = report["said"]
    assert f"framework={missing!r} needs the package 'rlcatalog-{missing}'" in error
    assert f"[{missing}]'" in error  # the extra of the install line


def without_each(distributions):
    """Return a parameter for each package, of which `make test` runs a few."""
    return pytest.mark.parametrize(
        "distribution",
        [
            pytest.param(name, marks=[] if name in OF_MAKE_TEST else [pytest.mark.slow])
            for name in distributions
            if name != "rlcatalog-cli"  # which runs the commands
        ],
    )


@pytest.fixture(scope="session")
def run_without(full_environment, bare, wheels):
    """Run commands in an environment that lacks one package.

    Returns the status, stdout and stderr of each command, by its name.
    """

    @cache
    def run(distribution):
        env_id = ENVIRONMENTS.get(distribution, "CartPole-v1")
        commands = {
            "list": ["list", "--json"],
            "explain": ["explain", env_id],
            "explain CartPole": ["explain", "CartPole-v1", "--json"],
        }
        arguments = json.dumps(list(commands.values()))
        full_environment.uninstall(distribution)
        try:
            process = full_environment.run("-c", COMMANDS, arguments, warmed=bare)
        finally:
            full_environment.install(wheels[distribution])
        assert process.returncode == 0, process.stderr
        return dict(zip(commands, json.loads(process.stdout), strict=True))

    return run


def test_parts_work_without_the_policy(environment):
    packages = [*PARTS, "rlcatalog-torch"]
    made = environment(*packages, without=("tensorflow",))
    report = made.probe(LOOKUPS, siblings=modules_without(*packages))
    assert report["logp"] == pytest.approx(report["expected"], rel=1e-5)
    assert report["value"] == [1]  # its shape


@pytest.fixture(scope="module")
def kernel(environment):
    """An environment with the kernel and the command line, without a part."""
    return environment("rlcatalog", "rlcatalog-cli", without=("torch", "tensorflow"))


@pytest.fixture(scope="module")
def messages_of_kernel(kernel, bare):
    """What was asked of the kernel → the message that something is not installed."""
    return kernel.probe(NOT_THERE, bare)


class TestKernelAlone:
    """The kernel and the command line, without a part."""

    @pytest.fixture
    def run_command(self, kernel, bare):
        def run(*arguments):
            return kernel.run("-m", "rlcatalog_cli", *arguments, warmed=bare)

        return run

    def test_list_says_what_to_install(self, run_command):
        done = run_command("list")
        assert done.returncode == 0, done.stderr
        assert "No parts are installed" in done.stdout
        assert install_hint("rlcatalog[torch]") in " ".join(done.stdout.split())

    def test_list_as_json_has_the_command_line_alone(self, run_command):
        done = run_command("list", "--json")
        assert done.returncode == 0, done.stderr
        (plugin,) = json.loads(done.stdout)["plugins"]
        assert plugin["distribution"] == "rlcatalog-cli"

    def test_explain_says_what_to_install(self, run_command):
        done = run_command("explain", "CartPole-v1")
        assert done.returncode == 1
        assert install_hint("rlcatalog-preprocessors") in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("name", "owner"),
        [
            ("build", "rlcatalog-policy"),
            ("load", "rlcatalog-policy"),
            ("Policy", "rlcatalog-policy"),
            ("Actor", "rlcatalog-export"),
        ],
    )
    def test_name_of_a_missing_package_says_what_to_install(
        self, messages_of_kernel, monkeypatch, name, owner
    ):
        # The hint of this process leaves out what is installed here, but not there.
        monkeypatch.setattr(install_hints, "missing_distributions", list)
        sentence = f"rlcatalog.{name} is provided by {owner}, which is not installed."
        assert messages_of_kernel[name] == f"{sentence} {install_hint(owner)}"

    def test_lookups_say_what_to_install(self, messages_of_kernel):
        assert install_hint("rlcatalog-preprocessors") in messages_of_kernel["explain"]
        assert messages_of_kernel["framework"].endswith(install_hint("rlcatalog[torch]"))


# --- uninstalling ---------------------------------------------------------------------------------

NEEDED_BY_CARTPOLE = ("rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical")
#: Package → an environment that needs it.
ENVIRONMENTS = dict.fromkeys(NEEDED_BY_CARTPOLE, "CartPole-v1")
ENVIRONMENTS["rlcatalog-gaussian"] = "Pendulum-v1"
OF_MAKE_TEST = (*ENVIRONMENTS, "rlcatalog-policy", "rlcatalog-lstm")


@pytest.fixture(scope="session")
def full_environment(environment):
    """An environment with all our packages, without frameworks, because lookups need none."""
    return environment("rlcatalog", *PLUGINS, without=("torch", "tensorflow"))


@without_each(PLUGINS)
def test_other_packages_are_loaded_after_uninstalling_one(run_without, distribution):
    status, stdout, stderr = run_without(distribution)["list"]

    assert status == 0, stderr
    statuses = {
        plugin["distribution"]: plugin["status"] for plugin in json.loads(stdout)["plugins"]
    }
    assert statuses == dict.fromkeys(set(PLUGINS) - {distribution}, "loaded")


@pytest.mark.parametrize("distribution", ENVIRONMENTS)
def test_explain_names_the_package_that_was_uninstalled(run_without, distribution):
    status, _, stderr = run_without(distribution)["explain"]

    assert status == 1
    assert f"{distribution}, which is not installed. {install_hint(distribution)}" in stderr
    assert "Traceback" not in stderr


@without_each([name for name in PLUGINS if name not in NEEDED_BY_CARTPOLE])
def test_explain_works_after_uninstalling_another_package(run_without, distribution):
    status, stdout, stderr = run_without(distribution)["explain CartPole"]

    assert status == 0, stderr
    assert json.loads(stdout)["action_dist"]["chosen"] == "categorical"


# --- faults that the probes find ------------------------------------------------------------------


def write_wheel(folder: Path, distribution: str, **modules: str) -> Path:
    """Write the wheel of a plugin with some modules: name → code."""
    module = module_of(distribution)
    path = folder / f"{module}-1.0-py3-none-any.whl"
    metadata = f"{module}-1.0.dist-info"
    entry_point = f"[rlcatalog.plugins]\n{module} = {module}.plugin\n"
    headers = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/__init__.py", "")
        for name, code in modules.items():
            archive.writestr(f"{module}/{name}.py", code)
        archive.writestr(f"{metadata}/METADATA", headers)
        archive.writestr(f"{metadata}/entry_points.txt", entry_point)
    return path


SOUND_PLUGIN = """
import rlcatalog

@rlcatalog.hookimpl
def rlcatalog_filters():
    return []
"""


@pytest.fixture
def kernel_environment(environment):
    return environment("rlcatalog", without=("torch", "tensorflow"))


def probe_alone(made, distribution: str) -> dict:
    return made.probe(
        ALONE,
        distribution=distribution,
        module=module_of(distribution),
        siblings=modules_without("rlcatalog"),
    )


def test_sound_plugin_is_loaded(kernel_environment, tmp_path):
    kernel_environment.install(write_wheel(tmp_path, "sound", plugin=SOUND_PLUGIN))
    assert probe_alone(kernel_environment, "sound")["plugins"] == [["sound", "loaded", None]]


def test_import_of_an_undeclared_package_is_found(kernel_environment, tmp_path):
    undeclared = "from rlcatalog_fcnet import config"
    wheel = write_wheel(tmp_path, "sneaky", plugin="import rlcatalog", inner_file=undeclared)
    kernel_environment.install(wheel)
    with pytest.raises(ProbeError, match="No module named 'rlcatalog_fcnet'"):
        probe_alone(kernel_environment, "sneaky")


def test_package_that_should_be_absent_is_found(kernel_environment, wheels, tmp_path):
    kernel_environment.install(wheels["rlcatalog-fcnet"])
    kernel_environment.install(write_wheel(tmp_path, "sound", plugin=SOUND_PLUGIN))
    with pytest.raises(ProbeError, match="rlcatalog_fcnet is there"):
        probe_alone(kernel_environment, "sound")


def test_module_from_outside_the_environment_is_found(kernel_environment, tmp_path):
    (tmp_path / "outside.py").write_text("", encoding="utf-8")
    (kernel_environment.site / "outside.pth").write_text(f"{tmp_path}\n", encoding="utf-8")
    with pytest.raises(ProbeError, match=r"AssertionError: .*outside\.py"):
        kernel_environment.probe("import outside\nfiles_are_here('outside')")


REPORT_STATUSES = """
import warnings, rlcatalog
warnings.simplefilter("ignore")
plugins = rlcatalog.Catalog(environ={}).plugins
report["statuses"] = {plugin.distribution: plugin.status for plugin in plugins}
"""


def test_plugin_that_raises_is_reported(kernel_environment, tmp_path):
    raising = "import rlcatalog\nraise RuntimeError('no')"
    kernel_environment.install(write_wheel(tmp_path, "broken", plugin=raising))
    assert kernel_environment.probe(REPORT_STATUSES)["statuses"] == {"broken": "failed"}


def test_plugin_without_an_entry_point_is_not_reported(kernel_environment, tmp_path):
    kernel_environment.install(write_wheel(tmp_path, "entryless", plugin=SOUND_PLUGIN))
    (kernel_environment.site / "entryless-1.0.dist-info/entry_points.txt").unlink()
    assert kernel_environment.probe(REPORT_STATUSES)["statuses"] == {}
