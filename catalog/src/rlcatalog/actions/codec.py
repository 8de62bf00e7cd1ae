"""Action codecs, which convert between a distribution's raw actions and the environment's actions.

A codec also reads action masks, and encodes past actions for models. The table
`rlcatalog.spaces.action_codecs` maps each kind of space to a codec class; plugins extend it through
the hook `rlcatalog_action_codecs`. The codec of a Tuple, Dict or OneOf concatenates the codecs of
its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np

from rlcatalog import public_index
from rlcatalog.actions.tensor_actions import LoweredActions
from rlcatalog.errors import ActionError, ActionMaskError, MissingPluginError, UnsupportedSpaceError
from rlcatalog.frameworks.ops import NUMBER_KINDS, Array, Tensor, TensorOps, ops_of
from rlcatalog.plugins import install_hints
from rlcatalog.plugins.loader import condition_of
from rlcatalog.spaces.action_codecs import codec_class
from rlcatalog.spaces.info import Space, SpaceInfo
from rlcatalog.spaces.values import parts_of

#: A batch of the environment's actions: an array, a structure of arrays, or a list with one action
#: for each row, as for a OneOf, whose rows differ in form.
Actions: TypeAlias = "Array | Mapping[str, Actions] | tuple[Actions, ...] | list[Any]"
#: A mask in Gymnasium's format, batched; None allows everything.
Mask: TypeAlias = "Array | Mapping[str, Mask] | tuple[Mask, ...] | list[Mask] | None"


class ActionCodec:
    """Codec for one action space; in shapes, B is the number of rows.

    This class supports any space with a fixed shape. Raw values are the values of the action in C
    order, and no value can be masked. Subclasses for other kinds of space override what differs.

    Args:
        info: The action space, or a subspace of it.
        raw_kind: Form of the raw values: the `raw_kind` of the distribution that draws them.
        bounds: How floats are mapped into their bounds: the model config's `action_bounds`.
        children: The codecs of the parts of an action (`SpaceInfo.action_parts`).

    Attributes:
        info, raw_kind, bounds, children: See above.
        width: Number of raw values per action.
        input_width: Number of values that represent one action as a model input.
        scalar: Whether raw actions have the shape `[B]`, as for a single Discrete.
        whole: Whether raw values are choices, which are stored as int64.
        clips: Whether `adapt` maps all finite raw values into the space.
        paths: Paths of the parts of an action that a distribution may draw separately: one per
            choice, or else only the space's path.
        counts: Number of choices for each raw value, an integer counted from 0; None for floats.
        choices: Path and number of values for every choice that a mask can restrict, in column
            order.

    Raises:
        UnsupportedSpaceError: Actions in the space have no fixed size.
    """

    scalar = False
    whole = False
    clips = False
    #: The codec's tensor operations, for exported policies and for acting on tensors; None if the
    #: class has none.
    lowered: ClassVar[type[LoweredActions] | None] = LoweredActions
    counts: tuple[int, ...] | None = None
    choices: Sequence[tuple[str, int]] = ()

    def __init__(
        self,
        info: SpaceInfo,
        raw_kind: str = "values",
        bounds: str = "affine",
        children: Sequence[ActionCodec] = (),
    ) -> None:
        self.info = info
        self.raw_kind = raw_kind
        self.bounds = bounds
        self.children = tuple(children)
        self.width = self._size()
        self.input_width = self.width

    @classmethod
    def of(
        cls, info: SpaceInfo, raw_kind: str, bounds: str, children: Sequence[ActionCodec]
    ) -> ActionCodec:
        """Return the codec for a space.

        An override may return a different class for some spaces or distributions.
        """
        return cls(info, raw_kind, bounds, children)

    def _size(self) -> int:
        if self.info.shape is None:
            raise UnsupportedSpaceError(
                f"{self.info.path}: {self.info.describe()} cannot be an action space: it has no"
                " fixed size."
            )
        return math.prod(self.info.shape)

    @property
    def paths(self) -> list[str]:  # documented above
        return [self.info.path]

    @property
    def leaves(self) -> Iterator[ActionCodec]:
        """The codecs of all leaves, depth first; only this codec if it has no children."""
        yield self

    # --- raw actions and environment actions ------------------------------------------------------

    def flatten(self, raw: Any) -> Array:
        """Return raw actions as `[B, width]`, from any form in which a distribution's `sample`
        returns them.

        Args:
            raw: An array or tensor `[B, width]` or `[B, *shape]`; also `[B]` if `width` is 1.
                Without the batch axis, it is one raw action, which gives one row. A list or tuple
                of arrays contains neighbouring columns. A Tuple or Dict also takes the structure
                of its children's raw actions, with dicts in any order.

        Raises:
            ActionError: The values are not numbers, or a row does not contain `width` of them.
        """
        columns = parts_of(raw)
        # A list of numbers is one raw action; a list of arrays with axes contains columns.
        if columns and all(hasattr(part, "shape") and len(part.shape) for part in columns):
            rows = self._side_by_side([self._rows(part, width=1) for part in columns])
        else:
            rows = self._rows(raw, self.width)
        if rows.shape[1] != self.width:
            raise self._no_raw_actions(f"{rows.shape[1]} values in each of {len(rows)} rows")
        return rows

    def _rows(self, raw: Any, width: int) -> Array:
        """Return an array or tensor of raw actions as rows of numbers, at least float32 if they are
        floats.

        Args:
            raw: The raw actions; a single axis counts rows if `width` is 1, and values otherwise.
            width: Expected number of values in each row.
        """
        try:
            array: Array | None = ops_of(raw).array(raw)
        except (TypeError, ValueError):  # lists of different lengths
            raise self._no_raw_actions("something that is not an array") from None
        if array is None:
            raise self._no_raw_actions("a tensor without values, from a trace")
        if array.dtype.kind in "fV" and array.dtype.itemsize < 4:  # TensorFlow's bfloat16 is "V"
            array = array.astype(np.float32)
        if array.dtype.kind not in NUMBER_KINDS:
            raise self._no_raw_actions(f"dtype {array.dtype}")
        if array.ndim >= 2:
            # Not reshape(len(array), -1), which fails without rows.
            return array.reshape(len(array), math.prod(array.shape[1:]))
        if width == 1:
            return array.reshape(-1, 1)
        return array.reshape(1, -1)

    def _side_by_side(self, raws: Sequence[Array]) -> Array:
        """Concatenate raw actions along their columns.

        If any of them are floats, integers become floats too.

        Raises:
            ActionError: They have different numbers of rows.
        """
        lengths = [len(raw) for raw in raws]
        if len(set(lengths)) > 1:
            raise self._no_raw_actions(f"{' and '.join(map(str, lengths))} rows")
        dtypes = [raw.dtype for raw in raws]
        float_dtypes = [dtype for dtype in dtypes if dtype.kind == "f"]
        if float_dtypes:
            # Integers keep their value: `action_codec` refuses larger ones next to floats.
            dtype = np.result_type(*float_dtypes)
        elif np.uint64 in dtypes:
            dtype = np.dtype(np.uint64)
        else:
            dtype = np.dtype(np.int64)
        return np.concatenate([raw.astype(dtype, copy=False) for raw in raws], axis=1)

    def _no_raw_actions(self, found: str) -> ActionError:
        return self._no_action(f"raw actions of shape [B, {self.width}]", found)

    def adapt(self, raw: Array) -> Any:
        """Convert raw actions `[B, width]` into environment actions: an array `[B, ...]`, or a
        structure of arrays.

        Every returned action is in the space.
        """
        return raw.reshape(len(raw), *(self.info.shape or ())).astype(self.info.dtype or np.float32)

    def join_leaves(self, leaves: Iterator[Array]) -> Actions:
        """Return a batch of environment actions, joined from the actions of each leaf.

        Args:
            leaves: The actions `[B, ...]` of one leaf after the other, in the order of the
                attribute `leaves`. Their dtype may differ from the space's, because exported files
                lack some dtypes.
        """
        action = next(leaves)
        return action.astype(self.info.dtype or "float32", copy=False)

    def used(self, raw: Array) -> Array | None:
        """Return which raw values count in raw actions `[B, width]`, as booleans; None if all of
        them always do.

        In a OneOf, only the values of the chosen part count. The others are 0 in samples, but may
        be any numbers in raw actions that are scored.
        """
        return None

    def invert(self, action: Actions) -> Array:
        """Return raw actions `[B, width]` that `adapt` converts into these environment actions.

        Unscaled floats keep the action's precision, but are at least float32. Scaled floats are
        float64, because lower precision would give a different action.

        Raises:
            ActionError: The argument is not a batch of actions of the space.
            NotServedError: The codec has no inverse. All of rlcatalog's codecs have one.
        """
        array = self._to_numbers(action)
        return array.reshape(len(array), self.width)

    def leaf_actions(self, action: Actions) -> Iterator[tuple[ActionCodec, Any]]:
        """Yield each leaf's codec with the environment actions for that leaf, from a batch."""
        yield self, action

    def _to_numbers(self, action: Actions) -> Array:
        """Return a batch of environment actions as an array of numbers, `[B, *shape]`.

        Raises:
            ActionError: The argument is not a batch of actions.
        """
        shape = self.info.shape
        axes = ["B", *map(str, shape or ())]
        expected = f"numbers of shape [{', '.join(axes)}]"
        try:
            array = np.asarray(action)
        except (TypeError, ValueError):  # lists of different lengths
            raise self._no_action(expected, "something that is not an array") from None
        if array.dtype.kind not in NUMBER_KINDS:
            raise self._no_action(expected, f"dtype {array.dtype}")
        if array.shape == (0,):  # an empty batch
            array = array.reshape(0, *(shape or ()))
        has_wrong_shape = shape is not None and array.shape[1:] != shape
        if not array.ndim or has_wrong_shape:
            raise self._no_action(expected, f"shape {array.shape}")
        return array

    def _no_action(self, expected: str, found: str) -> ActionError:
        return ActionError(f"actions: {self.info.path}: expected {expected}; found {found}.")

    @property
    def limits(self) -> tuple[Array, Array]:
        """The bounds to which `adapt` clips raw values, float64 `[width]` each; infinite if it does
        not clip.

        Integers count from 0.
        """
        if self.counts is None:
            infinity = np.full(self.width, np.inf)
            return -infinity, infinity
        highest = np.array([count - 1 for count in self.counts], np.float64)
        return np.zeros(self.width), highest

    @property
    def stored_form(self) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
        """Dtype and shape of a batch of actions, as RLlib's `ModelCatalog.get_action_shape` returns
        them.
        """
        return np.dtype(self.info.dtype or "float32"), (None, *(self.info.shape or ()))

    def check_raw(self, raw: Array) -> None:
        """Check that a distribution could draw these raw actions `[B, width]`.

        Floats outside the bounds are accepted.

        Raises:
            ActionError: A value is NaN or infinite, or is not one of the integers that `counts`
                allows.
        """
        # A fast check for the usual case, because training checks every minibatch.
        if self._is_surely_valid(raw):
            return
        is_wrong = ~np.isfinite(raw)
        if self.counts is not None:
            counts = np.array(self.counts, np.uint64)
            with np.errstate(invalid="ignore"):
                is_fraction = raw != np.floor(raw)
                # The cast changes negative numbers, so they are compared before it.
                is_wrong |= (raw < 0) | is_fraction | (raw.astype(np.uint64) >= counts)
        if not is_wrong.any():
            return
        row, column = np.argwhere(is_wrong)[0].tolist()
        if self.counts is None:
            expected = "finite numbers"
        else:
            expected = f"an integer from 0 to {self.counts[column] - 1}"
        raise ActionError(
            f"raw_action of {self.info.path}: expected {expected}; found {raw[row, column]} in"
            f" row {row}, column {column}. Store the step.raw_action that Policy.act returned."
        )

    def _is_surely_valid(self, raw: Array) -> bool:
        """Return whether a look at all values together shows that each one is valid."""
        if self.counts is None:
            # The sum of squares is finite only if every value is.
            return math.isfinite(np.vdot(raw, raw))
        if raw.dtype.kind not in "iu":
            return False
        if not raw.size:
            return True
        # Read as unsigned integers, negative numbers are larger than every count.
        largest = raw.view(f"u{raw.itemsize}").max()
        return bool(largest < min(self.counts))

    # --- actions as a model sees them -------------------------------------------------------------

    def inputs(self, raw: Array) -> Array:
        """Return raw actions `[B, width]` as model inputs `[B, input_width]`, float32; unchanged by
        default.

        Override it to return one-hot vectors for choices, whose numbers have no order.
        """
        return raw.astype(np.float32, copy=False)

    def shown(self, raw: Array) -> Any:
        """Return raw actions `[..., width]` in the space's shape: `[...]` for a Discrete, a
        structure for a Tuple.
        """
        dtype = np.int64 if self.whole else np.float32
        return raw.reshape(*raw.shape[:-1], *(self.info.shape or ())).astype(dtype, copy=False)

    # --- masks ------------------------------------------------------------------------------------

    @cached_property
    def mask_width(self) -> int:
        """Number of mask columns: one per value that can be forbidden."""
        return sum(count for _, count in self.choices)

    @property
    def mask_places(self) -> list[tuple[int, int]]:
        """For each column, its position in a Gymnasium mask, in C order, and the mask value that
        means forbidden.
        """
        return [(column, 0) for column in range(self.mask_width)]

    def mask_taken(self, raw: Array) -> Array | None:
        """Return the mask columns that raw actions `[B, width]` use, `[B, k]`; None if unknown.

        There is one column for each choice. For a choice that an action does not make, as in a part
        of a OneOf that it does not choose, another of its columns is repeated.

        By default, each raw value is one choice. Override it if `choices` differ from `counts`.
        """
        counts = [count for _, count in self.choices]
        if not counts:
            return np.zeros((len(raw), 0), np.int64)
        if counts != list(self.counts or ()):
            return None
        return np.cumsum(counts) - counts + raw.astype(np.int64)

    def allowing(self, columns: Tensor, ops: TensorOps) -> Iterator[tuple[str, Any]]:
        """Yield the path of each choice that every action makes, with the rows of a mask that allow
        a value of it: booleans `[B]`.

        A row allows an action if it allows a value of each of these choices.

        Args:
            columns: The mask, boolean `[B, mask_width]`; an array or a tensor.
            ops: The operations for it.
        """
        start = 0
        for path, count in self.choices:
            stop = start + count
            yield path, ops.any(columns[:, start:stop])
            start = stop

    def mask_places_in(self, shown: SpaceInfo | None, start: int = 0) -> list[tuple[int, int]]:
        """Return each column's position in an encoded mask, and the mask value that means
        forbidden.

        Args:
            shown: The mask's entry in the observation space, in any form that `mask_columns`
                accepts; None if there is no mask, so nothing is forbidden.
            start: Position of its first value.

        Returns:
            For each column, its position, in C order over all mask values, and the mask value that
            means forbidden.
        """
        if shown is None:
            # Nothing is forbidden, because no mask contains this value; any position will do.
            return [(0, _NO_VALUE)] * self.mask_width
        if shown.shape == self.info.shape:
            places = self.mask_places
        else:
            # The entry holds columns, in which 0 means forbidden.
            places = [(column, 0) for column in range(self.mask_width)]
        return [(start + place, forbidding_value) for place, forbidding_value in places]

    def mask_columns(self, mask: Mask, rows: int | None = None) -> Array | None:
        """Return a batched mask in Gymnasium's format as booleans `[B, mask_width]`; see
        `ActionMasks.matrix`.

        Args:
            mask: The mask, or a list with one mask per row; None allows everything.
            rows: B, if known.

        Returns:
            The columns; None if B is unknown and everything is allowed.

        Raises:
            ActionMaskError: The mask has the wrong format.
        """
        if isinstance(mask, list):
            mask = _by_column(mask)  # one mask per row
        if mask is None or not self.mask_width:
            return None if rows is None else np.ones((rows, self.mask_width), np.bool_)
        if isinstance(mask, Mapping | tuple):
            mask = self._join_masks(mask, rows)
        try:
            array = np.asarray(mask)
        except ValueError:  # lists of different lengths
            raise self._bad_mask(self._expected_mask_shape(rows), mask) from None
        shape = array.shape
        if shape == (0,):  # an empty batch
            array = array.reshape(0, self.mask_width)
        if array.dtype.kind not in NUMBER_KINDS:
            raise self._bad_mask("booleans, or 0 and 1", f"dtype {array.dtype}")
        columns = self._mask_rows(array)
        has_columns = columns.ndim == 2 and columns.shape[1] == self.mask_width
        if not has_columns or (rows is not None and len(columns) != rows):
            raise self._bad_mask(self._expected_mask_shape(rows), f"shape {shape}")
        is_allowed: Array = columns.astype(np.bool_)
        # Only 0 and 1 equal their booleans.
        if columns.dtype.kind != "b" and not (columns == is_allowed).all():
            other_value = columns[columns != is_allowed][0]
            raise self._bad_mask("booleans, or 0 and 1", other_value)
        return is_allowed

    def _expected_mask_shape(self, rows: int | None) -> str:
        count = "B" if rows is None else rows
        return f"shape ({count}, {self.mask_width})"

    def _join_masks(self, masks: Mask, rows: int | None) -> Mask:
        """Concatenate the children's masks into one array."""
        return masks

    def _mask_rows(self, array: Array) -> Array:
        """Flatten an array of masks `[B, ...]` into columns `[B, m]`."""
        if array.ndim > 2:
            return array.reshape(len(array), -1)
        return array

    def _bad_mask(self, expected: str, found: Mask | str) -> ActionMaskError:
        return ActionMaskError(f"mask: {self.info.path}: expected {expected}; found {found}.")

    # --- the space as plain data ------------------------------------------------------------------

    @staticmethod
    def space_to_json(space: Space) -> dict[str, Any] | None:  # noqa: ARG004  (for overrides)
        """Return a space's parameters as plain data, for saved policies; None if the space cannot
        be saved.

        Only space classes that plugins define need it. rlcatalog-policy saves Gymnasium's spaces.
        """
        return None

    @staticmethod
    def space_from_json(data: Mapping[str, Any]) -> Any:
        """Return the space that `space_to_json` described."""
        raise NotImplementedError(
            "space_from_json(data) must be implemented together with space_to_json(space)."
        )


