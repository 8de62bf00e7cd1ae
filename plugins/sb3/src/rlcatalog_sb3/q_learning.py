"""DQN with a network from the catalog, which obeys action masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor, nn

from rlcatalog import ModelV2
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog_sb3.memories import run_without_memory
from rlcatalog_sb3.observations import Observer
from rlcatalog_sb3.policies import CatalogBasePolicy
from rlcatalog_sb3.private_api import GreedyPolicy, RandomActionSource
from rlcatalog_sb3.refusals import BuilderClass, builder_of
from rlcatalog_sb3.spaces import Space, q_learning_defaults
from rlcatalog_torch import dueling_values, limits_of, values_of


class QNetwork(nn.Module):
    """A catalog model whose outputs are the values of all actions.

    Args:
        model: The model.
        observer: Encodes observations, and reads their masks.
        dueling: Whether the model's outputs are advantages, to which its value estimate is added.
    """

    def __init__(self, model: ModelV2, observer: Observer, *, dueling: bool) -> None:
        super().__init__()
        self.model: Any = model
        self.dueling = dueling
        self.observer = observer

    def forward(self, obs: PyTorchObs) -> Tensor:
        """Return the values `[B, n]`; a forbidden action has the lowest finite number.

        The number is finite because training multiplies the values after an episode's end by 0.
        Observations that allow nothing, as the last of an episode may, count as allowing all.
        """
        outputs = self.outputs(obs)
        allowed = self.observer.stored_mask(obs)
        if self.dueling:
            outputs = dueling_values(outputs, values_of(self.model), allowed)
        return mask_values(outputs, allowed)

    def outputs(self, obs: PyTorchObs) -> Tensor:
        """Return the model's outputs `[B, n]`."""
        encoded = self.observer.encode(obs)
        return run_without_memory(self.model, {"obs": encoded, "is_training": self.training})

    def set_training_mode(self, mode: bool) -> None:
        """Switch dropout and batch statistics; called by Stable-Baselines3."""
        self.train(mode)


def mask_values(values: Tensor, allowed: Tensor | None) -> Tensor:
    """Return values `[B, ..., n]` with the lowest finite number for forbidden actions.

    Args:
        values: The values.
        allowed: Whether each action is allowed, boolean `[B, ..., n]`, or None if all are. A row
            that allows nothing keeps its values.
    """
    if allowed is None:
        return values
    allows_nothing = ~allowed.any(dim=-1, keepdim=True)
    return torch.where(allowed | allows_nothing, values, limits_of(values).lowest)


