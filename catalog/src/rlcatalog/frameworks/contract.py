"""The contract between a policy and a framework: `Step`, `Evaluation`, `Backend`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlcatalog.frameworks.ops import Tensor

Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """Result of `Policy.act` for a batch of B observations, in NumPy.

    Attributes:
        action: Actions for the environment, in its action space.
        raw_action: Raw actions `[B, width]`. Store these, because `evaluate` scores them.
        logp: Log density of the raw actions, `[B]`; float32, or float64 if the model's outputs are.
        value: Value estimates `[B]`, with the same precision, or None for a model without a value branch.
        dist_inputs: Parameters of the action distribution `[B, n]`, action masks included; `Policy.stored_dist`
            rebuilds it from them, regardless of the current weights. Half precisions are widened to float32 first.
        state: Opaque state to pass to the next `act`, or None for a model without memory or past views.
    """

    action: Any
    raw_action: Array
    logp: Array
    value: Array | None
    dist_inputs: Array
    state: Any


@dataclass(frozen=True)
class Evaluation:
    """Result of `Policy.evaluate` for a batch, in differentiable tensors of the framework.

    Attributes:
        logp: Log density `[B]` of the given raw actions.
        entropy: Entropy, or its estimate, `[B]`; None if it was not requested.
        entropy_kind: `"exact"` or `"estimate"`; without an entropy, the `entropy_kind` of the class.
        value: Value estimates `[B]`, or None.
        dist: The action distribution.
        kl: Divergence `[B]` from the distribution that sampled the actions to this one; None without `"dist_inputs"` in
            the batch. If parts of an action depend on earlier ones, it is the divergence of each part given the
            stored earlier parts. Its mean over stored actions is then an unbiased estimate.
    """

    logp: Any
    entropy: Any
    entropy_kind: str
    value: Any
    dist: Any
    kl: Any = None


class PolicyParts(Protocol):
    """The parts of a policy that a framework reads (see `rlcatalog_policy.Policy`).

    Attributes:
        model: The model.
        dist_class: Class of its action distributions.
        stored_dist: Class that rebuilds a distribution from its stored parameters.
        action_codec: The codec of the action space.
        contract: Checks the contracts of the model and the distribution.
        backend: The framework's backend.
        memory: The model's initial memory: `initial` contains its parts, `start(n)` returns them for n sequences.
        views: The views of the model; `training` contains their names in training.
        preprocessor: The preprocessor of the observation space.
        masks: The reader of action masks.
        encoder: Encodes observations, and checks that a batch is encoded.
        device: Its device.
    """

    model: Any
    dist_class: Any
    stored_dist: Any
    action_codec: Any
    contract: Any
    backend: Any
    memory: Any
    views: Any
    preprocessor: Any
    masks: Any
    encoder: Any
    device: str

    @property
    def has_value(self) -> bool:
        """Whether the policy estimates values."""

    @property
    def encoded_space(self) -> Any:
        """The space of encoded observations."""

    def make_model(self) -> Any:
        """Build a new model from the policy's parts, with freshly initialised weights."""

    @property
    def model_name(self) -> str:
        """Name of the model, for messages."""

    def evaluate(self, batch: Mapping[str, Any], *, check: bool = True, entropy: bool = True) -> Evaluation:
        """Score stored actions under the current weights."""

    def to(self, device: str) -> Any:
        """Move the policy to a device."""

    def as_module(self) -> Any:
        """Return the model and the action distribution as one module."""


class Backend(Protocol):
    """Acting and scoring of a policy in one framework."""

    def act(
        self, obs: Array | Tensor, views: Mapping[str, Any], memory: tuple[Array, ...], mask: Array | Tensor | None,
        explore: bool,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Return raw actions `[B, width]`, logp, value or None, inputs and new memory, as NumPy arrays.

        If `obs` is a tensor, they are tensors too, on the policy's device and without a gradient; memory stays NumPy.
        """

    def values(self, obs: Array | Tensor, views: Mapping[str, Any], memory: tuple[Array, ...]) -> Any:
        """Return value estimates `[B]` without creating a distribution; a tensor if `obs` is one."""

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        """Return the evaluation of a training batch, with or without the entropy."""

    def log_density(self, dist_inputs: Array, raw_action: Array) -> Array:
        """Return the log density `[B]` of raw actions `[B, width]` under parameters that `act` returned."""

    def to(self, device: str) -> None:
        """Move model and computation to a device."""

    def random_state(self) -> Mapping[str, Array]:
        """Return the state of the random generators for sampling, by name."""

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the state of the random generators, as `random_state` returned it."""


class Learner(Protocol):
    """Training in one framework: gradients, clipping, an optimizer, seeds and devices.

    `cls(policy, eps)` updates the trainable weights of a policy with Adam. An algorithm subclasses it for each
    framework, because each computes gradients in its own way.
    """

    @staticmethod
    def seed(value: int) -> None:
        """Seed new weights and sampling."""

    @staticmethod
    def set_threads(count: int) -> None:
        """Set the number of threads per operation, before the first operation."""

    @staticmethod
    def device_of(name: str) -> str:
        """Return the device of a config, as `Policy.to` takes it.

        Raises:
            ConfigError: The name is unknown, or the framework finds no such device.
        """

    def placed(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch on the model's device; it is converted and copied once per update."""

    def rows(self, columns: Any, index: Array) -> Any:
        """Return rows of a placed batch's columns by indices, in the same structure."""

    def means(self, figures: list[Any]) -> list[float]:
        """Return the means of the metrics of several steps."""

    def get_state(self) -> dict[str, Any]:
        """Return the state of Adam, the same in each framework.

        Returns:
            A dict with four entries. `"step"` is the number of steps. `"first"` and `"second"` are running means of the
            gradients and of their squares: arrays by name of the weight, in the layout of the model's `get_weights`.
            `"behind"` has the numbers of steps, by name, of weights that took fewer steps, because they sometimes had
            no gradient. (TensorFlow uses a gradient of zeros instead.)
        """

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the optimizer's state, as `get_state` returned it."""
