"""Keeping plugins apart from the command line: what they print, and what ends a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

from rlcatalog.catalog import Catalog
from rlcatalog.plugins import Candidate, candidates, disabled_reason, normalize, scan

#: Seconds within which a plugin must have loaded.
PATIENCE = 60
_ALIVE = "rlcatalog: loaded"


@contextmanager
def aside() -> Iterator[None]:
    """Send what plugins print to standard error; standard output is for the answer."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)  # what they print without Python's help, too
    except OSError:  # one of them is closed
        kept = None
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def catalog_of_survivors() -> Catalog:
    """Return the catalog of the plugins that can be loaded without ending the process; the others are failed in it."""
    deaths = {}
    for candidate in candidates(scan()):
        if disabled_reason(candidate, os.environ) is None and (how := _death(candidate)) is not None:
            deaths[candidate.distribution] = how
    blocked = [name for name in os.environ.get("RLCATALOG_DISABLE_PLUGINS", "").split(",") if name.strip()]
    catalog = Catalog(environ={**os.environ, "RLCATALOG_DISABLE_PLUGINS": ",".join([*blocked, *deaths])})
    for record in catalog.plugins:
        if record.distribution in deaths:
            record.status, record.error = "failed", deaths[record.distribution]
    return catalog


def _death(candidate: Candidate) -> str | None:
    """Load a plugin in a process of its own; return how that ended it, or None."""
    command = [sys.executable, "-m", __name__, candidate.distribution, candidate.name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"it was not loaded within {PATIENCE} s"
    if _ALIVE.encode() in done.stdout.splitlines():
        return None
    how = f"exit status {done.returncode}"
    if done.returncode < 0:
        how = f"signal {-done.returncode}"
        with suppress(ValueError):
            how = f"signal {signal.Signals(-done.returncode).name}"
    way = f"keep it out with RLCATALOG_DISABLE_PLUGINS={candidate.distribution}"
    return f"it ended the process that loaded it: {how}; {way}"


def _load(distribution: str, name: str) -> None:
    """Load one plugin and say that the process is still there."""
    import warnings

    warnings.simplefilter("ignore")  # what is wrong with it is said where it is listed
    found = [c.entry_point for c in candidates(scan()) if (c.distribution, c.name) == (distribution, name)]
    Catalog(found, environ={})
    os.write(1, f"\n{_ALIVE}\n".encode())
    os._exit(0)  # threads of its own do not keep it


if __name__ == "__main__":
    _load(normalize(sys.argv[1]), sys.argv[2])
