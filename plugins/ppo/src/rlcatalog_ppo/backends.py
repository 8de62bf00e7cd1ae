"""The modules with the algorithms' part in a framework: `torch.py` and `tf.py`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import default_framework, framework_name


def set_threads(framework: str | None, count: int) -> None:
    """Set how many threads one operation of a framework may use; before its first operation."""
    backend(default_framework() if framework is None else framework_name(framework)).set_threads(count)


def backend(framework: str) -> Any:
    """Return the module with the algorithms' part in a framework.

    Raises:
        NotServedError: There is none.
    """
    if find_spec(f"rlcatalog_ppo.{framework}") is None:
        raise NotServedError(f"rlcatalog-ppo has no code for framework={framework!r}; it serves: torch, tf.")
    return import_module(f"rlcatalog_ppo.{framework}")
