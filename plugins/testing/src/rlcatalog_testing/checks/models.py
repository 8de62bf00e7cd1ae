"""Checks of models: trunks, memories and heads, each as a whole model of its examples."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlcatalog.errors import NoMatchError, NotServedError
from rlcatalog.frameworks import frameworks
from rlcatalog.models import inner_model, set_weights_of, weights_of
from rlcatalog_policy import load
from rlcatalog_testing.contract import NotApplicable, Part, check, require
from rlcatalog_testing.examples import Example, is_chosen, kind_of, observations_of
from rlcatalog_testing.passes import (
    Array,
    Pass,
    batch_of,
    draw,
    encoded_of,
    gradients,
    has_kit,
    run,
    same_answers,
    seed,
    traces,
    weights_in,
)

if TYPE_CHECKING:
    from rlcatalog.models import ModelV2
    from rlcatalog_policy import Policy

MODELS = ("trunk", "memory", "head")


def check_outputs(policy: Policy, example: Example) -> None:
    """Raise unless a model returns one row of outputs, all of them numbers, and one value for each observation."""
    answer = run(policy, encoded_of(policy, example, 3))
    _check_numbers(answer.outputs, (3, policy.resolution.num_outputs), f"{example}: outputs")
    if answer.value is not None:
        _check_numbers(answer.value, (3,), f"{example}: value")


def _check_numbers(numbers: Array, shape: tuple[int, ...], what: str) -> None:
    require(numbers.shape == shape, f"{what} {numbers.shape}, expected {shape}")
    require(bool(np.isfinite(numbers).all()), f"{what}: not all of them are finite")


def check_trained(policy: Policy, example: Example) -> None:
    """Raise unless every weight that a pass reads is found, and a step moves every weight that is found."""
    found = gradients(policy, example)
    require(
        not found.strangers,
        f"{example}: forward used trainable weights of shapes {found.strangers[:5]} that are none of the model's:"
        " nobody trains or saves them",
    )
    still = _idle_weights(found.by_name)
    if still:  # pixels as they are may leave every unit at the flat end of its activation
        still = [name for name in _idle_weights(gradients(policy, example, largest=2).by_name) if name in still]
    require(not still, f"{example}: a step over outputs, log density and value does not move {', '.join(still[:5])}")


def _idle_weights(by_name: dict[str, Array | None]) -> list[str]:
    return [name for name, gradient in by_name.items() if gradient is None or not gradient.any()]


@check(*MODELS, hint="let forward return [B, num_outputs]; Box actions need two outputs per number")
def output_width(part: Part) -> None:
    """A model returns one row of `num_outputs` numbers for each observation."""
    for example, policy in part.policies(part.examples):
        outputs = run(policy, encoded_of(policy, example, 3)).outputs
        _check_numbers(outputs, (3, policy.resolution.num_outputs), f"{example}: outputs")


@check(*MODELS, hint="let value_function return [B], computed from what the last forward left")
def one_value_per_row(part: Part) -> None:
    """A value branch gives one finite number for each observation."""
    for example, policy in part.policies(part.examples):
        require(policy.has_value, f"{example}: it has no value_function, which PPO and A2C need")
        value = run(policy, encoded_of(policy, example, 3)).value
        assert value is not None
        _check_numbers(value, (3,), f"{example}: value")


@check(*MODELS, hint="derive every shape from the batch; take no size for granted, and let no branch assume a row")
def batches_of_one_and_none(part: Part) -> None:
    """Acting takes one observation, and none."""
    example = part.examples[0]
    policy = part.policy(example)
    encoded, mask = _encoded_and_mask(policy, example)
    for rows in (1, 0, 3):
        step = policy.act_encoded(encoded[:rows], mask=None if mask is None else mask[:rows])
        expected = (rows, *step.dist_inputs.shape[1:])
        require(step.dist_inputs.shape == expected, f"{example}: {rows} rows in, {len(step.dist_inputs)} out")
        require(step.raw_action.shape[0] == rows, f"{example}: {rows} rows in, {len(step.raw_action)} actions out")
        lengths = [len(x) for x in (step.logp, step.value) if x is not None]
        require(lengths in ([rows], [rows, rows]), f"{example}: {rows} rows in, logp and value of {lengths} rows out")


@check(*MODELS, hint="compute each row by itself: no statistics over the batch while acting, no axis mixed with it")
def rows_are_independent(part: Part) -> None:
    """What a model makes of a row does not depend on the other rows, or on their order."""
    for example in part.few:
        policy = part.policy(example)
        encoded = encoded_of(policy, example, 6)
        whole = run(policy, encoded)
        for what, rows in (("in another order", [3, 0, 5, 1, 4, 2]), ("alone with one other", [4, 1])):
            expected = Pass(whole.outputs[rows], None if whole.value is None else whole.value[rows], ())
            same_answers(run(policy, encoded[rows]), expected, f"{example}: rows {what}")


@check(*MODELS, hint="cast obs_flat to the weights' dtype: observations come in the dtype of their space")
def takes_bytes_and_floats(part: Part) -> None:
    """Observations of uint8 and of float32 both do."""
    tried = 0
    for example in part.few:
        if not (other := _of_other_dtype(example)) or not is_chosen(part.component, part.catalog, other):
            continue
        tried += 1
        check_outputs(part.policy(other), other)
    if not tried:
        raise NotApplicable("none of its first examples has a Box of uint8 or float32 for its observations")


def _of_other_dtype(example: Example) -> Example | None:
    box = example.obs
    if not isinstance(box, spaces.Box) or box.dtype not in (np.uint8, np.float32):
        return None
    high, dtype = (1.0, np.float32) if box.dtype == np.uint8 else (255, np.uint8)
    return Example(spaces.Box(0, high, box.shape, dtype), example.action, example.config)


@check(
    *MODELS,
    hint="let describe say what __init__ builds: the last stage's width, and how many weights each stage has",
    where=lambda part: getattr(part.component.declaration, "describe", None) is not None,
)
def describes_what_is_built(part: Part) -> None:
    """The stages that `explain` prints are those of the built model."""
    for config in part.sharing():
        _check_weights(part, part.examples[0], config)
    for example in part.examples:
        policy = part.policy(example)
        _check_weights(part, example, {})
        own = [s for s in policy.resolution.shapes if s.name.startswith(f"{part.component.name}: ")]
        width = own[-1].shape[-1] if own and own[-1].shape else None
        model = policy.model if kind_of(part.component) != "trunk" else innermost(policy)
        # Inside something else its last stage is its features.
        expected = policy.resolution.num_outputs if model is policy.model else model.num_outputs
        require(
            width in (None, expected),
            f"{example}: its last stage {own[-1].name if own else ''!r} is {width} wide; built, it is {expected} wide",
        )


def _check_weights(part: Part, example: Example, config: dict[str, Any]) -> None:
    """Raise unless a model has as many weights as its stages announce; at least, where they do not know them all."""
    policy = part.policy(example, **config)
    built, stages = weights_in(policy), policy.resolution.layers
    announced = sum(stage.weights or 0 for stage in stages)
    require(
        announced == built
        if all(stage.weights is not None and stage.whole for stage in stages)
        else announced <= built,
        f"{example}{f', {config}' if config else ''}: its stages announce {announced} weights; the model has {built}",
    )


def innermost(policy: Policy) -> ModelV2:
    """Return the trunk inside a policy's model."""
    model = policy.model
    while (found := inner_model(model)) is not None:
        model = found
    return model


