"""The errors of rlcatalog.

All derive from `CatalogError` and from the built-in exception a caller would expect, so both
`except CatalogError` and `except KeyError` work. A message says what is wrong, what was expected
and found, and what to do.
"""

from __future__ import annotations

import difflib
import os
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    # Upward, for checkers alone: who catches a PartError may ask its part for anything.
    from rlcatalog.plugins import Part


class CatalogError(Exception):
    """Base class of all errors raised by rlcatalog."""

    #: TensorFlow's autograph re-raises errors as other types; this attribute makes it keep ours.
    ag_pass_through = True

    # KeyError would print the message's repr, quotes and escapes included.
    def __str__(self) -> str:
        if not self.args:
            return ""
        return str(self.args[0])


class CatalogWarning(UserWarning):
    """Base class of all warnings issued by rlcatalog."""


class PluginWarning(CatalogWarning):
    """A plugin could not be loaded or used. Other plugins still work."""


class UnreadKeysWarning(CatalogWarning):
    """Keys of the model config have no effect, because no chosen part reads them.

    Also issued for keys in `custom_model_config` that a class in RLlib's style does not accept.
    """


class ImageLayoutWarning(CatalogWarning):
    """An image can be read in two ways: its channels may be the first axis or the last."""


class OneHotWarning(CatalogWarning):
    """A part of the observation becomes so many one-hot inputs that the first layer is large."""


class ObservationWarning(CatalogWarning):
    """A value of the first observation is outside the bounds of its space.

    Also issued if neither the policy nor its critic sees an entry of the observation.
    """


class UnusedMaskWarning(CatalogWarning):
    """Something looks like an action mask, but rlcatalog does not use it as one.

    This may be an entry of the observation, or a mask that the environment does not put into its
    observations, but returns in its info or from `action_masks()`.
    """


class ActionRangeWarning(CatalogWarning):
    """A new policy would hardly reach the actions within some bounds.

    Also issued if bounds are so large that they count as infinite.
    """


class LoadOrderWarning(CatalogWarning, RuntimeWarning):
    """TensorFlow was imported before triton, which must be imported first."""


class ResumeWarning(CatalogWarning):
    """A resumed run does not continue exactly, because some state cannot be saved or restored."""


class SavedPolicyWarning(CatalogWarning):
    """A saved policy contains weights or statistics that are not finite."""


# --- plugins --------------------------------------------------------------------------------------


class PluginError(CatalogError, ImportError):
    """A plugin could not be loaded."""


class PartError(PluginError):
    """A plugin's part raised an error or broke its contract while in use.

    Attributes:
        part: The part that raised the error, or None.
    """

    def __init__(self, text: str, part: Part | None = None) -> None:
        super().__init__(text)
        self.part = part


class IncompatiblePluginError(PluginError):
    """A plugin's metadata requires a different version of rlcatalog."""


class DeclarationError(PluginError, TypeError):
    """A plugin's hook is misspelt, has wrong arguments or returns something other than
    declarations.
    """


class DuplicateNameError(PluginError, ValueError):
    """A plugin claims the name of another plugin's part, config key or command."""


class MissingPluginError(CatalogError, LookupError):
    """The package of a named part is not installed, is disabled, or failed to load."""


class MissingFrameworkError(CatalogError, ImportError):
    """A selected framework, such as PyTorch or TensorFlow, is not installed."""


class MissingExtraError(CatalogError, ImportError):
    """A required optional extra of a distribution is not installed."""


# --- choosing -------------------------------------------------------------------------------------


class UnknownNameError(CatalogError, KeyError):
    """No part, framework or command has this name."""


class AmbiguousChoiceError(CatalogError, ValueError):
    """Two parts fit equally well, or have the same name, so rlcatalog cannot choose one."""


class NoMatchError(CatalogError, LookupError):
    """No installed part fits the spaces, the config and the framework, or the part that the config
    names does not.
    """


class UnsupportedSpaceError(CatalogError, TypeError):
    """No part supports a space, or a space inside it."""


# --- config ---------------------------------------------------------------------------------------


class ConfigError(CatalogError, ValueError):
    """A config value cannot be used."""


class UnknownConfigKeyError(ConfigError, KeyError):
    """No installed package declares this config key."""


class ConfigTypeError(ConfigError, TypeError):
    """A config value has the wrong type."""


# --- contracts ------------------------------------------------------------------------------------


class ModelContractError(CatalogError, TypeError):
    """A model, preprocessor or distribution does not return what rlcatalog relies on."""


class ObservationError(CatalogError, ValueError):
    """An observation is not in its space."""


class OutOfBoundsError(ObservationError):
    """A value of an observation is outside the bounds of its space."""


class ActionError(CatalogError, ValueError):
    """Stored actions do not fit their action space or their observations."""


class MissingColumnError(CatalogError, KeyError):
    """A training batch lacks a column."""


class ActionMaskError(CatalogError, ValueError):
    """An action mask has the wrong format, allows nothing in a row, or forbids a sampled action."""


