"""From entry points to a load plan: the pure functions of `rlcatalog.plugins.discovery`."""

from __future__ import annotations

import email
import itertools
from dataclasses import replace
from types import SimpleNamespace

import importlib_metadata
import pytest
from packaging.specifiers import SpecifierSet

from rlcatalog import Catalog
from rlcatalog.internals import disabled_reason, find_plugins, installed_version
from rlcatalog.plugins.discovery import GROUP, incompatible_reason, normalize, scan

# --- plugins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling", ["some-dist", "Some_Dist", "some.dist", "SOME--DIST", " some-_.dist "]
)
def test_distribution_name_has_one_spelling(spelling):
    assert normalize(spelling) == "some-dist"


def test_record_has_the_fields_of_the_metadata(entry_point):
    (found,) = find_plugins(
        [entry_point("Some_Dist", name="some", version="2.3", requires=["rlcatalog>=0.1", "numpy"])]
    )
    assert (found.name, found.entry_point.value, found.distribution, found.version) == (
        "some",
        "some.plugin",
        "some-dist",
        "2.3",
    )
    assert found.requires == ("rlcatalog>=0.1", "numpy")


def test_record_of_distribution_without_requirements(entry_point):
    (found,) = find_plugins([entry_point("alone")])
    assert found.requires == ()


def test_entry_point_without_distribution_is_its_own_package(entry_point):
    (found,) = find_plugins([replace(entry_point("x"), dist=None)])
    # Or it would be the program's own.
    assert (found.distribution, found.version, found.requires) == ("x", "", ())


def test_entry_point_without_dist_attribute_is_its_own_package():
    (found,) = find_plugins([SimpleNamespace(name="x", value="x.plugin")])
    assert (found.distribution, found.version, found.requires) == ("x", "", ())


def test_plugin_seen_twice_is_listed_once(entry_point):
    twice = [entry_point("Some.Dist", name="some"), entry_point("some_dist", name="some")]
    assert [c.distribution for c in find_plugins(twice)] == ["some-dist"]


def test_plugin_installed_twice_is_the_first_on_the_path(entry_point):
    # The one that would be imported.
    twice = [entry_point("a", version="2.0"), entry_point("a", version="1.0")]
    assert [c.version for c in find_plugins(twice)] == ["2.0"]


def test_plugins_that_differ_in_anything_are_all_kept(entry_point):
    different = [
        entry_point("a", name="x", value="m"),
        entry_point("b", name="x", value="m"),
        entry_point("a", name="y", value="m"),
        entry_point("a", name="x", value="n"),
    ]
    found = [(c.distribution, c.name, c.entry_point.value) for c in find_plugins(different)]
    assert found == [("a", "x", "m"), ("a", "x", "n"), ("a", "y", "m"), ("b", "x", "m")]


def test_plugins_are_sorted_by_name(entry_point):
    points = [entry_point(name) for name in ("Beta", "alpha", "gamma-2", "gamma-10")]
    orders = {
        tuple(c.distribution for c in find_plugins(permutation))
        for permutation in itertools.permutations(points)
    }
    assert orders == {("alpha", "beta", "gamma-10", "gamma-2")}


def test_metadata_is_read_once_per_plugin(entry_point):
    reads = []

    class Counting:
        def read_text(self, filename):
            reads.append(filename)
            return entry_point("counted").dist.read_text(filename)

    find_plugins([SimpleNamespace(name="counted", value="counted.plugin", dist=Counting())])
    assert reads == ["METADATA"]


# --- headers --------------------------------------------------------------------------------------


def record_of(distribution):
    """Return the record of a plugin that this distribution provides."""
    (record,) = find_plugins([SimpleNamespace(name="", value="", dist=distribution)])
    return record


def join_lines(value):
    """Return a header's value on one line."""
    return " ".join(value.split())


HEADERS = {
    "without a description": "Name: Acme_Net\nVersion: 2.3\nRequires-Dist: rlcatalog>=0.1\n",
    "names in capitals": "NAME: acme\nVERSION: 2\nREQUIRES-DIST: numpy\n",
    "no space after the colon": "Name:acme\nVersion:2\nRequires-Dist:numpy>=2\n",
    "a colon in the value": "Name: acme\nRequires-Dist: acme @ https://example.org/acme.whl\n",
    "continued on the next line": "Name: acme\nRequires-Dist: rlcatalog\n  >=0.1\n\t,<9\n",
    "a similar header": "Name: acme\nRequires-Dist-Extra: numpy\nX-Name: other\n",
    "headers in a folded description": "Name: acme\nDescription: one\n        Version: 9\n",
    "headers in the description": "Name: acme\n\nName: other\nRequires-Dist: numpy\n",
    "each header twice": "Name: acme\nName: b\nVersion: 1\nVersion: 2\nRequires-Dist: a\n",
    "an empty header": "Name: acme\nVersion:\nRequires-Dist: numpy\n",
    "an empty file": "",
}


