"""Paths to parts of an observation, as model configs write them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from rlcatalog.errors import ConfigError
from rlcatalog.spaces import (
    Repeated,
    SpaceInfo,
    find_path,
    is_in_part,
    matching_paths,
    parts_above,
    write_path,
)
from rlcatalog.spaces.paths import short_path

NUMBER = Box(-1, 1, (1,))
UNIT = Dict({"pos": NUMBER, "tags": Tuple([NUMBER, NUMBER])})
SPACE = Dict(
    {
        "arm": Dict({"camera": NUMBER, "it's": NUMBER}),
        "units": Repeated(UNIT, 3),
        "v1.2": Dict({"x": NUMBER}),
        "wheels": Tuple([NUMBER, Dict({"speed": NUMBER})]),
    }
)
PATHS = [info.path for info in SpaceInfo.read(SPACE).walk()]


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("obs['arm']['camera']", "arm.camera"),
        ("obs['arm']", "arm"),
        ("obs['wheels'][0]", "wheels[0]"),
        ("obs['wheels'][1]['speed']", "wheels[1].speed"),
        ("obs['units'][:]['pos']", "units[:].pos"),
        ("obs['units'][:]['tags'][1]", "units[:].tags[1]"),
        ("obs['v1.2']['x']", "v1.2.x"),
        ("obs", "obs"),
    ],
)
class TestBothSpellings:
    def test_find_path_reads_them(self, path, short):
        assert find_path(path, PATHS, "key") == path
        assert find_path(short, PATHS, "key") == path

    def test_short_path_is_the_short_spelling(self, path, short):
        assert short_path(path) == short


def test_find_path_reads_double_quotes():
    assert find_path('obs["arm"]["camera"]', PATHS, "key") == "obs['arm']['camera']"


def test_find_path_reads_keys_with_quotes_and_backslashes():
    # Python writes the second key with an escaped backslash.
    paths = [f"obs[{key!r}]" for key in ("it's", "a\\b", 'say "x"')]
    assert find_path("it's", paths, "key") == paths[0]
    assert find_path("a\\b", paths, "key") == paths[1]
    assert find_path(paths[2], paths, "key") == paths[2]


@pytest.mark.parametrize(
    "written", ["", "ar", "camera", "arm.camera.x", "obs['arm'", "wheels.0", "."]
)
def test_unknown_path_is_an_error_that_lists_the_parts(written):
    with pytest.raises(ConfigError, match="is not a part of the observation") as caught:
        find_path(written, PATHS, "input_nets")
    message = str(caught.value)
    assert message.startswith(f"input_nets: {written!r}")
    assert message.endswith(f"Parts: {', '.join(PATHS)}.")


def test_unknown_path_error_suggests_a_similar_one():
    with pytest.raises(ConfigError, match=r"Did you mean 'arm\.camera'"):
        find_path("arm.camra", PATHS, "input_nets")


def test_path_with_several_meanings_is_an_error():
    paths = ["obs['a']", "obs['a']['b']", "obs['a.b']"]
    with pytest.raises(ConfigError, match="several meanings") as caught:
        find_path("a.b", paths, "obs_groups")
    assert "obs['a.b'] and obs['a']['b']" in str(caught.value)
    # The expression has one meaning.
    assert find_path("obs['a.b']", paths, "obs_groups") == "obs['a.b']"


def test_matching_paths_begin_with_the_fewest_keys():
    paths = ["obs['a']['b.c']", "obs['a']['b']['c']", "obs['a.b.c']"]
    expected = ["obs['a.b.c']", "obs['a']['b.c']", "obs['a']['b']['c']"]
    assert matching_paths("a.b.c", paths) == expected


def test_obs_is_the_whole_observation_before_an_entry():
    entry = "obs['obs']"
    assert find_path("obs", ["obs", entry], "key") == "obs"
    assert find_path("obs", [entry], "key") == entry


def test_path_that_a_codec_wrote_in_its_own_way_is_read_as_it_is():
    paths = ["obs<north>", "obs['x']"]
    assert find_path("obs<north>", paths, "key") == "obs<north>"
    assert short_path("obs<north>") == "obs<north>"


def test_parts_above_leaves_are_all_that_contains_them():
    leaves = ["obs['units'].lengths", "obs['units'][:]", "obs['x']"]
    expected = ["obs", "obs['units']", *leaves]
    assert sorted(parts_above(leaves)) == sorted(expected)


def test_is_in_part_ends_where_a_key_ends():
    assert is_in_part("obs['arm']['camera']", "obs['arm']")
    assert is_in_part("obs['units'].lengths", "obs['units']")
    assert is_in_part("obs['x']", "obs['x']")
    assert not is_in_part("obs['arms']", "obs['arm']")
    assert not is_in_part("obs['arm']", "obs['arm']['camera']")


@pytest.mark.parametrize(
    "keys",
    [["arm", "camera"], ["wheels", 1], ["it's"], ['say "x"'], ["a.b", "c"], ["a\\b"]],
    ids=["dicts", "tuple", "apostrophe", "quotes", "dot", "backslash"],
)
def test_write_path_writes_what_find_path_reads(keys):
    path = write_path(keys)

    assert find_path(path, [path, "obs"], "key") == path
    assert find_path(short_path(path), [path, "obs"], "key") == path
    obs = SimpleNamespace()  # the path is Python that leads to the entry
    for key in reversed(keys):
        obs = {key: obs}
    assert isinstance(eval(path, {"obs": obs}), SimpleNamespace)


def test_write_path_is_the_path_of_a_space():
    space = Dict({"arm": Dict({"it's": Tuple([Box(0, 1, (2,)), Discrete(2)])})})

    [*_, last] = SpaceInfo.read(space).walk()

    assert last.path == write_path(["arm", "it's", 1])
