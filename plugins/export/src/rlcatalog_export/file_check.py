"""Comparison of a written file with its policy, on the same steps with random observations."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from rlcatalog.actions import ActionMasks, mask_entry
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, Step
from rlcatalog.observations import stack
from rlcatalog.spaces import SpaceInfo, map_tensors
from rlcatalog_export.actor import Actor
from rlcatalog_export.agreement import action_disagreement, disagreement
from rlcatalog_export.formats import ExportResult
from rlcatalog_policy import Policy

#: Numbers of episodes that are compared, and the steps in each comparison.
_BATCHES = (1, 3, 8)
_STEPS = 4
#: Step after which some episodes restart.
_RESTART = 1
#: Largest random number for a Box without bounds; environments rarely return larger ones.
_LARGEST = 10.0


def compare(written: ExportResult, actor: Actor) -> None:
    """Compare a file with its policy over a few steps, in which some episodes restart.

    Raises:
        NotServedError: The file and the policy differ; the message names the output.
    """
    modes = [False]
    if written.drawing is not None and written.interface.input("noise") is not None:
        modes.append(True)
    for explore in modes:
        for rows in _BATCHES:
            # A number at the boundary between two choices may fall on either side, so sample again.
            differences = [
                _first_difference(written, actor, rows=rows, explore=explore, seed=seed)
                for seed in (0, 1)
            ]
            if all(differences):
                raise NotServedError(
                    f"export: the file acts differently from the policy: {differences[0]}. No file"
                    " was written."
                )


def _first_difference(
    written: ExportResult, actor: Actor, *, rows: int, explore: bool, seed: int
) -> str:
    """Describe the first difference between the policy's steps and the file's; the text is empty if
    there is none.
    """
    policy = written.policy
    rng = np.random.default_rng(seed)
    policy_state: Any = None
    file_state: Any = None
    for t in range(_STEPS):
        obs, mask = observations(policy, rows, rng)
        if actor.interface.input("mask") is None:
            mask = None
        reward = None if t == 0 else rng.normal(size=rows).astype(np.float32)
        noise = actor.draw(rows) if explore else None
        file_obs = policy.preprocess(obs) if actor.interface.observation == "filtered" else obs

        with _drawing_from(written, noise):
            policy_step = policy.act(
                obs, policy_state, prev_reward=reward, mask=mask, explore=explore
            )
        feeds, _ = actor.feeds(file_obs)
        columns = None if mask is None else actor.masks.matrix(mask, rows)
        file_step = actor.act_on(feeds, rows, file_state, reward, columns, explore, noise)

        difference = disagreement(policy, _numbers_of(policy_step), _numbers_of(file_step))
        if not difference:
            difference = action_disagreement(policy, policy_step.action, file_step.action)
        if difference:
            mode = "sampled" if explore else "deterministic"
            return f"{difference} in step {t} of {rows} episodes ({mode})"

        policy_state = policy_step.state
        file_state = file_step.state
        if t == _RESTART:
            is_starting = np.arange(rows) % 2 == 0
            policy_state = policy.restart(policy_state, is_starting)
            file_state = actor.restart(file_state, is_starting)
    return ""


def _drawing_from(written: ExportResult, noise: Array | None) -> AbstractContextManager[Any]:
    """Return a context in which the policy samples from the noise that the file gets."""
    if noise is None or written.drawing is None:
        return nullcontext()
    return written.drawing(noise)


def _numbers_of(step: Step) -> dict[str, Array | None]:
    """Return what `disagreement` compares."""
    return {
        "dist_inputs": step.dist_inputs,
        "raw_action": step.raw_action,
        "logp": step.logp,
        "value": step.value,
    }


def observations(policy: Policy, rows: int, rng: np.random.Generator) -> tuple[Any, Array | None]:
    """Return a random batch of observations, and their action masks (None without masks).

    Args:
        policy: The policy.
        rows: B.
        rng: Generator of random numbers.
    """
    space = copy.deepcopy(policy.observation_space)
    space.seed(int(rng.integers(2**31)))
    info = SpaceInfo.read(space)
    singles = [_moderate(info, space.sample()) for _ in range(rows)]
    batch: Any = stack(info, singles)
    masks = policy.masks
    if not masks.size:
        return batch, None
    mask = random_masks(masks, rows, rng, forbidden=0.4)
    if masks.key is None:
        return batch, mask

    entry = mask_entry(info, masks.key)
    assert entry is not None  # the key was found in this space when the policy was built
    *outer_keys, key = masks.key_path
    holder = batch
    for outer_key in outer_keys:
        holder = holder[outer_key]
    # The mask of a single choice is a vector, which can hold the columns as they are.
    is_vector = entry.shape == (masks.size,) and masks.has_single_choice
    if is_vector:
        holder[key] = mask.astype(entry.dtype)
        return batch, mask
    # For a mask in another form, use one that allows everything.
    holder[key] = map_tensors(holder[key], np.ones_like)
    return batch, np.ones_like(mask)


def random_masks(
    masks: ActionMasks, rows: int, rng: np.random.Generator, forbidden: float
) -> Array:
    """Return random masks `[B, size]` that allow at least one value of each choice.

    Args:
        masks: Mask layout of an action space.
        rows: B.
        rng: Generator of random numbers.
        forbidden: Probability with which each value is forbidden. At least one value of each choice
            is always allowed.
    """
    mask = rng.random((rows, masks.size)) >= forbidden
    for _, columns in masks.by_choice(mask):
        columns[np.arange(rows), rng.integers(columns.shape[1], size=rows)] = True
    return mask


def _moderate(info: SpaceInfo, value: Any) -> Any:
    """Return an observation in which the values of wide Boxes are moved near 0, within their
    bounds.
    """
    if info.is_composite:
        parts = zip(info.children, info.split(value), strict=True)
        return info.join([_moderate(child, part) for child, part in parts])
    if info.kind != "box" or info.dtype is None or not info.dtype.startswith("float"):
        return value
    lowest = np.maximum(info.low, -_LARGEST)
    highest = np.minimum(info.high, _LARGEST)
    return np.clip(value, lowest, highest).astype(info.dtype)
