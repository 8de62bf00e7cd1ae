"""Deaths of the processes of one environment runner, counted across Ray's restarts.

Ray starts a runner's process anew when it dies, a thousand times by default, and the driver waits for it. A runner that
dies whenever it is made, or with its first steps, would never end the run, and never be heard of.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from rlcatalog.errors import WorkerError
from rlcatalog_rllib.recipe import this_machine

#: How many processes of one runner may die in a row before one has gathered anything.
LIMIT = 3
#: How a log names what ended its process: a signal, or an error in Python.
_CAUSES = (r"\*\*\* (SIG[A-Z]+) received", r"^Fatal Python error: (.+)$", r"^(\w*(?:\.\w+)*(?:Error|Exception)\b.*)$")


def record_start() -> WorkerError | None:
    """Record that this process begins as a runner; return an error where too many before it have died.

    The record is Ray's key-value store, under the actor's id, which a restart keeps.
    """
    starts = json.loads(_internal_kv_get(_key()) or "[]")
    if len(starts) >= LIMIT:
        last = starts[-1]
        return WorkerError(
            f"An environment runner's process died {len(starts)} times in a row before it had gathered anything."
            f" Cause of the last death: {_cause(Path(last['log']))}. Its log, on {last['machine']}: {last['log']}."
            " Mend what ends it there. With config.env_runners(num_env_runners=0) it happens in the driver's own"
            " process, where a debugger can look."
        )
    log = ray._private.worker.global_worker.get_err_file_path()
    starts.append({"machine": this_machine(), "log": log})
    _internal_kv_put(_key(), json.dumps(starts).encode())
    return None


def forget_starts() -> None:
    """Forget the record: this process has gathered something."""
    _internal_kv_del(_key())


def _key() -> bytes:
    return f"rlcatalog_rllib:starts:{ray.get_runtime_context().get_actor_id()}".encode()


def _cause(log: Path) -> str:
    """Return what a log says of the end of its process."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:  # on another node
        return "see the log"
    for pattern in _CAUSES:
        if causes := re.findall(pattern, text, re.MULTILINE):
            return str(causes[-1])
    return "none in the log, as after SIGKILL (out of memory?) or os._exit"