class NonFiniteError(CatalogError, FloatingPointError):
    """An observation, reward, model output or loss is NaN or infinite.

    Attributes:
        row: The row in the batch, counted from 0 (in a vector environment, the environment's
            index), or None.
    """

    def __init__(self, message: str = "", row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class StaleOutputError(CatalogError, RuntimeError):
    """`value_function()` or `last_output()` is called before the model.

    Also raised if it is called outside the trace in which the model was called.
    """


class NoClosedFormError(CatalogError, NotImplementedError):
    """A distribution has no closed form for its entropy or divergence."""


class NotServedError(CatalogError, NotImplementedError):
    """rlcatalog knows this combination of settings, but does not support it."""


class EnvironmentFaultError(CatalogError, RuntimeError):
    """An environment raised an error, or returned values that violate Gymnasium's interface or its
    spaces.
    """


class WorkerError(CatalogError, RuntimeError):
    """A process that steps environments ended unexpectedly."""


class SavedPolicyError(CatalogError, ValueError):
    """A saved file is damaged, was not written by rlcatalog, or cannot be read or written."""


class OutputError(CatalogError, OSError):
    """A file or folder that a command writes cannot be written."""


class FolderTakenError(CatalogError, FileExistsError):
    """The folder that a command should create already exists."""


class RunFolderError(CatalogError, FileExistsError):
    """The folder for a training run already contains a run, or another process is writing to it."""


class FailedRunsError(CatalogError, RuntimeError):
    """At least one of several runs failed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the known name nearest to `name`, or an empty string."""
    matches = difflib.get_close_matches(name[:_LONGEST], list(known), n=1, cutoff=0.6)
    if not matches:
        return ""
    return f" Did you mean {matches[0]!r}?"


# --- values of others in messages -----------------------------------------------------------------

_LONGEST = 300


class _Brief(reprlib.Repr):
    """Python's own repr for short values; for long, deep or endless values, as much as fits into a
    message.
    """

    def repr1(self, x: Any, level: int) -> str:
        """Return a value's repr; for an instance of a str subclass, the repr of the plain str."""
        if isinstance(x, str):
            x = str.__str__(x)
        return super().repr1(x, level)

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return a dict's repr in insertion order, unlike `reprlib`, which sorts the keys."""
        if level <= 0:
            return "{...}"
        entries = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for key, value in islice(x.items(), self.maxdict)
        ]
        return "{" + ", ".join(entries) + "}"


_MOST_ENTRIES = 100
_BRIEF = _Brief()
_BRIEF.maxtuple = _MOST_ENTRIES
_BRIEF.maxlist = _MOST_ENTRIES
_BRIEF.maxset = _MOST_ENTRIES
_BRIEF.maxfrozenset = _MOST_ENTRIES
_BRIEF.maxdict = _MOST_ENTRIES
_BRIEF.maxstring = _LONGEST
_BRIEF.maxlong = _LONGEST
_BRIEF.maxother = _LONGEST


def shown(value: Any, length: int = _LONGEST) -> str:
    """Return a short one-line repr of a value for messages; never raises an error.

    Args:
        value: Any object, even one that contains itself or has a repr that fails.
        length: Maximum number of characters.
    """
    otherwise = f"<{type(value).__qualname__} that cannot be shown>"
    text = _read(lambda: _BRIEF.repr(value), otherwise)
    return one_line(text, length)


@contextmanager
def output_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context manager that names the path that cannot be written.

    Args:
        path: The file or folder that the user asked for, as written.

    Raises:
        OutputError: Writing raised an OSError.
    """
    try:
        yield
    except CatalogError:
        raise
    except OSError as error:
        why = error.strerror or str(error)
        advice = "Pass a path in a folder in which you may write."
        if isinstance(error, FileExistsError | NotADirectoryError):
            advice = "There is a file where a folder is needed. Remove it, or pass another path."
        raise OutputError(f"{os.fspath(path)}: cannot be written: {why}. {advice}") from error


def reason(error: BaseException) -> str:
    """Return an error's type and text for messages, even if its `str` fails."""
    text = _read(lambda: str(error), "(its text cannot be read)")
    return f"{type(error).__name__}: {one_line(text, 3 * _LONGEST)}"


def _read(get_text: Callable[[], str], otherwise: str) -> str:
    """Return a text of an object that others define, or another text if it fails."""
    try:
        return get_text()
    except KeyboardInterrupt:
        raise
    except BaseException:  # extensions in Rust raise errors that are not an Exception
        return otherwise


class raised_as(AbstractContextManager[None]):
    """Context manager that converts anything a plugin's code raises into one error, even a
    `BaseException`.

    Args:
        error: A function that creates the new error from the `reason` of the original error.
        *ours: Errors that propagate unchanged, as does the user's KeyboardInterrupt.
    """

    def __init__(self, error: Callable[[str], Exception], *ours: type[BaseException]) -> None:
        self._error = error
        self._ours: tuple[type[BaseException], ...] = (KeyboardInterrupt, *ours)

    def __exit__(
        self, kind: type | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if raised is not None and not isinstance(raised, self._ours):
            raise self._error(reason(raised)) from raised


def one_line(text: str, length: int = _LONGEST) -> str:
    """Return a text as one line, cut to a maximum length, with unprintable characters escaped."""
    if len(text) > length:
        text = text[: length - 3] + "..."
    if not text.isprintable():
        text = " ".join(text.split())
        text = "".join(map(_escape_unprintable, text))
    return text


def _escape_unprintable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
