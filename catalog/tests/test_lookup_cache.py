"""The cache of a catalog: results of earlier lookups, found by equal configs and spaces."""

from __future__ import annotations

import pytest

from rlcatalog.catalog.lookup_cache import SIZE, LookupCache


def remember_lookups(cache, numbers):
    """Remember a result for each of these lookups, which have no spaces."""
    for number in numbers:
        cache.remember(("lookup", number), (), {"a": number}, f"result {number}")


def recall_lookup(cache, number):
    return cache.recall(("lookup", number), (), {"a": number})


def test_cache_keeps_64_results():
    cache = LookupCache()

    remember_lookups(cache, range(64))

    assert SIZE == 64
    assert recall_lookup(cache, 0) == "result 0"
    assert recall_lookup(cache, 63) == "result 63"


def test_cache_drops_the_oldest_result_when_it_is_full():
    cache = LookupCache()
    remember_lookups(cache, range(64))

    remember_lookups(cache, [64])

    assert recall_lookup(cache, 0) is None
    assert recall_lookup(cache, 1) == "result 1"


#: Spaces are told apart by identity, so that two equal ones are needed.
FIRST_SPACE = [1]
SECOND_SPACE = [1]


def recall_with(key="resolution", spaces=(FIRST_SPACE, SECOND_SPACE), config=({"k": [1]}, (2,))):
    """Remember a result for the defaults, and recall it with these arguments."""
    cache = LookupCache()
    cache.remember("resolution", (FIRST_SPACE, SECOND_SPACE), ({"k": [1]}, (2,)), "result")
    return cache.recall(key, spaces, config)


def test_equal_config_for_the_same_spaces_is_recalled():
    assert recall_with(config=({"k": [1]}, (2,))) == "result"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"key": "model"}, id="another-lookup"),
        pytest.param({"spaces": (FIRST_SPACE, FIRST_SPACE)}, id="equal-second-space"),
        pytest.param({"spaces": (SECOND_SPACE, SECOND_SPACE)}, id="equal-first-space"),
        pytest.param({"config": ({"k": [2]}, (2,))}, id="another-value"),
        pytest.param({"config": ({"k": [1]}, [2])}, id="list-instead-of-tuple"),
    ],
)
def test_different_lookup_is_not_recalled(changes):
    assert recall_with(**changes) is None


def test_remembered_config_is_a_copy():
    cache = LookupCache()
    config = {"fcnet_hiddens": [8]}
    cache.remember("resolution", (), config, "result")

    config["fcnet_hiddens"].append(16)

    assert cache.recall("resolution", (), config) is None
    assert cache.recall("resolution", (), {"fcnet_hiddens": [8]}) == "result"


def test_recall_or_find_finds_once():
    cache = LookupCache()
    calls = []

    def find():
        calls.append("called")
        return "result"

    results = []
    for _ in range(2):
        results.append(cache.recall_or_find("resolution", spaces=(), config=None, find=find))

    assert results == ["result", "result"]
    assert calls == ["called"]
