"""Checks of codecs: preprocessors, and action codecs."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from rlcatalog.actions import ActionCodec, action_codec
from rlcatalog.errors import ActionMaskError, CatalogError, NotServedError, ObservationError
from rlcatalog.internals import alike as same, codec_class, space_from_json, stack
from rlcatalog.observations import Preprocessor, rows
from rlcatalog.plugins import Request
from rlcatalog.spaces import Simplex, SpaceInfo, space_to_json
from rlcatalog_testing.contract import NotApplicable, Part, check, require
from rlcatalog_testing.examples import ACTIONS
from rlcatalog_testing.trials import alike, contains

Array = np.ndarray[Any, Any]

ROWS = 5
#: What stands before and behind a codec's slice.
CANARIES = 3
#: What the author of a codec for which no standard space will do is asked for.
DECLARE = (
    "declare examples='package.module:function', which returns a list of rlcatalog_testing.Example with a space of its"
    " kind"
)


# --- preprocessors ---------------------------------------------------------------------------------------------------


def preprocessors(part: Part) -> Iterator[tuple[Preprocessor, list[Any], Mapping[str, Any]]]:
    """Yield the checked codec for each space it takes in the examples, observations, and the model config.

    Raises:
        AssertionError: It takes none.
    """
    seen = set()
    for example in part.examples:
        options = part.catalog.parse_config(example.config).values
        pending = [_made(part, example.obs, options)]
        while pending:
            codec = pending.pop()
            pending += codec.children
            space, key = codec.info.space, f"{codec.info.space!r} {dict(example.config)!r}"
            if not _takes(part, codec, options) or key in seen:
                continue
            seen.add(key)
            space.seed(0)
            yield _made(part, space, options), [space.sample() for _ in range(ROWS)], options
    require(bool(seen), f"it takes no space of its examples; {DECLARE}")


def _made(part: Part, space: Any, options: Mapping[str, Any]) -> Preprocessor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # naming one is deprecated, for users
        return part.catalog.preprocessor_for(space, options, check="always")


def _takes(part: Part, codec: Preprocessor, options: Mapping[str, Any]) -> bool:
    """Whether a codec is the checked one, for a space that its declaration says it takes, not merely named for it."""
    if codec.component is not part.component:
        return False
    declaration: Any = part.component.declaration
    if declaration.match is None and not declaration.kinds:
        return True
    return getattr(declaration.judge(Request(codec.info, config=options)), "rank", None) is not None


@check(
    "preprocessor", hint="let writer and batch_writer compute the same; leave batch_writer out where it is not faster"
)
def single_is_batch(part: Part) -> None:
    """Alone, in a list and in a vector environment's batch an observation is encoded the same, as float32."""
    for codec, observations, _ in preprocessors(part):
        single = np.stack([codec.transform(obs) for obs in observations])
        dtype = codec.observation_space.dtype
        fits = single.dtype in (np.float32, dtype)
        require(fits, f"{codec.info.describe()}: it is encoded as {single.dtype}, not {dtype}")
        for name, batch in (("a list", observations), ("a batch", _batch(codec.info.space, observations))):
            alike(codec.transform_batch(batch), single, f"{codec.info.describe()}: {name}, against each alone", 1e-6)
        written = np.full(codec.size, np.nan, np.float32)
        codec.write(observations[0], written, 0)
        alike(written, single[0].ravel(), f"{codec.info.describe()}: write(), against transform()", 1e-6)
        none = codec.transform_batch([])
        require(none.shape == (0, *codec.shape), f"{codec.info.describe()}: of no observation it makes {none.shape}")


def _batch(space: Any, observations: list[Any]) -> Any:
    """Return observations as a vector environment does."""
    return concatenate(space, tuple(observations), create_empty_array(space, n=len(observations)))


@check("preprocessor", hint="ask self.info, not the whole observation: inside a Dict or Tuple the codec serves a child")
def nested_is_alone(part: Part) -> None:
    """Inside a Dict or a Tuple it encodes as alone, into its slice."""
    tried = False
    for codec, observations, options in preprocessors(part):
        space, vector = codec.info.space, spaces.Box(-1, 1, (2,), np.float32)
        own = {**options, "custom_preprocessor": None}
        for outer, key in ((spaces.Tuple([vector, space]), 1), (spaces.Dict({"a": vector, "b": space}), "b")):
            try:
                whole = _made(part, outer, own)
            except CatalogError:
                continue
            child = whole.children[1] if len(whole.children) == 2 else None
            if child is None or child.component is not part.component:
                continue
            tried = True
            beside = [vector.sample() for _ in observations]
            pairs = zip(beside, observations, strict=True)
            batch = [{"a": one, "b": obs} if key == "b" else (one, obs) for one, obs in pairs]
            found = whole.transform_batch(batch).reshape(ROWS, -1)[:, whole.size - codec.size :]
            alone = codec.transform_batch(observations).reshape(ROWS, -1)
            alike(found, alone, f"{outer}: its part of the whole, against alone", 1e-6)
    if not tried:
        raise NotApplicable("it is chosen for whole observations alone")


