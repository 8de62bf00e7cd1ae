"""`python -m benchmarks.simulators ENGINE TASK`: train an engine for simulators with its own net
and with a catalog policy, seed by seed, and compare returns and seconds per update.

The engines are rsl_rl and skrl, from the folders beside the environment in which `make test` puts
them; the tasks are Pendulum and CartPole on tensors. Both nets have two layers of 64 units and the
same settings of PPO. The two runs of a seed follow one another, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.learning.measures import summary

ROOT = Path(__file__).resolve().parents[1]
HIDDEN = [64, 64]
#: The same layers in the catalog's config.
CATALOG = {"fcnet_hiddens": HIDDEN, "fcnet_activation": "elu"}
#: Task → (return of acting at random, best return).
RANGES = {"pendulum": (-1200.0, -150.0), "cartpole": (20.0, 500.0)}
#: How many episodes, the last ones of a run, its return is the mean of.
EPISODES = 256


class Run(NamedTuple):
    """The result of one run.

    Attributes:
        mean_return: Mean return of the last episodes.
        seconds: Median seconds per update, with its rollout.
    """

    mean_return: float
    seconds: float


def main() -> None:
    """Compare an engine's own net and a catalog policy on one task."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulators", description=__doc__)
    parser.add_argument("engine", choices=("rsl_rl", "skrl"))
    parser.add_argument("task", choices=tuple(RANGES))
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--updates", type=int, default=60, help="updates of each run")
    parser.add_argument("--envs", type=int, default=256, help="number of environments")
    arguments = parser.parse_args()
    _prepare(arguments.engine)
    train = {"rsl_rl": _train_rsl_rl, "skrl": _train_skrl}[arguments.engine]
    runs: dict[bool, list[Run]] = {False: [], True: []}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for with_catalog in (False, True):
            run = train(arguments.task, arguments.envs, arguments.updates, seed, with_catalog)
            runs[with_catalog].append(run)
            name = "catalog" if with_catalog else "own net"
            print(
                f"seed {seed}, {name}: return {run.mean_return:.1f},"
                f" {1000 * run.seconds:.0f} ms per update",
                flush=True,
            )
    _print_comparison(runs[False], runs[True], arguments.task)


def _print_comparison(own: list[Run], catalog: list[Run], task: str) -> None:
    """Print the paired differences of returns with their interval, and the ratio of times."""
    returns = np.array(
        [(one.mean_return, other.mean_return) for one, other in zip(own, catalog, strict=True)]
    )
    ratios = [other.seconds / one.seconds for one, other in zip(own, catalog, strict=True)]
    print(f"seconds per update: {np.median(ratios):.2f} x (median of {len(ratios)} seeds)")
    low, high = RANGES[task]
    difference = summary(returns, low, high)["difference"]
    print(
        f"return, catalog - own net: {difference.point:+.1f}% of the task's range, 95% interval"
        f" {difference.low:+.1f} to {difference.high:+.1f}"
    )


def _prepare(engine: str) -> None:
    """Make the engine and the tests' environments importable."""
    import torch

    torch.set_num_threads(1)
    sys.path[:0] = [str(ROOT / ".venv" / engine), str(ROOT / "tests/support")]
    # Without this, TensorBoard imports TensorFlow.
    sys.modules["tensorboard.compat.notf"] = ModuleType("tensorboard.compat.notf")


def _make_env(task: str, envs: int, seed: int) -> Any:
    from tensor_envs import TensorCartPole, TensorPendulum

    env_class = TensorPendulum if task == "pendulum" else TensorCartPole
    return env_class(envs, seed)


def _record_ends(algorithm: Any) -> list[float]:
    """Return a list to which the end of each update of an algorithm is added."""
    ends: list[float] = []
    update = algorithm.update

    def update_and_record(**arguments: Any) -> Any:
        result = update(**arguments)
        ends.append(time.perf_counter())
        return result

    algorithm.update = update_and_record
    return ends


def _seconds_per_update(ends: list[float]) -> float:
    """Return the median time from the end of one update to the next, with the rollout between."""
    return float(np.median(np.diff(ends)))


#: Rewards of Pendulum are divided by ten, for both nets.
_REWARD_SCALES = {"pendulum": 0.1, "cartpole": 1.0}


