"""A catalog actor and critic for a Stable-Baselines3 policy, and the distributions that they
create.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import Distribution
from torch import Tensor

import rlcatalog
from rlcatalog import Catalog, Policy, Step
from rlcatalog.actions import ActionCodec, action_codec, entropy_of
from rlcatalog.errors import ActionRangeWarning, ModelContractError, NotServedError
from rlcatalog.reporting import warn_caller
from rlcatalog_sb3.flat_spaces import Array, check_encoding
from rlcatalog_sb3.frozen_collector import FrozenCollector
from rlcatalog_sb3.observations import Observer
from rlcatalog_sb3.policy_kwargs import translated
from rlcatalog_sb3.refusals import refuse_model
from rlcatalog_sb3.spaces import Lookup, engine_defaults, ignore_action_ranges
from rlcatalog_torch import flat_sample, values_of


class ActorCritic:
    """A catalog's preprocessor, model and distribution, called with a Stable-Baselines3 policy's
    inputs.

    Args:
        owner: The Stable-Baselines3 policy, a `CatalogBasePolicy`, with its spaces.
        model_config: The model config. If None, the config that the environment was flattened with.
        catalog: The catalog for the parts. If None, the flattened environment's catalog, or the
            process's.
        keywords: Keyword arguments of Stable-Baselines3's own policies; see `translated`.
        algorithm: Name of the algorithm that builds the policy, for error messages.
        frozen: Whether a frozen policy collects rollouts; see `FrozenCollector`.
        rules: The rules that a loaded policy was built with, for keys that the config leaves open.

    Attributes:
        policy: The rlcatalog policy, built for the environment's spaces.
        given: The given model config, with the keys translated from keyword arguments.
        given_catalog: The given catalog.
        observer: The object that encodes observations and extracts their masks.
        adapts: Whether `adapt` converts raw actions for the environment.
        collector: The object that computes rollout steps.

    Raises:
        CatalogError: The parts do not fit, or the algorithm does not support them; see `refusals`.
    """

    def __init__(
        self,
        owner: Any,
        model_config: Mapping[str, Any] | None,
        catalog: Catalog | None,
        keywords: Mapping[str, Any],
        algorithm: str,
        frozen: str,
        rules: Mapping[str, Any],
    ) -> None:
        observation_space, action_space = owner.observation_space, owner.action_space
        recurrent, adapts, name = owner.recurrent, owner.adapts, type(owner).__name__
        lookup = Lookup.of(observation_space, action_space, model_config, catalog)
        self.given, self.given_catalog = model_config, catalog
        origin, catalog, config = lookup.origin, lookup.catalog, lookup.config
        observations, actions = lookup.observation_space, lookup.action_space
        self.action_shape = tuple(action_space.shape or ())
        defaults = engine_defaults(observations, actions)
        is_clipped = origin is None and not adapts
        if is_clipped:
            defaults["action_bounds"] = "clip"
        defaults |= rules
        if keywords:
            resolve = partial(
                catalog.resolve, observations, actions, framework="torch", defaults=defaults
            )
            config = self.given = translated(
                keywords, config, resolve, policy=name, recurrent=recurrent
            )
        build = partial(
            rlcatalog.build,
            observations,
            actions,
            config,
            "torch",
            defaults=defaults,
            catalog=catalog,
        )
        if is_clipped and "action_bounds" not in {**catalog.parse_config(config).explicit, **rules}:
            self.policy = _build_clipped(build, algorithm)
        else:
            self.policy = build()
        refuse_model(self.policy, recurrent=recurrent, algorithm=algorithm)
        if origin is not None:
            check_encoding(origin, self.policy.resolution, self.policy.preprocessor)
        self.adapts, self._raw = isinstance(action_space, spaces.Box), origin is not None
        if origin is None:
            _refuse_actions(self.policy, action_space, adapts)
        self.observer = Observer(self.policy, observation_space, origin)
        if recurrent and self.policy.masks.key is not None and not self.observer.columns:
            raise NotServedError(
                f"{self.policy.masks.key}: RecurrentPPO pads sequences, and only masks stored as"
                " columns of the observation can be told from padding. Wrap the environment:"
                " for_sb3(env)."
            )
        self.model: Any = self.policy.model
        self.dist_class: Any = self.policy.dist_class
        self._width = self.policy.action_codec.width
        self.collector = FrozenCollector(self.policy, frozen)

    def adapt(self, raw: Array) -> Array:
        """Convert raw Box actions to the environment's actions.

        A flattened environment takes raw actions.
        """
        return raw if self._raw else self.policy.adapt(np.asarray(raw).reshape(len(raw), -1))

    def act(
        self, obs: Any, mask: Any = None, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return raw actions in the shape for Stable-Baselines3, value estimates `[B, 1]` and log
        densities `[B]`.

        Args:
            obs: Observations in Stable-Baselines3's format.
            mask: Action masks that are not in the observations.
            deterministic: Whether to take the most likely actions.
        """
        encoded, found = self.observer.encode(obs), self.observer.mask(obs, mask)
        if (step := self.collector.step(encoded, found, deterministic)) is not None:
            return self.collected(step)
        inputs, _ = self.model({"obs": encoded, "is_training": False}, [], None)
        actions, logp = self.draw(inputs, found, deterministic)
        return actions, self.values(), logp

    def collected(self, step: Step) -> tuple[Tensor, Tensor, Tensor]:
        """Return the frozen policy's step in the same format as `act`."""
        raw, value = torch.from_numpy(step.raw_action), torch.from_numpy(step.value)
        return raw.reshape(-1, *self.action_shape), value.unsqueeze(1), torch.from_numpy(step.logp)

    def dist(self, obs: Any, mask: Any = None, *, acting: bool = True) -> Any:
        """Run the model and return the action distribution.

        Args:
            obs: Observations in Stable-Baselines3's format.
            mask: Action masks that are not in the observations.
            acting: Whether actions will be sampled. If False, stored actions will be scored.
        """
        inputs, _ = self.model(
            {"obs": self.observer.encode(obs), "is_training": not acting}, [], None
        )
        return self.masked(inputs, obs, mask, acting)

    def masked(self, inputs: Tensor, obs: Any, mask: Any, acting: bool) -> Any:
        """Return the distribution for a model's output, with the action masks applied."""
        allowed = self.observer.mask(obs, mask, check=acting)
        return self.dist_class(
            inputs if allowed is None else self.dist_class.masked(inputs, allowed), self.model
        )

    def draw(
        self, outputs: Tensor, mask: Tensor | None, deterministic: bool
    ) -> tuple[Tensor, Tensor]:
        """Return raw actions sampled from a model's output, shaped by `shape_actions`, and their
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
        if self.policy.output_checker.checks_actions:
            self.policy.output_checker.check_actions(raw.reshape(len(raw), -1).cpu().numpy(), None)
        if raw.shape[1:] == self.action_shape:
            return raw
        if raw[:1].numel() != self._width * len(raw[:1]):
            raise ModelContractError(
                f"{self.dist_class!r}.sample() returned actions of shape {tuple(raw.shape[1:])};"
                f" {self.policy.action_space} needs {self._width} values."
            )
        return raw.reshape(-1, *self.action_shape)

    def score(self, dist: Any, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log density `[B]` of stored actions, and the entropy `[B]` or its estimate."""
        return self.logp(dist, actions), entropy_of(dist, flat_sample)[0]

    def logp(self, dist: Any, actions: Tensor) -> Tensor:
        """Return the log density `[B]` of stored actions."""
        scalar = self.policy.action_codec.scalar
        logp: Tensor = dist.logp(
            actions.reshape(-1) if scalar else actions.reshape(len(actions), -1)
        )
        return logp

    def values(self) -> Tensor:
        """Return the last forward pass's value estimates, in Stable-Baselines3's shape `[B, 1]`."""
        return values_of(self.model).unsqueeze(1)

    def moved(self, device: torch.device) -> None:
        """Keep track of the device that the model was moved to."""
        self.policy.to(str(device))
        self.collector.begin()


