"""`CatalogExtractor`: a catalog trunk as a features extractor, for DQN, SAC and TD3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import Tensor

from rlcatalog import Catalog, ModelV2, Preprocessor, SpaceInfo
from rlcatalog.actions import mask_entry
from rlcatalog.catalog import build_model
from rlcatalog.choice import Resolution
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_sb3.flat_spaces import check_encoding
from rlcatalog_sb3.memories import run_without_memory
from rlcatalog_sb3.observations import make_encoder, make_flat_encoder
from rlcatalog_sb3.refusals import algorithm_around, refuse_filter
from rlcatalog_sb3.saved_rules import find_rules, keep_rules, rules_of
from rlcatalog_sb3.sides import keys_that_select
from rlcatalog_sb3.spaces import (
    MASK,
    OFF_POLICY_INIT,
    Lookup,
    Origin,
    Space,
    ignore_action_ranges,
    starts_at_zero,
)


# CombinedExtractor is the base class because Stable-Baselines3 tells an extractor that images are
# unscaled (`normalized_image=True`) only if the extractor is one of its own.
class CatalogExtractor(CombinedExtractor):
    """Features extractor for DQN, SAC, TD3 and others, with a trunk that rlcatalog chooses.

    Pass it in the `policy_kwargs` of `"MlpPolicy"`: `{"features_extractor_class": CatalogExtractor,
    "features_extractor_kwargs": {"model_config": {...}}}`. The layers after the trunk come from
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
        NotServedError: The config selects a memory, a head, a filter or a critic, or the
            observations contain action masks.
    """

    def __init__(
        self,
        observation_space: Space,
        model_config: Mapping[str, Any] | None = None,
        normalized_image: bool = False,
        catalog: Catalog | None = None,
    ) -> None:
        # Stable-Baselines3 does not pass the action space to an extractor. A lookup needs one, but
        # the trunk does not depend on it, so any action space will do.
        any_action_space = spaces.Discrete(2)
        lookup = Lookup.of(observation_space, any_action_space, model_config, catalog)
        origin = lookup.origin  # None unless the environment was flattened
        _refuse_masks(observation_space, lookup.values["action_mask_key"], origin)
        if origin is not None:
            _refuse_flat_actions(origin)
        if lookup.values["custom_action_dist"] is not None:
            raise ConfigError(
                "custom_action_dist: Stable-Baselines3's DQN, SAC and TD3 choose actions without a"
                " catalog distribution. Remove this key."
            )
        algorithm = algorithm_around()
        rules = find_rules(algorithm, origin)
        # If the trunk cannot be built with all defaults, the catalog calls the function again with
        # other parts or fewer defaults.
        with ignore_action_ranges():  # SAC and TD3 squash actions into any bounds
            parts = lookup.catalog.build_from_lookup(
                partial(_build_parts, lookup.catalog, origin),
                lookup.observation_space,
                lookup.action_space,
                lookup.config,
                "torch",
                defaults={**OFF_POLICY_INIT, **rules},
            )
        keep_rules(algorithm, parts.resolution.config)
        _check_trunk(parts.trunk)
        # Skip CombinedExtractor, whose constructor would build its own nets.
        BaseFeaturesExtractor.__init__(self, observation_space, parts.trunk.num_outputs)
        self.trunk: Any = parts.trunk
        self.catalog = lookup.catalog
        #: The environment's spaces (action space: None if unknown) and the config's keys, from
        #: which a policy can be rebuilt.
        self.env_observation_space = lookup.observation_space
        self.env_action_space = None if origin is None else origin.action_space
        self.config = parts.resolution.config.explicit
        #: The rules that a loaded extractor was built with; empty for a new one.
        self.rules = rules
        #: The rules that this extractor is built with.
        self.resolved_rules = rules_of(parts.resolution.config)
        self.preprocessor = parts.preprocessor
        self._restore = _inverse_of_preprocess_obs(observation_space, scaled=not normalized_image)
        if origin is None:
            self._encode = make_encoder(
                self.preprocessor,
                observation_space,
                lookup.layout,
                self.preprocessor.transform_batch,
            )
        else:
            # A flattened environment with masks has been refused above.
            self._encode = make_flat_encoder(self.preprocessor.shape, has_masks=False)

    def forward(self, observations: PyTorchObs) -> Tensor:
        """Return the features `[B, features_dim]` of observations preprocessed by
        Stable-Baselines3.
        """
        encoded = self._encode(self._restore(observations))
        features = run_without_memory(self.trunk, {"obs": encoded, "is_training": self.training})
        return features if features.dim() == 2 else features.flatten(start_dim=1)


class _Parts(NamedTuple):
    """What a lookup chose for an extractor, and the two objects built from it."""

    resolution: Resolution
    preprocessor: Preprocessor
    trunk: Any


def _build_parts(catalog: Catalog, origin: Origin | None, resolution: Resolution) -> _Parts:
    """Build the preprocessor and the trunk that a resolution describes.

    Raises:
        NotServedError: The config selects a filter, a memory, a head or a critic.
        ConfigError: The trunk is an instance.
    """
    refuse_filter(resolution)
    if resolution.critic is not None:
        raise NotServedError(
            "critic: a features extractor is only a trunk. For SAC, TD3 and TQC, CatalogSACPolicy,"
            " CatalogTD3Policy and CatalogTQCPolicy build the critics. PPO and A2C with"
            " CatalogPolicy train a critic of observations. Use one of them, or remove critic and"
            " obs_groups from the model config."
        )
    for slot in ("memory", "head"):
        if resolution.choices[slot].part is not None:
            raise NotServedError(
                f"{keys_that_select(resolution, slot)}: Stable-Baselines3's DQN, SAC and TD3 cannot"
                f" use a {slot}; a features extractor is only a trunk."
            )
    preprocessor = catalog.preprocessor_for(resolution.request.obs, resolution.config)
    if origin is not None:
        check_encoding(origin, resolution, preprocessor)
    trunk = build_model(
        {"trunk": resolution.part("trunk")},
        preprocessor.observation_space,
        # Without an action space and a number of outputs, the model ends with the trunk's features.
        action_space=None,
        num_outputs=None,
        config=resolution.config,
        framework="torch",
    )
    # Only the wrapper around a plain torch.nn.Module has this attribute.
    if getattr(trunk, "is_instance", False):
        raise ConfigError(
            f"custom_model: {type(trunk).__name__} is an instance, but Stable-Baselines3 builds an"
            " extractor more than once, also for target networks. Pass its class, or a function"
            " that creates one."
        )
    return _Parts(resolution, preprocessor, trunk)


def _check_trunk(trunk: ModelV2) -> None:
    """Raise an error unless a trunk has a known width and no state.

    Raises:
        NotServedError: The width is unknown, or the trunk is recurrent.
    """
    name = type(trunk).__name__
    if not isinstance(trunk.num_outputs, int):
        raise NotServedError(
            f"{name} did not set its width in self.num_outputs, so it cannot be a trunk."
        )
    if trunk.get_initial_state():
        raise NotServedError(f"{name} is recurrent, but a features extractor has no state.")


def _refuse_masks(space: Space, mask_key: str | None, origin: Origin | None) -> None:
    """Reject action masks in observations, because DQN, SAC and TD3 would ignore them.

    Raises:
        NotServedError: The observation contains a mask.
    """
    # A flattened environment stores its masks under a key of its own.
    key_in_space = mask_key if origin is None else MASK
    if mask_entry(SpaceInfo.read(space), key_in_space) is not None:
        raise NotServedError(
            f"{mask_key}: Stable-Baselines3's DQN, SAC and TD3 do not mask actions. Use MaskablePPO"
            " with CatalogMaskablePolicy, PPO with CatalogPolicy, or remove the mask from the"
            " observation."
        )


def _refuse_flat_actions(origin: Origin) -> None:
    """Reject action spaces that DQN, SAC and TD3 do not support, even if they are flattened.

    Raises:
        NotServedError: The action space is neither a Discrete, a Box of floats, nor a Tuple or Dict
            of bounded Boxes of floats.
    """
    info = SpaceInfo.read(origin.action_space, "action")
    is_of_floats = info.is_float_box or info.consists_of_bounded_boxes
    is_served = info.kind == "discrete" or is_of_floats
    if not is_served:
        raise NotServedError(
            f"{info.describe()}: DQN needs a Discrete; SAC and TD3 need a Box of floats, or a Tuple"
            " or Dict of Boxes of floats with finite bounds. Use PPO or A2C with CatalogPolicy."
        )


# --- the inverse of Stable-Baselines3's preprocess_obs --------------------------------------------


def _inverse_of_preprocess_obs(space: Space, *, scaled: bool) -> Callable[[Any], Any]:
    """Return a function that restores observations from the output of `preprocess_obs`.

    Stable-Baselines3 preprocesses observations before an extractor receives them: choices become
    one-hots, and the bytes of images are divided by 255. A catalog trunk has the catalog's
    preprocessor, which needs the original values.

    Args:
        space: Stable-Baselines3's observation space.
        scaled: Whether `preprocess_obs` scales images.

    Raises:
        NotServedError: Stable-Baselines3's `preprocess_obs` cannot encode these observations.
    """
    if isinstance(space, spaces.Dict):
        inverses = {
            key: _inverse_of_preprocess_obs(child, scaled=scaled)
            for key, child in space.spaces.items()
        }
        return partial(_restore_entries, inverses)
    if not starts_at_zero(space):
        raise NotServedError(
            f"{space}: Stable-Baselines3 encodes choices as one-hots that start at 0. Wrap the"
            " environment: for_sb3(env, model_config)."
        )
    if isinstance(space, spaces.Discrete):
        return partial(_restore_choice, int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return partial(_restore_choices, [int(count) for count in space.nvec])
    if scaled and is_image_space(space):
        return _restore_bytes
    return _keep_unchanged


def _restore_entries(
    inverses: Mapping[str, Callable[[Tensor], Tensor]], obs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Restore each entry of a Dict observation with the function for its key."""
    return {key: restore(obs[key]) for key, restore in inverses.items()}


def _restore_choice(count: int, one_hots: Tensor) -> Tensor:
    """Return the choices `[B]` that one-hots of `count` values encode."""
    return one_hots.reshape(-1, count).argmax(dim=1)


def _restore_choices(counts: list[int], one_hots: Tensor) -> Tensor:
    """Return the choices `[B, len(counts)]` that rows of concatenated one-hots encode."""
    choices = [one_hot.argmax(dim=1) for one_hot in one_hots.split(counts, dim=1)]  # type: ignore[no-untyped-call]
    return torch.stack(choices, dim=1)


def _restore_bytes(scaled_image: Tensor) -> Tensor:
    """Return the whole numbers from 0 to 255 of an image that was divided by 255."""
    return (scaled_image * 255.0).round_()


def _keep_unchanged(obs: Tensor) -> Tensor:
    return obs
