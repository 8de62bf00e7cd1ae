"""Discovery of plugins: their records, headers, versions, and which of them are loaded."""

from __future__ import annotations

import email
from dataclasses import replace
from types import SimpleNamespace

import importlib_metadata
import pytest
from packaging.specifiers import SpecifierSet

from rlcatalog import Catalog
from rlcatalog.internals import disabled_reason, find_plugins, installed_version
from rlcatalog.plugins.discovery import incompatible_reason, normalize, scan

# --- plugins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling", ["some-dist", "Some_Dist", "some.dist", "SOME--DIST", " some-_.dist "]
)
def test_distribution_name_has_one_spelling(spelling):
    assert normalize(spelling) == "some-dist"


def test_record_has_the_fields_of_the_metadata(entry_point):
    some = entry_point("Some_Dist", name="some", version="2.3", requires=["rlcatalog>=0.1"])

    [record] = find_plugins([some])

    assert record.name == "some"
    assert record.entry_point is some
    assert record.distribution == "some-dist"
    assert record.version == "2.3"
    assert record.requires == ("rlcatalog>=0.1",)


def test_entry_point_without_distribution_is_its_own_package(entry_point):
    [record] = find_plugins([replace(entry_point("x"), dist=None)])

    # A record with an empty name would be that of the running program.
    assert record.distribution == "x"
    assert record.version == ""
    assert record.requires == ()


def test_entry_point_without_dist_attribute_is_its_own_package():
    [record] = find_plugins([SimpleNamespace(name="x", value="x.plugin")])

    assert record.distribution == "x"
    assert record.version == ""
    assert record.requires == ()


def test_plugin_seen_twice_is_listed_once(entry_point):
    points = [entry_point("Some.Dist", name="some"), entry_point("some_dist", name="some")]

    [record] = find_plugins(points)

    assert record.distribution == "some-dist"


def test_plugin_installed_twice_is_the_first_on_the_path(entry_point):
    points = [entry_point("acme", version="2.0"), entry_point("acme", version="1.0")]

    [record] = find_plugins(points)

    # Python would import the first one.
    assert record.version == "2.0"


@pytest.mark.parametrize(
    ("distribution", "name", "value"),
    [
        pytest.param("emca", "x", "m", id="distribution"),
        pytest.param("acme", "y", "m", id="name"),
        pytest.param("acme", "x", "n", id="module"),
    ],
)
def test_plugins_that_differ_in_one_field_are_both_kept(entry_point, distribution, name, value):
    point = entry_point("acme", name="x", value="m")
    other_point = entry_point(distribution, name=name, value=value)

    records = find_plugins([point, other_point])

    assert [record.entry_point for record in records] == [point, other_point]


def test_plugins_are_sorted_by_name(entry_point):
    points = [entry_point(name) for name in ("gamma-2", "Beta", "gamma-10", "alpha")]

    records = find_plugins(points)

    names = [record.distribution for record in records]
    assert names == ["alpha", "beta", "gamma-10", "gamma-2"]


# --- headers --------------------------------------------------------------------------------------


def read_record(distribution):
    """Return the record of a plugin that this distribution provides."""
    [record] = find_plugins([SimpleNamespace(name="", value="", dist=distribution)])
    return record


def join_lines(value):
    """Return a header's value on one line."""
    return " ".join(value.split())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "Name: Acme_Net\nVersion: 2.3\nRequires-Dist: rlcatalog>=0.1\n",
            id="without-description",
        ),
        pytest.param("NAME: acme\nVERSION: 2\nREQUIRES-DIST: numpy\n", id="names-in-capitals"),
        pytest.param("Name:acme\nVersion:2\nRequires-Dist:numpy>=2\n", id="no-space-after-colon"),
        pytest.param(
            "Name: acme\nRequires-Dist: acme @ https://example.org/acme.whl\n",
            id="colon-in-the-value",
        ),
        pytest.param(
            "Name: acme\nRequires-Dist: rlcatalog\n  >=0.1\n\t,<9\n",
            id="continued-on-the-next-line",
        ),
        pytest.param(
            "Name: acme\nRequires-Dist-Extra: numpy\nX-Name: other\n", id="similar-headers"
        ),
        pytest.param(
            "Name: acme\nDescription: one\n        Version: 9\n",
            id="headers-in-a-folded-description",
        ),
        pytest.param(
            "Name: acme\n\nName: other\nRequires-Dist: numpy\n", id="headers-in-the-description"
        ),
        pytest.param(
            "Name: acme\nName: b\nVersion: 1\nVersion: 2\nRequires-Dist: a\n",
            id="each-header-twice",
        ),
        pytest.param("Name: acme\nVersion:\nRequires-Dist: numpy\n", id="empty-header"),
        pytest.param("", id="empty-file"),
    ],
)
def test_headers_agree_with_the_email_parser(tmp_path, text):
    (tmp_path / "METADATA").write_text(text, encoding="utf-8")
    expected = email.message_from_string(text)

    record = read_record(importlib_metadata.Distribution.at(tmp_path))

    assert record.distribution == normalize(expected.get("Name", ""))
    assert record.version == expected.get("Version", "")
    requirements = [join_lines(value) for value in expected.get_all("Requires-Dist", [])]
    assert list(record.requires) == requirements


