"""Checks for models: trunks, memories and heads, each used as the whole model for its examples."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, frameworks
from rlcatalog.internals import ModelParts
from rlcatalog.models import ModelV2, inner_model, set_weights_of, weights_of
from rlcatalog_policy import Policy, load
from rlcatalog_testing.contract import NotApplicable, Subject, require
from rlcatalog_testing.examples import Example, is_chosen
from rlcatalog_testing.passes import (
    ModelTrial,
    Pass,
    check_models,
    every,
    first,
    kit_of,
    knows_weights_of_value,
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
    gradients, shapes_outside = trial.gradients()
    require(
        not shapes_outside,
        f"{trial}: forward used trainable weights outside the model, of shapes"
        f" {shapes_outside[:5]}. They are neither trained nor saved",
    )
    idle = _idle_weights(gradients)
    if idle:
        # Unscaled pixels may saturate all activations, so try again with small numbers.
        gradients, _ = trial.gradients(largest=2)
        idle = [name for name in _idle_weights(gradients) if name in idle]
    names = ", ".join(idle[:5])
    require(not idle, f"{trial}: a step on outputs, log density and value does not change {names}")


def _idle_weights(gradients: dict[str, Array | None]) -> list[str]:
    """Return the names of the weights that a step with these gradients does not change."""
    idle = []
    for name, gradient in gradients.items():
        if gradient is None or not gradient.any():
            idle.append(name)
    return idle


def _all_with_sharing(subject: Subject) -> Iterator[ModelTrial]:
    return with_sharing(subject, subject.examples)


def _few_with_sharing(subject: Subject) -> Iterator[ModelTrial]:
    return with_sharing(subject, subject.few)


@check_models(
    each=_all_with_sharing,
    hint="let forward return [B, num_outputs]; Box actions need two outputs per value",
)
def output_width(trial: ModelTrial) -> None:
    """A model returns one row of `num_outputs` numbers for each observation."""
    outputs = trial.run(trial.encoded(3)).outputs
    _check_numbers(outputs, (3, trial.policy.resolution.num_outputs), f"{trial}: outputs")


@check_models(
    each=_all_with_sharing,
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
        mask_of_rows = None if mask is None else mask[:rows]
        step = trial.policy.act_encoded(encoded[:rows], mask=mask_of_rows)
        num_outputs = len(step.dist_inputs)
        require(num_outputs == rows, f"{trial}: {rows} rows in, {num_outputs} out")
        num_actions = len(step.raw_action)
        require(num_actions == rows, f"{trial}: {rows} rows in, {num_actions} actions out")
        lengths = [len(step.logp)]
        if step.value is not None:
            lengths.append(len(step.value))
        require(
            all(length == rows for length in lengths),
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
    other_order = [3, 0, 5, 1, 4, 2]
    same_answers(
        trial.run(encoded[other_order]),
        whole.at(other_order),
        f"{trial}: rows in a different order",
    )
    pair = [4, 1]
    same_answers(trial.run(encoded[pair]), whole.at(pair), f"{trial}: rows with only one other")


@check_models(hint="cast obs_flat to the weights' dtype: observations have their space's dtype")
def takes_bytes_and_floats(trial: ModelTrial) -> None:
    """Observations can be passed as uint8 or float32."""
    subject = trial.subject
    other_space = _box_with_other_dtype(trial.example.obs)
    if other_space is not None:
        other = Example(other_space, trial.example.action, trial.example.config)
        if is_chosen(subject.part, subject.catalog, other):
            check_outputs(ModelTrial(subject, other))
            return
    raise NotApplicable(
        "none of its first examples has a Box of uint8 or float32 as its observation space"
    )


def _box_with_other_dtype(space: spaces.Space[Any]) -> spaces.Box | None:
    """Return a Box of float32 for one of uint8, and vice versa; None for any other space."""
    if not isinstance(space, spaces.Box):
        return None
    if space.dtype == np.uint8:
        return spaces.Box(0, 1.0, space.shape, np.float32)
    if space.dtype == np.float32:
        return spaces.Box(0, 255, space.shape, np.uint8)
    return None


def _first_with_sharing_and_all(subject: Subject) -> list[ModelTrial]:
    """Return the first example's trials, also with separate value layers, and all trials."""
    return [*with_sharing(subject, subject.examples[:1]), *every(subject)]


