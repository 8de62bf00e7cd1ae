"""Warnings about what a lookup chose: each names the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rlcatalog.actions import ActionMasks
from rlcatalog.choice import Resolution
from rlcatalog.errors import (
    ActionRangeWarning,
    ImageLayoutWarning,
    ObservationWarning,
    OneHotWarning,
    UnreadKeysWarning,
    UnusedMaskWarning,
)
from rlcatalog.observations import Leaf
from rlcatalog.plugins import Part
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import ImageLayout

#: Kinds of leaves that are encoded as one-hot vectors.
ONE_HOT_KINDS = ("discrete", "multi_discrete", "text")
#: Number of one-hot inputs of a leaf above which a lookup warns.
MOST_ONE_HOTS = 10_000


def warn_of_problems(
    resolution: Resolution,
    parts: Sequence[Part],
    keys_of: Callable[[Part], list[str]],
) -> None:
    """Warn of actions that are hard to reach, of keys that nothing reads, of images that can be
    read in two ways, of very many one-hot inputs, and of unused action masks.

    Args:
        resolution: The result of the lookup.
        parts: The parts of the catalog.
        keys_of: Returns the config keys that a part reads.
    """
    for action_range in resolution.action_ranges:
        for problem in action_range.problems:
            warn_caller(problem, ActionRangeWarning)
    _warn_of_unread_keys(resolution, "model config", parts, keys_of)
    layouts = resolution.image_layouts
    if resolution.critic is not None:
        _warn_of_unread_keys(resolution.critic, "critic", parts, keys_of)
        layouts = resolution.critic.image_layouts | layouts
    for path, layout in layouts.items():
        if not layout.is_certain:
            _warn_of_layout(path, layout)
    for path in resolution.unseen:
        _warn_of_unseen_entry(path)
    for leaf in resolution.preprocessor.leaves():
        num_inputs = leaf.stop - leaf.start
        if leaf.kind in ONE_HOT_KINDS and num_inputs > MOST_ONE_HOTS:
            _warn_of_one_hots(leaf)
    if resolution.unused_masks:
        _warn_of_unused_masks(resolution)


def _readers(key: str, parts: Iterable[Part], keys_of: Callable[[Part], list[str]]) -> list[str]:
    """Return the names of the parts that read a key."""
    names = [part.name for part in parts if key in keys_of(part)]
    return list(dict.fromkeys(names))


def _warn_of_unread_keys(
    resolution: Resolution,
    config_name: str,
    parts: Sequence[Part],
    keys_of: Callable[[Part], list[str]],
) -> None:
    """Warn of the keys of a config that no chosen part reads.

    Args:
        resolution: The choices for a model, or for its critic.
        config_name: What messages call its config.
        parts: The parts of the catalog.
        keys_of: Returns the config keys that a part reads.
    """
    if not resolution.unread:
        return
    notes = []
    for key, condition in resolution.unread.items():
        readers = _readers(key, parts, keys_of)
        if condition:
            notes.append(f"{key} (read with {condition})")
        elif readers:
            notes.append(f"{key} (read by {' and '.join(readers)})")
        else:
            notes.append(key)
    warn_caller(
        f"{config_name}: no chosen part reads {', '.join(notes)}. Remove keys without effect,"
        " or choose a part that reads them; explain() lists the parts and their keys.",
        UnreadKeysWarning,
    )


def _warn_of_layout(path: str, layout: ImageLayout) -> None:
    other = ImageLayout(layout.has_frames, channels_first=not layout.channels_first)
    key = "hwc"
    other_key = "chw"
    if layout.channels_first:
        key = "chw"
        other_key = "hwc"
    warn_caller(
        f"{path}: the image's axes can be read in two ways; the net reads them as"
        f" {layout}. If this is right, set image_layout={key!r}; if they are {other}, set"
        f" image_layout={other_key!r}.",
        ImageLayoutWarning,
    )


def _warn_of_unseen_entry(path: str) -> None:
    warn_caller(
        f"obs_groups: {path} is in neither group, so neither the policy nor its critic sees it."
        " Name it in a group, or remove it from the observation.",
        ObservationWarning,
    )


def _warn_of_one_hots(leaf: Leaf) -> None:
    num_inputs = leaf.stop - leaf.start
    path = leaf.path
    if leaf.kind == "text":
        path = path.removesuffix(".values")
    embeddings = "64"
    if path != "obs":
        embeddings = f"{{{path!r}: 64}}"
    warn_caller(
        f"{leaf.path} becomes {num_inputs:,} one-hot inputs, so that a dense layer of 256 units"
        f" has {256 * num_inputs:,} weights for it. Set embeddings={embeddings} to look its ids up"
        " in a table with 64 numbers for each, or map them to fewer in an environment wrapper.",
        OneHotWarning,
    )


def _warn_of_unused_masks(resolution: Resolution) -> None:
    num_maskable_values = ActionMasks(resolution.action).size
    if num_maskable_values:
        path = resolution.unused_masks[0]
        advice = f"If it is one, set its path in the model config: action_mask_key={path!r}."
    else:
        advice = f"{resolution.action.describe()} has no values that a mask could forbid."
    warn_caller(
        f"{' and '.join(resolution.unused_masks)} is named like an action mask, but is not"
        f" used as one: the model sees it as a feature. {advice} If it is not a mask, set"
        " action_mask_key to another name.",
        UnusedMaskWarning,
    )
