"""What the top of the house provides to the rooms below: they are given it and import nothing above themselves.

`rlcatalog/__init__.py` puts the functions in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog
    from rlcatalog.plugins import ActionCodecSpec, FrameworkSpec

#: Return the process's default catalog, made at the first call.
default_catalog: Callable[[], Catalog]
#: Return the declarations of the frameworks in the public index that are installed.
frameworks: Callable[[], Sequence[FrameworkSpec]]
#: Return the names of the frameworks in the public index; the first that is installed is the default.
framework_names: Callable[[], Sequence[str]]
#: Return the declarations of the action codecs in the public index that are installed.
action_codecs: Callable[[], Sequence[ActionCodecSpec]]
#: Return the picture of an explanation, given as plain data, as SVG.
pipeline_svg: Callable[[Mapping[str, Any]], str]
#: Return a space as plain data (None where a part of it has a kind that cannot be written down), and rebuild it.
space_to_json: Callable[[Any], Any]
space_from_json: Callable[[Mapping[str, Any]], Any]
