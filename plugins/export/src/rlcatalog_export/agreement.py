"""Comparison of a policy's step with its graph's step, up to rounding.

Parameters, raw actions, values and states are compared elementwise. Log densities need a different
    rule: near a bound, and for narrow distributions, an action's last digit changes them by more
    than any fixed tolerance. The
graph's log density must match the policy's distribution, computed from the graph's parameters and
action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcatalog.actions import ActionCodec
from rlcatalog_policy import Policy

Array = np.ndarray[Any, Any]

#: Absolute tolerance (in units of a bounded action's bounds) and relative tolerance of a number.
TOLERANCE = 2e-5
#: Tolerance of a log density in units in the last place of its parameters: the error of a few dozen
#: operations.
_UNITS = 8
_TRIES = 4
#: Larger parameters count as infinite, such as the logits of forbidden actions.
_LARGEST = 1e30


def disagreement(
    policy: Policy, expected: Mapping[str, Array | None], actual: Mapping[str, Array | None]
) -> str:
    """Describe how a graph's outputs differ from its policy's outputs; the text is empty if they
    agree.

    Args:
        policy: The policy.
        expected: The policy's results to compare: a dict of arrays.
        actual: The graph's results under the same names, including `raw_action` and `dist_inputs`
            if `logp` is compared.
    """
    for name, one in expected.items():
        other = actual[name]
        if one is None or other is None:
            if one is not other:
                return (
                    f"{name} is {'missing' if other is None else 'present'}, unlike in the policy"
                )
            continue
        if one.shape != other.shape:
            return f"{name} has shape {other.shape} instead of {one.shape}"
        near = _near(one, other, _raw_units(policy.action_codec) if name == "raw_action" else 1.0)
        if name == "logp" and not near.all():
            one = policy.backend.log_density(actual["dist_inputs"], actual["raw_action"]).astype(
                np.float64
            )
            near |= abs(other - one) <= TOLERANCE * (1 + abs(one)) + _UNITS * _rounding(
                policy, actual, one
            )
        if not near.all():
            return _first_difference(name, one, other, near)
    return ""


def action_disagreement(policy: Policy, expected: Any, actual: Any) -> str:
    """Describe how a graph's environment actions differ from the policy's actions; see
    `disagreement`.
    """
    leaves = (policy.action_codec.leaf_actions(actions) for actions in (expected, actual))
    for (leaf, one), (_, other) in zip(*leaves, strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return (
                f"{leaf.info.path} has {other.dtype}{list(other.shape)} instead of"
                f" {one.dtype}{list(one.shape)}"
            )
        near = _near(one, other, np.maximum(_bound_of(leaf), 1.0))
        if not near.all():
            return _first_difference(leaf.info.path, one, other, near)
    return ""


def _first_difference(name: str, one: Array, other: Array, near: Array) -> str:
    at = tuple(int(i) for i in np.argwhere(~near)[0])
    return f"{name}{list(at)} is {float(other[at]):.9g} instead of {float(one[at]):.9g}"


def _raw_units(codec: ActionCodec) -> Array:
    """Return the scale `[width]` for comparing raw actions: the larger bound if there are bounds,
    otherwise 1.

    Raw actions are computed as sums that include their bounds, so their rounding error is that of
    the bounds.
    """
    units = [
        _bound_of(leaf).reshape(-1) if leaf.raw_kind == "bounded" else np.ones(leaf.width)
        for leaf in codec.leaves
    ]
    return np.concatenate(units) if units else np.ones(0)


def _bound_of(leaf: ActionCodec) -> Array:
    """Return the larger bound of each value, or 1 if a value has no bounds."""
    low, high = leaf.info.low, leaf.info.high
    if low is None or high is None:
        return np.ones(leaf.info.shape or ())
    larger = np.maximum(abs(np.asarray(low, np.float64)), abs(np.asarray(high, np.float64)))
    return np.where(np.isfinite(larger), larger, 1.0)


def _near(one: Array, other: Array, scale: Any) -> Array:
    one, other = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):  # the difference between infinities
        near = abs(other - one) <= TOLERANCE * (scale + abs(one))
    equal: Array = near | (one == other) | (np.isnan(one) & np.isnan(other))
    return equal


def _rounding(policy: Policy, actual: Mapping[str, Any], density: Array) -> Array:
    """Return the change of a log density if each parameter changes by one unit in the
    last place.
    """
    params, raw = actual["dist_inputs"], actual["raw_action"]
    unit = np.where(
        abs(params) < _LARGEST, np.finfo(params.dtype).eps * np.maximum(abs(params), 1), 0
    )
    rng, moves = np.random.default_rng(0), np.zeros_like(density)
    for _ in range(_TRIES):
        moved = (params + unit * rng.choice([-1, 1], params.shape)).astype(params.dtype)
        moves = np.fmax(moves, abs(policy.backend.log_density(moved, raw) - density))
    return moves
