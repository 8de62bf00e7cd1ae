"""Conversion of observations from Stable-Baselines3 for a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlcatalog import Policy, Preprocessor
from rlcatalog_sb3.spaces import MASK, OBS, Origin, is_transposed

Array = np.ndarray[Any, Any]


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
    """

    def __init__(self, policy: Policy, space: Any, origin: Origin | None) -> None:
        self.policy, self.flat = policy, origin is not None
        layout = policy.config.get("image_layout")
        self._numpy = structure(space, layout)
        self.encode = encoder(policy.preprocessor, space, layout, self.flat, policy.preprocess)
        self._mask_key = MASK if self.flat and isinstance(space, spaces.Dict) else policy.masks.key
        self.has_masks = self._mask_key is not None
        # Mask columns in the observation only need a cast.
        leaf = space[self._mask_key] if self._mask_key is not None else None
        bits = policy.resolution.action.kind == "multi_binary"
        self.columns = self.flat or (
            leaf is not None and leaf.shape == (policy.masks.size,) and not bits
        )

    def mask(self, obs: Any, given: Any = None, *, check: bool = True) -> Tensor | None:
        """Return the observations' action masks, boolean `[B, m]`, or None.

        Args:
            obs: Observations.
            given: Masks that are not in the observations, as an array or tensor of columns. An
                action must be allowed by both masks.
            check: Whether to reject rows that do not allow any action; False for stored rows, which
                include padding.

        Raises:
            ActionMaskError: A row does not allow any action.
        """
        found: Tensor | None = None
        if self._mask_key is not None:
            found = obs[self._mask_key]
            found = (
                found.bool()
                if self.columns
                else _tensor(self.policy.action_mask(self._numpy(obs)), obs)
            )
        if given is not None:
            own = torch.as_tensor(given, device=_device(obs))
            own = own.reshape(-1, self.policy.masks.size).bool()
            found = own if found is None else found & own
        if found is not None and check:
            self.policy.masks.matrix(found.cpu().numpy())
        return found


def encoder(
    preprocessor: Preprocessor,
    space: Any,
    layout: str | None,
    flat: bool,
    preprocess: Callable[[Any], Array],
) -> Callable[[Any], Tensor]:
    """Return a function that encodes observations, with tensor operations if possible, otherwise
    with NumPy.

    Args:
        preprocessor: The preprocessor for the environment's observation space.
        space: The space from Stable-Baselines3.
        layout: The model config's `image_layout`.
        flat: Whether the observations are already encoded as vectors.
        preprocess: Function that encodes a batch of the environment's observations, used if tensor
            operations cannot.
    """
    shape = preprocessor.shape
    if flat and isinstance(space, spaces.Dict):
        return lambda obs: obs[OBS].reshape(-1, *shape)
    if flat:
        return lambda obs: obs.reshape(-1, *shape)
    # Box observations may reach the model unchanged.
    if isinstance(space, spaces.Box) and preprocessor.observation_space is preprocessor.info.space:
        if is_transposed(space, layout):
            # A single copy, of bytes; convolutions can read floats in this layout without a further
            # copy.
            return lambda obs: obs.permute(0, 2, 3, 1).contiguous()
        return (lambda obs: obs.float()) if space.dtype == np.float64 else (lambda obs: obs)
    numpy = structure(space, layout)
    return lambda obs: _tensor(preprocess(numpy(obs)), obs)


def structure(space: Any, layout: str | None) -> Callable[[Any], Any]:
    """Return a function that converts tensors to a batch of the environment's observations, as
    NumPy arrays.
    """
    if isinstance(space, spaces.Dict):
        parts = {key: structure(child, layout) for key, child in space.spaces.items()}
        return lambda obs: {key: part(obs[key]) for key, part in parts.items()}
    shape, moved = tuple(space.shape or ()), is_transposed(space, layout)

    def array(obs: Any) -> Array:
        # Stored Discrete observations are [B, 1].
        values: Array = (
            obs.detach().cpu().numpy().reshape(-1, *shape).astype(space.dtype, copy=False)
        )
        return np.ascontiguousarray(np.moveaxis(values, 1, -1)) if moved else values

    return array


def _tensor(array: Array | None, obs: Any) -> Tensor:
    """Convert an array to a tensor on the observations' device; float64 becomes float32."""
    assert array is not None
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return (tensor.float() if tensor.dtype is torch.float64 else tensor).to(_device(obs))


def _device(obs: Any) -> torch.device:
    """Return the device on which the observations are."""
    one: Tensor = next(iter(obs.values())) if isinstance(obs, Mapping) else obs
    return one.device
