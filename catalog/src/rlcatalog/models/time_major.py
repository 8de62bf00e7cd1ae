"""Rows of time-major models: what they compute as `[T, B, ...]` comes back in the order of the batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import ModelContractError

if TYPE_CHECKING:
    from rlcatalog.models.model import ModelV2


def in_row_order(value_function: Callable[..., Any]) -> Callable[..., Any]:
    """Complete the `value_function` of a recurrent model, which flattens what `forward_rnn` has kept.

    After a time-major pass its values follow one another as `[T, B]` does; the caller's rows follow as `[B, T]`.
    """

    @functools.wraps(value_function)
    def completed(self: ModelV2, *args: Any, **kwargs: Any) -> Any:
        inside = self._rlcatalog
        timed, inside.timed = inside.timed, None  # what an override takes from its base is turned once
        try:
            value = value_function(self, *args, **kwargs)
        finally:
            inside.timed = timed
        return value if timed is None else inside.batch_major(value, *timed)

    return completed


def check_time_major(model: ModelV2, found: tuple[int | None, ...], steps: int | None, sequences: int | None) -> None:
    """Raise unless the outputs of a time-major `forward_rnn` begin with `[T, B]`; None is an unknown length.

    Raises:
        ModelContractError: They do not.
    """
    known = zip(found[:2], (steps, sequences), strict=False)
    if len(found) > 2 and any(None not in (n, expected) and n != expected for n, expected in known):
        raise ModelContractError(
            f"{type(model).__name__}.forward_rnn() must return outputs [T, B, n] under _time_major, as its inputs are"
            f" [T, B, obs_size]: expected ({steps}, {sequences}, n), found {found}. Do not turn them back."
        )
