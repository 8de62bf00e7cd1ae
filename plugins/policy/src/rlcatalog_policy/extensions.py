"""Extensions: what other packages add to a framework, such as exporting and freezing policies."""

from __future__ import annotations

from typing import Any

from rlcatalog.errors import MissingPluginError
from rlcatalog.frameworks import frameworks
from rlcatalog.internals import public_index
from rlcatalog.plugins import install_hint


def load_extension(framework: str, name: str) -> Any:
    """Return another package's extension of a framework, such as its `"export"`.

    Raises:
        MissingPluginError: No installed package adds the method; the message names the package to
            install.
    """
    framework_entry = frameworks()[framework]
    if framework_entry.target(name) is not None:
        return framework_entry.load(name)

    hint = _other_frameworks_hint(name)
    reason_unusable = framework_entry.unusable_provider(name)
    package = public_index.provider_of("framework", f"{framework}: {name}")
    if reason_unusable is not None:
        hint = f": it {reason_unusable}"
    elif package is not None:
        line_to_install = install_hint(f"{package}[{framework}]")
        hint = f". {line_to_install}"
    raise MissingPluginError(
        f"no installed package supports {name!r} for framework={framework!r}{hint}"
    )


def _other_frameworks_hint(name: str) -> str:
    """Return in which installed frameworks an extension works, and how to get there; empty if it
    works in none.
    """
    able = []
    for entry in frameworks().values():
        if entry.is_installed and entry.target(name) is not None:
            able.append(entry.name)
    if not able:
        return ""
    names = " and ".join(map(repr, able))
    return (
        f". It is supported for framework={names}: save the policy, and load it with"
        f" rlcatalog.load(folder, framework={able[0]!r})."
    )
