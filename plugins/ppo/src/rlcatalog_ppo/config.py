"""Config keys for the algorithms; the key `model` contains the model config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import asdict

from rlcatalog.config import MODEL_WORDS, convert, keys_of, plain
from rlcatalog.errors import CatalogWarning, ConfigError, UnknownConfigKeyError, nearest
from rlcatalog.reporting import warn_caller, warn_deprecated

_Positive = Annotated[int, Meta(ge=1)]
# The steps of an update must fit in memory, and its passes must end.
_PerUpdate = Annotated[int, Meta(ge=1, le=2**24)]
_Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]  # accepted by all generators
_Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
_NotNegative = Annotated[float, Meta(ge=0.0)]
_AboveZero = Annotated[float, Meta(gt=0.0)]
_Schedule = tuple[tuple[Annotated[int, Meta(ge=0)], _NotNegative], ...]


# Limits within which a frozen policy collects. One of its calls saves 0.1 ms and more, for one
# environment (0.02 in place of 0.11 ms with two layers of 64) and for 256 (0.11 in place of 0.23).
# Above that, the network's own work takes most of the time. Recording takes 0.2 s once, and copying
# weights before each rollout 0.1 to 8 ms.

#: Largest number of environments.
MOST_ENVS = 256
#: Smallest total number of steps in a run.
FEWEST_STEPS = 20_000
#: Smallest number of calls in a run; each takes a step in all environments.
FEWEST_CALLS = 1_250
#: Smallest number of calls between two updates.
SHORTEST_ROLLOUT = 32


class OnPolicyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys of all on-policy algorithms, to which each algorithm adds keys and defaults."""

    #: The algorithm's name in messages.
    algorithm: ClassVar[str] = "on-policy"
    #: Older names → current ones.
    aliases: ClassVar[Mapping[str, str]] = {
        "rollout_fragment_length": "rollout_length",
        "num_envs_per_worker": "num_envs",
        "num_envs_per_env_runner": "num_envs",
    }

    framework: Annotated[
        str | None,
        Meta(
            description="an installed framework, such as torch; by default, that of a custom"
            " class, if any"
        ),
    ] = None
    model: Annotated[dict[str, Any], Meta(description="the model config")] = {}
    device: Annotated[
        str,
        Meta(
            description="device of the model: cpu, cuda, cuda:1, …, mps, or auto for a GPU if"
            " there is one"
        ),
    ] = "cpu"
    frozen: Annotated[
        Literal["auto", "always", "never"],
        Meta(
            description="collect with a frozen policy, which acts faster; auto: only on the CPU"
            " with up to 256 environments, rollouts of 32 steps or more, and 20,000 steps or more"
            " in total, 1,250 of them in each environment"
        ),
    ] = "auto"
    env_config: Annotated[
        dict[str, Any], Meta(description="keyword arguments for the environment")
    ] = {}
    seed: Annotated[
        _Seed | None, Meta(description="the seed from which all seeds of the run are derived")
    ] = None
    num_envs: Annotated[_PerUpdate, Meta(description="environments stepped in parallel")] = 8
    vector: Annotated[
        Literal["sync", "async"],
        Meta(description="step environments in turn, or in parallel, each in its own process"),
    ] = "sync"
    rollout_length: Annotated[
        _PerUpdate, Meta(description="steps per environment between two updates")
    ] = 128
    lr: Annotated[_NotNegative, Meta(description="learning rate of Adam")] = 1e-3
    lr_parts: Annotated[
        dict[str, _NotNegative],
        Meta(
            description="learning rates of parts of the model, such as {'trunk': 1e-5}; they"
            " change over a run as lr does"
        ),
    ] = {}
    anneal_lr: Annotated[
        bool, Meta(description="lower the learning rate to 0 over total_steps, if that is set")
    ] = True
    total_steps: Annotated[
        _Positive | None,
        Meta(description="number of environment steps over which the learning rate is lowered"),
    ] = None
    lr_schedule: Annotated[
        _Schedule | None,
        Meta(
            description="learning rate as [step, value] pairs, interpolated linearly; replaces lr"
            " and anneal_lr"
        ),
    ] = None
    gamma: Annotated[_Fraction, Meta(description="discount per step")] = 0.99
    reward_scale: Annotated[
        bool,
        Meta(
            description="divide training rewards by the running standard deviation of their"
            " discounted sum"
        ),
    ] = False
    reward_clip: Annotated[
        _AboveZero | None,
        Meta(description="clip training rewards to ± this value, after reward_scale"),
    ] = None
    entropy_coeff: Annotated[_NotNegative, Meta(description="weight of the entropy bonus")] = 0.0
    eager_tracing: Annotated[
        bool,
        Meta(
            description="TensorFlow: trace the training step; if false, a custom_loss may run"
            " arbitrary Python"
        ),
    ] = True
    grad_clip: Annotated[
        _NotNegative | None, Meta(description="largest norm of the gradient; None for no limit")
    ] = 0.5

    def check(self) -> None:
        """Raise a ConfigError if keys are incompatible."""
        check_schedule("lr_schedule", self.lr_schedule)

    def as_plain(self) -> dict[str, Any]:
        """Return all keys except the model config as plain data."""
        keys = asdict(self)
        del keys["model"]
        values: dict[str, Any] = plain(keys)
        return values

    def collects_frozen(self, total_steps: int | None, device: str) -> bool:
        """Return whether a run collects with a frozen policy.

        It depends on the config, the run's length and the device only, to keep runs repeatable.

        Args:
            total_steps: Total number of steps in the run, or None if unknown.
            device: The policy's device.
        """
        if self.frozen == "always":
            return True
        if self.frozen == "never" or device != "cpu" or total_steps is None:
            return False
        # Outside these limits, recording may cost more than it saves; see the comment above them.
        calls = total_steps // self.num_envs
        has_long_run = total_steps >= FEWEST_STEPS and calls >= FEWEST_CALLS
        has_long_rollouts = self.rollout_length >= SHORTEST_ROLLOUT
        has_few_envs = self.num_envs <= MOST_ENVS
        return has_long_run and has_long_rollouts and has_few_envs

    def lr_at(self, steps: int) -> float:
        """Return the learning rate after a number of environment steps."""
        if self.lr_schedule is not None:
            return value_at(self.lr_schedule, steps)
        if not self.anneal_lr or self.total_steps is None:
            return self.lr
        return self.lr * max(0.0, 1.0 - steps / self.total_steps)

    def lr_parts_at(self, steps: int) -> dict[str, float]:
        """Return the learning rates of parts after a number of environment steps.

        They are lowered in proportion to `lr`. A schedule replaces `lr`; its largest value then
        stands for the rates in the config.
        """
        share = 1.0
        if self.lr_schedule is not None:
            largest = max(value for _, value in self.lr_schedule)
            share = 0.0
            if largest > 0:
                share = value_at(self.lr_schedule, steps) / largest
        elif self.anneal_lr and self.total_steps is not None:
            share = max(0.0, 1.0 - steps / self.total_steps)
        return {part: rate * share for part, rate in self.lr_parts.items()}

    def clip_param_at(self, steps: int) -> float | None:
        """Return the scheduled `clip_param` after a number of environment steps.

        It is None if there is no schedule, and for algorithms without a `clip_param`.
        """
        return None

    # The learner reads the following for every algorithm. If an algorithm's struct has a config key
    # of the same name, the key replaces the constant.

    @property
    def num_epochs(self) -> int:
        """Number of passes over each rollout."""
        return 1

    @property
    def minibatch_size(self) -> int | None:
        """Steps per optimiser step; None for the whole rollout."""
        return None

    @property
    def lambda_(self) -> float:
        """Lambda of the advantage estimate; with 1 and without values, it is the return to go."""
        return 1.0

    @property
    def kl_coeff(self) -> float:
        """Initial weight of the divergence from the collecting policy; 0 for no such penalty."""
        return 0.0

    @property
    def kl_target(self) -> float:
        """Target of the divergence, which has no effect if its weight is 0."""
        return 0.0


