"""Checks for preprocessors, that is, for codecs of observations."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from rlcatalog.errors import CatalogError, ObservationError
from rlcatalog.frameworks import Array
from rlcatalog.internals import check_bounds, is_unchanged
from rlcatalog.observations import Preprocessor
from rlcatalog.plugins import Request
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import quiet
from rlcatalog_testing.passes import alike

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

    def __init__(
        self, subject: Subject, space: spaces.Space[Any], options: Mapping[str, Any]
    ) -> None:
        self.subject = subject
        self.options = options
        self.space = space
        self.codec = _watched_preprocessor(subject, space, options)
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
        if observations is None:
            observations = self.observations
        return self.codec.transform_batch(observations).reshape(len(observations), -1)


def codec_trials(subject: Subject) -> Iterator[CodecTrial]:
    """Yield a trial of the codec for each of the example spaces that it supports.

    Raises:
        AssertionError: The codec does not support any of the example spaces.
    """
    keys = set()
    for example in subject.examples:
        options = subject.catalog.parse_config(example.config)
        for codec in _watched_preprocessor(subject, example.obs, options).codecs():
            key = f"{codec.info.space!r} {dict(example.config)!r}"
            if key not in keys and _is_under_test(subject, codec, options):
                keys.add(key)
                yield CodecTrial(subject, codec.info.space, options)
    require(bool(keys), f"it does not support any space in its examples; {DECLARE}")


#: Checks for preprocessors, space by space.
check_codecs = partial(check, "preprocessor", each=codec_trials)


def _watched_preprocessor(
    subject: Subject, space: spaces.Space[Any], options: Mapping[str, Any]
) -> Preprocessor:
    """Return the preprocessor for a space, which checks what each of its codecs writes."""
    with quiet():
        preprocessor = subject.catalog.preprocessor_for(space, options, check="always")
    for codec in preprocessor.codecs():
        # A codec of a listed package is not watched by itself: this kit holds it to its contract.
        codec.is_watched = True
    return preprocessor


def _is_under_test(subject: Subject, codec: Preprocessor, options: Mapping[str, Any]) -> bool:
    """Return whether a codec is the one under test, for a space that its declaration accepts."""
    if codec.part is not subject.part:
        return False
    declaration = subject.part.declaration
    if declaration.match is None and not declaration.kinds:
        return True  # it is chosen by name, for any space
    answer = declaration.judge(Request(codec.info, config=options))
    # The author's match function may return anything; answers_every_request reports it.
    return getattr(answer, "rank", None) is not None


@check_codecs(
    hint="let writer and batch_writer compute the same; leave out batch_writer if it is not faster"
)
def single_is_batch(trial: CodecTrial) -> None:
    """An observation has the same float32 encoding on its own, in a list and in a vector
    environment's batch.
    """
    codec = trial.codec
    observations = trial.observations
    singles = np.stack([codec.transform(obs) for obs in observations])
    dtype = codec.observation_space.dtype
    require(
        singles.dtype in (np.float32, dtype),
        f"{trial}: it is encoded as {singles.dtype}, not {dtype}",
    )
    for name, batch in (("a list", observations), ("a batch", trial.batch())):
        encoded = codec.transform_batch(batch)
        alike(encoded, singles, f"{trial}: {name}, compared with each on its own", 1e-6)
    out = np.full(codec.size, np.nan, np.float32)
    codec.write(observations[0], out, 0)
    alike(out, singles[0].ravel(), f"{trial}: write(), compared with transform()", 1e-6)
    empty = codec.transform_batch([])
    require(
        empty.shape == (0, *codec.shape), f"{trial}: for an empty batch, it returns {empty.shape}"
    )


@check_codecs(
    hint="use self.info, not the whole observation: inside a Dict or Tuple, the codec is for a"
    " child"
)
def nested_is_alone(trial: CodecTrial) -> None:
    """Inside a Dict or Tuple, the codec encodes into its slice just as it would on its own."""
    vector = spaces.Box(-1, 1, (2,), np.float32)
    pairs = [(vector.sample(), obs) for obs in trial.observations]
    dicts = [{"a": sample, "b": obs} for sample, obs in pairs]
    is_chosen_for_tuple = _check_inside(trial, spaces.Tuple([vector, trial.space]), pairs)
    is_chosen_for_dict = _check_inside(trial, spaces.Dict({"a": vector, "b": trial.space}), dicts)
    if not is_chosen_for_tuple and not is_chosen_for_dict:
        raise NotApplicable("it is chosen only for whole observations")


def _check_inside(trial: CodecTrial, outer: spaces.Space[Any], observations: list[Any]) -> bool:
    """Raise an error unless the codec encodes its slice of a space's observations as it encodes
    the trial's observations.

    Args:
        trial: The codec.
        outer: The space: a vector, and then the trial's space.
        observations: Observations of this space, which contain the trial's.

    Returns:
        Whether the catalog chooses the codec for the second part.
    """
    options = {**trial.options, "custom_preprocessor": None}
    try:
        whole = _watched_preprocessor(trial.subject, outer, options)
    except CatalogError:
        return False
    parts = [child.part for child in whole.children]
    if parts[1:] != [trial.subject.part]:
        return False
    encoded = whole.transform_batch(observations).reshape(ROWS, -1)
    start = whole.size - trial.codec.size
    alike(
        encoded[:, start:],
        trial.encoded(),
        f"{outer}: its slice, compared with its encoding on its own",
        1e-6,
    )
    return True


@check_codecs(
    hint="write only out[start : start + self.size]; in batches, only out[:, start : start +"
    " self.size]"
)
def writes_only_its_slice(trial: CodecTrial) -> None:
    """Writers leave the values before and after their slice unchanged."""
    start = CANARIES
    stop = CANARIES + trial.codec.size
    encoded = trial.encoded()
    canary = np.float32(1e30)
    out = np.full((ROWS, stop + CANARIES), canary, np.float32)
    out[:, start:stop] = 0
    single_out = out[0].copy()
    trial.codec.batch_writer(start)(trial.batch(), out)
    trial.codec.writer(start)(trial.observations[0], single_out)
    for name, rows in (("batch_writer", out), ("writer", single_out[None])):
        outside = np.delete(rows, slice(start, stop), axis=1)
        require(bool((outside == canary).all()), f"{trial}: its {name} writes outside its slice")
        alike(
            rows[:, start:stop],
            encoded[: len(rows)],
            f"{trial}: the slice that its {name} writes",
            1e-6,
        )


@check_codecs(hint="let bounds() return the lowest and highest values that the writers write")
def encodes_within_its_bounds(trial: CodecTrial) -> None:
    """Encoded values lie within the declared bounds, even for the space's extreme values."""
    codec = trial.codec
    observations = list(trial.observations)
    if codec.info.kind == "box":
        for extreme in (codec.info.low, codec.info.high):
            if extreme is not None and np.isfinite(extreme).all():
                observations.append(extreme.copy())
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
    codec = trial.codec
    info = codec.info
    observations = list(trial.observations)
    for _ in range(MANY):
        observations.append(trial.space.sample())
    encoded = trial.encoded(observations)
    _check_that_encodings_differ(observations, encoded, f"{trial}: different values of {info.path}")
    if not info.is_composite or len(info.children) != len(codec.children):
        return  # one codec encodes it as a whole
    values_by_child = zip(*map(info.split, observations), strict=True)
    for child, values in zip(info.children, values_by_child, strict=True):
        columns: list[int] = []
        for leaf in codec.leaves():
            if leaf.path.startswith(child.path):
                columns += range(leaf.start, leaf.stop)
        what = f"{trial}: different values of {child.path}"
        _check_that_encodings_differ(values, encoded[:, columns], what)