def test_record_has_headers_of_each_installed_package():
    distributions = importlib_metadata.distributions()
    wheels = [wheel for wheel in distributions if wheel.read_text("METADATA")]
    assert len(wheels) > 10  # otherwise this test would prove little

    for wheel in wheels:
        record = read_record(wheel)

        assert record.distribution == normalize(wheel.metadata["Name"])
        assert record.version == wheel.metadata["Version"]
        values = wheel.metadata.get_all("Requires-Dist") or []
        # A long value may be written on several lines.
        assert list(record.requires) == [join_lines(value) for value in values]


def test_headers_with_windows_line_endings_are_read(tmp_path):
    text = b"Name: acme\r\nVersion: 2\r\n\r\nVersion: 3\r\n"
    (tmp_path / "METADATA").write_bytes(text)

    record = read_record(importlib_metadata.Distribution.at(tmp_path))

    assert record.distribution == "acme"
    assert record.version == "2"  # the second one stands in the description


@pytest.mark.parametrize("file", ["acme.egg-info/PKG-INFO", "acme.egg-info"])
def test_headers_of_an_egg_are_read(tmp_path, file):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("Name: acme\nVersion: 2\n", encoding="utf-8")

    record = read_record(importlib_metadata.Distribution.at(tmp_path / "acme.egg-info"))

    assert record.distribution == "acme"
    assert record.version == "2"


def test_requirements_are_read_without_a_version(tmp_path, install_plugin, read_entry_points):
    info = install_plugin(tmp_path, "acme")
    (info / "METADATA").write_text("Name: acme\nRequires-Dist: rlcatalog>=99\n")

    [record] = find_plugins(read_entry_points(tmp_path))

    assert record.distribution == "acme"
    assert record.version == ""
    assert "needs rlcatalog>=99" in incompatible_reason(record, "0.1.0")


# --- installed versions ---------------------------------------------------------------------------


def test_installed_version_takes_any_spelling(tmp_path, install_plugin, read_entry_points):
    install_plugin(tmp_path, "acme-net")
    read_entry_points(tmp_path)

    assert installed_version("Acme_Net") == "1.0"


def test_installed_version_skips_remains_on_the_path(tmp_path, install_plugin, read_entry_points):
    remains = install_plugin(tmp_path / "first", "acme-net")
    (remains / "METADATA").unlink()
    install_plugin(tmp_path / "second", "acme-net")
    # Each goes to the front of the path, so that the first folder comes first.
    read_entry_points(tmp_path / "second")
    read_entry_points(tmp_path / "first")

    assert installed_version("acme-net") == "1.0"


def test_installed_version_is_none_for_an_absent_package():
    assert installed_version("acme-net") is None


def test_installed_version_is_empty_without_headers(tmp_path, install_plugin, read_entry_points):
    info = install_plugin(tmp_path, "acme-net")
    (info / "METADATA").unlink()
    read_entry_points(tmp_path)

    assert installed_version("acme-net") == ""


# --- disable and allow lists ----------------------------------------------------------------------


@pytest.fixture
def record(entry_point):
    """The record of a plugin `the_plugin`, of package `some-dist`."""
    [record] = find_plugins([entry_point("Some-Dist", name="the_plugin")])
    return record


@pytest.mark.parametrize(
    "names",
    [
        "some-dist",
        "Some_Dist",
        "SOME.DIST",
        "the_plugin",
        "The-Plugin",
        " some-dist ",
        "other, the-plugin",
        "other,,some_dist,",
        "*",
        "other, *",
    ],
)
def test_disable_list_takes_distributions_and_entry_points(record, names):
    reason = disabled_reason(record, {"RLCATALOG_DISABLE_PLUGINS": names})

    assert reason == f"disabled by RLCATALOG_DISABLE_PLUGINS={names!r}"


