"""Callbacks: what a training run tells as it goes. Checkpoints, evaluation, stopping and logs are written on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
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
    """Is told of a run; each method does nothing here. Pass some as `PPO(..., callbacks=[...])`.

    They are called in the order in which they are given. What one raises ends the run.
    """

    def check_env(self, make_env: EnvMaker) -> None:
        """Raise where the algorithm's environments do not suffice; called before a policy is built."""

    def on_start(self, algo: OnPolicy) -> None:
        """`learn` begins, or goes on after `restore`."""

    def on_step(self, algo: OnPolicy, step: Mapping[str, Any]) -> None:
        """A step was taken in every environment.

        Args:
            algo: The algorithm.
            step: The columns of the step, `[N, ...]` each (see `Rollout`).
        """

    def on_rollout(self, algo: OnPolicy, rollout: Rollout) -> None:
        """A rollout was collected, and nothing was learned from it yet."""

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """An iteration is complete.

        Args:
            algo: The algorithm.
            result: What `train` will return; what is entered here goes into the logs of callbacks that come later.
        """

    def on_end(self, algo: OnPolicy, error: BaseException | None) -> None:
        """`learn` is over.

        Args:
            algo: The algorithm.
            error: What ended it before its time, or None.
        """

    def get_state(self) -> Any:
        """Return what belongs into a checkpoint (see `trees.take_apart`), or None."""

    def set_state(self, state: Any) -> None:
        """Go on from what `get_state` returned."""


class Every:
    """Says when a number of steps is complete.

    Args:
        steps: The number; 0 for never.
    """

    def __init__(self, steps: int) -> None:
        if steps < 0:
            raise ConfigError(f"every {steps} steps: expected 1 or more, or 0 for never.")
        self.steps, self.periods = steps, 0

    def due(self, done: int) -> bool:
        """Whether another period is complete after some steps."""
        if not self.steps or done // self.steps <= self.periods:
            return False
        self.periods = done // self.steps
        return True


class Evaluation(Callback):
    """Plays episodes with the policy in environments of their own; the figures stand in `result["evaluation"]`.

    That is `return_mean` and `return_std` of episodes with the most likely actions, and `sampled_return_mean` of as
    many with drawn ones. The run is left as it was: generators, filter and weights. The best policy is saved.

    Args:
        every: Environment steps between two evaluations.
        episodes: How many episodes of each kind.
        folder: Where the best policy is saved; nowhere when missing.
        seed: Seed of the environments, the same at each evaluation.
        env: The environment to play in, as for `OnPolicy.evaluate`.
    """

    def __init__(
        self, every: int, episodes: int = 10, folder: Path | None = None, seed: int = 10_000, env: AnyEnv | None = None
    ) -> None:
        self.every, self.episodes, self.folder, self.seed, self.env = Every(every), episodes, folder, seed, env
        self.best: float | None = None

    def check_env(self, make_env: EnvMaker) -> None:
        """Raise where there is no environment to play in."""
        make_env.beside(self.env)

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """Evaluate where it is time."""
        if not self.every.due(result["timesteps_total"]):
            return
        play = partial(algo.evaluate, self.episodes, env=self.env, seed=self.seed)
        returns, sampled = play(), play(explore=True)
        figures = result["evaluation"] = summarize(returns, sampled)
        if self.best is None or figures["return_mean"] > self.best:
            self.best = figures["return_mean"]
            if self.folder is not None:
                algo.save(self.folder)

    def get_state(self) -> Any:
        """Return how many periods are complete, and the best mean so far."""
        return [self.every.periods, self.best]

    def set_state(self, state: Any) -> None:
        """Go on."""
        self.every.periods, self.best = msgspec.convert(state, tuple[int, float | None])


class StopAt(Callback):
    """Ends the run once a mean return is reached: of an evaluation where there are any, else of the last 100 episodes.

    Args:
        target: The return.
        evaluated: Whether evaluations count, those of an `Evaluation` before this callback, and nothing else.
    """

    def __init__(self, target: float, evaluated: bool) -> None:
        self.target, self.evaluated = target, evaluated

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """End the run where an evaluation, or 100 episodes in training, reach the target."""
        if self.evaluated:
            what, mean = "an evaluation", result.get("evaluation", {}).get("return_mean")
        else:
            what, mean = "100 episodes", result["episode_return_mean"] if result["episodes_total"] >= 100 else None
        if mean is not None and mean >= self.target:
            algo.stop_training(f"the mean return of {what} is {mean:.6g}, the target {self.target:g}")


class Log(Callback):
    """Hands the result of each iteration to a function.

    Args:
        write: Gets the result.
    """

    def __init__(self, write: Callable[[Mapping[str, Any]], None]) -> None:
        self.write = write

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """Write the row."""
        self.write(result)


class Checkpoints(Callback):
    """Keeps the whole state of a run, to go on from with `restore`: now and then, and where the run is ended early.

    What ends a run may leave it in the middle of an iteration. The state is therefore noted in memory after iterations,
    as often as takes a fiftieth of the time; the last one noted is written then, and the policy is set back to it.

    Args:
        folder: The run's folder; checkpoints stand in its `checkpoints`, the policy of the last one in its `policy`.
        every: Environment steps between two checkpoints; 0: where the run ends, alone.
        keep: How many stay.
    """

    def __init__(self, folder: Path, every: int, keep: int = 2) -> None:
        self.folder, self.every, self.keep = folder, Every(every), keep
        self._last: dict[str, Any] | None = None
        #: When the state was noted, and how long that took, in seconds.
        self._noted = self._took = 0.0

    def on_start(self, algo: OnPolicy) -> None:
        """Keep the state that the run begins with, so that there is one to go on from at any time."""
        self.every.due(algo.steps)
        self._note(algo)
        self._write(algo)

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        """Note the state, and write it where it is time."""
        due = self.every.due(algo.steps)
        if due or time.perf_counter() - self._noted >= 50 * self._took:
            self._note(algo)
        if due:
            self._write(algo)

    def on_end(self, algo: OnPolicy, error: BaseException | None) -> None:
        """Write the state at the end, or the last that is whole."""
        if self._last is None:
            return
        if error is None:
            self._note(algo)
        else:
            algo.set_back(self._last)
        self._write(algo)

    def _note(self, algo: OnPolicy) -> None:
        start = time.perf_counter()
        self._last = algo.state()
        self._noted = time.perf_counter()
        self._took = self._noted - start

    def _write(self, algo: OnPolicy) -> None:
        assert self._last is not None
        algo.save(self.folder / checkpoints.POLICY)
        path = self.folder / CHECKPOINTS / checkpoint_name(self._last["steps"])
        if path.is_dir():
            return  # it holds the same
        checkpoints.write(path, algo.policy, self._last)
        prune_checkpoints(self.folder, self.keep)
