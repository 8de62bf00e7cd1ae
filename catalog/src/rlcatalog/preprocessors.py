"""The installed preprocessors' classes by name, as in RLlib's module of the same name.

`from rlcatalog.preprocessors import DictFlatteningPreprocessor, Preprocessor, get_preprocessor`
"""

from __future__ import annotations

from typing import Any

from rlcatalog.catalog.model_catalog import ModelCatalog
from rlcatalog.observations import Preprocessor as Preprocessor
from rlcatalog.plugins import part_class, part_classes
from rlcatalog.spaces.info import Space


def get_preprocessor(space: Space, include_multi_binary: bool = False) -> type:
    """Return the preprocessor class for a space.

    Args:
        space: Any Gymnasium space.
        include_multi_binary: Accepted for RLlib's signature; MultiBinary always has a preprocessor.

    Raises:
        UnsupportedSpaceError: No installed preprocessor supports the space.
    """
    preprocessor = ModelCatalog.get_preprocessor_for_space(
        space, include_multi_binary=include_multi_binary
    )
    return type(preprocessor)


def __getattr__(name: str) -> Any:
    return part_class(__name__, name, "numpy", "preprocessor")


def __dir__() -> list[str]:
    return [*part_classes("numpy", "preprocessor"), "Preprocessor", "get_preprocessor"]
