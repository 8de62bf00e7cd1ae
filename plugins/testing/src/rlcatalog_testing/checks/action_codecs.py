"""Checks for action codecs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.actions import ActionCodec, action_codec
from rlcatalog.errors import ActionMaskError, NotServedError
from rlcatalog.internals import codec_class, stack
from rlcatalog.observations import rows
from rlcatalog.spaces import Simplex, SpaceInfo
from rlcatalog_policy import space_from_json, space_to_json
from rlcatalog_testing.checks.codecs import DECLARE, ROWS
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import ACTIONS
from rlcatalog_testing.passes import Array, alike
from rlcatalog_testing.trials import contains

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
        rng, pieces = np.random.default_rng(0), []
        for leaf in self.codec.leaves:
            size = ROWS, leaf.width
            pieces.append(
                rng.normal(0, 2, size)
                if leaf.counts is None
                else rng.integers(0, leaf.counts, size)
            )
        return np.concatenate(pieces, axis=1).astype(np.float32)

    def varied_raws(self) -> Array:
        """Return raw actions that differ from the first one in a single value, for each of its
        values or up to `_VALUES` of them.
        """
        first = self.raws()[:1]
        found = [first]
        columns = [(leaf, position) for leaf in self.codec.leaves for position in range(leaf.width)]
        for column, (leaf, position) in enumerate(columns):
            for value in _values_of(leaf, position):
                row = first.copy()
                row[0, column] = value
                found.append(row)
        return np.concatenate(found)


def _values_of(leaf: ActionCodec, position: int) -> Array:
    """Return values that one raw value of a leaf may have, spread over its range."""
    if leaf.counts is not None:
        count = leaf.counts[position]
        return np.unique(np.linspace(0, count - 1, min(count, _VALUES)).astype(np.int64))
    low, high = (float(limit[position]) for limit in leaf.limits)
    if not np.isfinite([low, high]).all():
        low, high = -1.0, 1.0
    return np.linspace(low, high, 5)


def action_trials(subject: Subject) -> Iterator[ActionTrial]:
    """Yield a trial of the codec for each of its spaces and each way to apply bounds.

    Raises:
        AssertionError: The codec supports no action space from its examples or, without examples,
            no standard one.
    """
    declared = subject.part.declaration.examples
    given: list[spaces.Space[Any]] = [*ACTIONS, Simplex((3,)), spaces.Box(-3, 3, (2,), np.int8)]
    if declared:
        given = [example.action for example in subject.part.import_target(declared)()]
    infos = {
        repr(info.space): info for space in given for info in SpaceInfo.read(space, "action").walk()
    }
    taken = [
        info.space for info in infos.values() if codec_class(info) is subject.part.load("numpy")
    ]
    require(bool(taken), f"it does not support any standard action space; {DECLARE}")
    return (ActionTrial(space, bounds) for space in taken for bounds in ("clip", "affine"))


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
    require(
        raw.shape == (ROWS, codec.width),
        f"{trial}: invert() returned {raw.shape}, expected {(ROWS, codec.width)}",
    )
    before = raw.copy()
    adapted = codec.adapt(raw)
    require(np.array_equal(raw, before), f"{trial}: adapt() modifies its raw actions")
    alike(codec.invert(adapted), raw, f"{trial}: invert(adapt(raw))")
    for one, expected in zip(rows(codec.info, adapted), trial.actions, strict=True):
        require(
            _equal(one, expected), f"{trial}: adapt(invert(action)) is {one}, expected {expected}"
        )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_equal, one, other))
    with suppress(TypeError, ValueError):  # not numbers
        return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5))
    return bool(np.array_equal(one, other))


@check_action_codecs(hint="cut raw values off at the bounds, and cast them to the space's dtype")
def adapted_actions_lie_in_the_space(trial: ActionTrial) -> None:
    """Every raw action becomes an action in the space, including floats far outside its bounds."""
    codec, raws = trial.codec, [trial.raws()]
    floats = [leaf.counts is None and leaf.info.kind == "box" for leaf in codec.leaves]
    if any(floats):
        raws.append(trial.any_raws())
    if codec.counts is None and all(floats):
        raws += [np.full((1, codec.width), value, np.float32) for value in (-1e6, -1, 0, 1, 1e6)]
    for raw in raws:
        for one in rows(codec.info, codec.adapt(raw)):
            require(
                contains(codec.info.space, one),
                f"{trial}: adapt() returned {one!r}, not an action in it",
            )


@check_action_codecs(
    hint="keep width, input_width, counts, choices and mask_places in step with the arrays"
)
def sizes_are_those_of_arrays(trial: ActionTrial) -> None:
    """The declared widths match the arrays, and the declared value counts match the
    allowed values.
    """
    codec, raw = trial.codec, trial.raws()
    inputs = codec.inputs(raw)
    low, high = codec.limits
    for what, found, expected in (
        ("inputs()", inputs.shape, (ROWS, codec.input_width)),
        ("inputs()", inputs.dtype, np.dtype(np.float32)),
        ("limits", (low.shape, high.shape), ((codec.width,),) * 2),
        ("counts", len(codec.counts) if codec.counts is not None else codec.width, codec.width),
        ("mask_places", len(codec.mask_places), codec.mask_width),
        ("leaves", sum(leaf.width for leaf in codec.leaves), codec.width),
    ):
        require(found == expected, f"{trial}: {what} has {found}, expected {expected}")
    codec.check_raw(raw)


@check_action_codecs(hint="include each raw value in inputs(), with a choice as a one-hot")
def models_can_tell_actions_apart(trial: ActionTrial) -> None:
    """Different raw actions become different model inputs, all of which are finite."""
    # Random actions alone may miss two choices that become the same input.
    for raw in (trial.raws(), trial.varied_raws()):
        inputs = trial.codec.inputs(raw)
        require(bool(np.isfinite(inputs).all()), f"{trial}: inputs() are not finite")
        given, shown = (len(np.unique(array, axis=0)) for array in (raw, inputs))
        require(given == shown, f"{trial}: {given} different actions become {shown} model inputs")


@check_action_codecs(
    hint="return data that distinguishes spaces from space_to_json, and read it in space_from_json"
)
def the_space_is_written_down(trial: ActionTrial) -> None:
    """The space's plain data, used in saved policies, can be converted back to an equal space."""
    space = trial.codec.info.space
    if (data := space_to_json(space)) is None:
        raise NotApplicable("space_to_json returns None: the space must be passed to load()")
    again = space_from_json(json.loads(json.dumps(data)))
    require(again == space, f"{space}: its plain data was read back as {again}")