@check(
    *MODELS, hint="hold layers as attributes, tensors as parameters, lists in nn.ModuleList; build no layer for nothing"
)
def every_weight_is_trained(part: Part) -> None:
    """Every weight that forward reads is found, and a step over outputs, log density and value moves each."""
    for example, policy in part.policies(part.few):
        check_trained(policy, example)


@check(*MODELS, hint="return what the framework's operations give: an array carries no gradient")
def outputs_are_tensors(part: Part) -> None:
    """Outputs and values are tensors of the framework."""
    example = part.examples[0]
    policy = part.policy(example)
    model: Any = policy.model
    seen: dict[str, Any] = {}
    for name in ("forward", "value_function"):
        setattr(model, name, _noting(seen, name, getattr(model, name)))
    try:
        run(policy, encoded_of(policy, example, 3))
    except Exception:
        if not seen:
            raise
    finally:
        del model.forward, model.value_function
    for name, found in seen.items():
        outputs = found[0] if name == "forward" else found
        homes = {base.__module__.partition(".")[0] for base in type(outputs).__mro__}
        require(
            frameworks()[policy.framework].module in homes,
            f"{example}: {name}() returned {type(outputs).__module__}.{type(outputs).__qualname__}, expected a tensor"
            f" of {policy.framework!r}",
        )


def _noting(seen: dict[str, Any], name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*args: Any, **kwargs: Any) -> Any:
        seen[name] = ask(*args, **kwargs)
        return seen[name]

    return noting


@check(
    *MODELS, hint="compute every output from the features: one that is the same whatever the weights are is not learned"
)
def every_output_is_learned(part: Part) -> None:
    """Other weights change each of the outputs."""
    rng = np.random.default_rng(0)
    for example in part.few:
        policy = part.policy(example)
        encoded, weights = encoded_of(policy, example, 3), weights_of(policy.model)
        kept = {name: np.array(array) for name, array in weights.items()}
        moved = {
            name: (array + rng.uniform(0, 0.1, array.shape)).astype(array.dtype) if array.dtype.kind == "f" else array
            for name, array in kept.items()
        }
        before = run(policy, encoded).outputs
        set_weights_of(policy.model, moved)
        after = run(policy, encoded).outputs
        set_weights_of(policy.model, kept)
        still = [str(i) for i in np.flatnonzero((before == after).all(axis=0))]
        require(not still, f"{example}: the outputs {', '.join(still[:5])} are the same with other weights")


