"""The contract between a policy and a framework: `Step`, `Evaluation`, `Backend`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from rlcatalog.frameworks.ops import Tensor

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
    state: Any


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


class PolicyParts(Protocol):
    """What a framework reads of a policy (see `rlcatalog_policy.Policy`).

    Attributes:
        model: The model.
        dist_class: Class of its action distributions.
        stored_dist: Class that rebuilds a distribution from its stored parameters.
        action_codec: The codec of the action space.
        contract: What checks that model and distribution keep their contracts.
        backend: What the framework does for it.
        memory: How the model's memory begins: `initial` are its parts, `start(n)` returns them for n sequences.
        views: What the model sees beside the observation: `training` are the names.
        preprocessor: The preprocessor of the observation space.
        masks: What reads action masks.
        encoder: What encodes observations, and checks that a batch of them is encoded.
        device: Where it computes.
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
        """Whether it estimates values."""

    @property
    def encoded_space(self) -> Any:
        """The space of encoded observations."""

    def make_model(self) -> Any:
        """Build another model like this policy's, with fresh weights."""

    @property
    def model_name(self) -> str:
        """Name of the model, for messages."""

    def evaluate(self, batch: Mapping[str, Any], *, check: bool = True, entropy: bool = True) -> Evaluation:
        """Score stored actions under the current weights."""

    def to(self, device: str) -> Any:
        """Move the policy to a device."""

    def as_module(self) -> Any:
        """Return model and action distribution as one module."""


class Backend(Protocol):
    """What a framework does for a policy."""

    def act(
        self, obs: Array | Tensor, views: Mapping[str, Any], memory: tuple[Array, ...], mask: Array | Tensor | None,
        explore: bool,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Return raw actions `[B, width]`, logp, value or None, inputs and new memory, as NumPy arrays.

        Where `obs` is a tensor, so are they, on the policy's device and without a gradient; memory stays NumPy.
        """

    def values(self, obs: Array | Tensor, views: Mapping[str, Any], memory: tuple[Array, ...]) -> Any:
        """Return value estimates `[B]`, a tensor where `obs` is one; no action distribution is made."""

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


class Learner(Protocol):
    """What a framework does for a loss: gradients, clipping, an optimizer; and seeds and devices.

    `cls(policy, eps)` moves the trainable weights of a policy with Adam. How a loss becomes a gradient is the
    framework's own, so an algorithm subclasses this for each framework.
    """

    @staticmethod
    def seed(value: int) -> None:
        """Seed new weights and draws."""

    @staticmethod
    def set_threads(count: int) -> None:
        """Set how many threads one operation may use; before the first operation."""

    @staticmethod
    def device_of(name: str) -> str:
        """Return the device that a config names, as `Policy.to` takes it.

        Raises:
            ConfigError: The framework knows none of this name, or sees none.
        """

    def placed(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch as steps take it, where the model is: it is converted and travels once in an update."""

    def rows(self, columns: Any, index: Array) -> Any:
        """Return some rows of columns of a batch that was placed, by indices; of a structure of them a like one."""

    def means(self, figures: list[Any]) -> list[float]:
        """Return the means of the figures of several steps."""

    def get_state(self) -> dict[str, Any]:
        """Return the state of Adam, the same in each framework.

        Returns:
            - `"step"`: the number of steps taken;
            - `"first"`: running means of the gradients, arrays by name of the weight, in the layout of the model's
              `get_weights`;
            - `"second"`: those of their squares;
            - `"behind"`: the numbers of steps, by name, of weights that took fewer, having had no gradient at times
              (in PyTorch; in TensorFlow a missing gradient is a gradient of zeros).
        """

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the optimizer's state, as `get_state` returned it."""
