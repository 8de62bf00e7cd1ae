"""Environments with flat spaces, for algorithms that require them: `FlattenSpaces`, `for_sb3`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlcatalog import Catalog, Preprocessor, default_catalog
from rlcatalog.actions import ActionCodec, action_codec, first_row, mask_method
from rlcatalog.catalog import EngineWrapper, make_env
from rlcatalog.choice import Resolution
from rlcatalog.config import same
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.frameworks import Array
from rlcatalog.spaces import read_attribute
from rlcatalog_policy import Encoder
from rlcatalog_sb3.refusals import refuse_filter
from rlcatalog_sb3.spaces import (
    MASK,
    OBS,
    ORIGIN,
    EncodedBox,
    Origin,
    Space,
    ignore_action_ranges,
)
from rlcatalog_sb3.unread_masks import warn_of_info

#: The kernel's config keys that affect encoded observations or raw actions.
_KEYS_OF_ENCODING = (
    "action_bounds",
    "action_mask_key",
    "_disable_preprocessor_api",
    "embeddings",
)
#: A bound so large that nothing is clipped.
_LARGEST = float(np.finfo(np.float32).max)


class FlattenSpaces(EngineWrapper, gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that gives any environment the flat spaces that Stable-Baselines3 requires.

    It encodes each observation once with the catalog's preprocessor, and adapts the policy's raw
    actions. The flat spaces store the environment's spaces, so that a `CatalogPolicy` can find
    them.

    Args:
        env: The environment. If the environment has a method `action_masks()`, as in sb3-contrib,
            and its observations contain no mask, the masks are added to the observations.
        model_config: The model config, which affects observations and actions.
        catalog: The catalog for the parts, which policies in this environment also use. If None,
            the process's.

    Warns:
        UnusedMaskWarning: At the first reset, if there are masks in the info, which cannot be
            flattened. Wrap the environment with `rlcatalog.wrap_env` first.

    Raises:
        NotServedError: The config sets an observation filter.
        UnsupportedSpaceError: No installed part supports one of the spaces.
    """

    right_order = "for_sb3(rlcatalog.wrap_env(env))"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        model_config: Mapping[str, Any] | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        super().__init__(env)
        has_mask_method = mask_method(env) is not None
        self.flattening = Flattening(
            env.observation_space,
            env.action_space,
            model_config,
            masked=has_mask_method,
            catalog=catalog,
        )
        self.observation_space = self.flattening.observation_space
        self.action_space = self.flattening.action_space
        # If the observation contains a mask, the environment's method is not called: only the mask
        # in the observation is certain to belong to that observation.
        has_mask_in_observation = self.flattening.masks.key is not None
        self._calls_mask_method = self.flattening.masked and not has_mask_in_observation
        self._mask: Any = None
        self._has_reset = False
        if self.flattening.masked:
            # MaskablePPO masks actions if the environment has this method, so it exists only if
            # there are masks.
            self.action_masks = self._last_mask

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**options)
        if not self._has_reset and not self.flattening.masked:
            warn_of_info(info, self.flattening.masks)
        self._has_reset = True
        return self._flatten(obs, is_last=False), info

    def step(self, action: Array | np.integer[Any]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        env_action = self.flattening.act(action)
        obs, reward, terminated, truncated, info = self.env.step(env_action)
        flat_obs = self._flatten(obs, is_last=terminated or truncated)
        return flat_obs, reward, terminated, truncated, info

    def _last_mask(self) -> Any:
        """Return the last observation's action mask, boolean `[m]`."""
        return self._mask

    def _flatten(self, obs: Any, is_last: bool) -> Any:
        """Return a flat observation, and store its mask for `action_masks`."""
        mask = None
        if self._calls_mask_method:
            action_masks = self.env.get_wrapper_attr("action_masks")
            mask = action_masks()
        flat_obs = self.flattening.observe(obs, mask, last=is_last)
        if self.flattening.masked:
            self._mask = flat_obs[MASK].astype(bool)
        return flat_obs


def for_sb3(
    env: str | Callable[..., Any] | gym.Env[Any, Any],
    model_config: Mapping[str, Any] | None = None,
    catalog: Catalog | None = None,
) -> FlattenSpaces:
    """Wrap an environment whose spaces Stable-Baselines3 does not support.

    Stable-Baselines3 rejects many spaces, such as a Dict inside a Dict or a Tuple of actions. The
    wrapper encodes each observation as one array, and takes actions as one array, so that
    `PPO(CatalogPolicy, for_sb3(env))` trains in any environment whose spaces the installed parts
    support. Wrappers of installed plugins that match are applied first (see `rlcatalog.wrap_env`).

    For several environments, use
    `make_vec_env(id, 4, wrapper_class=for_sb3, wrapper_kwargs={"model_config": ...})`.

    Args:
        env: A single environment, its Gymnasium id, its class, or a function that creates it.
        model_config: The model config. A `CatalogPolicy` reads it from the environment, so you need
            not pass it again.
        catalog: The catalog for the parts, which policies in this environment also use. If None,
            the process's default catalog.

    Raises:
        ModelContractError: `env` is a vector environment.
        ConfigError: `env` is neither an environment nor a callable, class or id that creates one.

    Example:
        >>> class Hybrid(gym.Env):
        ...     observation_space = spaces.Dict(
        ...         {"gear": spaces.Discrete(3), "speed": spaces.Box(0, 1, (2,))}
        ...     )
        ...     action_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,))])
        >>> for_sb3(Hybrid).observation_space.shape
        (5,)
    """
    count = read_attribute(env, "num_envs")
    if count is not None:
        raise ModelContractError(
            f"for_sb3: expected a single environment, found a {type(env).__name__} with"
            f" {count}. Stable-Baselines3 needs its own kind of vector environment, with"
            " wrapped members: make_vec_env(MyEnv, n, wrapper_class=for_sb3)."
        )
    wrapping_catalog = default_catalog() if catalog is None else catalog
    # FlattenSpaces itself moves the environment's masks into the observation.
    wrapped_env = wrapping_catalog.wrap_env(make_env(env), model_config, move_masks=False)
    return FlattenSpaces(wrapped_env, model_config, catalog)


class Flattening:
    """Encoder for observations and adapter for raw actions in flat spaces.

    Args:
        observation_space: The environment's observation space.
        action_space: Its action space.
        model_config: The model config.
        masked: Whether masks are passed separately if observations do not contain them.
        catalog: The catalog for the parts. If None, the process's.

    Attributes:
        observation_space: An `EncodedBox`. With masks, a Dict with this box under `"obs"` and the
            mask's columns under `"action_mask"`.
        action_space: A Discrete for one choice, a MultiDiscrete for several, otherwise a Box of the
            raw values. The bounds clip only values that the action codec would clip anyway.
        masks: The reader for action masks.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        model_config: Mapping[str, Any] | None = None,
        masked: bool = False,
        catalog: Catalog | None = None,
    ) -> None:
        lookup_catalog = default_catalog() if catalog is None else catalog
        # SAC and TD3 squash actions into any bounds, so no warning about the bounds is needed here.
        # A `CatalogPolicy`, which does not squash them, gives this warning itself.
        with ignore_action_ranges():
            resolution = lookup_catalog.resolve(
                observation_space, action_space, model_config, "torch"
            )
        refuse_filter(resolution)
        self.encoder = Encoder(lookup_catalog, resolution)
        self.preprocessor = self.encoder.preprocessor
        self.masks = self.encoder.masks
        self.action_codec = action_codec(
            resolution.action,
            resolution.config["action_bounds"],
            resolution.dists.raw_kinds("torch"),
        )
        has_mask_in_observation = resolution.mask_key is not None
        # An action space without choices has nothing to mask, and without an info key, masks
        # outside the observation are not read.
        reads_separate_masks = self.masks.size > 0 and self.masks.info_key is not None
        self.masked = has_mask_in_observation or (masked and reads_separate_masks)
        origin = Origin(
            observation_space,
            action_space,
            config=resolution.config.explicit,
            encoding=encoding_of(resolution, self.preprocessor),
            catalog=catalog,  # None stands for the process's default catalog
            has_masks=self.masked,
        )
        box = _encoded_box(self.preprocessor, origin)
        self._dtype = box.dtype
        self.observation_space: Space = box
        if self.masked:
            mask_columns = spaces.MultiBinary(self.masks.size)
            self.observation_space = spaces.Dict({OBS: box, MASK: mask_columns})
        self.action_space = flat_actions(self.action_codec)
        # Also stored here, in case another wrapper replaces the observation space.
        setattr(self.action_space, ORIGIN, origin)

    def observe(self, obs: Any, mask: Any = None, *, last: bool = False) -> Any:
        """Return an observation in Stable-Baselines3's format.

        Args:
            obs: The environment's observation.
            mask: The action mask in Gymnasium's format, if the observation does not contain it.
            last: Whether the episode is over. If so, no action follows, and the mask need not allow
                any.
        """
        vector = self.encoder.encode(obs).ravel().astype(self._dtype, copy=False)
        if not self.masked:
            return vector
        mask_columns = self.encoder.mask_of(obs, mask, over=last)
        return {OBS: vector, MASK: mask_columns.astype(np.int8)}

    def act(self, raw: Array | np.integer[Any]) -> Any:
        """Convert one raw action to the environment's action."""
        rows = np.asarray(raw).reshape(1, -1)
        return first_row(self.action_codec.adapt(rows))


def encoding_of(resolution: Resolution, preprocessor: Preprocessor) -> dict[str, Any]:
    """Return the settings that determine encoded observations and raw actions, as plain data."""
    config = resolution.config
    parts = [part for _path, part in preprocessor.parts()]
    encoding: dict[str, Any] = {
        "preprocessors": [f"{part.provider}:{part.name}" for part in parts],
        "raw_kinds": resolution.dists.raw_kinds("torch"),
        "mask_key": resolution.mask_key,
    }
    keys = set(_KEYS_OF_ENCODING)
    for part in parts:
        keys.update(resolution.config_keys(part))
    if config["custom_preprocessor"] is not None:
        keys.add("custom_model_config")  # a user's class may read its settings there
    for key in sorted(keys):  # sorted, because the repr of an EncodedBox lists them in this order
        encoding[key] = config[key]
    return encoding


def check_encoding(origin: Origin, resolution: Resolution, preprocessor: Preprocessor) -> None:
    """Raise an error unless a policy's config encodes observations and interprets actions as the
    environment does.

    Raises:
        ConfigError: They differ. The message names the first difference.
    """
    policy_encoding = encoding_of(resolution, preprocessor)
    for key in sorted({*policy_encoding, *origin.encoding}):
        policy_value = policy_encoding.get(key)
        env_value = origin.encoding.get(key)
        if not same(policy_value, env_value):
            raise ConfigError(
                f"model_config: the environment was flattened with {key}={env_value!r},"
                f" but the policy has {policy_value!r}. Pass the same config to both: for_sb3(env,"
                " model_config)."
            )


def flat_actions(codec: ActionCodec) -> Space:
    """Return a flat space for raw actions.

    Stable-Baselines3 needs finite bounds: PPO clips to them, and SAC and TD3 squash actions into
    them. The codec always clips to the original bounds.
    """
    if codec.whole:  # all raw values are choices
        counts = list(codec.counts or ())
        if codec.scalar:  # a single choice
            return spaces.Discrete(counts[0])
        return spaces.MultiDiscrete(counts)
    if codec.info.is_composite and codec.info.consists_of_bounded_boxes:
        low, high = codec.limits
        return BoxOfBoxes(low.astype(np.float32), high.astype(np.float32))
    low = np.full(codec.width, -_LARGEST)
    high = np.full(codec.width, _LARGEST)
    if codec.info.is_float_box:
        space_low, space_high = codec.limits
        low = np.clip(space_low, -_LARGEST, _LARGEST)
        high = np.clip(space_high, -_LARGEST, _LARGEST)
    return spaces.Box(low.astype(np.float32), high.astype(np.float32), (codec.width,), np.float32)


class BoxOfBoxes(spaces.Box):
    """Raw actions for a Tuple or Dict of bounded Boxes, side by side.

    Earlier versions used a Box without bounds here. It is equal to this one, so that their saved
    algorithms accept the environment; in both, the same raw actions mean the same.
    """

    def __init__(self, low: Array, high: Array) -> None:
        super().__init__(low, high, dtype=np.float32)

    def __eq__(self, other: object) -> bool:
        if super().__eq__(other):
            return True
        if not isinstance(other, spaces.Box) or other.shape != self.shape:
            return False
        return bool((np.abs(other.low) >= _LARGEST).all())

    __hash__ = None  # type: ignore[assignment]


def _encoded_box(preprocessor: Preprocessor, origin: Origin) -> EncodedBox:
    """Return the flat space for a preprocessor's encoded observations."""
    space = preprocessor.observation_space
    dtype = np.dtype(space.dtype)
    if dtype in (np.float64, np.bool_):
        dtype = np.dtype(np.float32)  # the dtype that models read
    if not isinstance(space, spaces.Box):  # integers that reach the model unchanged
        limits = np.iinfo(dtype)
        low = np.full(preprocessor.size, limits.min)
        high = np.full(preprocessor.size, limits.max)
        return EncodedBox(low, high, dtype, origin)
    with np.errstate(over="ignore"):  # a bound that float32 cannot represent becomes infinite
        low = space.low.ravel().astype(dtype)
        high = space.high.ravel().astype(dtype)
        return EncodedBox(low, high, dtype, origin)