class PPOConfig(OnPolicyConfig, frozen=True, kw_only=True):
    """Config keys of PPO; the defaults solve CartPole and are reasonable elsewhere."""

    algorithm: ClassVar[str] = "PPO"
    aliases: ClassVar[Mapping[str, str]] = {
        "lambda": "lambda_",
        "num_sgd_iter": "num_epochs",
        "sgd_minibatch_size": "minibatch_size",
        **OnPolicyConfig.aliases,
    }

    num_epochs: Annotated[_PerUpdate, Meta(description="passes over each rollout")] = 10
    minibatch_size: Annotated[_PerUpdate, Meta(description="steps per optimiser step")] = 256
    lambda_: Annotated[_Fraction, Meta(description="lambda of the advantage estimate (GAE)")] = 0.95
    clip_param: Annotated[
        _NotNegative, Meta(description="largest deviation of the probability ratio from 1")
    ] = 0.2
    clip_schedule: Annotated[
        _Schedule | None,
        Meta(description="clip_param as [step, value] pairs, interpolated linearly"),
    ] = None
    vf_loss_coeff: Annotated[
        _NotNegative, Meta(description="weight of the value loss; large weights harm shared layers")
    ] = 0.1
    kl_coeff: Annotated[
        _NotNegative,
        Meta(
            description="initial weight of the KL divergence from the collecting policy; 0"
            " disables it"
        ),
    ] = 0.0
    kl_target: Annotated[
        _NotNegative, Meta(description="target KL divergence per update for this weight")
    ] = 0.01

    def check(self) -> None:
        """Raise a ConfigError if keys are incompatible, and warn if a key has no effect."""
        super().check()
        check_schedule("clip_schedule", self.clip_schedule)
        size = self.num_envs * self.rollout_length
        _check_at_least_two("minibatch_size", self.minibatch_size)
        _check_at_least_two("num_envs * rollout_length", size)
        if self.minibatch_size > size:
            warn_caller(
                f"minibatch_size={self.minibatch_size} is larger than a rollout: num_envs *"
                f" rollout_length = {size}. The whole rollout is used as one minibatch.",
                CatalogWarning,
            )

    def clip_param_at(self, steps: int) -> float | None:
        """Return the scheduled `clip_param` after a number of steps; None without a schedule."""
        if self.clip_schedule is None:
            return None
        return value_at(self.clip_schedule, steps)


