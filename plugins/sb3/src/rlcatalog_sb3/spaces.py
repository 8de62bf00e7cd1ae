"""Flat spaces for Stable-Baselines3, which remember the environment's original spaces."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from rlcatalog import Catalog, SpaceInfo, default_catalog
from rlcatalog.errors import ActionRangeWarning, ModelContractError
from rlcatalog.frameworks import Array
from rlcatalog.spaces import is_image

Space = spaces.Space[Any]

#: Keys in the Dict observations of a flattened environment with action masks.
OBS = "obs"
MASK = "action_mask"
#: Attribute of a flat action space that stores its origin. An attribute is enough, because wrappers
#: of vector environments replace only observation spaces.
ORIGIN = "rlcatalog_origin"
#: Initial values of Stable-Baselines3's own nets for DQN, SAC and TD3, which are PyTorch's.
OFF_POLICY_INIT = {"init": "fan_in_uniform"}
#: The order of layers in the own nets of sb3-contrib's RecurrentPPO (`RecurrentActorCriticPolicy`),
#: and the biases of `torch.nn.LSTM`.
RECURRENT_DEFAULTS = {"memory_first": True, "lstm_two_biases": True}


@dataclass(frozen=True)
class Origin:
    """Origin of flat spaces. Two origins are equal if their spaces and encodings are equal.

    Attributes:
        observation_space: The environment's observation space.
        action_space: The environment's action space.
        config: The model config that the environment was flattened with.
        encoding: The settings that affect flat observations and actions, as plain data for
            comparison.
        catalog: The catalog that the environment was flattened with; None for the process's
            default.
        has_masks: Whether the flattened environment adds masks to its observations; None in files
            of earlier versions, which do not say it.
    """

    observation_space: Space
    action_space: Space
    config: Mapping[str, Any] = field(compare=False)
    encoding: Mapping[str, Any]
    catalog: Catalog | None = field(default=None, compare=False)
    has_masks: bool | None = field(default=None, compare=False)


class EncodedBox(spaces.Box):
    """Space of observations encoded as flat vectors.

    Two such spaces are equal only if their origins are equal.

    Args:
        low: Lowest values `[size]`.
        high: Highest values `[size]`.
        dtype: Dtype of the values.
        origin: Origin of the space.
    """

    def __init__(self, low: Array, high: Array, dtype: np.dtype[Any], origin: Origin) -> None:
        super().__init__(low, high, dtype=dtype.type)
        self.origin = origin

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncodedBox):
            return False
        return super().__eq__(other) and self.origin == other.origin

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        encoding = ", ".join(f"{key}={value!r}" for key, value in self.origin.encoding.items())
        return (
            f"EncodedBox({self.shape}, {self.dtype}, from {self.origin.observation_space}, with"
            f" {encoding})"
        )


def origin_of(observation_space: Space, action_space: Space | None = None) -> Origin | None:
    """Return the origin of flat spaces, or None for other spaces."""
    box = observation_space
    if isinstance(observation_space, spaces.Dict) and OBS in observation_space.spaces:
        box = observation_space.spaces[OBS]
    if isinstance(box, EncodedBox):
        return box.origin
    # Another wrapper may have replaced the observation space. The action space still stores the
    # origin, in an attribute that spaces of other environments lack.
    origin = getattr(action_space, ORIGIN, None)
    return origin if isinstance(origin, Origin) else None


class Lookup(NamedTuple):
    """Inputs for looking up parts for Stable-Baselines3's spaces.

    Attributes:
        origin: Origin of flat spaces, or None.
        catalog: The catalog for the parts: the given one, the flattened environment's, or the
            process's.
        config: The model config: the given one, or the flattened environment's.
        values: The parsed config.
        layout: The config's `image_layout`.
        observation_space: The environment's observation space.
        action_space: The environment's action space.
    """

    origin: Origin | None
    catalog: Catalog
    config: Mapping[str, Any] | None
    values: Mapping[str, Any]
    layout: str | None
    observation_space: Space
    action_space: Space

    @classmethod
    def of(
        cls,
        observation_space: Space,
        action_space: Space,
        config: Mapping[str, Any] | None,
        catalog: Catalog | None,
    ) -> Lookup:
        """Return the inputs for Stable-Baselines3's spaces, a given config and a given catalog.

        Raises:
            ModelContractError: Another wrapper has added masks to the flattened observations.
        """
        origin = origin_of(observation_space, action_space)
        if origin is not None:
            _refuse_added_masks(origin, observation_space)
            catalog = catalog or origin.catalog
            if config is None:
                config = origin.config
        catalog = catalog or default_catalog()
        values = catalog.parse_config(config)
        layout = values.get("image_layout")
        if origin is None:
            env_observation_space = untransposed(observation_space, layout)
            env_action_space = action_space
        else:
            env_observation_space = origin.observation_space
            env_action_space = origin.action_space
        return cls(origin, catalog, config, values, layout, env_observation_space, env_action_space)


def _refuse_added_masks(origin: Origin, observation_space: Space) -> None:
    """Raise an error if another wrapper than `FlattenSpaces` has added masks to flat observations.

    The algorithm would train with them, but a policy for the original spaces would not mask.
    """
    if not isinstance(observation_space, spaces.Dict) or MASK not in observation_space.spaces:
        return
    if origin.has_masks is False:  # not None, which says nothing
        raise ModelContractError(
            f"{MASK!r} was added to the observations of for_sb3 by a wrapper around it, so a policy"
            " for the environment inside would not mask. Put that wrapper inside, for_sb3(wrapper("
            "env)), or let rlcatalog move the masks: for_sb3(rlcatalog.wrap_env(env))."
        )


@contextmanager
def ignore_action_ranges() -> Iterator[None]:
    """Context manager that hides the warning about actions that a new policy hardly reaches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ActionRangeWarning)
        yield


