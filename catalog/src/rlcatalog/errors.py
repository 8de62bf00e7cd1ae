"""Every error rlcatalog raises on purpose.

All derive from `CatalogError` and from the built-in type a caller would expect, so that both `except CatalogError` and
`except KeyError` work. A message says what was asked, what was found and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CatalogError(Exception):
    """Base class of all errors raised by rlcatalog."""

    #: TensorFlow's autograph re-raises errors as types of its own; this asks it to let ours through.
    ag_pass_through = True

    # KeyError would print the message's repr, quotes and escapes included.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CatalogWarning(UserWarning):
    """Base class of all warnings issued by rlcatalog."""


class PluginWarning(CatalogWarning):
    """A plugin could not be used; the others work."""


class LoadOrderWarning(CatalogWarning, RuntimeWarning):
    """TensorFlow was imported before triton, which may end the process at PyTorch's optimisers."""


# --- plugins -------------------------------------------------------------------------------------------------------


class PluginError(CatalogError, ImportError):
    """A plugin could not be loaded."""


class IncompatiblePluginError(PluginError):
    """A plugin's metadata asks for another version of rlcatalog."""


class DeclarationError(PluginError, TypeError):
    """A plugin's hook is misspelt, has wrong arguments or returns something other than declarations."""


class DuplicateNameError(PluginError, ValueError):
    """Two plugins provide one name (of a component or of a config key) and neither declares an override."""


class MissingPluginError(CatalogError, LookupError):
    """A part is named whose package is not installed, disabled or failed to load."""


class MissingFrameworkError(CatalogError, ImportError):
    """PyTorch or TensorFlow is asked for and not installed."""


# --- choosing ------------------------------------------------------------------------------------------------------


class UnknownNameError(CatalogError, KeyError):
    """No component, framework or command has this name."""


class AmbiguousChoiceError(CatalogError, ValueError):
    """Two components match equally well."""


class NoMatchError(CatalogError, LookupError):
    """No installed component fits."""


class UnsupportedSpaceError(CatalogError, TypeError):
    """A space, or one of its leaves, has no component that serves it."""


# --- config --------------------------------------------------------------------------------------------------------


class ConfigError(CatalogError, ValueError):
    """A config value cannot be used."""


class UnknownConfigKeyError(ConfigError, KeyError):
    """A config key that no installed package declares."""


class ConfigTypeError(ConfigError, TypeError):
    """A config value has the wrong type."""


# --- contracts -----------------------------------------------------------------------------------------------------


class ModelContractError(CatalogError, TypeError):
    """A model, preprocessor or distribution does not keep its contract."""


class ObservationError(CatalogError, ValueError):
    """An observation does not lie in its space."""


class ActionError(CatalogError, ValueError):
    """Stored actions do not fit their action space, or the observations they go with."""


class ActionMaskError(CatalogError, ValueError):
    """An action mask has the wrong form, or a row of it allows nothing."""


class NonFiniteError(CatalogError, FloatingPointError):
    """An observation, a reward, what a model made of them, or a loss is NaN or infinite.

    Attributes:
        row: The row of the batch, counted from 0: a vector environment's index; None where there is none.
    """

    def __init__(self, message: str = "", row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class StaleOutputError(CatalogError, RuntimeError):
    """`value_function()` or `last_output()` is used outside the trace its forward pass belongs to, or before any."""


class NoClosedFormError(CatalogError, NotImplementedError):
    """A distribution has no closed form for what was asked; use its estimate."""


class NotServedError(CatalogError, NotImplementedError):
    """A combination that rlcatalog knows about and does not serve."""


class SavedPolicyError(CatalogError, ValueError):
    """A saved policy is truncated, foreign, or cannot be restored or written."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the known name nearest to `name`, or an empty string."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]!r}?" if found else ""
