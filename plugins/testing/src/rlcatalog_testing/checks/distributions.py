"""Checks of action distributions: shapes, the range of actions, masks, stored parameters,
frameworks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog import ActionDistSpec, errors
from rlcatalog.actions import ActionCodec
from rlcatalog.frameworks import Array
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog.spaces import parts_of
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.passes import alike, twins
from rlcatalog_testing.trials import (
    Trial,
    check_trials,
    entropy_kind_of,
    examples_with_other_options,
    random_mask,
)

ROWS = 5


@check(
    "action_dist",
    hint="let match return no rank, or size raise UnsupportedSpaceError, for spaces that it does"
    " not support",
    stops=True,
)
def works_for_what_it_accepts(subject: Subject) -> None:
    """If the distribution works for one action space, it works for every space that its `match` and
    `size` accept.
    """
    works = []
    fails: list[spaces.Space[Any]] = []
    first_reason = ""
    for example in subject.distinct("action"):
        try:
            _check_that_it_samples(Trial(subject, example))
        except NotApplicable:
            raise
        except Exception as error:
            if not fails:
                first_reason = _message_of(error)
            fails.append(example.action)
        else:
            works.append(example.action)
    if works and fails:
        accepted = ", ".join(map(str, fails))
        raise AssertionError(
            f"its match and size accept {accepted}, but it works only for {works[0]}:"
            f" {first_reason}"
        )


def _check_that_it_samples(trial: Trial) -> None:
    """Raise an error unless samples become actions in the space."""
    raw = trial.raw(trial.dist(trial.inputs(ROWS)).sample())
    trial.codec.check_raw(raw)
    require(
        all(trial.lie_inside(raw)),
        f"{trial}: it draws {raw[0]}, which becomes no action in the space",
    )


def _message_of(error: Exception) -> str:
    """Return the message of a check or of rlcatalog; for any other error, with its type."""
    if isinstance(error, AssertionError | errors.CatalogError):
        return str(error)
    return errors.reason(error)


@check_trials(
    hint="let the declaration's `size` and required_model_output_shape return the same number"
)
def size_is_announced(trial: Trial) -> None:
    """The class and its declaration agree on the number of inputs."""
    if not trial.is_subject:
        return
    shape = trial.policy.dist_class.required_model_output_shape(
        trial.example.action, trial.policy.config
    )
    require(
        int(np.prod(shape)) == trial.size,
        f"{trial}: required_model_output_shape returns {shape}, but the declaration's size"
        f" returns {trial.size}",
    )
    trial.dist(trial.inputs(ROWS)).sample()


@check_trials(
    hint="let sample() return one action per row, [B] for a single Discrete, otherwise [B, width],"
    " detached, in the inputs' dtype or as integers"
)
def draws_have_their_form(trial: Trial) -> None:
    """Samples have one row per input row, and the declared width and dtype; `sample` has no
    gradient.
    """
    for count in (ROWS, 1):
        dist = trial.dist(trial.inputs(count))
        precision = trial.array(dist.inputs).dtype
        samplers = {
            "sample()": dist.sample,
            "deterministic_sample()": dist.deterministic_sample,
        }
        for method, draw in samplers.items():
            sample = draw()
            what = f"{trial}: {method} returned"
            for piece in parts_of(sample) or [sample]:
                dtype = trial.array(piece).dtype
                is_float = dtype.kind == "f"
                require(not is_float or dtype == precision, f"{what} {dtype}, expected {precision}")
            flat = trial.array(trial.flat(sample))
            _check_shape(flat, trial.codec, count, what)
            trial.codec.check_raw(trial.raw(flat))
            logp_of_sample = trial.array(dist.sampled_action_logp())
            logp = trial.array(dist.logp(trial.flat(dist.last_sample)))
            alike(logp_of_sample, logp, f"{trial}: sampled_action_logp() after {method}")
    gradient = trial.kit.gradient(lambda x: trial.flat(trial.dist(x).sample()), trial.inputs(ROWS))
    require(
        gradient is None or not gradient.any(),
        f"{trial}: sample() passes a gradient on; only rsample() may do so",
    )


def _check_shape(flat: Array, codec: ActionCodec, count: int, what: str) -> None:
    """Raise an error unless a flat sample is `[count]` for scalar actions, else `[count, width]`.

    A single value may also be a number or an array of another rank.
    """
    expected = (count,) if codec.scalar else (count, codec.width)
    is_single_value = codec.width == flat.size == count == 1
    require(
        flat.shape == expected or is_single_value,
        f"{what} shape {flat.shape}, expected {expected}",
    )


class _DensityQuestions:
    """What engines ask of a distribution about its raw actions: one number for each row.

    Args:
        trial: The trial.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def logp(self, dist: Any, raw: Array) -> Any:
        """Return the log densities of the raw actions."""
        return dist.logp(self._trial.actions(raw))

    def entropy(self, dist: Any, _: Array) -> Any:
        """Return the entropies."""
        return dist.entropy()

    def entropy_estimate(self, dist: Any, _: Array) -> Any:
        """Return the estimates of the entropies, which are random."""
        return dist.entropy_estimate()

    def kl(self, dist: Any, raw: Array) -> Any:
        """Return the divergences from the distribution for inputs of zeros."""
        zeros = np.zeros((len(raw), self._trial.size), np.float32)
        other = self._trial.stored(self._trial.dist(zeros), raw)
        return self._trial.stored(dist, raw).kl(other)


