"""Checks for models: trunks, memories and heads, each used as the whole model for its examples."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.frameworks import frameworks
from rlcatalog.models import ModelV2, inner_model, set_weights_of, weights_of
from rlcatalog_policy import Policy, load
from rlcatalog_testing.contract import NotApplicable, Subject, require
from rlcatalog_testing.examples import Example, is_chosen, kind_of
from rlcatalog_testing.passes import (
    Array,
    ModelTrial,
    Pass,
    check_models,
    every,
    first,
    same_answers,
    seed,
    traces,
    twins,
    with_sharing,
)


def check_outputs(trial: ModelTrial) -> None:
    """Raise an error unless a model returns one row of finite outputs and one value for each
    observation.
    """
    answer = trial.run(trial.encoded(3))
    _check_numbers(answer.outputs, (3, trial.policy.resolution.num_outputs), f"{trial}: outputs")
    if answer.value is not None:
        _check_numbers(answer.value, (3,), f"{trial}: value")


def _check_numbers(numbers: Array, shape: tuple[int, ...], what: str) -> None:
    require(numbers.shape == shape, f"{what} {numbers.shape}, expected {shape}")
    require(bool(np.isfinite(numbers).all()), f"{what}: not all are finite")


def check_trained(trial: ModelTrial) -> None:
    """Check that a pass only reads the model's weights, and that a gradient step changes every
    weight.
    """
    gradients, strangers = trial.gradients()
    used = f"trainable weights outside the model, of shapes {strangers[:5]}"
    require(not strangers, f"{trial}: forward used {used}. They are neither trained nor saved")
    idle = _idle_weights(gradients)
    if idle:  # unscaled pixels may saturate all activations
        idle = [name for name in _idle_weights(trial.gradients(largest=2)[0]) if name in idle]
    require(
        not idle,
        f"{trial}: a step on outputs, log density and value does not change {', '.join(idle[:5])}",
    )


def _idle_weights(by_name: dict[str, Array | None]) -> list[str]:
    return [name for name, gradient in by_name.items() if gradient is None or not gradient.any()]


@check_models(
    each=lambda subject: with_sharing(subject, subject.examples),
    hint="let forward return [B, num_outputs]; Box actions need two outputs per value",
)
def output_width(trial: ModelTrial) -> None:
    """A model returns one row of `num_outputs` numbers for each observation."""
    outputs = trial.run(trial.encoded(3)).outputs
    _check_numbers(outputs, (3, trial.policy.resolution.num_outputs), f"{trial}: outputs")


@check_models(
    each=lambda subject: with_sharing(subject, subject.examples),
    hint="let value_function return [B], computed from results of the last forward",
)
def one_value_per_row(trial: ModelTrial) -> None:
    """A value branch returns one finite number for each observation."""
    require(trial.policy.has_value, f"{trial}: it has no value_function, which PPO and A2C need")
    value = trial.run(trial.encoded(3)).value
    assert value is not None
    _check_numbers(value, (3,), f"{trial}: value")


@check_models(
    each=first,
    hint="derive all shapes from the batch; do not assume a size, or that there is at least one"
    " row",
)
def batches_of_one_and_none(trial: ModelTrial) -> None:
    """Acting works with one observation and with none."""
    encoded, mask = trial.encoded_and_mask(3)
    for rows in (1, 0, 3):
        step = trial.policy.act_encoded(encoded[:rows], mask=None if mask is None else mask[:rows])
        require(
            len(step.dist_inputs) == rows, f"{trial}: {rows} rows in, {len(step.dist_inputs)} out"
        )
        require(
            len(step.raw_action) == rows,
            f"{trial}: {rows} rows in, {len(step.raw_action)} actions out",
        )
        lengths = [len(x) for x in (step.logp, step.value) if x is not None]
        require(
            lengths in ([rows], [rows, rows]),
            f"{trial}: {rows} rows in, logp and value with {lengths} rows out",
        )


@check_models(
    hint="compute each row independently: no batch statistics while acting, and no mixing of the"
    " batch axis"
)
def rows_are_independent(trial: ModelTrial) -> None:
    """A row's results depend neither on the other rows nor on the rows' order."""
    encoded = trial.encoded(6)
    whole = trial.run(encoded)
    for what, rows in (
        ("in a different order", [3, 0, 5, 1, 4, 2]),
        ("with only one other", [4, 1]),
    ):
        same_answers(trial.run(encoded[rows]), whole.at(rows), f"{trial}: rows {what}")


@check_models(hint="cast obs_flat to the weights' dtype: observations have their space's dtype")
def takes_bytes_and_floats(trial: ModelTrial) -> None:
    """Observations can be passed as uint8 or float32."""
    subject, box = trial.subject, trial.example.obs
    if isinstance(box, spaces.Box) and box.dtype in (np.uint8, np.float32):
        high, dtype = (1.0, np.float32) if box.dtype == np.uint8 else (255, np.uint8)
        other = Example(
            spaces.Box(0, high, box.shape, dtype), trial.example.action, trial.example.config
        )
        if is_chosen(subject.part, subject.catalog, other):
            check_outputs(ModelTrial(subject, other))
            return
    raise NotApplicable(
        "none of its first examples has a Box of uint8 or float32 as its observation space"
    )


@check_models(
    each=lambda subject: [*with_sharing(subject, subject.examples[:1]), *every(subject)],
    hint="let describe match what __init__ builds: the last stage's width, and the number of"
    " weights in each stage",
    where=lambda subject: getattr(subject.part.declaration, "describe", None) is not None,
)
def describes_what_is_built(trial: ModelTrial) -> None:
    """The stages that `explain` prints match the built model."""
    policy, part = trial.policy, trial.subject.part
    built = sum(array.size for array in weights_of(policy.model).values())
    stages = policy.resolution.layers
    announced = sum(stage.weights or 0 for stage in stages)
    is_known = all(stage.weights is not None and stage.whole for stage in stages)
    fits = announced == built if is_known else announced <= built
    require(fits, f"{trial}: its stages declare {announced} weights; the model has {built}")
    if trial.config:  # the value's own stages may come last
        return
    own = [stage for stage in policy.resolution.shapes if stage.name.startswith(f"{part.name}: ")]
    width = own[-1].shape[-1] if own and own[-1].shape else None
    model = policy.model if kind_of(part) != "trunk" else innermost(policy)
    # Inside another model, its last stage is its features.
    expected = policy.resolution.num_outputs if model is policy.model else model.num_outputs
    what = (
        f"{trial}: its last stage {own[-1].name if own else ''!r} is {width} wide, but built"
        f" {expected} wide"
    )
    require(width in (None, expected), what)


def innermost(policy: Policy) -> ModelV2:
    """Return the trunk inside a policy's model."""
    model = policy.model
    while (found := inner_model(model)) is not None:
        model = found
    return model


