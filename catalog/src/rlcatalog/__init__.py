"""rlcatalog: a plugin-oriented model catalog for reinforcement learning.

One lookup turns an observation space, an action space, a model config and a framework into parts that fit together:
preprocessor, filter, model and action distribution. Every name in `__init__.pyi` is imported at its first use, so that
`import rlcatalog` costs next to nothing.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

from rlcatalog import provided

_lazy, _, _names = lazy_loader.attach_stub(__name__, __file__)
#: What users find here and other packages bring: name → module.
_BROUGHT = {**dict.fromkeys(("Policy", "build", "load"), "rlcatalog_policy"), "Actor": "rlcatalog_export"}
__all__ = sorted({*_names, *_BROUGHT, "MODEL_DEFAULTS"})


def __getattr__(name: str) -> Any:
    if name == "MODEL_DEFAULTS":  # fresh at each access: a caller may fill it in and hand it back
        return provided.default_catalog().schema.defaults()
    if name not in __all__:
        raise AttributeError(f"module 'rlcatalog' has no attribute {name!r}")
    return provided.bring(_BROUGHT[name], name, f"rlcatalog.{name}") if name in _BROUGHT else _lazy(name)


def __dir__() -> list[str]:
    return __all__