class A2CConfig(OnPolicyConfig, frozen=True, kw_only=True):
    """Config keys of A2C."""

    algorithm: ClassVar[str] = "A2C"
    aliases: ClassVar[Mapping[str, str]] = {"lambda": "lambda_", **OnPolicyConfig.aliases}

    lr: Annotated[_NotNegative, Meta(description="learning rate of Adam")] = 7e-4
    rollout_length: Annotated[
        _PerUpdate, Meta(description="steps per environment between two updates")
    ] = 5
    lambda_: Annotated[
        _Fraction,
        Meta(
            description="lambda of the advantage estimate (GAE); 1 uses all rewards in the"
            " rollout, then the value"
        ),
    ] = 1.0
    vf_loss_coeff: Annotated[_NotNegative, Meta(description="weight of the value loss")] = 0.5
    normalize_advantage: Annotated[
        bool,
        Meta(description="normalise each rollout's advantages to mean 0 and standard deviation 1"),
    ] = False

    def check(self) -> None:
        """Raise a ConfigError if keys are incompatible."""
        super().check()
        if self.normalize_advantage:
            check_can_normalize(self)


class PGConfig(OnPolicyConfig, frozen=True, kw_only=True):
    """Config keys of PG."""

    algorithm: ClassVar[str] = "PG"

    rollout_length: Annotated[
        _PerUpdate, Meta(description="steps per environment between two updates")
    ] = 200
    normalize_advantage: Annotated[
        bool,
        Meta(
            description="normalise each rollout's returns to go to mean 0 and standard deviation 1"
        ),
    ] = False

    def check(self) -> None:
        """Raise a ConfigError if keys are incompatible."""
        super().check()
        if self.normalize_advantage:
            check_can_normalize(self)


def _check_at_least_two(name: str, steps: int) -> None:
    if steps < 2:
        raise ConfigError(
            f"{name} = {steps}: advantages are normalised by their standard deviation, which needs"
            " at least two steps. Set 2 or more."
        )


def check_can_normalize(config: OnPolicyConfig) -> None:
    """Raise a ConfigError unless a rollout has enough steps to normalise its advantages."""
    size = config.num_envs * config.rollout_length
    if size < 2:
        raise ConfigError(
            f"num_envs * rollout_length = {size}: advantages are normalised by their standard"
            " deviation, which needs at least two steps. Set it to 2 or more, or set"
            " normalize_advantage to false."
        )


# --- values that change over a run ----------------------------------------------------------------

#: Pairs of an environment step and a value.
Schedule = Sequence[tuple[int, float]]


def value_at(schedule: Schedule, step: int) -> float:
    """Return a schedule's value at a step.

    It is interpolated linearly between the pairs, and constant outside them.
    """
    steps, values = zip(*schedule, strict=True)
    return float(np.interp(step, steps, values))


def check_schedule(name: str, schedule: Schedule | None) -> None:
    """Raise an error unless a schedule's steps increase.

    Raises:
        ConfigError: The schedule is empty, or its steps do not increase.
    """
    if schedule is None:
        return
    steps = [step for step, _ in schedule]
    steps_increase = all(step < next_step for step, next_step in pairwise(steps))
    if not steps or not steps_increase:
        raise ConfigError(
            f"{name}: expected [step, value] pairs with increasing steps, such as"
            f" [[0, 0.001], [100000, 0.0]]; found {[list(pair) for pair in schedule]}."
        )


# --- parsing --------------------------------------------------------------------------------------

Config = TypeVar("Config", bound=OnPolicyConfig)

