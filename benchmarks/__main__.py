"""`python -m benchmarks [PART ...]`: print the tables of the parts named, of all when none is."""

from __future__ import annotations

import importlib
import subprocess
import sys

from benchmarks.harness import HEADER
from rlcatalog.frameworks import before_tensorflow

#: Each in a process of its own: the frameworks' thread settings and imports must not meet.
PARTS = (
    "kernel", "preprocessors", "torch", "tf", "models", "models_tf", "dists", "dists_tf", "autoregressive",
    "autoregressive_tf", "ppo", "sb3", "rllib",
)  # fmt: skip

#: Those whose results are no times of calls: they print tables of their own.
OWN_TABLES = ("ppo", "sb3", "rllib")


def main(names: list[str]) -> int:
    """Run the named parts."""
    if len(names) == 1:
        before_tensorflow()  # some parts meet PyTorch's optimisers
        if names[0] not in OWN_TABLES:
            print(HEADER, flush=True)
        importlib.import_module(f"benchmarks.cases_{names[0]}").run()
        return 0
    for name in names or PARTS:
        print(f"\n## {name}\n", flush=True)
        subprocess.run([sys.executable, "-m", "benchmarks", name], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
