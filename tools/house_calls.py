"""Counts of Python calls inside the library, for `tools/house.py`; run by the interpreter of the
checkout it measures.

`python house_calls.py FOLDER` prints JSON: for each step the calls of functions in the folder's
`src` folders and how deeply they nest, at the second of two equal calls. The lookup memory is
cleared before each. Lambdas, comprehensions and resumed generators add to the depth, not to the
calls.
"""

from __future__ import annotations

import functools
import gc
import inspect
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any


def count(folder: Path, step: Callable[[], object]) -> dict[str, int]:
    """Return the number of calls that a step makes of the library's functions, and the depth of the
    deepest.
    """
    calls = deepest = depth = 0
    generators: set[FrameType] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls, deepest, depth
        code = frame.f_code
        if event not in ("call", "return") or not is_source(folder, code.co_filename):
            return
        if event == "return":
            depth -= 1
            return
        depth += 1
        deepest = max(deepest, depth)
        if code.co_flags & inspect.CO_GENERATOR:
            if frame in generators:
                return
            generators.add(frame)
        calls += not code.co_name.startswith("<")

    gc.collect()
    gc.disable()
    sys.setprofile(watch)
    try:
        step()
    finally:
        sys.setprofile(None)
        gc.enable()
    return {"calls": calls, "depth": deepest}


@functools.cache
def is_source(folder: Path, file: str) -> bool:
    """Return whether a file lies in a package's `src` folder of the checkout."""
    path = Path(file)
    return path.is_relative_to(folder) and "src" in path.relative_to(folder).parts


def forget_lookups() -> None:
    """Clear the lookup memory of the default catalog."""
    import rlcatalog

    catalog = rlcatalog.default_catalog()
    if hasattr(catalog.slots, "answers"):
        catalog.slots.answers = ()
    for value in vars(catalog).values():  # of earlier commits
        if type(value).__name__ == "LookupCache":
            value.clear()


def steps() -> dict[str, Callable[[], object]]:
    """Return what is counted, by name: building, loading and acting as a user does."""
    import gymnasium
    import numpy as np

    import rlcatalog

    env = gymnasium.make("CartPole-v1")
    observations = np.zeros((1, 4), np.float32)
    plain = rlcatalog.build(env=env)
    spaces = gymnasium.spaces
    masked_space = spaces.Dict(action_mask=spaces.MultiBinary(4), x=spaces.Box(-1.0, 1.0, (3,)))
    masked = rlcatalog.build(masked_space, spaces.Discrete(4))
    row = {"action_mask": np.ones((1, 4), np.int8), "x": np.zeros((1, 3), np.float32)}
    saved = tempfile.mkdtemp()
    plain.save(saved)
    return {
        "build": lambda: rlcatalog.build(env=env),
        "load": lambda: rlcatalog.load(saved),
        "act": lambda: plain.act(observations),
        "act, Dict with a mask": lambda: masked.act(row),
    }


def main(folder: Path) -> None:
    """Print the figures of a checkout as JSON."""
    warnings.simplefilter("ignore")
    figures = {}
    for name, step in steps().items():
        forget_lookups()
        step()
        forget_lookups()
        figures[name] = count(folder, step)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
