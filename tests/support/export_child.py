"""A process in which PyTorch and TensorFlow cannot be imported acts from exported files.

`python export_child.py IN OUT`: IN is a pickle of case → file and the inputs of each step; OUT gets
case → what the actor did, or the error. Files of tests are not strangers': pickle will do.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from importlib import import_module
from pathlib import Path


class _Refused:
    """Refuses to import a framework."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "tensorflow", "keras"):
            raise ImportError(f"{name} is not to be imported here")


def acted(case):
    """Return what an actor does in each step of a case."""
    import rlcatalog

    if case["prepared"]:
        import_module(case["prepared"]).prepare()
    actor = rlcatalog.Actor(case["path"], **case["spaces"])
    if "draws" in case:
        batch, count = case["draws"]
        actor.seed(0)
        return [actor.act(batch).raw_action for _ in range(count)]
    found, state = [], None
    for step in case["steps"]:
        actor.draw = lambda rows, noise=step["noise"]: noise
        if step["begun"] is not None:
            state = actor.restart(state, step["begun"])
        acted = actor.act(
            step["obs"],
            state,
            prev_reward=step["reward"],
            mask=step["mask"],
            explore=step["noise"] is not None,
        )
        state = acted.state
        found.append(tuple(acted)[:5])
    return found


def main(given, out):
    sys.meta_path.insert(0, _Refused())
    results = {}
    for name, case in pickle.loads(Path(given).read_bytes()).items():
        try:
            results[name] = acted(case)
        except Exception:
            results[name] = traceback.format_exc()
    results["imported"] = sorted({"torch", "tensorflow", "keras"} & set(sys.modules))
    Path(out).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
