"""Single eager passes of a policy's model for checks, with outputs as arrays and gradients keyed by
name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np

from rlcatalog.errors import NoMatchError, NotServedError
from rlcatalog.frameworks import Array, PolicyParts, Tensor, frameworks, ops_of
from rlcatalog_policy import Policy
from rlcatalog_testing.contract import NotApplicable, Subject, T, check, require
from rlcatalog_testing.examples import Example, observations_of

#: Seconds that a separate process may take.
PATIENCE = 120


@dataclass(frozen=True)
class Pass:
    """The results of a single model pass, as arrays.

    Attributes:
        outputs: Outputs `[B, n]`; half-precision outputs are converted to float32.
        value: Value estimates `[B]`, or None for a model without a value branch.
        state: The new state.
    """

    outputs: Array
    value: Array | None
    state: tuple[Array, ...] = ()

    def at(self, index: Sequence[int] | tuple[slice, int]) -> Pass:
        """Return outputs and values at an index."""
        value = None if self.value is None else self.value[index]
        return Pass(self.outputs[index], value)


class Kit(Protocol):
    """A framework's functions for the conformance kit; they run eagerly, accept arrays and return
    arrays.

    Attributes:
        traces: Whether the backend traces models for acting.
    """

    traces: bool

    @staticmethod
    def seed(number: int) -> None:
        """Set the seed for new weights and sampling."""

    @staticmethod
    def run(
        policy: PolicyParts,
        inputs: dict[str, Any],
        memory: Sequence[Array],
        lengths: Array | None,
        single: bool,
    ) -> tuple[Array, Array | None, list[Array]]:
        """Run a model in the same way as acting does; return its outputs, value and new state."""

    @staticmethod
    def draw(
        policy: PolicyParts, outputs: Array, mask: Array | None, explore: bool
    ) -> tuple[Array, Array]:
        """Sample raw actions from outputs, and return them with the stored distribution."""

    @staticmethod
    def gradients(
        policy: PolicyParts, batch: dict[str, Any], rng: np.random.Generator
    ) -> tuple[dict[str, Array | None], list[tuple[int, ...]]]:
        """Return a random loss's gradients by weight name, and the shapes of trained weights
        outside the model.
        """

    @staticmethod
    def weights_of_value(policy: PolicyParts, batch: dict[str, Any]) -> set[str]:
        """Return the names of the trainable weights that values depend on, but neither outputs nor
        log densities.

        Optional: it matters if the bookkeeping has `weight_keys` and `last_layers`. Without it, the
        check `value_has_its_own_part` is skipped.
        """

    @staticmethod
    def gradient(function: Callable[[Any], Any], inputs: Array) -> Array | None:
        """Return the gradient of the sum of a function's outputs, or None if no gradient reaches
        the inputs.

        The function may draw from a distribution. Call it with numbers, because a random key that
        is drawn while a framework such as JAX traces the function cannot be used afterwards.
        """


def kit_of(framework: str) -> Kit:
    """Return a framework's code for the conformance kit.

    Raises:
        NotApplicable: The framework has no code for the conformance kit.
    """
    if not has_kit(framework):
        raise NotApplicable(f"framework {framework!r} declares no code for the kit")
    # A bridge's check may have imported RLlib, which turns TensorFlow's eager execution off.
    frameworks()[framework].prepare()
    kit: Kit = frameworks()[framework].load("kit")
    return kit


def knows_weights_of_value(framework: str) -> bool:
    """Return whether a framework's code for the kit tells which weights only values depend on."""
    # A framework of another package may have been written before the method was added.
    return hasattr(kit_of(framework), "weights_of_value")


def has_kit(framework: str) -> bool:
    """Return whether a framework has code for the conformance kit."""
    return framework in frameworks() and frameworks()[framework].target("kit") is not None


def framework_modules() -> list[str]:
    """Return the modules of all frameworks that are slow to import, except NumPy, which rlcatalog
    itself needs.
    """
    return [framework.module for framework in frameworks().values() if framework.module != "numpy"]


