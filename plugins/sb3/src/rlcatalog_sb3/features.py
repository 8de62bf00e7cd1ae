"""`CatalogExtractor`: a catalog trunk as a features extractor, for DQN, SAC and TD3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor
from torch import Tensor

from rlcatalog import Catalog, Preprocessor, SpaceInfo
from rlcatalog.catalog import build_model
from rlcatalog.choice import Resolution
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_sb3.flat_spaces import check_encoding, is_float_box
from rlcatalog_sb3.observations import encoder
from rlcatalog_sb3.refusals import algorithm_around, asking, refuse_filter
from rlcatalog_sb3.saved_rules import find_rules, keep_rules
from rlcatalog_sb3.spaces import MASK, Lookup, Origin, ignore_action_ranges

#: Initialisers of Stable-Baselines3's own nets for DQN, SAC and TD3, which are PyTorch's.
_DEFAULTS = dict.fromkeys(
    (
        "fcnet_weights_initializer",
        "fcnet_bias_initializer",
        "conv_kernel_initializer",
        "conv_bias_initializer",
        "post_fcnet_weights_initializer",
        "post_fcnet_bias_initializer",
    ),
    "fan_in_uniform",
)


# Derived from CombinedExtractor, because Stable-Baselines3 sets `normalized_image=True` for
# unscaled images only if the extractor is one of its own.
class CatalogExtractor(CombinedExtractor):
    """Features extractor with a catalog trunk.

    `DQN("MlpPolicy", env, policy_kwargs={"features_extractor_class": CatalogExtractor,
    "features_extractor_kwargs": {"model_config": {...}}})`. The layers after the trunk come from
    Stable-Baselines3 (`net_arch`). The trunk receives images as the environment returns them,
    regardless of Stable-Baselines3's `normalize_images`.

    Args:
        observation_space: Stable-Baselines3's observation space.
        model_config: The model config. If None, the config that the environment was flattened with,
            or the defaults.
        normalized_image: Passed by Stable-Baselines3 if it leaves images unscaled
            (`normalize_images=False`).
        catalog: The catalog for the trunk. If None, the catalog that the environment was flattened
            with, or the process's.

    Raises:
        NotServedError: The config selects a memory, a head or a filter, or the observations contain
            action masks.
    """

    def __init__(
        self,
        observation_space: Any,
        model_config: Mapping[str, Any] | None = None,
        normalized_image: bool = False,
        catalog: Catalog | None = None,
    ) -> None:
        # A trunk does not depend on the action space, which Stable-Baselines3 does not pass to an
        # extractor.
        any_action: Any = spaces.Discrete(2)
        lookup = Lookup.of(observation_space, any_action, model_config, catalog)
        origin, catalog, values, flat = (
            lookup.origin,
            lookup.catalog,
            lookup.values,
            lookup.origin is not None,
        )
        _refuse_masks(observation_space, values["action_mask_key"], origin)
        if values["custom_action_dist"] is not None:
            raise ConfigError(
                "custom_action_dist: Stable-Baselines3's DQN, SAC and TD3 choose actions without a"
                " catalog distribution. Remove this key."
            )
        algorithm = algorithm_around()
        rules = find_rules(algorithm, origin)
        with ignore_action_ranges():  # SAC and TD3 squash actions into any bounds
            resolution, preprocessor, trunk = catalog.build_from_lookup(
                partial(_built, catalog, origin),
                lookup.observation_space,
                lookup.action_space,
                lookup.config,
                "torch",
                defaults={**_DEFAULTS, **rules},
            )
        keep_rules(algorithm, resolution.config)
        if not isinstance(trunk.num_outputs, int):
            raise NotServedError(
                f"{type(trunk).__name__} did not set its width in self.num_outputs, so it cannot"
                " be a trunk."
            )
        if trunk.get_initial_state():
            raise NotServedError(
                f"{type(trunk).__name__} is recurrent, but a features extractor has no state."
            )
        BaseFeaturesExtractor.__init__(self, observation_space, trunk.num_outputs)
        self.trunk: Any = trunk
        self.catalog = catalog
        #: The environment's spaces (action space: None if unknown) and the config's keys.
        self.own_space = lookup.observation_space
        self.own_actions = origin.action_space if origin is not None else None
        self.config = resolution.config.explicit
        #: The rules that a loaded extractor was built with; empty for a new one.
        self.rules = rules
        self.preprocessor = preprocessor
        self._undo = _undo(observation_space, scaled=not normalized_image)
        self._encode = encoder(
            preprocessor, observation_space, lookup.layout, flat, preprocessor.transform_batch
        )

    def forward(self, observations: Any) -> Tensor:
        """Return the features `[B, features_dim]` of observations preprocessed by
        Stable-Baselines3.
        """
        encoded = self._encode(self._undo(observations))
        features: Tensor = self.trunk({"obs": encoded, "is_training": self.training}, [], None)[0]
        return features if features.dim() == 2 else features.flatten(1)


def _built(
    catalog: Catalog, origin: Origin | None, resolution: Resolution
) -> tuple[Resolution, Preprocessor, Any]:
    """Return the resolution, its preprocessor and the trunk that it describes.

    Raises:
        NotServedError: The config selects a filter, a memory or a head.
        ConfigError: The trunk is an instance.
    """
    refuse_filter(resolution)
    for slot in ("memory", "head"):
        if resolution.choices[slot].part is not None:
            raise NotServedError(
                f"{asking(resolution, slot)}: Stable-Baselines3's DQN, SAC and TD3 cannot use a"
                f" {slot}; a features extractor is only a trunk."
            )
    preprocessor = catalog.preprocessor_for(resolution.request.obs, resolution.config)
    if origin is not None:
        check_encoding(origin, resolution, preprocessor)
    parts = {"trunk": resolution.part("trunk")}
    trunk = build_model(
        parts, preprocessor.observation_space, None, None, resolution.config, "torch"
    )
    if getattr(trunk, "is_instance", False):
        raise ConfigError(
            f"custom_model: {type(trunk).__name__} is an instance, but Stable-Baselines3 builds an"
            " extractor more than once, also for target networks. Pass its class, or a function"
            " that creates one."
        )
    return resolution, preprocessor, trunk


def _undo(space: Any, scaled: bool) -> Callable[[Any], Any]:
    """Return a function that converts tensors from `preprocess_obs` back to observations.

    Raises:
        NotServedError: Stable-Baselines3's `preprocess_obs` cannot encode these observations.
    """
    if isinstance(space, spaces.Dict):
        parts = {key: _undo(child, scaled) for key, child in space.spaces.items()}
        return lambda obs: {key: part(obs[key]) for key, part in parts.items()}
    if np.any(np.asarray(getattr(space, "start", 0)) != 0):
        raise NotServedError(
            f"{space}: Stable-Baselines3 encodes choices as one-hots that start at 0. Wrap the"
            " environment: for_sb3(env, model_config)."
        )
    if isinstance(space, spaces.Discrete):
        n = int(space.n)
        return lambda obs: obs.reshape(-1, n).argmax(1)
    if isinstance(space, spaces.MultiDiscrete):
        counts = [int(n) for n in space.nvec]
        return lambda obs: torch.stack([part.argmax(1) for part in obs.split(counts, 1)], 1)
    if scaled and is_image_space(space):
        return lambda obs: (obs * 255.0).round_()
    return lambda obs: obs


def _refuse_masks(space: Any, key: str, origin: Origin | None) -> None:
    """Reject action masks, and flattened action spaces that the algorithms do not support.

    Raises:
        NotServedError: The observation has a mask, or the action space is not supported.
    """
    found = MASK if origin is not None else key
    if isinstance(space, spaces.Dict) and found in space.spaces:
        raise NotServedError(
            f"{key}: Stable-Baselines3's DQN, SAC and TD3 do not mask actions. Use MaskablePPO"
            " with CatalogMaskablePolicy, PPO with CatalogPolicy, or remove the mask from the"
            " observation."
        )
    if origin is not None:
        info = SpaceInfo.read(origin.action_space, "action")
        if info.kind != "discrete" and not is_float_box(info):
            raise NotServedError(
                f"{info.describe()}: DQN needs a Discrete, SAC and TD3 need a Box of floats. Use"
                " PPO or A2C with CatalogPolicy."
            )
