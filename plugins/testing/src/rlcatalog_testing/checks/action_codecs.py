"""Checks for action codecs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.actions import ActionCodec, action_codec
from rlcatalog.errors import ActionMaskError, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog.internals import codec_class
from rlcatalog.observations import rows, stack
from rlcatalog.spaces import Simplex, SpaceInfo
from rlcatalog_policy import space_from_json, space_to_json
from rlcatalog_testing.checks.codecs import DECLARE, ROWS
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import ACTIONS
from rlcatalog_testing.passes import alike
from rlcatalog_testing.trials import contains

#: Action spaces of the kinds that are not among the standard ones.
_MORE_ACTIONS: tuple[spaces.Space[Any], ...] = (
    Simplex((3,)),
    spaces.Box(-3, 3, (2,), np.int8),
    spaces.OneOf([spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2,), np.float32)]),
)
#: Most values of one choice that are compared with each other.
_VALUES = 64


class ActionTrial:
    """Codec for one of its action spaces, with actions from this space.

    Args:
        space: The space.
        bounds: Rule that maps floats into their bounds.

    Attributes:
        codec: The codec.
        actions: Actions.
    """

    def __init__(self, space: spaces.Space[Any], bounds: str) -> None:
        self.codec: ActionCodec = action_codec(SpaceInfo.read(space, "action"), bounds)
        space.seed(0)
        self.actions: list[Any] = [space.sample() for _ in range(ROWS)]

    def __str__(self) -> str:
        return self.codec.info.describe()

    def raws(self) -> Array:
        """Return raw actions for the environment's actions, or arbitrary raw actions if the codec
        has no inverse.
        """
        with suppress(NotServedError):
            return self.codec.invert(stack(self.codec.info, self.actions))
        return self.any_raws()

    def any_raws(self) -> Array:
        """Return raw actions that a distribution may sample, including floats outside
        the bounds.
        """
        rng = np.random.default_rng(0)
        pieces: list[Array] = []
        for leaf in self.codec.leaves:
            shape = (ROWS, leaf.width)
            if leaf.counts is None:
                pieces.append(rng.normal(0, 2, shape))
            else:
                pieces.append(rng.integers(0, leaf.counts, shape))
        return np.concatenate(pieces, axis=1).astype(np.float32)

    def varied_raws(self) -> Array:
        """Return raw actions that differ from the first one in a single value, for each of its
        values or up to `_VALUES` of them.
        """
        first_row = self.raws()[:1]
        actions = [first_row]
        start = 0
        for leaf in self.codec.leaves:
            for position in range(leaf.width):
                for value in _values_of(leaf, position):
                    row = first_row.copy()
                    row[0, start + position] = value
                    actions.append(row)
            start += leaf.width
        return np.concatenate(actions)


def _values_of(leaf: ActionCodec, position: int) -> Array:
    """Return values that one raw value of a leaf may have, spread over its range."""
    if leaf.counts is not None:
        count = leaf.counts[position]
        return np.unique(np.linspace(0, count - 1, min(count, _VALUES)).astype(np.int64))
    lows, highs = leaf.limits
    low = float(lows[position])
    high = float(highs[position])
    if np.isfinite([low, high]).all():
        return np.linspace(low, high, 5)
    return np.linspace(-1.0, 1.0, 5)


def action_trials(subject: Subject) -> Iterator[ActionTrial]:
    """Yield a trial of the codec for each of its spaces and each way to apply bounds.

    Raises:
        AssertionError: The codec supports no action space from its examples or, without examples,
            no standard one.
    """
    codec_under_test = subject.part.load("numpy")
    its_spaces: dict[str, spaces.Space[Any]] = {}
    for space in _action_spaces(subject):
        for info in SpaceInfo.read(space, "action").walk():
            if codec_class(info) is codec_under_test:
                its_spaces[repr(info.space)] = info.space
    require(bool(its_spaces), f"it does not support any standard action space; {DECLARE}")
    return _trials_for(its_spaces.values())


def _action_spaces(subject: Subject) -> list[spaces.Space[Any]]:
    """Return the action spaces of the declared examples, or standard ones."""
    path = subject.part.declaration.examples
    if not path:
        return [*ACTIONS, *_MORE_ACTIONS]
    list_examples = subject.part.import_target(path)
    return [example.action for example in list_examples()]


def _trials_for(action_spaces: Iterable[spaces.Space[Any]]) -> Iterator[ActionTrial]:
    for space in action_spaces:
        for bounds in ("clip", "affine"):
            yield ActionTrial(space, bounds)


#: Checks for action codecs, each with actions from its space.
check_action_codecs = partial(check, "action_codec", each=action_trials)


@check_action_codecs(hint="let invert undo adapt, or raise NotServedError if that is impossible")
def actions_are_inverted(trial: ActionTrial) -> None:
    """Converting a raw action to an environment action and back returns the original, in both
    directions.
    """
    codec = trial.codec
    try:
        raw = codec.invert(stack(codec.info, trial.actions))
    except NotServedError:
        return
    expected_shape = (ROWS, codec.width)
    require(
        raw.shape == expected_shape,
        f"{trial}: invert() returned {raw.shape}, expected {expected_shape}",
    )
    raw_before = raw.copy()
    adapted = codec.adapt(raw)
    require(np.array_equal(raw, raw_before), f"{trial}: adapt() modifies its raw actions")
    alike(codec.invert(adapted), raw, f"{trial}: invert(adapt(raw))")
    for action, expected in zip(rows(codec.info, adapted), trial.actions, strict=True):
        require(
            _are_close(action, expected),
            f"{trial}: adapt(invert(action)) is {action}, expected {expected}",
        )


def _are_close(action: Any, other: Any) -> bool:
    """Return whether two actions have the same structure, and equal values up to rounding."""
    if isinstance(action, Mapping):
        if action.keys() != other.keys():
            return False
        return all(_are_close(action[key], other[key]) for key in action)
    if isinstance(action, tuple | list):
        return len(action) == len(other) and all(map(_are_close, action, other))
    try:
        return bool(np.allclose(action, other, rtol=1e-4, atol=1e-5))
    except (TypeError, ValueError):
        # Values other than numbers have no distance.
        return bool(np.array_equal(action, other))


@check_action_codecs(hint="cut raw values off at the bounds, and cast them to the space's dtype")
def adapted_actions_lie_in_the_space(trial: ActionTrial) -> None:
    """Every raw action becomes an action in the space, including floats far outside its bounds."""
    codec = trial.codec
    batches = [trial.raws()]
    are_floats = [leaf.counts is None and leaf.info.kind == "box" for leaf in codec.leaves]
    if any(are_floats):
        batches.append(trial.any_raws())
    if codec.counts is None and all(are_floats):
        for value in (-1e6, -1, 0, 1, 1e6):
            batches.append(np.full((1, codec.width), value, np.float32))
    for raw in batches:
        for action in rows(codec.info, codec.adapt(raw)):
            require(
                contains(codec.info.space, action),
                f"{trial}: adapt() returned {action!r}, not an action in it",
            )


@check_action_codecs(
    hint="keep width, input_width, counts, choices and mask_places in step with the arrays"
)
def sizes_are_those_of_arrays(trial: ActionTrial) -> None:
    """The declared widths match the arrays, and the declared value counts match the
    allowed values.
    """
    codec = trial.codec
    raw = trial.raws()
    inputs = codec.inputs(raw)

    def check_size(what: str, size: object, expected: object) -> None:
        require(size == expected, f"{trial}: {what} has {size}, expected {expected}")

    check_size("inputs()", inputs.shape, (ROWS, codec.input_width))
    check_size("inputs()", inputs.dtype, np.dtype(np.float32))
    low, high = codec.limits
    check_size("limits", (low.shape, high.shape), ((codec.width,), (codec.width,)))
    if codec.counts is not None:
        check_size("counts", len(codec.counts), codec.width)
    check_size("mask_places", len(codec.mask_places), codec.mask_width)
    check_size("leaves", sum(leaf.width for leaf in codec.leaves), codec.width)
    codec.check_raw(raw)


@check_action_codecs(hint="include each raw value in inputs(), with a choice as a one-hot")
def models_can_tell_actions_apart(trial: ActionTrial) -> None:
    """Different raw actions become different model inputs, all of which are finite."""
    # Random actions alone may miss two choices that become the same input.
    for any_raw in (trial.raws(), trial.varied_raws()):
        raw = any_raw
        used = trial.codec.used(any_raw)
        if used is not None:
            raw = np.where(used, any_raw, 0)  # other values do not change the action
        inputs = trial.codec.inputs(raw)
        require(bool(np.isfinite(inputs).all()), f"{trial}: inputs() are not finite")
        num_actions = len(np.unique(raw, axis=0))
        num_inputs = len(np.unique(inputs, axis=0))
        require(
            num_actions == num_inputs,
            f"{trial}: {num_actions} different actions become {num_inputs} model inputs",
        )


@check_action_codecs(
    hint="return data that distinguishes spaces from space_to_json, and read it in space_from_json"
)
def the_space_is_written_down(trial: ActionTrial) -> None:
    """The space's plain data, used in saved policies, can be converted back to an equal space."""
    space = trial.codec.info.space
    data = space_to_json(space)
    if data is None:
        raise NotApplicable("space_to_json returns None: the space must be passed to load()")
    restored = space_from_json(json.loads(json.dumps(data)))
    require(restored == space, f"{space}: its plain data was read back as {restored}")


