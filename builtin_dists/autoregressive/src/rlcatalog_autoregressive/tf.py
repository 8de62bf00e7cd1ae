"""The autoregressive head, its conditionals and its distribution in TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

from rlcatalog.config import Initializer
from rlcatalog.errors import ActionMaskError
from rlcatalog.frameworks import Tensor
from rlcatalog.models import hidden_spec, init_recipe
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
        config: The flat model config, whose key `init` names the initial values.
    """

    def __init__(self, layout: PartColumns, config: Mapping[str, Any]) -> None:
        self.layout = layout
        self.activation = activation(layout.activation) or tf.identity
        widths = layout.hidden_widths
        recipe = init_recipe(config)
        self.actions = _weight(widths[0], len(layout.columns), recipe.hidden, name="actions")
        self.hidden = []
        for inputs, outputs in pairwise(widths):
            self.hidden.append(Dense(inputs, hidden_spec(outputs, config)))
        # Small weights: a new model's parts are almost independent.
        self.params = _weight(layout.num_params, widths[-1], recipe.logits, name="params")
        # TensorFlow's kernels are [inputs, outputs], the layout's masks [outputs, inputs].
        self._first = layout.masks.first.T.copy()
        self._between = [mask.T.copy() for mask in layout.masks.between]
        self._last = layout.masks.last.T.copy()

    def canonical(self) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield "actions", self.actions, (1, 0)
        yield "params", self.params, (1, 0)
        for i, layer in enumerate(self.hidden):
            for name, variable, axes in layer.canonical():
                yield f"hidden.{i}.{name}", variable, axes

    def encode(self, raw: Tensor, columns: slice = slice(None), start: int = 0) -> Any:
        """Return the encoding `[B, encoded]` of raw actions `[B, raw]`: one-hot vectors and scaled
        numbers.

        Args:
            raw: Raw values from the column `start` onwards.
            columns: Encoded columns to return.
            start: The raw column with which `raw` begins.
        """
        encoding = self.layout.encoding
        dtype = self.actions.dtype
        numbers = tf.gather(raw, encoding.source[columns] - start, axis=1)
        values = encoding.value[columns].astype(numbers.dtype.as_numpy_dtype)
        one_hots = tf.cast(numbers == tf.constant(values), dtype)
        is_choice = encoding.is_choice[columns]
        if is_choice.all():
            return one_hots
        shift = encoding.shift[columns]
        scale = encoding.scale[columns]
        return tf.where(is_choice, one_hots, (tf.cast(numbers, dtype) - shift) * scale)

    def effects(self, context: Tensor, raw: Tensor) -> Any:
        """Return the effect `[B, params]` of whole actions on the parameters, in one pass.

        Args:
            context: `[B, hidden]`.
            raw: Raw actions `[B, raw]`.
        """
        x = self.activation(context + tf.matmul(self.encode(raw), self.actions * self._first))
        for layer, mask in zip(self.hidden, self._between, strict=True):
            x = self.activation(tf.nn.bias_add(tf.matmul(x, layer.kernel * mask), layer.bias))
        return tf.matmul(x, self.params * self._last)


