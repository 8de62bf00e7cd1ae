"""Construction of one model: its constructor's arguments, and errors for arguments that it does not
accept.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlcatalog.errors import CatalogError, ConfigError, ModelContractError, nearest, raised_as
from rlcatalog.models.bookkeeping import is_model
from rlcatalog.models.model import ModelV2
from rlcatalog.plugins import Part
from rlcatalog.spaces.info import Space


class StandardArguments(NamedTuple):
    """The positional arguments of every model's constructor, in RLlib's order; see `ModelV2`."""

    obs_space: Space
    action_space: Space | None
    num_outputs: int | None
    model_config: Mapping[str, Any]
    name: str


#: The keyword arguments that `assemble` adds for memories and heads.
ADDED_BY_ASSEMBLY = ("trunk", "value_trunk", "action_dist")


@dataclass(frozen=True)
class ModelPart:
    """One class in a model's chain, with its keyword arguments.

    Attributes:
        cls: The class.
        slot: The slot it fills; empty for a pair of chains.
        kwargs: Keyword arguments from the user.
        chosen: The chosen part; None for a class that was passed directly.
        options_key: The config key from which the keyword arguments come, for messages.
        left_out: Keyword arguments that a class in RLlib's style does not accept. As in RLlib, it
            is built without them.
    """

    cls: type
    slot: str = "trunk"
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    chosen: Part | None = None
    options_key: str = "custom_model_config"
    left_out: set[str] = field(default_factory=set)

    @property
    def dense_layers(self) -> tuple[str, ...]:
        """The beginnings of the config keys of the dense layers with which the model ends."""
        return () if self.chosen is None else self.chosen.dense_layers

    @property
    def is_in_rllib_style(self) -> bool:
        """Whether the class may be built without keyword arguments that it does not accept."""
        return self.chosen is not None and self.chosen.undeclared

    def construct(self, standard: StandardArguments, additions: Mapping[str, Any]) -> ModelV2:
        """Build this class's model, and check the result.

        Args:
            standard: The arguments that every constructor takes.
            additions: The keyword arguments that `assemble` adds: the models inside the new model,
                and the `action_dist` of a head.

        Raises:
            ModelContractError: The class is not a model class, or its constructor does not accept
                its arguments.
            ConfigError: The class does not accept a keyword argument from the user. For a class in
                RLlib's style, this is an error only if the name is similar to an accepted name.
            PartError: The class belongs to a third-party plugin, and raised one of these errors or
                some other error.
        """
        check_class(self.cls)
        options = self._acceptable_options()
        with self._errors_with_plugin_name(), self._errors_as_trunk(standard.num_outputs):
            model = self._call_class(standard, options, additions)
            if not is_model(model):
                raise ModelContractError(
                    f"{self.cls.__name__}.__init__ must call its base's __init__(obs_space,"
                    " action_space, num_outputs, model_config, name); it did not."
                )
        assert isinstance(model, ModelV2)
        model._rlcatalog_bookkeeping.slot = self.slot
        if self.chosen is not None:
            model._rlcatalog_bookkeeping.part = self.chosen.label
        if additions:
            inner_models = dict(additions)
            if standard.num_outputs is None:
                inner_models["value_trunk"] = None  # a trunk has no value branch
            model._rlcatalog_bookkeeping.hold(model, inner_models)
        return model

    def _acceptable_options(self) -> dict[str, Any]:
        """Return the user's keyword arguments without the ones that the constructor's signature
        does not have.
        """
        options = {name: value for name, value in self.kwargs.items() if name not in self.left_out}
        if not options:
            return options
        keywords = _keywords(self.cls)
        if not keywords.takes_any:
            unaccepted_names = [name for name in options if name not in keywords.names]
            for name in unaccepted_names:
                self._leave_out(name, options)
        return options

    def _call_class(
        self, standard: StandardArguments, options: dict[str, Any], additions: Mapping[str, Any]
    ) -> object:
        """Call the constructor, and again without an option if a base's constructor refuses it."""
        while True:
            try:
                return self.cls(*standard, **options, **additions)
            except TypeError as error:
                refused_name = self._refused_option(error, options)
                if refused_name is None:
                    signature = signature_if_refused(self.cls, standard, {**options, **additions})
                    if signature is None:
                        raise  # an error inside the constructor
                    names = ", ".join((*StandardArguments._fields, *options, *additions))
                    raise ModelContractError(
                        f"{self.cls.__name__}.__init__ is called with ({names}), but takes"
                        f" {signature}; a memory takes trunk=, a head also value_trunk= and"
                        " action_dist=."
                    ) from error
                self._leave_out(refused_name, options)

    def _refused_option(self, error: TypeError, options: Mapping[str, Any]) -> str | None:
        """Return the option that a constructor refused, if the class may be built without it.

        A constructor with `**kwargs` may pass them to a base class, which may not accept them.
        """
        message = _REFUSED.search(str(error))
        if message is None or not self.is_in_rllib_style:
            return None
        name = message[1]
        return name if name in options else None

    def _errors_with_plugin_name(self) -> AbstractContextManager[None]:
        """Return a context in which errors of a third-party plugin's class name the plugin."""
        if self.chosen is None or not self.chosen.is_third_party:
            return nullcontext()
        return _blame(self.chosen, self.cls)

    def _errors_as_trunk(self, num_outputs: int | None) -> AbstractContextManager[Any]:
        """Return a context in which errors of a class in RLlib's style say that it was built as a
        trunk, which RLlib's own classes need not support.
        """
        if num_outputs is not None or not self.is_in_rllib_style:
            return nullcontext()
        return raised_as(self._error_as_trunk, CatalogError)

    def _error_as_trunk(self, why: str) -> ModelContractError:
        return ModelContractError(
            f"{self.cls.__name__} was built as a trunk for a memory, a head or a critic, with"
            f" num_outputs=None, and raised {why}. Leave out its last layers if num_outputs is"
            " None, and set self.num_outputs to the width of its output."
        )

    def _leave_out(self, name: str, options: dict[str, Any]) -> None:
        """Remove a keyword argument that the class does not accept.

        Raises:
            ConfigError: The class is not in RLlib's style, or the name looks misspelt.
        """
        accepted = list(_names_of_all_keywords(self.cls))
        similar = nearest(name, accepted)
        if similar or not self.is_in_rllib_style:
            raise ConfigError(
                f"{self.options_key}: {self.cls.__name__} does not accept {name!r}.{similar}"
                f" Accepted: {', '.join(accepted) or 'none'}."
            )
        del options[name]
        self.left_out.add(name)


