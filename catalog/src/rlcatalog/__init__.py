"""rlcatalog: a plugin-oriented model catalog for reinforcement learning.

One lookup turns an observation space, an action space, a model config and a framework into
parts that fit together: preprocessor, filter, model and action distribution. Every name in
`__init__.pyi` is imported on first use, which keeps `import rlcatalog` fast.
"""

from __future__ import annotations

import importlib
from typing import Any

import lazy_loader

from rlcatalog import provided

_lazy, _, _names = lazy_loader.attach_stub(__name__, __file__)
#: Names that other packages provide: name → module.
_BROUGHT = {
    **dict.fromkeys(("Policy", "build", "load"), "rlcatalog_policy"),
    "Actor": "rlcatalog_export",
}
__all__ = sorted({*_names, *_BROUGHT, "MODEL_DEFAULTS"})


def __getattr__(name: str) -> Any:
    if name == "MODEL_DEFAULTS":  # new at each access: a caller may change it and pass it back
        return provided.default_catalog().schema.defaults()
    if name not in __all__:
        raise AttributeError(f"module 'rlcatalog' has no attribute {name!r}")
    return _bring(_BROUGHT[name], name, f"rlcatalog.{name}") if name in _BROUGHT else _lazy(name)


def __dir__() -> list[str]:
    return __all__


def _bring(package: str, name: str, asked: str) -> Any:
    """Return an attribute that another package provides.

    Raises:
        MissingPluginError: The package is not installed.
    """
    try:
        return getattr(importlib.import_module(package), name)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        from rlcatalog.errors import MissingPluginError
        from rlcatalog.plugins import install_hints

        raise MissingPluginError(
            f"{asked} {install_hints.how_to_get(str(error.name).replace('_', '-'))}"
        ) from None


# --- objects for the rooms below ------------------------------------------------------------------

provided.default_catalog = lambda: importlib.import_module("rlcatalog.catalog").default_catalog()
provided.framework_names = lambda: importlib.import_module(
    "rlcatalog.public_index"
).frameworks()
provided.install_hint = lambda *requirements: importlib.import_module(
    "rlcatalog.plugins.install_hints"
).install_hint(*requirements)
provided.condition_of = lambda distribution: importlib.import_module(
    "rlcatalog.plugins.loader"
).condition_of(distribution)
provided.index_declarations = lambda kind: importlib.import_module(
    "rlcatalog.plugins.loader"
).load_indexed(kind)
_PICTURE = "The picture of an explanation"
provided.pipeline_svg = lambda data: _bring("rlcatalog_cli.picture", "pipeline_svg", _PICTURE)(data)
provided.space_to_json = lambda space: _bring(
    "rlcatalog_policy", "space_to_json", "A space as plain data"
)(space)
provided.space_from_json = lambda data: _bring(
    "rlcatalog_policy", "space_from_json", "A space from plain data"
)(data)