@pytest.mark.parametrize(
    "names", ["", " ", ",", "some", "some-dist-2", "dist", "plugin", "some-dist*", "some dist"]
)
def test_disable_list_leaves_other_names_alone(record, names):
    assert disabled_reason(record, {"RLCATALOG_DISABLE_PLUGINS": names}) is None


@pytest.mark.parametrize("names", ["some-dist", "Some_Dist", "the-plugin", " other , THE_PLUGIN "])
def test_allow_list_takes_distributions_and_entry_points(record, names):
    assert disabled_reason(record, {"RLCATALOG_LOAD_PLUGINS": names}) is None


@pytest.mark.parametrize("names", ["", " ", ",", "other", "some"])
def test_allow_list_excludes_all_other_plugins(record, names):
    reason = disabled_reason(record, {"RLCATALOG_LOAD_PLUGINS": names})

    assert reason == f"not in RLCATALOG_LOAD_PLUGINS={names!r}"


def test_plugins_are_loaded_without_lists(record):
    assert disabled_reason(record, {}) is None


def test_disable_list_overrides_allow_list(record):
    environ = {"RLCATALOG_DISABLE_PLUGINS": "the_plugin", "RLCATALOG_LOAD_PLUGINS": "some-dist"}

    assert "RLCATALOG_DISABLE_PLUGINS" in str(disabled_reason(record, environ))


# --- the versions of rlcatalog that a plugin needs ------------------------------------------------


@pytest.fixture
def explain_incompatibility(entry_point):
    """Return why a plugin with these requirements cannot be used, or None if it can."""

    def explain(*requires, installed="0.1.0"):
        [record] = find_plugins([entry_point("acme", requires=requires)])
        return incompatible_reason(record, installed)

    return explain


VERSIONS = ["0", "0.1", "0.1.0", "0.1.10", "0.2", "0.2.0", "1", "10.0"]


@pytest.mark.parametrize("end", VERSIONS)
@pytest.mark.parametrize("start", VERSIONS)
def test_version_ranges_agree_with_packaging(explain_incompatibility, start, end):
    versions = SpecifierSet(f"<{end},>={start}")

    for installed in [*VERSIONS, "0.1.5", "0.2rc1", "0.1.0.dev3"]:
        is_allowed = versions.contains(installed, prereleases=True)
        reason = explain_incompatibility(f"rlcatalog<{end},>={start}", installed=installed)

        assert (reason is None) == is_allowed, installed


@pytest.mark.parametrize(
    "line",
    [
        "rlcatalog>=1",
        "rlcatalog >= 1",
        "rlcatalog (>=1)",
        "rlcatalog[torch]>=1",
        "RLCatalog>=1",
        'rlcatalog>=1; python_version >= "3"',
    ],
)
def test_requirement_that_excludes_this_version_is_a_reason(explain_incompatibility, line):
    reason = explain_incompatibility("numpy>=99", line, installed="0.1.0")

    assert reason == "it needs rlcatalog>=1, but this is rlcatalog 0.1.0"


@pytest.mark.parametrize(
    "line",
    [
        "rlcatalog",
        "rlcatalog<0.2,>=0.1",
        "rlcatalog==0.1.*",
        "rlcatalog[torch]; extra == 'torch'",
        "rlcatalog>=1; extra == 'new'",
        'rlcatalog>=1; python_version < "3"',
        "rlcatalog-fcnet>=99",
        "rlcatalog_fcnet>=99",
        "rlcatalogue>=99",
        "rlcatalog.extra>=99",
        "rlcatalog @ https://example.org/rlcatalog-0.1.0-py3-none-any.whl",
        "numpy>=99",
    ],
)
def test_requirement_that_allows_this_version_is_fine(explain_incompatibility, line):
    assert explain_incompatibility(line, installed="0.1.0") is None


def test_requirements_count_on_each_line(explain_incompatibility):
    reason = explain_incompatibility("rlcatalog>=0.1", "rlcatalog<0.1", installed="0.1.0")

    assert reason is not None


@pytest.mark.parametrize(
    ("requirement", "installed", "is_compatible"),
    [
        ("rlcatalog>=0.1,<0.2", "0.1.1.dev3", True),
        ("rlcatalog>=0.2", "0.2.0rc1", False),
    ],
)
def test_prerelease_comes_before_its_release(
    explain_incompatibility, requirement, installed, is_compatible
):
    reason = explain_incompatibility(requirement, installed=installed)

    assert (reason is None) == is_compatible


