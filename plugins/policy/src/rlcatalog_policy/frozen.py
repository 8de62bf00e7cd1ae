"""Frozen policies: the same policy, its actions computed by something faster than its framework's modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rlcatalog.choice import Explanation
from rlcatalog.errors import CatalogError, MissingPluginError, NotServedError, reason
from rlcatalog.frameworks import Array, Step
from rlcatalog_policy.encoder import to_array
from rlcatalog_policy.policy import Policy, load_extension


class FrozenBackend(Protocol):
    """What chooses actions for a frozen policy, faster than its backend.

    Attributes:
        reason: Why it is not faster: it found itself unable, or wrong; None where it is.
    """

    reason: str | None

    def act(
        self, obs: Array, views: Mapping[str, Any], memory: tuple[Array, ...], mask: Array | None, explore: bool
    ) -> tuple[Any, ...]:
        """Choose actions; see `rlcatalog.frameworks.Backend.act`."""

    def update(self) -> None:
        """Act with the weights of now."""

    def random_state(self) -> Mapping[str, Array]:
        """Return the state of what actions are drawn from, by names that engines do not use."""

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the state of what actions are drawn from, as `random_state` returned it; others may stand beside it."""


class Frozen(Policy):
    """A policy that acts faster, made by `Policy.freeze`.

    It is the policy with something else that chooses actions: `act`, `act_encoded` and steppers are faster, everything
    else is the policy's own. Its actions come from a generator of its own.

    Attributes:
        policy: The policy.
        reason: Why it acts as the policy does, and no faster; None where it is faster.
    """

    def __init__(self, policy: Policy, frozen: FrozenBackend | None, reason: str | None = None) -> None:
        self.policy, self._frozen, self._reason = policy, frozen, reason
        self._acting: Any = frozen or policy.backend

    @classmethod
    def of(cls, policy: Policy, rows: int, seed: int | None) -> Frozen:
        """Return a policy frozen; see `Policy.freeze`."""
        with policy._passing:
            try:
                return cls(policy, load_extension(policy.framework, "freeze")(policy, rows, seed))
            except CatalogError as error:
                return cls(policy, None, str(error) if isinstance(error, MissingPluginError) else reason(error))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["policy"], name)

    @property
    def reason(self) -> str | None:
        """Why it acts as the policy does, and no faster; None where it is faster."""
        return self._reason if self._frozen is None else self._frozen.reason

    def act(
        self, obs: Any, state: Any = None, *, prev_reward: Any = None, mask: Any = None, explore: bool = True
    ) -> Step:
        """Choose actions for a batch of observations; see `Policy.act`."""
        policy = self.policy
        encoded, mask = policy.encoder.encode_batch(obs, mask)
        return policy._step(self._acting, encoded, state, prev_reward, mask, explore)

    def act_encoded(
        self, encoded: Any, state: Any = None, *, prev_reward: Any = None, mask: Any = None, explore: bool = True
    ) -> Step:
        """Choose actions for encoded observations; see `Policy.act_encoded`. For tensors, too, the step is NumPy."""
        policy = self.policy
        mask = to_array(policy.encoder.resolve_mask(encoded, mask))
        return policy._step(self._acting, to_array(encoded), state, prev_reward, mask, explore)

    def update(self) -> None:
        """Take over the weights of now; to be called whenever they may have changed: after each learning step."""
        if self._frozen is not None:
            with self._passing:
                self._frozen.update()

    def random_state(self) -> dict[str, Array]:
        """Return the state of what actions are drawn from, by name, the policy's own among them."""
        own = {} if self._frozen is None else dict(self._frozen.random_state())
        return {**self.policy.random_state(), **own}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the state of what actions are drawn from, as `random_state` returned it: the same are drawn again."""
        self.policy.set_random_state(state)
        if self._frozen is not None:
            self._frozen.set_random_state(state)

    def to(self, device: str) -> Policy:
        """Refuse: a frozen policy stays where it is.

        Raises:
            NotServedError: Always, unless it is there already.
        """
        if device != self.policy.device:
            raise NotServedError("a frozen policy cannot be moved: move the policy, and freeze it again.")
        return self

    def freeze(self, rows: int = 1, *, seed: int | None = None) -> Frozen:
        """Freeze the policy again."""
        return self.policy.freeze(rows, seed=seed)

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        """Return a copy of the policy, which is not frozen."""
        return self.policy.__deepcopy__(memo)

    def __reduce__(self) -> Any:
        """Pickle the policy, which comes back as it was before it was frozen."""
        return self.policy.__reduce__()

    def __repr__(self) -> str:
        return f"Frozen: {self._how()}\n{self.policy!r}"

    def explain(self) -> Explanation:
        """Return why these parts were chosen, and whether it acts faster."""
        return Explanation(self.resolution, self._how())

    def _how(self) -> str:
        return f"no faster: {self.reason}" if self.reason else "acts from a recorded graph"