@check("preprocessor", hint="write out[start : start + self.size], in batches out[:, start : start + self.size], alone")
def writes_only_its_slice(part: Part) -> None:
    """Writers leave what stands before and behind their slice as it is."""
    for codec, observations, _ in preprocessors(part):
        start, stop = CANARIES, CANARIES + codec.size
        expected = codec.transform_batch(observations).reshape(ROWS, -1)
        out = np.full((ROWS, stop + CANARIES), 1e30, np.float32)
        out[:, start:stop] = 0
        one = out[0].copy()
        codec.batch_writer(start)(_batch(codec.info.space, observations), out)
        codec.writer(start)(observations[0], one)
        for name, found in (("batch_writer", out), ("writer", one[None])):
            outside = np.delete(found, slice(start, stop), axis=1)
            require(
                bool((outside == np.float32(1e30)).all()),
                f"{codec.info.describe()}: its {name} writes beside its slice",
            )
            alike(found[:, start:stop], expected[: len(found)], f"{codec.info.describe()}: its {name}'s slice", 1e-6)


@check("preprocessor", hint="let bounds() return the lowest and highest values that writers write")
def encodes_within_its_bounds(part: Part) -> None:
    """Encoded values lie within the announced bounds, also those of the space's extremes."""
    for codec, observations, _ in preprocessors(part):
        low, high = codec.bounds()
        info = codec.info
        tried = list(observations)
        if info.kind == "box":
            tried += [edge for edge in (info.low.copy(), info.high.copy()) if np.isfinite(edge).all()]  # type: ignore[union-attr]
        flat = codec.transform_batch(tried).reshape(len(tried), -1)
        slack = 1e-5 * np.maximum(1, np.abs(np.nan_to_num(flat)))
        inside = (flat >= low - slack) & (flat <= high + slack)
        if not inside.all():
            row, column = (int(i) for i in np.argwhere(~inside)[0])
            require(
                False,
                f"{info.describe()}: {flat[row, column]:.6g} at {column} lies outside [{low[column]:.6g},"
                f" {high[column]:.6g}]",
            )
        require(codec.observation_space.shape == codec.shape, f"{info.describe()}: observation_space has another shape")


@check("preprocessor", hint="call self.refuse(expected, found) in check(): the message begins with self.info.path")
def refuses_what_does_not_fit(part: Part) -> None:
    """What does not lie in the space is refused with an ObservationError that names the path, alone and in a batch."""
    for codec, observations, _ in preprocessors(part):
        space = codec.info.space
        for wrong in _wrong(space):
            asked = {
                "transform": partial(codec.transform, wrong),
                "transform_batch": partial(codec.transform_batch, [observations[0], wrong]),
            }
            for how, ask in asked.items():
                try:
                    ask()
                except ObservationError as error:
                    require(codec.info.path in str(error), f"{space}: {how} of {wrong!r}: no path in: {error}")
                else:
                    require(False, f"{space}: {how} took {wrong!r}, which does not lie in the space")


def _wrong(space: Any) -> list[Any]:
    """Return things that do not lie in a space."""
    candidates = [None, object(), "\x00", {"no": "such"}, np.zeros((1, 2, 1, 2, 1)), -987654321, (), np.nan]
    found = []
    for candidate in candidates:
        try:
            inside = bool(space.contains(candidate))
        except Exception:  # a space need not know what to say of everything
            inside = False
        if not inside:
            found.append(candidate)
    return found


@check("preprocessor", hint="write into `out` alone, and return no view of the observation")
def leaves_observations_alone(part: Part) -> None:
    """Observations stay as they are; what is returned shares no memory with them, or with what was returned before."""
    for codec, observations, _ in preprocessors(part):
        before, name = copy.deepcopy(observations), codec.info.describe()
        first = codec.transform(observations[0])
        kept = first.copy()
        batch = _batch(codec.info.space, observations)
        many = codec.transform_batch(batch)
        for obs in observations[1:]:
            codec.transform(obs)
        codec.transform_batch(observations)
        require(all(map(same, observations, before)), f"{name}: it changes the observations it is given")
        require(same(first, kept), f"{name}: transform() returns an array that the next call writes into")
        for given, made in ((observations[0], first), (batch, many)):
            if isinstance(given, np.ndarray):
                require(
                    not np.shares_memory(given, made), f"{name}: what is returned shares memory with the observation"
                )


