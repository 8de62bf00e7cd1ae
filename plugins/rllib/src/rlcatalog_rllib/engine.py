"""The engine `rllib` for `rlcatalog train`: Ray RLlib."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog.errors import ConfigError, SavedPolicyError, raised_as
from rlcatalog_runs import Engine, RunOptions, RunPlan, SeedStream, Session, derive_seed

if TYPE_CHECKING:  # Ray takes seconds to import.
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

#: Folder for Ray's checkpoint in each checkpoint of a run.
ALGORITHM = "algorithm"

#: Title of a column of `rlcatalog train` → the learner's metric that it shows.
_PPO_METRICS = {"policy loss": "policy_loss", "value loss": "vf_loss", "KL": "mean_kl_loss"}
_METRICS_OF_COLUMNS = {
    "PPO": _PPO_METRICS,
    "APPO": _PPO_METRICS,
    "IMPALA": {"policy loss": "mean_pi_loss", "value loss": "mean_vf_loss"},
    "DQN": {"loss": "qf_loss"},
    "SAC": {"actor loss": "policy_loss", "critic loss": "qf_loss"},
}


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
        from rlcatalog_rllib import configure

        self._steps = plan.steps
        options = plan.options
        name = plan.algorithm
        algorithm_module = importlib.import_module(f"ray.rllib.algorithms.{name.lower()}")
        # RLlib's notices, such as the one about its new API stack, do not concern the user here.
        # The level below, for the algorithm, comes too late for those of its config.
        self._logger = logging.getLogger("ray.rllib")
        self._log_level = self._logger.level
        self._logger.setLevel(logging.ERROR)
        config: Any = getattr(algorithm_module, f"{name}Config")()  # one of Ray's classes
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
        # By default, an iteration of IMPALA lasts at least ten seconds.
        config.reporting(min_time_s_per_iteration=0)
        self._config = configure(config, plan.env_id, model=options.model)

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def columns(self) -> Mapping[str, str]:
        metrics = _METRICS_OF_COLUMNS[self.plan.algorithm]
        return {title: f"learner/{name}" for title, name in metrics.items()}

    def describe(self) -> Mapping[str, Any]:
        options = self.plan.options
        algorithm = {
            "name": self.plan.algorithm,
            "env_config": {},  # this engine passes no arguments to the environment
            **options.settings,
        }
        return {
            "framework": "torch",
            "seed": self.plan.seed,
            "algorithm": algorithm,
            "model": options.model,
        }

    def learn(self, session: Session) -> None:
        """Train iteration by iteration; a signal ends the run after the current iteration."""
        with _built(self._config) as algorithm:
            if self.plan.checkpoint is not None:
                _restore(algorithm, self.plan.checkpoint)
            self._save(session, algorithm)
            while self._steps < session.options.steps and session.interrupts.pending is None:
                result = algorithm.train()  # type: ignore[no-untyped-call]
                self._steps = int(result["num_env_steps_sampled_lifetime"])
                self._report(session, algorithm, result)
                if session.stopping is not None:
                    break
                if session.is_checkpoint_due(self._steps):
                    self._save(session, algorithm)
            self._save(session, algorithm)
            if self._steps < session.options.steps:
                session.interrupts.check()  # raises an error if a signal has ended the run

    def close(self) -> None:
        self._logger.setLevel(self._log_level)

    def _save(self, session: Session, algorithm: Algorithm) -> None:
        """Save the policy and a checkpoint; before the first one, show what is trained."""
        from rlcatalog_rllib import to_policy

        def write(folder: Path) -> None:
            algorithm.save_to_path(str((folder / ALGORITHM).absolute()))

        policy = to_policy(algorithm)
        is_first = session.saved is None
        if is_first:
            session.begin(policy, self._device())
        session.save_checkpoint(self._steps, policy, write)

    def _device(self) -> str:
        """Return the device of the learners, which Ray chooses."""
        if self._config.num_gpus_per_learner:
            return "cuda"
        return "cpu"

    def _report(self, session: Session, algorithm: Algorithm, result: Mapping[str, Any]) -> None:
        """Report a row.

        Args:
            session: The run.
            algorithm: The algorithm.
            result: What an iteration returned.
        """
        from rlcatalog_rllib import to_policy

        metrics = result.get("env_runners", {})
        learner_metrics = result.get("learners", {}).get("default_policy", {})
        losses = {}
        for name in _METRICS_OF_COLUMNS[self.plan.algorithm].values():
            if name in learner_metrics:
                losses[name] = float(learner_metrics[name])
        row = {
            "timesteps_total": self._steps,
            "episode_return_mean": _mean_of_episodes(metrics, "episode_return_mean"),
            "episode_len_mean": _mean_of_episodes(metrics, "episode_len_mean"),
            "learner": losses,
        }
        episode_count = int(metrics.get("num_episodes_lifetime", 0))
        session.report(row, policy=partial(to_policy, algorithm), episodes=episode_count)


def _mean_of_episodes(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return a mean over the last episodes; None before the first one has ended."""
    mean = round(float(metrics.get(name, math.nan)), 3)
    if math.isnan(mean):
        return None
    return mean


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
def _built(config: AlgorithmConfig) -> Iterator[Algorithm]:
    """Context manager that builds a config's algorithm and stops it at the end.

    It starts and stops Ray unless Ray is already running.
    """
    import ray

    starts_ray = not ray.is_initialized()
    if starts_ray:
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"worker_process_setup_hook": "rlcatalog_rllib.prepare_worker"},
        )
    try:
        algorithm = config.build_algo()
        try:
            yield algorithm
        finally:
            algorithm.stop()  # type: ignore[no-untyped-call]
    finally:
        if starts_ray:
            ray.shutdown()


def _restore(algorithm: Algorithm, checkpoint: Path) -> None:
    """Restore an algorithm from a checkpoint.

    Raises:
        SavedPolicyError: The checkpoint cannot be read, or belongs to a different environment.
    """

    def as_damaged(why: str) -> SavedPolicyError:
        return SavedPolicyError(f"{checkpoint}: not a checkpoint, or damaged: {why}")

    with raised_as(as_damaged, SavedPolicyError):
        algorithm.restore_from_path(str((checkpoint / ALGORITHM).absolute()))  # type: ignore[no-untyped-call]
