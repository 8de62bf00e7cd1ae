"""Rollouts: experience collected with a policy, as rows for training."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog import Policy
from rlcatalog.errors import NonFiniteError
from rlcatalog.spaces import map_tensors
from rlcatalog_policy import EnvMasks, Frozen, State, autoreset_of
from rlcatalog_ppo.advantages import Array, estimate_advantages, refuse_infinite
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.env_errors import EnvErrors
from rlcatalog_ppo.loss import IN_EVERY_BATCH
from rlcatalog_ppo.reward_scale import RewardScale
from rlcatalog_ppo.rollout_columns import Ahead, Postprocess, Sequences, added_columns
from rlcatalog_ppo.trees import stack_steps
from rlcatalog_runs.seeds import SeedStream, derive_env_seeds, derive_seed

#: If the squares of rewards sum to less than this, all are finite as float32; with NaN, the
#: comparison is false.
_NO_OVERFLOW = 1e76


@dataclass
class Rollout:
    """Experience from N environments over T steps; array shapes start with `[T, N]` unless noted.

    Attributes:
        obs: Encoded observations.
        raw_action: Raw actions `[T, N, width]`.
        logp: Log densities of the actions at the time they were drawn.
        value: Value estimates for the observations; 0 if the algorithm does not use values.
        reward: Rewards, as returned by the environments.
        done: Whether the episode ended at this step.
        bootstrap: Discounted value of the last observation where an episode was truncated,
            otherwise 0. A time limit does not end the task, so this value replaces the later
            rewards.
        last_value: Value estimates `[N]` after the last step.
        dist_inputs: Parameters `[T, N, n]` of the distributions that the actions were drawn from.
        mask: Action masks `[T, N, m]`, or None if the environment has none.
        views: The model's inputs in addition to the observation, by name; each is an array or a
            structure.
        starts: Whether a sequence begins at each step, for a model with memory; otherwise None.
        memory: The memory at the start of each sequence, `[S, ...]`, one environment after another.
        idle: Steps that only began an episode, or None if there are none. `batch` and `rows` omit
            them.
        scaled: Rewards to use for training, or None to use `reward`.
        columns: Columns that only a model's `custom_loss` reads, under RLlib's names; empty if
            there is no `custom_loss`.
    """

    obs: Array
    raw_action: Array
    logp: Array
    value: Array
    reward: Array
    done: Array
    bootstrap: Array
    last_value: Array
    dist_inputs: Array | None = None
    mask: Array | None = None
    views: Mapping[str, Any] = field(default_factory=dict)
    starts: Array | None = None
    memory: tuple[Array, ...] = ()
    idle: Array | None = None
    scaled: Array | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Number of steps that contain experience."""
        return self.done.size if self.idle is None else int(self.done.size - self.idle.sum())

    def rows(self, columns: Any) -> Any:
        """Flatten columns `[T, N, ...]` to rows, one environment after another."""
        kept = slice(None) if self.idle is None else ~self.idle.T.reshape(-1)
        return map_tensors(
            columns, lambda array: array.swapaxes(0, 1).reshape(-1, *array.shape[2:])[kept]
        )

    def batch(self, gamma: float, lambda_: float, dist_inputs: bool = False) -> dict[str, Any]:
        """Return the rows for training, one environment after another, with their sequences, if
        any.

        Args:
            gamma: Discount.
            lambda_: Lambda of the advantage estimate.
            dist_inputs: Whether to include the distributions' parameters.

        Raises:
            NonFiniteError: An advantage is NaN or infinite.
        """
        advantages = estimate_advantages(self, gamma, lambda_)
        refuse_infinite(advantages, self.reward, self.value)
        columns: dict[str, Any] = {
            "obs": self.obs,
            "raw_action": self.raw_action,
            "logp": self.logp,
            "reward": self.reward,
            "advantage": advantages,
            "target": advantages + self.value,
            "dist_inputs": self.dist_inputs if dist_inputs else None,
            "mask": self.mask,
            "views": self.views or None,
            "columns": self.columns or None,
        }
        batch: dict[str, Any] = self.rows(
            {name: part for name, part in columns.items() if part is not None}
        )
        if self.starts is not None:
            places = np.flatnonzero(self.rows(self.starts))
            batch["seq_lens"] = np.diff(places, append=self.steps).astype(np.int32)
            batch["state"] = list(self.memory)
        return batch