@pytest.mark.parametrize("text", HEADERS.values(), ids=HEADERS)
def test_headers_agree_with_the_email_parser(tmp_path, text):
    (tmp_path / "METADATA").write_text(text, encoding="utf-8")
    expected = email.message_from_string(text)
    record = record_of(importlib_metadata.Distribution.at(tmp_path))
    assert record.distribution == normalize(expected.get("Name", ""))
    assert record.version == expected.get("Version", "")
    requires = map(join_lines, expected.get_all("Requires-Dist", []))
    assert record.requires == tuple(requires)


def test_headers_of_all_installed_packages_agree():
    distributions = importlib_metadata.distributions()
    wheels = [wheel for wheel in distributions if wheel.read_text("METADATA")]
    assert len(wheels) > 10
    for wheel in wheels:
        record = record_of(wheel)
        assert record.distribution == normalize(wheel.metadata["Name"])
        assert record.version == wheel.metadata["Version"]
        requires = map(join_lines, wheel.metadata.get_all("Requires-Dist") or ())
        assert record.requires == tuple(requires)


def test_headers_in_any_line_ending_are_read(tmp_path):
    text = b"Name: acme\r\nVersion: 2\r\n\r\nVersion: 3\r\n"
    (tmp_path / "METADATA").write_bytes(text)
    record = record_of(importlib_metadata.Distribution.at(tmp_path))
    assert (record.distribution, record.version) == ("acme", "2")


@pytest.mark.parametrize("file", ["acme.egg-info/PKG-INFO", "acme.egg-info"])
def test_headers_of_an_egg_are_read(tmp_path, file):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("Name: acme\nVersion: 2\n", encoding="utf-8")
    record = record_of(importlib_metadata.Distribution.at(tmp_path / "acme.egg-info"))
    assert (record.distribution, record.version) == ("acme", "2")


def test_requirements_are_read_without_a_version(tmp_path, install, installed):
    info = install(tmp_path, "acme", "")
    (info / "METADATA").write_text("Name: acme\nRequires-Dist: rlcatalog>=99\n")
    (record,) = find_plugins(installed(tmp_path))
    assert (record.distribution, record.version) == ("acme", "")
    assert "needs rlcatalog>=99" in incompatible_reason(record, "0.1.0")


def test_requirement_on_two_lines_is_read(tmp_path, install, installed):
    install(tmp_path, "acme", "", requires=["rlcatalog\n  >=99"])
    (record,) = find_plugins(installed(tmp_path))
    assert "needs rlcatalog>=99" in incompatible_reason(record, "0.1.0")


# --- installed versions ---------------------------------------------------------------------------


def test_installed_version_takes_any_spelling(tmp_path, install, installed):
    install(tmp_path, "acme-net", "")
    installed(tmp_path)
    assert installed_version("Acme_Net") == "1.0"


def test_installed_version_skips_remains_on_the_path(tmp_path, install, installed):
    remains = install(tmp_path / "first", "acme-net", "")
    (remains / "METADATA").unlink()
    install(tmp_path / "second", "acme-net", "")
    for folder in ("second", "first"):  # each goes to the front of the path
        installed(tmp_path / folder)
    assert installed_version("acme-net") == "1.0"


def test_installed_version_is_none_for_an_absent_package():
    assert installed_version("acme-net") is None


def test_installed_version_is_empty_without_headers(tmp_path, install, installed):
    info = install(tmp_path, "acme-net", "")
    (info / "METADATA").unlink()
    installed(tmp_path)
    assert installed_version("acme-net") == ""


# --- disable and allow lists ----------------------------------------------------------------------


@pytest.fixture
def record(entry_point):
    (found,) = find_plugins([entry_point("Some-Dist", name="the_plugin")])
    return found


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
    both = {"RLCATALOG_DISABLE_PLUGINS": "the_plugin", "RLCATALOG_LOAD_PLUGINS": "some-dist"}
    assert "RLCATALOG_DISABLE_PLUGINS" in str(disabled_reason(record, both))


# --- the kernel a plugin asks for -----------------------------------------------------------------


def bound(entry_point, *requires: str, kernel: str = "0.1.0") -> str | None:
    (found,) = find_plugins([entry_point("bounded", requires=requires)])
    return incompatible_reason(found, kernel)


def test_version_ranges_agree_with_packaging(entry_point):
    bounds = ["0", "0.1", "0.1.0", "0.1.10", "0.2", "0.2.0", "1", "10.0"]
    kernels = [*bounds, "0.1.5", "0.2rc1", "0.1.0.dev3"]
    for end, start, kernel in itertools.product(bounds, bounds, kernels):
        served = SpecifierSet(f"<{end},>={start}").contains(kernel, prereleases=True)
        why = bound(entry_point, f"rlcatalog<{end},>={start}", kernel=kernel)
        assert (why is None) == served, (end, start, kernel)


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
def test_requirement_that_excludes_this_kernel_is_a_reason(entry_point, line):
    assert (
        bound(entry_point, "numpy>=99", line)
        == "it needs rlcatalog>=1, but this is rlcatalog 0.1.0"
    )


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
def test_requirement_that_allows_this_kernel_is_no_reason(entry_point, line):
    assert bound(entry_point, line) is None


