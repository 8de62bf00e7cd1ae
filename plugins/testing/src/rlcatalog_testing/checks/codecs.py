"""Checks for preprocessors, that is, for codecs of observations."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from rlcatalog.errors import CatalogError, ObservationError
from rlcatalog.internals import check_bounds, is_unchanged
from rlcatalog.observations import Preprocessor
from rlcatalog.plugins import Request
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import quiet
from rlcatalog_testing.passes import Array, alike

ROWS = 5
#: Number of further observations, some of which differ wherever the space allows it.
MANY = 20
#: Values before and after a codec's slice.
CANARIES = 3
#: Advice for codecs that fit no standard space.
DECLARE = (
    "declare examples='package.module:function', which returns a list of rlcatalog_testing.Example"
    " with a space of its kind"
)


class CodecTrial:
    """Codec for one of its spaces, with observations from this space.

    Args:
        subject: The codec's declaration.
        space: The space.
        options: The model config.

    Attributes:
        subject: The codec's declaration.
        options: The model config.
        codec: The codec.
        space: The space.
        observations: Observations.
    """

    def __init__(self, subject: Subject, space: Any, options: Mapping[str, Any]) -> None:
        self.subject, self.options, self.space = subject, options, space
        self.codec = _preprocessor(subject, space, options)
        space.seed(0)
        self.observations: list[Any] = [space.sample() for _ in range(ROWS)]

    def __str__(self) -> str:
        return self.codec.info.describe()

    def batch(self) -> Any:
        """Return the observations in the same form as a vector environment returns them."""
        empty: Any = create_empty_array(self.space, n=ROWS)
        return concatenate(self.space, tuple(self.observations), empty)

    def encoded(self, observations: list[Any] | None = None) -> Array:
        """Return the encoded observations `[B, size]`, either of the trial's or of the given
        observations.
        """
        observations = self.observations if observations is None else observations
        return self.codec.transform_batch(observations).reshape(len(observations), -1)


def codec_trials(subject: Subject) -> Iterator[CodecTrial]:
    """Yield a trial of the codec for each of the example spaces that it supports.

    Raises:
        AssertionError: The codec does not support any of the example spaces.
    """
    seen = set()
    for example in subject.examples:
        options = subject.catalog.parse_config(example.config)
        for codec in _preprocessor(subject, example.obs, options).codecs():
            key = f"{codec.info.space!r} {dict(example.config)!r}"
            if key not in seen and _takes(subject, codec, options):
                seen.add(key)
                yield CodecTrial(subject, codec.info.space, options)
    require(bool(seen), f"it does not support any space in its examples; {DECLARE}")


#: Checks for preprocessors, space by space.
check_codecs = partial(check, "preprocessor", each=codec_trials)


def _preprocessor(subject: Subject, space: Any, options: Mapping[str, Any]) -> Preprocessor:
    with quiet():
        made = subject.catalog.preprocessor_for(space, options, check="always")
    for codec in made.codecs():
        # Listed ones are not, because this kit holds them to their contract.
        codec.is_watched = True
    return made


def _takes(subject: Subject, codec: Preprocessor, options: Mapping[str, Any]) -> bool:
    """Return whether a codec is the one under test, for a space that its declaration accepts."""
    declaration: Any = subject.part.declaration
    says = declaration.match is not None or declaration.kinds
    return codec.part is subject.part and (
        not says
        or getattr(declaration.judge(Request(codec.info, config=options)), "rank", None) is not None
    )


@check_codecs(
    hint="let writer and batch_writer compute the same; leave out batch_writer if it is not faster"
)
def single_is_batch(trial: CodecTrial) -> None:
    """An observation has the same float32 encoding on its own, in a list and in a vector
    environment's batch.
    """
    codec, observations = trial.codec, trial.observations
    single = np.stack([codec.transform(obs) for obs in observations])
    dtype = codec.observation_space.dtype
    require(
        single.dtype in (np.float32, dtype),
        f"{trial}: it is encoded as {single.dtype}, not {dtype}",
    )
    for name, batch in (("a list", observations), ("a batch", trial.batch())):
        alike(
            codec.transform_batch(batch),
            single,
            f"{trial}: {name}, compared with each on its own",
            1e-6,
        )
    written = np.full(codec.size, np.nan, np.float32)
    codec.write(observations[0], written, 0)
    alike(written, single[0].ravel(), f"{trial}: write(), compared with transform()", 1e-6)
    none = codec.transform_batch([])
    require(
        none.shape == (0, *codec.shape), f"{trial}: for an empty batch, it returns {none.shape}"
    )


@check_codecs(
    hint="use self.info, not the whole observation: inside a Dict or Tuple, the codec is for a"
    " child"
)
def nested_is_alone(trial: CodecTrial) -> None:
    """Inside a Dict or Tuple, the codec encodes into its slice just as it would on its own."""
    subject, vector, tried = trial.subject, spaces.Box(-1, 1, (2,), np.float32), False
    pairs = [(vector.sample(), obs) for obs in trial.observations]
    for outer, batch in (
        (spaces.Tuple([vector, trial.space]), pairs),
        (
            spaces.Dict({"a": vector, "b": trial.space}),
            [{"a": one, "b": obs} for one, obs in pairs],
        ),
    ):
        try:
            whole = _preprocessor(subject, outer, {**trial.options, "custom_preprocessor": None})
        except CatalogError:
            continue
        if [child.part for child in whole.children][1:] == [subject.part]:
            tried = True
            found = whole.transform_batch(batch).reshape(ROWS, -1)[
                :, whole.size - trial.codec.size :
            ]
            alike(
                found,
                trial.encoded(),
                f"{outer}: its slice, compared with its encoding on its own",
                1e-6,
            )
    if not tried:
        raise NotApplicable("it is chosen only for whole observations")


@check_codecs(
    hint="write only out[start : start + self.size]; in batches, only out[:, start : start +"
    " self.size]"
)
def writes_only_its_slice(trial: CodecTrial) -> None:
    """Writers leave the values before and after their slice unchanged."""
    start, stop, encoded = CANARIES, CANARIES + trial.codec.size, trial.encoded()
    out = np.full((ROWS, stop + CANARIES), 1e30, np.float32)
    out[:, start:stop] = 0
    one = out[0].copy()
    trial.codec.batch_writer(start)(trial.batch(), out)
    trial.codec.writer(start)(trial.observations[0], one)
    for name, found in (("batch_writer", out), ("writer", one[None])):
        outside = np.delete(found, slice(start, stop), axis=1)
        require(
            bool((outside == np.float32(1e30)).all()),
            f"{trial}: its {name} writes outside its slice",
        )
        alike(
            found[:, start:stop],
            encoded[: len(found)],
            f"{trial}: the slice that its {name} writes",
            1e-6,
        )


@check_codecs(hint="let bounds() return the lowest and highest values that the writers write")
def encodes_within_its_bounds(trial: CodecTrial) -> None:
    """Encoded values lie within the declared bounds, even for the space's extreme values."""
    codec, observations = trial.codec, list(trial.observations)
    for edge in (codec.info.low, codec.info.high) if codec.info.kind == "box" else ():
        observations += [edge.copy()] if edge is not None and np.isfinite(edge).all() else []
    check_bounds(codec, trial.encoded(observations))
    require(
        codec.observation_space.shape == codec.shape,
        f"{trial}: observation_space has a different shape",
    )


