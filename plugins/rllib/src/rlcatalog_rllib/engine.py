"""The engine `rllib` for `rlcatalog train`: Ray RLlib."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog.errors import ConfigError, SavedPolicyError, raised_as
from rlcatalog_runs import Engine, RunOptions, RunPlan, SeedStream, Session, derive_seed

#: Folder for Ray's checkpoint in each checkpoint of a run.
ALGORITHM = "algorithm"


class RLlibOptions(RunOptions, kw_only=True, frozen=True):
    """Options for the engine, in addition to the common ones, and run settings."""

    env_runners: Annotated[
        int,
        Meta(
            ge=0,
            description="Processes that collect experience; 2 by default. 0: collect in this"
            " process.",
            extra={"metavar": "N"},
        ),
    ] = 2
    envs: Annotated[int, Meta(ge=1)] = 4
    device: str | None = None
    model: dict[str, Any] = msgspec.field(default_factory=dict)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class RLlibEngine(Engine):
    """Engine for Ray RLlib. Creating an instance imports Ray, and learning starts it."""

    options = RLlibOptions
    algorithms = ("PPO", "APPO", "IMPALA", "DQN", "SAC")
    checkpoint = ALGORITHM
    packages = ("ray",)
    fixed = frozenset({"settings", "env_runners", "envs"})
    reserved = {  # noqa: RUF012
        "num_env_runners": "--env-runners",
        "num_envs_per_env_runner": "--envs",
        "seed": "--seed",
        "num_gpus_per_learner": "--device cuda",
    }
    trusts_checkpoints = True
    not_restored = (
        "RLlib restores neither environments, random generators nor replay buffers, so this run"
        " differs from an uninterrupted one"
    )

    def __init__(self, plan: RunPlan) -> None:
        super().__init__(plan)
        self._steps, options = plan.steps, plan.options
        from rlcatalog_rllib import configure

        name = plan.algorithm
        config = getattr(
            importlib.import_module(f"ray.rllib.algorithms.{name.lower()}"), f"{name}Config"
        )()
        try:
            config.training(**options.settings)
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                f"--set: {name}Config.training() does not accept this key: {error}"
            ) from error
        config.env_runners(
            num_env_runners=options.env_runners, num_envs_per_env_runner=options.envs
        )
        config.learners(num_gpus_per_learner=_count_gpus(options.device))
        # A resumed run has a different seed, so that its environments do not repeat their first
        # episodes.
        seed = derive_seed(plan.seed, SeedStream.ENGINE, plan.steps)
        config.debugging(seed=seed, log_level="ERROR")
        config.reporting(min_time_s_per_iteration=0)
        self._config = configure(config, plan.env_id, model=options.model)

    @property
    def steps(self) -> int:
        return self._steps

    def describe(self) -> Mapping[str, Any]:
        options = self.plan.options
        algorithm = {"name": self.plan.algorithm, "env_config": {}, **options.settings}
        return {
            "framework": "torch",
            "seed": self.plan.seed,
            "algorithm": algorithm,
            "model": options.model,
        }

    def learn(self, session: Session) -> None:
        """Train iteration by iteration; a signal ends the run after the current iteration."""
        from rlcatalog_rllib import to_policy

        with _built(self._config) as trained:
            if self.plan.checkpoint is not None:
                _restore(trained, self.plan.checkpoint)

            def save() -> None:
                policy = to_policy(trained)
                session.save_checkpoint(
                    self._steps,
                    policy,
                    lambda new: trained.save_to_path(str((new / ALGORITHM).absolute())),
                )

            save()
            while self._steps < session.options.steps and session.interrupts.pending is None:
                result = trained.train()
                self._steps = int(result["num_env_steps_sampled_lifetime"])
                runners = result.get("env_runners", {})
                mean = round(float(runners.get("episode_return_mean", math.nan)), 3)
                row = {
                    "timesteps_total": self._steps,
                    "episode_return_mean": None if math.isnan(mean) else mean,
                }
                session.report(
                    row, lambda: to_policy(trained), int(runners.get("num_episodes_lifetime", 0))
                )
                if session.stopping is not None:
                    break
                if session.is_checkpoint_due(self._steps):
                    save()
            save()
            if self._steps < session.options.steps:
                session.interrupts.check()


def _count_gpus(device: str | None) -> int:
    """Return the number of GPUs that a learner uses."""
    if device in (None, "cpu"):
        return 0
    if device not in ("cuda", "auto"):
        raise ConfigError(
            f"--device {device}: Ray chooses the GPU itself. Expected cpu, cuda or auto."
        )
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: PyTorch found no GPU. Pass --device cpu or auto.")
    return int(torch.cuda.is_available())


@contextmanager
def _built(config: Any) -> Iterator[Any]:
    """Context manager that builds a config's algorithm and stops it at the end.

    It starts and stops Ray unless Ray is already running.
    """
    import ray

    ours, trained = not ray.is_initialized(), None
    if ours:
        hook = {"worker_process_setup_hook": "rlcatalog_rllib.prepare_worker"}
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env=hook,
        )
    try:
        trained = config.build_algo()
        yield trained
    finally:
        if trained is not None:
            trained.stop()
        if ours:
            ray.shutdown()


def _restore(trained: Any, checkpoint: Path) -> None:
    damaged = f"{checkpoint}: not a checkpoint, or damaged"
    with raised_as(lambda why: SavedPolicyError(f"{damaged}: {why}"), SavedPolicyError):
        trained.restore_from_path(str((checkpoint / ALGORITHM).absolute()))
