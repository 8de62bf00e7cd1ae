"""Conversion of observations from Stable-Baselines3 for a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import Tensor

from rlcatalog import Policy, Preprocessor
from rlcatalog.frameworks import Array
from rlcatalog_policy import check_observations
from rlcatalog_sb3.spaces import MASK, OBS, Origin, Space, is_transposed

#: Action masks that Stable-Baselines3 passes beside the observations.
Masks: TypeAlias = "Array | Tensor | None"
#: Function that encodes observations from Stable-Baselines3 `[B, *encoded shape]`.
Encode: TypeAlias = "Callable[[Any], Tensor]"


class Observer:
    """Encoder for batches of observations, which also extracts their action masks.

    Args:
        policy: The policy, built for the environment's spaces.
        space: Stable-Baselines3's observation space: flat, with transposed images, or unchanged.
        origin: Origin of flat spaces, or None.

    Attributes:
        encode: Function that maps observations, a tensor or a dict of tensors `[B, ...]`, to
            encoded observations `[B, *encoded shape]`.
        has_masks: Whether the observations contain action masks.
        has_mask_columns: Whether they contain masks as the columns that the distribution reads, so
            that the masks only need a cast.
    """

    def __init__(self, policy: Policy, space: Space, origin: Origin | None) -> None:
        self.policy = policy
        layout = policy.config.get("image_layout")
        self._to_env_arrays = make_array_converter(space, layout)
        self._mask_key = policy.masks.key
        if origin is None:  # the environment is not flattened
            self.encode = make_encoder(policy.preprocessor, space, layout, policy.preprocess)
            self.has_mask_columns = _stores_masks_as_columns(space, policy)
        else:
            has_masks = isinstance(space, spaces.Dict)
            self.encode = make_flat_encoder(policy.preprocessor.shape, has_masks=has_masks)
            self.has_mask_columns = has_masks
            if has_masks:
                self._mask_key = MASK
        #: Whether entries that only a critic sees may be missing; a flat vector contains all.
        self._may_lack_entries = origin is None and policy.encoder.policy_encoder is not None
        self.has_masks = self._mask_key is not None

    def encode_for_acting(self, obs: PyTorchObs) -> Tensor:
        """Return encoded observations `[B, *encoded shape]` for the policy without its critic.

        Entries of Dict observations that only the critic sees may be missing; they are encoded as
        zeros.

        Raises:
            ObservationError: An entry is missing that the policy sees.
            NonFiniteError: An observation contains NaN or infinity.
        """
        encoder = self.policy.encoder
        if not self._may_lack_entries or not encoder.lacks_critic_entries(obs):
            return self.encode(obs)
        env_arrays = self._to_env_arrays(obs)
        # The caller reads the masks.
        batch = encoder.encode_batch(env_arrays, mask=None)
        check_observations(batch.obs, self.policy.preprocessor)
        return _to_tensor(batch.obs, _device(obs))

    def mask(self, obs: PyTorchObs, given: Masks = None) -> Tensor | None:
        """Return the action masks for acting, boolean `[B, m]`, or None.

        Args:
            obs: Observations.
            given: Masks that are not in the observations, as an array or tensor of columns. An
                action must be allowed by both masks.

        Raises:
            ActionMaskError: A row does not allow any action.
        """
        mask = self.stored_mask(obs, given)
        if mask is not None:
            self.policy.masks.matrix(mask.cpu().numpy())  # raises the error
        return mask

    def stored_mask(self, obs: PyTorchObs, given: Masks = None) -> Tensor | None:
        """Return the action masks of stored observations; see `mask` for the arguments.

        They are not checked, because stored rows include padding, whose masks allow nothing.
        """
        mask = self._mask_in_observation(obs)
        if given is not None:
            columns = torch.as_tensor(given, device=_device(obs))
            given_mask = columns.reshape(-1, self.policy.masks.size).bool()
            mask = given_mask if mask is None else mask & given_mask
        return mask

    def _mask_in_observation(self, obs: PyTorchObs) -> Tensor | None:
        """Return the masks that the observations contain, boolean `[B, m]`, or None."""
        if self._mask_key is None:
            return None
        if self.has_mask_columns:
            assert isinstance(obs, Mapping)  # only Dict observations contain masks
            return obs[self._mask_key].bool()
        mask = self.policy.action_mask(self._to_env_arrays(obs))
        assert mask is not None  # there is a mask key
        return _to_tensor(mask, _device(obs))


def _stores_masks_as_columns(space: Space, policy: Policy) -> bool:
    """Return whether the environment's own observations contain masks as columns."""
    if policy.masks.key is None:
        return False
    # A MultiBinary's mask stores one value for each bit, which stands for two columns.
    if policy.resolution.action.kind == "multi_binary":
        return False
    assert isinstance(space, spaces.Dict)  # only Dict observations contain masks
    return bool(space[policy.masks.key].shape == (policy.masks.size,))


