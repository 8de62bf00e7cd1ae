"""A run of `rlcatalog train`: an algorithm, its folder, and the callbacks that keep and show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

import rlcatalog
from rlcatalog.config import plain
from rlcatalog.errors import NonFiniteError, SavedPolicyError
from rlcatalog_ppo import checkpoints
from rlcatalog_ppo.callbacks import Callback, Checkpoints, Evaluation, Log, StopAt
from rlcatalog_ppo.logs import writers
from rlcatalog_runs import KeptRun, interruptible, prune_checkpoints, recorded, run_folder, write_config
from rlcatalog_runs.learning_curve import draw
from rlcatalog_runs.summaries import read_rows

COMMAND = "train"
#: What a run's folder holds beside its config.
CURVE, POLICY, BEST = "learning_curve.png", checkpoints.POLICY, "best"


class RunOptions(KeptRun, kw_only=True, frozen=True):
    """How a run is kept and shown; nothing of it changes what is learned, but where `stop_at` ends it.

    Attributes:
        eval_every: Environment steps between two evaluations; 0: none.
        eval_episodes: Episodes of each evaluation.
        stop_at: Mean return that ends the run, or None.
        threads: Threads of one operation.
        log: Names of logs beside `metrics.jsonl`.
    """

    command: str = COMMAND
    eval_every: Annotated[int, msgspec.Meta(ge=0)] = 0
    eval_episodes: Annotated[int, msgspec.Meta(ge=1)] = 10
    stop_at: float | None = None
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    log: list[str] = msgspec.field(default_factory=list)


def callbacks(folder: Path, options: RunOptions, write: Callable[[Mapping[str, Any]], None]) -> list[Callback]:
    """Return the callbacks of a run, in their order: what a checkpoint holds was logged before.

    Args:
        folder: The run's folder.
        options: The options.
        write: Gets each row of metrics.
    """
    found: list[Callback] = []
    if options.eval_every:
        found.append(Evaluation(options.eval_every, options.eval_episodes, folder / BEST))
    if options.stop_at is not None:
        found.append(StopAt(options.stop_at, evaluated=options.eval_every > 0))
    return [*found, Log(write), Checkpoints(folder, options.checkpoint_every, options.keep_checkpoints)]


def run(
    algo: Any,
    env_id: str,
    folder: Path,
    options: RunOptions,
    show: Callable[[Mapping[str, Any]], None],
    *,
    overwrite: bool = False,
    resumed: bool = False,
) -> None:
    """Train to the end, or to an interrupt; the folder holds the whole run at any time.

    Args:
        algo: The algorithm.
        env_id: The environment, as it was typed.
        folder: The run's folder.
        options: The options.
        show: Gets each row, for people.
        overwrite: Replace the run that the folder holds.
        resumed: Go on with the run that the folder holds.

    Raises:
        Interrupted: A signal has asked for the end; the run is kept.
        NonFiniteError: See `OnPolicy.train`; the run is kept as it was before.
    """
    with (
        run_folder(folder, overwrite, resume=resumed),
        recorded(folder, resumed=resumed),
        ExitStack() as stack,
        interruptible(),
    ):
        if resumed:
            prune_checkpoints(folder, options.keep_checkpoints, algo.steps)
        about = resolved(algo, options)
        write_config(folder, env_id, about)
        logs = writers(options.log, folder, about, after=algo.steps if resumed else None)
        for log in logs:
            stack.callback(log.close)

        def write(row: Mapping[str, Any]) -> None:
            for log in logs:
                log.write(row)
            show(row)

        algo.add_callbacks(callbacks(folder, options, write))
        title = f"{type(algo).__name__} on {env_id}, seed {algo.config.seed}"
        with _drawn(folder, title):
            try:
                algo.learn(options.steps)
            except NonFiniteError as error:
                raise NonFiniteError(f"{error} The policy as it was before is in {folder / POLICY}.") from error
            finally:
                algo.stop()


@contextmanager
def _drawn(folder: Path, title: str) -> Iterator[None]:
    """Draw the learning curve of a run when it ends; the error that ends it is told also where drawing fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError, SavedPolicyError):
            draw(folder / CURVE, read_rows(folder), title)
        raise
    draw(folder / CURVE, read_rows(folder), title)


def resolved(algo: Any, options: RunOptions) -> dict[str, Any]:
    """Return the resolved config of a run, for its `config.json`."""
    algorithm = plain({**msgspec.structs.asdict(algo.config), "model": None})
    algorithm.pop("model")
    return {
        "steps": options.steps,
        "framework": algo.policy.framework,
        "algorithm": {"name": type(algo).__name__, **algorithm},
        "model": algo.policy.config,
        "parts": {slot: choice.component.name for slot, choice in algo.policy.resolution.choices.items()
                  if choice.component is not None},
        "run": msgspec.structs.asdict(options),
        "rlcatalog": rlcatalog.__version__,
    }  # fmt: skip