def engine_defaults(observation_space: Space, action_space: Space) -> dict[str, Any]:
    """Return model config defaults that match Stable-Baselines3's own nets.

    The actor and the critic have separate nets for vectors and share a net for images
    (`ActorCriticPolicy`, `net_arch`). A Gaussian's standard deviations do not depend on the
    observation (`DiagGaussianDistribution`). Layers begin with orthogonal weights (`ortho_init`).
    """
    defaults: dict[str, Any] = {
        "vf_share_layers": has_images(SpaceInfo.read(observation_space)),
        "init": "orthogonal",
    }
    if isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating):
        defaults["free_log_std"] = True
    return defaults


def q_learning_defaults() -> dict[str, Any]:
    """Return model config defaults that match Stable-Baselines3's own nets for DQN.

    The state value of a dueling network has the same layers as the advantages.
    """
    return {**OFF_POLICY_INIT, "vf_share_layers": True}


def has_images(info: SpaceInfo) -> bool:
    """Return whether a space contains an image."""
    return any(is_image(leaf) for leaf in info.walk())


def starts_at_zero(space: Space) -> bool:
    """Return whether a space counts its choices from 0; True for spaces without choices."""
    # Of Gymnasium's spaces, only Discrete (a number) and MultiDiscrete (an array) have a start.
    start = getattr(space, "start", 0)
    return not np.any(np.asarray(start) != 0)


def is_transposed(space: Space, layout: str | None) -> bool:
    """Return whether a space contains images whose channels have been moved to the front.

    Stable-Baselines3 moves the channels (`VecTransposeImage`) of uint8 images whose channels come
    last. A config with `image_layout="chw"` expects channels first.

    Args:
        space: The space from Stable-Baselines3.
        layout: The model config's `image_layout`.
    """
    # Stable-Baselines3 takes seconds to import, so it is imported at the first use.
    from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first

    if layout == "chw" or not isinstance(space, spaces.Box):
        return False
    return is_image_space(space) and is_image_space_channels_first(space)


def untransposed(space: Space, layout: str | None) -> Space:
    """Return an observation space with its images' channels moved back to the end; see
    `is_transposed`.
    """
    if isinstance(space, spaces.Dict):
        children = {key: untransposed(child, layout) for key, child in space.spaces.items()}
        # Callers notice by identity that nothing was moved.
        is_unchanged = all(children[key] is child for key, child in space.spaces.items())
        return space if is_unchanged else spaces.Dict(children)
    if not isinstance(space, spaces.Box) or not is_transposed(space, layout):
        return space
    low = np.moveaxis(space.low, 0, -1)
    high = np.moveaxis(space.high, 0, -1)
    return spaces.Box(low, high, dtype=space.dtype)
