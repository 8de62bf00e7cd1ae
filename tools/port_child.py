"""Tries one item of `port_report.py`: imports a ported class, goes through the stages and prints
what came of it.
"""

from __future__ import annotations

import ast
import dis
import importlib
import json
import re
import sys
import traceback
import types
import warnings
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import one_line
from rlcatalog_ppo import PPO

STAGES = ("import", "register", "build", "forward", "value", "update", "save", "load")
ROWS = 4
PLACES = {
    "model": ("register_custom_model", "custom_model"),
    "distribution": ("register_custom_action_dist", "custom_action_dist"),
    "preprocessor": ("register_custom_preprocessor", "custom_preprocessor"),
}


class Noise(gymnasium.Env):
    """Random observations and rewards; episodes of five steps.

    Args:
        observation_space: Its observations.
        action_space: Its actions.
        ones: Keys of observations that are all ones: masks that allow everything.
    """

    def __init__(self, observation_space: Any, action_space: Any, ones: list[str]) -> None:
        self.observation_space, self.action_space, self._ones, self._steps = (
            observation_space,
            action_space,
            ones,
            0,
        )
        self._random = np.random.default_rng(0)

    def observation(self) -> Any:
        """Draw an observation."""
        obs = self.observation_space.sample()
        for key in self._ones:
            obs[key] = np.ones_like(obs[key])
        return obs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._steps = 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        self._steps += 1
        return self.observation(), float(self._random.normal()), self._steps >= 5, False, {}


class Stub(types.ModuleType):
    """A module in whose place nothing is needed: each of its names is an empty class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def taken(item: dict[str, Any], root: Path) -> Any:
    """Return the class of an item.

    Args:
        item: What `item.toml` says.
        root: The folder of the ported files.
    """
    sys.modules |= {name: Stub(name) for name in item.get("stubs", [])}
    roots = item.get("roots", ["."])
    sys.path[:0] = [str(root / folder) for folder in roots]
    path = Path(item["path"])
    if item.get("class_alone"):
        return alone(root / path, item["class"])
    inner = path.relative_to(roots[0]) if roots[0] != "." else path
    return getattr(importlib.import_module(".".join(inner.with_suffix("").parts)), item["class"])


def alone(path: Path, name: str) -> Any:
    """Return a class of a script, run with those of its statements whose names the class reads, and
    no others.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted, kept = {name}, set()
    while True:
        before = len(kept)
        for place, node in enumerate(tree.body):
            if place not in kept and bound(node) & wanted:
                kept.add(place)
                wanted |= read(compile(ast.Module([node], []), str(path), "exec"))
        if len(kept) == before:
            break
    tree.body = [narrowed(node, wanted) for place, node in enumerate(tree.body) if place in kept]
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    exec(compile(tree, str(path), "exec"), module.__dict__)
    return getattr(module, name)


def read(code: types.CodeType) -> set[str]:
    """Return the names that a statement and the functions in it read of their module."""
    found = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL")
    }
    return found.union(
        *(read(inner) for inner in code.co_consts if isinstance(inner, types.CodeType))
    )


def narrowed(node: ast.stmt, wanted: set[str]) -> ast.stmt:
    """Return an import without the names that nobody reads."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        node.names = [
            part
            for part in node.names
            if (part.asname or part.name.split(".")[0]) in {*wanted, "*"}
        ]
    return node


def bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a file binds."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {part.asname or part.name.split(".")[0] for part in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.Try | ast.If):
        stored = {
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        inner = [part for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom)]
        return stored.union(*(bound(part) for part in inner))
    return set()


def value_of(item: dict[str, Any], key: str, empty: str) -> Any:
    """Return what an expression of an item stands for."""
    return eval(item.get(key, empty), {"np": np, "spaces": spaces, "gymnasium": gymnasium})


def run(item: dict[str, Any], root: Path, done: dict[str, str]) -> None:
    """Go through the stages, noting each that passes.

    Args:
        item: What `item.toml` says.
        root: The folder of the ported files.
        done: Where to note.
    """
    cls = taken(item, root)
    done["import"] = "ok"
    register, key = PLACES[item.get("kind", "model")]
    getattr(rlcatalog.ModelCatalog, register)("ported", cls)
    done["register"] = "ok"
    observation_space, action_space = (
        value_of(item, f"{part}_space", "") for part in ("observation", "action")
    )
    config = {**value_of(item, "model", "{}"), key: "ported"}
    framework = {"tf": "tf", "torch": "torch"}[item["framework"]]
    ones = item.get("ones", [])
    policy = rlcatalog.build(observation_space, action_space, config, framework)
    done["build"] = "ok"
    noise = Noise(observation_space, action_space, ones)
    seen = [noise.observation() for _ in range(ROWS)]
    first = policy.act(seen)
    policy.act(seen, first.state)
    done["forward"] = "ok"
    if first.value is None or first.value.shape != (ROWS,) or not np.isfinite(first.value).all():
        raise TypeError(
            f"expected {ROWS} finite values, found {first.value}: {cls.__name__} has no"
            " value_function"
        )
    done["value"] = "ok"
    settings = {
        "num_envs": 2,
        "rollout_length": 8,
        "num_epochs": 1,
        "minibatch_size": 16,
        "seed": 0,
        "lr": 0.01,
    }
    config = {**value_of(item, "model", "{}"), key: "ported"}
    algo = PPO(
        lambda: Noise(observation_space, action_space, ones),
        {"model": config, **settings, "framework": framework},
    )
    before = [np.array(array) for array in weights(algo.policy)]
    algo.train()
    if not any((old != new).any() for old, new in zip(before, weights(algo.policy), strict=True)):
        raise AssertionError("PPO's step changed no weight")
    done["update"] = "ok"
    algo.save(root / "_saved")
    done["save"] = "ok"
    loaded = rlcatalog.load(root / "_saved")
    acted = [each.act(seen, explore=False).dist_inputs for each in (algo.policy, loaded)]
    if not np.array_equal(*acted) and not item.get("noisy"):
        raise AssertionError("the loaded policy acts otherwise than the saved one")
    done["load"] = "ok"


def weights(policy: Any) -> list[Any]:
    """Return a policy's weights as arrays."""
    return [np.asarray(array) for array in policy.model.get_weights().values()]


def main() -> None:
    """Try the item in the folder named on the command line, and print the result's line last."""
    root, item = Path(sys.argv[1]), json.loads(sys.argv[2])
    sys.modules["ray"] = None  # type: ignore[assignment]  # what is not ported must not run by Ray's help
    warnings.simplefilter("ignore")
    done: dict[str, str] = {}
    result: dict[str, Any] = {"stages": done}
    try:
        run(item, root, done)
    # a model may raise anything, and the rest of the list must go on.
    except BaseException as error:
        result["stage"] = next(stage for stage in STAGES if stage not in done)
        result["error"] = re.sub(r"/\S*?/code/", "", one_line(f"{type(error).__name__}: {error}"))
        result["missing"] = error.name if isinstance(error, ModuleNotFoundError) else None
        result["traceback"] = traceback.format_exc()[-6000:]
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
