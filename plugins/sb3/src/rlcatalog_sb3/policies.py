"""`CatalogPolicy`: a policy for PPO and A2C with parts from the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor

from rlcatalog import Catalog, Policy
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog_policy import UNSAVED_RULES, config_with_model
from rlcatalog_sb3.actor_critic import ActorCritic, CatalogDistribution
from rlcatalog_sb3.algorithms import TrainingLoop
from rlcatalog_sb3.observations import Masks
from rlcatalog_sb3.private_api import EARLIER_LEARNING_RATE, SavablePolicy
from rlcatalog_sb3.refusals import BuilderClass, builder_of, refuse_algorithm
from rlcatalog_sb3.saved_rules import find_rules, keep_rules, rules_of, with_unsaved_keys
from rlcatalog_sb3.spaces import Space, origin_of
from rlcatalog_sb3.unread_masks import UnreadMasks
from rlcatalog_torch import apply_factors, part_groups
from rlcatalog_torch.private_api import Movable


class CatalogBasePolicy(Movable, SavablePolicy):
    """Base class for this package's policies; do not use it directly.

    Args:
        observation_space: Stable-Baselines3's observation space.
        action_space: Stable-Baselines3's action space.
        lr_schedule: Learning rate as a function of the remaining progress.
        model_config: The model config. If None, the config that the environment was flattened with,
            or the defaults.
        model: The model to use, such as a plain `torch.nn.Module`; it becomes the model config's
            `"custom_model"`.
        catalog: The catalog for the parts. If None, the catalog that the environment was flattened
            with, or the process's.
        frozen: Whether a frozen policy, which acts faster, collects rollouts: `"auto"` (if it saves
            time), `"always"` or `"never"`.
        use_sde: Not supported.
        optimizer_class: Class of the optimiser.
        optimizer_kwargs: The optimiser's keyword arguments, except the learning rate. If None,
            `eps=1e-5` for Adam, as in Stable-Baselines3's own policies.
        lr_parts: Learning rates of parts of the model, such as `{"trunk": 1e-5}`. They are meant
            for the first value of `learning_rate`; a schedule scales them as it scales this one.
        rules: For a loaded policy, the values that it was built with of `rlcatalog.config.RULES`,
            and of keys whose defaults follow Stable-Baselines3's own nets.
        defaults: Model config defaults that a subclass sets.
        keywords: Keyword arguments of Stable-Baselines3's own policies: `net_arch`, `activation_fn`
            and `log_std_init` are translated to model config keys with the same meaning; other
            arguments raise an error.

    Raises:
        CatalogError: The parts do not fit, or the algorithm does not support them.
        NotServedError: The algorithm's nets or distributions differ from PPO's.
    """

    #: Whether the algorithm supports the states of a memory.
    recurrent = False
    #: Whether the algorithm passes Box actions through `unscale_action`, instead of clipping them.
    adapts = True
    #: Whether the algorithm learns values of actions, as DQN does.
    learns_q_values = False

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        lr_schedule: Schedule,
        model_config: Mapping[str, Any] | None = None,
        *,
        model: Any = None,
        catalog: Catalog | None = None,
        frozen: str = "auto",
        use_sde: bool = False,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        lr_parts: Mapping[str, float] | None = None,
        rules: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        builder = builder_of(self)
        builder_class = BuilderClass(type(builder))
        algorithm = builder if isinstance(builder, BaseAlgorithm) else None
        policy_name = type(self).__name__
        self.refuse_builder(builder_class, observation_space)
        if use_sde:
            raise ConfigError(
                "use_sde=True: state-dependent exploration requires Stable-Baselines3's own"
                " distribution. Remove it, or choose a distribution with custom_action_dist in"
                " model_config."
            )
        if optimizer_kwargs is None:
            optimizer_kwargs = {}
            # Stable-Baselines3's own policies use the same value for Adam.
            if optimizer_class is torch.optim.Adam:
                optimizer_kwargs["eps"] = 1e-5
        # Skip ActorCriticPolicy, whose constructor would build its own networks.
        BasePolicy.__init__(
            self,
            observation_space,
            action_space,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            normalize_images=False,
        )
        self.use_sde = False
        origin = origin_of(observation_space, action_space)
        if model is not None:
            if model_config is None and origin is not None:
                model_config = origin.config  # the environment was flattened with this config
            # For error messages. A doubled brace stands for one, as in any format string.
            way_to_pass_config = "policy_kwargs={{'model_config': {}}}"
            model_config = config_with_model(model_config, model, way_to_pass_config)
        if rules is None:
            is_from_file = lr_schedule is EARLIER_LEARNING_RATE or lr_schedule is no_learning
            rules = with_unsaved_keys(UNSAVED_RULES) if is_from_file else {}
        else:
            rules = with_unsaved_keys(rules)
        self.actor_critic = ActorCritic(
            observation_space,
            action_space,
            model_config=model_config,
            catalog=catalog,
            keywords=keywords,
            loop=TrainingLoop(
                algorithm=builder_class.name if builder_class.is_algorithm else policy_name,
                policy=policy_name,
                keeps_states=self.recurrent,
                adapts_actions=self.adapts,
                learns_q_values=self.learns_q_values,
            ),
            frozen=frozen,
            rules={**rules, **find_rules(algorithm, origin)},
            own_defaults=defaults or {},
        )
        keep_rules(algorithm, self.catalog_policy.config)
        self.model = self.actor_critic.model
        self._unread_masks: UnreadMasks | None = None
        if not self.actor_critic.observer.has_masks:
            self._unread_masks = UnreadMasks(
                None if algorithm is None else algorithm.env,
                self.catalog_policy.masks,
                calls_method=builder_class.calls_action_masks,
            )
        # Stable-Baselines3 sets the learning rate before each update; 1 is the progress that
        # remains at the start.
        initial_lr = lr_schedule(1)
        self.lr_parts = dict(lr_parts or {})
        weights: Any = self.parameters()
        if self.lr_parts:
            what = "policy_kwargs: lr_parts"
            weights = part_groups(self.model, weights, self.lr_parts, initial_lr, what)
        self.optimizer = optimizer_class(weights, lr=initial_lr, **optimizer_kwargs)  # type: ignore[call-arg]
        if self.lr_parts:
            apply_factors(self.optimizer)
        for update in self.actor_critic.model.update_ops():
            self.optimizer.register_step_post_hook(_as_step_hook(update))

    def refuse_builder(self, builder: BuilderClass, observation_space: Space) -> None:
        """Reject an algorithm that does not act and learn as the policy expects.

        Args:
            builder: The class of the object that builds the policy.
            observation_space: Stable-Baselines3's observation space.

        Raises:
            NotServedError: The policy is for other algorithms.
        """
        name = type(self).__name__
        refuse_algorithm(name, builder, observation_space, needs_states=self.recurrent)

    @property
    def catalog_policy(self) -> Policy:
        """The rlcatalog policy with the same weights, for `policy.save(directory)` and
        `policy.act(obs)`.
        """
        return self.actor_critic.policy

    @property
    def squash_output(self) -> bool:
        """Whether Stable-Baselines3 passes actions through `unscale_action`, which it does for
        "squashed" actions; here, the action codec converts them.
        """
        return self.adapts and self.actor_critic.has_box_actions

    def unscale_action(self, scaled_action: Array) -> Array:
        """Convert raw Box actions to the environment's actions with the catalog's codec."""
        return self.actor_critic.adapt(scaled_action)

    def reset_noise(self, n_envs: int = 1) -> None:
        """Raise an error, because the catalog's distributions have no state-dependent
        exploration.
        """
        raise NotServedError(
            "reset_noise: the catalog's distributions have no state-dependent exploration"
            " (use_sde)."
        )

    def extract_features(
        self, obs: PyTorchObs, features_extractor: BaseFeaturesExtractor | None = None
    ) -> Any:
        """Raise an error, because the catalog's models have no separate features extractor."""
        raise NotServedError(
            f"{type(self).__name__} has no features extractor; its model is `policy.model`, and"
            " its parts are in `policy.catalog_policy`."
        )

    def obs_to_tensor(self, observation: Array | dict[str, Array]) -> tuple[Any, bool]:
        """Convert observations for `predict` to tensors in the space's dtypes; also return whether
        they are a batch.

        Floats in an integer space keep their dtype.
        """
        space: Any = self.observation_space
        tensors, is_batch = super().obs_to_tensor(observation)
        if isinstance(tensors, dict):
            cast_tensors = {key: _cast(tensor, space[key]) for key, tensor in tensors.items()}
            return cast_tensors, is_batch
        return _cast(tensors, space), is_batch

    def warn_of_masks(self) -> None:
        """Warn, at the first step, about the environment's action masks that are not read."""
        if self._unread_masks is not None:
            self._unread_masks.warn()
            self._unread_masks = None

    def on_move(self) -> None:
        """Move the parts to the policy's new device."""
        self.actor_critic.follow_device(self.device)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal policy."""
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "lr_schedule": no_learning,  # the algorithm is not saved
            "model_config": self.actor_critic.current_config(),
            "catalog": self.actor_critic.catalog,
            "frozen": self.actor_critic.collector.mode,
            "optimizer_class": self.optimizer_class,
            "optimizer_kwargs": self.optimizer_kwargs,
            "lr_parts": self.lr_parts,
            "rules": rules_of(self.catalog_policy.config),
        }


def no_learning(_progress: float) -> float:
    """Return the learning rate 0, for a policy that is loaded without its algorithm.

    Args:
        _progress: The remaining progress, which Stable-Baselines3 passes to a schedule.
    """
    return 0.0


def _as_step_hook(update: Callable[[], Any]) -> Callable[..., None]:
    """Return a hook that runs a model's update after an optimiser's step."""

    def hook(*_: Any) -> None:
        update()

    return hook


def _cast(tensor: Tensor, space: Space) -> Tensor:
    """Convert a tensor to a space's dtype, unless this would turn floats into integers."""
    empty = np.empty(0, space.dtype)
    dtype = torch.from_numpy(empty).dtype  # PyTorch's name for the space's dtype
    return tensor.to(dtype) if torch.can_cast(tensor.dtype, dtype) else tensor