@check_trials(
    hint="sum over the values in an action, and keep the rows: logp, entropy and kl are [B]"
)
def one_number_per_row(trial: Trial) -> None:
    """Densities, entropies and KL divergences have the shape `[B]`, and rows do not affect one
    another.
    """
    some_rows = [ROWS - 1, 1, 0]
    inputs = trial.inputs(ROWS)
    dist = trial.dist(inputs)
    dist_of_some = trial.dist(inputs[some_rows])
    raw = trial.raw(dist.sample())
    precision = trial.array(dist.inputs).dtype
    questions = _DensityQuestions(trial)
    for ask in (questions.logp, questions.entropy, questions.entropy_estimate, questions.kl):
        name = ask.__name__
        try:
            numbers = trial.array(ask(dist, raw))
        except errors.NoClosedFormError:
            continue
        if name == "kl":
            alike(
                trial.array(ask(dist, raw)),
                numbers,
                f"{trial}: kl in a second call (compute it without sampling, or leave it out)",
            )
        require(
            numbers.shape == (ROWS,),
            f"{trial}: {name} has shape {numbers.shape}, expected {(ROWS,)}",
        )
        require(
            numbers.dtype == precision,
            f"{trial}: {name} is {numbers.dtype}, expected {precision}",
        )
        require(bool(np.isfinite(numbers).all()), f"{trial}: {name} is not finite: {numbers}")
        is_random_entropy = name == "entropy" and not trial.has_entropy(dist)
        if name == "entropy_estimate" or is_random_entropy:
            continue  # another estimate of a row would differ by chance
        alike(
            trial.array(ask(dist_of_some, raw[some_rows])),
            numbers[some_rows],
            f"{trial}: {name} for some of the rows",
        )


@check_trials(
    hint="draw within the space, or set raw_kind so that the action codec knows how to read draws"
)
def actions_lie_in_the_space(trial: Trial) -> None:
    """Actions are in the space for every way to apply bounds; if declared bounded, even without
    bounds applied.
    """
    for scale in (1.0, 10.0):
        dist = trial.dist(trial.inputs(200, scale))
        actions = np.concatenate([trial.raw(dist.sample()), trial.raw(dist.deterministic_sample())])
        for bounds in ("clip", "affine"):
            for raw, is_inside in zip(actions, trial.lie_inside(actions, bounds), strict=True):
                if not is_inside:
                    raise AssertionError(f"{trial}: {raw} does not become an action in the space")
        for leaf, columns in trial.pieces():
            if leaf.raw_kind == "bounded":
                _check_bounds(leaf, actions[:, columns], str(trial))


def _check_bounds(leaf: ActionCodec, values: Array, where: str) -> None:
    """Raise an error unless raw values lie within their space's bounds, up to rounding."""
    low = leaf.info.low
    high = leaf.info.high
    if low is None or high is None:
        return
    slack = 1e-6 * np.maximum(np.abs(low), np.abs(high))
    is_inside = (values >= np.ravel(low - slack)) & (values <= np.ravel(high + slack))
    outside = values[~is_inside]
    if len(outside):
        raise AssertionError(
            f"{where}: {leaf.info.path}: raw_kind is 'bounded', but it draws {outside[0]}"
        )


