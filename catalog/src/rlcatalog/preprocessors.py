"""The installed preprocessors' classes by name, as in RLlib's module of this name.

`from rlcatalog.preprocessors import DictFlatteningPreprocessor, Preprocessor, get_preprocessor`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcatalog.exports import lookup, names

if TYPE_CHECKING:
    import gymnasium

_OWN = {"Preprocessor": "rlcatalog.preprocessing"}


def get_preprocessor(space: gymnasium.Space[Any], include_multi_binary: bool = False) -> type:
    """Return the class of the preprocessor for a space.

    Args:
        space: Any Gymnasium space.
        include_multi_binary: Accepted for RLlib's signature; MultiBinary always has its preprocessor.

    Raises:
        UnsupportedSpaceError: No installed preprocessor takes it.
    """
    from rlcatalog.catalog import default_catalog
    from rlcatalog.request import Request
    from rlcatalog.spaceinfo import SpaceInfo

    catalog = default_catalog()
    request = Request(SpaceInfo.read(space), config=catalog.parse_config(None).values)
    component = catalog.slots.preprocessor(request, None).component
    assert component is not None
    found: type = component.load("numpy")
    return found


def __getattr__(name: str) -> Any:
    return lookup(__name__, name, _OWN, "numpy", "preprocessor")


def __dir__() -> list[str]:
    return [*names(_OWN, "numpy", "preprocessor"), "get_preprocessor"]
