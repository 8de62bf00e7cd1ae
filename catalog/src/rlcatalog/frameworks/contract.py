"""The contract between a policy and what is done for it: `Step`, `Evaluation`, `Engine`, `FrozenEngine`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from rlcatalog_policy.state import State

Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """What `Policy.act` returns for a batch of B observations, all of it NumPy.

    Attributes:
        action: Actions for the environment, in its action space.
        raw_action: The same before adaption, `[B, width]`: store these, `evaluate` scores them.
        logp: Log density of the raw actions, `[B]`; float32, or float64 where the model's outputs are.
        value: Value estimates `[B]`, of the same precisions, or None for a model without a value branch.
        dist_inputs: Parameters of the action distribution `[B, n]`, action masks included; `Policy.stored_dist`
            rebuilds it from them, whatever the weights are by then. Half precisions are widened to float32 before it.
        state: Opaque state to hand to the next `act`, or None for a model without memory or past views.
    """

    action: Any
    raw_action: Array
    logp: Array
    value: Array | None
    dist_inputs: Array
    state: State | None


@dataclass(frozen=True)
class Evaluation:
    """What `Policy.evaluate` returns for a batch, all of it tensors of the framework, differentiable.

    Attributes:
        logp: Log density `[B]` of the given raw actions.
        entropy: Entropy, or its estimate, `[B]`; None where it was not asked for.
        entropy_kind: `"exact"` or `"estimate"`; where it was not asked for, what its class says.
        value: Value estimates `[B]`, or None.
        dist: The action distribution.
        kl: Divergence `[B]` of the distribution that the actions were drawn from to this one, or None where the batch
            does not hold the former. Where parts of an action depend on earlier ones it is that of each part given the
            stored earlier ones: its mean over stored actions estimates the divergence without bias.
    """

    logp: Any
    entropy: Any
    entropy_kind: str
    value: Any
    dist: Any
    kl: Any = None


class Acting(Protocol):
    """What chooses actions for a policy."""

    def act(
        self, obs: Array, views: Mapping[str, Any], memory: tuple[Array, ...], mask: Array | None, explore: bool
    ) -> tuple[Any, ...]:
        """Return raw actions `[B, width]`, logp, value or None, inputs and new memory, as NumPy arrays."""


class FrozenEngine(Acting, Protocol):
    """What chooses actions for a frozen policy, faster than its engine.

    Attributes:
        reason: Why it is not faster: it found itself unable, or wrong; None where it is.
    """

    reason: str | None

    def update(self) -> None:
        """Act with the weights of now."""

    def random_state(self) -> Mapping[str, Array]:
        """Return the state of what actions are drawn from, by names that engines do not use."""

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the state of what actions are drawn from, as `random_state` returned it; others may stand beside it."""


class Engine(Acting, Protocol):
    """What a framework does for a policy."""

    def values(self, obs: Array, views: Mapping[str, Any], memory: tuple[Array, ...]) -> Array:
        """Return value estimates `[B]`; no action distribution is made."""

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        """Return the evaluation of a training batch, with the entropy or without."""

    def log_density(self, dist_inputs: Array, raw_action: Array) -> Array:
        """Return the log density `[B]` of raw actions `[B, width]` under parameters that `act` returned."""

    def to(self, device: str) -> None:
        """Move model and computation to a device."""

    def random_state(self) -> Mapping[str, Array]:
        """Return the state of what actions are drawn from, by name."""

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the state of what actions are drawn from, as `random_state` returned it."""
