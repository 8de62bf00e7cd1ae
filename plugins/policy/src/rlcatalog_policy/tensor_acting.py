"""Acting on tensors: a policy's steps without a copy between the device and the host."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcatalog.actions import NOT_GIVEN, ActionCodec, LoweredActions
from rlcatalog.errors import (
    ActionError,
    ModelContractError,
    NotServedError,
    ObservationError,
)
from rlcatalog.frameworks import Array, Step, Tensor, TensorTree, tensor_ops
from rlcatalog.internals import is_up_to_date, lowered_actions, reads_masks
from rlcatalog.spaces import map_tensors, parts_of
from rlcatalog_policy.acting import run_backend
from rlcatalog_policy.encoder import is_on_other_device
from rlcatalog_policy.history import check_reward
from rlcatalog_policy.non_finite import check_finite_step, check_observations, check_values
from rlcatalog_policy.state import (
    EpisodeStates,
    NoStates,
    State,
    StateBeforeStep,
    TensorEpisodeStates,
    check_state,
)
from rlcatalog_policy.tensor_checks import Check, TensorChecks
from rlcatalog_policy.tensor_encoder import Placement, TensorEncoder, are_tensors

if TYPE_CHECKING:
    from rlcatalog_policy.encoder import Batch, Masks
    from rlcatalog_policy.policy import Policy


def tensor_device(policy: Policy) -> Any:
    """Return the device on which a policy acts on tensors, as a tensor's attribute `device` names
    it; None if its framework does not act on tensors.
    """
    # A backend of another package need not have this attribute.
    return getattr(policy.backend, "tensor_device", None)


class TensorBatch(NamedTuple):
    """A batch of encoded observations with its action masks, as tensors.

    Attributes:
        obs: The observations, encoded and filtered, `[B, ...]`.
        mask: Their action masks, boolean `[B, m]`, or None without masks.
        policy_only: Whether the observations lack entries that only a critic sees.
    """

    obs: Any
    mask: Any
    policy_only: bool


class TensorActing:
    """A policy's steps on tensors, which give the same results as on arrays.

    Args:
        policy: The policy.

    Attributes:
        checks: The checks of the steps, which `Policy.check` reads.
        placement: The device.

    Raises:
        NotServedError: The policy's framework does not act on tensors.
    """

    def __init__(self, policy: Policy) -> None:
        device = tensor_device(policy)
        if device is None:
            raise NotServedError(
                f"this policy's framework, {policy.framework!r}, takes arrays and does not act on"
                " tensors. Pass arrays, or build the policy with framework='torch'."
            )
        self._policy = policy
        self.ops = tensor_ops(policy.framework)
        self.placement = Placement(device, self.ops)
        self.checks = TensorChecks(self.ops, is_on_host=not is_on_other_device(self.placement))
        self._encoder: TensorEncoder | None = None
        self._policy_encoder: TensorEncoder | None = None
        self._filter_is_served = False
        self._mask_is_served = False
        self._lowered: LoweredActions | None = None
        self._episode_states: EpisodeStates | NoStates | None = None

    # --- what has a tensor form -------------------------------------------------------------------

    @property
    def actions(self) -> LoweredActions:
        """The tensor form of the action codec.

        Raises:
            NotServedError: It has none.
        """
        if self._lowered is None:
            codec = self._policy.action_codec
            self._lowered = lowered_actions(codec, self.ops)
            has_pairs = any(node.kind == "oneof" for node in codec.info.walk())
            if self._lowered is None or has_pairs:
                self._lowered = None
                raise NotServedError(
                    f"{codec.info.path}: {type(codec).__name__} for {codec.info.describe()} has no"
                    " tensor form, so the policy cannot act on tensors. Pass arrays."
                )
        return self._lowered

    @property
    def states(self) -> EpisodeStates | NoStates:
        """The manager for states that are tensors."""
        if self._episode_states is None:
            policy = self._policy
            self._episode_states = NoStates()
            if policy.memory or policy.views:
                actions = self.actions if policy.views else None
                self._episode_states = TensorEpisodeStates(
                    policy.memory, policy.views, self.ops, actions, self.placement
                )
        return self._episode_states

    def _check_filter(self) -> None:
        """Check that the policy's filter has a tensor form."""
        observation_filter = self._policy.filter
        assert observation_filter is not None
        if self._filter_is_served:
            return
        is_current = is_up_to_date(observation_filter, "lowered", ("__call__",))
        if not is_current or observation_filter.lowered() is None:
            raise NotServedError(
                f"{observation_filter.who} has no tensor form, so the policy cannot act on"
                " tensors. Pass arrays, or give the filter a method lowered()."
            )
        self._filter_is_served = True

    # --- observations and masks -------------------------------------------------------------------

    def encode_batch(self, obs: Batch, mask: Masks | Tensor, checks: list[Check]) -> TensorBatch:
        """Return a batch of observations, encoded and filtered, with its action masks; see
        `Encoder.encode_batch`.
        """
        encoder = self._policy.encoder
        mask_in_obs: Any = None
        if encoder.masks.key is not None and mask is NOT_GIVEN:
            mask_in_obs = self._mask_in(obs)
        visible_obs = encoder.preprocessor_input(obs)
        policy_only = encoder.lacks_critic_entries(visible_obs)
        if policy_only:
            encoded = self._encode_policy_part(visible_obs, checks)
        else:
            encoded = self._encode_whole(visible_obs, checks)
        encoded = self._filtered(encoded, checks)
        given = mask_in_obs if mask is NOT_GIVEN else mask
        return TensorBatch(encoded, self.mask_columns(given, encoded.shape[0], checks), policy_only)

    def _encode_whole(self, obs: Batch, checks: list[Check]) -> Any:
        if self._encoder is None:
            self._encoder = TensorEncoder(self._policy.preprocessor, self.placement)
        return self._encoder.encode(obs, checks)

    def _encode_policy_part(self, obs: Batch, checks: list[Check]) -> Any:
        """Encode what the policy sees, with zeros in place of a critic's own entries."""
        part = self._policy.encoder.policy_encoder
        assert part is not None
        if self._policy_encoder is None:
            self._policy_encoder = TensorEncoder(part.preprocessor, self.placement)
        encoded = self._policy_encoder.encode(part.visible.select(obs), checks)
        return part.visible.spread_tensor(encoded, self._policy.preprocessor, self.ops)

    def _filtered(self, encoded: Any, checks: list[Check]) -> Any:
        """Return encoded observations after the filter, if there is one."""
        observation_filter = self._policy.filter
        if observation_filter is None:
            return encoded
        self._check_filter()
        # Before the filter, which may clip infinite numbers to its bounds.
        checks.append(self._finite_observations(encoded))
        return observation_filter.filter_tensors(encoded, self.ops)

    def _finite_observations(self, encoded: Any) -> Check:
        """Return the check that all encoded observations are finite."""
        preprocessor = self._policy.preprocessor

        def raise_error(array: Array) -> None:
            check_observations(array, preprocessor)

        return Check(self.ops.all_finite([encoded]), raise_error, (encoded,))

    def preprocess(self, obs: Batch, update: bool | Array | Tensor) -> Any:
        """Encode and filter observations; see `Policy.preprocess`."""
        checks: list[Check] = []
        visible_obs = self._policy.encoder.preprocessor_input(obs)
        encoded = self._encode_whole(visible_obs, checks)
        observation_filter = self._policy.filter
        if observation_filter is None:
            checks.append(self._finite_observations(encoded))
        else:
            self._check_filter()
            is_switch = isinstance(update, bool | np.bool_)
            if not is_switch or update:
                rows = None if is_switch else self._booleans(update, encoded.shape[0], "update")
                observation_filter.learn_from_tensors(encoded, rows, self.ops)
        filtered: Any = self._filtered(encoded, checks)
        self.checks.add("preprocess call", checks)
        if filtered is visible_obs:
            # A simulator overwrites its observations at its next step.
            filtered = self.ops.copy(filtered)
        return filtered

    def _mask_in(self, obs: Batch) -> Any:
        """Return the mask in a batch of observations."""
        masks = self._policy.masks
        try:
            # reduce(getitem, ["a", "b"], obs) is obs["a"]["b"].
            return reduce(getitem, masks.key_path, obs)
        except (KeyError, TypeError, IndexError) as error:
            raise ObservationError(
                f"obs: expected a dict with the action mask under {masks.key!r}."
            ) from error

    def mask_columns(self, mask: Any, rows: int, checks: list[Check]) -> Any:
        """Return masks in Gymnasium's format as booleans `[B, m]`; see `ActionMasks.matrix`.

        Args:
            mask: A tensor, or a structure of tensors; arrays are uploaded. None allows everything.
            rows: B.
            checks: The list to which the checks of their numbers are added.
        """
        if mask is None:
            return None
        policy = self._policy
        masks = policy.masks
        if not are_tensors(mask):
            matrix = masks.matrix(mask, rows)  # raises an error for a mask in the wrong format
            return self.ops.tensor(matrix, self.placement)
        self._check_masks()
        mask = _as_plain_structure(mask)
        for tensor in parts_of(mask) or [mask]:
            if tensor is not None:
                self.placement.check(tensor, "mask")
        valid: list[Any] = []
        columns = self.actions.mask_columns(mask, rows, valid)
        if columns is None:
            return None
        for _, allows_value in masks.allowing(columns):
            valid.append(self.ops.all(allows_value))
        is_right = reduce(lambda one, other: one & other, valid)

        def raise_error(arrays: Any) -> None:
            masks.matrix(arrays, rows)

        checks.append(Check(is_right, raise_error, (mask,)))
        return columns

    def _check_masks(self) -> None:
        """Check that the action codec's tensor form reads masks."""
        if self._mask_is_served:
            return
        policy = self._policy
        if not policy.masks.size:
            policy.masks.matrix(np.ones((1, 1), np.bool_))  # raises the error
        if not reads_masks(policy.action_codec):
            raise NotServedError(
                f"mask: {type(policy.action_codec).__name__} for"
                f" {policy.action_codec.info.describe()} does not read masks that are tensors. Pass"
                " arrays."
            )
        self._mask_is_served = True

    def action_mask(self, obs: Batch) -> Any:
        """Return the action masks in a batch of observations, boolean `[B, m]`, or None."""
        if self._policy.masks.key is None:
            return None
        mask = self._mask_in(obs)
        first_mask = mask
        while parts_of(first_mask):
            first_mask = (parts_of(first_mask) or [])[0]
        checks: list[Check] = []
        columns = self.mask_columns(mask, first_mask.shape[0], checks)
        self.checks.add("action_mask call", checks)
        return columns

    # --- acting -----------------------------------------------------------------------------------

    def act(
        self,
        obs: Batch,
        state: State | None,
        prev_reward: Any,
        mask: Masks | Tensor,
        explore: bool,
    ) -> Step:
        """Choose actions for a batch of observations; see `Policy.act`."""
        checks: list[Check] = []
        batch = self.encode_batch(obs, mask, checks)
        return self._step(batch, state, prev_reward, explore, checks, are_obs_new=True)

    def act_encoded(
        self,
        encoded: Tensor,
        state: State | None,
        prev_reward: Any,
        mask: Any,
        explore: bool,
        policy_only: bool,
    ) -> Step:
        """Choose actions for encoded observations; see `Policy.act_encoded`."""
        checks: list[Check] = []
        self.placement.check(encoded, "encoded")
        columns = self.mask_columns(mask, encoded.shape[0], checks)
        batch = TensorBatch(encoded, columns, policy_only)
        return self._step(batch, state, prev_reward, explore, checks, are_obs_new=False)

    def _step(
        self,
        batch: TensorBatch,
        state: State | None,
        prev_reward: Any,
        explore: bool,
        checks: list[Check],
        *,
        are_obs_new: bool,
    ) -> Step:
        """Choose actions, and compute the checks of the step.

        Args:
            batch: The encoded observations and masks.
            state: See `Policy.act`.
            prev_reward: See `Policy.act`.
            explore: See `Policy.act`.
            checks: The checks of the observations and masks.
            are_obs_new: Whether `encode_batch` has just encoded the observations. If there is a
                filter, it has then checked that they are finite.
        """
        policy = self._policy
        actions = self.actions  # before the model runs, so that what is refused costs nothing
        encoded = batch.obs
        before = self._resume(encoded, state, prev_reward, checks)
        with policy._model_lock:
            result = run_backend(
                policy, policy.backend, encoded, before, batch.mask, explore, batch.policy_only
            )
            raw, logp, value, dist_inputs, new_memory = result
            are_obs_checked = policy.filter is not None and are_obs_new
            checks.append(
                self._finite_step(logp, value, dist_inputs, encoded, before.steps, are_obs_checked)
            )
            if policy.output_checker.checks_actions:
                checks.append(self._drawn_actions(raw, batch.mask))
            self.checks.add("step", checks)
        after = self.states.after(before, encoded, raw, new_memory)
        return Step(self.adapt_flat(raw, actions), raw, logp, value, dist_inputs, after)

    def _resume(
        self, encoded: Any, state: State | None, prev_reward: Any, checks: list[Check]
    ) -> StateBeforeStep:
        """Return the inputs of a step; see `EpisodeStates.resume`."""
        states = self.states
        if isinstance(states, NoStates):
            return states.resume(encoded, state, prev_reward)
        assert isinstance(states, TensorEpisodeStates)
        rows = encoded.shape[0]
        if state is None:
            state = states.start(rows)
        else:
            check_state(state, rows)
            state = self._on_device(state)
        if self._policy.views.reads_rewards:
            prev_reward = self._reward(prev_reward, state, checks)
        return states.resume(encoded, state, prev_reward)

    def _on_device(self, state: State) -> State:
        """Return a state as tensors on the policy's device."""
        if isinstance(state.history.t, np.ndarray):
            states = self.states
            assert isinstance(states, TensorEpisodeStates)
            return states.upload(state)
        self.placement.check(state.history.t, "state")
        return state

    def _reward(self, prev_reward: Any, state: State, checks: list[Check]) -> Any:
        """Return the last step's rewards as a tensor `[B]`, or None, and check their numbers."""
        steps = state.history.t
        name = self._policy.model_name
        if prev_reward is None:
            is_right = self.ops.all(steps < 1)

            def raise_if_missing(t: Array) -> None:
                check_reward(reward=None, t=t, who=name)

            checks.append(Check(is_right, raise_if_missing, (steps,)))
            return None
        if not are_tensors(prev_reward):
            prev_reward = self.ops.tensor(np.asarray(prev_reward), steps)
        self.placement.check(prev_reward, "prev_reward")
        if tuple(prev_reward.shape) != tuple(steps.shape):
            raise ModelContractError(
                f"prev_reward: expected {steps.shape[0]} numbers, one for each row, found shape"
                f" {tuple(prev_reward.shape)}."
            )
        # A value too large for float32 becomes infinite.
        rewards = self.ops.as_type(prev_reward, "float32")

        def raise_error(array: Array, t: Array) -> None:
            check_reward(array, t, name)

        is_finite = self.ops.all_finite([rewards * self.ops.as_type(steps > 0, "float32")])
        checks.append(Check(is_finite, raise_error, (prev_reward, steps)))
        return rewards

    def _finite_step(
        self,
        logp: Any,
        value: Any,
        dist_inputs: Any,
        encoded: Any,
        steps: Any,
        are_obs_checked: bool,
    ) -> Check:
        """Return the check that all numbers of a step are finite."""
        preprocessor = self._policy.preprocessor
        numbers = [logp, dist_inputs]
        if not are_obs_checked:
            numbers.append(encoded)
        if value is not None:
            numbers.append(value)

        def raise_error(logp: Any, value: Any, inputs: Any, encoded: Any, t: Any) -> None:
            check_finite_step(logp, value, inputs, encoded, preprocessor, t)

        tensors = (logp, value, dist_inputs, encoded, steps)
        return Check(self.ops.all_finite(numbers), raise_error, tensors)

    def _drawn_actions(self, raw: Any, mask: Any) -> Check:
        """Return the check that drawn actions are in the space and allowed by their masks; see
        `OutputChecker.check_actions`.
        """
        is_right = self._are_raw_actions(raw)
        if mask is not None:
            columns = self.actions.mask_taken(raw)
            if columns is not None:
                is_right = is_right & self.ops.all(self.ops.entries_at(mask, columns))
        return Check(is_right, self._policy.output_checker.check_actions, (raw, mask))

    def _are_raw_actions(self, raw: Any) -> Any:
        """Return whether raw actions `[B, width]` are finite numbers, and whether choices are
        integers within their range, as `ActionCodec.check_raw` checks arrays.
        """
        ops = self.ops
        is_right = ops.all_finite([raw])
        start = 0
        for leaf in self._policy.action_codec.leaves:
            stop = start + leaf.width
            if leaf.counts is not None:
                columns = raw[:, start:stop]
                whole = ops.as_type(columns, "int64")
                highest = ops.constant(np.array(leaf.counts, np.int64) - 1, raw)
                is_inside = (whole >= 0) & (whole <= highest) & (whole == columns)
                is_right = is_right & ops.all(is_inside)
            start = stop
        return is_right

    def add_checks_of_batch(self, obs: Any, raw: Any, mask: Any) -> None:
        """Check the numbers of a training batch; see `check_batch`.

        Args:
            obs: Encoded observations.
            raw: Raw actions `[B, width]` or `[B]`.
            mask: Columns of action masks `[B, m]`, or None.
        """
        self.placement.check(obs, "batch['obs']")
        checks = [self._finite_observations(obs)]
        if are_tensors(raw):
            columns = self.ops.flat(self.placement.check(raw, "batch['raw_action']"))
            codec = self._policy.action_codec
            checks.append(Check(self._are_raw_actions(columns), codec.check_raw, (columns,)))
        if mask is not None and are_tensors(mask):
            # Called for the checks that it adds.
            self.mask_columns(mask, obs.shape[0], checks)
        self.checks.add("evaluate call", checks)

    def resume(self, encoded: Tensor, state: State | None, prev_reward: Any) -> StateBeforeStep:
        """Return the inputs of a step that only estimates values; see `Policy.values`."""
        checks: list[Check] = []
        self.placement.check(encoded, "encoded")
        before = self._resume(encoded, state, prev_reward, checks)
        self.checks.add("values call", checks)
        return before

    def add_check_of_values(self, values: Tensor) -> None:
        """Check that value estimates are finite."""
        check = Check(self.ops.all_finite([values]), check_values, (values,))
        self.checks.add("values call", [check])

    # --- states and actions -----------------------------------------------------------------------

    def start(self, rows: int) -> Any:
        """Return the state at the start of episodes, as tensors."""
        return self.states.start(rows)

    def restart(self, state: State, rows: Any) -> State:
        """Return a state with new episodes started in some rows; see `Policy.restart`."""
        states = self.states
        if isinstance(states, NoStates):
            return state
        state = self._on_device(state)
        is_new = self._booleans(rows, state.history.t.shape[0], "rows")
        return states.restart(state, is_new)

    def _booleans(self, rows: Any, count: int, name: str) -> Any:
        """Return a selection of rows as a boolean tensor.

        Raises:
            ModelContractError: It is not `[count]` booleans.
        """
        if are_tensors(rows):
            self.placement.check(rows, name)
        else:
            rows = self.ops.tensor(np.asarray(rows), self.placement)
        dtype = self.ops.dtype_name(rows)
        if tuple(rows.shape) != (count,) or dtype != "bool":
            raise ModelContractError(
                f"{name}: for tensors, expected {count} booleans, one for each row; found"
                f" {dtype} of shape {tuple(rows.shape)}."
            )
        return rows

    def adapt(self, raw: TensorTree) -> Any:
        """Convert raw actions to actions of the environment, as tensors; see `Policy.adapt`."""
        actions = self.actions
        codec = self._policy.action_codec
        parts = parts_of(raw)
        if parts is None:
            parts = [raw]
        for part in parts:
            self.placement.check(part, "raw_action")
        flat: Any = parts[0]
        if len(parts) > 1:
            flat = self.ops.columns(parts)
        if len(flat.shape) == 1 and codec.width == 1:
            flat = flat[:, None]
        if tuple(flat.shape[1:]) != (codec.width,):
            raise ActionError(
                f"raw_action: expected shape [B, {codec.width}] for {codec.info.describe()}, found"
                f" {tuple(flat.shape)}."
            )
        return self.adapt_flat(flat, actions)

    def adapt_flat(self, raw: Any, actions: LoweredActions) -> Any:
        """Convert raw actions `[B, width]` to actions of the environment."""
        leaves = (action for _, action in actions.adapt(raw))
        return _join(self._policy.action_codec, leaves)


def _join(codec: ActionCodec, leaves: Iterator[Any]) -> Any:
    """Return a batch of environment actions, joined from the actions of each leaf."""
    if not codec.children:
        return next(leaves)
    return codec.info.join([_join(child, leaves) for child in codec.children])


def _as_plain_structure(values: Any) -> Any:
    """Return a structure of tensors, such as a TensorDict, as dicts and tuples."""
    return map_tensors(values, lambda tensor: tensor)
