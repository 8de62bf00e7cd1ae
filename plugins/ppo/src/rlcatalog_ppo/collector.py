"""Collector: steps environments with a policy, and returns rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog import Policy, Step
from rlcatalog.errors import NonFiniteError
from rlcatalog.frameworks import Array, TensorTree
from rlcatalog_policy import EnvMasks, Frozen, History, State, autoreset_of
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.custom_loss import columns_for_custom_loss
from rlcatalog_ppo.env_errors import EnvErrors
from rlcatalog_ppo.episodes import Episodes, EpisodesInProgress
from rlcatalog_ppo.reward_scale import RewardScale
from rlcatalog_ppo.rollout import Rollout
from rlcatalog_ppo.rollout_columns import (
    Postprocess,
    SequenceRecorder,
    TrajectoryColumns,
    added_columns,
)
from rlcatalog_ppo.steps import EnvStep, StepInputs, StepRecord
from rlcatalog_ppo.trees import stack_steps
from rlcatalog_runs.seeds import SeedStream, derive_env_seeds, derive_seed


class Collector:
    """Collector that steps a vector environment with a policy and returns rollouts.

    When an episode ends, Gymnasium's autoreset modes differ in who begins the next one:

    - `"same_step"`: the vector environment, at once. The episode's last observation is in
      `info["final_obs"]`.
    - `"next_step"`: the vector environment, in the next step, which ignores the action. That step
      is called idle; it is not in the training data, and its reward counts as 0.
    - `"disabled"`: the collector, with a reset of the environments whose episode ended.

    An environment may reuse the memory of its observations, so an episode's last observation must
    be read before the next episode begins. In mode `"same_step"`, the vector environment resets
    first, so its environments must return copies, as `rlcatalog_ppo.environments.vector` ensures.

    Args:
        policy: Policy that chooses the actions, either directly or in its frozen form.
        envs: The environments, in any of Gymnasium's autoreset modes.
        seed: The run's seed, from which those of the environments and of a frozen policy are
            derived.
        gamma: Discount factor for the value of a truncated episode's last observation.
        postprocess: Function that adds columns, which the model may request as training views, to
            each trajectory; or None.
        uses_values: Whether the algorithm learns from value estimates. If False, values are 0, and
            rewards after the rollout's end or a truncation count as 0.
        scale: Scaling for training rewards, or None.
        env_masks: Reader of masks that the environments give beside their observations, or None.

    Attributes:
        acts_frozen: Whether a frozen policy acts; None until this is decided, before the first
            step.
        episodes: The finished episodes.
    """

    def __init__(
        self,
        policy: Policy,
        envs: VectorEnv[Any, Any, Any],
        seed: int | None,
        gamma: float,
        postprocess: Postprocess | None = None,
        *,
        uses_values: bool = True,
        scale: RewardScale | None = None,
        env_masks: EnvMasks | None = None,
    ) -> None:
        self.envs = envs
        self.gamma = gamma
        self.scale = scale
        #: Seed for a frozen policy's own generator of actions.
        self._frozen_seed = derive_seed(seed, SeedStream.FROZEN)
        self._env_masks = env_masks
        self._uses_values = uses_values
        self._autoreset = autoreset_of(envs)

        self.acts_frozen: bool | None = None
        self._trained_policy = policy
        self._frozen_policy: Frozen | None = None

        self._postprocess = postprocess
        self._has_custom_loss = policy.overrides("custom_loss")
        self._trajectory_columns = TrajectoryColumns(
            policy, all_columns=postprocess is not None or self._has_custom_loss
        )

        self.episodes = Episodes()
        self._in_progress = EpisodesInProgress(envs.num_envs)
        # A context manager: inside it, an error about a row of a batch says which environment the
        # row belongs to, and at which step of its episode.
        self._name_env_in_errors = EnvErrors(self._in_progress.lengths)

        # Any, because Gymnasium accepts a list of seeds but declares an integer only.
        env_seeds: Any = derive_env_seeds(seed, SeedStream.ENVIRONMENTS, envs)
        env_obs, infos = envs.reset(seed=env_seeds)
        if env_masks is not None:
            env_masks.begin(infos)
        self._inputs = StepInputs(
            obs=self._encode(env_obs, update=True),
            mask=self._action_mask(env_obs),
            state=policy.initial_state(envs.num_envs),
            prev_reward=np.zeros(envs.num_envs, np.float32),
            idle=np.zeros(envs.num_envs, bool),
        )

    @property
    def policy(self) -> Policy | Frozen:
        """The policy that acts: the trained policy, or its frozen form."""
        return self._trained_policy if self._frozen_policy is None else self._frozen_policy

    def decide_frozen(self, config: OnPolicyConfig, total_steps: int | None = None) -> None:
        """Decide before the first step whether a frozen policy acts; later calls do nothing.

        Args:
            config: The algorithm's config.
            total_steps: Total number of steps in the run, if it is not in the config.
        """
        if self.acts_frozen is not None:
            return
        if config.total_steps is not None:
            total_steps = config.total_steps
        self.act_frozen(config.collects_frozen(total_steps, self._trained_policy.device))

    def act_frozen(self, acts_frozen: bool) -> None:
        """Act with a frozen form of the policy, or with the policy itself."""
        self.acts_frozen = acts_frozen
        self._frozen_policy = None
        if acts_frozen:
            # If no package can freeze the policy, the frozen form acts like the policy itself.
            self._frozen_policy = self._trained_policy.freeze(
                self.envs.num_envs, seed=self._frozen_seed
            )

    def update_frozen_weights(self) -> None:
        """Copy the current weights to the frozen policy, if there is one."""
        if self._frozen_policy is not None:
            self._frozen_policy.update()

    def collect(self, length: int, on_step: Callable[[StepRecord], None] | None = None) -> Rollout:
        """Take `length` steps in every environment.

        Args:
            length: Number of steps.
            on_step: Function that is called with the record of each step; or None.

        Raises:
            NonFiniteError: A reward, an observation or a policy output is NaN or infinite; the
                message names the environment and the step of its episode.
        """
        sequence_recorder = None
        if self.policy.memory:
            max_seq_len = self.policy.config["max_seq_len"]
            sequence_recorder = SequenceRecorder(max_seq_len, self.envs.num_envs)

        records: list[StepRecord] = []
        for _ in range(length):
            inputs = self._inputs
            record, self._inputs = self._take_step(inputs)
            records.append(record)
            if sequence_recorder is not None:
                assert inputs.state is not None  # a policy with memory has a state
                sequence_recorder.add_step(
                    memory=inputs.state.memory, idle=inputs.idle, done=record.done
                )
            if on_step is not None:
                on_step(record)

        rollout = Rollout.from_records(records, last_value=self._estimate_last_value())
        if self._trajectory_columns.is_needed:
            self._add_trajectory_columns(rollout, records)
        if sequence_recorder is not None:
            sequences = sequence_recorder.sequences()
            rollout.starts = sequences.starts
            rollout.memory = sequences.memory
        return rollout

    # --- one step -----------------------------------------------------------------------------

    def _take_step(self, inputs: StepInputs) -> tuple[StepRecord, StepInputs]:
        """Act once in every environment; return the step's record and the inputs of the next."""
        policy_step = self._act(inputs)
        env_step = self._step_envs(policy_step.action, idle=inputs.idle)
        scaled_reward = None
        if self.scale is not None:
            scaled_reward = self.scale(env_step.reward, done=env_step.done, idle=inputs.idle)
        self._in_progress.add_step(env_step.original_reward, idle=inputs.idle)

        next_env_obs = env_step.env_obs
        final_obs = None
        bootstrap = np.zeros(self.envs.num_envs, np.float32)
        if env_step.done.any():
            final_obs = self._encode_final_obs(env_step)
            if self._uses_values and env_step.only_truncated.any():
                assert final_obs is not None  # those of truncated episodes are always encoded
                bootstrap = self._bootstrap(env_step, final_obs, policy_step.state)
            self._record_finished_episodes(env_step.done)
            if self._autoreset == "disabled":
                next_env_obs = self._reset(env_step.done)
        next_inputs = self._next_inputs(inputs, policy_step.state, env_step, next_env_obs)

        # Without use for values, they are 0, even if the model estimates them.
        value = np.zeros(self.envs.num_envs, np.float32)
        if self._uses_values:
            assert policy_step.value is not None  # `check_policy` refuses models without values
            value = policy_step.value
        record = StepRecord(
            obs=inputs.obs,
            raw_action=policy_step.raw_action,
            logp=policy_step.logp,
            value=value,
            dist_inputs=policy_step.dist_inputs,
            reward=env_step.reward,
            done=env_step.done,
            bootstrap=bootstrap,
            mask=inputs.mask,
            views={} if policy_step.state is None else policy_step.state.views,
            idle=inputs.idle if self._autoreset == "next_step" else None,
            scaled_reward=scaled_reward,
        )
        if self._trajectory_columns.is_needed:
            record.rllib_columns = self._trajectory_columns.select(
                obs=inputs.obs,
                policy_step=policy_step,
                env_step=env_step,
                next_obs=next_inputs.obs,
                final_obs=final_obs,
            )
        return record, next_inputs

    def _act(self, inputs: StepInputs) -> Step:
        with self._name_env_in_errors:
            return self.policy.act_encoded(
                inputs.obs, inputs.state, prev_reward=inputs.prev_reward, mask=inputs.mask
            )

    def _step_envs(self, action: TensorTree, *, idle: Array) -> EnvStep:
        env_obs, reward, terminated, truncated, info = self.envs.step(action)
        if self._autoreset == "next_step" and idle.any():
            # No action was taken, so no episode earned this reward. Gymnasium's vector environments
            # return 0, and others may return anything.
            reward = np.where(idle, 0.0, reward)
        done = terminated | truncated
        if self._env_masks is not None:
            self._env_masks.after_step(info, done)
        return EnvStep(
            env_obs=env_obs,
            original_reward=reward,
            reward=self._finite_float32(reward),
            terminated=terminated,
            truncated=truncated,
            done=done,
            info=info,
        )

    def _finite_float32(self, reward: Array) -> Array:
        """Return the environments' rewards as float32.

        Raises:
            NonFiniteError: A reward is not a finite float32.
        """
        is_usual = isinstance(reward, np.ndarray) and reward.dtype in (np.float64, np.float32)
        # One fast test for the usual case: the largest float32 is 3.4e38, so a reward that would
        # overflow adds more than 1e77 to the sum of squares. With NaN, the comparison is False. A
        # sum of float32 that overflows is infinite, and the rewards are then tested one by one.
        if is_usual and float(np.vdot(reward, reward)) < 1e76:
            float32_reward: Array = reward.astype(np.float32)
            return float32_reward
        with np.errstate(over="ignore"):  # reported below, with the environment's number
            rewards = np.asarray(reward).astype(np.float32)
        wrong_envs = np.flatnonzero(~np.isfinite(rewards))
        if len(wrong_envs):
            env = int(wrong_envs[0])
            raise NonFiniteError(
                f"environment {env} of {len(rewards)}, step {self._in_progress.lengths[env] + 1} of"
                f" its episode: the reward is {reward[env]}, which is not a finite float32. Fix it"
                " in the environment.",
                env,
            )
        return rewards

    # --- the end of an episode ----------------------------------------------------------------

    def _encode_final_obs(self, env_step: EnvStep) -> Array | None:
        """Return the encoded last observations of the episodes that ended with a step.

        Returns:
            An array `[N, ...]`; only the rows of these episodes are meaningful. If no trajectory
            columns need the last observations, those of truncated episodes suffice, for
            their values. None if none are needed.
        """
        needed = env_step.only_truncated  # truncated but not terminated
        if self._trajectory_columns.needs_final_obs:
            needed = env_step.done
        if not needed.any():
            return None
        if self._autoreset != "same_step":  # no environment has been reset yet
            return self._encode(env_step.env_obs, update=False)
        # The vector environment has begun the next episodes; `env_obs` already belongs to them.
        envs = np.flatnonzero(needed)
        with EnvErrors(self._in_progress.lengths, envs):
            encoded = self.policy.preprocess([env_step.info["final_obs"][env] for env in envs])
        final_obs = np.zeros((len(needed), *encoded.shape[1:]), encoded.dtype)
        final_obs[needed] = encoded
        return final_obs

    def _bootstrap(self, env_step: EnvStep, final_obs: Array, state: State | None) -> Array:
        """Return the discounted values of truncated episodes' last observations, 0 elsewhere."""
        truncated = env_step.only_truncated
        state_of_truncated = None if state is None else state.rows(truncated)
        with EnvErrors(self._in_progress.lengths, np.flatnonzero(truncated)):
            values = self.policy.values(
                final_obs[truncated],
                state_of_truncated,
                prev_reward=env_step.reward[truncated],
            )
        bootstrap = np.zeros(self.envs.num_envs, np.float32)
        bootstrap[truncated] = self.gamma * values
        return bootstrap

    def _reset(self, rows: Array) -> Any:
        """Reset some environments, given as booleans `[N]`; return the observations of all."""
        env_obs, infos = self.envs.reset(options={"reset_mask": rows})
        if self._env_masks is not None:
            self._env_masks.after_reset(infos, rows)
        return env_obs

    def _record_finished_episodes(self, done: Array) -> None:
        for env in np.flatnonzero(done):
            episode_return = float(self._in_progress.returns[env])
            self.episodes.add(episode_return, length=int(self._in_progress.lengths[env]))
        self._in_progress.reset(done)

    def _next_inputs(
        self, inputs: StepInputs, state: State | None, env_step: EnvStep, next_env_obs: TensorTree
    ) -> StepInputs:
        """Return the inputs of the next step; the filter learns from its observations.

        Args:
            inputs: The inputs of this step.
            state: The policy's state after this step.
            env_step: What the environments returned for this step.
            next_env_obs: The observations for the next step: those of `env_step`, or, if the
                collector has reset environments, those after the reset.
        """
        resets_in_next_step = self._autoreset == "next_step"
        if resets_in_next_step and env_step.done.any():
            idle = env_step.done
            # The next step ignores the action in idle environments. Their observation, an episode's
            # last one, is therefore in no training data: the filter does not learn from it, and the
            # idle step is recorded with the observation before.
            obs = self._encode(next_env_obs, update=~idle)
            obs[idle] = inputs.obs[idle]
            mask = self._action_mask(next_env_obs, idle=idle)
        else:
            idle = np.zeros(self.envs.num_envs, bool)
            obs = self._encode(next_env_obs, update=True)
            mask = self._action_mask(next_env_obs)

        # In mode "next_step", an idle step resets the environment, and the one after it begins.
        next_step_begins_episode = inputs.idle if resets_in_next_step else env_step.done
        if next_step_begins_episode.any():
            state = self.policy.restart(state, next_step_begins_episode)
        return StepInputs(obs=obs, mask=mask, state=state, prev_reward=env_step.reward, idle=idle)

    def _encode(self, env_obs: TensorTree, *, update: bool | Array) -> Array:
        """Return the encoded observations of all environments.

        Args:
            env_obs: The observations.
            update: Whether the filter first learns from them; booleans `[N]` select environments.
        """
        return self._name_env_in_errors.encode(self._trained_policy, env_obs, update=update)

    def _action_mask(self, env_obs: TensorTree, *, idle: Array | None = None) -> Array | None:
        """Return the masks in the observations; if there are none, those beside them."""
        mask = self.policy.action_mask(env_obs, idle=idle)
        if mask is None and self._env_masks is not None:
            mask = self._env_masks.columns
        # It may share memory with the environments, which overwrite it in their next step.
        return None if mask is None else mask.copy()

    # --- the end of a rollout -----------------------------------------------------------------

    def _estimate_last_value(self) -> Array:
        """Return the value estimates `[N]` after the last step; 0 if the algorithm uses none."""
        if not self._uses_values:
            return np.zeros(self.envs.num_envs, np.float32)
        inputs = self._inputs
        with self._name_env_in_errors:
            values: Array = self.policy.values(
                inputs.obs, inputs.state, prev_reward=inputs.prev_reward
            )
        return values

    def _add_trajectory_columns(self, rollout: Rollout, records: Sequence[StepRecord]) -> None:
        """Add views of future steps, and the columns for a `custom_loss`, to a rollout."""
        policy = self._trained_policy
        trajectory = stack_steps([record.rllib_columns for record in records])
        if self._postprocess is not None:
            trajectory |= added_columns(
                self._postprocess,
                policy,
                columns=trajectory,
                done=rollout.done,
                idle=rollout.idle,
            )
        future_views = policy.views.look_ahead(trajectory, rollout.done)
        rollout.views = {**rollout.views, **future_views}
        if self._has_custom_loss:
            rollout.columns = columns_for_custom_loss(trajectory, done=rollout.done)

    # --- saving and resuming ------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state, without the environments, for `trees.take_apart`."""
        inputs = self._inputs
        state: dict[str, Any] = {
            "episodes": self.episodes.get_state(),
            "returns": self._in_progress.returns,
            "lengths": self._in_progress.lengths,
            "encoded": inputs.obs,
            "mask": inputs.mask,
            "rewards": inputs.prev_reward,
            "idle": inputs.idle,
            "scale": None,
            "state": None,
        }
        if self.scale is not None:
            state["scale"] = self.scale.get_state()
        if inputs.state is not None:
            state["state"] = {
                "memory": inputs.state.memory,
                "windows": dict(inputs.state.history.windows),
                "t": inputs.state.history.t,
                "seen": inputs.state.views,  # their name in checkpoints
                "past": inputs.state.past,
            }
        return deepcopy(state)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned."""
        self.episodes = Episodes.from_state(state["episodes"])
        self._in_progress.set_state(returns=state["returns"], lengths=state["lengths"])
        if self.scale is not None and state.get("scale") is not None:
            self.scale.set_state(state["scale"])
        policy_state = None
        if state["state"] is not None:
            policy_state = State(
                memory=state["state"]["memory"],
                history=History(windows=state["state"]["windows"], t=state["state"]["t"]),
                views=state["state"]["seen"],
                past=state["state"]["past"],
            )
        mask = state["mask"]
        if self._env_masks is not None and self._env_masks.columns is not None:
            if mask is None:
                # Version 0.1.0 saved no masks from infos. Without one, allow every action once.
                mask = np.ones_like(self._env_masks.columns)
            self._env_masks.columns = mask
        self._inputs = StepInputs(
            obs=state["encoded"],
            mask=mask,
            state=policy_state,
            prev_reward=state["rewards"],
            idle=state["idle"],
        )

    def begin_anew(self, rows: Array) -> None:
        """Begin new episodes in environments whose state could not be restored.

        Args:
            rows: Booleans `[N]`.
        """
        if rows.all():
            env_obs, infos = self.envs.reset()
            if self._env_masks is not None:
                self._env_masks.after_reset(infos, rows)
        else:
            env_obs = self._reset(rows)
        new_obs = self._encode(env_obs, update=rows)
        continuing = ~rows
        new_mask = self._action_mask(env_obs, idle=continuing)  # only the rows that begin count

        inputs = self._inputs
        obs = inputs.obs.copy()
        obs[rows] = new_obs[rows]
        mask = inputs.mask
        if mask is not None and new_mask is not None:
            mask = np.where(rows[:, None], new_mask, mask)
        self._inputs = StepInputs(
            obs=obs,
            mask=mask,
            state=self.policy.restart(inputs.state, rows),
            prev_reward=np.where(rows, np.float32(0), inputs.prev_reward),
            idle=inputs.idle & ~rows,
        )
        self._in_progress.reset(rows)
        if self.scale is not None:
            self.scale.begin_anew(rows)
