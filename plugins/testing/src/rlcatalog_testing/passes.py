"""Running: a policy's model run once as checks need it: eagerly, its outputs as arrays, its gradients by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlcatalog.frameworks import PolicyParts, frameworks, ops_of
from rlcatalog.models import weights_of
from rlcatalog_testing.contract import NotApplicable, require
from rlcatalog_testing.examples import Example, observations_of

if TYPE_CHECKING:
    from rlcatalog_policy import Policy

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Pass:
    """What one pass of a model gave, as arrays.

    Attributes:
        outputs: `[B, n]`; half precisions as float32.
        value: Value estimates `[B]`, or None for a model without a value branch.
        state: The new state.
    """

    outputs: Array
    value: Array | None
    state: tuple[Array, ...]


@dataclass(frozen=True)
class Gradients:
    """What one backward pass gave.

    Attributes:
        by_name: Name of each trainable weight → its gradient, or None where the loss does not depend on it.
        strangers: Shapes of trainable weights that the pass used and that are none of the model's.
    """

    by_name: dict[str, Array | None]
    strangers: list[tuple[int, ...]]


class Kit(Protocol):
    """What the conformance kit asks of a framework; all of it computes eagerly, and arrays come and go.

    Attributes:
        traces: Whether the backend traces models for acting.
    """

    traces: bool

    @staticmethod
    def seed(number: int) -> None:
        """Seed new weights and draws."""

    @staticmethod
    def run(
        policy: PolicyParts, inputs: dict[str, Any], memory: Sequence[Array], lengths: Array | None, single: bool
    ) -> tuple[Array, Array | None, list[Array]]:
        """Run a model as acting does; return its outputs, value and new state."""

    @staticmethod
    def draw(policy: PolicyParts, outputs: Array, mask: Array | None, explore: bool) -> tuple[Array, Array]:
        """Draw raw actions from outputs, and return what is stored of their distribution."""

    @staticmethod
    def gradients(
        policy: PolicyParts, batch: dict[str, Any], rng: np.random.Generator
    ) -> tuple[dict[str, Array | None], list[tuple[int, ...]]]:
        """Return the gradients of a random loss by weight name, and the shapes of trained weights outside the model."""

    @staticmethod
    def gradient(function: Callable[[Any], Any], inputs: Array) -> Array | None:
        """Return the gradient of the sum of a function's outputs; None where none reaches the inputs."""


def kit_of(framework: str) -> Kit:
    """Return what a framework brings for the kit.

    Raises:
        NotApplicable: It brings nothing.
    """
    if not has_kit(framework):
        raise NotApplicable(f"framework {framework!r} declares nothing for the kit")
    found: Kit = frameworks()[framework].load("kit")
    return found


def has_kit(framework: str) -> bool:
    """Whether a framework brings anything for the kit."""
    return framework in frameworks() and frameworks()[framework].target("kit") is not None


def framework_modules() -> list[str]:
    """Return the modules of all frameworks that are slow to import: rlcatalog itself needs NumPy."""
    return [framework.module for framework in frameworks().values() if framework.module != "numpy"]


def seed(framework: str | None) -> None:
    """Seed a framework's weights and draws; one that brings nothing for the kit is left alone."""
    if framework is not None and has_kit(framework):
        kit_of(framework).seed(0)


def traces(framework: str | None) -> bool:
    """Whether models of a framework are traced for acting."""
    return framework is not None and has_kit(framework) and kit_of(framework).traces


def encoded_of(policy: Policy, example: Example, rows: int, seed: int = 0) -> Array:
    """Draw observations of an example and encode them: `[B, ...]`."""
    return policy.preprocess(observations_of(example, rows, seed))


def views(policy: Policy, encoded: Array) -> dict[str, Any]:
    """Return the views that a model is shown at the start of an episode.

    Raises:
        NotApplicable: It asks for some that only a finished rollout has, or that skip rows.
    """
    if not policy.views:
        return {}
    if policy.views.ahead or any(repeat != 1 for repeat in policy.views.training.values()):
        raise NotApplicable("it asks for views that only a finished rollout has, or that skip rows")
    return dict(policy.views.see(policy.views.start(len(encoded)), encoded))