@cache
def run_apart(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a separate process that can import this process's modules; calls with equal
    arguments share a run.

    A process that does not end in time has the exit status of the command `timeout`, 124.
    """
    environ = dict(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environ["COLUMNS"] = "200"
    command = [sys.executable, "-c", code, *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environ, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            command, 124, stdout="", stderr=f"it did not end within {PATIENCE} s"
        )


def seed(framework: str | None) -> None:
    """Set a framework's seed for weights and sampling, if the framework has code for the
    conformance kit.
    """
    if framework is not None and has_kit(framework):
        kit_of(framework).seed(0)


def traces(framework: str) -> bool:
    """Return whether a framework traces models for acting."""
    return has_kit(framework) and kit_of(framework).traces


class ModelTrial:
    """Model of an example's policy, which checks run eagerly.

    Args:
        subject: The part.
        example: The spaces and config.
        policy: The policy. By default, the policy that the checks share.
        **config: Further keys for the config.

    Attributes:
        subject: The part.
        example: The spaces and config.
        config: The further keys.
        policy: The policy.
    """

    def __init__(
        self, subject: Subject, example: Example, policy: Policy | None = None, **config: Any
    ) -> None:
        self.subject = subject
        self.example = example
        self.config = config
        if policy is None:
            policy = subject.policy(example, **config)
        self.policy = policy

    def __str__(self) -> str:
        if not self.config:
            return str(self.example)
        return f"{self.example}, {self.config}"

    def encoded(self, rows: int) -> Array:
        """Sample observations from the example and encode them: `[B, ...]`."""
        return self.policy.preprocess(observations_of(self.example, rows))

    def encoded_and_mask(self, rows: int) -> tuple[Array, Array | None]:
        """Sample and encode observations; return them with their action mask, if any."""
        observations = observations_of(self.example, rows)
        return self.policy.preprocess(observations), self.policy.action_mask(observations)

    def views(self, encoded: Array) -> dict[str, Any]:
        """Return the model's views at the start of an episode.

        Raises:
            NotApplicable: The model requests views that only a finished rollout contains, or views
                that skip rows.
        """
        views = self.policy.views
        if not views:
            return {}
        skips_rows = any(repeat != 1 for repeat in views.training_repeats.values())
        if views.ahead or skips_rows:
            raise NotApplicable(
                "it requests views that only a finished rollout has, or that skip rows"
            )
        history = views.start(len(encoded))
        return dict(views.see(history, encoded))

    def run(
        self,
        encoded: Array,
        state: Sequence[Array] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> Pass:
        """Run the model once, eagerly, in the same way as acting does.

        Args:
            encoded: Encoded observations `[B, ...]`.
            state: The model's state; None if all episodes are starting.
            lengths: Lengths of the sequences, which are padded to a common length; None for single
                steps.
        """
        policy = self.policy
        kit = kit_of(policy.framework)
        inputs: dict[str, Any] = {"obs": encoded}
        for name, view in self.views(encoded).items():
            if name in policy.views.acting_names:
                inputs[name] = view
        are_single_steps = lengths is None
        if lengths is None:
            lengths = [1] * len(encoded)
        if state is None:
            state = policy.memory.start(len(lengths))
        seq_lens = np.asarray(lengths, np.int32) if policy.memory else None
        outputs, value, new_state = kit.run(policy, inputs, state, seq_lens, are_single_steps)
        return Pass(outputs, value, tuple(new_state))

    def draw(
        self, outputs: Array, mask: Array | None = None, explore: bool = True
    ) -> tuple[Array, Array]:
        """Sample raw actions `[B, width]` from the model's outputs, and return them with the stored
        distribution.

        If the distribution reads the model, the outputs must come from the model's last pass.
        """
        kit = kit_of(self.policy.framework)
        return kit.draw(self.policy, outputs, mask, explore)

    def batch(self, rows: int = 8) -> dict[str, Any]:
        """Return sampled observations and actions as a batch for `Policy.evaluate`; with a memory,
        as two sequences.
        """
        encoded, mask = self.encoded_and_mask(rows)
        raw, _ = self.draw(self.run(encoded).outputs, mask)
        batch: dict[str, Any] = {"obs": encoded, "raw_action": raw}
        if mask is not None:
            batch["mask"] = mask
        if self.policy.views:
            batch["views"] = self.views(encoded)
        if self.policy.memory:
            second_half = rows // 2
            batch["seq_lens"] = np.array([rows - second_half, second_half], np.int32)
        return batch

    def gradients(
        self, largest: float | None = None
    ) -> tuple[dict[str, Array | None], list[tuple[int, ...]]]:
        """Return `Kit.gradients` for a loss that depends on the log density, the value and the
        outputs.

        Args:
            largest: Maximum absolute value to which encoded observations are clipped; None for no
                limit.
        """
        batch = self.batch()
        if largest is not None:
            obs = batch["obs"]
            is_unsigned = obs.dtype.kind == "u"
            lowest = None if is_unsigned else -largest  # an unsigned dtype cannot hold -largest
            batch["obs"] = obs.clip(lowest, largest)
        kit = kit_of(self.policy.framework)
        return kit.gradients(self.policy, batch, np.random.default_rng(0))


def few(subject: Subject) -> Iterator[ModelTrial]:
    """Yield trials for a few of a part's examples."""
    return (ModelTrial(subject, example) for example in subject.few)


def first(subject: Subject) -> Iterator[ModelTrial]:
    """Yield the trial for a part's first example."""
    yield ModelTrial(subject, subject.examples[0])


def every(subject: Subject) -> Iterator[ModelTrial]:
    """Yield trials for all of a part's examples."""
    return (ModelTrial(subject, example) for example in subject.examples)


def with_sharing(subject: Subject, examples: Iterable[Example]) -> Iterator[ModelTrial]:
    """Yield trials for examples, also with separate value layers if the part supports them."""
    for example in examples:
        for config in subject.sharing():
            yield ModelTrial(subject, example, **config)


#: Checks for models, trial by trial, for a few examples.
check_models = partial(check, "trunk", "memory", "head", each=few)


def twins(
    subject: Subject, makers: Iterable[tuple[Example, Callable[[Subject], T]]]
) -> Iterator[tuple[T, T]]:
    """Yield the factories' results for a part in its first framework, each with the result in a
    different framework.

    Args:
        subject: The part.
        makers: The factories, each with the example that it is for.

    Raises:
        NotApplicable: No example works in a different framework.
    """
    compared = [framework for framework in subject.compared_frameworks if has_kit(framework)]
    for framework in compared:
        kit_of(framework)  # raises an error if the framework cannot be imported
    has_twins = False
    for example, make in makers:
        results = []
        for framework in compared:
            in_framework = subject.within(framework)
            if not in_framework.serves(example):
                continue
            # No part around it supports the framework.
            with suppress(NotApplicable, NoMatchError, NotServedError):
                results.append(make(in_framework))
        for other in results[1:]:
            has_twins = True
            yield results[0], other
    if not has_twins:
        raise NotApplicable(
            "it, or the parts around it, support only one framework that the kit knows"
        )


def array_of(tensor: Tensor) -> Array:
    """Convert a framework's tensor to an array."""
    array = ops_of(tensor).array(tensor)
    if array is None:
        return np.asarray(tensor)
    return np.asarray(array)


def alike(answer: Array, expected: Array, what: str, tolerance: float = 1e-4) -> None:
    """Raise an error unless arrays are equal up to rounding, or both are extreme, for example below
    -1e30.
    """
    require(
        answer.shape == expected.shape, f"{what}: shape {answer.shape}, expected {expected.shape}"
    )
    answer = _clip_extremes(answer)
    expected = _clip_extremes(expected)
    is_close = np.isclose(answer, expected, rtol=tolerance, atol=tolerance)
    if not is_close.all():
        place = tuple(np.argwhere(~is_close)[0].tolist())
        raise AssertionError(
            f"{what}: {answer[place]:.6g}, expected {expected[place]:.6g} at {list(place)}"
        )


def _clip_extremes(values: Array) -> Array:
    return np.clip(np.asarray(values, np.float64), -1e30, 1e30)


def same_answers(answer: Pass, expected: Pass, what: str, tolerance: float = 1e-4) -> None:
    """Raise an error unless two passes have the same outputs and values up to rounding."""
    alike(answer.outputs, expected.outputs, f"{what}, its outputs", tolerance)
    if answer.value is not None and expected.value is not None:
        alike(answer.value, expected.value, f"{what}, its value", tolerance)