def _build_clipped(build: Callable[[], Policy], algorithm: str) -> Policy:
    """Build a policy whose actions the algorithm clips, and warn if they would otherwise be scaled.

    Warns:
        ActionRangeWarning: The default of `action_bounds` has no effect on some actions.
    """
    # The advice is to scale the actions, which the algorithm does not do.
    with ignore_action_ranges():
        policy = build()
    codec = policy.action_codec
    scaled = action_codec(codec.info, raw_kinds={codec.info.path: codec.raw_kind})
    if not np.array_equal(scaled.limits, codec.limits):
        warn_caller(
            f"{codec.info.path}: {algorithm} clips actions, so action_bounds is 'clip' instead of"
            " 'affine', and the policy may act at the bounds only. Wrap the environment so that"
            " actions are scaled from [-1, 1] to the bounds: for_sb3(env, model_config). To clip"
            " without this warning, set action_bounds='clip' in model_config.",
            ActionRangeWarning,
        )
    return policy


def _refuse_actions(policy: Policy, space: Any, adapts: bool) -> None:
    """Reject action spaces for which Stable-Baselines3 would pass unadapted raw actions to the
    environment.

    Raises:
        NotServedError: The space needs conversion. Wrapped with `for_sb3`, the environment takes
            raw actions.
    """
    codec = policy.action_codec
    info, raw_kind = codec.info, codec.raw_kind
    why = None
    if info.kind == "box":
        if np.dtype(space.dtype) not in (np.float32, np.float64):
            why = f"raw actions would be stored as {space.dtype}"
        elif not adapts and codec.bounds != "clip" and raw_kind != "bounded":
            why = (
                f"action_bounds={codec.bounds!r} would not be applied, because this algorithm"
                " clips actions"
            )
    elif raw_kind == "onehot":
        why = "its distribution draws one-hots"
    elif np.any(np.asarray(getattr(space, "start", 0)) != 0):
        why = "its values do not start at 0"
    elif len(info.shape or ()) > 1:
        why = "it has more than one axis"
    if why is None and not isinstance(space, spaces.Box) and not _is_raw(codec):
        why = f"its codec, {type(codec).__name__}, changes raw actions"
    if why is not None:
        raise NotServedError(
            f"{info.describe()}: {why}. Wrap the environment so that it takes raw actions:"
            " for_sb3(env, model_config)."
        )