_REFUSED = re.compile(r"__init__\(\) got an unexpected keyword argument '(\w+)'")


@contextmanager
def _blame(part: Part, cls: type) -> Iterator[None]:
    """Add a third-party plugin's name to errors from its class."""
    try:
        with raised_as(
            lambda why: part.fault(f"{cls.__name__} cannot be built: {why}"), CatalogError
        ):
            yield
    except ModelContractError as error:
        raise part.fault(str(error)) from error


def check_class(cls: object) -> None:
    """Check that `cls` is a model class.

    Raises:
        ModelContractError: `cls` is not a subclass of TorchModelV2 or TFModelV2.
    """
    is_model_class = isinstance(cls, type) and issubclass(cls, ModelV2)
    # ModelV2 itself belongs to no framework.
    if not is_model_class or not getattr(cls, "framework_of_class", None):
        raise ModelContractError(
            f"{cls!r} must be a subclass of rlcatalog_torch.TorchModelV2 or rlcatalog_tf.TFModelV2."
        )


def signature_if_refused(
    function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> str | None:
    """Return a function's or class's signature, as text, if it does not accept these arguments;
    otherwise None.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # not written in Python
        return None
    try:
        signature.bind(*arguments, **options)
    except TypeError:
        return str(signature)
    return None


class _Keywords(NamedTuple):
    """Which keyword arguments a constructor accepts from the user.

    Attributes:
        names: Their names.
        takes_any: Whether it also accepts others, as `**kwargs`.
    """

    names: list[str]
    takes_any: bool


def _keywords(cls: type) -> _Keywords:
    """Return which keyword arguments a class's constructor accepts from the user."""
    _self, *parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    names = []
    takes_any = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            names.append(parameter.name)
    from_catalog = (*StandardArguments._fields, *ADDED_BY_ASSEMBLY)
    return _Keywords([name for name in names if name not in from_catalog], takes_any)


def _names_of_all_keywords(cls: type) -> Iterator[str]:
    """Yield the names of keyword arguments from the constructors of a class and its bases."""
    for base in cls.__mro__:
        if "__init__" in vars(base):
            keywords = _keywords(base)
            yield from keywords.names
            if not keywords.takes_any:
                return
