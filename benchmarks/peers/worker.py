"""Measures one library in this process: `python -m benchmarks.peers.worker LIBRARY [FOLDER …]`,
started by the command with the folders of packages that only this process sees.

It answers each line of input with a line of JSON. A line that names work prepares it, and tells
whether the library has such a thing; `measure` asks for the seconds that one unit of it takes, and
`check` for what the tests compare between libraries. The first answer tells the versions and the
memory after acting once.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any
from unittest.mock import Mock, patch

from benchmarks.peers import work

#: About how long a measurement of short work takes, in seconds; it is the median of so many parts.
LONG_ENOUGH, PARTS = 0.3, 5


def hide_tensorflow() -> None:
    """Let no library import TensorFlow: RLlib and TensorBoard do where it is installed, without a
    need here.
    """
    sys.modules["tensorflow"] = None  # type: ignore[assignment]


def prepared(library: Any, name: str) -> Callable[[], float] | None:
    """Return a call that measures work and returns seconds per unit, or None without such work."""
    import torch

    kind, _, size = name.partition(" ")
    make = getattr(library, kind, None)
    if make is None:
        return None
    if kind in ("ppo", "envpool"):
        train: Callable[[int], float] = make(int(size))
        train(1)  # pays for what is compiled, imported and allocated
        rollouts = work.POOL_ROLLOUTS if kind == "envpool" else work.ROLLOUTS
        return lambda: train(rollouts)
    mean, log_std = map(torch.from_numpy, work.some_inputs())
    given = {
        "act": lambda: (work.some_obs(int(size)),),
        "categorical": lambda: (mean,),
        "gaussian": lambda: (mean, log_std),
        "preprocess": lambda: (work.some_observed(),),
        "train": lambda: (work.some_columns(),),
    }
    call, units = make(*given[kind]()), work.MINIBATCHES if kind == "train" else 1
    for _ in range(3):
        call()
    count = max(1, round(LONG_ENOUGH / PARTS / timed(call, 3)))
    return lambda: statistics.median(timed(call, count) / units for _ in range(PARTS))


def timed(call: Callable[[], Any], count: int) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def checked(library: Any) -> dict[str, Any]:
    """Return what has to be the same in every library, in plain numbers."""
    import numpy as np
    import torch

    counter = Mock(wraps=torch.autograd.backward)

    def steps_of(call: Callable[[], Any]) -> int:
        counter.reset_mock()
        with patch("torch.autograd.backward", counter):  # tensors call it, too
            call()
        return counter.call_count

    mean, log_std = map(torch.from_numpy, work.some_inputs())
    drawn = {
        "categorical": library.categorical(mean)(),
        "gaussian": library.gaussian(mean, log_std)(),
    }
    found: dict[str, Any] = {
        name: [column.tolist() for column in columns] for name, columns in drawn.items()
    }
    acted = [
        [np.asarray(column).size for column in library.act(work.some_obs(rows))()]
        for rows in (1, 64)
    ]
    if make := getattr(library, "preprocess", None):
        found["preprocess"] = np.stack(
            [np.asarray(row) for row in make(work.some_observed())()]
        ).tolist()
    found |= {
        "parameters": library.parameters(),
        "act": acted,
        "train": steps_of(library.train(work.some_columns())),
    }
    if library.__name__.endswith("rllib"):  # its PPO starts Ray's processes
        return found
    train = library.ppo(8)
    first, second = (steps_of(partial(train, rollouts)) for rollouts in (1, 2))
    return found | {"ppo": second - first}


def peak() -> int:
    """Return the largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def main(name: str, *folders: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    warnings.simplefilter("ignore")
    hide_tensorflow()
    sys.path += folders  # last, so that they replace nothing

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    try:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        library = importlib.import_module(f"benchmarks.peers.{name}")
        library.act(work.some_obs(1))()
    except ImportError as error:
        return answer(missing=str(error))
    answer(memory=peak(), versions={package: version(package) for package in library.PACKAGES})
    call: Callable[[], float] | None = None
    for line in map(str.strip, sys.stdin):
        try:
            if line == "check":
                answer(**checked(library))
            elif line == "measure":
                answer(seconds=None if call is None else call())
            else:
                call = None  # what was prepared before goes first
                call = prepared(library, line)
                answer(able=call is not None)
        except Exception:  # the command shows it
            answer(error=traceback.format_exc())
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