@check_trials(hint="read only the inputs and options: a Tuple passes each part its slice")
def works_inside_tuple_and_dict(trial: Trial) -> None:
    """Inside a Tuple or Dict, two of these distributions add their log densities and sample the
    space's structure.
    """
    declaration = trial.subject.part.declaration
    wraps_default = isinstance(declaration, ActionDistSpec) and declaration.wraps_default
    if not trial.is_subject or wraps_default:
        raise NotApplicable("in its examples, it takes whole actions or several parts")
    space = trial.example.action
    for outer in (spaces.Tuple([space, space]), spaces.Dict({"a": space, "b": space})):
        dist_class, size = _action_dist_for(outer, trial)
        require(
            size == 2 * trial.size,
            f"{outer}: {size} inputs for two distributions with {trial.size} each",
        )
        first_inputs = trial.inputs(ROWS)
        second_inputs = trial.inputs(ROWS, seed=1)
        inputs = np.concatenate([first_inputs, second_inputs], axis=1)
        without_model = None
        dist = dist_class(trial.ops.tensor(inputs), without_model)
        sample = dist.sample()
        if isinstance(outer, spaces.Dict):
            has_keys = isinstance(sample, Mapping) and set(sample) == set(outer)
            require(has_keys, f"{outer}: drew {type(sample).__name__}")
        raw = np.concatenate([trial.raw(piece) for piece in parts_of(sample) or []], axis=1)
        expected_shape = (ROWS, 2 * trial.codec.width)
        require(
            raw.shape == expected_shape, f"{outer}: drew {raw.shape}, expected {expected_shape}"
        )
        first_raw, second_raw = np.split(raw, 2, axis=1)
        first_logp = trial.logp(trial.dist(first_inputs), first_raw)
        second_logp = trial.logp(trial.dist(second_inputs), second_raw)
        alike(
            trial.array(dist.logp(trial.ops.tensor(raw))),
            first_logp + second_logp,
            f"{outer}: the log density, compared with the sum of the two separate ones",
        )


def _action_dist_for(outer: spaces.Space[Any], trial: Trial) -> tuple[type, int]:
    """Return the catalog's distribution for a space that contains the trial's space twice, and its
    number of inputs.

    Raises:
        NotApplicable: No installed distribution joins others for such a space.
    """
    subject = trial.subject
    try:
        return subject.catalog.action_dist(outer, trial.example.config, framework=subject.framework)
    except (
        errors.MissingPluginError,
        errors.NoMatchError,
        errors.UnsupportedSpaceError,
    ) as error:
        raise NotApplicable(
            f"no installed distribution supports a {type(outer).__name__}: {error}"
        ) from error


@check_trials(
    hint="return everything that logp needs from params_given, and rebuild from it in stored()"
)
def is_rebuilt_from_stored_parameters(trial: Trial) -> None:
    """Stored parameters later give the same log density, without the model."""
    dist = trial.dist(trial.inputs(ROWS))
    raw = trial.raw(dist.sample())
    params = trial.params(dist, raw)
    require(
        params.ndim == 2 and len(params) == ROWS,
        f"{trial}: params_given returned shape {params.shape}",
    )
    alike(
        trial.logp(trial.stored(dist, raw), raw),
        trial.logp(dist, raw),
        f"{trial}: logp of the rebuilt distribution",
    )