def _check_that_encodings_differ(values: Sequence[Any], encodings: Array, what: str) -> None:
    """Raise an error if values differ, but all have the same encoding."""
    are_equal = all(is_unchanged(value, values[0]) for value in values)
    have_equal_encodings = bool((encodings == encodings[0]).all())
    require(are_equal or not have_equal_encodings, f"{what} have the same encoding")


@check_codecs(
    hint="call self.refuse(expected, found) in check(): the message begins with self.info.path"
)
def refuses_what_does_not_fit(trial: CodecTrial) -> None:
    """An observation outside the space raises an ObservationError with the path, on its own and in
    a batch.
    """
    codec = trial.codec
    space = trial.space
    for value in _values_outside(space):
        batch = [trial.observations[0], value]
        for method, encode, argument in (
            ("transform", codec.transform, value),
            ("transform_batch", codec.transform_batch, batch),
        ):
            try:
                encode(argument)
            except ObservationError as error:
                require(
                    codec.info.path in str(error),
                    f"{space}: {method} of {value!r}: no path in: {error}",
                )
            else:
                raise AssertionError(
                    f"{space}: {method} accepted {value!r}, which is not in the space"
                )


def _values_outside(space: spaces.Space[Any]) -> Iterator[Any]:
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
        try:
            is_inside = bool(space.contains(candidate))
        except Exception:
            is_inside = False  # a space may raise an error for unknown values
        if not is_inside:
            yield candidate


