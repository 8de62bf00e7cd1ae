"""The autoregressive head, its conditionals and its distribution in TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import numpy as np

from rlcatalog.errors import ActionMaskError
from rlcatalog.models import DenseSpec
from rlcatalog_autoregressive.head import AutoregressiveHead
from rlcatalog_autoregressive.joint import JointDistribution, nothing_left
from rlcatalog_autoregressive.part_columns import ActionPart, PartColumns
from rlcatalog_tf import (
    OPS,
    Dense,
    OutputLayers,
    TFModelV2,
    activation,
    features_of,
    flatten_rows,
    initial_value,
    tf,
)


class Conditionals:
    """MADE layers (Germain et al. 2015) that add the effect of earlier action parts to the
    parameters of later ones.

    The layers have the same structure and names as in PyTorch.

    Args:
        layout: The parts.
    """

    def __init__(self, layout: PartColumns) -> None:
        self.layout = layout
        self.activation = activation(layout.activation) or tf.identity
        widths = layout.hiddens
        self.actions = _weight(widths[0], len(layout.columns), 1.0, "actions")
        self.hidden = [Dense(n, DenseSpec(m)) for n, m in pairwise(widths)]
        self.params = _weight(layout.params, widths[-1], 0.01, "params")
        first, between, last = layout.masks
        self._first, self._last = first.T.copy(), last.T.copy()
        self._between = [mask.T.copy() for mask in between]
        self._source, self._is_choice, self._value, self._shift, self._scale = layout.encoding

    def canonical(self) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield "actions", self.actions, (1, 0)
        yield "params", self.params, (1, 0)
        for i, layer in enumerate(self.hidden):
            for name, variable, axes in layer.canonical():
                yield f"hidden.{i}.{name}", variable, axes

    def encoded(self, raw: Any, columns: slice = slice(None), start: int = 0) -> Any:
        """Return the encoding `[B, encoded]` of raw actions `[B, raw]`: one-hot vectors and scaled
        numbers.

        Args:
            raw: Raw values from the column `start` onwards.
            columns: Encoded columns to return.
            start: See `raw`.
        """
        dtype = self.actions.dtype
        found = tf.gather(raw, self._source[columns] - start, axis=1)
        chosen = tf.cast(
            found == tf.constant(self._value[columns].astype(found.dtype.as_numpy_dtype)), dtype
        )
        is_choice = self._is_choice[columns]
        if is_choice.all():
            return chosen
        shift, scale = (side[columns].astype(np.float32) for side in (self._shift, self._scale))
        return tf.where(is_choice, chosen, (tf.cast(found, dtype) - shift) * scale)

    def given(self, context: Any, raw: Any) -> Any:
        """Return the effect `[B, params]` of whole actions on the parameters, in one pass.

        Args:
            context: `[B, hidden]`.
            raw: Raw actions `[B, raw]`.
        """
        x = self.activation(context + tf.matmul(self.encoded(raw), self.actions * self._first))
        for layer, mask in zip(self.hidden, self._between, strict=True):
            x = self.activation(tf.nn.bias_add(tf.matmul(x, layer.kernel * mask), layer.bias))
        return tf.matmul(x, self.params * self._last)


class Run:
    """Pass over the parts in sampling order that computes each unit once.

    Args:
        made: The conditionals.
        independent: The parameters `[B, params]` that the parts would have if they were
            independent.
        context: `[B, hidden]`.
    """

    def __init__(self, made: Conditionals, independent: Any, context: Any) -> None:
        self.made, self.sums = made, context
        self.independent = tf.split(independent, made.layout.param_widths, axis=1)
        self.done: list[list[Any]] = [[] for _ in made.layout.hiddens]

    def params(self, part: ActionPart) -> Any:
        """Return a part's parameters `[B, n]`, given the raw values added so far."""
        made, stop = self.made, part.units[0].stop
        x = self._keep(0, made.activation(self.sums[:, part.units[0]]))
        for i, (layer, units) in enumerate(zip(made.hidden, part.units[1:], strict=True), 1):
            x = tf.nn.bias_add(tf.matmul(x, layer.kernel[:stop, units]), layer.bias[units])
            x, stop = self._keep(i, made.activation(x)), units.stop
        return self.independent[part.place] + tf.matmul(x, made.params[:stop, part.params])

    def _keep(self, layer: int, values: Any) -> Any:
        self.done[layer].append(values)
        return tf.concat(self.done[layer], axis=1)

    def note(self, part: ActionPart, value: Any) -> None:
        """Add a part's raw values, `[B]` or `[B, width]`, so that later parts see them."""
        made, columns = self.made, part.encoded
        if part.single:  # adding its row of weights is enough
            self.sums = self.sums + tf.gather(made.actions, tf.reshape(value, [-1]) + columns.start)
            return
        width = part.raw.stop - part.raw.start
        seen = made.encoded(tf.reshape(value, [-1, width]), columns, part.raw.start)
        self.sums = self.sums + tf.matmul(seen, made.actions[columns])


def _weight(outputs: int, inputs: int, std: float, name: str) -> Any:
    return tf.Variable(
        tf.transpose(initial_value((outputs, inputs), "normc", {"std": std})), name=name
    )


class AutoregressiveDistribution(JointDistribution):
    """Product P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁); see `JointDistribution`."""

    framework_of_class = "tf"
    ops, run_class = OPS, Run

    @staticmethod
    def no_gradient() -> AbstractContextManager[Any]:
        """Return a context manager for sampling actions; samples of parts have no gradient."""
        return nullcontext()

    @staticmethod
    def differentiable() -> bool:
        """Return whether a tape that missed the sampling may be recording now; in a trace, one tape
        records both.
        """
        return bool(tf.executing_eagerly())

    @staticmethod
    def check_allowed(mask: Any, params: Any, part: ActionPart) -> None:
        """Raise an error if a row allows no value of a part, counting values that its parameters
        already forbid.

        Raises:
            ActionMaskError: A row allows no value; the message names the row. Inside a trace,
                TensorFlow raises its own error instead.
        """
        largest = params.dtype.max / 2
        free = params > -largest
        if part.bits:
            free = flatten_rows(tf.stack([params < largest, free], axis=2))
        # Otherwise, parameters belong to combinations and have no such columns.
        if part.bits or part.masks.single:
            mask = mask & free
        left = tf.stack(
            [tf.reduce_any(choice, axis=1) for _, choice in part.masks.by_choice(mask)], axis=1
        )
        left = tf.reduce_all(left, axis=1)
        row = tf.argmin(tf.cast(left, tf.int32))
        if not tf.executing_eagerly():
            why = tf.strings.format(nothing_left("{}", part.path), row)
            tf.debugging.Assert(tf.reduce_all(left), [why])
        elif not bool(tf.reduce_all(left)):
            raise ActionMaskError(nothing_left(int(row), part.path))


class AutoregressiveModel(AutoregressiveHead, TFModelV2):
    """Head for actions whose parts depend on each other; see `AutoregressiveHead`."""

    ops, conditionals_class, features_of = OPS, Conditionals, staticmethod(features_of)
    dense_class, outputs_class = Dense, OutputLayers