@check_trials(
    hint="define masked(inputs, mask), or handle the lowest finite number as the input for"
    " forbidden values"
)
def masks_are_obeyed(trial: Trial) -> None:
    """Forbidden values are never sampled and have probability 0; allowed values have a finite log
    density.
    """
    one_raw = trial.raw(trial.dist(trial.inputs(1)).sample())
    if not trial.policy.masks.size or trial.codec.mask_taken(one_raw) is None:
        raise NotApplicable(
            "its actions cannot be masked, or only its codec knows what a mask forbids"
        )
    # 50 draws for each of 8 masks, each with its own inputs.
    masks = random_mask(trial, 8)
    mask = np.repeat(masks, 50, axis=0)
    inputs = np.repeat(trial.inputs(8), 50, axis=0)
    dist = trial.dist(inputs, mask)
    samplers = {"sample()": dist.sample, "deterministic_sample()": dist.deterministic_sample}
    for method, draw in samplers.items():
        raw = trial.raw(draw())
        columns = trial.codec.mask_taken(raw)
        assert columns is not None
        is_allowed = np.take_along_axis(mask, columns, axis=1)
        require(bool(is_allowed.all()), f"{trial}: {method} returned a forbidden action")
        require(
            bool(np.isfinite(trial.logp(dist, raw)).all()),
            f"{trial}: logp of an allowed action is not finite",
        )
    is_finite = np.isfinite(trial.array(trial.entropy(dist))).all()
    require(bool(is_finite), f"{trial}: the entropy under a mask is not finite")
    _check_probabilities_under_mask(trial, inputs[0], masks[0])


def _check_probabilities_under_mask(trial: Trial, inputs: Array, mask: Array) -> None:
    """Raise an error unless a mask's forbidden actions have probability 0, and the others a sum
    of 1; do nothing if the actions cannot be listed.
    """
    actions = trial.every_action()
    if actions is None:
        return
    columns = trial.codec.mask_taken(actions)
    if columns is None:
        return
    is_allowed = mask[columns].all(axis=1)
    dist = trial.dist(
        np.repeat(inputs[None], len(actions), axis=0), np.repeat(mask[None], len(actions), axis=0)
    )
    probabilities = np.exp(trial.logp(dist, actions))
    largest = probabilities[~is_allowed].max(initial=0)
    require(largest == 0, f"{trial}: a forbidden action has probability {largest:.4g}")
    total = probabilities.sum()
    require(abs(total - 1) < 1e-4, f"{trial}: under a mask, the probabilities sum to {total:.6g}")


def _trials_of_twins(subject: Subject) -> Iterator[tuple[Trial, Trial]]:
    """Yield trials for each action space in two frameworks."""
    # Of all examples, because one framework may have code for others than another.
    examples = subject.within(framework=None).distinct("action")
    for framework in subject.compared_frameworks[:1]:
        examples += examples_with_other_options(subject.within(framework))
    makers = [(example, partial(Trial, example=example)) for example in examples]
    return twins(subject, makers)


@check(
    "action_dist",
    each=_trials_of_twins,
    hint="compute the same in both frameworks, with the same order of inputs",
    every_framework=False,
    between_frameworks=True,
)
def frameworks_agree(trial: Trial, twin: Trial) -> None:
    """All frameworks give the same results for the same inputs."""
    _copy_weights(trial, twin)
    where = f"{trial}: in {trial.policy.framework} and {twin.policy.framework},"
    inputs = trial.inputs(ROWS)
    for mask in trial.masks_to_try(ROWS):
        dist = trial.dist(inputs, mask)
        twin_dist = twin.dist(inputs, mask)
        raw = trial.raw(dist.sample())
        alike(twin.logp(twin_dist, raw), trial.logp(dist, raw), f"{where} logp")
        best = trial.raw(dist.deterministic_sample())
        alike(twin.raw(twin_dist.deterministic_sample()), best, f"{where} deterministic_sample")
        kinds = [entropy_kind_of(dist), entropy_kind_of(twin_dist)]
        require(kinds[0] == kinds[1], f"{where} entropy_kind is {kinds}")
        have_kl = [_has_kl(dist), _has_kl(twin_dist)]
        require(have_kl[0] == have_kl[1], f"{where} only one has a kl: {have_kl}")
        if trial.has_entropy(dist):
            entropy = trial.array(dist.entropy())
            alike(twin.array(twin_dist.entropy()), entropy, f"{where} the entropy")
        alike(twin.params(twin_dist, raw), trial.params(dist, raw), f"{where} params_given")


def _copy_weights(trial: Trial, twin: Trial) -> None:
    """Copy a model's weights into its twin, which a distribution may read.

    Models of other packages, around the distribution, may differ between frameworks.
    """
    weights = weights_of(trial.policy.model)
    if weights.keys() == weights_of(twin.policy.model).keys():
        set_weights_of(twin.policy.model, weights)


def _has_kl(dist: Any) -> bool:
    try:
        dist.kl(dist)
    except errors.NoClosedFormError:
        return False
    return True