def _describes_itself(subject: Subject) -> bool:
    return subject.part.declaration.has("describe")


@check_models(
    each=_first_with_sharing_and_all,
    hint="let describe match what __init__ builds: the last stage's width, and the number of"
    " weights in each stage",
    where=_describes_itself,
)
def describes_what_is_built(trial: ModelTrial) -> None:
    """The stages that `explain` prints match the built model."""
    policy = trial.policy
    stages = policy.resolution.stages
    num_built = sum(array.size for array in weights_of(policy.model).values())
    num_declared = sum(stage.weights or 0 for stage in stages)
    # A stage may leave its number open, or declare a lower bound.
    is_complete = all(stage.weights is not None and stage.whole for stage in stages)
    if is_complete:
        is_right = num_declared == num_built
    else:
        is_right = num_declared <= num_built
    require(
        is_right, f"{trial}: its stages declare {num_declared} weights; the model has {num_built}"
    )
    shares_layers_with_value = trial.config.get("vf_share_layers", True)
    if shares_layers_with_value:  # otherwise, a stage of the value may be the last one
        _check_width_of_last_stage(trial)


def _check_width_of_last_stage(trial: ModelTrial) -> None:
    """Raise an error unless the part's last stage declares the width that the model has."""
    policy = trial.policy
    part = trial.subject.part
    prefix = f"{part.name}: "
    stages = [stage for stage in policy.resolution.shapes if stage.name.startswith(prefix)]
    if not stages:
        return
    last_stage = stages[-1]
    if not last_stage.shape:
        return
    width = last_stage.shape[-1]
    model = innermost(policy) if part.slot == "trunk" else policy.model
    expected: int | None = policy.resolution.num_outputs
    if model is not policy.model:
        expected = model.num_outputs  # inside another model, its last stage is its features
    require(
        width == expected,
        f"{trial}: its last stage {last_stage.name!r} is {width} wide, but built {expected} wide",
    )


def innermost(policy: Policy) -> ModelV2:
    """Return the trunk inside a policy's model."""
    model = policy.model
    while (inner := inner_model(model)) is not None:
        model = inner
    return model


@check_models(
    each=_few_with_sharing,
    hint="store layers as attributes, tensors as parameters, and lists in nn.ModuleList; do not"
    " build unused layers",
)
def every_weight_is_trained(trial: ModelTrial) -> None:
    """The model lists every weight that forward reads, and a step on outputs, log density and value
    changes all.
    """
    check_trained(trial)


@check_models(
    each=_few_with_sharing,
    hint="keep the last layers in `outputs`, an OutputLayers, and the value's copies of other"
    " layers in attributes that begin with value_",
)
def value_has_its_own_part(trial: ModelTrial) -> None:
    """The weights that only values depend on, and no others, are in the parts `value` and
    `critic`.
    """
    policy = trial.policy
    if not knows_weights_of_value(policy.framework):
        raise NotApplicable(f"the kit of framework {policy.framework!r} has no weights_of_value")
    try:
        parts = ModelParts(policy.model).main
    except NotServedError as error:  # the framework's bookkeeping has no weight_keys
        raise NotApplicable(str(error)) from error
    if "model" in parts:
        raise NotApplicable("its class has last layers of its own, so it is one part")
    named: set[str] = set()
    for part in parts.values():
        if part.name == "value" or part.name.startswith("critic."):
            named.update(part.names.values())
    model: Any = policy.model  # a class of a framework, which lists its weights
    trainable = set(model.trainable_variables(as_dict=True))
    expected = kit_of(policy.framework).weights_of_value(policy, trial.batch())
    differing = sorted((named & trainable) ^ expected)
    require(
        not differing,
        f"{trial}: in one of the two only: the parts value and critic, and the weights that only"
        f" values depend on: {', '.join(differing[:5])}",
    )