class CatalogQPolicy(GreedyPolicy, CatalogBasePolicy):
    """Policy for `rlcatalog_sb3.DQN`, whose whole Q-network comes from the catalog.

    `DQN(CatalogQPolicy, env, policy_kwargs={"model_config": {"fcnet_hiddens": [64, 64]}})`. Action
    masks are read from the observation, for exploring, for targets and for `predict`. If
    Stable-Baselines3 does not support the environment's spaces, wrap the environment:
    `for_sb3(env)`.

    Args:
        observation_space: Stable-Baselines3's observation space.
        action_space: Stable-Baselines3's action space.
        lr_schedule: Learning rate as a function of the remaining progress.
        model_config: The model config; see `CatalogPolicy`.
        dueling: Whether the network is a dueling one (Wang et al. 2016), which adds the model's
            value estimate to its outputs.
        optimizer_class: Class of the optimiser.
        optimizer_kwargs: The optimiser's keyword arguments, except the learning rate.
        frozen: Only `"auto"` and `"never"`, which mean the same here: the network itself acts.
        defaults: Model config defaults that a subclass sets.
        others: Further arguments of `CatalogPolicy`.

    Raises:
        NotServedError: The algorithm is a different one, or would ignore the masks in the
            observations, or the config selects what a Q-network cannot have.

    Example:
        >>> from rlcatalog_sb3 import DQN
        >>> config = {"model_config": {"fcnet_hiddens": [64, 64]}, "dueling": True}
        >>> model = DQN("CatalogQPolicy", "CartPole-v1", policy_kwargs=config).learn(200)
    """

    adapts = False
    learns_q_values = True
    #: Name of this package's algorithm for the policy.
    algorithm_name = "DQN"

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        lr_schedule: Schedule,
        model_config: Mapping[str, Any] | None = None,
        *,
        dueling: bool = False,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        frozen: str = "auto",
        defaults: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        name = type(self).__name__
        if frozen == "always":
            raise NotServedError(f"frozen='always': {name} acts with its own network. Remove it.")
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            model_config,
            optimizer_class=optimizer_class,
            # The base class would add the epsilon of PPO's optimiser.
            optimizer_kwargs={} if optimizer_kwargs is None else optimizer_kwargs,
            frozen="never",
            defaults={**q_learning_defaults(), **(defaults or {})},
            **others,
        )
        self._refuse_unread_masks(builder_of(self))
        self._refuse_parts()
        if dueling and not self.catalog_policy.has_value:
            raise NotServedError(
                f"dueling: {self.catalog_policy.model_name} has no value_function(), which a"
                " dueling network adds to the advantages. Remove it."
            )
        self.dueling = dueling
        # The network and its copy that computes targets, under Stable-Baselines3's names.
        self.q_net = self.make_network(self.model)
        self.q_net_target = self.make_network(self.catalog_policy.make_model())
        self.q_net_target.load_state_dict(self.q_net.state_dict())
        self.q_net_target.set_training_mode(False)

    def make_network(self, model: ModelV2) -> QNetwork:
        """Return a network around a model."""
        return QNetwork(model, self.actor_critic.observer, dueling=self.dueling)

    def refuse_builder(self, builder: BuilderClass, observation_space: Space) -> None:
        """Reject any algorithm but the one that the policy is for."""
        if builder.is_algorithm and not builder.has_base(self.algorithm_name):
            raise NotServedError(
                f"{builder.name} does not accept {type(self).__name__}, which is for"
                f" {self.algorithm_name}. Use it with rlcatalog_sb3.{self.algorithm_name}."
            )

    def _refuse_unread_masks(self, builder: object) -> None:
        """Reject Stable-Baselines3's own algorithm if the observations have masks.

        Args:
            builder: The object that builds the policy.

        Raises:
            NotServedError: The algorithm's random actions would ignore the masks.
        """
        is_algorithm = BuilderClass(type(builder)).is_algorithm
        obeys_masks = isinstance(builder, RandomActionSource)
        if self.actor_critic.observer.has_masks and is_algorithm and not obeys_masks:
            name = self.algorithm_name
            raise NotServedError(
                f"{self.catalog_policy.masks.key}: the observations have action masks, which the"
                f" random actions of this {name} would ignore. Use rlcatalog_sb3.{name}, which has"
                " the same arguments."
            )

    @property
    def outputs_per_action(self) -> int:
        """Number of outputs of the network for each action."""
        return 1

    def _refuse_parts(self) -> None:
        """Reject parts that a Q-network cannot have.

        Raises:
            ConfigError: The distribution takes another number of outputs.
            NotServedError: The config selects a critic of its own.
        """
        resolution = self.catalog_policy.resolution
        if resolution.critic is not None:
            raise NotServedError(
                f"critic: {self.algorithm_name} learns values of actions with one network, and has"
                " no critic. Remove critic and obs_groups from the model config."
            )
        action = resolution.action
        assert action.n is not None  # Stable-Baselines3 accepts a Discrete only
        outputs = self.catalog_policy.model.num_outputs
        expected_outputs = action.n * self.outputs_per_action
        if outputs != expected_outputs:
            dist = resolution.part("action_dist")
            raise ConfigError(
                f"custom_action_dist: {self.algorithm_name} needs {expected_outputs} outputs for"
                f" {action.describe()}, but {dist.name} takes {outputs}. Remove it from the model"
                " config."
            )

    def allowed_actions(self, obs: PyTorchObs) -> Tensor | None:
        """Return which actions are allowed, boolean `[B, n]`, or None if all are.

        Raises:
            ActionMaskError: An observation does not allow any action.
        """
        self.warn_of_masks()
        return self.actor_critic.observer.mask(obs)

    def best_actions(self, obs: PyTorchObs) -> Tensor:
        """Return the allowed actions with the highest values, int64 `[B]`."""
        self.allowed_actions(obs)  # raises an error if none is
        return self.action_values(obs).argmax(dim=1)

    def action_values(self, obs: PyTorchObs) -> Tensor:
        """Return the values `[B, n]` of all actions; a forbidden action has the lowest number."""
        values: Tensor = self.q_net(obs)
        return values

    def set_training_mode(self, mode: bool) -> None:
        """Switch the network's dropout and batch statistics, but not those of its copy."""
        self.q_net.set_training_mode(mode)
        self.training = mode

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal policy."""
        return {**super().constructor_arguments(), "dueling": self.dueling}


class MaskedExploration(RandomActionSource):
    """DQN or QR-DQN that takes random actions from the allowed ones.

    With a policy of Stable-Baselines3, it does what the algorithm of Stable-Baselines3 does.
    """

    exploration_rate: float

    def random_actions(self, observation: Any) -> Any:
        """Return a random allowed action for an observation, or an array of them for a batch."""
        policy = self.policy
        obs, is_batch = policy.obs_to_tensor(observation)
        allowed = policy.allowed_actions(obs) if isinstance(policy, CatalogQPolicy) else None
        count = len(obs[next(iter(obs))]) if isinstance(obs, dict) else len(obs)
        masks: list[Array | None] = [None] * count
        if allowed is not None:
            masks = list(allowed.cpu().numpy().astype(np.int8))  # Gymnasium's dtype for masks
        actions = np.array([self.action_space.sample(mask) for mask in masks])
        return actions if is_batch else actions[0]

    def predict(
        self,
        observation: Array | dict[str, Array],
        state: tuple[Array, ...] | None = None,
        episode_start: Array | None = None,
        deterministic: bool = False,
    ) -> tuple[Array, tuple[Array, ...] | None]:
        """Return actions, random ones with the probability `exploration_rate`.

        Args:
            observation: An observation, or a batch of them.
            state: Returned unchanged, because the network has no memory.
            episode_start: Unused; it belongs to networks with a memory.
            deterministic: Whether to return the actions with the highest values only.
        """
        # One draw decides for the whole batch, as in Stable-Baselines3.
        if not deterministic and np.random.rand() < self.exploration_rate:
            return self.random_actions(observation), state
        actions: Array
        actions, state = self.policy.predict(observation, state, episode_start, deterministic)
        return actions, state


class DQN(MaskedExploration, stable_baselines3.DQN):
    """Stable-Baselines3's DQN, whose random actions obey masks.

    Its arguments, its training and its files are those of `stable_baselines3.DQN`.
    """
