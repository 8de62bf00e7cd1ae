"""Comparison of a written file with its policy, on the same steps with random observations."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import numpy as np

from rlcatalog.actions import ActionMasks
from rlcatalog.errors import NotServedError
from rlcatalog.internals import mask_entry, stack
from rlcatalog.spaces import SpaceInfo, map_tensors
from rlcatalog_export.actor import Actor
from rlcatalog_export.agreement import Array, action_disagreement, disagreement
from rlcatalog_export.formats import ExportResult
from rlcatalog_policy import Policy

_BATCHES, _STEPS = (1, 3, 8), 4
#: Largest random number for a Box without bounds; environments rarely return larger ones.
_LARGEST = 10.0


def compare(written: ExportResult, actor: Actor) -> None:
    """Compare a file with its policy over a few steps, in which some episodes restart.

    Raises:
        NotServedError: The file and the policy differ; the message names the output.
    """
    tried = [(written.policy, False)]
    if written.drawing is not None and written.interface.input("noise") is not None:
        tried.append((written.policy, True))
    for policy, explore in tried:
        for rows in _BATCHES:
            # A number at the boundary between two choices may fall on either side, so sample again.
            differences = [
                _differences(written, actor, policy, rows, explore, seed) for seed in (0, 1)
            ]
            if all(differences):
                raise NotServedError(
                    f"export: the file acts differently from the policy: {differences[0]}. No file"
                    " was written."
                )


def _differences(
    written: ExportResult, actor: Actor, policy: Policy, rows: int, explore: bool, seed: int
) -> str:
    rng = np.random.default_rng(seed)
    state: Any = None
    other: Any = None
    for t in range(_STEPS):
        obs, mask = observations(policy, rows, rng)
        mask = mask if actor.interface.input("mask") is not None else None
        reward = rng.normal(size=rows).astype(np.float32) if t else None
        noise = actor.draw(rows) if explore else None
        context = (
            written.drawing(noise)
            if noise is not None and written.drawing is not None
            else nullcontext()
        )
        given = policy.preprocess(obs) if actor.interface.observation == "filtered" else obs
        with context:
            step = policy.act(obs, state, prev_reward=reward, mask=mask, explore=explore)
        feeds, _ = actor.feeds(given)
        columns = None if mask is None else actor.masks.matrix(mask, rows)
        repeated = actor.act_on(feeds, rows, other, reward, columns, explore, noise)
        compared = ("dist_inputs", "raw_action", "logp", "value")
        outputs = ({name: getattr(one, name) for name in compared} for one in (step, repeated))
        difference = disagreement(policy, *outputs) or action_disagreement(
            policy, step.action, repeated.action
        )
        if difference:
            return (
                f"{difference} in step {t} of {rows} episodes"
                f" ({'sampled' if explore else 'the most likely action'})"
            )
        state, other = step.state, repeated.state
        if t == 1:  # some episodes restart
            begun = np.arange(rows) % 2 == 0
            state, other = policy.restart(state, begun), actor.restart(other, begun)
    return ""


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
    mask = random_masks(policy.masks, rows, rng, forbidden=0.4) if policy.masks.size else None
    batch: Any = stack(info, singles)
    if policy.masks.key is not None:
        place = mask_entry(info, policy.masks.key)
        assert place is not None
        assert mask is not None
        plain = place.shape == (policy.masks.size,) and policy.masks.single
        mask = mask if plain else np.ones_like(mask)
        *steps, key = policy.masks.steps
        around = batch
        for step in steps:
            around = around[step]
        around[key] = mask.astype(place.dtype) if plain else map_tensors(around[key], np.ones_like)
    return batch, mask


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
        return info.join(
            [
                _moderate(child, part)
                for child, part in zip(info.children, info.split(value), strict=True)
            ]
        )
    if info.kind != "box" or info.dtype is None or not info.dtype.startswith("float"):
        return value
    return np.clip(value, np.maximum(info.low, -_LARGEST), np.minimum(info.high, _LARGEST)).astype(
        info.dtype
    )
