"""What every on-policy algorithm shares: collect with the current policy, improve it, repeat.

Framework-neutral; `torch.py` and `tf.py` hold a step.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from rlcatalog import Catalog, Policy, default_catalog
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import default_framework, framework_name
from rlcatalog_ppo.config import OnPolicyConfig, parse
from rlcatalog_ppo.environments import maker, vector
from rlcatalog_ppo.evaluation import play
from rlcatalog_ppo.learner import Learner
from rlcatalog_ppo.loss import Objective
from rlcatalog_ppo.offline import Recorder
from rlcatalog_ppo.rollout import Collector, Rollout, check_policy
from rlcatalog_ppo.rollout_columns import Postprocess
from rlcatalog_ppo.schedules import value_at


class OnPolicy(ABC):
    """An on-policy algorithm over a catalog lookup; what is learned from a rollout, and how, a subclass says.

    Args:
        env: A Gymnasium id, or a callable that makes the environment (from its config, or from nothing).
        config: The algorithm's keys (see `config_class`), the model config under `model`.
        catalog: Where the parts are looked up; the default catalog when missing.
        record: Folder to write what was experienced into, for a `Reader`.
        postprocess_fn: Called with each trajectory, as RLlib's is: `postprocess_fn(policy, sample_batch, {}, None)`
            returns its columns (`"obs"`, `"actions"`, `"rewards"`, `"new_obs"`, `"vf_preds"`, …, rows are steps) with
            others beside them. The model may ask for those in its `view_requirements`, for training.

    Attributes:
        config: The checked config.
        policy: The policy that is trained.

    Raises:
        CatalogError: The config or a space is not served; see `rlcatalog.errors`.
    """

    #: The config's struct, what is minimised, and what does that; a subclass sets its own.
    config_class: ClassVar[type[OnPolicyConfig]]
    objective: ClassVar[Objective]
    learner_class: ClassVar[type[Learner]] = Learner
    #: Whether it learns from value estimates; a model without any is refused then.
    uses_values: ClassVar[bool] = True

    config: OnPolicyConfig

    def __init__(
        self,
        env: str | Callable[..., Any],
        config: Mapping[str, Any] | None = None,
        *,
        catalog: Catalog | None = None,
        record: str | os.PathLike[str] | None = None,
        postprocess_fn: Postprocess | None = None,
    ) -> None:
        catalog = catalog or default_catalog()
        self.config = parse(config, self.config_class)
        catalog.parse_config(self.config.model)  # before environments are made
        self._make_env = maker(env, self.config.env_config, self.config.model, catalog)
        self._rng = np.random.default_rng(self.config.seed)
        self._envs = vector(self._make_env, self.config.num_envs, self.config.vector)
        try:
            self.policy: Policy = self._build(
                catalog, (self._envs.single_observation_space, self._envs.single_action_space)
            )
            if self.uses_values:
                check_policy(self.policy, self.config.algorithm)
            self._collector = Collector(
                self.policy, self._envs, self.config.seed, self.config.gamma, postprocess_fn, values=self.uses_values
            )
            self._learner = self._make_learner()
        except BaseException:
            self._envs.close()  # nobody else will; they may be processes
            raise
        self._recorder = Recorder(record) if record is not None else None
        self._steps = self._iterations = 0
        self._seconds = 0.0

    def train(self) -> dict[str, Any]:
        """Collect one rollout, improve the policy on it and report.

        Returns:
            `training_iteration`, `timesteps_total`, `episodes_total`, `episode_return_mean` and `episode_len_mean`
            over the last 100 episodes (None before the first has ended), `time_total_s` in seconds,
            `steps_per_second`, and the learner's figures under `info["learner"]`.
        """
        start, config = time.perf_counter(), self.config
        rollout = self._collector.collect(config.rollout_length)
        if self._recorder is not None:
            self._recorder.write(rollout)
        learned = self._learn(rollout)
        self._steps += rollout.steps
        self._iterations += 1
        seconds = time.perf_counter() - start
        self._seconds += seconds
        return self._report(learned, rollout.steps / seconds)

    def evaluate(self, episodes: int = 10, *, seed: int | None = None, explore: bool = False) -> list[float]:
        """Return the undiscounted returns of fresh episodes played by the current policy."""
        return play(self.policy, self._make_env, episodes, seed=seed, explore=explore)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Save the policy (see `Policy.save`)."""
        self.policy.save(directory)

    def stop(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _build(self, catalog: Catalog, spaces: tuple[Any, Any]) -> Policy:
        framework = catalog.resolve(*spaces, self.config.model, self.config.framework).framework
        if self.config.seed is not None:
            backend(framework).seed(self.config.seed)
        return catalog.build(*spaces, self.config.model, self.config.framework)

    def _make_learner(self) -> Learner:
        optimizer = backend(self.policy.framework).Optimizer(self.policy, self.config, self.objective)
        return self.learner_class(self.policy, self.config, self._rng, optimizer)

    def _learn(self, rollout: Rollout) -> dict[str, Any]:
        """Improve the policy on a rollout; return the learner's figures."""
        return self._learner.update(self._batch(rollout), self._lr())

    @abstractmethod
    def _batch(self, rollout: Rollout) -> dict[str, Any]:
        """Return the rows of a rollout that the learner learns from."""

    def _lr(self) -> float:
        config = self.config
        if config.lr_schedule is not None:
            return value_at(config.lr_schedule, self._steps)
        if not config.anneal_lr or config.total_steps is None:
            return config.lr
        return config.lr * max(0.0, 1.0 - self._steps / config.total_steps)

    def _report(self, learned: dict[str, Any], steps_per_second: float) -> dict[str, Any]:
        episodes = self._collector.episodes
        mean = float(np.mean(episodes.returns)) if episodes.returns else None
        return {
            "training_iteration": self._iterations,
            "timesteps_total": self._steps,
            "episodes_total": episodes.total,
            "episode_return_mean": mean,
            "episode_reward_mean": mean,  # RLlib's older name
            "episode_len_mean": float(np.mean(episodes.lengths)) if episodes.lengths else None,
            "time_total_s": self._seconds,
            "steps_per_second": steps_per_second,
            "info": {"learner": learned},
        }


def set_threads(framework: str | None, count: int) -> None:
    """Set how many threads one operation of a framework may use; before its first operation."""
    backend(default_framework() if framework is None else framework_name(framework)).set_threads(count)


def backend(framework: str) -> Any:
    """Return the module with the algorithms' part in a framework.

    Raises:
        NotServedError: There is none.
    """
    if find_spec(f"rlcatalog_ppo.{framework}") is None:
        raise NotServedError(f"rlcatalog-ppo has no code for framework={framework!r}; it serves: torch, tf.")
    return import_module(f"rlcatalog_ppo.{framework}")
