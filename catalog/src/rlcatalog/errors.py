"""The errors of rlcatalog.

All derive from `CatalogError` and from the built-in type a caller would expect, so that both `except CatalogError` and
`except KeyError` work. A message says what was asked, what was found and what to do next.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcatalog.plugins import Component


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


class UnreadKeysWarning(CatalogWarning):
    """Keys of the model config differ from their defaults, and no part that was chosen reads them.

    Also keys of `custom_model_config` that a class in RLlib's form was built without.
    """


class UnusedMaskWarning(CatalogWarning):
    """An entry of the observation is named as an action mask is, and is not used as one."""


class LoadOrderWarning(CatalogWarning, RuntimeWarning):
    """A library was imported before one that must come first: TensorFlow before triton."""


class ResumeWarning(CatalogWarning):
    """A run goes on from a checkpoint, and not in all as if it had not been stopped."""


class SavedPolicyWarning(CatalogWarning):
    """A saved policy holds weights or statistics that are not finite."""


# --- plugins -------------------------------------------------------------------------------------------------------


class PluginError(CatalogError, ImportError):
    """A plugin could not be loaded."""


class PartError(PluginError):
    """A part of a plugin does not do what it declares, found where it is used.

    Attributes:
        part: The component.
    """

    def __init__(self, text: str, part: Component | None = None) -> None:
        super().__init__(text)
        self.part = part


class IncompatiblePluginError(PluginError):
    """A plugin's metadata asks for another version of rlcatalog."""


class DeclarationError(PluginError, TypeError):
    """A plugin's hook is misspelt, has wrong arguments or returns something other than declarations."""


class DuplicateNameError(PluginError, ValueError):
    """A plugin claims a name, of a component, config key or command, that is another's."""


class MissingPluginError(CatalogError, LookupError):
    """A part is named whose package is not installed, disabled or failed to load."""


class MissingFrameworkError(CatalogError, ImportError):
    """PyTorch or TensorFlow is asked for and not installed."""


class MissingExtraError(CatalogError, ImportError):
    """What an optional extra of a distribution brings is asked for and not installed."""


# --- choosing ------------------------------------------------------------------------------------------------------


class UnknownNameError(CatalogError, KeyError):
    """No component, framework or command has this name."""


class AmbiguousChoiceError(CatalogError, ValueError):
    """Two components match equally well, or have one name that belongs to neither."""


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


class MissingColumnError(CatalogError, KeyError):
    """A training batch lacks a column."""


class ActionMaskError(CatalogError, ValueError):
    """An action mask has the wrong form, a row of it allows nothing, or an action was drawn that it forbids."""


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


class EnvironmentFaultError(CatalogError, RuntimeError):
    """An environment raised something, or returned something else than Gymnasium's interface and its spaces say."""


class WorkerError(CatalogError, RuntimeError):
    """A process that steps environments ended."""


class SavedPolicyError(CatalogError, ValueError):
    """A saved policy is truncated, foreign, or cannot be restored or written."""


class FolderTakenError(CatalogError, FileExistsError):
    """A folder that is to be made exists already."""


class RunFolderError(CatalogError, FileExistsError):
    """A folder for a training run holds one already, or another run is writing into it."""


class FailedRunsError(CatalogError, RuntimeError):
    """Of several runs, some have failed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the known name nearest to `name`, or an empty string."""
    matches = difflib.get_close_matches(name[:_LONGEST], list(known), n=1, cutoff=0.6)
    return f" Did you mean {matches[0]!r}?" if matches else ""


# --- what others wrote, in a message -------------------------------------------------------------------------------

_LONGEST = 300


class _Brief(reprlib.Repr):
    """Python's own repr of short values; of long, deep and endless ones as much as a message has room for."""

    def repr1(self, x: Any, level: int) -> str:
        """Return a value's repr; of text of a class of somebody else's, that of the text."""
        return super().repr1(str.__str__(x) if isinstance(x, str) else x, level)

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return a dict's repr in its own order; `reprlib` sorts the keys."""
        if level <= 0:
            return "{...}"
        entries = islice(x.items(), self.maxdict)
        return f"{{{', '.join(f'{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}' for k, v in entries)}}}"


_BRIEF = _Brief()
_BRIEF.maxtuple = _BRIEF.maxlist = _BRIEF.maxset = _BRIEF.maxfrozenset = _BRIEF.maxdict = 100
_BRIEF.maxstring = _BRIEF.maxlong = _BRIEF.maxother = _LONGEST


def shown(value: Any, length: int = _LONGEST) -> str:
    """Return a value as messages show it: its repr where that is short and well, on one line, and never an error.

    Args:
        value: Anything: what holds itself, is nested without end, or has a repr that fails.
        length: Most characters.
    """
    return one_line(_read(lambda: _BRIEF.repr(value), f"<{type(value).__qualname__} that cannot be shown>"), length)


def reason(error: BaseException) -> str:
    """Return an error's type and text as messages show them, whatever its `str` does."""
    text = _read(lambda: str(error), "(its text cannot be read)")
    return f"{type(error).__name__}: {one_line(text, 3 * _LONGEST)}"


def _read(text: Callable[[], str], otherwise: str) -> str:
    try:
        return text()
    except KeyboardInterrupt:
        raise
    except BaseException:  # what an extension written in Rust raises is no Exception
        return otherwise


@contextmanager
def raised_as(error: Callable[[str], Exception], *ours: type[BaseException]) -> Iterator[None]:
    """Run a plugin's code; whatever it raises becomes one error, for it may be no `Exception`.

    Args:
        error: Makes the error from `reason` of what was raised.
        *ours: Errors that pass as they are, beside the user's KeyboardInterrupt.
    """
    try:
        yield
    except (KeyboardInterrupt, *ours):  # type: ignore[misc]
        raise
    except BaseException as raised:
        raise error(reason(raised)) from raised


def one_line(text: str, length: int = _LONGEST) -> str:
    """Return a text on one line, cut to a length, with escapes for what cannot be printed."""
    if len(text) > length:
        text = text[: length - 3] + "..."
    if not text.isprintable():
        text = " ".join(text.split())
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text
