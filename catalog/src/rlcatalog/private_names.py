"""Names of other libraries that are not part of their public interface.

A library may rename or remove such a name in any release. Therefore, a package of rlcatalog keeps
all private names of a library in one module, `private_api.py`, and looks them up with this class.
Importing that module never fails. If the installed version lacks a name, the code that uses the
name raises an error that gives the library's version.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

from rlcatalog.errors import NotServedError

_Function = TypeVar("_Function", bound=Callable[..., Any])


class PrivateNames:
    """Private names of one library.

    Args:
        library: The library's import name, such as `"torch"`.
        tried: The version with which rlcatalog is tested; errors recommend it.

    Example:
        >>> from rlcatalog.private_names import PrivateNames
        >>> library = PrivateNames("torch", tried="2.13.0")
        >>> draw_gamma = library.name("torch:_standard_gamma", "draw Gamma values with gradients")
        >>> draw_gamma(torch.ones(3)).shape
        torch.Size([3])
    """

    def __init__(self, library: str, tried: str) -> None:
        self.library = library
        self.tried = tried

    def name(self, place: str, purpose: str) -> Any:
        """Return a function, class or object of the library.

        The result is the library's own object, so that using it costs nothing extra.

        Args:
            place: Where the library defines it, as `"module:name"`.
            purpose: What rlcatalog needs it for, to complete "which rlcatalog needs to …".

        Returns:
            The object. If the installed version lacks it, a class in its place. This class raises
            `error` when you call it or a subclass of it, or read its attributes.
        """
        try:
            return pkgutil.resolve_name(place)
        except (ImportError, AttributeError):
            return self._stand_in(place.replace(":", "."), purpose)

    def attribute(self, owner: object, name: str, purpose: str) -> Callable[[Any], Any]:
        """Return a function that reads a private attribute of an object.

        Args:
            owner: A class or an instance that has the attribute, if the installed version has it.
            name: Name of the attribute.
            purpose: What rlcatalog needs it for; see `name`.
        """
        return self.needs(owner, name, purpose=purpose)(attrgetter(name))

    def needs(self, owner: object, *names: str, purpose: str) -> Callable[[_Function], _Function]:
        """Return a decorator for a function that uses private attributes.

        The decorator returns the function itself. If the installed version lacks one of the
        attributes, it returns a function that raises `error` instead.

        Args:
            owner: A class or an instance that has the attributes, if the installed version has
                them.
            *names: Names of the attributes.
            purpose: What rlcatalog needs them for; see `name`.
        """
        missing = [name for name in names if not hasattr(owner, name)]  # the library's object

        def decorate(function: _Function) -> _Function:
            if not missing:
                return function
            owner_class = owner if isinstance(owner, type) else type(owner)
            stand_in: Any = self._stand_in(f"{owner_class.__name__}.{missing[0]}", purpose)
            return stand_in  # type: ignore[no-any-return]

        return decorate

    def error(self, name: str, purpose: str) -> NotServedError:
        """Return the error for a private name that the installed version lacks.

        Args:
            name: The name, with its module or class.
            purpose: What rlcatalog needs it for; see `name`.
        """
        version = importlib.import_module(self.library).__version__
        return NotServedError(
            f"{self.library} {version} has no {name}, which rlcatalog needs to {purpose}. Upgrade"
            " rlcatalog, or install the version that it is tested with: pip install"
            f" {self.library}=={self.tried}"
        )

    def _stand_in(self, name: str, purpose: str) -> type:
        """Return a class that raises `error` when it is called or its attributes are read."""
        error = self.error

        class MissingType(type):
            def __getattr__(cls, attribute: str) -> Any:
                if attribute.startswith("__"):  # Python reads these when it creates a subclass
                    raise AttributeError(attribute)
                raise error(name, purpose)

        class Missing(metaclass=MissingType):
            def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
                raise error(name, purpose)

        return Missing
