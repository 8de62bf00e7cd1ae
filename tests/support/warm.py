"""Scripts in processes of their own, forked from one that has imported the frameworks.

Importing PyTorch and TensorFlow takes longer than most scripts of the tests. What is imported
beforehand is third parties' alone: the script imports everything of ours itself.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

#: What is imported beforehand where it is installed; without frameworks, for tests of what imports
#: none.
LIGHT = ("numpy", "gymnasium", "gymnasium.vector", "msgspec", "pluggy", "rich.table", "typer")
#: And with them; triton stands before TensorFlow, or the process ends.
WARM = (
    "triton",
    *LIGHT,
    "tensorflow",
    "torch",
    "torch._dynamo",
    "networkx",
    "torch.export",
    "torch.onnx._internal.exporter._core",
    "onnxscript",
    "onnxruntime",
    "matplotlib.pyplot",
    "safetensors.numpy",
    "stable_baselines3",
    "sb3_contrib",
)

_lane = threading.local()
_servers: list[subprocess.Popen[str]] = []


@atexit.register
def _close() -> None:
    for server in _servers:
        _pipe(server.stdin).close()
        server.wait()
        _pipe(server.stdout).close()


def run(
    arguments: Sequence[str],
    cwd: str | os.PathLike[str],
    environ: Mapping[str, str] | None = None,
    python: Sequence[str] = (sys.executable,),
    frameworks: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` (`-W` options; a script, `-m` and a module, or `-c` and code) in a
    forked process.

    Each thread that calls this has a process of its own to fork from; it ends with this one.

    Args:
        arguments: What follows `python` on a command line.
        cwd: The process's folder.
        environ: Environment variables to be added.
        python: The interpreter with its options; the process is forked from one that was begun like
            this.
        frameworks: Whether that one has imported the frameworks.
    """
    servers = vars(_lane).setdefault("servers", {})
    kind = (*python, frameworks)
    server = servers.get(kind)
    if server is None or server.poll() is not None:
        start = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        server = servers[kind] = subprocess.Popen(
            [*python, __file__, *(WARM if frameworks else LIGHT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=start,
        )
        _servers.append(server)
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "environ": {**os.environ, **(environ or {})},
            "folder": folder,
        }
        _pipe(server.stdin).write(json.dumps(job) + "\n")
        _pipe(server.stdin).flush()
        code = int(_pipe(server.stdout).readline())
        out, err = (Path(folder, name).read_text(encoding="utf-8") for name in ("out", "err"))
    return subprocess.CompletedProcess(list(arguments), code, out, err)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _serve() -> None:
    import gc
    from contextlib import suppress
    from importlib import import_module

    for name in sys.argv[1:]:
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()  # the garbage collectors of the forked processes pass over all of it

    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            _become(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(job: dict) -> None:
    """Be the process that runs the script, to its end."""
    import runpy
    import traceback
    import warnings
    from types import ModuleType

    os.environ.clear()
    os.environ.update(job["environ"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(f"{job['folder']}/{name}", os.O_WRONLY | os.O_CREAT), number)
    sys.modules.pop("__main__")
    what, *arguments = job["arguments"]
    while what == "-W":
        warnings._processoptions([arguments[0]])
        _, what, *arguments = arguments
    code = 0
    try:
        os.chdir(job["cwd"])
        if what == "-c":
            sys.argv, sys.path[0] = ["-c", *arguments[1:]], ""
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(arguments[0], vars(main))
        elif what == "-m":
            sys.argv, sys.path[0] = arguments, os.getcwd()
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = [what, *arguments], str(Path(what).parent)
            runpy.run_path(what, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