def make_encoder(
    preprocessor: Preprocessor,
    space: Space,
    layout: str | None,
    preprocess: Callable[[Any], Array],
) -> Encode:
    """Return a function that encodes the observations of an environment that is not flattened.

    It stays in PyTorch if possible, because a conversion to NumPy and back takes time.

    Args:
        preprocessor: The preprocessor for the environment's observation space.
        space: The space from Stable-Baselines3.
        layout: The model config's `image_layout`.
        preprocess: Function that encodes a batch of the environment's observations with NumPy.
    """
    # If the preprocessor changes nothing, its encoded observations have the environment's space.
    keeps_observations = preprocessor.observation_space is preprocessor.info.space
    if keeps_observations and isinstance(space, spaces.Box):
        return _make_box_encoder(space, layout)
    to_env_arrays = make_array_converter(space, layout)

    def encode_with_numpy(obs: PyTorchObs) -> Tensor:
        return _to_tensor(preprocess(to_env_arrays(obs)), _device(obs))

    return encode_with_numpy


def make_flat_encoder(shape: tuple[int, ...], *, has_masks: bool) -> Encode:
    """Return a function that restores the encoded shape of flat vectors.

    Args:
        shape: Shape of one encoded observation.
        has_masks: Whether the observations are Dicts with a vector and a mask.
    """

    def encode_vectors(obs: Tensor) -> Tensor:
        return obs.reshape(-1, *shape)

    def encode_vectors_with_masks(obs: Mapping[str, Tensor]) -> Tensor:
        return obs[OBS].reshape(-1, *shape)

    return encode_vectors_with_masks if has_masks else encode_vectors


def _make_box_encoder(space: spaces.Box, layout: str | None) -> Encode:
    """Return an encoder for Box observations that the preprocessor does not change."""

    def move_channels_to_end(obs: Tensor) -> Tensor:
        # The only copy, and one of bytes: convolutions read floats in this layout without another.
        return obs.permute(0, 2, 3, 1).contiguous()

    def to_float32(obs: Tensor) -> Tensor:
        return obs.float()

    def keep(obs: Tensor) -> Tensor:
        return obs

    if is_transposed(space, layout):
        return move_channels_to_end
    if space.dtype == np.float64:
        return to_float32
    return keep


def make_array_converter(space: Space, layout: str | None) -> Callable[[Any], Any]:
    """Return a function that converts tensors to a batch of the environment's observations, as
    NumPy arrays.
    """
    if isinstance(space, spaces.Dict):
        converters = {
            key: make_array_converter(child, layout) for key, child in space.spaces.items()
        }
        return partial(_convert_entries, converters)

    shape = tuple(space.shape or ())
    has_transposed_images = is_transposed(space, layout)

    def convert(obs: Tensor) -> Array:
        array: Array = obs.detach().cpu().numpy()
        # Stable-Baselines3 stores Discrete observations as [B, 1] instead of [B].
        array = array.reshape(-1, *shape)
        array = array.astype(space.dtype, copy=False)
        if has_transposed_images:
            array = np.ascontiguousarray(np.moveaxis(array, 1, -1))
        return array

    return convert


def _convert_entries(
    converters: Mapping[str, Callable[[Tensor], Array]], obs: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Convert each entry of a Dict observation with the function for its key.

    Entries that only a critic sees may be missing.
    """
    return {key: converters[key](entry) for key, entry in obs.items()}


def _to_tensor(array: Array, device: torch.device) -> Tensor:
    """Convert an array to a tensor on a device; float64 becomes float32."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if tensor.dtype is torch.float64:
        tensor = tensor.float()
    return tensor.to(device)


def _device(obs: PyTorchObs) -> torch.device:
    """Return the device on which the observations are."""
    if isinstance(obs, Mapping):
        obs = next(iter(obs.values()))
    return obs.device
