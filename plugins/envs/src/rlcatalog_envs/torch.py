"""Adapter for vector environments that return PyTorch tensors, such as simulators on a GPU.

It copies the tensors of each step to the host, for engines that work on NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from rlcatalog.catalog import vector_source
from rlcatalog.errors import CatalogWarning, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import read_attribute

#: What environments call the last observations of episodes that have ended: Gymnasium since 1.0,
#: and ManiSkill.
_FINAL_OBS = ("final_obs", "final_observation")


def adapt(env: Any) -> TensorEnvs:
    """Return a vector environment whose methods take and return NumPy arrays.

    Args:
        env: A vector environment with `num_envs`, `device`, `single_observation_space` and
            `single_action_space`, whose `reset` and `step` return tensors `[N, ...]`.

    Raises:
        NotServedError: It has no such spaces.
    """
    return TensorEnvs(env)


class TensorEnvs(VectorEnv[Any, Any, Any]):
    """Vector environment that copies the tensors of another one to the host.

    **Autoreset**: the mode in the environment's metadata; if it has none, SAME_STEP, because
    simulators reset their environments in the step that ends an episode.

    **The last observation** of an episode is taken from `infos["final_obs"]` or
    `infos["final_observation"]`. If the environment gives none, it is the observation *before* the
    last step: an engine that estimates the value of a truncated episode then uses the value before
    the step, as rsl_rl does.

    **Masks**: an entry `action_mask` of the infos, or the method `action_masks()`.

    Args:
        env: The environment.

    Raises:
        NotServedError: It has no spaces for one environment.
    """

    def __init__(self, env: Any) -> None:
        name = type(read_attribute(env, "unwrapped", env)).__name__
        source = vector_source(env)
        observation_space = read_attribute(source, "single_observation_space")
        if observation_space is None:
            raise NotServedError(
                f"{name} has num_envs and device, but no single_observation_space and"
                " single_action_space, which say what one of its environments takes and returns."
                " Add them. An environment with the interface of rsl_rl trains with the package"
                " rlcatalog-rsl-rl, and one with the interface of skrl with rlcatalog-skrl."
            )
        self._env = env
        self._device = source.device
        self._has_warned = False
        self._obs: Any = None
        self.num_envs = int(source.num_envs)
        self.single_observation_space = observation_space
        self.single_action_space = source.single_action_space
        self.observation_space = batch_space(observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        metadata: Mapping[str, Any] = read_attribute(env, "metadata") or {}
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "name": name, **metadata}
        self._resets_at_once = self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
        action_masks = read_attribute(env, "action_masks")
        if callable(action_masks):
            self.action_masks = _on_host(action_masks)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, or in those that `options["reset_mask"]` selects.

        Warns:
            CatalogWarning: Once: each step copies its tensors to the host.
        """
        self._warn_once()
        arguments: dict[str, Any] = {}
        if seed is not None:
            arguments["seed"] = seed
        if options is not None:
            arguments["options"] = options
        obs, infos = self._env.reset(**arguments)
        self._obs = _obs_to_host(self.single_observation_space, obs)
        return self._obs, _infos_to_host(infos)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Take a step in every environment."""
        obs_before = self._obs
        tensors = _to_tensors(actions, self._device)
        obs, reward, terminated, truncated, infos = self._env.step(tensors)
        self._obs = _obs_to_host(self.single_observation_space, obs)
        ended = _to_host(terminated).astype(np.bool_) | _to_host(truncated).astype(np.bool_)
        host_infos = _infos_to_host(infos)
        if self._resets_at_once and ended.any():
            host_infos["final_obs"] = self._final_obs(infos, obs_before, ended)
            host_infos["_final_obs"] = ended
        return (
            self._obs,
            _to_host(reward),
            _to_host(terminated).astype(np.bool_),
            _to_host(truncated).astype(np.bool_),
            host_infos,
        )

    def close(self, **_: Any) -> None:
        """Close the environment."""
        close = read_attribute(self._env, "close")
        if callable(close):
            close()

    def _final_obs(self, infos: Mapping[str, Any], obs_before: Any, ended: Array) -> Array:
        """Return the last observations of the episodes that have ended, an array of objects `[N]`
        with None for the others.
        """
        batch = obs_before
        for key in _FINAL_OBS:
            if infos.get(key) is not None:
                batch = _obs_to_host(self.single_observation_space, infos[key])
        final_obs = np.full(self.num_envs, None, object)
        for row, obs in enumerate(iterate(self.observation_space, batch)):
            if ended[row]:
                final_obs[row] = obs
        return final_obs

    def _warn_once(self) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        warn_caller(
            f"{self.metadata['name']} returns tensors on {self._device}, and each step copies them"
            " to the host, because this engine works on NumPy arrays. To keep them on their"
            " device, train with rsl_rl or skrl: rlcatalog-rsl-rl and rlcatalog-skrl build the"
            " same policy for them.",
            CatalogWarning,
        )


def _on_host(action_masks: Callable[[], Any]) -> Callable[[], Array]:
    """Return a function that returns the masks of `action_masks` as an array."""

    def masks_on_host() -> Array:
        return _to_host(action_masks())

    return masks_on_host


def _to_host(value: Any) -> Array:
    """Return a tensor, or an array, as an array in the host's memory."""
    if isinstance(value, torch.Tensor):
        # A copy, because a simulator reuses its buffers, and `numpy()` would share them.
        return value.detach().to("cpu", copy=True).numpy()
    return np.array(value)


def _obs_to_host(space: spaces.Space[Any], obs: Any) -> Any:
    """Return observations as arrays with the structure and the dtypes of their space."""
    if isinstance(space, spaces.Dict):
        return {key: _obs_to_host(child, obs[key]) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_obs_to_host(child, part) for child, part in zip(space, obs, strict=True))
    return _to_host(obs).astype(space.dtype, copy=False)


def _infos_to_host(infos: Mapping[str, Any]) -> dict[str, Any]:
    """Return the infos with arrays in place of tensors, without the last observations, which are
    read by themselves.
    """
    entries: dict[str, Any] = {}
    for key, value in infos.items():
        if key.removeprefix("_") in _FINAL_OBS:
            continue
        entries[key] = _to_host(value) if isinstance(value, torch.Tensor) else value
    return entries


def _to_tensors(actions: Any, device: Any) -> Any:
    """Return a batch of actions as tensors on a device, in the same structure."""
    if isinstance(actions, Mapping):
        return {key: _to_tensors(part, device) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(_to_tensors(part, device) for part in actions)
    return torch.as_tensor(np.asarray(actions), device=device)
