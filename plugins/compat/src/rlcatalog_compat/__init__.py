"""RLlib's module tree in rlcatalog: `ray.rllib.models.torch.misc` is
`rlcatalog_compat.rllib.models.torch.misc`.

`names.toml` maps every RLlib name to its rlcatalog object. Importing this package does not import a
framework.
Use `import rlcatalog_compat as ray` in place of `import ray`. There is no cluster, so `init` and
`shutdown` do nothing. `load_rllib_weights` loads weights trained by RLlib.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from rlcatalog_compat import mirror

mirror.install()


def init(*args: Any, **kwargs: Any) -> None:
    """Do nothing, because everything runs in this process."""


def shutdown(*args: Any, **kwargs: Any) -> None:
    """Do nothing, because `init` starts nothing."""


def is_initialized() -> bool:
    """Return True, because there is nothing to start."""
    return True


def __getattr__(name: str) -> Any:
    if name == "load_rllib_weights":
        return importlib.import_module("rlcatalog_compat.weights").load_rllib_weights
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    return mirror.lookup(__name__, name)