@check("preprocessor", hint="let leaves(start) return Leafs that follow one another from start to start + self.size")
def leaves_cover_the_vector(part: Part) -> None:
    """The plan's leaves follow one another without a gap, wherever the plan starts."""
    for codec, _, _ in preprocessors(part):
        for start in (0, 7):
            leaves = codec.leaves(start)
            stops = [start, *(leaf.stop for leaf in leaves)]
            starts = [*(leaf.start for leaf in leaves), start + codec.size]
            require(
                stops == starts, f"{codec.info.describe()}: its leaves begin at {starts[:-1]} and end at {stops[1:]}"
            )
            require(
                all(leaf.path.startswith(codec.info.path) for leaf in leaves),
                f"{codec.info.describe()}: paths of leaves must begin with {codec.info.path!r}",
            )


# --- action codecs ---------------------------------------------------------------------------------------------------


def action_codecs(part: Part) -> Iterator[tuple[ActionCodec, list[Any]]]:
    """Yield the checked codec for each space it takes, in each way to meet bounds, and actions of the space.

    Raises:
        AssertionError: It takes no action space of its examples, or of the standard ones.
    """
    declared = part.component.declaration.examples
    given = (
        [e.action for e in part.component.imported(declared)()]
        if declared
        else [*ACTIONS, Simplex((3,)), spaces.Box(-3, 3, (2,), np.int8)]
    )
    infos = {repr(info.space): info for space in given for info in SpaceInfo.read(space, "action").walk()}
    found = [info for info in infos.values() if codec_class(info) is part.component.load("numpy")]
    require(
        bool(found),
        f"it takes no standard action space; {DECLARE}",
    )
    for info in found:
        info = SpaceInfo.read(info.space, "action")
        info.space.seed(0)
        for bounds in ("clip", "affine"):
            yield action_codec(info, bounds), [info.space.sample() for _ in range(ROWS)]


def _raws(codec: ActionCodec, actions: list[Any]) -> Array:
    """Return raw actions: behind those of the environment, or any where there is no way back."""
    try:
        return codec.invert(stack(codec.info, actions))
    except NotServedError:
        return _any_raws(codec, len(actions))


def _any_raws(codec: ActionCodec, count: int) -> Array:
    """Return raw actions that a distribution may draw, floats beyond their bounds as well."""
    rng, found = np.random.default_rng(0), []
    for leaf in codec.leaves:
        size = count, leaf.width
        found.append(rng.normal(0, 2, size) if leaf.counts is None else rng.integers(0, leaf.counts, size))
    return np.concatenate(found, axis=1).astype(np.float32)


@check("action_codec", hint="let invert undo adapt, or raise NotServedError where that cannot be")
def actions_are_inverted(part: Part) -> None:
    """The environment's action behind a raw one becomes that raw one again, and the other way round."""
    for codec, actions in action_codecs(part):
        name, batch = codec.info.describe(), stack(codec.info, actions)
        try:
            raw = codec.invert(batch)
        except NotServedError:
            continue
        require(
            raw.shape == (ROWS, codec.width), f"{name}: invert() returned {raw.shape}, expected {(ROWS, codec.width)}"
        )
        before = raw.copy()
        adapted = codec.adapt(raw)
        require(np.array_equal(raw, before), f"{name}: adapt() changes the raw actions it is given")
        alike(codec.invert(adapted), raw, f"{name}: invert(adapt(raw))")
        for one, expected in zip(rows(codec.info, adapted), actions, strict=True):
            require(_equal(one, expected), f"{name}: adapt(invert(action)) is {one}, the action {expected}")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_equal, one, other))
    try:
        return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5))
    except (TypeError, ValueError):  # no numbers
        return bool(np.array_equal(one, other))


@check("action_codec", hint="cut raw values off at the bounds, and cast them to the space's dtype")
def adapted_actions_lie_in_the_space(part: Part) -> None:
    """Every raw action becomes one of the space, floats far outside of bounds as well."""
    for codec, actions in action_codecs(part):
        raws = [_raws(codec, actions)]
        if any(leaf.counts is None and leaf.info.kind == "box" for leaf in codec.leaves):
            raws.append(_any_raws(codec, len(actions)))
        if codec.counts is None and all(leaf.counts is None and leaf.info.kind == "box" for leaf in codec.leaves):
            raws += [np.full((1, codec.width), value, np.float32) for value in (-1e6, -1, 0, 1, 1e6)]
        for raw in raws:
            for one in rows(codec.info, codec.adapt(raw)):
                require(
                    contains(codec.info.space, one), f"{codec.info.describe()}: adapt() made {one!r}, no action of it"
                )


