"""Training session for any engine: its folder, record, logs, evaluations, checkpoints and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import msgspec

import rlcatalog
from rlcatalog import Policy
from rlcatalog.catalog import count_envs, default_catalog, make_env, makes_vector
from rlcatalog.errors import SavedPolicyError
from rlcatalog_runs.checkpoints import (
    CHECKPOINTS,
    checkpoint_name,
    new_checkpoint,
    prune_checkpoints,
)
from rlcatalog_runs.comparison import draw
from rlcatalog_runs.display import RunDisplay
from rlcatalog_runs.engines import DEFAULT_ENGINE, Engine, RunPlan
from rlcatalog_runs.evaluation import MOST_ENVS_AT_ONCE, keep_random_state, play, summarize
from rlcatalog_runs.folders import BEST, CURVE, POLICY, run_folder, write_config
from rlcatalog_runs.interrupts import Interrupts, interruptible
from rlcatalog_runs.logs import Writer, writers
from rlcatalog_runs.records import record_run
from rlcatalog_runs.seeds import SeedStream, derive_seed
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
        display: Display that shows the run.

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
        display: RunDisplay,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.interrupts = interrupts
        self.options = plan.options
        self.stopping: str | None = None
        self.saved: int | None = None
        self._logs = logs
        self._display = display
        #: Number of steps at the last evaluation.
        self._last_evaluation = plan.steps
        #: The best mean return in an evaluation so far.
        self._best: float | None = None
        if plan.checkpoint is not None:
            self._best = best_evaluation(read_rows(folder))

    def begin(self, policy: Policy, device: str | None = None) -> None:
        """Show the policy that is trained; an engine calls this once, before the first step.

        Args:
            policy: The policy.
            device: The device of the model that is trained. If None, the policy's.
        """
        if device is None:
            device = policy.device
        self._display.begin(policy, device)

    def advance(self, steps: int) -> None:
        """Show the progress within an iteration; an engine may call this after each step.

        Args:
            steps: The number of environment steps so far.
        """
        self._display.advance(steps)

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
            steps = row["timesteps_total"]
            if _begins_new_period(steps, self._last_evaluation, every=self.options.eval_every):
                self._last_evaluation = steps
                row["evaluation"] = self._evaluate(policy())
            self._stop_at_target(row, episodes)
        for log in self._logs:
            log.write(row)
        self._display.add_row(row)

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
            with new_checkpoint(path) as temporary:
                policy.save(temporary / POLICY)
                write(temporary)
            prune_checkpoints(self.folder, self.options.keep_checkpoints)
        self.saved = steps

    def is_checkpoint_due(self, steps: int) -> bool:
        """Return whether a checkpoint is due at this number of environment steps; the first one
        always is.
        """
        if self.saved is None:
            return True
        return _begins_new_period(steps, self.saved, every=self.options.checkpoint_every)

    def _evaluate(self, policy: Policy) -> dict[str, float]:
        """Play episodes in separate environments, and save the policy if it is the best.

        Training is not affected.
        """
        catalog = default_catalog()
        episodes = self.options.eval_episodes
        seed = self.plan.seed

        def make() -> Any:
            if makes_vector(self.plan.env_id):
                num_envs = min(episodes, MOST_ENVS_AT_ONCE)
                env_seed = derive_seed(seed, SeedStream.EVALUATION)
                return make_env(self.plan.env_id, {"num_envs": num_envs, "seed": env_seed})
            env = make_env(self.plan.env_id)
            if count_envs(env) is not None:
                return env
            # `play` reads masks from infos, so that the policy keeps the environment's spaces.
            return catalog.wrap_env(env, policy.config, move_masks=False)

        with keep_random_state(policy):
            returns = play(policy, make, episodes, seed=seed, explore=False)
            sampled_returns = play(policy, make, episodes, seed=seed, explore=True)
        evaluation = summarize(returns, sampled_returns)
        if self._best is None or evaluation["return_mean"] > self._best:
            self._best = evaluation["return_mean"]
            policy.save(self.folder / BEST)
        return evaluation

    def _stop_at_target(self, row: Mapping[str, Any], episodes: int) -> None:
        """Make the run end if the mean return of evaluations, or else of enough training episodes,
        has reached the target.
        """
        target = self.options.stop_at
        if self.options.eval_every:
            measured_over = "an evaluation"
            mean = row.get("evaluation", {}).get("return_mean")  # few rows have an evaluation
        elif episodes >= _EPISODES:
            measured_over = f"{_EPISODES} episodes"
            mean = row.get("episode_return_mean")
        else:
            return
        if target is not None and mean is not None and mean >= target:
            self.stopping = (
                f"the mean return of {measured_over} is {mean:.6g}, the target {target:g}"
            )


def _begins_new_period(steps: int, last_steps: int, *, every: int) -> bool:
    """Return whether another period of `every` steps is complete since `last_steps`.

    With `every=0`, there are no periods.
    """
    return every > 0 and steps // every > last_steps // every


def train(
    engine: Engine,
    folder: Path,
    display: RunDisplay,
    *,
    overwrite: bool = False,
) -> Session:
    """Train until the run ends or is interrupted; the folder contains the complete run in either
    case.

    Args:
        engine: The engine.
        folder: The run's folder.
        display: Display that shows the run.
        overwrite: Whether to replace the run in the folder.

    Raises:
        RunFolderError: The folder contains a run, or another process is writing to it.
        Interrupted: A signal asked the run to stop, and the run was saved.
    """
    plan = engine.plan
    options = plan.options
    is_resumed = plan.checkpoint is not None
    engine_in_record = None  # a record names only the engines of other libraries
    if options.engine != DEFAULT_ENGINE:
        engine_in_record = options.engine
    with (
        run_folder(folder, overwrite, resume=is_resumed),
        record_run(folder, engine=engine_in_record, packages=engine.packages, resumed=is_resumed),
        ExitStack() as stack,
        interruptible(later=not engine.ends_at_once) as interrupts,
    ):
        if is_resumed:
            prune_checkpoints(folder, options.keep_checkpoints, last=plan.steps)
        engine.prepare_folder(folder)
        config = {
            "steps": options.steps,
            **engine.describe(),
            "run": msgspec.to_builtins(options),
            "rlcatalog": rlcatalog.__version__,
        }
        write_config(folder, plan.env_id, config)
        steps_before = plan.steps if is_resumed else None
        logs = writers(options.log, folder, config, after=steps_before)
        for log in logs:
            stack.callback(log.close)
        session = Session(plan, folder, interrupts, logs, display)
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
