"""Masks that vector environments give beside their observations: in infos, or from a method."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rlcatalog import SpaceInfo
from rlcatalog.actions import NOT_GIVEN, ActionMasks
from rlcatalog.errors import ActionMaskError, EnvironmentFaultError, UnusedMaskWarning
from rlcatalog_policy import EnvMasks

TWO_ACTIONS = Discrete(2)
NONE_ENDED = np.array([False, False, False])
SECOND_ENDED = np.array([False, True, False])


def make_masks(action_space=TWO_ACTIONS, *, key=None, info_key="action_mask"):
    """Return a reader of masks, as `policy.masks`."""
    return ActionMasks(SpaceInfo.read(action_space, "action"), key, info_key=info_key)


def make_envs(mode="same_step", *, action_masks=None):
    """Return an object with what `EnvMasks` reads of three vectorized environments."""
    envs = SimpleNamespace(num_envs=3, metadata={"autoreset_mode": mode})
    if action_masks is not None:
        envs.action_masks = action_masks
    return envs


def infos_of(*masks):
    """Return the infos of three environments as Gymnasium batches them; None is an info without a
    mask.
    """
    batched_masks = [[0, 0] if mask is None else mask for mask in masks]
    return {
        "action_mask": np.array(batched_masks, np.int8),
        "_action_mask": np.array([mask is not None for mask in masks]),
    }


ALL_ALLOW_ACTION_0 = infos_of([1, 0], [1, 0], [1, 0])


def begin(envs, infos=ALL_ALLOW_ACTION_0):
    """Return the masks after the first reset, whose infos contain masks."""
    env_masks = EnvMasks(make_masks(), envs)
    env_masks.begin(infos)
    return env_masks


def as_numbers(env_masks):
    return env_masks.columns.astype(int).tolist()


# --- masks in infos -------------------------------------------------------------------------------


def test_masks_are_those_of_the_reset():
    env_masks = begin(make_envs(), infos_of([1, 0], [0, 1], [1, 1]))

    assert as_numbers(env_masks) == [[1, 0], [0, 1], [1, 1]]


def test_masks_are_those_of_the_last_step():
    env_masks = begin(make_envs())

    env_masks.after_step(infos_of([0, 1], [0, 1], [1, 0]), NONE_ENDED)

    assert as_numbers(env_masks) == [[0, 1], [0, 1], [1, 0]]


def test_argument_for_act_is_the_masks():
    env_masks = begin(make_envs())

    assert env_masks.argument is env_masks.columns


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_ended_episode_keeps_its_mask(mode):
    env_masks = begin(make_envs(mode), infos_of([1, 0], [1, 0], [1, 0]))

    # After the end of an episode, no action follows, so that the mask need not allow any.
    env_masks.after_step(infos_of([0, 1], [0, 0], [0, 1]), SECOND_ENDED)

    assert as_numbers(env_masks) == [[0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_reset_after_the_end_of_an_episode_has_a_new_mask(mode):
    env_masks = begin(make_envs(mode))
    env_masks.after_step(infos_of([0, 1], [0, 0], [0, 1]), SECOND_ENDED)

    env_masks.after_reset(infos_of(None, [1, 1], None), SECOND_ENDED)

    assert as_numbers(env_masks) == [[0, 1], [1, 1], [0, 1]]


def test_same_step_info_has_the_mask_of_the_next_episode():
    env_masks = begin(make_envs("same_step"))

    env_masks.after_step(infos_of([0, 1], [1, 1], [0, 1]), SECOND_ENDED)

    assert as_numbers(env_masks) == [[0, 1], [1, 1], [0, 1]]


def test_infos_without_presence_have_masks_of_all():
    # Other vector environments may leave out Gymnasium's "_action_mask".
    env_masks = begin(make_envs(), {"action_mask": np.array([[1, 0], [0, 1], [1, 1]])})

    assert as_numbers(env_masks) == [[1, 0], [0, 1], [1, 1]]


def test_masks_of_parts_are_joined():
    action_space = Dict({"go": Discrete(2), "aim": Box(-1, 1, (1,)), "jump": Discrete(2)})
    env_masks = EnvMasks(make_masks(action_space), make_envs())
    # In Gymnasium's infos, "_go" tells which of the three environments gave a mask for "go".
    all_gave_one = np.array([True, True, True])
    masks_of_parts = {
        "go": np.array([[1, 0], [0, 1], [1, 1]]),
        "_go": all_gave_one,
        "jump": np.array([[1, 1], [0, 1], [1, 0]]),
        "_jump": all_gave_one,
    }

    env_masks.begin({"action_mask": masks_of_parts, "_action_mask": all_gave_one})

    # Two columns for "go", and two for "jump"; numbers like "aim" cannot be masked.
    assert as_numbers(env_masks) == [[1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0]]


def test_missing_mask_error_names_the_environment():
    env_masks = begin(make_envs())

    with pytest.raises(EnvironmentFaultError, match=r"^environment 1 of 3 gave ") as caught:
        env_masks.after_step(infos_of([1, 0], None, [1, 0]), NONE_ENDED)

    assert "but not now (info" in str(caught.value)


def test_environments_without_masks_have_none():
    env_masks = begin(make_envs(), infos={})

    assert env_masks.argument is NOT_GIVEN


def test_late_mask_error_names_the_environment():
    env_masks = begin(make_envs(), infos={})

    with pytest.raises(EnvironmentFaultError, match=r"^environment 1 of 3 has ") as caught:
        env_masks.after_step(infos_of(None, [1, 0], None), NONE_ENDED)

    assert "from reset() too" in str(caught.value)


def test_error_for_a_mask_that_forbids_everything_names_the_row():
    env_masks = begin(make_envs())

    with pytest.raises(ActionMaskError, match=r"^info\['action_mask'\]: mask: row 2"):
        env_masks.after_step(infos_of([1, 0], [1, 0], [0, 0]), NONE_ENDED)


# --- masks from a method --------------------------------------------------------------------------


def test_action_is_allowed_if_info_and_method_allow_it():
    envs = make_envs(action_masks=lambda: [[1, 1], [1, 0], [1, 0]])

    env_masks = begin(envs, infos_of([1, 0], [1, 0], [1, 1]))

    assert as_numbers(env_masks) == [[1, 0], [1, 0], [1, 0]]


def test_error_if_info_and_method_forbid_everything_names_them():
    env_masks = begin(make_envs(action_masks=lambda: [[1, 1], [1, 0], [1, 0]]))

    with pytest.raises(ActionMaskError, match=r"and action_masks\(\): mask: row 1"):
        env_masks.after_step(infos_of([1, 1], [0, 1], [1, 1]), NONE_ENDED)


def test_method_may_return_none_for_no_masks():
    env_masks = begin(make_envs(action_masks=lambda: [None, None, None]), infos={})

    assert env_masks.columns is None


def test_method_that_raises_is_an_error():
    def action_masks():
        raise KeyError("piece")

    with pytest.raises(EnvironmentFaultError, match=r"masks\(\) raised KeyError: 'piece'"):
        begin(make_envs(action_masks=action_masks), infos={})


# --- masks that are not read ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "info_key"),
    [
        pytest.param("action_mask", "action_mask", id="mask-in-the-observation"),
        pytest.param(None, None, id="no-masks-by-config"),
    ],
)
def test_infos_and_method_may_be_left_unread(key, info_key):
    # Calling the method would fail, because it is a text.
    envs = make_envs(action_masks="not to be called")
    forbid_everything = infos_of([0, 0], [0, 0], [0, 0])
    env_masks = EnvMasks(make_masks(key=key, info_key=info_key), envs)

    env_masks.begin(forbid_everything)
    env_masks.after_step(forbid_everything, NONE_ENDED)

    assert env_masks.columns is None


def test_masks_for_a_box_are_not_used_and_warned_of():
    env_masks = EnvMasks(make_masks(Box(-1, 1, (2,), np.float32)), make_envs())

    with pytest.warns(UnusedMaskWarning, match=r"\['action_mask'\]\), which is not used"):
        env_masks.begin(ALL_ALLOW_ACTION_0)
    env_masks.after_step(ALL_ALLOW_ACTION_0, NONE_ENDED)

    assert env_masks.columns is None