def test_requirements_count_on_each_line(entry_point):
    assert bound(entry_point, "rlcatalog>=0.1", "rlcatalog<0.1") is not None


def test_development_version_counts_as_its_release(entry_point):
    assert bound(entry_point, "rlcatalog>=0.1,<0.2", kernel="0.1.1.dev3") is None
    assert bound(entry_point, "rlcatalog>=0.2", kernel="0.2.0rc1") is not None


@pytest.mark.parametrize("line", ["rlcatalog >=> 1", "rlcatalog==", "rlcatalog; extra ="])
def test_unreadable_requirement_is_a_reason(entry_point, line):
    reason = bound(entry_point, line)
    assert reason is not None
    assert f"unreadable requirement {line!r}" in reason


# --- the scan -------------------------------------------------------------------------------------


@pytest.fixture
def fresh_scan():
    scan.cache_clear()
    yield
    scan.cache_clear()


@pytest.mark.usefixtures("fresh_scan")
def test_installed_packages_are_scanned_once_per_process(entry_point, plugin, monkeypatch):
    calls, point = [], entry_point("found", plugin=plugin(rlcatalog_models=[]))
    found = SimpleNamespace(
        name="found",
        read_text=lambda file: "[rlcatalog.plugins]\nfound = found.plugin\n",
        entry_points=SimpleNamespace(
            select=lambda group: (point,) if group == GROUP == "rlcatalog.plugins" else ()
        ),
    )
    monkeypatch.setattr(
        importlib_metadata, "distributions", lambda: calls.append("walked") or [found]
    )
    for _ in range(3):
        assert [r.distribution for r in Catalog(environ={}).plugins] == ["found"]
    assert calls == ["walked"]


@pytest.mark.usefixtures("fresh_scan")
def test_given_entry_points_are_not_scanned_for(monkeypatch):
    monkeypatch.setattr(
        importlib_metadata, "distributions", lambda **selection: pytest.fail("scanned")
    )
    assert Catalog([], environ={}).plugins == []


@pytest.mark.usefixtures("fresh_scan")
def test_headers_are_read_of_plugins_only(tmp_path, install, installed, monkeypatch):
    install(tmp_path, "acme-net", "")
    other = install(tmp_path, "other", "")
    (other / "entry_points.txt").write_text("[console_scripts]\nother = other:main\n")
    installed(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    read_text = importlib_metadata.PathDistribution.read_text
    reads = []

    def read_and_record(distribution, filename):
        reads.append(filename)
        return read_text(distribution, filename)

    monkeypatch.setattr(importlib_metadata.PathDistribution, "read_text", read_and_record)
    assert [record.distribution for record in find_plugins(scan())] == ["acme-net"]
    assert reads.count("METADATA") == 1


def remains_without_metadata(folder):
    """A folder that an interrupted uninstallation left behind."""
    info = folder / "leftover-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(
        "[rlcatalog.plugins]\nleftover = leftover\n", encoding="utf-8"
    )


def entry_points_that_cannot_be_parsed(folder):
    info = folder / "leftover-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: leftover\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "[rlcatalog.plugins]\nno equals sign\n", encoding="utf-8"
    )


def metadata_without_a_name(folder):
    remains_without_metadata(folder)
    (folder / "leftover-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\n", encoding="utf-8"
    )


def an_entry_point_that_names_no_module(folder):
    entry_points_that_cannot_be_parsed(folder)
    target = folder / "leftover-1.0.dist-info" / "entry_points.txt"
    target.write_text("[rlcatalog.plugins]\nleftover = not-a-module\n", encoding="utf-8")


@pytest.mark.usefixtures("fresh_scan")
@pytest.mark.parametrize(
    "damage",
    [
        remains_without_metadata,
        metadata_without_a_name,
        entry_points_that_cannot_be_parsed,
        an_entry_point_that_names_no_module,
    ],
    ids=lambda damage: damage.__name__,
)
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.PluginWarning")
def test_damaged_installation_does_not_hide_other_plugins(
    tmp_path, install, installed, monkeypatch, damage
):
    install(tmp_path, "healthy", "")
    installed(tmp_path)
    damage(tmp_path)
    everything = importlib_metadata.distributions
    monkeypatch.setattr(
        importlib_metadata,
        "distributions",
        lambda **context: everything(path=[str(tmp_path)], **context),
    )
    statuses = {record.distribution: record.status for record in Catalog(environ={}).plugins}
    assert statuses["healthy"] == "loaded"
    assert statuses.get("leftover") in (None, "failed")


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.PluginWarning")
def test_plugin_without_metadata_is_not_a_registered_part(tmp_path, install, installed):
    source = (
        "from rlcatalog import ModelSpec, hookimpl\n\n\n@hookimpl\ndef rlcatalog_models():\n"
        '    return [ModelSpec("net", {"torch": "m:C"}, "")]\n'
    )
    info = install(tmp_path, "leftover", source)
    points = installed(tmp_path)
    (info / "METADATA").unlink()
    catalog = Catalog(points, environ={})
    assert [record.distribution for record in catalog.plugins] == ["leftover"]
    assert not any(component.in_process for component in catalog.components())
