"""Base class for on-policy algorithms: collect with the current policy, improve it, repeat.

This module is independent of the framework; `torch.py` and `tf.py` define the optimiser step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from msgspec.structs import replace

from rlcatalog import Catalog, Policy, build, default_catalog
from rlcatalog.errors import CatalogWarning, ConfigError, SavedPolicyError
from rlcatalog.frameworks import framework_name
from rlcatalog.reporting import warn_caller
from rlcatalog_policy import EnvMasks, Frozen, config_with_model, read_manifest
from rlcatalog_policy.loading import load_for_call
from rlcatalog_ppo import checkpoints
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_ppo.callbacks import Callback
from rlcatalog_ppo.collector import Collector
from rlcatalog_ppo.config import OnPolicyConfig, parse
from rlcatalog_ppo.environments import AnyEnv, EnvMaker, count_passed, registered_id
from rlcatalog_ppo.offline import Recorder
from rlcatalog_ppo.optimizer import learner_of, minibatch_optimizer_of
from rlcatalog_ppo.policy_check import check_policy
from rlcatalog_ppo.reward_scale import scale_of
from rlcatalog_ppo.rollout import Rollout
from rlcatalog_ppo.rollout_columns import Postprocess
from rlcatalog_ppo.steps import StepRecord
from rlcatalog_ppo.training_state import (
    check_fits,
    warn_of_new_episodes,
    warn_of_other_draws,
    weights_and_filter,
)
from rlcatalog_ppo.update import Objective, RolloutLearner
from rlcatalog_runs import refuse_imports
from rlcatalog_runs.evaluation import (
    get_random_state,
    keep_random_state,
    play,
    set_random_state,
)
from rlcatalog_runs.folders import unwritten_spaces
from rlcatalog_runs.seeds import SeedStream, derive_seed


class OnPolicy:
    """Base class of PPO, A2C and PG: collect experience, improve the policy on it, and repeat.

    Subclasses define the config and the objective.

    Args:
        env: The environment: a Gymnasium id, or a class or function that creates one (see
            `rlcatalog.catalog.make_env`). You can also pass an environment or a vector environment
            itself. `num_envs` must then match its number of environments, and `stop` does not close
            it.
        config: The algorithm's config, with the model config under `model`. The keys are the fields
            of the class in `config_class`, such as `PPOConfig`.
        catalog: Catalog in which to look up the parts. If None, the default catalog.
        record: A folder in which to record all experience. A `Reader` reads it.
        postprocess_fn: A function that is called with each trajectory, as in RLlib, and may add
            columns to it: `postprocess_fn(policy, sample_batch, {}, None)`. It gets the columns
            (`"obs"`, `"actions"`, `"rewards"`, `"new_obs"`, `"vf_preds"`, …), whose rows are steps,
            and returns them with its own. The model can then request the added columns in its
            `view_requirements`.
        callbacks: Callbacks, called in this order during the run (see `rlcatalog_ppo.callbacks`).
        model: Your own model, such as a plain `torch.nn.Module`. It means the same as
            `"custom_model"` in the model config.
        memory: Your own memory, such as `torch.nn.GRU`. It means the same as `"memory"` in the
            model config.
        policy: A policy to train further, for example from `rlcatalog.load`, with its parts and
            config. If None, a new policy is built.

    Attributes:
        config: The checked config, with all defaults.
        policy: The policy that is trained.
        steps: Number of environment steps trained so far.
        iterations: Number of calls to `train` so far.
        stopping: The reason why `learn` ends early, or None.
        acting: The policy that collects rollouts: `policy` or, depending on the config key
            `frozen`, a frozen form of it. If it could not be frozen, `acting.reason` explains why.

    Raises:
        CatalogError: The config or a space is not supported; see `rlcatalog.errors`.
    """

    #: The config class and the objective; each subclass sets them.
    config_class: ClassVar[type[OnPolicyConfig]]
    objective: ClassVar[Objective[Any]]

    config: OnPolicyConfig
    policy: Policy

    def __init__(
        self,
        env: AnyEnv,
        config: Mapping[str, Any] | None = None,
        *,
        catalog: Catalog | None = None,
        record: str | os.PathLike[str] | None = None,
        postprocess_fn: Postprocess | None = None,
        callbacks: Sequence[Callback] = (),
        model: Any = None,
        memory: Any = None,
        policy: Policy | None = None,
    ) -> None:
        catalog = catalog or default_catalog()
        self.config = self._parse_config(config, env, model=model, memory=memory, policy=policy)
        catalog.parse_config(self.config.model)  # wrong keys are reported before environments start

        self._env_id = env if isinstance(env, str) else None
        self._make_env = EnvMaker(env, self.config.env_config, self.config.model, catalog)
        self.callbacks = list(callbacks)
        for callback in callbacks:
            callback.check_env(self._make_env)
        #: Callbacks' states from a checkpoint, by class, for callbacks that were not added yet.
        self._saved_callback_states: dict[str, Any] = {}

        self._rng = np.random.default_rng(derive_seed(self.config.seed, SeedStream.SHUFFLING))
        self._envs = self._make_env.vector(
            self.config.num_envs, self.config.vector, seed=self.config.seed
        )
        try:
            self.policy = self._seed_and_build(catalog, policy)
            self._check_policy()
            device = self.policy.backend.device_of(self.config.device)
            if device != self.policy.device:
                self.policy.to(device)
            self._collector = self._make_collector(postprocess_fn)
            self._learner = self._make_learner()
        except BaseException:
            self._envs.close()  # the caller cannot close them, and they may be processes
            raise

        self._recorder = None
        if record is not None:
            self._recorder = Recorder(record, self.policy)
        self.steps = 0
        self.iterations = 0
        self.stopping: str | None = None
        self._result: dict[str, Any] | None = None
        self._seconds = 0.0
        #: Why environments could not resume their episodes, by index.
        self.new_episode_reasons: dict[int, str] = {}
        # `PPO.restore(...)`, a class method, returns a new algorithm. In RLlib, `algo.restore(...)`
        # changes `algo`, and users may expect this here. So on an instance, it raises an error.
        self.restore = partial(_refuse_restore, type(self).__name__, self._env_id)  # type: ignore[method-assign]

    def train(self) -> dict[str, Any]:
        """Collect one rollout, improve the policy on it, and return the results.

        Returns:
            `training_iteration`, `timesteps_total` and `episodes_total`; `episode_return_mean` and
            `episode_len_mean` over the last 100 episodes, None before the first has ended;
            `time_total_s` in seconds and `steps_per_second`; and the learner's metrics under
            `info["learner"]`.

        Example:
            >>> config = {"num_envs": 2, "rollout_length": 32, "minibatch_size": 64}
            >>> algo = PPO("CartPole-v1", config)
            >>> for _ in range(2):
            ...     result = algo.train()
            >>> result["training_iteration"], result["timesteps_total"]
            (2, 128)
        """
        start = time.perf_counter()
        rollout = self._collect_rollout()
        batch = self._batch(rollout)  # with advantages
        learner_metrics = self._learner.update(
            batch,
            lr=self.config.lr_at(self.steps),
            lr_parts=self.config.lr_parts_at(self.steps),
            clip_param=self.config.clip_param_at(self.steps),
        )
        self._collector.update_frozen_weights()

        self.steps += rollout.steps
        self.iterations += 1
        seconds = time.perf_counter() - start
        self._seconds += seconds
        result = {
            "training_iteration": self.iterations,
            "timesteps_total": self.steps,
            **self._collector.episodes.metrics(),
            "time_total_s": self._seconds,
            "steps_per_second": rollout.steps / seconds,
            "info": {"learner": learner_metrics},
        }
        self._result = result
        for callback in self.callbacks:
            callback.on_update(self, result)
        return result

    def _collect_rollout(self) -> Rollout:
        """Collect a rollout, and pass it to the callbacks and the recorder."""
        self._collector.decide_frozen(self.config)
        rollout = self._collector.collect(self.config.rollout_length, self._call_on_step)
        for callback in self.callbacks:
            callback.on_rollout(self, rollout)
        if self._recorder is not None:
            self._recorder.write(rollout)
        return rollout

    def learn(self, total_steps: int | None = None) -> dict[str, Any] | None:
        """Train up to a total number of environment steps, or until a callback ends the run.

        The total includes the steps already taken, unlike in Stable-Baselines3's `learn`. To train
        512 more steps, call `learn(algo.steps + 512)`.

        Args:
            total_steps: Total number of environment steps, including those before a `restore`. None
                means the config's `total_steps`.

        Returns:
            The result of the last call to `train`; None if it was not called since the algorithm
            was created or restored.

        Raises:
            ConfigError: Neither the call nor the config says how many steps.

        Warns:
            CatalogWarning: There is nothing to train, because these steps were already taken or the
                run has ended.

        Example:
            >>> config = {"num_envs": 2, "rollout_length": 32, "minibatch_size": 64}
            >>> algo = PPO("CartPole-v1", config)
            >>> algo.learn(100)["timesteps_total"]  # whole rollouts of 64 steps
            128
        """
        if total_steps is None:
            total_steps = self.config.total_steps
        if total_steps is None:
            raise ConfigError(
                "learn(): the number of environment steps is missing. Pass it, such as"
                " learn(100_000), or set 'total_steps' in the config."
            )
        if self.steps > 0 and self.steps >= total_steps:
            # The caller may have meant a number of further steps.
            further_steps = max(total_steps, 1)
            larger_total = self.steps + further_steps
            warn_caller(
                f"learn({total_steps}) trains nothing. {self.steps:,} steps were already taken, and"
                " the total includes them. To train further, pass a larger total, such as"
                f" learn({larger_total}).",
                CatalogWarning,
            )
        elif self.stopping is not None:
            warn_caller(
                f"learn({total_steps}) trains nothing. The run has ended: {self.stopping}. To train"
                " further, set algo.stopping = None first.",
                CatalogWarning,
            )
        return self._learn(total_steps)

    def _learn(self, total_steps: int) -> dict[str, Any] | None:
        """Do the same as `learn`, but without the warning."""
        error = None
        try:
            # Before `Checkpoints` saves the state, which says whether a frozen policy collects.
            self._collector.decide_frozen(self.config, total_steps)
            for callback in self.callbacks:
                callback.on_start(self)
            while self.steps < total_steps and self.stopping is None:
                self.train()
        except BaseException as raised:
            error = raised
            raise
        finally:
            for callback in self.callbacks:
                callback.on_end(self, error)
        return self._result

    def add_callbacks(self, callbacks: Sequence[Callback]) -> None:
        """Add callbacks.

        After `restore`, each receives the state that the checkpoint stores for its class.

        Raises:
            SavedPolicyError: A callback cannot restore its saved state.
        """
        for callback in callbacks:
            name = type(callback).__qualname__
            state = self._saved_callback_states.pop(name, None)
            if state is not None:
                with checkpoints.name_owner_in_errors(name):
                    callback.set_state(state)
            self.callbacks.append(callback)

    def stop_training(self, reason: str) -> None:
        """Make `learn` end after this iteration.

        Args:
            reason: The reason, for the run's record.
        """
        self.stopping = reason

    def evaluate(
        self,
        episodes: int = 10,
        *,
        env: AnyEnv | None = None,
        seed: int | None = None,
        explore: bool = False,
    ) -> list[float]:
        """Play new episodes, without affecting the training, and return their undiscounted returns.

        Args:
            episodes: Number of episodes.
            env: The environment to play in. If None, new copies of the training environment.
            seed: Seed from which the seeds of the environments are derived. If None, the config's
                seed, so that each call plays the same episodes.
            explore: Whether to sample actions instead of taking the deterministic ones.

        Raises:
            ConfigError: The training environment was passed, and Gymnasium cannot create another
                one.
        """
        if seed is None:
            seed = self.config.seed
        make_env = self._make_env.for_evaluation(env)
        envs = make_env.evaluation_vector(episodes, seed)
        with keep_random_state(self.policy), closing(envs):
            return play(self.policy, envs, episodes, seed=seed, explore=explore)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Save the policy, so that `rlcatalog.load` restores it and lets it act.

        To continue training later, call `save_checkpoint` instead. See `Policy.save`.
        """
        self.policy.save(directory)

    def stop(self) -> None:
        """Close the environments, except any that the caller passed."""
        self._envs.close()

    # --- the whole state ----------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return a copy of the whole training state, for `trees.take_apart`.

        Call it between two calls of `train`.
        """
        callback_states = dict(self._saved_callback_states)
        for callback in self.callbacks:
            callback_state = callback.get_state()
            if callback_state is not None:
                callback_states[type(callback).__qualname__] = callback_state
        next_recording = None
        if self._recorder is not None:
            next_recording = self._recorder.next_number
        return {
            "algorithm": type(self).__name__,
            "env": self._env_id,
            "config": self.config.as_plain(),
            "steps": self.steps,
            "iterations": self.iterations,
            "seconds": self._seconds,
            "policy": weights_and_filter(self.policy),
            "generator": self._rng.bit_generator.state,
            "randomness": get_random_state(self.acting),
            "frozen": self._collector.acts_frozen,
            "learner": self._learner.get_state(),
            "collector": self._collector.get_state(),
            # A method of `env_state.Resumable`, which wraps each environment.
            "environments": list(self._envs.call("resume_state")),
            "recorded": next_recording,
            "callbacks": callback_states,
        }

    def set_back(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and counts from a state; the environments do not change."""
        self.steps = state["steps"]
        self.iterations = state["iterations"]
        self._seconds = state["seconds"]
        self.policy.model.set_weights(state["policy"]["weights"])
        if self.policy.filter is not None:
            self.policy.filter.set_state(state["policy"]["filter"])
        self._learner.set_state(state["learner"])
        self._collector.update_frozen_weights()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of an algorithm of the same class.

        Its config and environment must be the same.

        Warns:
            ResumeWarning: Environments that cannot resume their episodes begin new ones.
        """
        self.set_back(state)
        # Whether a frozen policy collected. None: not decided yet, or an older version wrote it.
        acts_frozen = state.get("frozen")
        has_same_setting = self.config.frozen == state["config"].get("frozen")
        if acts_frozen is not None and has_same_setting:
            # Keep the choice, which would otherwise depend on how many steps remain.
            self._collector.act_frozen(acts_frozen)
        self._rng.bit_generator.state = state["generator"]
        if self._recorder is not None and state["recorded"] is not None:
            self._recorder.next_number = state["recorded"]
        self._saved_callback_states = dict(state["callbacks"])
        callbacks = self.callbacks
        self.callbacks = []
        self.add_callbacks(callbacks)  # each receives its state
        # A method of `env_state.Resumable`: None, or why the environment cannot resume its episode.
        reasons = self._envs.call("resume_from", state["environments"])
        self._collector.set_state(state["collector"])
        # Replaying episodes and making environments both draw from the process's generators.
        set_random_state(self.acting, state["randomness"])
        if self._collector.acts_frozen:
            warn_of_other_draws(state, self.acting)
        self._begin_new_episodes(reasons)

    def _begin_new_episodes(self, reasons: Sequence[str | None]) -> None:
        """Begin new episodes where episodes cannot be resumed, and warn about it.

        Args:
            reasons: For each environment, why it cannot resume its episode, or None if it can.
        """
        self.new_episode_reasons = {
            env: reason for env, reason in enumerate(reasons) if reason is not None
        }
        if self.new_episode_reasons:
            cannot_resume = np.array([reason is not None for reason in reasons])
            self._collector.begin_anew(cannot_resume)
            warn_of_new_episodes(self.new_episode_reasons, count=len(reasons))

    def save_checkpoint(self, directory: str | os.PathLike[str]) -> None:
        """Write the whole state to a folder, for `restore`; call it between two calls of `train`.

        Raises:
            SavedPolicyError: The config contains a value that cannot be saved, or the files cannot
                be written.

        Example:
            >>> config = {"num_envs": 2, "rollout_length": 32, "minibatch_size": 64}
            >>> algo = PPO("CartPole-v1", config)
            >>> _ = algo.learn(64)
            >>> algo.save_checkpoint("checkpoint")
        """
        checkpoints.write(directory, self.policy, self.state())

    @classmethod
    def restore(
        cls,
        directory: str | os.PathLike[str],
        env: AnyEnv | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        catalog: Catalog | None = None,
        record: str | os.PathLike[str] | None = None,
        postprocess_fn: Postprocess | None = None,
        callbacks: Sequence[Callback] = (),
        model: Any = None,
        memory: Any = None,
    ) -> Self:
        """Return a new algorithm that resumes from a checkpoint; call it on the class.

        On the CPU, the run continues bit for bit, if its environments can be restored. Unlike
        RLlib's `restore`, it does not change an algorithm that exists, so `algo.restore(folder)`
        raises an error.

        Args:
            directory: Folder of a checkpoint, or of a run whose last checkpoint is used.
            env: The environment; required unless the run used a Gymnasium id. Before restoring,
                import the module that registers the id.
            config: The algorithm's config keys to change, except `model` and `framework`. An
                `env_config` with import paths is only accepted here, never from a file.
            catalog: As for the algorithm.
            record: As for the algorithm.
            postprocess_fn: As for the algorithm.
            callbacks: As for the algorithm. Each callback receives the state that was saved for its
                class.
            model: As for `rlcatalog.load`.
            memory: As for `rlcatalog.load`.

        Raises:
            SavedPolicyError: The checkpoint is missing or damaged, belongs to a different
                algorithm, or contains import paths.
            ConfigError: The environment is unknown, `config` has a model or another framework, or
                `restore` was called on an instance.

        Warns:
            ResumeWarning: Environments that cannot resume their episodes begin new ones.

        Example:
            >>> algo = PPO("CartPole-v1", {"num_envs": 2, "rollout_length": 128})
            >>> algo.save_checkpoint("checkpoint")
            >>> algo = PPO.restore("checkpoint")
            >>> algo.learn(256)["timesteps_total"]
            256
        """
        config = {} if config is None else config
        folder, state = checkpoints.read(directory)
        if state.get("algorithm") != cls.__name__:
            raise SavedPolicyError(
                f"{folder}: {state.get('algorithm')} wrote this checkpoint; {cls.__name__} cannot"
                " resume it."
            )
        if "env_config" not in config:
            advice = "pass it: restore(directory, config={'env_config': …})"
            refuse_imports(
                folder / checkpoints.TRAINING, state["config"]["env_config"], advice=advice
            )
        catalog = catalog or default_catalog()
        # Error messages show how to call `restore` again with another argument.
        call = f"{cls.__name__}.restore({str(directory)!r}, "
        if env is None:
            env = registered_id(folder, state["env"])
        else:
            call += "env, "
        merged_config = {**state["config"], **config}
        policy = _load_policy(
            folder / checkpoints.POLICY,
            env,
            merged_config["env_config"],
            model=model,
            memory=memory,
            catalog=catalog,
            call=call,
        )
        # Before environments are reset, because the filter learns from their observations.
        policy_state = weights_and_filter(policy)
        if "model" in config:
            raise ConfigError("restore: the saved model is used; its config cannot be changed.")
        framework = config.get("framework")
        if framework is not None and framework_name(framework) != policy.framework:
            _refuse_other_framework(folder, policy.framework, framework)
        algo = cls(
            env,
            merged_config,
            catalog=catalog,
            record=record,
            postprocess_fn=postprocess_fn,
            callbacks=callbacks,
            policy=policy,
        )
        try:
            with checkpoints.name_owner_in_errors(folder):
                check_fits(state, algo.state())
                algo.set_state({**state, "policy": policy_state})
        except BaseException:
            algo.stop()  # the caller never gets the algorithm
            raise
        return algo

    @property
    def acting(self) -> Policy | Frozen:
        """The policy that collects rollouts: `policy`, or its frozen form."""
        return self._collector.policy

    @classmethod
    def _parse_config(
        cls,
        config: Mapping[str, Any] | None,
        env: AnyEnv,
        *,
        model: Any,
        memory: Any,
        policy: Policy | None,
    ) -> OnPolicyConfig:
        """Return the checked config, with the model config of `model` and `memory`, or of `policy`.

        Args:
            config: The config.
            env: The environment.
            model: The argument `model` of the algorithm, or None.
            memory: The argument `memory`, or None.
            policy: The policy to train further, or None.
        """
        parsed = parse(config, cls.config_class, count_passed(env))
        if policy is None:
            # Template for errors, which show how to put the model config into the algorithm's.
            way = "config={{'model': {}}}"
            model_config = config_with_model(parsed.model, model, way=way, memory=memory)
            return replace(parsed, model=model_config)
        for name, argument in (("model", model), ("memory", memory)):
            if argument is not None:
                raise ConfigError(
                    f"{name}= and policy= are both given, but a policy already has a model. Pass"
                    " only one."
                )
        model_config = policy.resolution.config.given  # without keys that have their default
        return replace(parsed, model=model_config, framework=policy.framework)

    def _seed_and_build(self, catalog: Catalog, policy: Policy | None) -> Policy:
        """Seed the framework; return the passed policy, or build one from the config."""
        if policy is not None:
            self._seed_framework(policy.framework)
            return policy
        layout_of_each_env = self._envs.call("image_layout")
        # As in the first implementation of PPO (Schulman et al. 2017) and in Stable-Baselines3.
        defaults: dict[str, Any] = {"init": "orthogonal"}
        if layout_of_each_env[0] is not None:
            defaults["image_layout"] = layout_of_each_env[0]
        spaces = (self._envs.single_observation_space, self._envs.single_action_space)
        # Only `resolve` can tell the framework, which may follow from a custom class. `build` then
        # draws the weights, so the framework is seeded between the two.
        resolution = catalog.resolve(
            *spaces, self.config.model, self.config.framework, defaults=defaults
        )
        if resolution.has_memory:
            # The order of layers of sb3-contrib's RecurrentPPO, and the biases of its LSTM.
            defaults |= {"memory_first": True, "lstm_two_biases": True}
        self._seed_framework(resolution.framework)
        return build(
            *spaces, self.config.model, self.config.framework, catalog=catalog, defaults=defaults
        )

    def _check_policy(self) -> None:
        check_policy(
            self.policy,
            observation_space=self._envs.single_observation_space,
            action_space=self._envs.single_action_space,
            algorithm=self.config.algorithm,
            needs_values=self.objective.learns_values,
        )

    def _make_collector(self, postprocess_fn: Postprocess | None) -> Collector:
        return Collector(
            self.policy,
            self._envs,
            self.config.seed,
            self.config.gamma,
            postprocess_fn,
            uses_values=self.objective.learns_values,
            scale=scale_of(self.config),
            env_masks=EnvMasks(self.policy.masks, self._envs),
        )

    def _make_learner(self) -> RolloutLearner:
        optimizer_class = minibatch_optimizer_of(self.policy.framework)
        minibatch_optimizer = optimizer_class(self.policy, self.config, self.objective)
        return RolloutLearner(self.policy, self.config, self._rng, minibatch_optimizer)

    def _seed_framework(self, framework: str) -> None:
        seed = derive_seed(self.config.seed, SeedStream.FRAMEWORK)
        if seed is not None:
            learner_of(framework).seed(seed)

    def _batch(self, rollout: Rollout) -> dict[str, Any]:
        """Return a rollout's training data as rows, with advantages."""
        # The divergence is computed from the parameters of the collecting policy's distributions.
        penalizes_divergence = self.config.kl_coeff > 0
        return training_batch(
            rollout, self.config.gamma, self.config.lambda_, dist_inputs=penalizes_divergence
        )

    def _call_on_step(self, record: StepRecord) -> None:
        """Call the callbacks after a step in every environment."""
        if self.callbacks:
            columns = record.as_columns()
            for callback in self.callbacks:
                callback.on_step(self, columns)