@check_codecs(
    hint="encode the whole observation: different observations should be encoded differently"
)
def tells_observations_apart(trial: CodecTrial) -> None:
    """Different observations have different encodings, and so have different values
    of each part.
    """
    codec, info = trial.codec, trial.codec.info
    drawn = [*trial.observations, *(trial.space.sample() for _ in range(MANY))]
    encoded = trial.encoded(drawn)
    parts: list[tuple[str, Sequence[Any], Array]] = [(info.path, drawn, encoded)]
    if info.is_composite and len(info.children) == len(codec.children):
        pieces = zip(*map(info.split, drawn), strict=True)
        for child, piece in zip(info.children, pieces, strict=True):
            leaves = [leaf for leaf in codec.leaves() if leaf.path.startswith(child.path)]
            columns = [column for leaf in leaves for column in range(leaf.start, leaf.stop)]
            parts.append((child.path, piece, encoded[:, columns]))
    for path, values, rows in parts:
        varies = not all(is_unchanged(value, values[0]) for value in values)
        same = bool((rows == rows[0]).all())
        require(
            not (varies and same), f"{trial}: different values of {path} have the same encoding"
        )


@check_codecs(
    hint="call self.refuse(expected, found) in check(): the message begins with self.info.path"
)
def refuses_what_does_not_fit(trial: CodecTrial) -> None:
    """An observation outside the space raises an ObservationError with the path, on its own and in
    a batch.
    """
    codec, space = trial.codec, trial.space
    for wrong in _wrong(space):
        for how, given in (
            ("transform", wrong),
            ("transform_batch", [trial.observations[0], wrong]),
        ):
            try:
                getattr(codec, how)(given)
            except ObservationError as error:
                require(
                    codec.info.path in str(error),
                    f"{space}: {how} of {wrong!r}: no path in: {error}",
                )
            else:
                require(False, f"{space}: {how} accepted {wrong!r}, which is not in the space")


def _wrong(space: Any) -> Iterator[Any]:
    """Yield values that are outside a space."""
    for candidate in (
        None,
        object(),
        "\x00",
        {"no": "such"},
        np.zeros((1, 2, 1, 2, 1)),
        -987654321,
        (),
        np.nan,
    ):
        inside = False
        with suppress(Exception):  # a space may raise an error for unknown values
            inside = bool(space.contains(candidate))
        if not inside:
            yield candidate


@check_codecs(hint="write only into `out`, and do not return a view of the observation")
def leaves_observations_alone(trial: CodecTrial) -> None:
    """Observations stay unchanged, and results share memory neither with them nor with earlier
    results.
    """
    codec, observations, batch = trial.codec, trial.observations, trial.batch()
    before, first = copy.deepcopy(observations), codec.transform(observations[0])
    kept, many = first.copy(), codec.transform_batch(batch)
    for obs in observations[1:]:
        codec.transform(obs)
    codec.transform_batch(observations)
    require(all(map(is_unchanged, observations, before)), f"{trial}: it modifies its observations")
    require(
        is_unchanged(first, kept),
        f"{trial}: transform() returns an array that the next call writes into",
    )
    for given, made in ((observations[0], first), (batch, many)):
        if isinstance(given, np.ndarray):
            require(
                not np.shares_memory(given, made),
                f"{trial}: the result shares memory with the observation",
            )


@check_codecs(
    hint="let leaves(start) return Leafs that follow one another from start to start + self.size"
)
def leaves_cover_the_vector(trial: CodecTrial) -> None:
    """The plan's leaves follow one another without a gap, wherever the plan starts."""
    for start in (0, 7):
        leaves = trial.codec.leaves(start)
        stops = [start, *(leaf.stop for leaf in leaves)]
        starts = [*(leaf.start for leaf in leaves), start + trial.codec.size]
        require(
            stops == starts, f"{trial}: its leaves begin at {starts[:-1]} and end at {stops[1:]}"
        )
        path = trial.codec.info.path
        named = all(leaf.path.startswith(path) for leaf in leaves)
        require(named, f"{trial}: paths of leaves must begin with {path!r}")