@pytest.mark.parametrize("line", ["rlcatalog >=> 1", "rlcatalog==", "rlcatalog; extra ="])
def test_unreadable_requirement_is_a_reason(explain_incompatibility, line):
    assert f"unreadable requirement {line!r}" in explain_incompatibility(line)


# --- scans of the installed packages --------------------------------------------------------------


@pytest.fixture
def fresh_scan():
    """Forget the installed packages, which are scanned once per process."""
    scan.cache_clear()
    yield
    scan.cache_clear()


@pytest.mark.usefixtures("fresh_scan")
def test_installed_packages_are_scanned_once_per_process(monkeypatch):
    scans = []

    def scan_without_packages():
        scans.append("scan")
        return []

    monkeypatch.setattr(importlib_metadata, "distributions", scan_without_packages)
    Catalog(environ={})
    Catalog(environ={})

    assert scans == ["scan"]


@pytest.mark.usefixtures("fresh_scan")
def test_catalog_of_given_entry_points_does_not_scan(monkeypatch):
    def distributions(**selection):
        pytest.fail("the installed packages were scanned")

    monkeypatch.setattr(importlib_metadata, "distributions", distributions)

    assert Catalog([], environ={}).plugins == []


@pytest.mark.usefixtures("fresh_scan")
def test_scan_reads_only_the_headers_of_plugins(tmp_path, install_plugin, monkeypatch):
    install_plugin(tmp_path, "acme-net")
    no_plugin = install_plugin(tmp_path, "other")
    # The other package has a command, and no plugin. Only the two are on the path.
    (no_plugin / "entry_points.txt").write_text("[console_scripts]\nother = other:main\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    files_read = []
    read_text = importlib_metadata.PathDistribution.read_text

    def record_file(distribution, filename):
        files_read.append(filename)
        return read_text(distribution, filename)

    monkeypatch.setattr(importlib_metadata.PathDistribution, "read_text", record_file)
    [record] = find_plugins(scan())

    assert record.distribution == "acme-net"
    assert files_read.count("METADATA") == 1


# --- damaged installations ------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh_scan")
@pytest.mark.parametrize(
    ("file", "text"),
    [
        # An interrupted uninstallation leaves such a folder behind.
        pytest.param("METADATA", None, id="no-metadata"),
        pytest.param("METADATA", "Metadata-Version: 2.1\n", id="metadata-without-a-name"),
        pytest.param(
            "entry_points.txt",
            "[rlcatalog.plugins]\nno equals sign\n",
            id="entry-points-that-cannot-be-parsed",
        ),
        pytest.param(
            "entry_points.txt",
            "[rlcatalog.plugins]\ndamaged = not-a-module\n",
            id="entry-point-that-names-no-module",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.PluginWarning")
def test_damaged_installation_does_not_hide_other_plugins(
    tmp_path, install_plugin, read_entry_points, monkeypatch, file, text
):
    install_plugin(tmp_path, "healthy")
    damaged = install_plugin(tmp_path, "damaged", "raise RuntimeError")
    read_entry_points(tmp_path)  # which puts the folder on the path
    (damaged / file).unlink()
    if text is not None:
        (damaged / file).write_text(text)
    # No other package is installed.
    distributions = list(importlib_metadata.distributions(path=[str(tmp_path)]))
    monkeypatch.setattr(importlib_metadata, "distributions", lambda **selection: distributions)

    statuses = {record.distribution: record.status for record in Catalog(environ={}).plugins}

    assert statuses["healthy"] == "loaded"
    # It fails, or is not seen as a plugin.
    assert statuses.get("damaged") in (None, "failed")


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.PluginWarning")
def test_plugin_without_metadata_is_not_a_registered_part(
    tmp_path, install_plugin, read_entry_points
):
    source = """
from rlcatalog import ModelSpec, hookimpl

@hookimpl
def rlcatalog_models():
    return [ModelSpec("net", {"torch": "m:C"}, "")]
"""
    info = install_plugin(tmp_path, "damaged", source)
    points = read_entry_points(tmp_path)
    (info / "METADATA").unlink()  # its folder still has its name

    catalog = Catalog(points, environ={})

    assert [record.distribution for record in catalog.plugins] == ["damaged"]
    # Only parts that the program registers itself are called "in process".
    assert not any(part.in_process for part in catalog.parts())