@check_models(
    each=first, hint="return results of the framework's operations: an array has no gradient"
)
def outputs_are_tensors(trial: ModelTrial) -> None:
    """Outputs and values are tensors of the framework."""
    results = _results_of_pass(trial)
    if "forward" in results:
        outputs = results["forward"][0]  # then comes the state
        _check_that_it_is_a_tensor(outputs, "forward", trial)
    if "value_function" in results:
        _check_that_it_is_a_tensor(results["value_function"], "value_function", trial)


def _results_of_pass(trial: ModelTrial) -> dict[str, Any]:
    """Return what the model's `forward` and `value_function` return in a pass."""
    model: Any = trial.policy.model
    results: dict[str, Any] = {}
    forward = model.forward
    value_function = model.value_function

    def keep_forward(*args: Any, **kwargs: Any) -> Any:
        results["forward"] = forward(*args, **kwargs)
        return results["forward"]

    def keep_value() -> Any:
        results["value_function"] = value_function()
        return results["value_function"]

    model.forward = keep_forward
    model.value_function = keep_value
    try:
        trial.run(trial.encoded(3))
    except Exception:
        # An array may have stopped the pass, which the check then reports.
        if not results:
            raise
    finally:
        # Removes the functions from the instance; the class's methods stay.
        del model.forward, model.value_function
    return results


def _check_that_it_is_a_tensor(result: object, method: str, trial: ModelTrial) -> None:
    """Raise an error unless a result's class, or one of its bases, is the framework's."""
    framework = trial.policy.framework
    libraries = {base.__module__.partition(".")[0] for base in type(result).__mro__}
    name = f"{type(result).__module__}.{type(result).__qualname__}"
    require(
        frameworks()[framework].module in libraries,
        f"{trial}: {method}() returned {name}, expected a tensor of {framework!r}",
    )


@check_models(
    hint="compute all outputs from the features: an output that does not depend on the weights is"
    " not learned"
)
def every_output_is_learned(trial: ModelTrial) -> None:
    """Different weights change every output."""
    model = trial.policy.model
    encoded = trial.encoded(3)
    weights = {name: np.array(array) for name, array in weights_of(model).items()}
    outputs = trial.run(encoded).outputs
    set_weights_of(model, _move_floats(weights))
    outputs_of_moved = trial.run(encoded).outputs
    set_weights_of(model, weights)
    is_unchanged = (outputs == outputs_of_moved).all(axis=0)
    columns = ", ".join(map(str, np.flatnonzero(is_unchanged)[:5]))
    require(
        not is_unchanged.any(),
        f"{trial}: the outputs {columns} are the same with different weights",
    )


def _move_floats(weights: dict[str, Array]) -> dict[str, Array]:
    """Return weights with small random numbers added to all floats."""
    rng = np.random.default_rng(0)
    moved = {}
    for name, array in weights.items():
        if array.dtype.kind == "f":
            moved[name] = (array + rng.uniform(0, 0.1, array.shape)).astype(array.dtype)
        else:
            moved[name] = array
    return moved


@check_models(
    each=None,
    hint="draw initial weights from the framework's own random generator, which is seeded",
)
def weights_follow_the_seed(subject: Subject) -> None:
    """Models built from the same seed have the same weights."""
    example = subject.examples[0]
    seed(subject.framework)
    weights = weights_of(subject.build(example).model)
    seed(subject.framework)
    weights_again = weights_of(subject.build(example).model)
    differ = []
    for name, array in weights.items():
        other = weights_again.get(name)
        if other is None or not np.array_equal(array, other, equal_nan=True):
            differ.append(name)
    require(
        not differ, f"{example}: built again from the same seed, these weights differ: {differ[:5]}"
    )