@check_action_codecs(
    hint="let `choices` return the number of values of each choice, in the order of the mask's"
    " columns"
)
def masks_become_columns(trial: ActionTrial) -> None:
    """A mask can be passed as columns; without a mask, all values are allowed, and a wrong width
    raises an error.

    If the codec defines columns, each action has one column per choice.
    """
    codec = trial.codec
    width = codec.mask_width
    if not width:
        raise NotApplicable("no part of its actions can be masked")
    mask = np.random.default_rng(0).random((ROWS, width)) < 0.5
    _check_columns(trial, mask, mask)
    _check_columns(trial, mask.astype(np.int8), mask)
    _check_columns(trial, mask=None, expected=np.ones_like(mask))
    columns = codec.mask_taken(trial.raws())
    if columns is not None:
        _check_columns_of_actions(trial, columns)
    too_wide = np.ones((ROWS, width + 1), bool)
    too_long = np.ones((ROWS + 1, width), bool)
    for wrong in (too_wide, too_long, "mask"):
        try:
            codec.mask_columns(wrong, ROWS)  # type: ignore[arg-type]
        except ActionMaskError as error:
            require(
                "action" in str(error),
                f"{trial}: the error for a mask does not name the path: {error}",
            )
        else:
            raise AssertionError(
                f"{trial}: a mask with the wrong shape was accepted: {np.shape(wrong)}"
            )


