"""Record of a plugin: how its loading ended, and what it declared."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlcatalog.errors import DeclarationError, IncompatiblePluginError
from rlcatalog.plugins.declarations import Declaration


@dataclass
class PluginRecord:
    """How a plugin ended.

    Attributes:
        name: Entry-point name.
        distribution: Distribution that provides it.
        version: That distribution's version.
        status: `"loaded"`, `"disabled"`, `"incompatible"`, `"failed"` or `"shadowed"` (all it provides is overridden).
        error: Why it is not loaded, as text; None when it is.
        exception: The exception behind `error`, if there is one.
    """

    name: str
    distribution: str
    version: str
    status: str = "loaded"
    error: str | None = None
    exception: BaseException | None = field(default=None, repr=False)

    def fail(self, exception: BaseException, status: str = "failed") -> None:
        """Note that the plugin is not usable, and why."""
        self.status, self.exception = status, exception
        text = str(exception) or repr(exception)
        named = isinstance(exception, DeclarationError | IncompatiblePluginError)
        self.error = text if named else f"{type(exception).__name__}: {text}"


@dataclass(frozen=True)
class Loaded:
    """What a plugin declared: its components and, by import path, the structs that hold its config keys."""

    declarations: tuple[Declaration, ...]
    config_classes: dict[str, type]
