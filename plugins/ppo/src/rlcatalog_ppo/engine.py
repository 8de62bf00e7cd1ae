"""The engine `ppo` for `rlcatalog train`: the algorithms of this package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from rlcatalog.errors import ConfigError, NonFiniteError
from rlcatalog_policy import read_manifest
from rlcatalog_ppo.algorithm import OnPolicy
from rlcatalog_ppo.algorithms import A2C, PG, PPO
from rlcatalog_ppo.callbacks import Callback, Checkpoints, Evaluation, Log, StopAt
from rlcatalog_ppo.checkpoints import POLICY, TRAINING
from rlcatalog_ppo.config import parse
from rlcatalog_ppo.optimizer import set_threads
from rlcatalog_runs import Engine, RunOptions, RunPlan, Session, describe_policy
from rlcatalog_runs.folders import BEST

#: The algorithms by name.
_ALGORITHMS: dict[str, type[OnPolicy]] = {"PPO": PPO, "A2C": A2C, "PG": PG}
#: Option → the algorithm's key that it sets.
_KEY_OF_OPTION = {
    "framework": "framework",
    "device": "device",
    "vector": "vector",
    "envs": "num_envs",
    "frozen": "frozen",
}


#: Title of a column of `rlcatalog train` → the metric that it shows, if the algorithm has it.
_METRIC_OF_COLUMN = {"policy loss": "policy_loss", "value loss": "vf_loss", "KL": "kl"}


class _Movement(Callback):
    """Callback that shows the steps within an iteration.

    Args:
        session: The run.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps = 0

    def on_start(self, algo: OnPolicy) -> None:
        self._steps = algo.steps

    def on_step(self, algo: OnPolicy, step: Mapping[str, Any]) -> None:
        self._steps += algo.config.num_envs
        self._session.advance(self._steps)

    def on_update(self, algo: OnPolicy, result: dict[str, Any]) -> None:
        self._steps = algo.steps


class PPOOptions(RunOptions, kw_only=True, frozen=True):
    """Options for the engine, in addition to the common ones; None keeps the
    algorithm's default.
    """

    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    framework: str | None = None
    device: str | None = None
    vector: str | None = None
    envs: int | None = None
    frozen: str | None = None
    record: Annotated[
        str | None,
        Meta(
            description="Record all experience in this folder, for a Reader.",
            extra={"metavar": "PATH"},
        ),
    ] = None


class PPOEngine(Engine):
    """Engine for PPO, A2C and policy gradients; a resumed run is identical to an
    uninterrupted one.
    """

    options = PPOOptions
    algorithms = tuple(_ALGORITHMS)
    checkpoint = TRAINING
    fixed = frozenset()
    reserved = {name: f"--{name}" for name in ("model", "framework", "seed", "device", "vector")}  # noqa: RUF012
    ends_at_once = True

    def __init__(self, plan: RunPlan) -> None:
        super().__init__(plan)
        if plan.checkpoint is None:
            self.algorithm = self._new_algorithm(plan)
        else:
            self.algorithm = self._resumed_algorithm(plan, plan.checkpoint)

    def _new_algorithm(self, plan: RunPlan) -> OnPolicy:
        options = plan.options
        set_threads(options.framework, options.threads)
        algorithm_class = _ALGORITHMS[plan.algorithm]
        return algorithm_class(plan.env_id, _config_of(plan), record=_record_folder(plan))

    def _resumed_algorithm(self, plan: RunPlan, checkpoint: Path) -> OnPolicy:
        options = plan.options
        saved_config = plan.config["algorithm"]
        config = _config_of(plan)
        spans_whole_run = saved_config.get("total_steps") == plan.config.get("steps")
        if "total_steps" not in config and spans_whole_run:
            # Schedules run over `total_steps`. They spanned the whole run before, so they do now,
            # even if `--steps` makes the run longer.
            config["total_steps"] = options.steps
        # `read_config` has checked that this one, from a file, contains no import paths.
        config.setdefault("env_config", saved_config["env_config"])
        set_threads(read_manifest(checkpoint / POLICY).framework, options.threads)
        algorithm_class = _ALGORITHMS[plan.algorithm]
        return algorithm_class.restore(
            checkpoint, plan.config["env"], config=config, record=_record_folder(plan)
        )

    @classmethod
    def check(cls, plan: RunPlan) -> None:
        parse(_config_of(plan), _ALGORITHMS[plan.algorithm].config_class)

    @property
    def steps(self) -> int:
        return int(self.algorithm.steps)

    @property
    def columns(self) -> Mapping[str, str]:
        metric_names = self.algorithm.objective.metric_names
        columns = {}
        for title, name in _METRIC_OF_COLUMN.items():
            if name in metric_names:
                columns[title] = f"info/learner/{name}"
        return columns

    def describe(self) -> Mapping[str, Any]:
        algorithm = {"name": type(self.algorithm).__name__, **self.algorithm.config.as_plain()}
        return {"algorithm": algorithm, **describe_policy(self.algorithm.policy)}

    def learn(self, session: Session) -> None:
        options = session.options
        session.begin(self.algorithm.policy)
        callbacks: list[Callback] = [_Movement(session)]
        if options.eval_every:
            callbacks.append(
                Evaluation(options.eval_every, options.eval_episodes, session.folder / BEST)
            )
        if options.stop_at is not None:
            has_evaluations = options.eval_every > 0
            callbacks.append(StopAt(options.stop_at, evaluated=has_evaluations))

        def report(result: Mapping[str, Any]) -> None:
            session.report(result)
            # A signal raises `Interrupted` at once, but if Python is running a `__del__` method or
            # a callback of the garbage collector at that moment, it only prints the exception and
            # goes on. The request is still pending then, so raise it again.
            session.interrupts.check()

        callbacks.append(Log(report))
        # Checkpoints come last, so everything in them has been logged.
        callbacks.append(
            Checkpoints(session.folder, options.checkpoint_every, options.keep_checkpoints)
        )
        self.algorithm.add_callbacks(callbacks)
        try:
            # Without the warning, because a run may be killed after its last step.
            self.algorithm._learn(options.steps)
        except NonFiniteError as error:
            raise NonFiniteError(
                f"{error} The last good policy is in {session.folder / POLICY}."
            ) from error
        session.stopping = self.algorithm.stopping

    def close(self) -> None:
        self.algorithm.stop()


def _config_of(plan: RunPlan) -> dict[str, Any]:
    """Return the algorithm's config: the user's keys and, for a new run, its model,
    seed and steps.
    """
    settings = dict(plan.settings)
    options = asdict(plan.options)
    keys_of_options = {}
    for option, key in _KEY_OF_OPTION.items():
        if option in plan.typed:  # by the user; the other options have default values
            keys_of_options[key] = options[option]
    keys_set_twice = sorted(settings.keys() & keys_of_options.keys())
    if keys_set_twice:
        raise ConfigError(
            f"--set: {keys_set_twice[0]!r} is also set by an option. Set it only once."
        )
    if plan.checkpoint is not None:
        return settings | keys_of_options
    return {
        "total_steps": plan.options.steps,
        **settings,
        "model": plan.model,
        "seed": plan.seed,
        **keys_of_options,
    }


def _record_folder(plan: RunPlan) -> Path | None:
    """Return the folder in which to record all experience, if the user typed one."""
    return Path(plan.options.record) if "record" in plan.typed else None
