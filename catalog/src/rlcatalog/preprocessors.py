"""The installed preprocessors' classes by name, as in RLlib's module of this name.

`from rlcatalog.preprocessors import DictFlatteningPreprocessor, Preprocessor, get_preprocessor`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcatalog.catalog import default_catalog
from rlcatalog.observations import Preprocessor as Preprocessor
from rlcatalog.plugins import Request, part_class, part_classes
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    import gymnasium


def get_preprocessor(space: gymnasium.Space[Any], include_multi_binary: bool = False) -> type:
    """Return the class of the preprocessor for a space.

    Args:
        space: Any Gymnasium space.
        include_multi_binary: Accepted for RLlib's signature; MultiBinary always has its preprocessor.

    Raises:
        UnsupportedSpaceError: No installed preprocessor takes it.
    """
    catalog = default_catalog()
    request = Request(SpaceInfo.read(space), config=catalog.parse_config(None).read_only())
    component = catalog.slots.preprocessor(request, None).component
    assert component is not None
    cls: type = component.load("numpy")
    return cls


def __getattr__(name: str) -> Any:
    return part_class(__name__, name, "numpy", "preprocessor")


def __dir__() -> list[str]:
    return [*part_classes("numpy", "preprocessor"), "Preprocessor", "get_preprocessor"]
