"""Attacks on run folders that need a separate process: `python runs_child.py FOLDER ATTACKS`.

The attacks are JSON, a list of `[name, argument, …]`; so is the line that is printed last, with
what each reports. They share one trained run. Each crafted folder is opened in a forked process, so
that the framework is imported once and what ends or holds up a process is seen.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from overheads import keep_table_of_operations
from saves_child import counted, in_child, kill
from sockets import make_socket

import rlcatalog
from rlcatalog.errors import CatalogError
from rlcatalog_cli import main
from rlcatalog_policy import RegularFile, TensorFile, checksum_of, to_bytes
from rlcatalog_ppo import PPO
from rlcatalog_ppo.checkpoints import read

STEPS = 64
SMALL = [
    "--set",
    "num_envs=2",
    "--set",
    "rollout_length=16",
    "--set",
    "minibatch_size=16",
    "--set",
    "num_epochs=1",
    "--model",
    "fcnet_hiddens=[4]",
    "--quiet",
]
REMEMBERING = [
    "--model",
    "use_lstm=true",
    "--model",
    "lstm_cell_size=3",
    "--model",
    "max_seq_len=4",
    "--model",
    "observation_filter=MeanStdFilter",
]
#: Seconds that a process may take, and bytes of address space beside what it has.
PATIENCE, ROOM = 200, 4 << 30
NONSENSE = [
    None,
    True,
    -1,
    0,
    0.5,
    10**9,
    10**30,
    1e308,
    "",
    "x",
    "evil_module:x",
    [],
    [[]],
    [0] * 1000,
    {},
    {"a": 1},
    {"$float": "nan"},
    {"$float": "x"},
    {"$array": "nowhere"},
    {"$tuple": []},
    {"$bytes": "eA=="},
    2**63,
]


def train(folder: Path, framework: str = "torch") -> Path:
    """Train a run with everything in its folder that a run may leave there, unless there is one;
    return the folder.
    """
    if folder.exists():
        return folder
    try:
        main(
            [
                "train",
                "CartPole-v1",
                "--steps",
                str(STEPS),
                "--out",
                str(folder),
                "--framework",
                framework,
                *SMALL,
                *REMEMBERING,
                "--checkpoint-every",
                "32",
                "--eval-every",
                "32",
                "--eval-episodes",
                "1",
                "--log",
                "csv,tensorboard",
            ]
        )
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{folder}: not trained") from end
    return folder


# --- what becomes of it ---------------------------------------------------------------------------


class Late(BaseException):
    """A function takes too long."""


def outcome_here(work: Callable[[], str | None]) -> str:
    """Run a function; return what it returned, its typed error, or what is wrong with it."""

    def late(*_: Any) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    try:
        return work() or "accepted"
    except CatalogError as error:
        return f"refused: {error}"
    except SystemExit as end:
        return f"ended: {end.code}"
    except Late:
        return "hung"
    except BaseException as error:
        return f"raw: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def outcome(work: Callable[[], str | None], said: Path) -> str:
    """Return the outcome of a function in a process of its own, with bounded memory; what ends that
    is seen.

    Args:
        work: The function. TensorFlow does not work in forked processes.
        said: Where the process may leave a text.
    """

    def bounded() -> None:
        # Of code that no signal's handler interrupts.
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        here = (
            int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
            * resource.getpagesize()
        )
        resource.setrlimit(resource.RLIMIT_AS, (here + ROOM, here + ROOM))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        said.write_text(outcome_here(work), encoding="utf-8", errors="replace")

    said.unlink(missing_ok=True)
    ended = in_child(bounded)
    return said.read_text(encoding="utf-8") if said.exists() and not ended else f"killed: {ended}"


def counts(outcomes: list[tuple[str, str]]) -> dict[str, Any]:
    """Return how often each outcome was seen, and all that should not be seen."""
    number = Counter(text.partition(":")[0] for _, text in outcomes)
    wrong = [each for each in outcomes if each[1].startswith(("raw", "hung", "killed", "silent"))]
    return {"kinds": number, "wrong": wrong}


def seen(folder: Path) -> dict[str, Any]:
    """Return what a folder holds: contents, and where links point at."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None
        )
    return found


# --- crafted checkpoints --------------------------------------------------------------------------