#: A value that occurs in no mask.
_NO_VALUE = -1
#: Number of integers from 0 that float32 represents exactly.
_FLOAT32_COUNT = 2**24 + 1


def _by_column(rows: list[Any]) -> Any:
    """Turn a list with one structured mask per row into a structure of columns; return a list of
    other masks unchanged.
    """
    if rows and all(row is None for row in rows):
        return None
    first_row = rows[0] if rows else None
    if isinstance(first_row, Mapping):
        return {key: _by_column([row.get(key) for row in rows]) for key in first_row}
    if isinstance(first_row, tuple):
        return tuple(_by_column(list(column)) for column in zip(*rows, strict=True))
    return rows


def first_row(actions: Actions) -> Any:
    """Return the first action of a batch in the format of a single environment."""
    if isinstance(actions, Mapping):
        return {key: first_row(part) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(map(first_row, actions))
    return actions[0]


def action_codec(
    info: SpaceInfo, bounds: str = "affine", raw_kinds: Mapping[str, str] | None = None
) -> ActionCodec:
    """Return the codec for an action space.

    Args:
        info: The action space.
        bounds: The model config's `action_bounds`.
        raw_kinds: The `ActionDistribution.raw_kind` of each leaf's distribution, by path;
            `"values"` by default; None before distributions are chosen.

    Raises:
        UnsupportedSpaceError: A leaf has no fixed size; or, with `raw_kinds`, a leaf next to floats
            has more integers than float32 can represent.
    """
    codec = _codec(info, bounds, raw_kinds or {})
    if raw_kinds is None:
        return codec
    has_floats = False
    largest_count = 0
    path = ""
    for leaf in codec.leaves:
        if leaf.counts is None:
            has_floats = True
            continue
        count = max(leaf.counts, default=0)
        # Of leaves with equally many values, the last path by name is reported.
        if (count, leaf.info.path) > (largest_count, path):
            largest_count = count
            path = leaf.info.path
    # Next to floats, raw actions are float32.
    if has_floats and largest_count > _FLOAT32_COUNT:
        raise UnsupportedSpaceError(
            f"{path}: {largest_count:,} values cannot be distinguished next to floats, because"
            f" float32 only has {_FLOAT32_COUNT:,}; narrow its bounds, or remove the floats from"
            " the action space."
        )
    return codec


def _codec(info: SpaceInfo, bounds: str, raw_kinds: Mapping[str, str]) -> ActionCodec:
    children = [_codec(part, bounds, raw_kinds) for part in info.action_parts]
    raw_kind = raw_kinds.get(info.path, "values")
    return _codec_class(info).of(info, raw_kind, bounds, children)


def _codec_class(info: SpaceInfo) -> type[ActionCodec]:
    """Return the codec class of a space; `ActionCodec` itself if no package declares one.

    Raises:
        MissingPluginError: The package that declares it is missing.
    """
    cls: type[ActionCodec] | None = codec_class(info)
    if cls is not None:
        return cls
    provider = public_index.provider_of("action_codec", info.kind)
    if provider is None:
        return ActionCodec
    hint = install_hints.how_to_get(provider, condition_of(provider))
    raise MissingPluginError(f"{info.path}: the codec of {info.describe()} {hint}")
