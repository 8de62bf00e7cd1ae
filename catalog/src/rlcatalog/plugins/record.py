"""Record of a plugin: how its loading ended, and what it declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlcatalog.errors import CatalogError, DeclarationError, IncompatiblePluginError, reason
from rlcatalog.plugins.declarations import Declaration


@dataclass
class PluginRecord:
    """How a plugin ended.

    Attributes:
        name: Entry-point name.
        distribution: Distribution that provides it.
        version: That distribution's version.
        status: `"loaded"`, `"disabled"`, `"incompatible"`, `"failed"` or `"shadowed"` (all it provides is overridden).
        error: Why it is not loaded, or what of it is left out, as text; None when all is well.
        exception: The exception behind `error` where it failed.
        problems: What is wrong with it, one by one, where it is loaded.
    """

    name: str
    distribution: str
    version: str
    status: str = "loaded"
    error: str | None = None
    exception: BaseException | None = field(default=None, repr=False)
    problems: list[CatalogError] = field(default_factory=list, repr=False)

    def fail(self, exception: BaseException, status: str = "failed") -> None:
        """Note that the plugin is not usable, and why."""
        self.status, self.exception, self.error = status, exception, _text(exception)

    def note(self, problem: CatalogError) -> None:
        """Note what is wrong with a plugin that is usable all the same."""
        self.problems.append(problem)
        self.error = "; ".join(dict.fromkeys(map(_text, self.problems)))


def _text(exception: BaseException) -> str:
    plain = isinstance(exception, DeclarationError | IncompatiblePluginError)
    return reason(exception).removeprefix(f"{type(exception).__name__}: ") if plain else reason(exception)


@dataclass(frozen=True)
class Loaded:
    """What a plugin declared.

    Attributes:
        declarations: Its components.
        config_classes: Import path → struct that holds config keys.
        config_defaults: Struct → the struct made of its defaults.
        hooks: How many hooks it has.
    """

    declarations: tuple[Declaration, ...]
    config_classes: dict[str, type]
    config_defaults: dict[type, Any]
    hooks: int