class Checkpoint:
    """A checkpoint that can be written with something else in it, signed as a true one.

    Args:
        folder: The true one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        [(name, digest)] = self.about["files"].items()
        self.arrays = TensorFile(RegularFile(folder / name)).read(digest)

    def write(self, target: Path, about: dict[str, Any], content: bytes) -> None:
        """Write a checkpoint that holds something else."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target)
        [name] = self.about["files"]
        (target / name).unlink()
        digest = hashlib.sha256(content).hexdigest()
        (target / f"training-{digest[:16]}.safetensors").write_bytes(content)
        about = {**about, "files": {f"training-{digest[:16]}.safetensors": digest}}
        about["checksum"] = checksum_of(about)
        (target / "training.json").write_text(json.dumps(about), encoding="utf-8")

    def crafted(self, target: Path, rng: random.Random) -> str:
        """Write a checkpoint with one thing in it changed at random; return which."""
        about, arrays = copy.deepcopy(self.about), dict(self.arrays)
        content, what = (
            None,
            rng.choice(["value", "value", "value", "gone", "array", "array", "header", "moved"]),
        )
        place, holder, key = rng.choice(list(places(about["state"])))
        if what == "value":
            value = holder[key] = rng.choice(NONSENSE)
            place = f"{place} = {value!r:.60}"
        elif what == "gone":
            del holder[key]
        elif what == "moved":
            other, from_holder, from_key = rng.choice(list(places(about["state"])))
            holder[key], place = copy.deepcopy(from_holder[from_key]), f"{place} = {other}"
        elif what == "array":
            place = rng.choice(sorted(arrays))
            arrays[place], how = changed(arrays[place], rng)
            place = f"{place}: {how}"
        else:
            content, place = headers(to_bytes(arrays), rng)
        self.write(target, about, to_bytes(arrays) if content is None else content)
        return f"{what} {place}"