class Run:
    """Pass over the parts in sampling order that computes each unit once.

    Args:
        conditionals: The conditionals.
        independent: The parameters `[B, params]` that the parts would have if they were
            independent.
        context: `[B, hidden]`.
    """

    def __init__(self, conditionals: Conditionals, independent: Tensor, context: Tensor) -> None:
        layout = conditionals.layout
        self.conditionals = conditionals
        self.independent = tf.split(independent, layout.param_widths, axis=1)
        #: The first layer's inputs, to which each part's values are added.
        self.sums: Any = context
        #: Outputs of the units in each layer, a tensor for each part so far.
        self.outputs: list[list[Any]] = [[] for _ in layout.hidden_widths]

    def params(self, part: ActionPart) -> Any:
        """Return a part's parameters `[B, n]`, given the raw values added so far."""
        conditionals = self.conditionals
        # Each layer reads the units of this part and of earlier ones: the first `stop` columns.
        first_units = part.units[0]
        stop = first_units.stop
        outputs = conditionals.activation(self.sums[:, first_units])
        x = self._with_earlier(outputs, layer=0)
        layers = zip(conditionals.hidden, part.units[1:], strict=True)
        for i, (layer, units) in enumerate(layers, 1):
            x = tf.nn.bias_add(tf.matmul(x, layer.kernel[:stop, units]), layer.bias[units])
            x = self._with_earlier(conditionals.activation(x), layer=i)
            stop = units.stop
        weight = conditionals.params[:stop, part.params]
        return self.independent[part.place_in_space] + tf.matmul(x, weight)

    def _with_earlier(self, outputs: Tensor, layer: int) -> Any:
        """Store the outputs of a part's units in a layer; return the outputs of all parts so far,
        joined along the columns.
        """
        self.outputs[layer].append(outputs)
        return tf.concat(self.outputs[layer], axis=1)

    def add(self, part: ActionPart, value: Tensor) -> None:
        """Add a part's raw values, `[B]` or `[B, width]`, so that later parts see them."""
        weights = self.conditionals.actions
        if part.is_scalar:
            # A one-hot vector times the weights is one row of the weights.
            rows = tf.reshape(value, [-1]) + part.encoded.start
            self.sums = self.sums + tf.gather(weights, rows)
            return
        width = part.raw.stop - part.raw.start
        raw = tf.reshape(value, [-1, width])
        columns = self.conditionals.encode(raw, part.encoded, part.raw.start)
        self.sums = self.sums + tf.matmul(columns, weights[part.encoded])


def _weight(outputs: int, inputs: int, initializer: Initializer, name: str) -> Any:
    value = initial_value((outputs, inputs), *initializer)
    return tf.Variable(tf.transpose(value), name=name)


class AutoregressiveDistribution(JointDistribution):
    """Product P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁); see `JointDistribution`."""

    framework_of_class = "tf"
    ops = OPS
    run_class = Run

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
    def check_allowed(mask: Any, params: Tensor, part: ActionPart) -> None:
        """Raise an error if a row allows no value of a part, counting values that its parameters
        already forbid.

        Raises:
            ActionMaskError: A row allows no value; the message names the row. Inside a trace,
                TensorFlow raises its own error instead.
        """
        # A forbidden value's logit is the lowest finite number, to which the effect of earlier
        # parts may have been added; beyond half of it, a logit counts as forbidden.
        largest_logit = params.dtype.max / 2
        is_free = params > -largest_logit
        if part.is_bits:
            # A bit's logit forbids 0 if it is very high, and 1 if it is very low.
            is_free = flatten_rows(tf.stack([params < largest_logit, is_free], axis=2))
        # Otherwise, logits belong to combinations of choices, while a mask has a column for each
        # value of each choice.
        has_logit_per_column = part.is_bits or part.masks.has_single_choice
        if has_logit_per_column:
            mask = mask & is_free
        choices = [allows_value for _, allows_value in part.masks.allowing(mask)]
        allows_any = tf.reduce_all(tf.stack(choices, axis=1), axis=1)
        # The first False.
        first_without = tf.argmin(tf.cast(allows_any, tf.int32))
        if not tf.executing_eagerly():
            message = tf.strings.format(nothing_left("{}", part.path), first_without)
            tf.debugging.Assert(tf.reduce_all(allows_any), [message])
        elif not bool(tf.reduce_all(allows_any)):
            raise ActionMaskError(nothing_left(int(first_without), part.path))


class AutoregressiveModel(AutoregressiveHead, TFModelV2):
    """Head for actions whose parts depend on each other; see `AutoregressiveHead`."""

    ops = OPS
    conditionals_class = Conditionals
    features_of = staticmethod(features_of)
    dense_class = Dense
    outputs_class = OutputLayers
