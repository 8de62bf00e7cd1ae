"""PyTorch modules made from a policy, for training loops that take modules.

`policy.as_module()` returns a single module for actor and critic. `actor_critic(policy)` returns
one module for each, and a distribution with the interface of `torch.distributions`, for TorchRL and
tianshou.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rlcatalog.actions import entropy_of
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import PolicyParts
from rlcatalog_torch.dtypes import dtype_of, floats_as, to_float32_at_least
from rlcatalog_torch.nn import values_of
from rlcatalog_torch.ops import flat_sample
from rlcatalog_torch.private_api import MODULES, Movable, modules_of


class PolicyModule(Movable):
    """A policy's model and action distribution as a module that shares the policy's weights.

    Moving the module to a device also moves the policy. A deep copy has its own weights, as target
    networks need.

    Args:
        policy: The policy, without memory.
    """

    def __init__(self, policy: PolicyParts) -> None:
        super().__init__()
        self.policy, self.model = policy, policy.model

    def forward(self, obs: Tensor, mask: Tensor | None = None) -> Any:
        """Return the distribution of raw actions, and the value estimates `[B]` or None.

        Args:
            obs: Encoded observations `[B, ...]`.
            mask: Action masks: booleans `[B, m]`.

        Raises:
            ObservationError: The observations do not have the encoded shape.
            ActionMaskError: The masks have the wrong shape, or a mask allows no action.
        """
        inputs, value = self._run(obs, mask)
        return self.policy.dist_class(inputs, self.model), value

    def _run(self, obs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the distribution's parameters `[B, n]`, which include masks, and the value
        estimates.
        """
        policy, model = self.policy, self.model
        if model.training is not self.training:  # acting and scoring set the model's own mode
            model.train(self.training)
        mask = policy.encoder.resolve_mask(obs, mask)
        outputs, _ = model(
            {"obs": floats_as(obs, dtype_of(model)), "is_training": self.training}, [], None
        )
        policy.contract.check_outputs(outputs, len(obs))
        inputs = to_float32_at_least(outputs)
        if mask is not None:
            inputs = policy.dist_class.masked(
                inputs, torch.as_tensor(mask, device=inputs.device).bool()
            )
        return inputs, values_of(model, len(obs)) if policy.has_value else None

    def on_move(self) -> None:
        """Move the policy to the model's new device."""
        place = next((str(weight.device) for weight in self.model.parameters()), "cpu")
        if self.policy.model is self.model and place != self.policy.device:
            self.policy.to(place)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = copy.copy(self)
        twin.__dict__[MODULES] = copy.deepcopy(modules_of(self), memo)
        return twin


class _Part(PolicyModule):
    """A policy's actor or critic; see `actor_critic`."""

    def __init__(self, policy: PolicyParts, index: int) -> None:
        super().__init__(policy)
        self.index = index

    def forward(self, obs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Run the model on the rows of a batch with any axes."""
        axes = obs.shape[: obs.ndim - len(self.policy.preprocessor.shape)]
        masks = None if mask is None else mask.reshape(-1, mask.shape[-1])
        outputs: Any = self._run(obs.reshape(-1, *obs.shape[len(axes) :]), masks)[self.index]
        return outputs.reshape(*axes, -1)  # type: ignore[no-any-return]


class ActorDistribution(torch.distributions.Distribution):
    """A distribution from the catalog with the interface of `torch.distributions`, for batches with
    any axes.

    Args:
        dist_class: The catalog's class, `dist_class(inputs, model)`.
        model: The model that computed the inputs.
        inputs: Its parameters `[..., n]`.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, dist_class: Any, model: Any, inputs: Tensor) -> None:
        super().__init__(inputs.shape[:-1], validate_args=False)
        self.dist = dist_class(inputs.reshape(-1, inputs.shape[-1]), model)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw raw actions: `[...]` for a single Discrete, otherwise `[..., width]`, with
        `sample_shape` in front.
        """
        draws = [
            self._shaped(flat_sample(self.dist.sample()))
            for _ in range(torch.Size(sample_shape).numel())
        ]
        return torch.stack(draws).reshape(torch.Size(sample_shape) + draws[0].shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density `[...]` of raw actions."""
        logp: Tensor = self.dist.logp(value.reshape(-1, *value.shape[len(self.batch_shape) :]))
        return logp.reshape(self.batch_shape)

    def entropy(self) -> Tensor:
        """Return the entropy `[...]`, or an unbiased estimate if it has no closed form."""
        entropy: Tensor = entropy_of(self.dist, flat_sample)[0]
        return entropy.reshape(self.batch_shape)

    @property
    def mode(self) -> Tensor:
        """The most likely raw actions."""
        return self._shaped(flat_sample(self.dist.deterministic_sample()))

    deterministic_sample = mode  # TorchRL's name

    @property
    def variance(self) -> Tensor:
        """NaN, as in `torch.distributions.Categorical`: loops record a mean, but the catalog's
        classes have none.
        """
        return torch.full_like(self.mode, torch.nan, dtype=torch.float32)

    def _shaped(self, rows: Tensor) -> Tensor:
        return rows.reshape(self.batch_shape + rows.shape[1:])


def actor_critic(
    policy: PolicyParts,
) -> tuple[nn.Module, nn.Module, Callable[[Tensor], ActorDistribution]]:
    """Return a policy's actor, critic and distribution for engines such as TorchRL, skrl and
    tianshou.

    Args:
        policy: The policy.

    Returns:
        - The actor, a module that maps encoded observations `[..., *shape]` and masks `[..., m]`,
            if any, to the parameters `[..., n]` of the action distribution.
        - The critic, a module that maps the same inputs to value estimates `[..., 1]`. Actor and
            critic share the policy's weights.
        - A function that maps the parameters to a `torch.distributions.Distribution` of raw
          actions.

    Raises:
        NotServedError: The model has a memory, looks at past steps, or has no value branch.
    """
    policy.as_module()  # raises for features that a module cannot have
    if not policy.has_value:
        raise NotServedError(f"actor_critic: {policy.model_name} has no value_function().")
    return (
        _Part(policy, 0),
        _Part(policy, 1),
        partial(ActorDistribution, policy.dist_class, policy.model),
    )
