"""Base class of models around a user's plain module, given as a class, an instance or a factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

from gymnasium import Space

from rlcatalog import SpaceInfo
from rlcatalog.errors import CatalogError, ConfigError, ModelContractError, nearest, raised_as
from rlcatalog.models import ModelV2, code_of, copies_instances

#: A plain module, or a class or factory that creates one: nothing is known but that it is called.
Module: TypeAlias = Callable[..., Any]


class ModelOfModule(ModelV2):
    """Base class of models around a plain module.

    Each framework's class also implements the methods that raise NotImplementedError here.

    Args:
        *args: See `ModelV2`.

    Attributes:
        source: The class, instance or factory.
        options_key: The config key with keyword arguments for the class or factory.
        is_instance: Whether the source is a module instance.
    """

    source: Module
    options_key: ClassVar[str]

    def __init__(self, *args: Any) -> None:
        # A framework's class has its base, such as TorchModelV2, behind this one.
        super().__init__(*args)
        self.is_instance = not isinstance(self.source, type) and self.is_module(self.source)

    @classmethod
    def of(cls, source: Module) -> type[Self]:
        """Return the model class for a plain module, given as a class, an instance or a factory."""
        code = code_of(source)
        fields = {
            "__doc__": code.__doc__,
            "__module__": cls.__module__,
            # Without staticmethod, a function would become a method.
            "source": staticmethod(source),
        }
        return type(code.__name__, (cls,), fields)

    def make_module(self, options: Mapping[str, Any]) -> Any:
        """Return the source if it is an instance, otherwise a new module that it creates.

        Args:
            options: Keyword arguments for the class or factory.

        Raises:
            ConfigError: The options do not fit.
            ModelContractError: The class or factory raises an error, or does not return a module.
        """
        if self.is_instance:
            return self.unwrapped(self._take_instance(options))
        return self.unwrapped(self._call_source(options))

    # --- methods of each framework's class --------------------------------------------------------

    @staticmethod
    def is_module(value: Module) -> bool:
        """Return whether a value is a module or a module class of the framework."""
        raise NotImplementedError

    @staticmethod
    def unwrapped(module: Module) -> Any:
        """Return the module that a compiled module wraps; any other module unchanged."""
        raise NotImplementedError

    def copy_module(self, module: Module) -> Any:
        """Return a deep copy of a module."""
        raise NotImplementedError

    # --- what a class or factory is called with ---------------------------------------------------

    def signature_of_source(self) -> inspect.Signature:
        """Return the signature of the class or factory."""
        return inspect.signature(self.source)

    def first_arguments(
        self, signature: inspect.Signature, keywords: Mapping[str, Any]
    ) -> list[Any]:
        """Return what the class or factory gets before its keyword arguments."""
        raise NotImplementedError

    def more_keywords(self) -> dict[str, Any]:
        """Return keyword arguments that the class or factory gets beside the user's."""
        return {}

    # --- internals --------------------------------------------------------------------------------

    def _take_instance(self, options: Mapping[str, Any]) -> Any:
        """Return the instance, or a copy for a model with its own weights."""
        if options:
            names = ", ".join(map(repr, options))
            raise ConfigError(
                f"{self.options_key}: {type(self).__name__} is an instance, which takes no"
                f" arguments, but found {names}. Pass its class."
            )
        if copies_instances():
            return self.copy_module(self.source)
        return self.source

    def _call_source(self, options: Mapping[str, Any]) -> Any:
        """Return the module that the class or factory creates."""
        name = type(self).__name__
        keywords = {**options, **self.more_keywords()}
        signature = self.signature_of_source()
        arguments = self.first_arguments(signature, keywords)
        call = _describe_call(name, arguments, keywords)
        try:
            signature.bind(*arguments, **keywords)
        except TypeError as error:
            suggestion = _suggest_names(options, signature)
            raise ConfigError(
                f"{self.options_key}: {call} does not fit {name}{signature}: {error}.{suggestion}"
            ) from None
        with raised_as(lambda why: ModelContractError(f"{call} raised {why}"), CatalogError):
            module = self.source(*arguments, **keywords)
        if isinstance(module, type) or not self.is_module(module):
            raise ModelContractError(
                f"{call} must return a module of framework {self.framework!r}, found"
                f" {type(module).__name__}. Pass framework= if it creates a module for a different"
                " framework."
            )
        return module


def describe_space(space: Space[Any]) -> str:
    """Return a space's kind and shape as text."""
    return SpaceInfo.read(space).describe()


def _describe_call(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """Return a call as text, in which a space is described by its kind and shape."""
    texts = []
    for argument in arguments:
        is_space = isinstance(argument, Space)
        texts.append(describe_space(argument) if is_space else repr(argument))
    texts += [f"{key}={value!r}" for key, value in keywords.items()]
    return f"{name}({', '.join(texts)})"


def _suggest_names(options: Iterable[str], signature: inspect.Signature) -> str:
    """Return the nearest parameters to options that a signature lacks, for an error message."""
    unknown = [key for key in options if key not in signature.parameters]
    return "".join(nearest(key, signature.parameters) for key in unknown)
