"""Environment wrapper that turns raw actions into actions of the environment's space."""

from __future__ import annotations

from typing import Any

from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog_rsl_rl.spaces import Space


class CatalogEnv(VecEnv):
    """An rsl_rl environment with spaces, for actions other than floats without bounds.

    rsl_rl stores raw actions, one row of numbers. This wrapper turns them into actions of the
    space, on their device, before the environment gets them. Other attributes are the
    environment's.

    Args:
        env: The environment. Its `step` takes a batch of actions of `action_space`: a tensor, or a
            tuple or dict of tensors for a composite space.
        action_space: The space of one action; None means floats without bounds.
        observation_space: The space of one observation, a Dict with an entry for each group, or the
            space of the only group. Needed for bounds, integers and masks of other kinds; None
            reads it from the observations.

    Example:
        >>> env = CatalogEnv(simulator, action_space=gymnasium.spaces.Discrete(2))  # doctest: +SKIP
        >>> runner = OnPolicyRunner(env, train_cfg)  # doctest: +SKIP
    """

    def __init__(
        self,
        env: VecEnv,
        action_space: Space | None = None,
        observation_space: Space | None = None,
    ) -> None:
        self.env = env
        self.action_space = action_space
        self.observation_space = observation_space
        #: The policy, which `CatalogPPO` sets.
        self.policy: Policy | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # not yet set, as in a copy
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def num_actions(self) -> int:
        """Number of raw values of an action."""
        return self._policy().action_codec.width

    @property
    def episode_length_buf(self) -> Tensor:
        """Steps of each episode so far; the runner may set them."""
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, lengths: Tensor) -> None:
        self.env.episode_length_buf = lengths

    def get_observations(self) -> TensorDict:
        """Return the current observations."""
        return self.env.get_observations()

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Turn raw actions `[N, width]` into actions of the space, and step the environment."""
        return self.env.step(self._policy().adapt(actions, on_device=True))

    def _policy(self) -> Policy:
        if self.policy is None:
            raise NotServedError(
                "CatalogEnv: the policy is not built yet. Set algorithm['class_name'] to"
                " 'rlcatalog_rsl_rl:CatalogPPO'."
            )
        return self.policy
