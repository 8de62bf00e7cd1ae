"""Takes one environment of `make environments` from its spaces to an exported policy.

`environments.py` runs it with the Python of the environment's group:
`python environments_child.py ENTRY FILE`. ENTRY is the environment as `tools/environments.toml` has
it, as JSON. FILE receives what is known so far before each step, so that it also tells which step
ended the process.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import resource
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import environment_makers
import numpy as np

import rlcatalog
from rlcatalog.catalog import count_envs, make_env
from rlcatalog.errors import CatalogWarning
from rlcatalog_ppo import PPO

#: What is tried with each environment, in this order: methods of `Trial`.
STEPS = ("play", "build", "explain", "train", "save", "load", "export")
TRAINING_STEPS = 2000
#: Episodes of an evaluation in a vector environment.
EVALUATED_EPISODES = 4
#: Number of observations on which policies are compared.
OBSERVATIONS = 4
#: Largest memory of the process, in bytes; asking for more is a MemoryError.
MEMORY = 8 * 2**30
#: Distributions whose versions are recorded beside the environment's own.
VERSIONS = ("gymnasium", "numpy", "torch")


class Trial:
    """One environment, with rlcatalog's defaults.

    Args:
        entry: The environment, as `tools/environments.toml` has it.
        folder: Where the policy is saved.

    Attributes:
        row: What is known so far: package, versions, spaces and chosen parts.
    """

    def __init__(self, entry: dict[str, Any], folder: Path) -> None:
        self._entry = entry
        #: Number of environments in a vector environment, or None.
        self._num_envs: int | None = None
        self._env: Any = entry.get("id")
        self._config = entry.get("options", {})
        self._model = entry.get("model", {})
        if "maker" in entry:
            self._env = partial(getattr(environment_makers, entry["maker"]), **self._config)
            self._config = {}
        self._folder = folder
        self.row: dict[str, Any] = {name: importlib.metadata.version(name) for name in VERSIONS}
        self.row["version"] = importlib.metadata.version(entry["package"])

    def play(self) -> None:
        """Make the environment and take a random step, to see whether it runs by itself."""
        env = make_env(self._env, self._config)
        self._num_envs = count_envs(env)
        env.reset(seed=self._reset_seed(env))
        env.action_space.seed(0)
        env.step(env.action_space.sample())
        env.close()

    def build(self) -> None:
        """Build a policy, and act in the environment."""
        env = self._wrapped_env()
        policy = rlcatalog.build(env=env, config=self._model)
        obs, _ = env.reset(seed=self._reset_seed(env))
        env.step(self._act(policy, obs))
        env.close()

    def explain(self) -> None:
        """Explain the choice, and record what was chosen."""
        env = make_env(self._env, self._config)
        explanation = rlcatalog.explain(env=env, config=self._model)
        env.close()
        explanation.text(all=True)
        facts = explanation.as_dict()
        self.row["observation"] = facts["observation_space"]
        self.row["action"] = facts["action_space"]
        self.row["model"] = facts["model"]["chosen"]
        self.row["distribution"] = facts["action_dist"]["chosen"]

    def train(self) -> None:
        """Train with PPO, and keep some observations that the policy met."""
        config = {"env_config": self._config, "model": self._model, "seed": 0}
        if self._num_envs is not None and "maker" in self._entry:
            config["num_envs"] = self._num_envs
        algo = PPO(self._env, config)
        result = algo.learn(TRAINING_STEPS)
        if self._num_envs is not None:
            algo.evaluate(EVALUATED_EPISODES)
        algo.stop()
        self.row["return"] = None if result is None else result["episode_return_mean"]
        self._policy = algo.policy
        env = self._wrapped_env()
        obs, _ = env.reset(seed=self._reset_seed(env))
        if self._num_envs is not None:
            self._observations = obs  # of all its environments
            env.close()
            return
        self._observations = [obs]
        while len(self._observations) < OBSERVATIONS:
            obs, _, terminated, truncated, _ = env.step(self._policy.act([obs]).action[0])
            if terminated or truncated:
                obs, _ = env.reset()
            self._observations.append(obs)
        env.close()

    def save(self) -> None:
        """Save the policy."""
        self._policy.save(self._folder / "policy")

    def load(self) -> None:
        """Load the saved policy, and compare."""
        self._compare(rlcatalog.load(self._folder / "policy"))

    def export(self) -> None:
        """Export the policy to ONNX, and compare."""
        self._policy.export(self._folder / "policy.onnx")
        self._compare(rlcatalog.Actor(self._folder / "policy.onnx"))

    def _wrapped_env(self) -> Any:
        """Return the environment with the wrappers of installed plugins, as PPO uses it."""
        env = make_env(self._env, self._config)
        if self._num_envs is not None:
            return env
        # PPO reads masks where they are, and the policy keeps the environment's space.
        return rlcatalog.wrap_env(env, self._model, move_masks=False)

    def _reset_seed(self, env: Any) -> int | None:
        """Return the seed for a reset; None for an environment that takes its seed when made."""
        return None if "seed" in env.metadata else 0

    def _act(self, policy: Any, obs: Any) -> Any:
        """Return the policy's actions for the environment, or for all in a vector environment."""
        if self._num_envs is not None:
            return policy.act(obs).action
        return policy.act([obs]).action[0]

    def _compare(self, other: Any) -> None:
        """Check that another policy acts like the trained one.

        Raises:
            AssertionError: It does not.
        """
        expected = self._policy.act(self._observations, explore=False)
        step = other.act(self._observations, explore=False)
        for name in ("dist_inputs", "raw_action", "logp"):
            np.testing.assert_allclose(
                getattr(step, name), getattr(expected, name), rtol=1e-3, atol=1e-4, err_msg=name
            )


def first_line(error: BaseException) -> str:
    """Return an error's type and the first line of its message, without addresses in memory."""
    lines = re.sub(r" at 0x[0-9a-f]+", "", str(error)).strip().splitlines()
    name = type(error).__name__
    return f"{name}: {lines[0]}" if lines else name


def main(arguments: list[str]) -> None:
    """Go through the steps, and write what came of them."""
    entry = json.loads(arguments[0])
    file = Path(arguments[1])
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trial = Trial(entry, Path(folder))
        for step in STEPS:
            trial.row["failed"] = step
            file.write_text(json.dumps(trial.row), encoding="utf-8")
            try:
                getattr(trial, step)()
            except (Exception, SystemExit) as error:
                trial.row["error"] = first_line(error).replace(f"{folder}/", "")
                break
        else:
            trial.row["failed"] = None
    messages = [
        first_line(one.message) for one in caught if isinstance(one.message, CatalogWarning)
    ]
    trial.row["warnings"] = list(dict.fromkeys(messages))
    trial.row["seconds"] = round(time.perf_counter() - started)
    file.write_text(json.dumps(trial.row), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