@check_action_codecs(
    hint="let `choices` return the number of values of each choice, in the order of the mask's"
    " columns"
)
def masks_become_columns(trial: ActionTrial) -> None:
    """A mask can be passed as columns; without a mask, all values are allowed, and a wrong width
    raises an error.

    If the codec defines columns, each action has one column per choice.
    """
    codec, width = trial.codec, trial.codec.mask_width
    if not width:
        raise NotApplicable("no part of its actions can be masked")
    columns = np.random.default_rng(0).random((ROWS, width)) < 0.5
    for mask, expected in (
        (columns, columns),
        (columns.astype(np.int8), columns),
        (None, np.ones_like(columns)),
    ):
        found = codec.mask_columns(mask, ROWS)
        same = found is not None and np.array_equal(found, expected)
        require(same, f"{trial}: a mask given as columns became {found}")
    taken, counts = codec.mask_taken(trial.raws()), [count for _, count in codec.choices]
    if taken is not None:
        owners = np.repeat(np.arange(len(counts)), counts)
        fits = taken.shape == (ROWS, len(counts)) and bool(((taken >= 0) & (taken < width)).all())
        fits = fits and bool((np.sort(owners[taken], axis=1) == np.arange(len(counts))).all())
        what = f"found {taken[:1].tolist()} for one action"
        require(fits, f"{trial}: mask_taken() must name one column for each choice, {what}")
    for wrong in (np.ones((ROWS, width + 1), bool), np.ones((ROWS + 1, width), bool), "mask"):
        try:
            codec.mask_columns(wrong, ROWS)  # type: ignore[arg-type]
        except ActionMaskError as error:
            require(
                "action" in str(error),
                f"{trial}: the error for a mask does not name the path: {error}",
            )
        else:
            require(False, f"{trial}: a mask with the wrong shape was accepted: {np.shape(wrong)}")


@check_action_codecs(
    hint="use only self.info: inside a Tuple or Dict, the codec is for a child, with a longer path"
)
def nested_actions_are_those_alone(trial: ActionTrial) -> None:
    """Inside a Tuple or Dict, the codec adapts and shows its slice just as it would on its own."""
    codec, space, raw = trial.codec, trial.codec.info.space, trial.raws()
    both = np.concatenate([np.ones((ROWS, 1), raw.dtype), raw], axis=1)
    for outer in (
        spaces.Tuple([spaces.Discrete(2), space]),
        spaces.Dict({"a": spaces.Discrete(2), "b": space}),
    ):
        whole = action_codec(SpaceInfo.read(outer, "action"), codec.bounds)
        require(whole.width == 1 + codec.width, f"{outer}: {whole.width} raw values")
        adapted = whole.info.split(whole.adapt(both))[1]
        for one, expected in zip(
            rows(codec.info, adapted), rows(codec.info, codec.adapt(raw)), strict=True
        ):
            require(_equal(one, expected), f"{outer}: its part is {one}, but {expected} on its own")
        alike(whole.inputs(both)[:, 2:], codec.inputs(raw), f"{outer}: model inputs")
