"""The memory of a catalog: results of earlier lookups, found by equal configs and spaces."""

from __future__ import annotations

import pytest

from rlcatalog.catalog.lookup_cache import SIZE, LookupCache


def remember_lookups(memory, numbers):
    """Remember a result for each of these lookups, which have no spaces."""
    for number in numbers:
        memory.remember(("lookup", number), (), {"a": number}, f"result {number}")


def recall_lookup(memory, number):
    return memory.recall(("lookup", number), (), {"a": number})


def test_memory_keeps_64_results():
    memory = LookupCache()

    remember_lookups(memory, range(64))

    assert SIZE == 64
    assert recall_lookup(memory, 0) == "result 0"
    assert recall_lookup(memory, 63) == "result 63"


def test_memory_drops_the_oldest_result_when_it_is_full():
    memory = LookupCache()
    remember_lookups(memory, range(64))

    remember_lookups(memory, [64])

    assert recall_lookup(memory, 0) is None
    assert recall_lookup(memory, 1) == "result 1"


#: Spaces are told apart by identity, so that two equal ones are needed.
FIRST_SPACE = [1]
SECOND_SPACE = [1]


def recall_with(what="resolution", spaces=(FIRST_SPACE, SECOND_SPACE), config=({"k": [1]}, (2,))):
    """Remember a result for the defaults, and recall it with these arguments."""
    memory = LookupCache()
    memory.remember("resolution", (FIRST_SPACE, SECOND_SPACE), ({"k": [1]}, (2,)), "result")
    return memory.recall(what, spaces, config)


def test_equal_config_for_the_same_spaces_is_recalled():
    assert recall_with(config=({"k": [1]}, (2,))) == "result"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"what": "model"}, id="another-lookup"),
        pytest.param({"spaces": (FIRST_SPACE, FIRST_SPACE)}, id="equal-second-space"),
        pytest.param({"spaces": (SECOND_SPACE, SECOND_SPACE)}, id="equal-first-space"),
        pytest.param({"config": ({"k": [2]}, (2,))}, id="another-value"),
        pytest.param({"config": ({"k": [1]}, [2])}, id="list-instead-of-tuple"),
    ],
)
def test_different_lookup_is_not_recalled(changes):
    assert recall_with(**changes) is None


def test_remembered_config_is_a_copy():
    memory = LookupCache()
    config = {"fcnet_hiddens": [8]}
    memory.remember("resolution", (), config, "result")

    config["fcnet_hiddens"].append(16)

    assert memory.recall("resolution", (), config) is None
    assert memory.recall("resolution", (), {"fcnet_hiddens": [8]}) == "result"


def test_recall_or_find_finds_once():
    memory = LookupCache()
    calls = []

    def find():
        calls.append("called")
        return "result"

    results = []
    for _ in range(2):
        results.append(memory.recall_or_find("resolution", spaces=(), config=None, find=find))

    assert results == ["result", "result"]
    assert calls == ["called"]