@check("action_codec", hint="keep width, input_width, counts, choices and mask_places in step with the arrays")
def sizes_are_those_of_arrays(part: Part) -> None:
    """Announced widths are those of arrays, and the numbers of values those of what is allowed."""
    for codec, actions in action_codecs(part):
        name, raw = codec.info.describe(), _raws(codec, actions)
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
            require(found == expected, f"{name}: {what} has {found}, expected {expected}")
        codec.check_raw(raw)


@check("action_codec", hint="show each raw value in inputs(), a choice as a one-hot")
def models_can_tell_actions_apart(part: Part) -> None:
    """Different raw actions are different inputs of a model, all of them finite."""
    for codec, actions in action_codecs(part):
        raw = _raws(codec, actions)
        inputs = codec.inputs(raw)
        require(bool(np.isfinite(inputs).all()), f"{codec.info.describe()}: inputs() are not finite")
        ways = [len(np.unique(array, axis=0)) for array in (raw, inputs)]
        require(
            ways[0] == ways[1],
            f"{codec.info.describe()}: {ways[0]} different actions become {ways[1]} inputs of models",
        )


@check("action_codec", hint="return what tells spaces apart from space_to_json, and read it in space_from_json")
def the_space_is_written_down(part: Part) -> None:
    """The space as plain data is read back as an equal space, so that saved policies know it."""
    tried = False
    for codec, _ in action_codecs(part):
        data = space_to_json(codec.info.space)
        if data is None:
            continue
        tried = True
        again = space_from_json(json.loads(json.dumps(data)))
        require(again == codec.info.space, f"{codec.info.space}: it came back as {again}")
    if not tried:
        raise NotApplicable("space_to_json returns None: load() has to be given the space")


@check("action_codec", hint="let `choices` say how many values each choice has, in the order of the mask's columns")
def masks_become_columns(part: Part) -> None:
    """Columns of a mask are taken as they are; no mask allows everything, and another width is refused.

    Each action takes one column of each choice, where the codec says which.
    """
    tried = False
    for codec, actions in action_codecs(part):
        width, name = codec.mask_width, codec.info.describe()
        if not width:
            continue
        tried = True
        columns = np.random.default_rng(0).random((ROWS, width)) < 0.5
        for mask, expected in ((columns, columns), (columns.astype(np.int8), columns), (None, np.ones_like(columns))):
            found = codec.mask_columns(mask, ROWS)
            require(
                found is not None and np.array_equal(found, expected), f"{name}: a mask of its columns became {found}"
            )
        taken, counts = codec.mask_taken(_raws(codec, actions)), [count for _, count in codec.choices]
        if taken is not None:
            owners = np.repeat(np.arange(len(counts)), counts)
            inside = taken.shape == (ROWS, len(counts)) and ((taken >= 0) & (taken < width)).all()
            require(
                bool(inside) and bool((np.sort(owners[taken], axis=1) == np.arange(len(counts))).all()),
                f"{name}: mask_taken() must name one column of each choice, found {taken[:1].tolist()} for one action",
            )
        for wrong in (np.ones((ROWS, width + 1), bool), np.ones((ROWS + 1, width), bool), "mask"):
            try:
                codec.mask_columns(wrong, ROWS)
            except ActionMaskError as error:
                require("action" in str(error), f"{name}: the refusal of a mask names no path: {error}")
            else:
                require(False, f"{name}: a mask of another form was taken: {np.shape(wrong)}")
    if not tried:
        raise NotApplicable("nothing of its actions can be masked")


@check("action_codec", hint="ask self.info alone: inside a Tuple or Dict the codec serves a child, with a longer path")
def nested_actions_are_those_alone(part: Part) -> None:
    """Inside a Tuple and a Dict it adapts and shows its slice as alone."""
    for codec, actions in action_codecs(part):
        space, raw = codec.info.space, _raws(codec, actions)
        for outer in (spaces.Tuple([spaces.Discrete(2), space]), spaces.Dict({"a": spaces.Discrete(2), "b": space})):
            whole = action_codec(SpaceInfo.read(outer, "action"), codec.bounds)
            require(whole.width == 1 + codec.width, f"{outer}: {whole.width} raw values")
            both = np.concatenate([np.ones((ROWS, 1), raw.dtype), raw], axis=1)
            adapted = whole.info.split(whole.adapt(both))[1]
            for one, expected in zip(rows(codec.info, adapted), rows(codec.info, codec.adapt(raw)), strict=True):
                require(_equal(one, expected), f"{outer}: its part is {one}, alone {expected}")
            alike(whole.inputs(both)[:, 2:], codec.inputs(raw), f"{outer}: inputs of models")