@dataclass
class Episodes:
    """Record of finished episodes' returns and lengths.

    Attributes:
        returns: Undiscounted returns of the last 100 episodes.
        lengths: Lengths of the last 100 episodes in steps.
        total: Number of finished episodes.
    """

    returns: deque[float] = field(default_factory=lambda: deque(maxlen=100))
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=100))
    total: int = 0

    def add(self, episode_return: float, length: int) -> None:
        """Add a finished episode."""
        self.returns.append(episode_return)
        self.lengths.append(length)
        self.total += 1

    def get_state(self) -> dict[str, Any]:
        """Return the state as a structure for `trees.take_apart`."""
        return {"returns": list(self.returns), "lengths": list(self.lengths), "total": self.total}

    def figures(self) -> dict[str, Any]:
        """Return the number of episodes, and the means over the last 100, which are None before the
        first one ends.
        """
        mean = float(np.mean(self.returns)) if self.returns else None
        return {
            "episodes_total": self.total,
            "episode_return_mean": mean,
            "episode_reward_mean": mean,  # RLlib's older name
            "episode_len_mean": float(np.mean(self.lengths)) if self.lengths else None,
        }


class Collector:
    """Collector that steps a vector environment with a policy and returns rollouts.

    An environment may reuse the memory of its observations, so an episode's last observation must
    be read before the next episode begins. In mode SAME_STEP, the vector environment resets first,
    so its environments must return copies, as `rlcatalog_ppo.environments.vector` ensures.

    Args:
        policy: Policy that chooses the actions, either directly or in its frozen form.
        envs: The environments, in any of Gymnasium's autoreset modes.
        seed: The run's seed, from which those of the environments and of a frozen policy are
            derived.
        gamma: Discount factor for the value of a truncated episode's last observation.
        postprocess: Function that adds columns, which the model may request as training views, to
            each trajectory; or None.
        values: Whether the algorithm learns from value estimates. If False, values are 0,
            and rewards after the rollout's end or a truncation count as 0.
        scale: Scaling for training rewards, or None.
        masks: Reader for masks that the environments give beside their observations, or None.
    """

    def __init__(
        self,
        policy: Policy,
        envs: VectorEnv[Any, Any, Any],
        seed: int | None,
        gamma: float,
        postprocess: Postprocess | None = None,
        *,
        values: bool = True,
        scale: RewardScale | None = None,
        masks: EnvMasks | None = None,
    ) -> None:
        self.policy, self.envs, self.gamma, self.autoreset = policy, envs, gamma, autoreset_of(envs)
        self._values, self.scale = values, scale
        self.episodes = Episodes()
        n = envs.num_envs
        self._returns, self._lengths = np.zeros(n), np.zeros(n, np.int64)
        self._env_errors = EnvErrors(self._lengths)
        self._postprocess = postprocess
        self._has_custom_loss = policy.overrides("custom_loss")
        self._ahead = Ahead(policy, everything=postprocess is not None or self._has_custom_loss)
        self._env_masks = masks
        # Gymnasium declares an integer only.
        seeds: Any = derive_env_seeds(seed, SeedStream.ENVIRONMENTS, envs)
        obs, infos = envs.reset(seed=seeds)
        if masks is not None:
            masks.begin(infos)
        self._encoded = self._env_errors.encode(policy, obs, update=True)
        self._mask = self._mask_of(obs)
        self._state, self._rewards = policy.initial_state(n), np.zeros(n, np.float32)
        #: Environments whose next step only begins an episode.
        self._idle = np.zeros(n, bool)
        self._trained, self._frozen_seed = policy, derive_seed(seed, SeedStream.FROZEN)
        #: Whether a frozen policy acts; None until this is decided, before the first steps.
        self.frozen: bool | None = None

    def decide_frozen(self, config: OnPolicyConfig, total_steps: int | None = None) -> None:
        """Decide before the first step whether a frozen policy acts.

        Args:
            config: The algorithm's config.
            total_steps: Total number of steps in the run, if it is not in the config.
        """
        if self.frozen is None:
            self.freeze(
                config.collects_frozen(config.total_steps or total_steps, self.policy.device)
            )

    def freeze(self, frozen: bool) -> None:
        """Act with a frozen form of the policy, or with the policy itself."""
        self.frozen, policy = frozen, self._trained
        # A policy that cannot be frozen acts itself.
        if frozen:
            policy = policy.freeze(self.envs.num_envs, seed=self._frozen_seed)
        self.policy = policy

    def take_over(self) -> None:
        """Copy the current weights to the frozen policy, if there is one."""
        if isinstance(self.policy, Frozen):
            self.policy.update()

    def collect(
        self, length: int, watching: Collection[Callable[[dict[str, Any]], Any]] = ()
    ) -> Rollout:
        """Take `length` steps in every environment.

        Args:
            length: Number of steps.
            watching: Functions that are called with each step's columns.

        Raises:
            NonFiniteError: A reward, an observation or a policy output is NaN or infinite; the
                message names the environment and the step of its episode.
        """
        policy = self.policy
        steps: list[dict[str, Any]] = []
        sequences = Sequences(policy, self.envs.num_envs) if policy.memory else None
        for _ in range(length):
            if sequences is not None:
                sequences.note(self._state, self._idle)
            steps.append(self._step(sequences))
            for watch in watching:
                watch(steps[-1])
        columns: dict[str, Any] = stack_steps(steps)
        if (later := columns.pop("ahead", None)) is not None:
            if self._postprocess is not None:
                later |= added_columns(
                    self._postprocess, policy, later, columns["done"], columns.get("idle")
                )
            columns["views"] = {
                **columns.get("views", {}),
                **policy.views.look_ahead(later, columns["done"]),
            }
            if self._has_custom_loss:
                own = {name: column for name, column in later.items() if name not in IN_EVERY_BATCH}
                columns["columns"] = {**own, "dones": columns["done"]}
        if sequences is not None:
            columns |= sequences.arrays()
        last_value = np.zeros(self.envs.num_envs, np.float32)
        if self._values:
            with self._env_errors:
                last_value = policy.values(self._encoded, self._state, prev_reward=self._rewards)
        return Rollout(**columns, last_value=last_value)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state, without the environments, for `trees.take_apart`."""
        state = self._state
        whole: dict[str, Any] = {
            "episodes": self.episodes.get_state(),
            "returns": self._returns,
            "lengths": self._lengths,
            "encoded": self._encoded,
            "mask": self._mask,
            "rewards": self._rewards,
            "idle": self._idle,
            "scale": None if self.scale is None else self.scale.get_state(),
            "state": None
            if state is None
            else {
                "memory": state.memory,
                "windows": dict(state.history.windows),
                "t": state.history.t,
                "seen": state.seen,
                "past": state.past,
            },
        }
        return deepcopy(whole)

    def set_state(self, found: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned."""
        returns, lengths, total = (
            found["episodes"][name] for name in ("returns", "lengths", "total")
        )
        self.episodes = Episodes(deque(returns, 100), deque(lengths, 100), total)
        self._returns[:], self._lengths[:] = found["returns"], found["lengths"]
        self._encoded, self._rewards, self._idle = found["encoded"], found["rewards"], found["idle"]
        self._mask, state = found["mask"], found["state"]
        if self._env_masks is not None and self._env_masks.columns is not None:
            # Checkpoints of 0.1.0 have no masks from infos: the first step allows everything.
            if self._mask is None:
                self._mask = np.ones_like(self._env_masks.columns)
            self._env_masks.columns = self._mask
        if self.scale is not None and found.get("scale") is not None:
            self.scale.set_state(found["scale"])
        if state is not None:
            history = self._state.history._replace(windows=state["windows"], t=state["t"])
            self._state = State(state["memory"], history, state["seen"], state["past"])

    def begin_anew(self, rows: Array) -> None:
        """Begin new episodes in environments whose state could not be restored.

        Args:
            rows: Booleans `[N]`.
        """
        observed, infos = self.envs.reset(options=None if rows.all() else {"reset_mask": rows})
        if self._env_masks is not None:
            self._env_masks.after_reset(infos, rows)
        encoded = self._env_errors.encode(self.policy, observed, update=rows)
        self._encoded = np.where(
            rows.reshape(-1, *[1] * (encoded.ndim - 1)), encoded, self._encoded
        )
        mask = self._mask_of(observed, idle=~rows)
        if mask is not None and self._mask is not None:
            self._mask = np.where(rows[:, None], mask, self._mask)
        self._state = self.policy.restart(self._state, rows)
        for column in (self._returns, self._lengths, self._rewards, self._idle):
            column[rows] = 0
        if self.scale is not None:
            self.scale.begin_anew(rows)

    def _step(self, sequences: Sequences | None) -> dict[str, Any]:
        policy, encoded, mask, idle = self.policy, self._encoded, self._mask, self._idle
        with self._env_errors:
            step = policy.act_encoded(encoded, self._state, prev_reward=self._rewards, mask=mask)
        row: dict[str, Any] = {
            "obs": encoded,
            "raw_action": step.raw_action,
            "logp": step.logp,
            "value": step.value if self._values else np.zeros(len(encoded), np.float32),
            "dist_inputs": step.dist_inputs,
        }
        if mask is not None:
            row["mask"] = mask.copy()  # it may share memory with the environments
        if step.state is not None and step.state.seen:
            row["views"] = step.state.seen
        if self.autoreset == "next_step":
            row["idle"] = idle
        observed, reward, terminated, truncated, info = self.envs.step(step.action)
        ended = terminated | truncated
        over = bool(ended.any())
        if self._env_masks is not None:
            self._env_masks.after_step(info, ended)
        self._rewards = self._rewarded(reward)
        row |= {
            "reward": self._rewards,
            "done": ended,
            "bootstrap": np.zeros(len(ended), np.float32),
        }
        if self.scale is not None:
            row["scaled"] = self.scale(self._rewards, ended, idle)
        self._returns += reward
        self._lengths += ~idle
        last: Array | None = None
        if over:
            cut = truncated & ~terminated
            wanted = ended if self._ahead.last_obs else cut
            if wanted.any():
                last = self._last(observed, wanted, info)
                row["bootstrap"][cut] = self._bootstrap(last[cut[wanted]], step.state, cut)
            observed = self._finish(ended, observed)
        self._see(observed, ended)
        if self._ahead:
            row["ahead"] = self._ahead.row(row, step, terminated, truncated, self._encoded, last)
        begun, some = (idle, bool(idle.any())) if self.autoreset == "next_step" else (ended, over)
        self._state = policy.restart(step.state, begun) if some else step.state
        if sequences is not None:
            sequences.step(ended | idle)
        return row

    def _rewarded(self, reward: Array) -> Array:
        if (
            isinstance(reward, np.ndarray)
            and reward.dtype == np.float64
            and np.vdot(reward, reward) < _NO_OVERFLOW
        ):
            return reward.astype(np.float32)
        with np.errstate(over="ignore"):
            rewards = np.asarray(reward).astype(np.float32)
        wrong = np.flatnonzero(~np.isfinite(rewards))
        if len(wrong):
            i = int(wrong[0])
            raise NonFiniteError(
                f"environment {i} of {len(rewards)}, step {self._lengths[i] + 1} of its episode:"
                f" the reward is {reward[i]}, which is not a finite float32. Fix it in the"
                " environment.",
                i,
            )
        return rewards

    def _last(self, observed: Any, wanted: Array, info: dict[str, Any]) -> Array:
        """Return the encoded last observations of k episodes."""
        if self.autoreset == "same_step":
            places = np.flatnonzero(wanted)
            with EnvErrors(self._lengths, places):
                return self.policy.preprocess([info["final_obs"][i] for i in places])
        return self._env_errors.encode(self.policy, observed)[wanted]

    def _bootstrap(self, last: Array, state: State | None, cut: Array) -> Array | float:
        if not len(last) or not self._values:
            return 0.0
        state = None if state is None else state.rows(cut)
        with EnvErrors(self._lengths, np.flatnonzero(cut)):
            values: Array = self.policy.values(last, state, prev_reward=self._rewards[cut])
            return self.gamma * values

    def _finish(self, ended: Array, observed: Any) -> Any:
        """Record ended episodes; return the observations, after a reset if the autoreset mode
        requires it.
        """
        for i in np.flatnonzero(ended):
            self.episodes.add(float(self._returns[i]), int(self._lengths[i]))
        self._returns[ended], self._lengths[ended] = 0.0, 0
        if self.autoreset == "disabled":
            observed, infos = self.envs.reset(options={"reset_mask": ended})
            if self._env_masks is not None:
                self._env_masks.after_reset(infos, ended)
        return observed

    def _mask_of(self, observed: Any, idle: Array | None = None) -> Array | None:
        """Return the masks in the observations; if there are none, those beside them."""
        mask: Array | None = self.policy.action_mask(observed, idle=idle)
        if mask is None and self._env_masks is not None:
            return self._env_masks.columns
        return mask

    def _see(self, observed: Any, ended: Array) -> None:
        """Encode the next observations, and update the filter with them."""
        idle = ended if self.autoreset == "next_step" and ended.any() else None
        before, self._idle = self._encoded, np.zeros(len(ended), bool) if idle is None else idle
        self._encoded = self._env_errors.encode(
            self.policy, observed, update=True if idle is None else ~idle
        )
        # Actions have no effect after an episode's end; they belong to the previous observations.
        if idle is not None:
            self._encoded[idle] = before[idle]
        self._mask = self._mask_of(observed, idle)
