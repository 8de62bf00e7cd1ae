"""Training session for any engine: its folder, record, logs, evaluations, checkpoints and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import msgspec

import rlcatalog
from rlcatalog import Policy
from rlcatalog.catalog import default_catalog, make_env
from rlcatalog.errors import SavedPolicyError
from rlcatalog_runs.checkpoints import (
    CHECKPOINTS,
    checkpoint_name,
    new_checkpoint,
    prune_checkpoints,
)
from rlcatalog_runs.comparison import draw
from rlcatalog_runs.engines import DEFAULT_ENGINE, Engine, RunPlan
from rlcatalog_runs.evaluation import kept, play, summarize
from rlcatalog_runs.folders import BEST, CURVE, POLICY, run_folder, write_config
from rlcatalog_runs.interrupts import Interrupts, interruptible
from rlcatalog_runs.logs import Writer, writers
from rlcatalog_runs.records import record_run
from rlcatalog_runs.summaries import best_evaluation, read_rows

#: Number of training episodes that `--stop-at` needs.
_EPISODES = 100


class Session:
    """Training run in progress, from the engine's point of view.

    Args:
        plan: The plan of the run.
        folder: The run's folder.
        interrupts: Pending requests to stop.
        logs: Logs that receive each metrics row.
        show: Function that also receives each metrics row.

    Attributes:
        stopping: The reason why the run should end before its last step, or None.
        saved: The number of environment steps at the last checkpoint, or None.
    """

    def __init__(
        self,
        plan: RunPlan,
        folder: Path,
        interrupts: Interrupts,
        logs: list[Writer],
        show: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.plan, self.folder, self.interrupts, self.options = (
            plan,
            folder,
            interrupts,
            plan.options,
        )
        self.stopping: str | None = None
        self._logs, self._show = logs, show
        self._evaluated = plan.steps
        self._best = best_evaluation(read_rows(folder)) if plan.checkpoint is not None else None
        self.saved: int | None = None

    def report(
        self, row: Mapping[str, Any], policy: Callable[[], Policy] | None = None, episodes: int = 0
    ) -> None:
        """Log and show a metrics row, evaluate the policy if due, and record whether the run must
        end.

        Args:
            row: `timesteps_total`, `episode_return_mean` (of the last 100 episodes, or None), and
                any other numbers.
            policy: Function that returns the current policy; None if the engine handles evaluation
                and stopping.
            episodes: Number of episodes that the mean return covers; with fewer than 100, the run
                does not end early.
        """
        if policy is not None:
            row = dict(row)
            every, steps = self.options.eval_every, row["timesteps_total"]
            if every and steps // every > self._evaluated // every:
                self._evaluated = steps
                row["evaluation"] = self._evaluate(policy())
            self._stop(row, episodes)
        for log in self._logs:
            log.write(row)
        self._show(row)

    def save_checkpoint(self, steps: int, policy: Policy, write: Callable[[Path], None]) -> None:
        """Save the policy, and a checkpoint at this number of environment steps unless there
        already is one.

        Args:
            steps: The number of steps.
            policy: The policy.
            write: Function that writes the engine's state to the checkpoint's folder.
        """
        policy.save(self.folder / POLICY)
        path = self.folder / CHECKPOINTS / checkpoint_name(steps)
        if not path.is_dir():
            with new_checkpoint(path) as new:
                policy.save(new / POLICY)
                write(new)
            prune_checkpoints(self.folder, self.options.keep_checkpoints)
        self.saved = steps

    def is_checkpoint_due(self, steps: int) -> bool:
        """Return whether a checkpoint is due at this number of environment steps; the first one
        always is.
        """
        every = self.options.checkpoint_every
        return self.saved is None or bool(every and steps // every > self.saved // every)

    def _evaluate(self, policy: Policy) -> dict[str, float]:
        """Play episodes in separate environments, and save the policy if it is the best.

        Training is not affected.
        """
        catalog, episodes = default_catalog(), self.options.eval_episodes

        def make() -> Any:
            env = make_env(self.plan.env_id)
            return catalog.wrap_env(env, policy.config, move_masks=False)

        with kept(policy):
            figures = summarize(
                *(
                    play(policy, make, episodes, seed=self.plan.seed, explore=draws)
                    for draws in (False, True)
                )
            )
        if self._best is None or figures["return_mean"] > self._best:
            self._best = figures["return_mean"]
            policy.save(self.folder / BEST)
        return figures

    def _stop(self, row: Mapping[str, Any], episodes: int) -> None:
        target, what, mean = (
            self.options.stop_at,
            f"{_EPISODES} episodes",
            row.get("episode_return_mean"),
        )
        if self.options.eval_every:
            what, mean = "an evaluation", row.get("evaluation", {}).get("return_mean")
        elif episodes < _EPISODES:
            return
        if target is not None and mean is not None and mean >= target:
            self.stopping = f"the mean return of {what} is {mean:.6g}, the target {target:g}"


def train(
    engine: Engine,
    folder: Path,
    show: Callable[[Mapping[str, Any]], None],
    *,
    overwrite: bool = False,
) -> Session:
    """Train until the run ends or is interrupted; the folder contains the complete run in either
    case.

    Args:
        engine: The engine.
        folder: The run's folder.
        show: Function that receives each metrics row.
        overwrite: Whether to replace the run in the folder.

    Raises:
        RunFolderError: The folder contains a run, or another process is writing to it.
        Interrupted: A signal asked the run to stop, and the run was saved.
    """
    plan, options = engine.plan, engine.plan.options
    resumed = plan.checkpoint is not None
    name = None if options.engine == DEFAULT_ENGINE else options.engine
    with (
        run_folder(folder, overwrite, resume=resumed),
        record_run(folder, engine=name, packages=engine.packages, resumed=resumed),
        ExitStack() as stack,
        interruptible(later=not engine.ends_at_once) as interrupts,
    ):
        if resumed:
            prune_checkpoints(folder, options.keep_checkpoints, plan.steps)
        engine.prepare_folder(folder)
        run = msgspec.to_builtins(options)
        about = {
            "steps": options.steps,
            **engine.describe(),
            "run": run,
            "rlcatalog": rlcatalog.__version__,
        }
        write_config(folder, plan.env_id, about)
        logs = writers(options.log, folder, about, after=plan.steps if resumed else None)
        for log in logs:
            stack.callback(log.close)
        session = Session(plan, folder, interrupts, logs, show)
        title = f"{plan.algorithm} on {plan.env_id}, seed {plan.seed}"
        try:
            with closing(engine):
                engine.learn(session)
        except BaseException:
            # The error that ended the run is more important.
            with suppress(OSError, SavedPolicyError):
                draw(folder / CURVE, read_rows(folder), title)
            raise
        draw(folder / CURVE, read_rows(folder), title)
    return session