@check(*MODELS, hint="draw initial weights with the framework's own random numbers, which a seed sets")
def weights_follow_the_seed(part: Part) -> None:
    """Built from the same seed a model has the same weights."""
    made = []
    for _ in range(2):
        seed(part.framework)
        made.append(weights_of(part.build(part.examples[0]).model))
    one, other = made
    same = {name for name in one.keys() & other.keys() if np.array_equal(one[name], other[name], equal_nan=True)}
    differ = [name for name in one if name not in same]
    require(not differ, f"{part.examples[0]}: built again from the same seed, these weights differ: {differ[:5]}")


@check(
    *MODELS, hint="let everything that outputs depend on be a weight or a buffer, made the same way in every process"
)
def saved_and_restored(part: Part) -> None:
    """A policy that was saved and loaded acts the same."""
    for example, policy in part.policies(part.few):
        encoded = encoded_of(policy, example, 4)
        with tempfile.TemporaryDirectory() as folder:
            policy.save(folder)
            restored = load(folder, catalog=part.catalog)
        same_answers(run(restored, encoded), run(policy, encoded), f"{example}: loaded", 1e-5)


@check(
    *MODELS,
    hint="give layers the same names and layouts in every framework (see get_weights), and the same epsilons",
    every_framework=False,
    where=lambda part: len(part.frameworks) > 1,
)
def frameworks_agree(part: Part) -> None:
    """With weights copied across, every framework gives the same outputs."""
    tried = False
    for example in part.few:
        for sharing in part.sharing():
            served = [p for name in part.frameworks if (p := _served(part.within(name), example, sharing)) is not None]
            tried |= len(served) > 1
            for other in served[1:]:
                _check_twins(served[0], other, example, f"{example} {sharing or ''}")
    if not tried:
        raise NotApplicable("it has code for one framework that the kit knows, or nothing around it has for two")


def _served(part: Part, example: Example, sharing: dict[str, Any]) -> Policy | None:
    """Return a policy in the part's framework; None where nothing around it, or the kit, serves that."""
    try:
        return part.policy(example, **sharing) if has_kit(str(part.framework)) else None
    except (NoMatchError, NotServedError):
        return None


def _check_twins(one: Policy, two: Policy, example: Example, where: str) -> None:
    """Raise unless two policies with the same weights give the same."""
    set_weights_of(two.model, weights_of(one.model))
    encoded = encoded_of(one, example, 4)
    where = f"{where}: {one.framework} and {two.framework} with the same weights"
    same_answers(run(two, encoded), run(one, encoded), where, 1e-5)


@check(
    *MODELS,
    hint="use the framework's operations alone in forward: no NumPy, no Python branch on values, no Python state",
    where=lambda part: traces(part.framework),
)
def traced_equals_eager(part: Part) -> None:
    """Traced, a TensorFlow model gives what it gives eagerly, step after step."""
    example = part.examples[0]
    policy = part.policy(example)
    encoded, mask = _encoded_and_mask(policy, example)
    state, memory = None, None
    for _ in range(2):
        eager = run(policy, encoded, memory)
        _, stored = draw(policy, eager.outputs, mask, explore=False)
        step = policy.act_encoded(encoded, state, mask=mask, explore=False)
        traced = Pass(step.dist_inputs, step.value, ())
        same_answers(traced, Pass(stored, eager.value, ()), f"{example}: traced, against eagerly")
        if policy.views or not policy.memory:
            break
        state, memory = step.state, eager.state


@check(*MODELS, hint="let evaluate's pass, is_training=True, return what acting does but for dropout and the like")
def evaluates_batches(part: Part) -> None:
    """Scoring stored actions gives a density and a value for each row, sequences of a memory included."""
    example = part.examples[0]
    policy = part.policy(example)
    batch = batch_of(policy, example)
    found = policy.evaluate(batch)
    for name in ("logp", "entropy", "value"):
        tensor = getattr(found, name)
        require(
            tensor is None or tuple(tensor.shape) == (8,),
            f"{example}: {name} of 8 rows has shape {None if tensor is None else tuple(tensor.shape)}",
        )


def _encoded_and_mask(policy: Policy, example: Example) -> tuple[Array, Array | None]:
    observations = observations_of(example, 3)
    mask = policy.action_mask(observations)
    return policy.preprocess(observations), mask
