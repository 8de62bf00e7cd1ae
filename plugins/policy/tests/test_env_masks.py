"""Masks that vector environments give beside their observations, infos by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rlcatalog import SpaceInfo
from rlcatalog.actions import NOT_GIVEN, ActionMasks
from rlcatalog.errors import ActionMaskError, EnvironmentFaultError, UnusedMaskWarning
from rlcatalog_policy import EnvMasks

N = 3
ALL = np.ones(N, bool)
NONE = np.zeros(N, bool)


TWO = Discrete(2)


def reader(action=TWO, *, key=None, info_key="action_mask"):
    return ActionMasks(SpaceInfo.read(action, "action"), key, info_key=info_key)


def vector(mode="same_step", method=None):
    """Return a vector environment without members, of which only masks are asked."""
    envs = SimpleNamespace(num_envs=N, metadata={"autoreset_mode": mode})
    if method is not None:
        envs.action_masks = method
    return envs


def infos(*masks):
    """Return infos as Gymnasium batches them; None stands for an info without a mask."""
    shown = [[0, 0] if mask is None else mask for mask in masks]
    return {
        "action_mask": np.array(shown, np.int8),
        "_action_mask": np.array([mask is not None for mask in masks]),
    }


def begun(envs=None, *, masks=None):
    read = EnvMasks(reader(), vector() if envs is None else envs)
    read.begin(infos(*([[1, 0]] * N if masks is None else masks)))
    return read


def columns(read):
    return read.columns.astype(int).tolist()


def test_masks_follow_the_infos():
    read = begun(masks=[[1, 0], [0, 1], [1, 1]])
    assert columns(read) == [[1, 0], [0, 1], [1, 1]]
    read.after_step(infos([0, 1], [0, 1], [1, 0]), NONE)
    assert columns(read) == [[0, 1], [0, 1], [1, 0]]
    assert read.argument is read.columns


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_ended_episodes_keep_their_mask_until_the_reset(mode):
    read, ended = begun(vector(mode)), np.array([False, True, False])
    # Nothing is allowed after the end of an episode, which is no error.
    read.after_step(infos([0, 1], [0, 0], [0, 1]), ended)
    assert columns(read) == [[0, 1], [1, 0], [0, 1]]
    read.after_reset(infos(None, [1, 1], None), ended)
    assert columns(read) == [[0, 1], [1, 1], [0, 1]]


def test_same_step_infos_belong_to_the_next_episode():
    read = begun(vector("same_step"))
    read.after_step(infos([0, 1], [1, 1], [0, 1]), np.array([False, True, False]))
    assert columns(read) == [[0, 1], [1, 1], [0, 1]]


def test_infos_without_presence_are_of_all():
    read = EnvMasks(reader(), vector())
    read.begin({"action_mask": np.array([[1, 0], [0, 1], [1, 1]])})
    assert columns(read) == [[1, 0], [0, 1], [1, 1]]


def test_masks_of_parts_are_joined():
    action = Dict({"go": Discrete(2), "aim": Box(-1, 1, (1,)), "jump": Discrete(2)})
    part = np.array([[1, 0], [0, 1], [1, 1]])
    both = {"go": part, "_go": ALL, "jump": part[::-1], "_jump": ALL}
    read = EnvMasks(reader(action), vector())
    read.begin({"action_mask": both, "_action_mask": ALL})
    # Dict sorts its keys: aim has no columns, then go, then jump.
    assert columns(read) == [[1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0]]


def test_missing_mask_is_named():
    with pytest.raises(
        EnvironmentFaultError, match=r"^environment 1 of 3 gave .*but not now \(info"
    ):
        begun().after_step(infos([1, 0], None, [1, 0]), NONE)


def test_late_mask_is_named():
    read = EnvMasks(reader(), vector())
    read.begin({})
    assert read.argument is NOT_GIVEN
    with pytest.raises(
        EnvironmentFaultError, match=r"^environment 1 of 3 has .*from reset\(\) too"
    ):
        read.after_step(infos(None, [1, 0], None), NONE)


def test_mask_that_allows_nothing_is_named():
    with pytest.raises(
        ActionMaskError, match=r"^info\['action_mask'\]: mask: row 2 allows no action"
    ):
        begun().after_step(infos([1, 0], [1, 0], [0, 0]), NONE)


def test_info_and_method_forbid_together():
    read = begun(vector(method=lambda: [[1, 1], [1, 0], [1, 0]]), masks=[[1, 0], [1, 0], [1, 1]])
    assert columns(read) == [[1, 0], [1, 0], [1, 0]]
    with pytest.raises(ActionMaskError, match=r"^info\['action_mask'\] and action_masks\(\): .* 1"):
        read.after_step(infos([1, 1], [0, 1], [1, 1]), NONE)


def test_method_that_returns_none_is_no_source():
    read = EnvMasks(reader(), vector(method=lambda: [None] * N))
    read.begin({})
    assert read.columns is None


def test_method_that_raises_is_named():
    def raises():
        raise KeyError("piece")

    with pytest.raises(EnvironmentFaultError, match=r"action_masks\(\) raised KeyError: 'piece'"):
        EnvMasks(reader(), vector(method=raises)).begin({})


@pytest.mark.parametrize(("key", "info_key"), [("action_mask", "action_mask"), (None, None)])
def test_nothing_is_read_beside_the_observation_or_with_none(key, info_key):
    """The method, which must not be called, is no function."""
    read = EnvMasks(reader(key=key, info_key=info_key), vector(method="not to be called"))
    read.begin(infos([0, 0], [0, 0], [0, 0]))
    read.after_step(infos([0, 0], [0, 0], [0, 0]), NONE)
    assert read.columns is None


def test_masks_of_a_box_are_warned_of():
    read = EnvMasks(reader(Box(-1, 1, (2,), np.float32)), vector())
    with pytest.warns(UnusedMaskWarning, match=r"\(info\['action_mask'\]\), which is not used"):
        read.begin(infos([1, 0], [1, 0], [1, 0]))
    read.after_step(infos([1, 0], [1, 0], [1, 0]), NONE)
    assert read.columns is None