def _train_rsl_rl(task: str, envs: int, updates: int, seed: int, with_catalog: bool) -> Run:
    from rsl_rl_runs import RslEnv, catalog_config, learn, make_runner

    from rlcatalog_rsl_rl import CatalogEnv

    if task != "pendulum":
        raise SystemExit("rsl_rl's own nets have no distribution for choices: take pendulum.")
    tensor_env = _make_env(task, envs, seed)
    env: Any = RslEnv(tensor_env, reward_scale=_REWARD_SCALES[task])
    config = catalog_config(CATALOG, steps=24, entropy_coef=0.0)
    if with_catalog:
        env = CatalogEnv(env)
    else:
        net = {"class_name": "MLPModel", "hidden_dims": HIDDEN, "activation": "elu"}
        distribution = {
            "class_name": "GaussianDistribution",
            "init_std": 1.0,
            "std_type": "log",
        }
        config["actor"] = {**net, "distribution_cfg": distribution}
        config["critic"] = net
        config["algorithm"]["class_name"] = "PPO"
    runner = make_runner(env, config, seed)
    ends = _record_ends(runner.alg)
    learn(runner, updates)
    return Run(tensor_env.mean_of_last_returns(EPISODES), _seconds_per_update(ends))


def _train_skrl(task: str, envs: int, updates: int, seed: int, with_catalog: bool) -> Run:
    import torch
    from skrl_runs import SkrlEnv, make_agent, make_catalog_agent, make_trainer

    steps = 32
    settings = {
        "learning_epochs": 5,
        "mini_batches": 4,
        "learning_rate": 1e-3,
        "value_loss_scale": 1.0,
        "grad_norm_clip": 1.0,
        "value_clip": 0.2,
        "entropy_loss_scale": 0.0,
    }
    tensor_env = _make_env(task, envs, seed)
    scale = _REWARD_SCALES[task]
    if with_catalog:
        agent, env = make_catalog_agent(
            tensor_env, CATALOG, steps, seed, reward_scale=scale, **settings
        )
    else:
        torch.manual_seed(seed)
        env = _own_wrapper(SkrlEnv(tensor_env, scale))
        agent = make_agent(env, _own_model(env), _own_agent_class(), steps, **settings)
    trainer = make_trainer(agent, env, updates)
    ends = _record_ends(agent)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    return Run(tensor_env.mean_of_last_returns(EPISODES), _seconds_per_update(ends))


def _own_agent_class() -> Any:
    from skrl.agents.torch.ppo import PPO

    return PPO


def _own_wrapper(env: Any) -> Any:
    """Return the environment for skrl's own models."""
    from skrl.envs.wrappers.torch import Wrapper

    class OwnWrapper(Wrapper):
        """The environment with results in columns."""

        def reset(self) -> tuple[Any, Any]:
            return env.reset()

        def step(self, actions: Any) -> tuple[Any, ...]:
            if self.action_space.shape == ():
                actions = actions[:, 0]  # numbers of a Discrete
            obs, *results, info = env.step(actions)
            return obs, *(result.reshape(-1, 1) for result in results), info

        def state(self) -> None:
            """There is none."""

        def render(self) -> None:
            """There is no picture."""

        def close(self) -> None:
            """There is nothing to close."""

    return OwnWrapper(env)


def _own_model(env: Any) -> Any:
    """Return skrl's model for both roles: two nets as long as the catalog's."""
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model

    return _build_own_model(env, Model, CategoricalMixin, GaussianMixin, DeterministicMixin)


def _build_own_model(
    env: Any, model_class: Any, categorical: Any, gaussian: Any, deterministic: Any
) -> Any:
    """Return the model; the arguments are skrl's classes."""
    import torch
    from torch import nn

    has_choices = env.action_space.shape == ()
    outputs = int(env.action_space.n) if has_choices else env.action_space.shape[0]
    inputs = env.observation_space.shape[0]

    def dense(size: int) -> nn.Sequential:
        first, second = HIDDEN
        return nn.Sequential(
            nn.Linear(inputs, first),
            nn.ELU(),
            nn.Linear(first, second),
            nn.ELU(),
            nn.Linear(second, size),
        )

    policy_class = categorical if has_choices else gaussian

    class OwnModel(policy_class, deterministic, model_class):  # type: ignore[misc]
        """Policy and value function, which share no layers."""

        def __init__(self) -> None:
            model_class.__init__(
                self,
                observation_space=env.observation_space,
                action_space=env.action_space,
                device=env.device,
            )
            if has_choices:
                categorical.__init__(self, role="policy")
            else:
                gaussian.__init__(self, role="policy")
                self.log_std = nn.Parameter(torch.zeros(outputs))
            deterministic.__init__(self, role="value")
            self.actor = dense(outputs)
            self.critic = dense(1)

        def act(self, inputs: Any, *, role: str = "") -> Any:
            mixin = policy_class if role == "policy" else deterministic
            return mixin.act(self, inputs, role=role)

        def compute(self, inputs: Any, role: str = "") -> Any:
            obs = inputs["observations"]
            if role != "policy":
                return self.critic(obs), {}
            if has_choices:
                return self.actor(obs), {}
            return self.actor(obs), {"log_std": self.log_std}

    return OwnModel()


if __name__ == "__main__":
    main()