def _check_columns(trial: ActionTrial, mask: Array | None, expected: Array) -> None:
    """Raise an error unless a mask becomes the expected columns."""
    columns = trial.codec.mask_columns(mask, ROWS)
    is_expected = columns is not None and np.array_equal(columns, expected)
    require(is_expected, f"{trial}: a mask given as columns became {columns}")


def _check_columns_of_actions(trial: ActionTrial, columns: Array) -> None:
    """Raise an error unless the columns that actions need `[B, choices]` contain one of each
    choice that they make; the places of other choices repeat one of these columns.
    """
    counts = [count for _, count in trial.codec.choices]
    choices = np.arange(len(counts))
    has_shape = columns.shape == (ROWS, len(counts))
    is_in_mask = bool(((columns >= 0) & (columns < trial.codec.mask_width)).all())
    is_one_of_each = False
    if has_shape and is_in_mask:
        choice_of_column = np.repeat(choices, counts)
        choices_of_actions = choice_of_column[columns]
        makes_every_choice = trial.codec.used(trial.raws()) is None
        if makes_every_choice:
            in_order = np.sort(choices_of_actions, axis=1)
            is_one_of_each = bool((in_order == choices).all())
        else:
            is_own = choices_of_actions == choices
            own_columns = np.where(is_own, columns, -1)
            is_repeated = (columns[:, :, None] == own_columns[:, None, :]).any(axis=2)
            is_one_of_each = bool((is_own | is_repeated).all())
    require(
        is_one_of_each,
        f"{trial}: mask_taken() must name one column for each choice, found"
        f" {columns[:1].tolist()} for one action",
    )


@check_action_codecs(
    hint="use only self.info: inside a Tuple or Dict, the codec is for a child, with a longer path"
)
def nested_actions_are_those_alone(trial: ActionTrial) -> None:
    """Inside a Tuple or Dict, the codec adapts and shows its slice just as it would on its own."""
    codec = trial.codec
    space = codec.info.space
    raw = trial.raws()
    expected_actions = list(rows(codec.info, codec.adapt(raw)))
    # The first column is the choice of a Discrete beside the codec's space.
    raw_of_both = np.concatenate([np.ones((ROWS, 1), raw.dtype), raw], axis=1)
    for outer in (
        spaces.Tuple([spaces.Discrete(2), space]),
        spaces.Dict({"a": spaces.Discrete(2), "b": space}),
    ):
        whole = action_codec(SpaceInfo.read(outer, "action"), codec.bounds)
        require(whole.width == 1 + codec.width, f"{outer}: {whole.width} raw values")
        _, part = whole.info.split(whole.adapt(raw_of_both))
        for action, expected in zip(rows(codec.info, part), expected_actions, strict=True):
            require(
                _are_close(action, expected),
                f"{outer}: its part is {action}, but {expected} on its own",
            )
        width_of_discrete = 2  # a one-hot
        inputs = whole.inputs(raw_of_both)[:, width_of_discrete:]
        alike(inputs, codec.inputs(raw), f"{outer}: model inputs")
