"""Checks of preprocessors, the codecs of observations."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from rlcatalog.errors import CatalogError, ObservationError
from rlcatalog.internals import check_bounds, is_unchanged as same
from rlcatalog.observations import Preprocessor
from rlcatalog.plugins import Request
from rlcatalog_testing.contract import NotApplicable, Part, check, require
from rlcatalog_testing.passes import alike

ROWS = 5
#: Further observations, of which some differ wherever the space leaves a choice.
MANY = 20
#: What stands before and behind a codec's slice.
CANARIES = 3
#: What the author of a codec for which no standard space will do is asked for.
DECLARE = (
    "declare examples='package.module:function', which returns a list of rlcatalog_testing.Example with a space of its"
    " kind"
)


def preprocessors(part: Part) -> Iterator[tuple[Preprocessor, list[Any], Mapping[str, Any]]]:
    """Yield the checked codec for each space it takes in the examples, observations, and the model config.

    Raises:
        AssertionError: It takes none.
    """
    seen = set()
    for example in part.examples:
        options = part.catalog.parse_config(example.config)
        pending = [_preprocessor(part, example.obs, options)]
        while pending:
            codec = pending.pop()
            pending += codec.children
            space, key = codec.info.space, f"{codec.info.space!r} {dict(example.config)!r}"
            if not _takes(part, codec, options) or key in seen:
                continue
            seen.add(key)
            space.seed(0)
            yield _preprocessor(part, space, options), [space.sample() for _ in range(ROWS)], options
    require(bool(seen), f"it takes no space of its examples; {DECLARE}")


#: Checks of preprocessors, each with observations of its space and the model config.
check_preprocessors = partial(check, "preprocessor", each=preprocessors)


def _preprocessor(part: Part, space: Any, options: Mapping[str, Any]) -> Preprocessor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # naming one is deprecated, for users
        made = part.catalog.preprocessor_for(space, options, check="always")
    for codec in made.codecs():
        codec.is_watched = True  # listed ones are not, because this kit holds them to their contract
    return made


def _takes(part: Part, codec: Preprocessor, options: Mapping[str, Any]) -> bool:
    """Whether a codec is the checked one, for a space that its declaration says it takes, not merely named for it."""
    if codec.component is not part.component:
        return False
    declaration = part.component.declaration
    if declaration.match is None and not declaration.kinds:
        return True
    return declaration.judge(Request(codec.info, config=options)).rank is not None


@check_preprocessors(hint="let writer and batch_writer compute the same; leave batch_writer out where it is not faster")
def single_is_batch(codec: Preprocessor, observations: list[Any], _: Any) -> None:
    """Alone, in a list and in a vector environment's batch an observation is encoded the same, as float32."""
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
                whole = _preprocessor(part, outer, own)
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


@check_preprocessors(hint="write out[start : start + self.size], in batches out[:, start : start + self.size], alone")
def writes_only_its_slice(codec: Preprocessor, observations: list[Any], _: Any) -> None:
    """Writers leave what stands before and behind their slice as it is."""
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


@check_preprocessors(hint="let bounds() return the lowest and highest values that writers write")
def encodes_within_its_bounds(codec: Preprocessor, observations: list[Any], _: Any) -> None:
    """Encoded values lie within the announced bounds, also those of the space's extremes."""
    info = codec.info
    if info.kind == "box":
        observations += [edge for edge in (info.low.copy(), info.high.copy()) if np.isfinite(edge).all()]  # type: ignore[union-attr]
    check_bounds(codec, codec.transform_batch(observations).reshape(len(observations), -1))
    require(codec.observation_space.shape == codec.shape, f"{info.describe()}: observation_space has another shape")


@check_preprocessors(hint="write what is in the observation: different observations should be encoded differently")
def tells_observations_apart(codec: Preprocessor, observations: list[Any], _: Any) -> None:
    """Not all observations are encoded alike, nor is any part of them."""
    info, drawn = codec.info, [*observations, *(codec.info.space.sample() for _ in range(MANY))]
    encoded = codec.transform_batch(drawn).reshape(len(drawn), -1)
    parts = [(info.path, drawn, encoded)]
    if info.is_composite and len(info.children) == len(codec.children):
        pieces = list(zip(*(info.split(obs) for obs in drawn), strict=True))
        for child, piece in zip(info.children, pieces, strict=True):
            leaves = [leaf for leaf in codec.leaves() if leaf.path.startswith(child.path)]
            columns = [column for leaf in leaves for column in range(leaf.start, leaf.stop)]
            parts.append((child.path, list(piece), encoded[:, columns]))
    for path, values, rows_ in parts:
        varies = not all(same(value, values[0]) for value in values)
        alike_ = bool((rows_ == rows_[0]).all())
        require(not (varies and alike_), f"{info.describe()}: different values of {path} are encoded alike")


@check_preprocessors(hint="call self.refuse(expected, found) in check(): the message begins with self.info.path")
def refuses_what_does_not_fit(codec: Preprocessor, observations: list[Any], _: Any) -> None:
    """What does not lie in the space is refused with an ObservationError that names the path, alone and in a batch."""
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


@check_preprocessors(hint="write into `out` alone, and return no view of the observation")
def leaves_observations_alone(codec: Preprocessor, observations: list[Any], _: Any) -> None:
    """Observations stay as they are; what is returned shares no memory with them, or with what was returned before."""
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
            require(not np.shares_memory(given, made), f"{name}: what is returned shares memory with the observation")


@check_preprocessors(hint="let leaves(start) return Leafs that follow one another from start to start + self.size")
def leaves_cover_the_vector(codec: Preprocessor, *_: Any) -> None:
    """The plan's leaves follow one another without a gap, wherever the plan starts."""
    for start in (0, 7):
        leaves = codec.leaves(start)
        stops = [start, *(leaf.stop for leaf in leaves)]
        starts = [*(leaf.start for leaf in leaves), start + codec.size]
        require(stops == starts, f"{codec.info.describe()}: its leaves begin at {starts[:-1]} and end at {stops[1:]}")
        require(
            all(leaf.path.startswith(codec.info.path) for leaf in leaves),
            f"{codec.info.describe()}: paths of leaves must begin with {codec.info.path!r}",
        )
