"""The part of a Dict observation that a model sees, and the entries that `obs_groups` hides."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rlcatalog import SpaceInfo
from rlcatalog.choice.obs_groups import hidden_entries, unseen_paths
from rlcatalog.errors import ConfigError
from rlcatalog.frameworks.ops import NUMPY_OPS
from rlcatalog.observations.visible_observation import VisibleObservation
from rlcatalog_testing import isolated_catalog

ROBOT = Dict(
    {
        "goal": Discrete(3),
        "mask": MultiBinary(2),
        "robot": Dict({"joints": Box(-1, 1, (2,)), "mass": Box(0, 1, (1,))}),
    }
)
#: The columns of an encoded observation: three of the one-hot goal, two of the mask, two of the
#: joints and one of the mass.
ENCODED = np.arange(8, dtype=np.float32)[None]


def hide(groups, mask=()):
    """Return the entries that are hidden from each side that has a group."""
    return hidden_entries(groups, SpaceInfo.read(ROBOT), mask)


def see(*hidden):
    """Return what is visible of an encoded observation."""
    preprocessor = isolated_catalog("rlcatalog-preprocessors").preprocessor_for(ROBOT)
    return VisibleObservation(preprocessor, hidden, "a test")


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "hidden"),
    [
        (["goal", "mask", "robot"], []),
        (["goal"], [("mask",), ("robot",)]),
        (["robot.joints", "mask"], [("goal",), ("robot", "mass")]),
        (["obs['robot']['joints']"], [("goal",), ("mask",), ("robot", "mass")]),
        (["robot", "robot.joints"], [("goal",), ("mask",)]),
    ],
)
def test_group_hides_the_entries_that_it_does_not_name(paths, hidden):
    assert hide({"policy": paths}) == {"policy": hidden}


def test_group_never_hides_the_mask():
    assert hide({"critic": ["goal"]}, mask=("mask",)) == {"critic": [("robot",)]}


def test_key_with_a_dot_is_an_entry_itself():
    obs = SpaceInfo.read(Dict({"a.b": Discrete(2), "c": Discrete(2)}))

    assert hidden_entries({"policy": ["a.b"]}, obs, ()) == {"policy": [("c",)]}


def test_entry_that_both_groups_omit_is_unseen():
    hidden = hide({"policy": ["goal"], "critic": ["robot.joints", "mask"]})

    # The policy sees nothing of the robot, and the critic not its mass.
    assert unseen_paths(hidden) == ["obs['robot']['mass']"]


def test_error_suggests_the_nearest_entry():
    with pytest.raises(ConfigError, match=r"'robot\.joints'"):
        hide({"policy": ["robot.joint"]})


# --- what is visible ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "columns"),
    [
        ([("goal",)], [3, 4, 5, 6, 7]),
        ([("mask",)], [0, 1, 2, 5, 6, 7]),
        ([("robot", "joints")], [0, 1, 2, 3, 4, 7]),
        ([("goal",), ("mask",), ("robot", "mass")], [5, 6]),
    ],
)
def test_columns_of_hidden_entries_are_cut(hidden, columns):
    visible = see(*hidden)

    np.testing.assert_array_equal(visible.cut_encoded(ENCODED, NUMPY_OPS), ENCODED[:, columns])


def test_entries_of_an_observation_are_selected():
    obs = {"goal": 1, "mask": "m", "robot": {"joints": "j", "mass": 0.5}}

    assert see(("mask",), ("robot", "mass")).select(obs) == {"goal": 1, "robot": {"joints": "j"}}


def test_last_entry_is_passed_without_its_dicts():
    obs = {"goal": 1, "mask": "m", "robot": {"joints": "j", "mass": 0.5}}
    visible = see(("goal",), ("mask",), ("robot", "mass"))

    assert visible.select(obs) == "j"
    assert visible.key_path == ("robot", "joints")
    assert visible.preprocessor.info.path == "obs['robot']['joints']"


def test_whole_observation_has_zeros_for_hidden_entries():
    visible = see(("mask",), ("robot", "joints"))
    preprocessor = isolated_catalog("rlcatalog-preprocessors").preprocessor_for(ROBOT)

    whole = visible.spread(visible.cut_encoded(ENCODED, NUMPY_OPS), preprocessor)

    np.testing.assert_array_equal(whole, [[0, 1, 2, 0, 0, 0, 0, 7]])


def test_same_part_is_seen_without_the_hidden_entries():
    visible = see(("goal",), ("robot", "mass"))
    obs = {"mask": "m", "robot": {"joints": "j"}}
    encoded = np.array([[3, 4, 5, 6]], np.float32)  # the mask and the joints

    alone = visible.without_hidden()

    assert alone.hidden == ()
    assert alone.select(obs) == obs
    np.testing.assert_array_equal(alone.cut_encoded(encoded, NUMPY_OPS), encoded)
    np.testing.assert_array_equal(visible.cut_encoded(ENCODED, NUMPY_OPS), encoded)


def test_structure_and_vector_are_cut_alike():
    preprocessor = isolated_catalog("rlcatalog-preprocessors").preprocessor_for(ROBOT)
    structure = preprocessor.restore(ENCODED, NUMPY_OPS)
    visible = see(("robot", "joints"))

    inputs = visible.of({"obs": structure, "obs_flat": ENCODED}, NUMPY_OPS)

    assert inputs["obs"].keys() == {"goal", "mask", "robot"}
    assert inputs["obs"]["robot"].keys() == {"mass"}
    np.testing.assert_array_equal(inputs["obs_flat"], ENCODED[:, [0, 1, 2, 3, 4, 7]])


def test_single_integer_stays_an_integer():
    catalog = isolated_catalog("rlcatalog-preprocessors")
    config = catalog.parse_config({"_disable_preprocessor_api": True})
    preprocessor = catalog.preprocessor_for(
        Dict({"goal": Discrete(3), "x": Box(-1, 1, (1,))}), config
    )
    visible = VisibleObservation(preprocessor, [("x",)], "a test")

    goal = visible.cut_encoded(np.array([[2.0, 0.5]], np.float32), NUMPY_OPS)

    assert goal.dtype.kind == "i"
    assert goal.tolist() == [2]
