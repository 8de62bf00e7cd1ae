"""Codec for the action space OneOf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlcatalog.actions import ActionCodec, Actions, Mask, open_parts
from rlcatalog.frameworks import Array, Tensor, TensorOps
from rlcatalog.observations import rows, stack
from rlcatalog.spaces import SpaceInfo
from rlcatalog_preprocessors.actions.composites import CompositeCodec, count_values
from rlcatalog_preprocessors.actions.lowering import LoweredOneOf


class OneOfCodec(CompositeCodec):
    """Codec for a OneOf, an action of exactly one of several spaces, its parts.

    Raw actions have a fixed width: the choice of a part, followed by the raw values of every part.
    Only the values of the chosen part count. The codec writes 0 into the others, as distributions
    do, and does not read them.

    Environment actions are pairs `(part, action)`, and a batch of them is a list of pairs.

    Attributes:
        choice_codec: The codec of the choice, a Discrete; the first child.
        part_codecs: The codecs of the parts; the other children.
    """

    lowered = LoweredOneOf

    def __init__(self, info: SpaceInfo, *args: Any) -> None:
        super().__init__(info, *args)
        self.choice_codec, *self.part_codecs = self.children

    @property
    def paths(self) -> list[str]:
        return [self.info.path]  # no distribution can draw the parts separately

    def flatten(self, raw: Any) -> Array:
        # Raw actions have no structure: they are columns, unlike those of a Tuple.
        return ActionCodec.flatten(self, raw)

    def _choices(self, raw: Array) -> Array:
        """Return the chosen part of each raw action, int64 `[B]`.

        Raises:
            ActionError: There is no such part.
        """
        _, span = self.parts[0]
        raw_choices = raw[:, span]
        self.choice_codec.check_raw(raw_choices)
        choices: Array = self.choice_codec.adapt(raw_choices)
        return choices

    def _each_part(self, raw: Array) -> Iterator[tuple[ActionCodec, slice, Array]]:
        """Yield the codec of each part, its columns of raw actions, and the indices of the raw
        actions that choose it.
        """
        choices = self._choices(raw)
        for place, (part, span) in enumerate(self.parts[1:]):
            yield part, span, np.flatnonzero(choices == place)

    # --- raw actions and environment actions ------------------------------------------------------

    def adapt(self, raw: Array) -> Any:
        """Convert raw actions `[B, width]` into a list of pairs `(part, action)`."""
        actions: list[Any] = [None] * len(raw)
        for place, (part, span, indices) in enumerate(self._each_part(raw)):
            if not len(indices):
                continue
            actions_of_part = rows(part.info, part.adapt(raw[indices, span]))
            for index, action in zip(indices.tolist(), actions_of_part, strict=True):
                actions[index] = (np.int64(place), action)  # as Gymnasium samples them
        return actions

    def join_leaves(self, leaves: Iterator[Array]) -> Actions:
        choices: Any = self.choice_codec.join_leaves(leaves)
        actions_of_parts = []
        for part in self.part_codecs:
            # Every part has an action in each row; only that of the chosen part counts.
            actions_of_parts.append(list(rows(part.info, part.join_leaves(leaves))))
        pairs = []
        for row, place in enumerate(choices):
            pairs.append((place, actions_of_parts[place][row]))
        return pairs

    def invert(self, action: Actions) -> Array:
        """Return raw actions `[B, width]` for a batch of pairs `(part, action)`."""
        choices, actions_of_parts = self._by_part(action)
        raws = [self.choice_codec.invert(choices)]
        for place, (part, actions) in enumerate(
            zip(self.part_codecs, actions_of_parts, strict=True)
        ):
            raw_of_chosen = part.invert(actions)
            raw = np.zeros((len(choices), part.width), raw_of_chosen.dtype)
            raw[choices == place] = raw_of_chosen
            raws.append(raw)
        return self._side_by_side(raws)

    def leaf_actions(self, action: Actions) -> Iterator[tuple[ActionCodec, Any]]:
        """Yield each leaf's codec with its environment actions, beginning with the choice; the
        leaves of a part have actions only for the rows that choose the part.
        """
        choices, actions_of_parts = self._by_part(action)
        yield self.choice_codec, choices
        for part, actions in zip(self.part_codecs, actions_of_parts, strict=True):
            yield from part.leaf_actions(actions)

    def _by_part(self, action: Actions) -> tuple[Array, list[Any]]:
        """Return the chosen part of each pair, int64 `[B]`, and for each part a batch of the
        actions that choose it.

        Raises:
            ActionError: The argument is not a batch of pairs for this space.
        """
        count = len(self.part_codecs)
        expected = f"pairs (part from 0 to {count - 1}, its action), one for each row"
        if not isinstance(action, tuple | list):
            raise self._no_action(expected, type(action).__name__)
        choices = []
        actions_of_parts: list[list[Any]] = [[] for _ in range(count)]
        for row, pair in enumerate(action):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise self._no_action(expected, f"{pair!r} in row {row}")
            choice, action_of_part = pair
            # Gymnasium samples NumPy's integers, and recorded data may hold arrays without axes.
            number = np.asarray(choice)
            is_integer = number.dtype.kind in "iu" and number.shape == ()
            if not is_integer or not 0 <= int(number) < count:
                raise self._no_action(expected, f"the part {choice!r} in row {row}")
            choices.append(int(number))
            actions_of_parts[int(number)].append(action_of_part)
        batches = []
        for part, actions in zip(self.part_codecs, actions_of_parts, strict=True):
            try:
                batches.append(stack(part.info, actions))
            except (ValueError, KeyError, TypeError) as error:
                raise self._no_action(
                    f"actions of {part.info.describe()} for {part.info.path}", str(error)
                ) from error
        return np.array(choices, np.int64), batches

    def check_raw(self, raw: Array) -> None:
        choices = self._choices(raw)
        for place, (part, span) in enumerate(self.parts[1:]):
            is_chosen = choices == place
            # Zeros in place of values that do not count: every part accepts them.
            part.check_raw(np.where(is_chosen[:, None], raw[:, span], 0))

    def used(self, raw: Array) -> Array:
        is_used = np.zeros(raw.shape, np.bool_)
        _, span_of_choice = self.parts[0]
        is_used[:, span_of_choice] = True
        for part, span, indices in self._each_part(raw):
            used_of_part = part.used(raw[indices, span])
            is_used[indices, span] = True if used_of_part is None else used_of_part
        return is_used

    # --- actions as a model sees them -------------------------------------------------------------

    def inputs(self, raw: Array) -> Array:
        """Return the choice as a one-hot vector, followed by the model inputs of every part, with
        zeros for parts that were not chosen.
        """
        _, span_of_choice = self.parts[0]
        columns = [self.choice_codec.inputs(raw[:, span_of_choice])]
        for part, span, indices in self._each_part(raw):
            inputs = np.zeros((len(raw), part.input_width), np.float32)
            inputs[indices] = part.inputs(raw[indices, span])
            columns.append(inputs)
        return np.concatenate(columns, axis=1)

    def shown(self, raw: Array) -> Any:
        """Return raw actions as they are, because pairs have no shape in common."""
        return raw.astype(np.int64 if self.whole else np.float32, copy=False)

    # --- masks ------------------------------------------------------------------------------------

    def allowing(self, columns: Tensor, ops: TensorOps) -> Iterator[tuple[str, Any]]:
        """Yield this space's path with the rows of a mask in which a part is open; an action makes
        the choices of a single part only.
        """
        first_open, *others_open = open_parts(self.part_codecs, columns, ops)
        any_open = first_open
        for is_open in others_open:
            any_open = any_open | is_open
        yield self.info.path, any_open

    def _mask_parts(self, masks: Mask) -> list[Any]:
        """Return the mask of the choice and each part's mask, or None for one without a mask.

        Raises:
            ActionMaskError: The masks do not have the space's structure.
        """
        count = len(self.part_codecs)
        if isinstance(masks, tuple):
            if len(masks) == count:  # in Gymnasium's format, which has no mask for the choice
                return [None, *masks]
            if len(masks) == count + 1:
                return list(masks)
        raise self._bad_mask(
            f"a tuple of {count} masks, one for each part (None for a part that has none), a tuple"
            f" with a mask [B, {count}] for the choice before them, or the concatenated columns of"
            f" all masks, [B, {self.mask_width}]",
            masks,
        )

    def mask_taken(self, raw: Array) -> Array | None:
        columns_of_choice = self._choices(raw)[:, None]
        columns = [columns_of_choice]
        start = len(self.part_codecs)  # the first part's first mask column
        for part, span, indices in self._each_part(raw):
            taken = part.mask_taken(raw[indices, span])
            if taken is None:
                return None
            # Other actions do not make this part's choices, so they need no further column.
            columns_of_part = np.repeat(columns_of_choice, taken.shape[1], axis=1)
            columns_of_part[indices] = taken + start
            columns.append(columns_of_part)
            start += part.mask_width
        return np.concatenate(columns, axis=1)

    def mask_places_in(self, shown: SpaceInfo | None, start: int = 0) -> list[tuple[int, int]]:
        if shown is None or shown.kind != "tuple":
            return ActionCodec.mask_places_in(self, shown, start)
        masks: Sequence[SpaceInfo | None] = shown.children
        if len(masks) < len(self.children):  # in Gymnasium's format, without one for the choice
            masks = [None, *masks]
        places: list[tuple[int, int]] = []
        for child, mask in zip(self.children, masks, strict=True):
            places += child.mask_places_in(mask, start)
            if mask is not None:
                start += count_values(mask)
        return places
