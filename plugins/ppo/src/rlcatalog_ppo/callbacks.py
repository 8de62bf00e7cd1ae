"""Callbacks for training runs: evaluation, early stopping, logs and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rlcatalog.errors import ConfigError
from rlcatalog_ppo import checkpoints
from rlcatalog_runs import CHECKPOINTS, checkpoint_name, prune_checkpoints
from rlcatalog_runs.evaluation import summarize

if TYPE_CHECKING:
    from rlcatalog_ppo.algorithm import OnPolicy
    from rlcatalog_ppo.environments import AnyEnv, EnvMaker
    from rlcatalog_ppo.rollout import Rollout


class Callback:
    """Base class for callbacks; its methods do nothing.

    Pass callbacks as `PPO(..., callbacks=[...])`.

    Callbacks are called in the given order. An exception in a callback ends the run.
    """

    def check_env(self, make_env: EnvMaker) -> None:
        """Raise an error if the algorithm's environments are not sufficient; called before a policy
        is built.
        """

    def on_start(self, algo: OnPolicy) -> None:
        """Called when `learn` begins, including after `restore`."""

    def on_step(self, algo: OnPolicy, step: Mapping[str, Any]) -> None:
        """Called after a step in every environment.

        Args:
            algo: The algorithm.
            step: The step's columns, each `[N, ...]` (see `Rollout`).
        """

    def on_rollout(self, algo: OnPolicy, rollout: Rollout) -> None:
        """Called after a rollout is collected, before the policy learns from it."""

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """Called after each iteration.

        Args:
            algo: The algorithm.
            result: The result that `train` returns. Later callbacks, such as logs, see the entries
                that you add.
        """

    def on_end(self, algo: OnPolicy, error: BaseException | None) -> None:
        """Called when `learn` ends.

        Args:
            algo: The algorithm.
            error: The exception that ended `learn`, or None.
        """

    def get_state(self) -> Any:
        """Return the state to keep in checkpoints (see `trees.take_apart`), or None."""

    def set_state(self, state: Any) -> None:
        """Restore the state that `get_state` returned."""


class Every:
    """Counter for completed periods of steps.

    Args:
        steps: Number of steps in a period; 0 for never.

    Attributes:
        periods: Number of complete periods so far.
    """

    def __init__(self, steps: int) -> None:
        if steps < 0:
            raise ConfigError(f"every {steps} steps: expected 1 or more, or 0 for never.")
        self.steps = steps
        self.periods = 0

    def advance(self, steps_so_far: int) -> bool:
        """Count the periods that are complete; return whether there is one more than before."""
        if self.steps == 0:
            return False
        periods = steps_so_far // self.steps
        if periods <= self.periods:
            return False
        self.periods = periods
        return True


class Evaluation(Callback):
    """Callback that evaluates the policy in separate environments and adds metrics under
    `result["evaluation"]`.

    The metrics are `return_mean` and `return_std` over episodes with deterministic actions, and
    `sampled_return_mean` over the same number of episodes with sampled actions. Evaluation does not
    change random generators, the filter or the weights. The best policy is saved.

    Args:
        every: Environment steps between two evaluations.
        episodes: Number of episodes with deterministic actions, and with sampled ones.
        folder: Folder for the best policy. If None, the policy is not saved.
        seed: Seed for `OnPolicy.evaluate`. If None, the algorithm's. Each evaluation plays the
            same episodes, so that its results differ because of the policy alone.
        env: The environment to play in; see `OnPolicy.evaluate`.
    """

    def __init__(
        self,
        every: int,
        episodes: int = 10,
        folder: Path | None = None,
        seed: int | None = None,
        env: AnyEnv | None = None,
    ) -> None:
        self.every = Every(every)
        self.episodes = episodes
        self.folder = folder
        self.seed = seed
        self.env = env
        self.best: float | None = None

    def check_env(self, make_env: EnvMaker) -> None:
        """Raise an error if there is no environment in which to play."""
        make_env.for_evaluation(self.env)

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """Evaluate if an evaluation is due."""
        is_due = self.every.advance(result["timesteps_total"])
        if not is_due:
            return
        # One evaluation takes deterministic actions, the other samples them.
        returns = algo.evaluate(self.episodes, env=self.env, seed=self.seed)
        sampled_returns = algo.evaluate(self.episodes, env=self.env, seed=self.seed, explore=True)
        evaluation = summarize(returns, sampled_returns)
        result["evaluation"] = evaluation
        if self.best is None or evaluation["return_mean"] > self.best:
            self.best = evaluation["return_mean"]
            if self.folder is not None:
                algo.save(self.folder)

    def get_state(self) -> Any:
        """Return the number of completed periods and the best mean so far."""
        return [self.every.periods, self.best]

    def set_state(self, state: Any) -> None:
        """Restore the state that `get_state` returned."""
        periods, best = msgspec.convert(state, tuple[int, float | None])
        self.every.periods = periods
        self.best = best


class StopAt(Callback):
    """Callback that stops training at a mean return, either in an evaluation or over the last 100
    training episodes.

    Args:
        target: The mean return at which to stop.
        evaluated: Whether to consider only evaluations; this requires an `Evaluation` before this
            callback.
    """

    def __init__(self, target: float, evaluated: bool) -> None:
        self.target = target
        self.evaluated = evaluated

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """End the run if the mean return in an evaluation, or over 100 training episodes, reaches
        the target.
        """
        mean = None
        if self.evaluated:  # only evaluations count
            measured_over = "an evaluation"
            if "evaluation" in result:
                mean = result["evaluation"].get("return_mean")
        else:
            measured_over = "100 episodes"
            if result["episodes_total"] >= 100:
                mean = result["episode_return_mean"]
        if mean is not None and mean >= self.target:
            algo.stop_training(
                f"the mean return of {measured_over} is {mean:.6g}, the target {self.target:g}"
            )


class Log(Callback):
    """Callback that passes each iteration's result to a function.

    Args:
        write: The function.
    """

    def __init__(self, write: Callable[[Mapping[str, Any]], None]) -> None:
        self.write = write

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """Pass on the result."""
        self.write(result)


class Checkpoints(Callback):
    """Callback that writes checkpoints for `restore`, regularly and at the end of the run, even if
    it ends early.

    A run may end in the middle of an iteration. Therefore, the state is copied in memory after
    iterations; copying takes at most 2% of the running time. If the run ends early, the last copy
    is written, and the policy is reset to it.

    Args:
        folder: The run's folder. Checkpoints are written to `checkpoints`, and the last one's
            policy to `policy`.
        every: Environment steps between two checkpoints; 0 to write only the first and the last.
        keep: Number of checkpoints to keep.
    """

    def __init__(self, folder: Path, every: int, keep: int = 2) -> None:
        self.folder = folder
        self.every = Every(every)
        self.keep = keep
        #: The last copy of the state, the time when it was taken, and how long that took.
        self._copy: dict[str, Any] | None = None
        self._copy_time = 0.0  # seconds
        self._copy_duration = 0.0  # seconds

    def on_start(self, algo: OnPolicy) -> None:
        """Write the initial state so that the run can always be resumed."""
        self.every.advance(algo.steps)  # a resumed run has completed these periods
        self._copy_state(algo)
        self._write_copy(algo)

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """Copy the state, and write a checkpoint if one is due."""
        is_due = self.every.advance(algo.steps)
        # Wait 50 times as long as copying took, so that it takes at most 2% of the time.
        seconds_since_copy = time.perf_counter() - self._copy_time
        has_time = seconds_since_copy >= 50 * self._copy_duration
        if is_due or has_time:
            self._copy_state(algo)
        if is_due:
            self._write_copy(algo)

    def on_end(self, algo: OnPolicy, error: BaseException | None) -> None:
        """Write the final state, or, after an error, the last copy of the state."""
        if self._copy is None:
            return  # the run failed before it began
        if error is None:
            self._copy_state(algo)
        else:
            algo.set_back(self._copy)
        self._write_copy(algo)

    def _copy_state(self, algo: OnPolicy) -> None:
        start = time.perf_counter()
        self._copy = algo.state()
        self._copy_time = time.perf_counter()
        self._copy_duration = self._copy_time - start

    def _write_copy(self, algo: OnPolicy) -> None:
        """Write a checkpoint of the last copy; the algorithm's policy is the same as in it."""
        assert self._copy is not None
        algo.save(self.folder / checkpoints.POLICY)
        path = self.folder / CHECKPOINTS / checkpoint_name(self._copy["steps"])
        if path.is_dir():
            return  # it contains the same state
        checkpoints.write(path, algo.policy, self._copy)
        prune_checkpoints(self.folder, self.keep)
