"""Gradients: the tape, read backwards."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from tape.array import Array, Numbers


def gradients(total: Array, wanted: Sequence[Array]) -> list[Numbers | None]:
    """Return the gradients of a scalar with respect to arrays.

    Every array that the scalar depends on is visited once, the newest first. All arrays that were
    computed from it have been visited then, so its gradient is complete, and is passed on to its
    sources.

    Args:
        total: The scalar.
        wanted: The arrays.

    Returns:
        For each array its gradient, or None if the scalar does not depend on it.
    """
    of_array = {total.number: np.ones_like(total.data)}
    queue = [(-total.number, total)]
    while queue:
        _, result = heappop(queue)
        for source, pull_back in result.sources:
            share = _fit(pull_back(of_array[result.number]), source.data)
            if source.number in of_array:
                of_array[source.number] = of_array[source.number] + share
            else:
                of_array[source.number] = share
                heappush(queue, (-source.number, source))
    return [of_array.get(array.number) for array in wanted]


def _fit(gradient: Numbers, like: Numbers) -> Numbers:
    """Return a gradient in the shape and dtype of its array.

    Where the array was broadcast, each of its elements was used several times, and the gradients of
    all uses add up.
    """
    added = gradient.ndim - like.ndim
    stretched = [
        added + axis
        for axis, length in enumerate(like.shape)
        if length == 1 and gradient.shape[added + axis] != 1
    ]
    axes = (*range(added), *stretched)
    if axes:
        gradient = gradient.sum(axes).reshape(like.shape)
    return gradient.astype(like.dtype, copy=False)
