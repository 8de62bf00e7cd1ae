"""From entry points to a load plan: the pure functions of `rlcatalog.plugins.discovery`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import pytest
from packaging.specifiers import SpecifierSet

from rlcatalog import Catalog
from rlcatalog.internals import disabled_reason, find_plugins
from rlcatalog.plugins.discovery import GROUP, incompatible_reason, normalize, scan

# --- plugins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling", ["some-dist", "Some_Dist", "some.dist", "SOME--DIST", " some-_.dist "]
)
def test_names_of_distributions_have_one_spelling(spelling):
    assert normalize(spelling) == "some-dist"


def test_a_record_says_what_the_metadata_says(entry_point):
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


def test_a_distribution_without_requirements(entry_point):
    (found,) = find_plugins([entry_point("alone")])
    assert found.requires == ()


def test_an_entry_point_without_distribution(entry_point):
    (found,) = find_plugins([replace(entry_point("x"), dist=None)])
    # Or it would be the program's own.
    assert (found.distribution, found.version, found.requires) == ("x", "", ())


def test_one_plugin_seen_twice_is_one_plugin(entry_point):
    twice = [entry_point("Some.Dist", name="some"), entry_point("some_dist", name="some")]
    assert [c.distribution for c in find_plugins(twice)] == ["some-dist"]


def test_of_two_installations_the_first_on_the_path_counts(entry_point):
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


def test_the_order_depends_on_names_alone(entry_point):
    points = [entry_point(name) for name in ("Beta", "alpha", "gamma-2", "gamma-10")]
    orders = {
        tuple(c.distribution for c in find_plugins(permutation))
        for permutation in itertools.permutations(points)
    }
    assert orders == {("alpha", "beta", "gamma-10", "gamma-2")}


def test_the_metadata_is_read_once_per_plugin(entry_point):
    reads = []

    class Counting:
        @property
        def metadata(self):
            reads.append(1)
            return entry_point("counted").dist.metadata

    find_plugins([SimpleNamespace(name="counted", value="counted.plugin", dist=Counting())])
    assert len(reads) == 1


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
def test_the_disable_list_takes_distributions_and_entry_points(record, names):
    reason = disabled_reason(record, {"RLCATALOG_DISABLE_PLUGINS": names})
    assert reason == f"disabled by RLCATALOG_DISABLE_PLUGINS={names!r}"


@pytest.mark.parametrize(
    "names", ["", " ", ",", "some", "some-dist-2", "dist", "plugin", "some-dist*", "some dist"]
)
def test_the_disable_list_leaves_other_names_alone(record, names):
    assert disabled_reason(record, {"RLCATALOG_DISABLE_PLUGINS": names}) is None


@pytest.mark.parametrize("names", ["some-dist", "Some_Dist", "the-plugin", " other , THE_PLUGIN "])
def test_the_allow_list_takes_distributions_and_entry_points(record, names):
    assert disabled_reason(record, {"RLCATALOG_LOAD_PLUGINS": names}) is None


@pytest.mark.parametrize("names", ["", " ", ",", "other", "some"])
def test_the_allow_list_leaves_everything_else_out(record, names):
    reason = disabled_reason(record, {"RLCATALOG_LOAD_PLUGINS": names})
    assert reason == f"not in RLCATALOG_LOAD_PLUGINS={names!r}"


def test_without_lists_everything_is_loaded(record):
    assert disabled_reason(record, {}) is None


def test_the_disable_list_wins_over_the_allow_list(record):
    both = {"RLCATALOG_DISABLE_PLUGINS": "the_plugin", "RLCATALOG_LOAD_PLUGINS": "some-dist"}
    assert "RLCATALOG_DISABLE_PLUGINS" in str(disabled_reason(record, both))


# --- the kernel a plugin asks for -----------------------------------------------------------------


def bound(entry_point, *requires: str, kernel: str = "0.1.0") -> str | None:
    (found,) = find_plugins([entry_point("bounded", requires=requires)])
    return incompatible_reason(found, kernel)


def test_ranges_mean_what_packaging_says(entry_point):
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
def test_a_bound_that_rules_this_kernel_out(entry_point, line):
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
def test_a_requirement_that_does_not(entry_point, line):
    assert bound(entry_point, line) is None


def test_every_line_counts(entry_point):
    assert bound(entry_point, "rlcatalog>=0.1", "rlcatalog<0.1") is not None


def test_a_development_version_of_the_kernel_counts_as_its_release_line(entry_point):
    assert bound(entry_point, "rlcatalog>=0.1,<0.2", kernel="0.1.1.dev3") is None
    assert bound(entry_point, "rlcatalog>=0.2", kernel="0.2.0rc1") is not None


@pytest.mark.parametrize("line", ["rlcatalog >=> 1", "rlcatalog==", "rlcatalog; extra ="])
def test_an_unreadable_requirement_is_a_reason(entry_point, line):
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
def test_the_installed_packages_are_walked_once_per_process(entry_point, plugin, monkeypatch):
    calls, point = [], entry_point("found", plugin=plugin(rlcatalog_models=[]))
    found = SimpleNamespace(
        name="found",
        read_text=lambda file: "[rlcatalog.plugins]\nfound = found.plugin\n",
        entry_points=SimpleNamespace(
            select=lambda group: (point,) if group == GROUP == "rlcatalog.plugins" else ()
        ),
    )
    monkeypatch.setattr(metadata, "distributions", lambda: calls.append("walked") or [found])
    for _ in range(3):
        assert [r.distribution for r in Catalog(environ={}).plugins] == ["found"]
    assert calls == ["walked"]


@pytest.mark.usefixtures("fresh_scan")
def test_entry_points_given_by_the_caller_are_not_looked_for(monkeypatch):
    monkeypatch.setattr(metadata, "distributions", lambda **selection: pytest.fail("scanned"))
    assert Catalog([], environ={}).plugins == []


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
def test_a_damaged_installation_does_not_hide_the_others(
    tmp_path, install, installed, monkeypatch, damage
):
    install(tmp_path, "healthy", "")
    installed(tmp_path)
    damage(tmp_path)
    everything = metadata.distributions
    monkeypatch.setattr(
        metadata, "distributions", lambda **context: everything(path=[str(tmp_path)], **context)
    )
    statuses = {record.distribution: record.status for record in Catalog(environ={}).plugins}
    assert statuses["healthy"] == "loaded"
    assert statuses.get("leftover") in (None, "failed")


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.PluginWarning")
def test_a_plugin_without_readable_metadata_is_not_taken_for_the_programs_own(
    tmp_path, install, installed
):
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