@check_models(
    each=lambda subject: with_sharing(subject, subject.few),
    hint="store layers as attributes, tensors as parameters, and lists in nn.ModuleList; do not"
    " build unused layers",
)
def every_weight_is_trained(trial: ModelTrial) -> None:
    """The model lists every weight that forward reads, and a step on outputs, log density and value
    changes all.
    """
    check_trained(trial)


@check_models(
    each=first, hint="return results of the framework's operations: an array has no gradient"
)
def outputs_are_tensors(trial: ModelTrial) -> None:
    """Outputs and values are tensors of the framework."""
    policy, returned = trial.policy, dict[str, Any]()
    model: Any = policy.model
    for name in ("forward", "value_function"):
        function = getattr(model, name)

        def keep(
            *args: Any, name: str = name, function: Callable[..., Any] = function, **kwargs: Any
        ) -> Any:
            returned[name] = function(*args, **kwargs)
            return returned[name]

        setattr(model, name, keep)
    try:
        trial.run(trial.encoded(3))
    except Exception:
        if not returned:
            raise
    finally:
        del model.forward, model.value_function
    for name, value in returned.items():
        outputs = value[0] if name == "forward" else value
        homes = {base.__module__.partition(".")[0] for base in type(outputs).__mro__}
        what = f"{trial}: {name}() returned {type(outputs).__module__}.{type(outputs).__qualname__}"
        fits = frameworks()[policy.framework].module in homes
        require(fits, f"{what}, expected a tensor of {policy.framework!r}")