def _is_raw(codec: ActionCodec) -> bool:
    """Return whether the codec leaves choices unchanged, judging by the lowest and the highest
    choice.
    """
    if codec.counts is None:
        return False
    raw = np.array([[0] * codec.width, [count - 1 for count in codec.counts]], np.int64)
    with suppress(TypeError, ValueError):  # not numbers, or a different number of values
        return np.array_equal(np.reshape(codec.adapt(raw), raw.shape), raw)
    return False


class CatalogDistribution(Distribution):
    """A catalog distribution over raw actions.

    Args:
        actor_critic: The actor and critic that created it.
        dist: The catalog's distribution.
    """

    def __init__(self, actor_critic: ActorCritic, dist: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.actor_critic, self.distribution = actor_critic, dist

    def sample(self) -> Any:
        """Draw raw actions `[B, ...]`."""
        return self._draw("sample")

    def mode(self) -> Any:
        """Return the most likely raw actions `[B, ...]`."""
        return self._draw("deterministic_sample")

    def _draw(self, method: str) -> Any:
        sample = getattr(self.distribution, method)()
        self.actor_critic.policy.output_checker.check_tensors(sample, method)
        return self.actor_critic.shape_actions(flat_sample(sample))

    def log_prob(self, x: Any) -> Any:
        """Return the log density `[B]` of raw actions."""
        return self.actor_critic.logp(self.distribution, x)

    def entropy(self) -> Any:
        """Return the entropy `[B]`, or its estimate."""
        return entropy_of(self.distribution, flat_sample)[0]

    def _refuse_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error, because the layers belong to the catalog's model."""
        raise NotServedError(
            "catalog distributions are created from a model's output: policy.get_distribution(obs)."
        )

    proba_distribution_net = proba_distribution = _refuse_parameters
    actions_from_params = log_prob_from_params = _refuse_parameters
