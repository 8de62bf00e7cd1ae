"""One framework of two: without TensorFlow the tests of TensorFlow are skipped, all others run.

Test modules import both frameworks at their top. Where TensorFlow is not installed, such an import
in a test module gives a stand-in: it can be named, subclassed and called while tests are collected,
and whoever calls it in a running test skips that test. Only imports written in this repository's
tests get it; the code under test sees, as ever, that there is no TensorFlow, and a test that lets
its MissingFrameworkError out is skipped too.

With TensorFlow installed nothing here does anything.
"""

from __future__ import annotations

import builtins
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlcatalog.errors import MissingFrameworkError

ROOT = Path(__file__).resolve().parents[2]
#: Modules that TensorFlow brings.
MODULES = ("tensorflow", "keras")
REASON = "TensorFlow is not installed"

_running = False


class Absent(type):
    """The type of stand-ins.

    They are classes, so that a test may derive from one, or name it among exceptions.
    """

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):  # what Python and pytest ask of any object
            raise AttributeError(name)
        return stand_in(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        _skip_in_a_test()
        return stand_in(f"{cls.__name__}()")

    def __iter__(cls) -> Iterator[Any]:
        _skip_in_a_test()
        return iter(())

    @property
    def __signature__(cls) -> Any:
        _skip_in_a_test()
        raise AttributeError("__signature__")

    def __instancecheck__(cls, instance: object) -> bool:
        return False


def stand_in(name: str) -> Any:
    """Return what a test module holds under a name of TensorFlow's, or of code that needs
    TensorFlow.
    """
    # The catalog takes it for a class of TensorFlow's, and says that there is none.
    return Absent(name, (Exception,), {"framework_of_class": "tf", "slot_of_class": "trunk"})


def _skip_in_a_test() -> None:
    if _running:
        pytest.skip(REASON)


def absent() -> bool:
    """Whether there is no TensorFlow."""
    return importlib.util.find_spec("tensorflow") is None


def is_of_absence(error: BaseException) -> bool:
    """Whether an error says that TensorFlow is missing."""
    if isinstance(error, MissingFrameworkError):
        return "'tensorflow'" in str(error)
    # `import rlcatalog_tf` at the top, `rlcatalog_tf` in the test.
    if isinstance(error, AttributeError):
        return error.name == "tf" and isinstance(error.obj, ModuleType)
    return (
        isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in MODULES
    )


def in_tests(file: str | None) -> bool:
    """Whether a module is one of this repository's tests."""
    return (
        file is not None
        and Path(file).is_relative_to(ROOT)
        and "tests" in Path(file).relative_to(ROOT).parts
    )


def lend() -> None:
    """Let imports in tests hand out stand-ins; before any conftest of a package, hence when this
    module is imported.
    """
    real = builtins.__import__

    def importing(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        try:
            return real(name, globals, locals, fromlist, level)
        except ImportError as error:
            if not is_of_absence(error) or not in_tests((globals or {}).get("__file__")):
                raise
            top = name.partition(".")[0]
            return stand_in(name) if fromlist or top in MODULES else real(top)

    builtins.__import__ = importing


if absent():
    lend()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart() -> None:
    """Tests run from here on: calling a stand-in skips."""
    global _running
    _running = True


def _skipping() -> Iterator[None]:
    try:
        return (yield)
    except (ModuleNotFoundError, MissingFrameworkError, AttributeError) as error:
        if absent() and is_of_absence(error):
            pytest.skip(REASON)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Skip where a fixture meets the absence."""
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip where a test meets the absence."""
    return (yield from _skipping())
