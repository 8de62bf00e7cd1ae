"""Plugin declarations: the action spaces that the distributions support, and the number of model
outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rlcatalog import ActionDistSpec, Match, Rank, Request, SpaceInfo, hookimpl
from rlcatalog.actions import action_codec
from rlcatalog.config import read_config
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog_categorical.config import QuantilesConfig

#: Largest number of logits: a Box of integers is rarely meant as a choice among more values.
MAX_LOGITS = 100_000
#: Largest number of slates.
MAX_SLATES = 10_000


def _lists_choices(action: SpaceInfo) -> bool:
    """Return whether an action consists of several choices: a MultiDiscrete or a Box of
    integers.
    """
    return action.kind == "multi_discrete" or action.is_integer_box


def _kind(action: SpaceInfo | None) -> str:
    """Return an action space's kind, for messages."""
    if action is None:
        return "nothing"
    return action.kind


def match_discrete(request: Request) -> Match:
    """Match if the action space is a Discrete."""
    action = request.action
    if action is not None and action.kind == "discrete":
        return Match(Rank.GENERIC, f"the action is one of {action.n} values")
    return Match(rank=None, why=f"takes Discrete, not {_kind(action)}")


def match_multi(request: Request) -> Match:
    """Match if the action space is a MultiDiscrete or a Box of integers."""
    action = request.action
    if action is not None and _lists_choices(action):
        return Match(Rank.GENERIC, f"the action has {math.prod(action.shape or ())} choices")
    kind = _kind(action)
    if action is not None and action.kind == "box":
        kind = f"a Box of {action.dtype}"
    return Match(rank=None, why=f"takes MultiDiscrete or a Box of integers, not {kind}")


def match_bernoulli(request: Request) -> Match:
    """Match if the action space is a MultiBinary."""
    action = request.action
    if action is not None and action.kind == "multi_binary":
        return Match(Rank.GENERIC, f"the action has {math.prod(action.shape or ())} bits")
    return Match(rank=None, why=f"takes MultiBinary, not {_kind(action)}")


def _discrete_size(action: SpaceInfo, name: str) -> int:
    """Return the number of values of a Discrete; `name` is the distribution's, for the message."""
    if action.n is None or action.kind != "discrete":
        raise UnsupportedSpaceError(
            f"{action.path}: {name} requires a Discrete space, found {action.describe()}."
        )
    return action.n


def size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return the number of logits of `categorical`."""
    return _discrete_size(action, "Categorical")


def quantiles_size(action: SpaceInfo, config: Mapping[str, Any]) -> int:
    """Return the number of inputs of `quantiles`."""
    num_quantiles = read_config(config, QuantilesConfig).num_quantiles
    return num_quantiles * _discrete_size(action, "Quantiles")


def gumbel_size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return the number of logits of `gumbel_softmax`."""
    return _discrete_size(action, "GumbelSoftmax")


def _lacks_bounds(action: SpaceInfo) -> bool:
    """Return whether a Gymnasium Box was declared without a lower or an upper bound.

    A Box of integers stores the dtype's limits in place of infinite bounds, and only its
    `is_bounded` knows the difference; a MultiDiscrete has no such method.
    """
    # Gymnasium's space, or None for a SpaceInfo that was not read from a space.
    is_bounded = getattr(action.space, "is_bounded", None)
    return is_bounded is not None and not is_bounded()


def input_lens(action: SpaceInfo) -> tuple[int, ...]:
    """Return the number of values of each choice, in C order.

    Raises:
        UnsupportedSpaceError: The space is neither a MultiDiscrete nor a Box of integers, or has
            too many values.
    """
    if not _lists_choices(action):
        raise UnsupportedSpaceError(
            f"{action.path}: MultiCategorical requires a MultiDiscrete or a Box of integers, found"
            f" {action.describe()}."
        )
    if action.is_empty:
        raise action.error_without_values("MultiCategorical")
    if _lacks_bounds(action):
        raise UnsupportedSpaceError(
            f"{action.path}: MultiCategorical needs a lower and an upper bound for every value of "
            f"{action.describe()}; set finite bounds, or choose a different distribution."
        )
    counts = action_codec(action).counts or ()
    num_logits = sum(counts)
    if num_logits > MAX_LOGITS:
        raise UnsupportedSpaceError(
            f"{action.path}: {action.describe()} would need {num_logits:,} logits, more than"
            f" {MAX_LOGITS:,}; narrow its bounds, use a Box of floats, or choose a different"
            " distribution."
        )
    return counts


def multi_size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return the number of logits of `multi_categorical`."""
    return sum(input_lens(action))


def bernoulli_size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return the number of bits."""
    if action.kind != "multi_binary":
        raise UnsupportedSpaceError(
            f"{action.path}: Bernoulli requires a MultiBinary, found {action.describe()}."
        )
    return math.prod(action.shape or ())


def slate_nvec(action: SpaceInfo) -> tuple[int, ...]:
    """Return the number of items, once for each position in a slate.

    Raises:
        UnsupportedSpaceError: The space is not a MultiDiscrete with equal entries, or it allows no
            slates or too many.
    """
    name = "SlateMultiCategorical"
    nvec: tuple[int, ...] = ()
    if action.kind == "multi_discrete":
        nvec = input_lens(action)
    has_equal_entries = len(set(nvec)) == 1
    if not has_equal_entries:
        raise UnsupportedSpaceError(
            f"{action.path}: {name} needs a MultiDiscrete space with equal entries, such as"
            f" MultiDiscrete([5, 5]) for slates of 2 out of 5 items; found {action.describe()}."
        )
    items = nvec[0]
    count = math.perm(items, len(nvec))
    if not 0 < count <= MAX_SLATES:
        raise UnsupportedSpaceError(
            f"{action.path}: there are {count:,} slates of {len(nvec)} distinct items out of"
            f" {items}; {name} supports 1 to {MAX_SLATES:,}. Use a shorter slate, or"
            " 'multi_categorical' (independent places)."
        )
    return nvec


def slates_size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return the number of slates."""
    nvec = slate_nvec(action)
    return math.perm(nvec[0], len(nvec))


def _spec(
    name: str, cls: str, summary: str, size: Callable[..., int], **more: Any
) -> ActionDistSpec:
    targets = {
        "torch": f"rlcatalog_categorical.torch:{cls}",
        "tf": f"rlcatalog_categorical.tf:{cls}",
    }
    return ActionDistSpec(name, targets, summary, size=size, **more)


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    config = "rlcatalog_categorical.config"
    return [
        _spec(
            "categorical",
            "Categorical",
            "one of n values, from n logits",
            size,
            match=match_discrete,
            config=f"{config}:CategoricalConfig",
        ),
        _spec(
            "multi_categorical",
            "MultiCategorical",
            "several independent choices, from the concatenated logits",
            multi_size,
            match=match_multi,
        ),
        _spec(
            "bernoulli",
            "Bernoulli",
            "independent bits, with one logit each",
            bernoulli_size,
            match=match_bernoulli,
        ),
        _spec(
            "quantiles",
            "Quantiles",
            "one of n values, from quantiles of the return after each",
            quantiles_size,
            config=f"{config}:QuantilesConfig",
        ),
        _spec(
            "gumbel_softmax",
            "GumbelSoftmax",
            "relaxed one-hots of n values with gradients, from n logits",
            gumbel_size,
            config=f"{config}:GumbelSoftmaxConfig",
        ),
        _spec(
            "slate_multi_categorical",
            "SlateMultiCategorical",
            "one of all ordered selections of k distinct items out of n, with one logit per"
            " selection",
            slates_size,
        ),
    ]
