"""What becomes of raw values in each Box action, and which actions a new policy hardly reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcatalog.actions import ActionCodec, action_codec, is_scaled
from rlcatalog.actions.bounds import LARGEST_SCALED_BOUND
from rlcatalog.actions.reach import LEAST_SHARE, covered_shares, inside_shares
from rlcatalog.choice.dist_plan import DistPlan
from rlcatalog.errors import MissingPluginError
from rlcatalog.frameworks.ops import Array
from rlcatalog.plugins import Part
from rlcatalog.spaces import SpaceInfo

_RESCALE = "rescale the actions in an environment wrapper (gymnasium.wrappers.TransformAction)"


@dataclass(frozen=True)
class ActionRange:
    """How one Box of an action space is reached from raw values.

    Attributes:
        path: Its path in the action space.
        mapping: What becomes of raw values, such as `"scaled from [-1, 1] to the bounds"`.
        problems: Why some actions are hard to reach before training, each with what to do.
    """

    path: str
    mapping: str
    problems: tuple[str, ...] = ()


def action_ranges(dists: DistPlan, config: Mapping[str, Any]) -> Iterator[ActionRange]:
    """Yield an entry for each Box of floats whose raw values `action_bounds` maps.

    Args:
        dists: The distributions that were chosen for an action space.
        config: The model config.
    """
    rule = config["action_bounds"]
    for node in dists.walk():
        info = node.info
        is_float_box = info.kind == "box" and not info.is_integer_box
        wraps_another = bool(node.children)  # the inner distribution comes later in the walk
        if wraps_another or not is_float_box or not _draws_raw_values(node.part):
            continue
        problems = [*_ignored_bounds(info, rule), *_unreached_bounds(node, config)]
        yield ActionRange(info.path, _describe_mapping(info, rule), tuple(problems))


def _draws_raw_values(part: Part) -> bool:
    """Return whether the action codec maps a distribution's values into their bounds, which a
    distribution that draws within the bounds does not need.
    """
    if part.in_process:
        for cls in part.objects.values():
            # A class in RLlib's form need not derive from ours.
            if getattr(cls, "raw_kind", "values") != "values":
                return False
        return True
    return "action_bounds" in part.declaration.reads


def _describe_mapping(info: SpaceInfo, rule: str) -> str:
    """Return what becomes of raw values in a Box, by the rule that `action_bounds` names."""
    scaled = is_scaled(info.low, info.high, rule)  # a boolean for each value of the Box
    if scaled.all():
        return "scaled from [-1, 1] to the bounds"
    if scaled.any():
        return f"{scaled.sum()} of {scaled.size} values scaled from [-1, 1], others clipped"
    if np.isfinite(info.low).any() or np.isfinite(info.high).any():
        return "clipped to the bounds"
    return "as drawn, because there are no bounds"


def _count_as_infinite(info: SpaceInfo, rule: str) -> Array:
    """Return which values have finite bounds that are too large to scale to, as booleans."""
    if rule != "affine":
        return np.zeros(info.shape or (), np.bool_)
    finite = is_scaled(info.low, info.high, "affine_all")
    return finite & ~is_scaled(info.low, info.high, rule)


def _ignored_bounds(info: SpaceInfo, rule: str) -> Iterator[str]:
    """Yield a description of bounds that are too large to scale to."""
    ignored = _count_as_infinite(info, rule)
    if ignored.any():
        yield (
            f"{_first_bounds(info, ignored)}: bounds beyond ±{LARGEST_SCALED_BOUND:,.0f} count as"
            " infinite, so raw actions are clipped to them, not scaled from [-1, 1]. If such"
            f" actions are meant, {_RESCALE}, or scale to all finite bounds with"
            " action_bounds='affine_all' in the model config."
        )


def _unreached_bounds(node: DistPlan, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a description of bounds that the distribution hardly reaches before training."""
    part = node.part
    info = node.info
    if not part.declaration.has("initial_std"):
        return
    rule = config["action_bounds"]
    codec = _codec(info, rule)
    if codec is None:  # its package is missing, which an error says later
        return
    std = part.ask("initial_std", info, config, returns=_positive)
    start = f"{part.name} begins with mean 0 and standard deviation {std:.3g}"
    shape = info.shape or ()
    inside = inside_shares(codec, std).reshape(shape)  # a share for each value
    outside = inside < LEAST_SHARE
    if outside.any():
        advice = _way_out(info, rule, outside)
        yield (
            f"{_first_bounds(info, outside)}: {start}, so nearly all actions are at a bound."
            f" {advice}"
        )
    covered = covered_shares(codec, std).reshape(shape)
    hardly_covered = (covered < LEAST_SHARE) & ~outside & ~_count_as_infinite(info, rule)
    if hardly_covered.any():
        first_share = covered[hardly_covered][0]
        percent = 100 * first_share
        advice = _way_out(info, rule, hardly_covered)
        yield (
            f"{_first_bounds(info, hardly_covered)}: {start}, so it covers {percent:.2g} % of it."
            f" {advice}"
        )


def _way_out(info: SpaceInfo, rule: str, unreached: Array) -> str:
    """Return the advice for bounds that are hardly reached: a config key, if one is enough."""
    if rule == "clip" and is_scaled(info.low, info.high, "affine")[unreached].all():
        return (
            "Set action_bounds='affine' in the model config, which scales [-1, 1] to the bounds,"
            f" or {_RESCALE}."
        )
    sentence = _RESCALE[0].upper() + _RESCALE[1:]
    return f"{sentence}, or choose another distribution (custom_action_dist)."


def _first_bounds(info: SpaceInfo, chosen: Array) -> str:
    """Return the path and the bounds of the first chosen value, and the number of the others."""
    first_index = np.argwhere(chosen)[0]
    index = tuple(int(number) for number in first_index)
    path = info.path
    if chosen.size > 1:  # say which of the Box's values it is
        path += f"[{', '.join(map(str, index))}]"
    text = f"{path} in [{info.low[index]:g}, {info.high[index]:g}]"
    num_others = int(chosen.sum()) - 1
    if num_others:
        text += f" and {num_others} more"
    return text


def _codec(info: SpaceInfo, rule: str) -> ActionCodec | None:
    """Return the codec of a Box, or None if its package is missing: then nothing can be built, and
    that error says what to install.
    """
    try:
        return action_codec(info, rule)
    except MissingPluginError:
        return None


def _positive(std: Any) -> float:
    number = float(std)
    if not 0 < number < float("inf"):
        raise ValueError("a positive standard deviation was expected")
    return number