@check_models(
    hint="compute all outputs from the features: an output that does not depend on the weights is"
    " not learned"
)
def every_output_is_learned(trial: ModelTrial) -> None:
    """Different weights change every output."""
    rng, model, encoded = np.random.default_rng(0), trial.policy.model, trial.encoded(3)
    kept = {name: np.array(array) for name, array in weights_of(model).items()}
    moved = {
        name: (array + rng.uniform(0, 0.1, array.shape)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in kept.items()
    }
    before = trial.run(encoded).outputs
    set_weights_of(model, moved)
    after = trial.run(encoded).outputs
    set_weights_of(model, kept)
    still = [str(i) for i in np.flatnonzero((before == after).all(axis=0))]
    require(
        not still,
        f"{trial}: the outputs {', '.join(still[:5])} are the same with different weights",
    )


@check_models(
    each=None,
    hint="draw initial weights from the framework's own random generator, which is seeded",
)
def weights_follow_the_seed(subject: Subject) -> None:
    """Models built from the same seed have the same weights."""
    example, built = subject.examples[0], []
    for _ in range(2):
        seed(subject.framework)
        built.append(weights_of(subject.build(example).model))
    one, other = built
    same = {
        name
        for name in one.keys() & other.keys()
        if np.array_equal(one[name], other[name], equal_nan=True)
    }
    differ = [name for name in one if name not in same]
    require(
        not differ, f"{example}: built again from the same seed, these weights differ: {differ[:5]}"
    )


@check_models(
    each=lambda subject: with_sharing(subject, subject.few),
    hint="store everything that the outputs depend on as a weight or buffer, created in the same"
    " way in every process",
)
def saved_and_restored(trial: ModelTrial) -> None:
    """A saved and loaded policy acts the same."""
    encoded = trial.encoded(4)
    with tempfile.TemporaryDirectory() as folder:
        trial.policy.save(folder)
        restored = ModelTrial(
            trial.subject, trial.example, load(folder, catalog=trial.subject.catalog)
        )
    same_answers(restored.run(encoded), trial.run(encoded), f"{trial}: loaded", 1e-5)


@check_models(
    each=lambda subject: twins(
        subject,
        [
            partial(ModelTrial, example=example, **sharing)
            for example in subject.few
            for sharing in subject.sharing()
        ],
    ),
    hint="give layers the same names, layouts and epsilons in every framework (see get_weights)",
    every_framework=False,
    where=lambda subject: len(subject.frameworks) > 1,
)
def frameworks_agree(one: ModelTrial, two: ModelTrial) -> None:
    """After weights are copied between them, all frameworks give the same outputs."""
    set_weights_of(two.policy.model, weights_of(one.policy.model))
    encoded = one.encoded(4)
    where = f"{one}: {one.policy.framework} and {two.policy.framework} with the same weights"
    same_answers(two.run(encoded), one.run(encoded), where, 1e-5)


@check_models(
    each=first,
    hint="use only the framework's operations in forward: no NumPy, no Python branches on values,"
    " no Python state",
)
def traced_equals_eager(trial: ModelTrial) -> None:
    """A traced TensorFlow model gives the same results as the eager model, in each step."""
    policy = trial.policy
    if not traces(policy.framework):  # asked here, because the answer imports the framework
        raise NotApplicable(f"framework {policy.framework!r} does not trace models")
    encoded, mask = trial.encoded_and_mask(3)
    state, memory = None, None
    for _ in range(2):
        eager = trial.run(encoded, memory)
        _, stored = trial.draw(eager.outputs, mask, explore=False)
        step = policy.act_encoded(encoded, state, mask=mask, explore=False)
        traced = Pass(step.dist_inputs, step.value)
        same_answers(traced, Pass(stored, eager.value), f"{trial}: traced, compared with eager")
        if policy.views or not policy.memory:
            break
        state, memory = step.state, eager.state


@check_models(
    each=first,
    hint="let evaluate's pass (is_training=True) return the same as acting, except for dropout and"
    " similar layers",
)
def evaluates_batches(trial: ModelTrial) -> None:
    """Scoring stored actions returns a density and a value for each row, also for sequences."""
    scores = trial.policy.evaluate(trial.batch())
    for name in ("logp", "entropy", "value"):
        if (tensor := getattr(scores, name)) is not None:
            shape = tuple(tensor.shape)
            require(shape == (8,), f"{trial}: {name} for 8 rows has shape {shape}")
