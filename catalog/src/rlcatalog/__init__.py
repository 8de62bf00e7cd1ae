"""rlcatalog: a plugin-oriented model catalog for reinforcement learning.

One lookup turns an observation space, an action space, a model config and a framework into
parts that fit together: preprocessor, filter, model and action distribution. Every name in
`__init__.pyi` is imported on first use, which keeps `import rlcatalog` fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lazy_loader

from rlcatalog import plugin_access, provided

_import_name, _, _kernel_names = lazy_loader.attach_stub(__name__, __file__)
#: Names that other packages bring; see `rlcatalog.provided`.
_NAMES_OF_PACKAGES = ("Actor", "Policy", "build", "load", "load_part")
__all__ = sorted({*_kernel_names, *_NAMES_OF_PACKAGES, "MODEL_DEFAULTS"})


def __getattr__(name: str) -> Any:
    if name == "MODEL_DEFAULTS":  # new at each access: a caller may change it and pass it back
        return _import_name("default_catalog")().schema.defaults()
    if name in _NAMES_OF_PACKAGES:
        return getattr(provided, name)  # our own module, which imports the package
    if name in __all__:
        return _import_name(name)
    raise AttributeError(f"module 'rlcatalog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class _Plugins:
    """The room `plugins` for the rooms below it. It is imported at the first question, because it
    imports those rooms, and because `import rlcatalog` is to be fast.
    """

    def load_indexed(self, kind: str) -> Iterable[Any]:
        from rlcatalog.plugins import loader

        return loader.load_indexed(kind)

    def condition_of(self, distribution: str) -> str | None:
        from rlcatalog.plugins import loader

        return loader.condition_of(distribution)

    def install_hint(self, *requirements: str) -> str:
        from rlcatalog.plugins import install_hints

        return install_hints.install_hint(*requirements)

    def how_to_get(self, distribution: str) -> str:
        from rlcatalog.plugins import install_hints

        return install_hints.how_to_get(distribution)


plugin_access.plugins = _Plugins()
