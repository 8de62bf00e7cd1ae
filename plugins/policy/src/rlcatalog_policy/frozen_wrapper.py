"""Frozen policies, which compute actions faster than the framework's modules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rlcatalog.actions import NOT_GIVEN
from rlcatalog.choice import Explanation
from rlcatalog.errors import CatalogError, MissingPluginError, NotServedError, reason
from rlcatalog.frameworks import Array, Backend, Evaluation, Step, Tensor, TensorTree
from rlcatalog_policy.acting import check_critic_can_be_left_out, take_step
from rlcatalog_policy.encoder import to_array
from rlcatalog_policy.extensions import load_extension
from rlcatalog_policy.stepper import Stepper
from rlcatalog_policy.tensor_encoder import are_tensors

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv

    from rlcatalog.actions import ActionCodec, ActionMasks, Mask
    from rlcatalog.catalog import Catalog
    from rlcatalog.choice import Resolution
    from rlcatalog.models import ModelV2
    from rlcatalog.observations import Filter, Preprocessor
    from rlcatalog_export import Interface
    from rlcatalog_policy.encoder import Batch, Encoder, Masks
    from rlcatalog_policy.history import Rewards, Rows, Views
    from rlcatalog_policy.output_checker import OutputChecker
    from rlcatalog_policy.policy import Policy
    from rlcatalog_policy.raw_actions import Actions
    from rlcatalog_policy.state import Memory, State
    from rlcatalog_policy.summary import Summary


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
        policy_only: bool = False,
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


def freeze_policy(policy: Policy, rows: int, seed: int | None) -> Frozen:
    """Return a frozen policy; see `Policy.freeze`."""
    with policy._model_lock:
        try:
            # The framework's target "freeze"; for PyTorch, rlcatalog-export adds
            # `rlcatalog_export.torch.freeze_policy.FrozenTorch`.
            freeze: Callable[[Policy, int, int | None], FrozenBackend] = load_extension(
                policy.framework, "freeze"
            )
            return Frozen(policy, freeze(policy, rows, seed))
        except MissingPluginError as error:
            return Frozen(policy, frozen_backend=None, reason=str(error))
        except CatalogError as error:
            return Frozen(policy, frozen_backend=None, reason=reason(error))


class Frozen:
    """A policy that acts faster, created by `Policy.freeze`.

    It has the attributes and methods of a `Policy`. `act`, `act_encoded` and steppers are faster
    and sample actions from a separate generator; everything else comes from the policy.

    Args:
        policy: The policy.
        frozen_backend: The object that chooses the actions; None if the policy's backend does.
        reason: Why there is no such object.

    Attributes:
        policy: The policy.
        reason: Why the frozen policy is not faster than the policy; None if it is faster.
    """

    def __init__(
        self, policy: Policy, frozen_backend: FrozenBackend | None, reason: str | None = None
    ) -> None:
        self.policy = policy
        self._frozen_backend = frozen_backend
        self._reason = reason
        self._acting_backend: Backend | FrozenBackend = policy.backend
        if frozen_backend is not None:
            self._acting_backend = frozen_backend

    # --- what differs from the policy -------------------------------------------------------------

    @property
    def reason(self) -> str | None:
        """Why the frozen policy is not faster than the policy; None if it is faster."""
        if self._frozen_backend is None:
            return self._reason
        return self._frozen_backend.reason

    def act(
        self,
        obs: Batch,
        state: State | None = None,
        *,
        prev_reward: Rewards | None = None,
        mask: Masks = NOT_GIVEN,
        explore: bool = True,
    ) -> Step:
        """Choose actions for a batch of observations; see `Policy.act`.

        Raises:
            NotServedError: The observations are tensors.
        """
        if are_tensors(obs):
            raise NotServedError(
                "a frozen policy takes arrays and does not act on tensors. Pass arrays, or act with"
                " the policy itself, frozen.policy."
            )
        policy = self.policy
        batch = policy.encoder.encode_batch(obs, mask)
        return take_step(
            policy,
            self._acting_backend,
            batch.obs,
            state,
            prev_reward,
            batch.mask,
            explore,
            batch.policy_only,
        )

    def act_encoded(
        self,
        encoded: Array | Tensor,
        state: State | None = None,
        *,
        prev_reward: Rewards | None = None,
        mask: Masks | Tensor = NOT_GIVEN,
        explore: bool = True,
        policy_only: bool = False,
    ) -> Step:
        """Choose actions for encoded observations; see `Policy.act_encoded`.

        The step is NumPy, even for tensors.
        """
        policy = self.policy
        if policy_only:
            check_critic_can_be_left_out(policy)
        mask_rows = to_array(policy.encoder.resolve_mask(encoded, mask))
        array = to_array(encoded)
        return take_step(
            policy,
            self._acting_backend,
            array,
            state,
            prev_reward,
            mask_rows,
            explore,
            policy_only,
        )

    def stepper(
        self,
        n: int | VectorEnv[Any, Any, Any],
        autoreset: str | AutoresetMode | None = None,
    ) -> Stepper:
        """Return an object that acts in several environments; see `Policy.stepper`."""
        return Stepper(self, n, autoreset)

    def update(self) -> None:
        """Copy the policy's current weights. Call this after each learning step."""
        if self._frozen_backend is not None:
            with self.policy._model_lock:
                self._frozen_backend.update()

    def random_state(self) -> dict[str, Array]:
        """Return the states of the random generators by name, including the policy's."""
        states = self.policy.random_state()
        if self._frozen_backend is not None:
            states.update(self._frozen_backend.random_state())
        return states

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore the random generators' states, as returned by `random_state`, to repeat the same
        actions.
        """
        self.policy.set_random_state(state)
        if self._frozen_backend is not None:
            self._frozen_backend.set_random_state(state)

    def to(self, device: str) -> Frozen:
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

    def _repr_html_(self) -> str:
        return self.policy._repr_html_()

    def explain(self) -> Explanation:
        """Return why these parts were chosen, and whether the frozen policy acts faster."""
        return Explanation(self.resolution, self._how())

    def _how(self) -> str:
        if self.reason:
            return f"no faster: {self.reason}"
        return "acts faster than the policy"

    # --- what the policy has and does; see `Policy` -----------------------------------------------

    @property
    def catalog(self) -> Catalog:
        return self.policy.catalog

    @property
    def resolution(self) -> Resolution:
        return self.policy.resolution

    @property
    def framework(self) -> str:
        return self.policy.framework

    @property
    def config(self) -> dict[str, Any]:
        return self.policy.config

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        return self.policy.observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        return self.policy.action_space

    @property
    def encoded_space(self) -> gymnasium.Space[Any]:
        return self.policy.encoded_space

    @property
    def encoder(self) -> Encoder:
        return self.policy.encoder

    @property
    def preprocessor(self) -> Preprocessor:
        return self.policy.preprocessor

    @property
    def masks(self) -> ActionMasks:
        return self.policy.masks

    @property
    def filter(self) -> Filter | None:
        return self.policy.filter

    @property
    def model(self) -> ModelV2:
        return self.policy.model

    @property
    def acting_model(self) -> ModelV2:
        return self.policy.acting_model

    @property
    def model_name(self) -> str:
        return self.policy.model_name

    @property
    def has_value(self) -> bool:
        return self.policy.has_value

    @property
    def memory(self) -> Memory:
        return self.policy.memory

    @property
    def views(self) -> Views:
        return self.policy.views

    @property
    def dist_class(self) -> Any:
        return self.policy.dist_class

    @property
    def stored_dist(self) -> Any:
        return self.policy.stored_dist

    @property
    def action_codec(self) -> ActionCodec:
        return self.policy.action_codec

    @property
    def output_checker(self) -> OutputChecker:
        return self.policy.output_checker

    @property
    def backend(self) -> Any:
        return self.policy.backend

    @property
    def device(self) -> str:
        return self.policy.device

    def overrides(self, method: str) -> bool:
        return self.policy.overrides(method)

    def adapt(self, raw: TensorTree) -> Any:
        return self.policy.adapt(raw)

    def backend_inputs(
        self,
        encoded: Array | Tensor,
        state: State | None = None,
        prev_reward: Rewards | None = None,
        mask: Mask = None,
    ) -> dict[str, Any]:
        return self.policy.backend_inputs(encoded, state, prev_reward, mask)

    def values(
        self,
        encoded: Array | Tensor,
        state: State | None = None,
        *,
        prev_reward: Rewards | None = None,
    ) -> Any:
        return self.policy.values(encoded, state, prev_reward=prev_reward)

    def preprocess(self, obs: Batch, *, update: bool | Array = False) -> Array:
        return self.policy.preprocess(obs, update=update)

    def action_mask(self, obs: Batch, *, idle: Array | None = None) -> Array | None:
        return self.policy.action_mask(obs, idle=idle)

    def as_module(self) -> Any:
        return self.policy.as_module()

    def evaluate(
        self, batch: Mapping[str, Any], *, check: bool = True, entropy: bool = True
    ) -> Evaluation:
        return self.policy.evaluate(batch, check=check, entropy=entropy)

    def raw_action(self, actions: Actions) -> Array:
        return self.policy.raw_action(actions)

    def initial_state(self, batch_size: int) -> Any:
        return self.policy.initial_state(batch_size)

    def restart(self, state: State | None, rows: Rows) -> State | None:
        return self.policy.restart(state, rows)

    def summary(self) -> Summary:
        return self.policy.summary()

    def wrap_env(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        return self.policy.wrap_env(env)

    def save(self, directory: str | os.PathLike[str]) -> None:
        self.policy.save(directory)

    def export(self, path: str | os.PathLike[str], format: str | None = None) -> Interface:
        return self.policy.export(path, format)

    def make_model(self) -> ModelV2:
        return self.policy.make_model()
