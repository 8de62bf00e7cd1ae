"""A catalog actor and critic for a Stable-Baselines3 policy, and the distributions that they
create.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import Tensor

import rlcatalog
from rlcatalog import ActionDistribution, Catalog, Policy, Step
from rlcatalog.actions import ActionCodec, action_codec, entropy_of
from rlcatalog.errors import ActionRangeWarning, ModelContractError, NotServedError
from rlcatalog.frameworks import Array, TensorTree
from rlcatalog.reporting import warn_caller
from rlcatalog_sb3.algorithms import TrainingLoop
from rlcatalog_sb3.flat_spaces import check_encoding
from rlcatalog_sb3.frozen_collector import FrozenCollector
from rlcatalog_sb3.memories import run_without_memory
from rlcatalog_sb3.observations import Masks, Observer
from rlcatalog_sb3.policy_kwargs import translate_keywords
from rlcatalog_sb3.refusals import refuse_model
from rlcatalog_sb3.spaces import (
    RECURRENT_DEFAULTS,
    Lookup,
    Space,
    engine_defaults,
    ignore_action_ranges,
    starts_at_zero,
)
from rlcatalog_torch import flat_sample, values_of


class ActorCritic:
    """A catalog's preprocessor, model and distribution, called with a Stable-Baselines3 policy's
    inputs.

    Args:
        observation_space: The Stable-Baselines3 policy's observation space.
        action_space: The Stable-Baselines3 policy's action space.
        model_config: The model config. If None, the config that the environment was flattened with.
        catalog: The catalog for the parts. If None, the flattened environment's catalog, or the
            process's.
        keywords: Keyword arguments of Stable-Baselines3's own policies; see `translate_keywords`.
        loop: The training loop of the algorithm that builds the policy.
        frozen: Whether a frozen policy collects rollouts; see `FrozenCollector`.
        rules: The rules that a loaded policy was built with, for keys that the config leaves open.
        own_defaults: Defaults of the policy's class that differ from those of `engine_defaults`.

    Attributes:
        policy: The rlcatalog policy, built for the environment's spaces.
        model_config: The argument, with the keys translated from keyword arguments. It is saved
            with the algorithm.
        catalog: The argument, which is saved with the algorithm.
        observer: The object that encodes observations and extracts their masks.
        has_box_actions: Whether Stable-Baselines3's actions are a Box, which `adapt` converts for
            the environment.
        collector: The object that computes rollout steps.

    Raises:
        CatalogError: The parts do not fit, or the algorithm does not support them; see `refusals`.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        model_config: Mapping[str, Any] | None,
        catalog: Catalog | None,
        keywords: Mapping[str, Any],
        loop: TrainingLoop,
        frozen: str,
        rules: Mapping[str, Any],
        own_defaults: Mapping[str, Any],
    ) -> None:
        self.model_config = model_config
        self.catalog = catalog
        lookup = Lookup.of(observation_space, action_space, model_config, catalog)
        defaults = engine_defaults(lookup.observation_space, lookup.action_space)
        if loop.keeps_states:
            defaults |= RECURRENT_DEFAULTS
        defaults |= own_defaults
        # A flattened environment takes raw actions, and adapts them itself.
        self._env_takes_raw_actions = lookup.origin is not None
        clips_actions = not self._env_takes_raw_actions and not loop.adapts_actions
        if clips_actions:
            defaults["action_bounds"] = "clip"
        defaults |= rules  # a loaded policy keeps the defaults that it was trained with
        config = lookup.config
        if keywords:
            config = _config_with_keywords(keywords, lookup, defaults, loop)
            self.model_config = config
        # Keys that the user or a loaded policy sets, so that the default here has no effect.
        decided_keys = {*lookup.catalog.parse_config(config).explicit, *rules}
        if clips_actions and "action_bounds" not in decided_keys:
            # The catalog's own warning would advise to scale the actions, which the algorithm does
            # not do.
            with ignore_action_ranges():
                self.policy = _build(lookup, config, defaults)
            _warn_of_clipping(self.policy, loop.algorithm)
        else:
            self.policy = _build(lookup, config, defaults)
        #: The config that the policy was built with, and the parts that it froze.
        self._config = config
        self._first_frozen_parts = list(self.policy.frozen_parts)
        refuse_model(self.policy, loop)
        if lookup.origin is not None:
            check_encoding(lookup.origin, self.policy.resolution, self.policy.preprocessor)
        else:
            _refuse_actions(self.policy, action_space, loop)
        self.observer = Observer(self.policy, observation_space, lookup.origin)
        if loop.keeps_states:
            _refuse_masks_in_sequences(self.policy, self.observer)
        self.model: Any = self.policy.model
        self.dist_class: Any = self.policy.dist_class
        self.has_box_actions = isinstance(action_space, spaces.Box)
        self._action_shape = tuple(action_space.shape or ())
        self._raw_width = self.policy.action_codec.width
        self.collector = FrozenCollector(self.policy, frozen)

    def current_config(self) -> Mapping[str, Any] | None:
        """Return the model config for an equal policy, with the parts that are frozen now."""
        frozen_parts = list(self.policy.frozen_parts)
        if frozen_parts == self._first_frozen_parts:
            return self.model_config
        return {**(self._config or {}), "freeze_parts": frozen_parts}

    def adapt(self, raw: Array) -> Array:
        """Convert raw Box actions to the environment's actions.

        A flattened environment takes raw actions.
        """
        if self._env_takes_raw_actions:
            return raw
        rows = np.asarray(raw).reshape(len(raw), -1)
        actions: Array = self.policy.adapt(rows)
        return actions

    def act(
        self, obs: PyTorchObs, masks: Masks = None, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return raw actions in the shape for Stable-Baselines3, value estimates `[B, 1]` and log
        densities `[B]`.

        Args:
            obs: Observations in Stable-Baselines3's format.
            masks: Action masks that are not in the observations.
            deterministic: Whether to take the distribution's deterministic actions.
        """
        encoded = self.observer.encode(obs)
        allowed = self.observer.mask(obs, masks)
        frozen_step = self.collector.step(encoded, allowed, deterministic)
        if frozen_step is not None:
            return self.results_of(frozen_step)
        # No frozen policy acts now, so the model itself computes the step.
        outputs, values = self.outputs_and_values({"obs": encoded, "is_training": False})
        actions, logp = self.draw(outputs, allowed, deterministic)
        return actions, values, logp

    def results_of(self, step: Step) -> tuple[Tensor, Tensor, Tensor]:
        """Return a frozen policy's step in the format of `act`."""
        actions = torch.from_numpy(step.raw_action).reshape(-1, *self._action_shape)
        values = torch.from_numpy(step.value).unsqueeze(1)
        logp = torch.from_numpy(step.logp)
        return actions, values, logp

    def outputs_and_values(self, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Run a model without memory, and return its outputs `[B, n]` and its value estimates
        `[B, 1]`, the shape for Stable-Baselines3.
        """
        outputs = run_without_memory(self.model, inputs)
        return outputs, values_of(self.model).unsqueeze(1)

    def outputs_without_critic(self, inputs: Mapping[str, Any]) -> Tensor:
        """Run a model without memory, but not its critic if it has one of its own, and return its
        outputs `[B, n]`.
        """
        return run_without_memory(self.policy.acting_model, inputs)

    def dist_for(self, outputs: Tensor, mask: Tensor | None) -> ActionDistribution:
        """Return the distribution for a model's outputs, with action masks applied.

        Args:
            outputs: The outputs `[B, n]`.
            mask: Action masks `[B, m]`, or None.
        """
        if mask is not None:
            outputs = self.dist_class.masked(outputs, mask)
        dist: ActionDistribution = self.dist_class(outputs, self.model)
        return dist

    def draw(
        self, outputs: Tensor, mask: Tensor | None, deterministic: bool
    ) -> tuple[Tensor, Tensor]:
        """Return raw actions sampled from a model's outputs, shaped by `shape_actions`, and their
        log density `[B]`.
        """
        sample, logp, _ = self.policy.backend.draw(outputs, mask, not deterministic)
        return self.shape_actions(sample), logp

    def shape_actions(self, sample: Tensor) -> Tensor:
        """Reshape raw actions to fit Stable-Baselines3's action space.

        Raises:
            ModelContractError: The actions are not in the action space.
        """
        raw = sample.detach()
        checker = self.policy.output_checker
        if checker.checks_actions:
            rows = raw.reshape(len(raw), -1).cpu().numpy()
            checker.check_actions(rows, mask=None)
        if raw.shape[1:] == self._action_shape:
            return raw
        values_per_action = raw.shape[1:].numel()
        # An empty batch may have any shape.
        if len(raw) > 0 and values_per_action != self._raw_width:
            raise ModelContractError(
                f"{self.dist_class!r}.sample() returned actions of shape {tuple(raw.shape[1:])};"
                f" {self.policy.action_space} needs {self._raw_width} values."
            )
        return raw.reshape(-1, *self._action_shape)

    def score(self, dist: ActionDistribution, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log density `[B]` of stored actions, and the entropy `[B]` or its estimate."""
        logp = self.logp(dist, actions)
        entropy, _ = entropy_of(dist, flat_sample)
        return logp, entropy

    def logp(self, dist: ActionDistribution, actions: Tensor) -> Tensor:
        """Return the log density `[B]` of stored actions."""
        if self.policy.action_codec.scalar:
            rows = actions.reshape(-1)
        else:
            rows = actions.reshape(len(actions), -1)
        logp: Tensor = dist.logp(rows)
        return logp

    def follow_device(self, device: torch.device) -> None:
        """Adjust to the device that the model was moved to."""
        self.policy.to(str(device))
        self.collector.restart()


def _config_with_keywords(
    keywords: Mapping[str, Any], lookup: Lookup, defaults: Mapping[str, Any], loop: TrainingLoop
) -> dict[str, Any]:
    """Return a lookup's model config, extended by the keys that keyword arguments such as
    `net_arch` stand for.
    """
    # The function that chooses parts for a config. The translation needs the chosen parts, because
    # not every part reads every key.
    resolve = partial(
        lookup.catalog.resolve,
        lookup.observation_space,
        lookup.action_space,
        framework="torch",
        defaults=defaults,
    )
    return translate_keywords(keywords, lookup.config, resolve, loop)


def _build(lookup: Lookup, config: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> Policy:
    """Build the policy for a lookup's spaces with a config that may differ from the lookup's."""
    return rlcatalog.build(
        lookup.observation_space,
        lookup.action_space,
        config,
        "torch",
        defaults=defaults,
        catalog=lookup.catalog,
    )


def _warn_of_clipping(policy: Policy, algorithm: str) -> None:
    """Warn about actions that an algorithm clips, if they would be scaled by default.

    Warns:
        ActionRangeWarning: The default of `action_bounds` has no effect on some actions.
    """
    codec = policy.action_codec
    raw_kinds = {codec.info.path: codec.raw_kind}
    # Without an argument for `action_bounds`, this codec has the default. If its limits differ, it
    # would scale actions.
    default_codec = action_codec(codec.info, raw_kinds=raw_kinds)
    would_scale = not np.array_equal(default_codec.limits, codec.limits)
    if would_scale:
        warn_caller(
            f"{codec.info.path}: {algorithm} clips actions, so action_bounds is 'clip' instead of"
            " 'affine', and the policy may act at the bounds only. Wrap the environment so that"
            " actions are scaled from [-1, 1] to the bounds: for_sb3(env, model_config). To clip"
            " without this warning, set action_bounds='clip' in model_config.",
            ActionRangeWarning,
        )


def _refuse_masks_in_sequences(policy: Policy, observer: Observer) -> None:
    """Reject masks that a recurrent policy cannot read in padded sequences.

    Raises:
        NotServedError: The observation has a mask, but does not contain it as columns.
    """
    key = policy.masks.key
    if key is not None and not observer.has_mask_columns:
        raise NotServedError(
            f"{key}: RecurrentPPO pads sequences, and only masks stored as"
            " columns of the observation can be told from padding. Wrap the environment:"
            " for_sb3(env)."
        )


def _refuse_actions(policy: Policy, space: Space, loop: TrainingLoop) -> None:
    """Reject action spaces for which Stable-Baselines3 would pass unadapted raw actions to the
    environment.

    Args:
        policy: The policy.
        space: The environment's action space.
        loop: The training loop.

    Raises:
        NotServedError: The space needs conversion. Wrapped with `for_sb3`, the environment takes
            raw actions.
    """
    codec = policy.action_codec
    if codec.info.kind == "box":
        problem = _problem_with_box(codec, space, loop)
    else:
        problem = _problem_with_choices(codec, space)
    if problem is not None:
        raise NotServedError(
            f"{codec.info.describe()}: {problem}. Wrap the environment so that it takes raw"
            " actions: for_sb3(env, model_config)."
        )


def _problem_with_box(codec: ActionCodec, space: Space, loop: TrainingLoop) -> str | None:
    """Return why an algorithm cannot store or adapt raw actions for a Box, or None if it can."""
    if np.dtype(space.dtype) not in (np.float32, np.float64):
        return f"raw actions would be stored as {space.dtype}"
    # If the algorithm clips actions instead of passing them through the codec, this is right in two
    # cases: "clip" asks for it, and a bounded distribution never leaves the bounds.
    is_right_when_clipped = codec.bounds == "clip" or codec.raw_kind == "bounded"
    if not loop.adapts_actions and not is_right_when_clipped:
        return (
            f"action_bounds={codec.bounds!r} would not be applied, because this algorithm"
            " clips actions"
        )
    return None


def _problem_with_choices(codec: ActionCodec, space: Space) -> str | None:
    """Return why raw choices are not actions of the environment, or None if they are."""
    if codec.raw_kind == "onehot":
        return "its distribution draws one-hots"
    if not starts_at_zero(space):
        return "its values do not start at 0"
    if len(codec.info.shape or ()) > 1:
        return "it has more than one axis"
    # Stable-Baselines3 passes actions of a Box through the codec, even if a plugin treats the Box
    # as another kind of space. Other actions go to the environment as they are.
    if not isinstance(space, spaces.Box) and not _keeps_choices(codec):
        return f"its codec, {type(codec).__name__}, changes raw actions"
    return None


def _keeps_choices(codec: ActionCodec) -> bool:
    """Return whether the codec leaves choices unchanged, judging by the lowest and the highest
    choice.
    """
    if codec.counts is None:
        return False
    lowest = [0] * codec.width
    highest = [count - 1 for count in codec.counts]
    raw = np.array([lowest, highest], np.int64)
    try:
        actions = np.reshape(codec.adapt(raw), raw.shape)
    except (TypeError, ValueError):  # values that are not numbers, or a different number of values
        return False
    return np.array_equal(actions, raw)


class CatalogDistribution(Distribution):
    """A catalog distribution over raw actions.

    Args:
        actor_critic: The actor and critic that created it.
        dist: The catalog's distribution.
    """

    distribution: Any

    def __init__(self, actor_critic: ActorCritic, dist: ActionDistribution) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.actor_critic = actor_critic
        self.distribution = dist

    def sample(self) -> Any:
        """Draw raw actions `[B, ...]`."""
        return self._shape(self.distribution.sample(), "sample")

    def mode(self) -> Any:
        """Return the deterministic raw actions `[B, ...]`, which are not always the mode."""
        return self._shape(self.distribution.deterministic_sample(), "deterministic_sample")

    def _shape(self, sample: TensorTree, method: str) -> Tensor:
        """Check and shape what a method of the catalog's distribution returned."""
        self.actor_critic.policy.output_checker.check_tensors(sample, method)
        return self.actor_critic.shape_actions(flat_sample(sample))

    def log_prob(self, x: Tensor) -> Any:
        """Return the log density `[B]` of raw actions."""
        return self.actor_critic.logp(self.distribution, x)

    def entropy(self) -> Any:
        """Return the entropy `[B]`, or its estimate."""
        entropy, _ = entropy_of(self.distribution, flat_sample)
        return entropy

    def _refuse_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error, because the layers belong to the catalog's model."""
        raise NotServedError(
            "catalog distributions are created from a model's output: policy.get_distribution(obs)."
        )

    # Stable-Baselines3's own policies create distributions with these methods.
    proba_distribution_net = _refuse_parameters
    proba_distribution = _refuse_parameters
    actions_from_params = _refuse_parameters
    log_prob_from_params = _refuse_parameters