def run(
    policy: Policy, encoded: Array, state: Sequence[Array] | None = None, lengths: Sequence[int] | None = None
) -> Pass:
    """Run a policy's model once, eagerly and as acting does.

    Args:
        policy: The policy.
        encoded: Encoded observations `[B, ...]`.
        state: Its state; None at the start of all episodes.
        lengths: Lengths of sequences, whose rows are padded to one length; None for single steps.
    """
    kit = kit_of(policy.framework)
    shown = {name: view for name, view in views(policy, encoded).items() if name in policy.views.acting}
    inputs: dict[str, Any] = {"obs": encoded, **shown}
    sequences = len(encoded) if lengths is None else len(lengths)
    memory = policy.memory.start(sequences) if state is None else state
    seq_lens = np.asarray(np.ones(sequences) if lengths is None else lengths, np.int32) if policy.memory else None
    outputs, value, new = kit.run(policy, inputs, memory, seq_lens, lengths is None)
    return Pass(outputs, value, tuple(new))


def draw(policy: Policy, outputs: Array, mask: Array | None = None, explore: bool = True) -> tuple[Array, Array]:
    """Draw raw actions `[B, width]` from a model's outputs, and return what is stored of their distribution `[B, n]`.

    The model's last pass must be the one that gave these outputs, for distributions that read the model.
    """
    return kit_of(policy.framework).draw(policy, outputs, mask, explore)


def batch_of(policy: Policy, example: Example, rows: int = 8, seed: int = 0) -> dict[str, Any]:
    """Return a training batch of drawn observations and actions, for `Policy.evaluate`: two sequences with a memory."""
    observations = observations_of(example, rows, seed)
    encoded = policy.preprocess(observations)
    mask = policy.action_mask(observations)
    raw, _ = draw(policy, run(policy, encoded).outputs, mask)
    batch: dict[str, Any] = {"obs": encoded, "raw_action": raw}
    if mask is not None:
        batch["mask"] = mask
    if policy.views:
        batch["views"] = views(policy, encoded)
    if policy.memory:
        batch["seq_lens"] = np.array([rows - rows // 2, rows // 2], np.int32)
    return batch


def gradients(policy: Policy, example: Example, largest: float | None = None) -> Gradients:
    """Return the gradients of a loss over log density, value and outputs, each row weighted at random.

    Args:
        policy: The policy.
        example: What it is a policy of.
        largest: What encoded observations are cut to, in size; None: nothing.
    """
    batch = batch_of(policy, example)
    if largest is not None:
        batch["obs"] = batch["obs"].clip(None if batch["obs"].dtype.kind == "u" else -largest, largest)
    return Gradients(*kit_of(policy.framework).gradients(policy, batch, np.random.default_rng(0)))


def array_of(tensor: Any) -> Array:
    """Return a framework's tensor as an array."""
    found = ops_of(tensor).array(tensor)
    return np.asarray(tensor if found is None else found)


def alike(answer: Array, expected: Array, what: str, tolerance: float = 1e-4) -> None:
    """Raise unless arrays are equal but for rounding, or both beyond what matters: below -1e30, for example."""
    require(answer.shape == expected.shape, f"{what}: shape {answer.shape}, expected {expected.shape}")
    answer, expected = (np.clip(np.asarray(x, np.float64), -1e30, 1e30) for x in (answer, expected))
    close = np.isclose(answer, expected, rtol=tolerance, atol=tolerance)
    if not close.all():
        place = tuple(int(i) for i in np.argwhere(~close)[0])
        require(False, f"{what}: {answer[place]:.6g}, expected {expected[place]:.6g} at {list(place)}")


def same_answers(one: Pass, expected: Pass, what: str, tolerance: float = 1e-4) -> None:
    """Raise unless two passes gave the same outputs and values but for rounding."""
    alike(one.outputs, expected.outputs, f"{what}, its outputs", tolerance)
    if one.value is not None and expected.value is not None:
        alike(one.value, expected.value, f"{what}, its value", tolerance)


def weights_in(policy: Policy) -> int:
    """Return how many numbers a model's weights are."""
    return sum(math.prod(array.shape) for array in weights_of(policy.model).values())
