"""Attacks on saved policies that want a process of their own:
`python saves_child.py ATTACK FOLDER [ARGUMENT…]`.

Prints one line of JSON. Processes are forked, so that the framework is imported once.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import crafted_saves
import numpy as np
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import CatalogError, SavedPolicyError

VECTOR, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
CALLS = ("open", "write", "fsync", "replace", "unlink", "listdir", "mkdir")


def build(hiddens: list[int], framework: str = "torch", **config: Any) -> Any:
    """Build a policy with a filter, so that there are two files of arrays."""
    policy = rlcatalog.build(
        VECTOR,
        TWO,
        {"fcnet_hiddens": hiddens, "observation_filter": "MeanStdFilter", **config},
        framework,
    )
    policy.preprocess([VECTOR.sample() for _ in range(3)], update=True)
    return policy


def print_of(policy: Any) -> str:
    """Return what tells policies apart: all weights and statistics."""
    arrays = {**policy.model.get_weights(), **policy.filter.get_state()}
    return hashlib.sha256(
        b"".join(name.encode() + array.tobytes() for name, array in sorted(arrays.items()))
    ).hexdigest()


def counted(at: int, then: Any, names: Sequence[str] = CALLS) -> None:
    """Let `then(name, function, args)` take the place of the system call number `at`, and writes be
    short ones.
    """
    calls = iter(range(10**9))

    def watched(name: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "write":
                args = (args[0], args[1][:700])
            return then(name, real, args) if next(calls) == at else real(*args, **kwargs)

        return call

    for name in names:
        setattr(os, name, watched(name, getattr(os, name)))


def kill(name: str, real: Any, args: Any) -> None:
    """Do half of a write, then end as if the machine had lost its power."""
    if name == "write":
        real(args[0], args[1][: len(args[1]) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(work: Any) -> int:
    """Run a function in a forked process and return how it ended: 0, or minus the signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at_calls(folder: Path, every: int) -> dict[str, Any]:
    """Kill a save at one of so many system calls, over a former save and into an empty folder."""
    former, later = build([40]), build([30, 20])
    prints, found = {print_of(former): "former", print_of(later): "later"}, []
    for there in (True, False):
        for at in range(0, 1000, every):
            shutil.rmtree(folder, ignore_errors=True)
            if there:
                former.save(folder)

            def work(at: int = at) -> None:
                counted(at, kill)
                later.save(folder)

            ended = in_child(work)
            try:
                loaded = prints.get(print_of(rlcatalog.load(folder)), "another")
            except SavedPolicyError as error:
                loaded = (
                    "none" if not there and "not a saved policy" in str(error) else f"lost: {error}"
                )
            later.save(folder)  # whatever was left behind is in nobody's way
            whole = (
                print_of(rlcatalog.load(folder)) == print_of(later) and len(os.listdir(folder)) == 3
            )
            found.append([there, at, ended, loaded, whole])
            if ended == 0:
                break
    return {"found": found}


def killed_at_random(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Kill a process that saves two policies in turn, at random moments."""
    policies, rng = [build([40]), build([30, 20])], random.Random(seed)
    prints, lost = {print_of(policy) for policy in policies}, []
    policies[0].save(folder)
    for moment in range(times):
        pid = os.fork()
        if pid == 0:
            while True:
                for policy in policies:
                    policy.save(folder)
        time.sleep(rng.random() * 0.03)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        try:
            if print_of(rlcatalog.load(folder)) not in prints:
                lost.append([moment, "another"])
        except CatalogError as error:
            lost.append([moment, str(error)])
    return {"lost": lost}


def full_disk(folder: Path) -> dict[str, Any]:
    """Let each system call of a save fail, as where the disk is full."""
    former, later, found = build([40]), build([30, 20]), []
    for at in range(1000):
        shutil.rmtree(folder, ignore_errors=True)
        former.save(folder)
        before = sorted(os.listdir(folder))
        report = folder.parent / "report"

        def work(at: int = at, report: Path = report) -> None:
            def fail(name: str, real: Any, args: Any) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

            counted(at, fail)
            said = "saved"
            try:
                later.save(folder)
            except SavedPolicyError as error:
                said = f"refused: {error}"
            report.write_text(said)

        ended = in_child(work)
        said = report.read_text() if ended == 0 else "raw"
        report.unlink(missing_ok=True)
        want = later if said == "saved" else former
        right = print_of(rlcatalog.load(folder)) == print_of(want)
        clean = said == "saved" or sorted(os.listdir(folder)) == before
        found.append([at, said, right, clean])
        if said == "saved" and at > 60:
            break
    return {"found": found}


def writers_and_reader(folder: Path, times: int) -> dict[str, Any]:
    """Read what two processes write."""
    policies = [build([40]), build([30, 20])]
    prints, wrong, read = {print_of(policy) for policy in policies}, [], 0
    policies[0].save(folder)
    pids = []
    for policy in policies:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for _ in range(times):
                    policy.save(folder)
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    left, ended = set(pids), []
    while left:
        try:
            if print_of(rlcatalog.load(folder)) not in prints:
                wrong.append("another")
        except CatalogError as error:
            wrong.append(str(error))
        read += 1
        for pid in tuple(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.discard(pid)
                ended.append(os.waitstatus_to_exitcode(status))
    return {"wrong": wrong, "read": read, "ended": ended, "files": len(os.listdir(folder))}


def crafted(folder: Path, framework: str, part: int, seed: int) -> dict[str, Any]:
    """Load crafted saves with little more memory than a true one takes; every `part`-th of them."""
    true, work = folder / "true", folder / "crafted"
    build([6, 5], framework).save(true)
    rlcatalog.load(true)  # whatever is imported for it, is imported
    from rlcatalog_policy import Manifest

    keys = rlcatalog.default_catalog().schema.keys
    all_of_them = crafted_saves.crafts(
        list(Manifest.__struct_encode_fields__[:-1]), list(keys), seed
    )
    random.Random(seed).shuffle(all_of_them)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    raw: list[Any] = []
    slow: list[Any] = []
    counts = {"refused": 0, "loaded": 0}

    def late(*_: Any) -> None:
        raise TimeoutError("it hangs")

    signal.signal(signal.SIGALRM, late)
    for name, craft in all_of_them[::part]:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(true, work)
        craft(work)
        start = time.process_time()
        signal.alarm(20)
        try:
            rlcatalog.load(work)
            counts["loaded"] += 1
        except CatalogError as error:
            counts["refused"] += 1
            if "it hangs" in str(error):
                raw.append([name, str(error)])
            if "Memory" in str(error) or "allocate" in str(error):
                slow.append([name, str(error)[:200]])
        except BaseException as error:
            raw.append([name, f"{type(error).__name__}: {error}"[:200]])
        signal.alarm(0)
        if (took := time.process_time() - start) > 5:
            slow.append([name, f"{took:.1f} s"])
    return {"raw": raw, "unbounded": slow, **counts}


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    attack, where, *arguments = sys.argv[1:]
    typed = [int(value) if value.isdigit() else value for value in arguments]
    Path(where).mkdir(parents=True, exist_ok=True)
    print(json.dumps(globals()[attack](Path(where), *typed)))