#: PPO key names in Stable-Baselines3 and CleanRL → our key with the same meaning, and, after a
#: comma, any difference. For error messages.
ELSEWHERE = {
    "learning_rate": "lr",
    "n_steps": "rollout_length",
    "num_steps": "rollout_length",
    "batch_size": "minibatch_size",
    "num_minibatches": "minibatch_size, the number of steps in one minibatch",
    "n_epochs": "num_epochs",
    "update_epochs": "num_epochs",
    "gae_lambda": "lambda_",
    "clip_range": "clip_param",
    "clip_coef": "clip_param",
    "ent_coef": "entropy_coeff",
    "vf_coef": "vf_loss_coeff, the weight of half the mean squared error as in CleanRL: twice"
    " Stable-Baselines3's",
    "max_grad_norm": "grad_clip",
    "norm_adv": "normalize_advantage",
    "n_envs": "num_envs",
    "total_timesteps": "total_steps, which sets the schedule of the learning rate;"
    " learn(total_steps) sets the length",
}

#: Model config keys that RLlib has beside its model config.
_BESIDE_MODEL = ("observation_filter", "preprocessor_pref", "_disable_preprocessor_api")


def parse(
    config: Mapping[str, Any] | None,
    config_class: type[Config] = PPOConfig,  # type: ignore[assignment]
    num_envs: int | None = None,
) -> Config:
    """Parse and check an algorithm's config without changing the caller's object.

    Args:
        config: The config.
        config_class: The algorithm's struct.
        num_envs: Default for the key `num_envs`, if environments were passed. With few
            environments, the default `rollout_length` increases, so that the total number of steps
            in a rollout stays the same.

    Raises:
        UnknownConfigKeyError: The algorithm has no such key.
        ConfigError: A value has the wrong type or is out of range.
    """
    known_keys = {row.name: row for row in keys_of(config_class)}
    values: dict[str, Any] = {}
    model_config: dict[str, Any] = {}
    model_keys_beside: dict[str, Any] = {}
    for given_key, given_value in (config or {}).items():
        key, value = _current_key(given_key, given_value, config_class)
        if key in _BESIDE_MODEL:
            model_keys_beside[key] = value
        elif key not in known_keys:
            raise _unknown_key(given_key, key, config_class, known_keys)
        elif key == "model":
            # The catalog parses it, because it knows the keys; classes and callables are kept.
            if not isinstance(value, Mapping):
                raise ConfigError(
                    f"{config_class.algorithm} config key 'model': expected a dict, found"
                    f" {value!r}."
                )
            model_config = dict(value)
        else:
            values[key] = convert(
                plain(value), known_keys[key], f"{config_class.algorithm} config key"
            )
    values["model"] = {**model_config, **model_keys_beside}
    if num_envs is not None:
        defaults = config_class()
        steps_per_rollout = defaults.num_envs * defaults.rollout_length
        length_for_as_many_steps = steps_per_rollout // num_envs
        values.setdefault("num_envs", num_envs)
        values.setdefault("rollout_length", max(defaults.rollout_length, length_for_as_many_steps))
    parsed = config_class(**values)
    parsed.check()
    return parsed


def _current_key(key: str, value: Any, config_class: type[OnPolicyConfig]) -> tuple[str, Any]:
    """Return a config key and its value under the key's current name; warn if the name is older."""
    if key == "use_pytorch":
        warn_deprecated("'use_pytorch' is now framework='torch' or 'tf'.")
        framework = "torch" if value else "tf"
        return "framework", framework
    if key in config_class.aliases:
        current = config_class.aliases[key]
        warn_deprecated(f"{config_class.algorithm} config key {key!r} is now called {current!r}.")
        return current, value
    return key, value


def _unknown_key(
    given_key: str, key: str, config_class: type[OnPolicyConfig], known_keys: Mapping[str, Any]
) -> UnknownConfigKeyError:
    """Return the error for an unknown key, with the name that another library's key has here.

    Args:
        given_key: The key in the config.
        key: The key's current name.
        config_class: The algorithm's struct.
        known_keys: The algorithm's keys.
    """
    # "our_key", or "our_key, how it differs".
    from rlcatalog import MODEL_DEFAULTS  # needs all plugins, so not before it is needed

    our_key, comma, difference = ELSEWHERE.get(key, "").partition(",")
    if our_key in known_keys:
        hint = f" Here it is called {our_key!r}{comma}{difference}."
    elif key in MODEL_WORDS:
        hint = f" {MODEL_WORDS[key]} Model config keys go under 'model'."
    elif key in MODEL_DEFAULTS:
        hint = f" It is a key of the model config: write {{'model': {{{key!r}: ...}}}}."
    else:
        hint = f"{nearest(str(given_key), known_keys)} Model config keys go under 'model'."
    return UnknownConfigKeyError(
        f"Unknown {config_class.algorithm} config key {given_key!r}.{hint} Known:"
        f" {', '.join(known_keys)}."
    )