def _load_policy(
    folder: Path,
    env: AnyEnv,
    env_config: Mapping[str, Any],
    *,
    model: Any,
    memory: Any,
    catalog: Catalog,
    call: str,
) -> Policy:
    """Return the saved policy of a checkpoint.

    Args:
        folder: The policy's folder.
        env: The environment, which has the spaces that the policy could not save.
        env_config: The environment's config.
        model: As for `rlcatalog.load`.
        memory: As for `rlcatalog.load`.
        catalog: Catalog in which to look up the parts.
        call: The beginning of the user's call, for error messages.
    """
    manifest = read_manifest(folder)
    make_env = EnvMaker(env, env_config, manifest.config, catalog)
    env_or_maker = make_env if make_env.num_passed is None else env
    spaces = unwritten_spaces(manifest, env_or_maker, catalog)
    return load_for_call(
        call, folder, spaces, framework=None, model=model, catalog=catalog, memory=memory
    )


def _refuse_other_framework(folder: Path, saved: str, other: str) -> NoReturn:
    """Raise the error for `restore` in another framework than that of the checkpoint."""
    raise ConfigError(
        f"restore: the run in {folder} was trained with framework={saved!r}, and cannot continue"
        f" with framework={other!r}. Remove the key; or begin a new run with the saved policy:"
        f" policy=rlcatalog.load({str(folder / checkpoints.POLICY)!r}, framework={other!r})"
    )


def _refuse_restore(
    algorithm: str,
    env_id: str | None,
    directory: str | os.PathLike[str] = "folder",
    *_: Any,
    **__: Any,
) -> NoReturn:
    """Raise the error for `restore` on an instance; the other arguments do not matter."""
    env = "" if env_id is not None else ", env"
    raise ConfigError(
        f"restore was called on an existing {algorithm}, which it cannot change: it returns a new"
        " algorithm, with the checkpoint's config. Call it on the class: algo ="
        f" {algorithm}.restore({str(directory)!r}{env})"
    )
