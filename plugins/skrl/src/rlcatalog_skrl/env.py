"""Environment wrapper that builds a policy, and turns its raw actions into the environment's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from skrl.envs.wrappers.torch import Wrapper
from torch import Tensor

import rlcatalog
from rlcatalog import Catalog, Policy
from rlcatalog.errors import NotServedError
from rlcatalog_skrl.flat_rows import FlatRows, Space, free_numbers


class CatalogEnv(Wrapper):
    """Environment for skrl whose policy comes from the catalog.

    skrl stores rows of numbers. This wrapper turns observations into such rows, and the policy's
    raw actions into actions of the environment, on their device.

    Args:
        env: The environment: one that `skrl.envs.wrappers.torch.wrap_env` has wrapped, or one that
            takes and returns tensors in the structure of its spaces. Such an object has `num_envs`,
            `reset()` and `step(actions)` with the results of a Gymnasium vector environment, and
            begins new episodes itself.
        model_config: The model config.
        observation_space: The space of one observation; None means the environment's
            `single_observation_space` or `observation_space`.
        action_space: The space of one action; None means the environment's.
        catalog: The catalog that chooses the parts; None means the process's default catalog.

    Attributes:
        policy: The policy, built for the spaces and on the environment's device.

    Raises:
        NotServedError: The config needs past steps, or a space has no fixed size.

    Example:
        >>> env = CatalogEnv(wrap_env(simulator), {"fcnet_hiddens": [64, 64]})  # doctest: +SKIP
        >>> model = CatalogModel(env)  # doctest: +SKIP
    """

    def __init__(
        self,
        env: Any,
        model_config: Mapping[str, Any] | None = None,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        super().__init__(env)
        self.inner_env = env
        if observation_space is None:
            observation_space = _space_of(env, "observation_space")
        if action_space is None:
            action_space = _space_of(env, "action_space")
        self.rows = FlatRows(observation_space)
        #: The rows of actions that a wrapper of skrl inside takes; None without one.
        self._action_rows: FlatRows | None = None
        if isinstance(env, Wrapper):
            self._action_rows = FlatRows(action_space)
        self.policy = _build_policy(observation_space, action_space, model_config, catalog)
        self.policy.to(str(self.device))

    @property
    def device(self) -> torch.device:
        """The device of the environment's tensors."""
        return torch.device(self.inner_env.device)

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return int(self.inner_env.num_envs)

    @property
    def observation_space(self) -> Space:
        """The space of an observation's row."""
        return free_numbers(self.rows.size)

    @property
    def action_space(self) -> Space:
        """The space of a raw action's row."""
        return free_numbers(self.policy.action_codec.width)

    @property
    def state_space(self) -> None:
        """None: what only a critic sees is a part of the observation; see `obs_groups`."""

    def reset(self) -> tuple[Tensor, dict[str, Any]]:
        """Begin new episodes, and return the first observations as rows."""
        obs, info = self.inner_env.reset()
        return self._row_of(obs), info

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Any]:
        """Turn raw actions `[N, width]` into actions of the environment, and step it."""
        env_actions = self.policy.adapt(actions, on_device=True)
        if self._action_rows is not None:
            env_actions = self._action_rows.flatten(env_actions)
        obs, rewards, terminated, truncated, info = self.inner_env.step(env_actions)
        return (
            self._row_of(obs),
            rewards.reshape(-1, 1),
            terminated.reshape(-1, 1),
            truncated.reshape(-1, 1),
            info,
        )

    def _row_of(self, obs: Any) -> Tensor:
        if self._action_rows is not None:
            rows: Tensor = obs  # the wrapper inside has made them
            return rows
        return self.rows.flatten(obs)

    def state(self) -> None:
        """Return None; see `state_space`."""

    def render(self, *arguments: Any, **options: Any) -> Any:
        """Render the environment."""
        return self.inner_env.render(*arguments, **options)

    def close(self) -> None:
        """Close the environment."""
        self.inner_env.close()


def _space_of(env: Any, name: str) -> Space:
    """Return the space of one environment."""
    single: Space | None = getattr(env, f"single_{name}", None)
    if single is not None:
        return single
    space: Space = getattr(env, name)
    return space


def _build_policy(
    observation_space: Space,
    action_space: Space,
    config: Mapping[str, Any] | None,
    catalog: Catalog | None,
) -> Policy:
    """Build a policy with defaults like those of skrl's own nets: the critic has layers of its own,
    a Gaussian's standard deviations do not depend on the observation, and layers begin with
    PyTorch's values.
    """
    is_float_box = isinstance(action_space, spaces.Box) and action_space.dtype.kind == "f"
    defaults = {
        "vf_share_layers": False,
        "free_log_std": is_float_box,
        "init": "fan_in_uniform",
    }
    policy: Policy = rlcatalog.build(
        observation_space, action_space, config, "torch", catalog=catalog, defaults=defaults
    )
    _check_policy(policy)
    return policy


def _check_policy(policy: Policy) -> None:
    """Raise an error for a policy that skrl cannot train."""
    if policy.views or policy.memory.initial_past:
        explicit = policy.resolution.config.explicit
        keys = [key for key in explicit if "prev_" in key] or ["custom_model"]
        raise NotServedError(
            f"{policy.model_name} reads past steps, which skrl does not store. Remove from the"
            f" model config: {', '.join(keys)}."
        )
    if not policy.has_value:
        raise NotServedError(
            f"{policy.model_name} has no value_function(), which PPO needs. Set critic={{}} in the"
            " model config."
        )
    if policy.overrides("custom_loss"):
        raise NotServedError(
            f"{policy.model_name}.custom_loss: skrl does not add a model's loss to its own, so the"
            " model would train without it. Remove the method, or train with rlcatalog-ppo."
        )
