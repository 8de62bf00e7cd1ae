"""Learning over seeds: what a test of learning asserts, and the record of the sweep that it is held
against.

A test of learning takes the fixture `over_seeds` and hands it a function from a seed to a return.
The median over the test's seeds must reach the mark that stands in the record, the JSON file beside
the test (see `Record`). With `--sweep N` the same function is run for N seeds of its own, and the
record is written instead. `SEED` in the environment shifts the seeds, which start at 0 and those of
a sweep at 1000, so that a test's seeds are fresh ones.
"""

from __future__ import annotations

import ast
import datetime
import fcntl
import hashlib
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

#: The first seed of a sweep.
FIRST = 1000
#: How likely a test may fail though nothing is wrong.
TOLERATED = 1e-3
#: Seeds a sweep needs; where another framework's sweep of the same algorithm counts too, seeds of
#: its own.
ENOUGH, ENOUGH_BESIDE = 10, 3

_LIBRARIES = ("torch", "tensorflow", "gymnasium", "stable-baselines3", "sb3-contrib", "ray")


class Record:
    """What is known of one test of learning, an entry of the JSON file beside it.

    Written by hand: `at_least` or `at_most` (the mark), `seeds` (how many the test's median is
    over), where a sweep is shorter than it should be `exception` (why), and where another test runs
    the same algorithm in another framework `with` (its name; the mark is then held against both
    sweeps). Written by a sweep: `chance` (what is paid without learning), `settings` (see
    `fingerprint`), `date`, `versions`, `seconds` (of CPU, the median of a run), `returns` (by
    seed).
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self._read()

    @property
    def needed(self) -> int:
        """How many seeds the sweep should have."""
        return ENOUGH_BESIDE if "with" in self.entry else ENOUGH

    @property
    def mark(self) -> float:
        """The return to reach, or not to exceed."""
        return float(self.entry["at_least"] if "at_least" in self.entry else self.entry["at_most"])

    def own(self) -> list[float]:
        """The returns of this test's sweep."""
        return list(self.entry.get("returns", {}).values())

    def returns(self) -> list[float]:
        """The returns the mark is held against."""
        beside = self.entry.get("with")
        return self.own() + (Record(self.path, beside).own() if beside else [])

    def reached(self, found: Sequence[float]) -> bool:
        """Whether the median of some returns reaches the mark, or does not exceed it."""
        median = statistics.median(found)
        return median >= self.mark if "at_least" in self.entry else median <= self.mark

    def chance_of_failure(self) -> float:
        """How likely the median over the test's seeds misses the mark if returns are as in the
        sweep.
        """
        sign = 1 if "at_least" in self.entry else -1
        returns = [sign * found for found in self.returns()]
        width = abs(statistics.median(self.returns()) - self.entry["chance"]) / 100
        return chance_below(returns, sign * self.mark, self.entry["seeds"], width)

    def write(self, **values: Any) -> None:
        """Change keys of the entry."""
        with self._alone():
            self.entry.update(values)

    def add(self, returns: Mapping[str, float], **values: Any) -> None:
        """Add returns, by seed, to those that were found with the same settings; values as in
        `write`.
        """
        with self._alone():
            known = (
                self.entry.get("returns", {})
                if self.entry.get("settings") == values["settings"]
                else {}
            )
            self.entry |= {**values, "returns": dict(sorted({**known, **returns}.items()))}
            if len(self.own()) >= self.needed:
                self.entry.pop("exception", None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Change the entry while no other process changes the file."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            self._read()
            yield
            self.all = dict(sorted({**self.all, self.name: self.entry}.items()))
            written = self.path.with_suffix(".new")
            written.write_text(json.dumps(self.all, indent=1) + "\n")
            written.replace(self.path)
        finally:
            os.close(folder)  # and the lock with it

    def _read(self) -> None:
        self.all: dict[str, dict[str, Any]] = (
            json.loads(self.path.read_text()) if self.path.exists() else {}
        )
        self.entry: dict[str, Any] = self.all.get(self.name, {})


def chance_below(returns: Sequence[float], mark: float, seeds: int, width: float) -> float:
    """Return how likely the median of some draws lies below a mark.

    A draw is one of the returns and normal noise beside it: a few runs know nothing of the ones
    between and beyond them. The noise has the width of the normal reference rule (Scott 1992), 1.06
    sigma n^(-1/5), and at least `width`. A median of an odd number lies below where more than half
    of the draws do.
    """
    width = max(width, 1.06 * float(np.std(returns, ddof=1)) * len(returns) ** -0.2, 1e-9)
    below = sum(math.erfc((found - mark) / width / math.sqrt(2)) / 2 for found in returns) / len(
        returns
    )
    most = range(seeds // 2 + 1, seeds + 1)
    return sum(
        math.comb(seeds, count) * below**count * (1 - below) ** (seeds - count) for count in most
    )


def fingerprint(path: Path, name: str) -> str:
    """Return a hash of a test and of all in its file that it refers to; layout, comments and
    docstrings play no part.

    Hyperparameters that stand in the file of a test are thereby those of its sweep.
    """
    defined: dict[str, ast.AST] = {}
    for node in ast.parse(path.read_text()).body:
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            for part in ast.walk(target) if isinstance(target, ast.AST) else ():
                if isinstance(part, ast.Name):
                    defined[part.id] = node
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
    said: dict[str, str] = {}
    todo = [name]
    while todo:
        one = todo.pop()
        if one in defined and one not in said:
            said[one] = repr(_plain(defined[one]))
            for part in ast.walk(defined[one]):
                todo += [getattr(part, "id", None) or getattr(part, "arg", None) or ""]
    return hashlib.sha256(repr(sorted(said.items())).encode()).hexdigest()[:12]


def _plain(node: Any) -> Any:
    """A syntax tree as lists, the same under each version of Python."""
    if isinstance(node, ast.AST):
        fields = [
            (field, getattr(node, field, None))
            for field in node._fields
            if field != "decorator_list"
        ]
        return [
            type(node).__name__,
            *((field, _plain(value)) for field, value in fields if value not in (None, [])),
        ]
    if isinstance(node, list):
        return [
            _plain(one)
            for one in node
            if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        ]
    return repr(node)


class OverSeeds:
    """Runs one test's function over seeds: for its verdict, or for its record.

    Args:
        path: File of the test.
        name: Name of the test, with its parameters.
        sweep: Seeds to sweep; 0 to test.
        shift: What seeds are shifted by.
    """

    def __init__(self, path: Path, name: str, sweep: int = 0, shift: int = 0) -> None:
        self.test, self.sweep, self.shift = path, sweep, shift
        self.record = Record(path.with_suffix(".json"), name)

    def __call__(
        self, train: Callable[[int], float], *, chance: float | Callable[[], float]
    ) -> None:
        """Assert that the median over seeds reaches the mark.

        Args:
            train: Trains with a seed and returns what fresh episodes pay.
            chance: What is paid without learning, or a function that finds out.
        """
        if self.sweep:
            self._write(train, chance)
            return
        if not self.record.entry:
            raise LookupError(
                f"{self.record.path.name} knows no sweep of {self.record.name}; run it with"
                " --sweep 10."
            )
        found = []
        for seed in range(self.shift, self.shift + self.record.entry["seeds"]):
            found.append(float(train(seed)))
            print(f"seed {seed}: {found[-1]:.2f}")
        assert self.record.reached(found), (
            f"returns {found}, median {statistics.median(found)}; {self.record.entry}"
        )

    def _write(self, train: Callable[[int], float], chance: float | Callable[[], float]) -> None:
        settings = fingerprint(self.test, self.record.name.partition("[")[0])
        known = self.record.entry if self.record.entry.get("settings") == settings else {}
        paid, seconds = known.get("chance", chance() if callable(chance) else chance), []
        first = FIRST + self.shift
        for seed in range(first, first + self.sweep):
            if str(seed) in known.get("returns", {}):
                continue
            begin = time.process_time()
            found = round(float(train(seed)), 3)
            seconds.append(time.process_time() - begin)
            self.record.add(
                {str(seed): found},
                settings=settings,
                chance=paid,
                date=str(datetime.date.today()),
                versions=_versions(),
                seconds=round(statistics.median(seconds), 1),
            )


def _versions() -> Mapping[str, str]:
    found = {}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


# --- pytest ---------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sweep`."""
    parser.addoption(
        "--sweep",
        type=int,
        default=0,
        help="learning tests: run so many seeds and write their records",
    )


@pytest.fixture
def over_seeds(request: pytest.FixtureRequest) -> OverSeeds:
    """What a test of learning hands its training function to."""
    sweep, shift = request.config.getoption("--sweep"), int(os.environ.get("SEED") or 0)
    return OverSeeds(request.path, request.node.name, sweep, shift)


# --- playing --------------------------------------------------------------------------------------


def play(
    policy: Any, make: Callable[[], Any], episodes: int = 100, *, explore: bool = False
) -> float:
    """Return the mean return of fresh episodes; each of 20 environments plays its
    share to the end.
    """
    import gymnasium as gym

    envs = gym.vector.SyncVectorEnv([make] * 20, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    stepper, running, share = policy.stepper(20), np.zeros(20), np.full(20, episodes // 20)
    returns: list[float] = []
    obs, _ = envs.reset(seed=10_000)
    done = reward = None
    while share.any():
        step = stepper.step(obs, done=done, prev_reward=reward, explore=explore)
        obs, reward, terminated, truncated, _ = envs.step(step.action)
        running += reward
        done = terminated | truncated
        for i in np.flatnonzero(done):
            if share[i]:
                share[i] -= 1
                returns.append(float(running[i]))
            running[i] = 0
    envs.close()
    return float(np.mean(returns))


def random_play(make: Callable[[], Any], episodes: int = 100) -> float:
    """Return the mean return of random actions, among those that an action mask allows."""
    env, total = make(), 0.0
    env.action_space.seed(0)
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        over = False
        while not over:
            mask = obs.get("action_mask") if isinstance(obs, dict) else None
            mask = None if mask is None else np.asarray(mask, np.int8)
            obs, reward, terminated, truncated, _ = env.step(env.action_space.sample(mask))
            total, over = total + float(reward), terminated or truncated
    env.close()
    return round(total / episodes, 3)
