"""Checks of action distributions: shapes, the range of actions, masks, stored parameters,
frameworks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog import errors
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog.spaces import parts_of
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.passes import Array, alike, twins
from rlcatalog_testing.trials import Trial, check_trials, random_mask

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
    works, fails = [], []
    for example in subject.distinct("action"):
        try:
            trial = Trial(subject, example)
            raw = trial.raw(trial.dist(trial.inputs(ROWS)).sample())
            trial.codec.check_raw(raw)
            require(
                all(trial.lie_inside(raw)),
                f"{trial}: it draws {raw[0]}, which becomes no action in the space",
            )
            works.append(example.action)
        except NotApplicable:
            raise
        except Exception as error:
            ours = isinstance(error, AssertionError | errors.CatalogError)
            fails.append((example.action, str(error) if ours else errors.reason(error)))
    if works and fails:
        accepted = ", ".join(str(action) for action, _ in fails)
        require(
            False,
            f"its match and size accept {accepted}, but it works only for {works[0]}:"
            f" {fails[0][1]}",
        )


@check_trials(
    hint="let the declaration's `size` and required_model_output_shape return the same number"
)
def size_is_announced(trial: Trial) -> None:
    """The class and its declaration agree on the number of inputs."""
    if not trial.is_subject:
        return
    says = trial.policy.dist_class.required_model_output_shape(
        trial.example.action, trial.policy.config
    )
    what = (
        f"{trial}: required_model_output_shape returns {says}, but the declaration's size"
        f" returns {trial.size}"
    )
    require(int(np.prod(says)) == trial.size, what)
    trial.dist(trial.inputs(ROWS)).sample()


@check_trials(
    hint="let sample() return one action per row, [B] for a single Discrete, otherwise [B, width],"
    " detached, in the inputs' dtype or as integers"
)
def draws_have_their_form(trial: Trial) -> None:
    """Samples have one row per input row, and the declared width and dtype; `sample` has no
    gradient.
    """
    codec = trial.codec
    for count in (ROWS, 1):
        dist = trial.dist(trial.inputs(count))
        precision = trial.array(dist.inputs).dtype
        for method in ("sample", "deterministic_sample"):
            sample, what = getattr(dist, method)(), f"{trial}: {method}() returned"
            for piece in parts_of(sample) or [sample]:
                dtype = trial.array(piece).dtype
                require(
                    dtype.kind != "f" or dtype == precision, f"{what} {dtype}, expected {precision}"
                )
            flat = trial.array(trial.flat(sample))
            shape = (count,) if codec.scalar else (count, codec.width)
            fits = flat.shape == shape or codec.width == flat.size == count
            require(fits, f"{what} shape {flat.shape}, expected {shape}")
            codec.check_raw(trial.raw(flat))
            own, logp = map(
                trial.array, (dist.sampled_action_logp(), dist.logp(trial.flat(dist.last_sample)))
            )
            alike(own, logp, f"{trial}: sampled_action_logp() after {method}()")
    gradient = trial.kit.gradient(lambda x: trial.flat(trial.dist(x).sample()), trial.inputs(ROWS))
    require(
        gradient is None or not gradient.any(),
        f"{trial}: sample() passes a gradient on; only rsample() may do so",
    )


@check_trials(
    hint="sum over the values in an action, and keep the rows: logp, entropy and kl are [B]"
)
def one_number_per_row(trial: Trial) -> None:
    """Densities, entropies and KL divergences have the shape `[B]`, and rows do not affect one
    another.
    """
    inputs, some = trial.inputs(ROWS), [ROWS - 1, 1, 0]
    dist, other = trial.dist(inputs), trial.dist(inputs[some])
    raw, precision = trial.raw(dist.sample()), trial.array(dist.inputs).dtype
    still = {
        rows: trial.dist(np.zeros((rows, trial.size), np.float32)) for rows in (ROWS, len(some))
    }
    #: Name → the result for each row, and whether it is random.
    numbers: dict[str, tuple[Callable[[Any, Array], Any], bool]] = {
        "logp": (lambda dist, raw: dist.logp(trial.actions(raw)), False),
        "entropy": (lambda dist, raw: dist.entropy(), not trial.has_entropy(dist)),
        "entropy_estimate": (lambda dist, raw: dist.entropy_estimate(), True),
        "kl": (
            lambda dist, raw: trial.stored(dist, raw).kl(trial.stored(still[len(raw)], raw)),
            False,
        ),
    }
    for name, (ask, is_random) in numbers.items():
        try:
            found = trial.array(ask(dist, raw))
        except errors.NoClosedFormError:
            continue
        if name == "kl":
            again = trial.array(ask(dist, raw))
            alike(
                again,
                found,
                f"{trial}: kl in a second call (compute it without sampling, or leave it out)",
            )
        require(
            found.shape == (ROWS,), f"{trial}: {name} has shape {found.shape}, expected {(ROWS,)}"
        )
        require(found.dtype == precision, f"{trial}: {name} is {found.dtype}, expected {precision}")
        require(bool(np.isfinite(found).all()), f"{trial}: {name} is not finite: {found}")
        if not is_random:
            alike(
                trial.array(ask(other, raw[some])),
                found[some],
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
        drawn = np.concatenate([trial.raw(dist.sample()), trial.raw(dist.deterministic_sample())])
        for bounds in ("clip", "affine"):
            inside = list(trial.lie_inside(drawn, bounds))
            if not all(inside):
                require(
                    False,
                    f"{trial}: {drawn[inside.index(False)]} does not become an action in the space",
                )
        for leaf, columns in trial.pieces():
            low, high = leaf.info.low, leaf.info.high
            if leaf.raw_kind == "bounded" and low is not None and high is not None:
                slack, piece = 1e-6 * np.maximum(np.abs(low), np.abs(high)), drawn[:, columns]
                outside = piece[
                    ~((piece >= np.ravel(low - slack)) & (piece <= np.ravel(high + slack)))
                ]
                if len(outside):
                    require(
                        False,
                        f"{trial}: {leaf.info.path}: raw_kind is 'bounded', but it draws"
                        f" {outside[0]}",
                    )


@check_trials(hint="read only the inputs and options: a Tuple passes each part its slice")
def works_inside_tuple_and_dict(trial: Trial) -> None:
    """Inside a Tuple or Dict, two of these distributions add their log densities and sample the
    space's structure.
    """
    subject, space, width = trial.subject, trial.example.action, trial.codec.width
    if not trial.is_subject or subject.part.declaration.wraps_default:  # type: ignore[attr-defined]
        raise NotApplicable("in its examples, it takes whole actions or several parts")
    for outer in (spaces.Tuple([space, space]), spaces.Dict({"a": space, "b": space})):
        try:
            made, size = subject.catalog.action_dist(
                outer, trial.example.config, framework=subject.framework
            )
        except (
            errors.MissingPluginError,
            errors.NoMatchError,
            errors.UnsupportedSpaceError,
        ) as error:
            raise NotApplicable(
                f"no installed distribution supports a {type(outer).__name__}: {error}"
            ) from error
        require(
            size == 2 * trial.size,
            f"{outer}: {size} inputs for two distributions with {trial.size} each",
        )
        inputs = [trial.inputs(ROWS), trial.inputs(ROWS, seed=1)]
        dist = made(trial.ops.tensor(np.concatenate(inputs, axis=1)), None)
        sample = dist.sample()
        if isinstance(outer, spaces.Dict):
            fits = isinstance(sample, Mapping) and set(sample) == set(outer)
            require(fits, f"{outer}: drew {type(sample).__name__}")
        raw = np.concatenate([trial.raw(piece) for piece in parts_of(sample) or []], axis=1)
        require(
            raw.shape == (ROWS, 2 * width),
            f"{outer}: drew {raw.shape}, expected {(ROWS, 2 * width)}",
        )
        halves = zip(inputs, np.split(raw, 2, axis=1), strict=True)
        one, two = (trial.logp(trial.dist(own), drawn) for own, drawn in halves)
        whole = trial.array(dist.logp(trial.ops.tensor(raw)))
        alike(
            whole,
            one + two,
            f"{outer}: the log density, compared with the sum of the two separate ones",
        )


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
    one = trial.raw(trial.dist(trial.inputs(1)).sample())
    if not trial.policy.masks.size or trial.codec.mask_taken(one) is None:
        raise NotApplicable(
            "its actions cannot be masked, or only its codec knows what a mask forbids"
        )
    mask = np.repeat(random_mask(trial, 8), 50, axis=0)
    inputs = np.repeat(trial.inputs(8), 50, axis=0)
    dist = trial.dist(inputs, mask)
    for method in ("sample", "deterministic_sample"):
        raw = trial.raw(getattr(dist, method)())
        columns = trial.codec.mask_taken(raw)
        assert columns is not None
        allowed = np.take_along_axis(mask, columns, axis=1)
        require(bool(allowed.all()), f"{trial}: {method}() returned a forbidden action")
        require(
            bool(np.isfinite(trial.logp(dist, raw)).all()),
            f"{trial}: logp of an allowed action is not finite",
        )
    finite = np.isfinite(trial.array(trial.entropy(dist))).all()
    require(bool(finite), f"{trial}: the entropy under a mask is not finite")
    every = trial.every_action()
    if every is None or (columns := trial.codec.mask_taken(every)) is None:
        return
    allowed = mask[0][columns].all(axis=1)
    row = np.repeat(inputs[:1], len(every), axis=0)
    chance = np.exp(trial.logp(trial.dist(row, np.repeat(mask[:1], len(every), axis=0)), every))
    most = chance[~allowed].max(initial=0)
    require(most == 0, f"{trial}: a forbidden action has probability {most:.4g}")
    require(
        abs(chance.sum() - 1) < 1e-4,
        f"{trial}: under a mask, the probabilities sum to {chance.sum():.6g}",
    )


@check(
    "action_dist",
    each=lambda subject: twins(
        subject, [partial(Trial, example=example) for example in subject.distinct("action")]
    ),
    hint="compute the same in both frameworks, with the same order of inputs",
    every_framework=False,
)
def frameworks_agree(trial: Trial, twin: Trial) -> None:
    """All frameworks give the same results for the same inputs."""
    weights, own = weights_of(trial.policy.model), weights_of(twin.policy.model)
    if weights.keys() == own.keys():
        set_weights_of(twin.policy.model, weights)
    where, inputs = (
        f"{trial}: in {trial.policy.framework} and {twin.policy.framework},",
        trial.inputs(ROWS),
    )
    for mask in [None, random_mask(trial, ROWS)] if trial.policy.masks.size else [None]:
        here, there = trial.dist(inputs, mask), twin.dist(inputs, mask)
        raw = trial.raw(here.sample())
        alike(twin.logp(there, raw), trial.logp(here, raw), f"{where} logp")
        best = trial.raw(here.deterministic_sample())
        alike(twin.raw(there.deterministic_sample()), best, f"{where} deterministic_sample")
        kinds = [getattr(dist, "entropy_kind", "exact") for dist in (here, there)]
        require(kinds[0] == kinds[1], f"{where} entropy_kind is {kinds}")
        divergences = [_has_kl(dist) for dist in (here, there)]
        require(divergences[0] == divergences[1], f"{where} only one has a kl: {divergences}")
        if trial.has_entropy(here):
            alike(twin.array(there.entropy()), trial.array(here.entropy()), f"{where} the entropy")
        alike(twin.params(there, raw), trial.params(here, raw), f"{where} params_given")


def _has_kl(dist: Any) -> bool:
    with suppress(errors.NoClosedFormError):
        dist.kl(dist)
        return True
    return False
