"""Critic for rsl_rl that reads the values of a `CatalogActor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tensordict import TensorDict
from torch import Tensor, nn

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_rsl_rl.actor import CatalogActor


class CatalogCritic(nn.Module):
    """Critic for `rsl_rl`'s PPO whose values come from the model of a `CatalogActor`.

    `CatalogPPO` makes it from the runner's config:
    `"critic": {"class_name": "rlcatalog_rsl_rl:CatalogCritic"}`. A critic with layers of its own is
    described in the actor's `model_config`, by `critic={...}`. Its weights are those that only the
    values depend on, so that rsl_rl limits the norm of their gradients apart from the actor's.

    Args:
        obs: Not used.
        obs_groups: Not used.
        obs_set: Not used.
        output_dim: Not used.
        actor: The actor.

    Raises:
        NotServedError: There is no actor, because the algorithm is not `CatalogPPO`.
    """

    def __init__(
        self,
        obs: TensorDict,
        obs_groups: Mapping[str, list[str]],
        obs_set: str,
        output_dim: int,
        actor: CatalogActor | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if settings:
            raise ConfigError(
                f"critic[{next(iter(settings))!r}]: unknown setting. Describe the critic in the"
                " actor's model_config, such as critic={'fcnet_hiddens': [256, 256]}."
            )
        if actor is None:
            raise NotServedError(
                "CatalogCritic: it needs a CatalogActor. Set algorithm['class_name'] to"
                " 'rlcatalog_rsl_rl:CatalogPPO'."
            )
        # In a tuple, because the actor's weights are not this module's.
        self._actor = (actor,)
        self.is_recurrent = actor.is_recurrent

    @property
    def actor(self) -> CatalogActor:
        """The actor."""
        return self._actor[0]

    def forward(
        self,
        obs: TensorDict,
        masks: Tensor | None = None,
        hidden_state: Any = None,
        stochastic_output: bool = False,
    ) -> Tensor:
        """Return value estimates `[N, 1]`, or `[T, n, 1]` for pieces of episodes; the arguments
        are the actor's.
        """
        return self.actor.value_of(obs)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the weights that only the values depend on."""
        for number, weight in enumerate(self.actor.value_parameters()):
            yield f"{prefix}.{number}" if prefix else str(number), weight

    def get_hidden_state(self) -> None:
        """Return None, because the memory is the actor's."""

    def reset(self, dones: Tensor | None = None, hidden_state: Any = None) -> None:
        """Do nothing, because the memory is the actor's."""

    def detach_hidden_state(self, dones: Tensor | None = None) -> None:
        """Do nothing, because the memory is the actor's."""

    def update_normalization(self, obs: TensorDict) -> None:
        """Do nothing, because the filter is the actor's."""