@check_models(
    each=_few_with_sharing,
    hint="store everything that the outputs depend on as a weight or buffer, created in the same"
    " way in every process",
)
def saved_and_restored(trial: ModelTrial) -> None:
    """A saved and loaded policy acts the same."""
    encoded = trial.encoded(4)
    with tempfile.TemporaryDirectory() as folder:
        trial.policy.save(folder)
        policy = load(folder, catalog=trial.subject.catalog)
        loaded = ModelTrial(trial.subject, trial.example, policy)
    same_answers(loaded.run(encoded), trial.run(encoded), f"{trial}: loaded", 1e-5)


def _trials_of_twins(subject: Subject) -> Iterator[tuple[ModelTrial, ModelTrial]]:
    """Yield trials for a few examples in two frameworks, also with separate value layers."""
    makers = []
    for example in _few_for_twins(subject):
        for config in subject.sharing():
            makers.append((example, partial(ModelTrial, example=example, **config)))
    return twins(subject, makers)


def _few_for_twins(subject: Subject) -> Sequence[Example]:
    """Return a few of the examples for which at least two frameworks have code."""
    in_any_framework = subject.within(framework=None)
    served = []
    for example in in_any_framework.examples:
        subjects = [subject.within(framework) for framework in subject.compared_frameworks]
        if sum(in_framework.serves(example) for in_framework in subjects) > 1:
            served.append(example)
    few = [example for example in in_any_framework.few if example in served]
    return few or served[:2]


def _has_code_for_two_frameworks(subject: Subject) -> bool:
    return len(subject.compared_frameworks) > 1


@check_models(
    each=_trials_of_twins,
    hint="give layers the same names, layouts and epsilons in every framework (see get_weights)",
    every_framework=False,
    where=_has_code_for_two_frameworks,
    between_frameworks=True,
)
def frameworks_agree(trial: ModelTrial, twin: ModelTrial) -> None:
    """After weights are copied between them, all frameworks give the same outputs."""
    set_weights_of(twin.policy.model, weights_of(trial.policy.model))
    encoded = trial.encoded(4)
    names = f"{trial.policy.framework} and {twin.policy.framework}"
    what = f"{trial}: {names} with the same weights"
    same_answers(twin.run(encoded), trial.run(encoded), what, 1e-5)


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
    # A second step depends on the state that the first one returns. A model with views is tried at
    # the start of an episode only, because a trial's pass always sees the views of a start.
    num_steps = 2 if policy.memory and not policy.views else 1
    policy_state: Any = None
    model_state: tuple[Array, ...] | None = None
    for _ in range(num_steps):
        eager = trial.run(encoded, model_state)
        _, dist_inputs = trial.draw(eager.outputs, mask, explore=False)
        step = policy.act_encoded(encoded, policy_state, mask=mask, explore=False)
        same_answers(
            Pass(step.dist_inputs, step.value),
            Pass(dist_inputs, eager.value),
            f"{trial}: traced, compared with eager",
        )
        policy_state = step.state
        model_state = eager.state


@check_models(
    each=first,
    hint="let evaluate's pass (is_training=True) return the same as acting, except for dropout and"
    " similar layers",
)
def evaluates_batches(trial: ModelTrial) -> None:
    """Scoring stored actions returns a density and a value for each row, also for sequences."""
    evaluation = trial.policy.evaluate(trial.batch(rows=8))
    tensors = {
        "logp": evaluation.logp,
        "entropy": evaluation.entropy,
        "value": evaluation.value,
    }
    for name, tensor in tensors.items():
        if tensor is not None:
            shape = tuple(tensor.shape)
            require(shape == (8,), f"{trial}: {name} for 8 rows has shape {shape}")
