"""The setup in which a run was trained: versions, code revision and machine.

Versions are found without importing modules, and no repository hooks are run. The user's and the
machine's names are not recorded.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcatalog import __version__, default_catalog
from rlcatalog.frameworks import frameworks
from rlcatalog.internals import installed_version

#: Timeout for git, in seconds.
PATIENCE = 10
#: A git command without locks and without programs that a repository's settings could run.
_GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
)


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Python, the kernel, the plugins and other imported modules, by
    distribution or module.

    Args:
        packages: Modules to include besides NumPy, Gymnasium and the frameworks, such as an
            engine's.
    """
    versions_by_name = {"python": platform.python_version(), "rlcatalog": __version__}
    for record in default_catalog().plugins:
        if record.status == "loaded":
            versions_by_name[record.distribution] = record.version
    framework_modules = [framework.module for framework in frameworks().values()]
    for module in ("numpy", "gymnasium", *framework_modules, *packages):
        version = _version(module)
        if version is not None:
            versions_by_name[module] = version
    return versions_by_name


def _version(name: str) -> str | None:
    """Return a module's version, or None if the module is not imported."""
    module = sys.modules.get(name)
    if module is None:
        return None
    version = getattr(module, "__version__", None)  # of another package
    if version is None:
        version = installed_version(name)
    return str(version) if version else "unknown"


def revision() -> dict[str, Any] | None:
    """Return the current directory's git revision and whether tracked files differ from it; None
    outside git.
    """
    head = _git("rev-parse", "--verify", "HEAD")
    if head is None:
        return None
    changes = _git("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    is_dirty = None if changes is None else bool(changes.strip())
    return {"revision": head.strip(), "dirty": is_dirty}


def _git(*arguments: str) -> str | None:
    """Return what git prints, or None if it fails."""
    try:
        process = subprocess.run(
            [*_GIT, *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return process.stdout if process.returncode == 0 else None


def hardware() -> dict[str, Any]:
    """Return the machine's properties: system, architecture, processor, cores, memory in bytes, and
    accelerators.
    """
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory": _memory(),
        "gpus": _gpus(),
    }


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    get_affinity = getattr(os, "sched_getaffinity", None)  # Python's, on Linux only
    if get_affinity is None:
        return os.cpu_count() or 1
    return len(get_affinity(0))


def _processor() -> str | None:
    """Return the processor's name."""
    with suppress(OSError):  # systems other than Linux have no such file
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        with suppress(OSError, subprocess.SubprocessError):
            process = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=True
            )
            return process.stdout.strip()
    return platform.processor() or None


def _memory() -> int | None:
    """Return the machine's memory in bytes."""
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _gpus() -> list[str]:
    """Return the names of NVIDIA accelerators without initialising them, which would use memory and
    prevent forks.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # PyTorch's; while it is being imported, it has none
    if cuda is not None and cuda.is_initialized():
        return [str(cuda.get_device_name(index)) for index in range(cuda.device_count())]
    models = []
    # NVIDIA's driver describes each accelerator in a file, on Linux.
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                name, _, value = line.partition(":")
                if name == "Model":
                    models.append(value.strip())
    return models