class WithoutMemory(CatalogBasePolicy):
    """Base class for `CatalogPolicy` and `CatalogMaskablePolicy`; only MaskablePPO passes
    `action_masks`.
    """

    def forward(
        self, obs: PyTorchObs, deterministic: bool = False, action_masks: Masks = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return raw actions `[B, ...]`, value estimates `[B, 1]` and log densities `[B]`."""
        self.warn_of_masks()
        return self.actor_critic.act(obs, action_masks, deterministic)

    def evaluate_actions(
        self, obs: PyTorchObs, actions: Tensor, action_masks: Masks = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return value estimates `[B, 1]`, log densities `[B]` of raw actions, and
        entropies `[B]`.
        """
        actor_critic = self.actor_critic
        encoded = actor_critic.observer.encode(obs)
        outputs, values = actor_critic.outputs_and_values({"obs": encoded, "is_training": True})
        mask = actor_critic.observer.stored_mask(obs, action_masks)
        dist = actor_critic.dist_for(outputs, mask)
        logp, entropy = actor_critic.score(dist, actions)
        return values, logp, entropy

    def get_distribution(self, obs: PyTorchObs, action_masks: Masks = None) -> Any:
        """Return the masked distribution over raw actions.

        Entries of Dict observations that only a critic sees may be missing.
        """
        actor_critic = self.actor_critic
        encoded = actor_critic.observer.encode_for_acting(obs)
        outputs = actor_critic.outputs_without_critic({"obs": encoded, "is_training": False})
        mask = actor_critic.observer.mask(obs, action_masks)
        return CatalogDistribution(actor_critic, actor_critic.dist_for(outputs, mask))

    def predict_values(self, obs: PyTorchObs) -> Tensor:
        """Return value estimates `[B, 1]`."""
        encoded = self.actor_critic.observer.encode(obs)
        inputs = {"obs": encoded, "is_training": False, "values_only": True}
        _, values = self.actor_critic.outputs_and_values(inputs)
        return values


class CatalogPolicy(WithoutMemory, ActorCriticPolicy):
    """Policy for PPO and A2C of Stable-Baselines3, with parts that rlcatalog chooses.

    Pass the class in place of `"MlpPolicy"`, and the model config in `policy_kwargs`. If
    Stable-Baselines3 does not support the environment's spaces, wrap the environment with
    `for_sb3(env)`. Action masks are read from the observation.

    Example:
        >>> from stable_baselines3 import PPO
        >>> config = {"model_config": {"fcnet_hiddens": [64, 64]}}
        >>> model = PPO(CatalogPolicy, "CartPole-v1", n_steps=64, policy_kwargs=config).learn(64)
    """
