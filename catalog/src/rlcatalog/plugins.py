"""Loading all plugins into a registry: one that fails is reported and does not take the others with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import rlcatalog
from rlcatalog.config import KernelConfig
from rlcatalog.discovery import candidates
from rlcatalog.errors import CatalogError, PluginWarning
from rlcatalog.loader import PluginRecord, load
from rlcatalog.registry import Registry


def load_plugins(
    registry: Registry, entry_points: Iterable[Any], environ: Mapping[str, str], prefer: Sequence[str]
) -> None:
    """Load the plugins behind entry points and note in the registry how each ended.

    Args:
        registry: Where the components and records go.
        entry_points: The entry points.
        environ: Environment variables that disable or allow plugins.
        prefer: Distributions whose plugins come first, and so keep a name that another one has too.

    Raises:
        CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`.
    """
    order = {name: i for i, name in enumerate(prefer)}
    reserved = dict.fromkeys(KernelConfig.__struct_fields__, "rlcatalog")
    for candidate in sorted(candidates(entry_points), key=lambda c: order.get(c.distribution, len(order))):
        record, loaded = load(candidate, environ, rlcatalog.__version__)
        registry.records.append(record)
        if loaded is not None:
            try:
                registry.add_plugin(record, loaded, reserved)
            except CatalogError as error:
                record.fail(error)
        if record.exception is not None:
            _report(record, environ)
    registry.mark_shadowed()


def _report(record: PluginRecord, environ: Mapping[str, str]) -> None:
    text = (
        f"plugin {record.name!r} of {record.distribution} {record.version} is {record.status}: {record.error}"
        f" (leave it out with RLCATALOG_DISABLE_PLUGINS={record.distribution},"
        f" or remove it: pip uninstall {record.distribution})"
    )
    if environ.get("RLCATALOG_STRICT_PLUGINS", "") not in ("", "0"):
        cause = record.exception
        raise (type(cause) if isinstance(cause, CatalogError) else CatalogError)(text) from cause
    warnings.warn(text, PluginWarning, stacklevel=5)