@check_codecs(hint="write only into `out`, and do not return a view of the observation")
def leaves_observations_alone(trial: CodecTrial) -> None:
    """Observations stay unchanged, and results share memory neither with them nor with earlier
    results.
    """
    codec = trial.codec
    observations = trial.observations
    batch = trial.batch()
    observations_before = copy.deepcopy(observations)
    encoded = codec.transform(observations[0])
    encoded_before = encoded.copy()
    encoded_batch = codec.transform_batch(batch)
    for obs in observations[1:]:
        codec.transform(obs)
    codec.transform_batch(observations)
    are_unchanged = all(map(is_unchanged, observations, observations_before))
    require(are_unchanged, f"{trial}: it modifies its observations")
    require(
        is_unchanged(encoded, encoded_before),
        f"{trial}: transform() returns an array that the next call writes into",
    )
    for observation, result in ((observations[0], encoded), (batch, encoded_batch)):
        if isinstance(observation, np.ndarray):
            require(
                not np.shares_memory(observation, result),
                f"{trial}: the result shares memory with the observation",
            )


@check_codecs(
    hint="let leaves(start) return Leafs that follow one another from start to start + self.size"
)
def leaves_cover_the_vector(trial: CodecTrial) -> None:
    """The plan's leaves follow one another without a gap, wherever the plan starts."""
    for start in (0, 7):
        leaves = trial.codec.leaves(start)
        starts = [leaf.start for leaf in leaves]
        stops = [leaf.stop for leaf in leaves]
        # Each leaf begins where the one before it ends.
        is_gapless = [*starts, start + trial.codec.size] == [start, *stops]
        require(is_gapless, f"{trial}: its leaves begin at {starts} and end at {stops}")
        path = trial.codec.info.path
        are_named = all(leaf.path.startswith(path) for leaf in leaves)
        require(are_named, f"{trial}: paths of leaves must begin with {path!r}")


@check_codecs(
    hint="let ids() return the lowest id and the number of ids of each entry, or None if the values"
    " are no ids"
)
def ids_are_what_it_writes(trial: CodecTrial) -> None:
    """If a codec says that it writes ids, the encoded values are integers in the range of these
    ids.
    """
    ids = trial.codec.ids()
    if ids is None:
        raise NotApplicable("it writes no ids")
    encoded = trial.encoded()
    is_entry = np.ones(encoded.shape, bool)
    if ids.characters is not None:
        # A text: the ids of its characters, and a mask that is 1 for each of them.
        width = 2 * ids.characters
        mask = encoded[:, ids.characters :]
        encoded = encoded[:, : ids.characters]
        is_entry = mask == 1
    else:
        width = len(ids.counts)
    require(
        trial.codec.size == width,
        f"{trial}: its ids are those of {width} values, but it writes {trial.codec.size}",
    )
    is_integer = encoded == np.round(encoded)
    is_in_range = (encoded >= ids.lowest) & (encoded < ids.lowest + ids.counts)
    are_ids = bool((is_integer & is_in_range)[is_entry].all())
    require(are_ids, f"{trial}: it writes values that are not among its ids")
