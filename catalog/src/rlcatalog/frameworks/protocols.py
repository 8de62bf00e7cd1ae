"""The contract between a policy and a framework: `Step`, `Evaluation`, `Backend`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from rlcatalog.frameworks.ops import Array, Tensor, TensorOps, TensorTree

if TYPE_CHECKING:
    import gymnasium


class Step(NamedTuple):
    """Result of `Policy.act` for a batch of B observations: NumPy arrays, or tensors if the
    observations are tensors.

    Attributes:
        action: Actions for the environment, in its action space.
        raw_action: Raw actions `[B, width]`. Store them for `evaluate`, which scores them.
        logp: Log density of the raw actions, `[B]`; float32, or float64 if the model's outputs are
            float64.
        value: Value estimates `[B]` with the same precision; None for a model without a value
            branch.
        dist_inputs: Parameters of the action distribution `[B, n]`, action masks included;
            `Policy.stored_dist` rebuilds it from them, regardless of the current weights. Half
            precisions are widened to float32 first.
        state: Opaque state to pass to the next `act`, or None for a model without memory or past
            views.
    """

    action: Any
    raw_action: Array
    logp: Array
    value: Array | None
    dist_inputs: Array
    state: Any


@dataclass(frozen=True)
class Evaluation:
    """Result of `Policy.evaluate` for a batch, as the framework's differentiable tensors.

    Attributes:
        logp: Log density `[B]` of the given raw actions.
        entropy: Entropy, or its estimate, `[B]`; None if it was not requested.
        entropy_kind: `"exact"` or `"estimate"`; if there is no entropy, the class's `entropy_kind`.
        value: Value estimates `[B]`, or None.
        dist: The action distribution, an object of the policy's `dist_class`.
        kl: Divergence `[B]` from the distribution that sampled the actions to this one; None if the
            batch has no `"dist_inputs"`. If parts of an action depend on earlier parts, it is the
            divergence of each part given the stored earlier parts. Its mean over stored actions is
            then an unbiased estimate.
    """

    logp: Tensor
    entropy: Tensor | None
    entropy_kind: str
    value: Tensor | None
    dist: Any
    kl: Tensor | None = None


class InitialMemory(Protocol):
    """A model's memory at the start of an episode, and after a step."""

    @property
    def initial(self) -> Sequence[Array]:
        """The arrays, without a batch axis; empty for a model without a memory."""

    @property
    def initial_past(self) -> Sequence[Array]:
        """Earlier states at the start of an episode, for memories that skip some of them."""

    def start(self, batch_size: int, /) -> tuple[Array, ...]:
        """Return the arrays for this number of sequences."""

    def after(
        self,
        before: Sequence[Tensor],
        returned: Sequence[Tensor],
        past: Sequence[Tensor],
        ops: TensorOps,
        /,
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the memory and the past after a step in which the model returned these states."""


class PastViews(Protocol):
    """The views of past steps that a model requests."""

    @property
    def acting_names(self) -> Sequence[str]:
        """The names of the views that the model sees while acting."""

    @property
    def training_repeats(self) -> Mapping[str, int]:
        """The names of the views that the model sees in training, and how many steps share one
        value of each.
        """

    def start(self, batch_size: int, /) -> Any:
        """Return the history of this number of episodes that have not begun."""

    def see(self, history: Any, obs: Array, /) -> Mapping[str, Array]:
        """Return every view at a step with these observations, by name."""


class RawActionForm(Protocol):
    """The form of raw actions: what a framework reads of an action codec."""

    @property
    def scalar(self) -> bool:
        """Whether raw actions have the shape `[B]`, as for a single Discrete."""

    @property
    def width(self) -> int:
        """Number of values in a raw action."""


class MaskForm(Protocol):
    """The form of action masks: what a framework reads of `ActionMasks`."""

    @property
    def key(self) -> str | None:
        """Key of the mask in Dict observations, or None."""

    @property
    def size(self) -> int:
        """Number of columns."""


class EncodedForm(Protocol):
    """The form of encoded observations: what a framework reads of a preprocessor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one encoded observation."""


class OutputChecks(Protocol):
    """The checks of what models and distributions return. A backend calls them, so that users get
    an error that names the part at fault.
    """

    @property
    def outputs(self) -> int:
        """Number of the model's outputs for one observation."""

    def check_outputs(self, outputs: Tensor, rows: int | None) -> None:
        """Raise an error unless a model's outputs are a tensor `[rows, outputs]` of the policy's
        framework.
        """

    def check_sample(self, sample: Tensor, rows: int | None, method: str = "sample") -> None:
        """Raise an error unless a flat sample has the shape `[rows, width]`."""

    def check_rows(self, numbers: Tensor, rows: int | None, method: str) -> None:
        """Raise an error unless a distribution's method, such as `"logp"`, returned a tensor
        `[rows]`.
        """

    def check_tensors(self, value: TensorTree, method: str) -> None:
        """Raise an error unless a distribution's method returned tensors of the framework."""

    def refuse_written_input(self, name: str) -> NoReturn:
        """Raise the error for a model that has written into one of its inputs."""

    def refuse_gradient(self, method: str) -> NoReturn:
        """Raise the error for a sample that gradients pass through."""

    def refuse_lost_weight(self, name: str, shape: Sequence[int]) -> NoReturn:
        """Raise the error for a weight that is neither trained nor saved."""


class PolicyParts(Protocol):
    """The attributes of a policy that a framework uses (see `rlcatalog_policy.Policy`).

    Attributes:
        model: The model.
        dist_class: Class of the policy's action distributions.
        stored_dist: Class that rebuilds a distribution from its stored parameters.
        backend: The framework's `Backend`, with methods that only this framework has.
        encoder: Encodes observations, and checks that a batch is encoded.
        device: The policy's device.
    """

    model: Any
    dist_class: Any
    stored_dist: Any
    backend: Any
    encoder: Any
    device: str

    @property
    def output_checker(self) -> OutputChecks:
        """Checks the return values of the model and the distribution."""

    @property
    def action_codec(self) -> RawActionForm:
        """The codec of the action space."""

    @property
    def preprocessor(self) -> EncodedForm:
        """The preprocessor of the observation space."""

    @property
    def masks(self) -> MaskForm:
        """The reader of action masks."""

    @property
    def memory(self) -> InitialMemory:
        """The model's initial memory."""

    @property
    def views(self) -> PastViews:
        """The model's views of past steps."""

    @property
    def has_value(self) -> bool:
        """Whether the policy estimates values."""

    @property
    def encoded_space(self) -> gymnasium.Space[Any]:
        """The space of encoded observations."""

    def make_model(self) -> Any:
        """Build a new model from the policy's parts, with freshly initialised weights."""

    @property
    def model_name(self) -> str:
        """Name of the model, for error messages."""

    def evaluate(
        self, batch: Mapping[str, Any], *, check: bool = True, entropy: bool = True
    ) -> Evaluation:
        """Score stored actions under the current weights."""

    def to(self, device: str) -> Any:
        """Move the policy to a device."""

    def as_module(self) -> Any:
        """Return the model and the action distribution as one module."""


class Backend(Protocol):
    """Code of one framework that acts with a policy and scores its actions."""

    def act(
        self,
        obs: Tensor,
        views: Mapping[str, Tensor],
        memory: tuple[Array, ...],
        mask: Tensor | None,
        explore: bool,
        policy_only: bool = False,
    ) -> tuple[Any, Any, Any | None, Any, tuple[Array, ...]]:
        """Return raw actions `[B, width]`, logp, value (or None), inputs and new memory, as NumPy
        arrays.

        If `obs` is a tensor, the results are also tensors, on the policy's device and without
        gradients; the new memory is tensors if `memory` is, otherwise NumPy.

        A backend that computes with tensors of any device has an attribute `tensor_device`, the
        device that the policy is on, as a tensor's attribute `device` names it. `Policy.act` then
        accepts tensors on this device.

        With `policy_only`, which a policy passes only if it has a critic of its own
        (`SeparateCritic`), the critic is not run: the value is None, and the critic's memory stays
        as it is.
        """

    def values(self, obs: Tensor, views: Mapping[str, Tensor], memory: tuple[Array, ...]) -> Tensor:
        """Return value estimates `[B]` without creating a distribution; a tensor if
        `obs` is one.
        """

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        """Evaluate a training batch, with or without the entropy."""

    def log_density(self, dist_inputs: Array, raw_action: Array) -> Array:
        """Return the log density `[B]` of raw actions `[B, width]` under parameters that `act`
        returned.
        """

    @staticmethod
    def device_of(name: str) -> str:
        """Return the device with this name; `"auto"` is a GPU if there is one.

        Raises:
            ConfigError: The name is unknown, or the framework finds no such device.
        """

    def to(self, device: str) -> None:
        """Move model and computation to a device that `device_of` returned."""

    def random_state(self) -> Mapping[str, Array]:
        """Return the states of the random generators used for sampling, by name."""

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore the random generators' states, as returned by `random_state`."""


class Gradient(NamedTuple):
    """Gradient of a loss with respect to a policy's weights; see `Learner.gradient`.

    Attributes:
        loss: The loss, a scalar tensor.
        results: What the loss function returned beside the loss.
        norm: Euclidean norm of the gradient, all weights taken as one vector: a scalar tensor.
        of_weights: The gradient itself, in the framework's own form; only the learner reads it.
    """

    loss: Any
    results: Any
    norm: Any
    of_weights: Any


class Learner(Protocol):
    """Training in one framework: gradients, clipping, an optimizer, seeds and placement.

    `cls(policy, eps, lr_parts)` updates the trainable weights of a policy with Adam. `lr_parts`
    names parts of the model that have their own learning rates.

    A training step calls `gradient` with the loss as a function, and then `apply`. A framework with
    a tape, such as PyTorch, calls the function once and differentiates what it recorded. A
    functional framework, such as JAX, differentiates the function.
    """

    @staticmethod
    def seed(value: int) -> None:
        """Seed weight initialisation and sampling."""

    @staticmethod
    def set_threads(count: int) -> None:
        """Set the number of threads per operation, before the first operation."""

    def select_weights(self) -> None:
        """Choose the weights that the next steps train; called before each update, because parts of
        the model may have been frozen or unfrozen. The moments of all other weights wait.
        """

    def gradient(
        self, loss: Callable[..., tuple[Tensor, Any]], *inputs: TensorTree | float | None
    ) -> Gradient | None:
        """Return the gradient of a loss with respect to the weights that `select_weights` chose,
        which stay as they are.

        Args:
            loss: A function that runs the model with its current weights. It returns the loss, a
                scalar tensor, and a structure of further tensors. It must depend on nothing else
                but the weights and its arguments, because a framework may call it several times, or
                compile it. Pass an equal function at each step, so that it is compiled once.
            *inputs: The function's arguments.

        Returns:
            The gradient, or None if the loss does not depend on any of the weights. A framework
            that cannot tell returns a gradient of zeros.
        """

    def apply(
        self,
        gradient: Gradient,
        lr: float,
        limit: float | None,
        part_rates: Mapping[str, float] | None = None,
    ) -> None:
        """Take a step of Adam with a gradient that `gradient` returned for the current weights.

        Args:
            gradient: The gradient.
            lr: Learning rate.
            limit: Maximum norm, or None for no clipping. A gradient with a larger norm is scaled by
                `limit / (norm + 1e-6)`.
            part_rates: Learning rates of the parts in `lr_parts`.
        """

    def place_batch(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch on the model's device; the batch is converted and copied
        once per update.
        """

    def rows(self, columns: TensorTree, index: Array) -> TensorTree:
        """Return the rows with these indices from a placed batch's columns, in the
        same structure.
        """

    def means(self, figures: list[Tensor]) -> list[float]:
        """Return each metric's mean over several steps."""

    def get_state(self) -> dict[str, Any]:
        """Return Adam's state, in the same form for every framework.

        Returns:
            A dict with four entries. `"step"` is the number of steps. `"first"` and `"second"` are
            running means of the gradients and of their squares: arrays by weight name, in the
            layout of the model's `get_weights`. `"behind"` contains, by weight name, the number of
            steps of each weight that took fewer steps, because its part was frozen or, in PyTorch,
            because it sometimes had no gradient.
        """

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the optimizer's state, as returned by `get_state`."""