def places(tree: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each place of a structure of JSON, and its holder and key; of long lists, three of
    their places.
    """
    if isinstance(tree, dict):
        items: Any = list(tree.items())
    else:
        items = list(enumerate(tree))[:3] if isinstance(tree, list) else []
    for key, value in items:
        yield f"{place}/{key}", tree, key
        yield from places(value, f"{place}/{key}")


def changed(array: Any, rng: random.Random) -> tuple[Any, str]:
    """Return another array in the place of one, and how it differs."""
    how = rng.choice(
        ["flat", "empty", "longer", "scalar", "float64", "int64", "bool", "uint8", "nan", "largest"]
    )
    if how in ("float64", "int64", "bool", "uint8"):
        with np.errstate(invalid="ignore"):
            return array.astype(how), how
    if how in ("nan", "largest"):
        if array.dtype.kind == "b":
            return ~array, "negated"
        most = np.finfo(array.dtype).max if array.dtype.kind == "f" else np.iinfo(array.dtype).max
        return np.full_like(
            array, np.nan if how == "nan" and array.dtype.kind == "f" else most
        ), how
    shapes = {
        "flat": array.reshape(-1),
        "empty": array[:0] if array.ndim else array.reshape(1)[:0],
        "longer": np.concatenate([array, array]) if array.ndim else np.zeros(2, array.dtype),
        "scalar": np.zeros((), array.dtype),
    }
    return shapes[how], how


def headers(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Return a file of arrays with another header, and which."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    nines = "9" * 4_000
    entries = {
        "long numbers": f'{{"dtype": "F32", "shape": [{",".join([nines] * 250)}], "data_offsets":'
        f" [0, 0]}}",
        "many axes": f'{{"dtype": "F32", "shape": {[0] * 100}, "data_offsets": [0, 0]}}',
        "too large": f'{{"dtype": "F32", "shape": [0, {10**30}], "data_offsets": [0, 0]}}',
        "dtype": '{"dtype": ["F32"], "shape": [], "data_offsets": [0, 0]}',
        "deep": "[" * 5_000 + "]" * 5_000,
        "nothing": "null",
    }
    how = rng.choice(sorted(entries))
    text = f'{json.dumps(header)[:-1]}, "zz": {entries[how]}}}'.encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :], how


def checkpoints(folder: Path, framework: str, times: int, seed: int) -> dict[str, Any]:
    """Restore crafted checkpoints, and train on."""
    run = train(folder / "true", framework)
    true, target, rng = (
        Checkpoint(run / "checkpoints" / f"step-{STEPS:09d}"),
        folder / "crafted",
        random.Random(seed),
    )
    (folder / "path").mkdir()
    (folder / "path" / "evil_module.py").write_text(
        f"open({str(folder / 'imported')!r}, 'w')", encoding="utf-8"
    )
    sys.path.insert(0, str(folder / "path"))

    def work() -> None:
        algorithm = PPO.restore(target)
        algorithm.train()
        algorithm.train()

    found = []
    for _ in range(times):
        what = true.crafted(target, rng)
        found.append(
            (what, outcome_here(work) if framework == "tf" else outcome(work, folder / "said"))
        )
        if (folder / "imported").exists():
            return {"wrong": [(what, "raw: imported a module")], "kinds": {}}
    return counts(found)


def flipped(folder: Path, framework: str, times: int, seed: int) -> dict[str, Any]:
    """Restore checkpoints with a flipped bit: each is refused, or the same."""
    run, rng = train(folder / "true", framework), random.Random(seed)
    true, target = run / "checkpoints" / f"step-{STEPS:09d}", folder / "flipped"
    shutil.copytree(true, target)
    files = sorted(path.relative_to(true) for path in true.rglob("*") if path.is_file())

    def state() -> str:
        algorithm = PPO.restore(target)
        arrays = algorithm.policy.model.get_weights()
        return repr(read(target)[1]) + repr(
            {name: array.tobytes() for name, array in arrays.items()}
        )

    wanted = hashlib.sha256(state().encode()).hexdigest()

    def work() -> str:
        same = hashlib.sha256(state().encode()).hexdigest() == wanted
        return "accepted: the same" if same else "silent: another state"

    found = []
    for _ in range(times):
        name = rng.choice(files)
        data = bytearray((true / name).read_bytes())
        place, bit = rng.randrange(len(data)), rng.randrange(8)
        data[place] ^= 1 << bit
        (target / name).write_bytes(data)
        ended = outcome_here(work) if framework == "tf" else outcome(work, folder / "said")
        found.append((f"{name} bit {8 * place + bit}", ended))
        shutil.copyfile(true / name, target / name)
    return counts(found)


# --- crafted configs, records and metrics ---------------------------------------------------------

TEXTS = [
    "$\\frac$",
    "$",
    "\ud800",
    "\x1b[31m",
    "x" * 10_000,
    "a:b",
    "\n",
    "9" * 400,
    "torch",
    "PG",
    "CartPole-v1",
    "9999-12-31T23:59:59-23:00",
]


def summaries(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Read runs whose config, record or metrics are crafted, in every way that reads them."""
    true, run, rng = train(folder / "true"), folder / "run", random.Random(seed)
    found = []
    for _ in range(times):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(true, run)
        name = rng.choice(["config.json", "run.json", "metrics.jsonl", "progress.csv"])
        lines = (run / name).read_text(encoding="utf-8")
        what = rng.choice(["value", "text", "gone", "bytes"])
        if what == "bytes" or name == "progress.csv":
            data = bytearray(lines.encode())
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.choice(b'\0\n\r",:{}[]9-eN\xff')
            (run / name).write_bytes(data)
        else:
            rows = (
                [json.loads(lines)]
                if name != "metrics.jsonl"
                else list(map(json.loads, lines.splitlines()))
            )
            place, holder, key = rng.choice(list(places(rows)))
            if what == "gone":
                del holder[key]
            else:
                holder[key] = rng.choice(NONSENSE if what == "value" else TEXTS)
                place = f"{place} = {holder[key]!r:.60}"
            what = f"{what} {place}"
            (run / name).write_text(
                "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
            )
        command = rng.choice(["runs", "json", "compare", "evaluate", "resume"])
        ways = commands(run) | {"json": lambda: main(["runs", str(run), "--json"])}
        found.append((f"{command}: {name}: {what}", outcome(ways[command], folder / "said")))
    return counts(found)


# --- links, pipes and the like --------------------------------------------------------------------


def kinds(outside: Path, name: str) -> dict[str, Callable[[Path], None]]:
    """Return what may stand under a name of a run's folder; links lead to the like of
    it outside.
    """
    return {
        "link": lambda path: path.symlink_to(outside / "run" / name),
        "dangling link": lambda path: path.symlink_to(outside / "new"),
        "FIFO": os.mkfifo,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "socket": make_socket,
    }


def names(run: Path) -> list[str]:
    """Return every name of a run's folder: what is there, and what may be."""
    there = {str(path.relative_to(run)) for path in run.rglob("*")}
    absent = {
        "wandb",
        "wandb-id",
        "checkpoint",
        "algorithm.zip",
        "learning_curves.png",
        "run.lock",
        "checkpoints/step-000000096",
    }
    return sorted(there | absent | {"tensorboard/events.out.tfevents.0000000000.00000"})


def commands(run: Path) -> dict[str, Callable[[], Any]]:
    """Return what opens a run's folder."""
    folder = str(run)
    again = [
        "train",
        "CartPole-v1",
        "--steps",
        "32",
        *SMALL,
        "--framework",
        "torch",
        "--log",
        "csv,tensorboard",
    ]
    return {
        "resume": lambda: main(["train", "--resume", folder, "--steps", "96", "--quiet"]),
        "restore": lambda: PPO.restore(run).stop(),
        "load": lambda: rlcatalog.load(run / "policy") and None,
        "runs": lambda: main(["runs", folder]),
        "compare": lambda: main(["compare", folder, "--out", str(run.parent / "picture.png")]),
        "evaluate": lambda: main(["evaluate", folder, "--episodes", "1", "--quiet"]),
        "export": lambda: main(["export", folder, "--out", str(run.parent / "policy.onnx")]),
        "overwrite": lambda: main([*again, "--out", folder, "--overwrite"]),
        "replace": lambda: PPO.restore(run.parent / "outside" / "run").save_checkpoint(run),
    }


def links(folder: Path, every: int, first: int) -> dict[str, Any]:
    """Put links, pipes, sockets and devices under every name of a run's folder, and open it in ways
    that take turns.

    Args:
        folder: An empty folder.
        every: Try one of so many cases.
        first: Which of them.
    """
    outside, run = folder / "outside", folder / "run"
    true = shutil.copytree(train(folder / "true"), outside / "run")
    before, found = seen(outside), []
    places = [(name, kind) for name in names(true) for kind in kinds(outside, name)] * 3
    random.Random(15).shuffle(places)
    ways = itertools.cycle(commands(run))
    cases = [(name, kind, next(ways)) for name, kind in places]
    cases = cases[first::every]
    if len(cases) > 20:  # forked processes need not import what this takes
        keep_table_of_operations()
        rlcatalog.load(true / "policy").export(folder / "first.onnx")
    for name, kind, how in cases:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(true, run)
        path = run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        kinds(outside, name)[kind](path)
        case = f"{how}: {name} is a {kind}"
        found.append((case, outcome(commands(run)[how], folder / "said")))
        if seen(outside) != before:
            found.append((case, "raw: wrote outside"))
            shutil.rmtree(outside)
            shutil.copytree(folder / "true", outside / "run")
            before = seen(outside)
    return counts(found)


# --- ends at any moment ---------------------------------------------------------------------------


def replaced(folder: Path, seed: int, every: int) -> dict[str, Any]:
    """Kill the replacement of a checkpoint at its system calls; the former or the later one is
    there each time.
    """
    config = {
        "num_envs": 1,
        "rollout_length": 8,
        "minibatch_size": 8,
        "num_epochs": 1,
        "seed": seed,
        "model": {"fcnet_hiddens": [4]},
        "framework": "torch",
    }
    algorithm = PPO("CartPole-v1", config)
    former, target, found = folder / "former", folder / "mine" / "checkpoint", []
    algorithm.train()
    algorithm.save_checkpoint(former)
    algorithm.train()
    calls = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rename", "rmdir", "scandir")
    for at in range(0, 10_000, every):
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(former, target)

        def work(at: int = at) -> None:
            counted(at, kill, calls)
            algorithm.save_checkpoint(target)

        ended = in_child(work)
        try:
            steps = read(target)[1]["steps"]
        except CatalogError as error:
            steps = f"lost: {error}"
        algorithm.save_checkpoint(target)  # removes what the killed writer left
        found.append([at, ended, steps, read(target)[1]["steps"], os.listdir(target.parent)])
        if ended == 0:
            break
    return {"found": found}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    ATTACKS = {
        "checkpoints": checkpoints,
        "flipped": flipped,
        "summaries": summaries,
        "links": links,
        "replaced": replaced,
    }
    where, attacks = sys.argv[1:]
    answers = [
        ATTACKS[attack](Path(where), *arguments) for attack, *arguments in json.loads(attacks)
    ]
    sys.stdout.flush()
    print(json.dumps(answers))
