"""Selection of the leaves of an observation that a filter changes."""

from __future__ import annotations

from collections.abc import Sequence

from rlcatalog.errors import ConfigError
from rlcatalog.observations import Leaf
from rlcatalog_filters.config import FiltersConfig


def leaves_to_filter(
    leaves: Sequence[Leaf], config: FiltersConfig, action_mask_key: str, claimed: Sequence[str] = ()
) -> list[Leaf]:
    """Return the leaves that hold quantities, or those the config asks for; never an action mask.

    Args:
        leaves: The leaves of a preprocessor's plan.
        config: Says what to include and to exclude.
        action_mask_key: Key of Dict observations under which the action mask stands, at any depth; or a path, `"a.b"`.
        claimed: Paths that a head reads itself: what they say of actions must not change; only `filter_include` does.

    Raises:
        ConfigError: A path in the config matches no leaf, or asks for an action mask alone.
    """
    path = "".join(f"[{step!r}]" for step in action_mask_key.split("."))
    masks = [leaf for leaf in leaves if _holds(f"[{action_mask_key!r}]", leaf.path) or _holds(path, leaf.path)]
    if config.filter_include is None:
        chosen = [leaf for leaf in leaves if leaf.numeric and not any(_below(path, leaf.path) for path in claimed)]
    else:
        chosen = _matching(leaves, config.filter_include, "filter_include")
        for path in config.filter_include:
            if all(leaf in masks for leaf in leaves if _below(path, leaf.path)):
                raise ConfigError(
                    f"filter_include: {path!r} is the action mask (action_mask_key={action_mask_key!r}), which is never"
                    " filtered. If it is none, set action_mask_key to another key."
                )
    left_out = masks + _matching(leaves, config.filter_exclude, "filter_exclude")
    return [leaf for leaf in chosen if leaf not in left_out]


def _matching(leaves: Sequence[Leaf], paths: Sequence[str], key: str) -> list[Leaf]:
    for path in paths:
        if not any(_below(path, leaf.path) for leaf in leaves):
            raise ConfigError(
                f"{key}: no leaf of the observation stands at or below {path!r};"
                f" leaves: {', '.join(leaf.path for leaf in leaves) or 'none'}."
            )
    return [leaf for leaf in leaves if any(_below(path, leaf.path) for path in paths)]


def _below(path: str, leaf: str) -> bool:
    """Whether a leaf stands at a path or below it."""
    return leaf == path or leaf.startswith((f"{path}[", f"{path}."))


def _holds(step: str, leaf: str) -> bool:
    """Whether a leaf's path goes through a step such as `['mask']`."""
    before, found, _ = leaf.partition(step)
    return bool(found) and _below(before + step, leaf)
