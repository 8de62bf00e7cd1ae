"""Observations on their way from Stable-Baselines3 to a model."""

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
    """Encodes batches of observations, and finds their action masks.

    Args:
        policy: The policy, built for the environment's own spaces.
        space: The observation space Stable-Baselines3 shows; flat ones, images transposed by it, or the own one.
        origin: Where flat spaces come from, or None.

    Attributes:
        encode: Maps observations, a tensor or a dict of tensors `[B, ...]`, to encoded ones `[B, *encoded shape]`.
    """

    def __init__(self, policy: Policy, space: Any, origin: Origin | None) -> None:
        self.policy, self.flat = policy, origin is not None
        layout = policy.config.get("image_layout", "hwc")
        self._numpy = structure(space, layout)
        self.encode = encoder(policy.preprocessor, space, layout, self.flat, policy.preprocess)
        self._mask_key = MASK if self.flat and isinstance(space, spaces.Dict) else policy.masks.key
        # A mask that stands in the observation as its columns needs no more than a cast.
        leaf = space[self._mask_key] if self._mask_key is not None else None
        bits = policy.resolution.request.action is not None and policy.resolution.request.action.kind == "multi_binary"
        self.columns = self.flat or (leaf is not None and leaf.shape == (policy.masks.size,) and not bits)

    def mask(self, obs: Any, given: Any = None, *, check: bool = True) -> Tensor | None:
        """Return the action masks of observations, boolean `[B, m]`, or None.

        Args:
            obs: Observations.
            given: Masks from elsewhere, an array or tensor of their columns; both must allow an action.
            check: Refuse rows in which nothing is allowed; off for stored ones, among which padding stands.

        Raises:
            ActionMaskError: A row allows nothing.
        """
        found: Tensor | None = None
        if self._mask_key is not None:
            found = obs[self._mask_key]
            found = found.bool() if self.columns else _tensor(self.policy.action_mask(self._numpy(obs)), obs)
        if given is not None:
            own = torch.as_tensor(given, device=_device(obs))
            own = own.reshape(-1, self.policy.masks.size).bool()
            found = own if found is None else found & own
        if found is not None and check:
            self.policy.masks.matrix(found.cpu().numpy())
        return found


def encoder(
    preprocessor: Preprocessor, space: Any, layout: str, flat: bool, preprocess: Callable[[Any], Array]
) -> Callable[[Any], Tensor]:
    """Return what encodes observations: tensor operations where they do, else NumPy's way round.

    Args:
        preprocessor: The preprocessor of the environment's own space.
        space: The space Stable-Baselines3 shows.
        layout: The model config's `image_layout`.
        flat: Whether the observations are encoded already, as vectors.
        preprocess: Encodes a batch of the environment's own observations, where tensor operations cannot.
    """
    shape = preprocessor.shape
    if flat and isinstance(space, spaces.Dict):
        return lambda obs: obs[OBS].reshape(-1, *shape)
    if flat:
        return lambda obs: obs.reshape(-1, *shape)
    # Observations of a Box may reach the model as they are.
    if isinstance(space, spaces.Box) and preprocessor.observation_space is preprocessor.info.space:
        if is_transposed(space, layout):
            # One copy of bytes; in this order, convolutions read floats without another.
            return lambda obs: obs.permute(0, 2, 3, 1).contiguous()
        return (lambda obs: obs.float()) if space.dtype == np.float64 else (lambda obs: obs)
    numpy = structure(space, layout)
    return lambda obs: _tensor(preprocess(numpy(obs)), obs)


def structure(space: Any, layout: str) -> Callable[[Any], Any]:
    """Return what turns tensors into a batch of the environment's own observations, NumPy arrays."""
    if isinstance(space, spaces.Dict):
        parts = {key: structure(child, layout) for key, child in space.spaces.items()}
        return lambda obs: {key: part(obs[key]) for key, part in parts.items()}
    shape, moved = tuple(space.shape or ()), is_transposed(space, layout)

    def array(obs: Any) -> Array:
        # Stored Discrete observations are [B, 1].
        values: Array = obs.detach().cpu().numpy().reshape(-1, *shape).astype(space.dtype, copy=False)
        return np.ascontiguousarray(np.moveaxis(values, 1, -1)) if moved else values

    return array


def _tensor(array: Array | None, obs: Any) -> Tensor:
    """Return an array as a tensor where the observations are; float64 becomes float32."""
    assert array is not None
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return (tensor.float() if tensor.dtype is torch.float64 else tensor).to(_device(obs))


def _device(obs: Any) -> torch.device:
    """Return where observations are."""
    one: Tensor = next(iter(obs.values())) if isinstance(obs, Mapping) else obs
    return one.device
