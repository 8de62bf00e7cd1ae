"""Count of how often an environment runner's process died, across Ray's restarts.

When a runner's process dies, Ray restarts it, by default up to a thousand times, and the driver
waits. If a runner always died in its constructor or its first steps, the run would neither end nor
report an error.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import ray

from rlcatalog.errors import NotServedError, WorkerError
from rlcatalog_rllib.private_api import delete_value, error_log, get_value, put_value
from rlcatalog_rllib.recipe import this_machine

#: Number of a runner's processes that may die in a row before any of them has collected data.
LIMIT = 3
#: Patterns of the cause of death in a log: a signal or a Python error.
_CAUSES = (
    r"\*\*\* (SIG[A-Z]+) received",
    r"^Fatal Python error: (.+)$",
    r"^(\w*(?:\.\w+)*(?:Error|Exception)\b.*)$",
)


def record_start() -> WorkerError | None:
    """Record that this process started as a runner; return an error if too many earlier processes
    died.

    The record is in Ray's key-value store, under the actor's id, which does not change when Ray
    restarts it. Without a store, nothing is counted, because an error from here would end the
    process, and Ray would restart it again and again.
    """
    try:
        starts = json.loads(get_value(_record_key()) or "[]")
    except NotServedError:
        return None
    if len(starts) >= LIMIT:
        last = starts[-1]
        return WorkerError(
            f"An environment runner's process died {len(starts)} times in a row before it"
            f" collected any data. Cause of the last death: {_cause(Path(last['log']))}. The log,"
            f" on {last['machine']}: {last['log']}. Fix the cause. To debug it, set"
            " config.env_runners(num_env_runners=0): it then happens in the driver's process."
        )
    starts.append({"machine": this_machine(), "log": error_log()})
    put_value(_record_key(), json.dumps(starts).encode())
    return None


def forget_starts() -> None:
    """Clear the record; this is called once the process has collected data."""
    with suppress(NotServedError):  # nothing was counted
        delete_value(_record_key())


def _record_key() -> bytes:
    return f"rlcatalog_rllib:starts:{ray.get_runtime_context().get_actor_id()}".encode()


def _cause(log: Path) -> str:
    """Return the cause of death from a process's log."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:  # on another node
        return "see the log"
    for pattern in _CAUSES:
        causes = re.findall(pattern, text, re.MULTILINE)
        if causes:
            return str(causes[-1])
    return "none in the log, as after SIGKILL (out of memory?) or os._exit"
