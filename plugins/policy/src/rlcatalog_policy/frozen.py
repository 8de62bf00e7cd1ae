"""Frozen policies, which compute actions faster than the framework's modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rlcatalog.actions import NOT_GIVEN
from rlcatalog.choice import Explanation
from rlcatalog.errors import CatalogError, MissingPluginError, NotServedError, reason
from rlcatalog.frameworks import Array, Step
from rlcatalog_policy.acting import take_step
from rlcatalog_policy.encoder import to_array
from rlcatalog_policy.policy import Policy, load_extension


class FrozenBackend(Protocol):
    """Object that chooses a frozen policy's actions, faster than the policy's backend.

    Attributes:
        reason: Why this object is not faster (the policy cannot be frozen, or its results differ);
            None if it is faster.
    """

    reason: str | None

    def act(
        self,
        obs: Array,
        views: Mapping[str, Any],
        memory: tuple[Array, ...],
        mask: Array | None,
        explore: bool,
    ) -> tuple[Any, ...]:
        """Choose actions; see `rlcatalog.frameworks.Backend.act`."""

    def update(self) -> None:
        """Act with the current weights."""

    def random_state(self) -> Mapping[str, Array]:
        """Return the state of the random generators, under names that engines do not use."""

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore the random generators' states, as returned by `random_state`; ignore other
        entries.
        """


class Frozen(Policy):
    """A policy that acts faster, created by `Policy.freeze`.

    `act`, `act_encoded` and steppers are faster; all other attributes come from the policy. It
    samples actions from a separate generator.

    Attributes:
        policy: The policy.
        reason: Why the frozen policy is not faster than the policy; None if it is faster.
    """

    def __init__(
        self, policy: Policy, frozen: FrozenBackend | None, reason: str | None = None
    ) -> None:
        self.policy, self._frozen, self._reason = policy, frozen, reason
        self._acting: Any = frozen or policy.backend

    @classmethod
    def of(cls, policy: Policy, rows: int, seed: int | None) -> Frozen:
        """Return the frozen policy; see `Policy.freeze`."""
        with policy._passing:
            try:
                return cls(policy, load_extension(policy.framework, "freeze")(policy, rows, seed))
            except CatalogError as error:
                return cls(
                    policy,
                    None,
                    str(error) if isinstance(error, MissingPluginError) else reason(error),
                )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["policy"], name)

    @property
    def reason(self) -> str | None:
        """Why the frozen policy is not faster than the policy; None if it is faster."""
        return self._reason if self._frozen is None else self._frozen.reason

    def act(
        self,
        obs: Any,
        state: Any = None,
        *,
        prev_reward: Any = None,
        mask: Any = NOT_GIVEN,
        explore: bool = True,
    ) -> Step:
        """Choose actions for a batch of observations; see `Policy.act`."""
        policy = self.policy
        encoded, mask = policy.encoder.encode_batch(obs, mask)
        return take_step(policy, self._acting, encoded, state, prev_reward, mask, explore)

    def act_encoded(
        self,
        encoded: Any,
        state: Any = None,
        *,
        prev_reward: Any = None,
        mask: Any = NOT_GIVEN,
        explore: bool = True,
    ) -> Step:
        """Choose actions for encoded observations; see `Policy.act_encoded`.

        The step is NumPy, even for tensors.
        """
        policy = self.policy
        mask = to_array(policy.encoder.resolve_mask(encoded, mask))
        return take_step(policy, self._acting, to_array(encoded), state, prev_reward, mask, explore)

    def update(self) -> None:
        """Copy the policy's current weights. Call this after each learning step."""
        if self._frozen is not None:
            with self._passing:
                self._frozen.update()

    def random_state(self) -> dict[str, Array]:
        """Return the states of the random generators by name, including the policy's."""
        own = {} if self._frozen is None else dict(self._frozen.random_state())
        return {**self.policy.random_state(), **own}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore the random generators' states, as returned by `random_state`, to repeat the same
        actions.
        """
        self.policy.set_random_state(state)
        if self._frozen is not None:
            self._frozen.set_random_state(state)

    def to(self, device: str) -> Policy:
        """Raise an error, because a frozen policy cannot move to a different device.

        Raises:
            NotServedError: The device differs.
        """
        if device != self.policy.device:
            raise NotServedError(
                "a frozen policy cannot be moved: move the policy, and freeze it again."
            )
        return self

    def freeze(self, rows: int = 1, *, seed: int | None = None) -> Frozen:
        """Freeze the policy again."""
        return self.policy.freeze(rows, seed=seed)

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        """Return a copy of the policy; the copy is not frozen."""
        return self.policy.__deepcopy__(memo)

    def __reduce__(self) -> Any:
        """Pickle the policy; the unpickled policy is not frozen."""
        return self.policy.__reduce__()

    def __repr__(self) -> str:
        return f"Frozen: {self._how()}\n{self.policy!r}"

    def explain(self) -> Explanation:
        """Return why these parts were chosen, and whether the frozen policy acts faster."""
        return Explanation(self.resolution, self._how())

    def _how(self) -> str:
        return f"no faster: {self.reason}" if self.reason else "acts from a recorded graph"
