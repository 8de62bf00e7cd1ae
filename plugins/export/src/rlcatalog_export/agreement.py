"""Comparison of a policy's step with its graph's step, up to rounding.

Parameters, raw actions, values and states are compared elementwise. Log densities need a different
rule: near a bound, and for narrow distributions, an action's last digit changes them by more than
any fixed tolerance. The graph's log density must match the policy's distribution, computed from the
graph's parameters and action.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlcatalog.actions import ActionCodec, Actions
from rlcatalog.frameworks import Array
from rlcatalog_policy import Policy

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
    for name, policy_array in expected.items():
        graph_array = actual[name]
        if policy_array is None and graph_array is None:
            continue
        if graph_array is None:
            return f"{name} is missing, unlike in the policy"
        if policy_array is None:
            return f"{name} is present, unlike in the policy"
        if policy_array.shape != graph_array.shape:
            return f"{name} has shape {graph_array.shape} instead of {policy_array.shape}"

        scale = _raw_units(policy.action_codec) if name == "raw_action" else 1.0
        is_near = _is_near(policy_array, graph_array, scale)
        if name == "logp" and not is_near.all():
            # The actions may differ by rounding, so compare the densities of the same action.
            policy_array = _density_of_graph_action(policy, actual)
            rounding_error = _UNITS * _density_change_per_unit(policy, actual, policy_array)
            tolerance = TOLERANCE * (1 + abs(policy_array)) + rounding_error
            is_near |= abs(graph_array - policy_array) <= tolerance
        if not is_near.all():
            return _first_difference(name, policy_array, graph_array, is_near)
    return ""


def action_disagreement(policy: Policy, expected: Actions, actual: Actions) -> str:
    """Describe how a graph's environment actions differ from the policy's actions; see
    `disagreement`.
    """
    codec = policy.action_codec
    leaves = zip(codec.leaf_actions(expected), codec.leaf_actions(actual), strict=True)
    for (leaf, policy_array), (_, graph_array) in leaves:
        policy_form = (policy_array.dtype, policy_array.shape)
        if policy_form != (graph_array.dtype, graph_array.shape):
            return (
                f"{leaf.info.path} has {graph_array.dtype}{list(graph_array.shape)} instead of"
                f" {policy_array.dtype}{list(policy_array.shape)}"
            )
        scale = np.maximum(_bound_of(leaf), 1.0)
        is_near = _is_near(policy_array, graph_array, scale)
        if not is_near.all():
            return _first_difference(leaf.info.path, policy_array, graph_array, is_near)
    return ""


def _first_difference(name: str, policy_array: Array, graph_array: Array, is_near: Array) -> str:
    """Describe the first value that is not near the policy's."""
    place = tuple(int(i) for i in np.argwhere(~is_near)[0])
    expected = float(policy_array[place])
    found = float(graph_array[place])
    return f"{name}{list(place)} is {found:.9g} instead of {expected:.9g}"


def _raw_units(codec: ActionCodec) -> Array:
    """Return the scale `[width]` for comparing raw actions: the larger bound if there are bounds,
    otherwise 1.

    Raw actions are computed as sums that include their bounds, so their rounding error is that of
    the bounds.
    """
    units = [np.ones(0)]
    for leaf in codec.leaves:
        if leaf.raw_kind == "bounded":
            units.append(_bound_of(leaf).reshape(-1))
        else:
            units.append(np.ones(leaf.width))
    return np.concatenate(units)


def _bound_of(leaf: ActionCodec) -> Array:
    """Return the larger bound of each value, or 1 if a value has no bounds."""
    low = leaf.info.low
    high = leaf.info.high
    if low is None or high is None:
        return np.ones(leaf.info.shape or ())
    larger = np.maximum(abs(np.asarray(low, np.float64)), abs(np.asarray(high, np.float64)))
    return np.where(np.isfinite(larger), larger, 1.0)


def _is_near(expected: Array, actual: Array, scale: Array | float) -> Array:
    """Return where two arrays agree, as booleans; NaN agrees with NaN, infinity with itself."""
    expected = expected.astype(np.float64)
    actual = actual.astype(np.float64)
    with np.errstate(invalid="ignore"):  # the difference between infinities
        is_close = abs(actual - expected) <= TOLERANCE * (scale + abs(expected))
    both_nan = np.isnan(expected) & np.isnan(actual)
    is_near: Array = is_close | (expected == actual) | both_nan
    return is_near


def _density_of_graph_action(policy: Policy, actual: Mapping[str, Array | None]) -> Array:
    """Return the policy's log density `[B]` of the graph's action under the graph's parameters."""
    density = policy.backend.log_density(actual["dist_inputs"], actual["raw_action"])
    wide: Array = density.astype(np.float64)
    return wide


def _density_change_per_unit(
    policy: Policy, actual: Mapping[str, Array | None], density: Array
) -> Array:
    """Return the largest change of a log density if each parameter changes by one unit in the last
    place, up or down at random.
    """
    params = actual["dist_inputs"]
    assert params is not None  # a graph with a log density has parameters
    unit = np.finfo(params.dtype).eps * np.maximum(abs(params), 1)
    unit = np.where(abs(params) < _LARGEST, unit, 0)
    rng = np.random.default_rng(0)
    largest_change = np.zeros_like(density)
    for _ in range(_TRIES):
        signs = rng.choice([-1, 1], params.shape)
        moved_params = (params + unit * signs).astype(params.dtype)
        moved_density = policy.backend.log_density(moved_params, actual["raw_action"])
        largest_change = np.fmax(largest_change, abs(moved_density - density))
    return largest_change
