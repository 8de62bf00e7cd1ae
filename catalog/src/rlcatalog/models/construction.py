"""Construction of one model: its constructor's arguments, and errors for arguments that it does not
accept.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rlcatalog.errors import CatalogError, ConfigError, ModelContractError, nearest, raised_as
from rlcatalog.models.bookkeeping import is_model
from rlcatalog.models.model import ModelV2
from rlcatalog.plugins import Part

#: The arguments of every model's constructor, in this order.
STANDARD = ("obs_space", "action_space", "num_outputs", "model_config", "name")
#: The keyword arguments that `assemble` adds for memories and heads.
GIVEN = ("trunk", "value_trunk", "action_dist")


@dataclass(frozen=True)
class ModelPart:
    """One class in a model's chain, with its keyword arguments.

    Attributes:
        cls: The class.
        slot: The slot it fills.
        kwargs: Keyword arguments from the user.
        chosen: The chosen part; None for a class that was passed directly.
        left_out: Keyword arguments that a class in RLlib's style does not accept. As in RLlib, it
            is built without them.
    """

    cls: type
    slot: str = "trunk"
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    chosen: Part | None = None
    left_out: set[str] = field(default_factory=set)

    def construct(self, standard: tuple[Any, ...], held: Mapping[str, Any]) -> ModelV2:
        """Build this class's model, and check the result.

        Args:
            standard: The arguments that every constructor takes.
            held: The models inside the new model, and a head's other arguments.

        Raises:
            ModelContractError: The class is not a model class, or its constructor does not accept
                its arguments.
            ConfigError: The class does not accept a keyword argument from the user. For a class in
                RLlib's style, this is an error only if the name is similar to an accepted name.
            PartError: The class belongs to a third-party plugin, and raised one of these errors or
                some other error.
        """
        cls, chosen = self.cls, self.chosen
        check_class(cls)
        kwargs = {name: value for name, value in self.kwargs.items() if name not in self.left_out}
        accepted, takes_any = _keywords(cls) if kwargs else ([], True)
        for name in [name for name in kwargs if not takes_any and name not in accepted]:
            self._leave(kwargs, name)
        with (
            nullcontext() if chosen is None or not chosen.is_third_party else self._blaming(chosen)
        ):
            while True:
                try:
                    model = cls(*standard, **kwargs, **held)
                    break
                except TypeError as error:
                    # A constructor with **kwargs may pass them to a base class, which may not
                    # accept them.
                    refused = _REFUSED.search(str(error))
                    if (
                        chosen is not None
                        and chosen.undeclared
                        and refused is not None
                        and refused[1] in kwargs
                    ):
                        self._leave(kwargs, refused[1])
                        continue
                    if (signature := refusal(cls, standard, {**kwargs, **held})) is None:
                        raise
                    given = ", ".join((*STANDARD, *kwargs, *held))
                    raise ModelContractError(
                        f"{cls.__name__}.__init__ is called with ({given}), but takes {signature};"
                        " a memory takes trunk=, a head also value_trunk= and action_dist=."
                    ) from error
            if not is_model(model):
                raise ModelContractError(
                    f"{cls.__name__}.__init__ must call its base's __init__(obs_space,"
                    " action_space, num_outputs, model_config, name); it did not."
                )
        assert isinstance(model, ModelV2)
        model._rlcatalog.part = "" if chosen is None else chosen.label
        if held:  # a trunk has no value branch
            model._rlcatalog.hold(
                model, held if standard[2] is not None else {**held, "value_trunk": None}
            )
        return model

    @contextmanager
    def _blaming(self, chosen: Part) -> Iterator[None]:
        """Add a third-party plugin's name to errors from its class."""
        try:
            with raised_as(
                lambda why: chosen.fault(f"{self.cls.__name__} cannot be built: {why}"),
                CatalogError,
            ):
                yield
        except ModelContractError as error:
            raise chosen.fault(str(error)) from error

    def _leave(self, kwargs: dict[str, Any], name: str) -> None:
        """Remove a keyword argument that the class does not accept.

        Raises:
            ConfigError: The class is not in RLlib's style, or the name looks misspelt.
        """
        accepted = list(_known(self.cls))
        near = nearest(name, accepted)
        if self.chosen is None or not self.chosen.undeclared or near:
            raise ConfigError(
                f"custom_model_config: {self.cls.__name__} does not accept {name!r}.{near}"
                f" Accepted: {', '.join(accepted) or 'none'}."
            )
        del kwargs[name]
        self.left_out.add(name)


_REFUSED = re.compile(r"__init__\(\) got an unexpected keyword argument '(\w+)'")


def check_class(cls: Any) -> None:
    """Check that `cls` is a model class.

    Raises:
        ModelContractError: `cls` is not a subclass of TorchModelV2 or TFModelV2.
    """
    if not (
        isinstance(cls, type)
        and issubclass(cls, ModelV2)
        and getattr(cls, "framework_of_class", None)
    ):
        raise ModelContractError(
            f"{cls!r} must be a subclass of rlcatalog_torch.TorchModelV2 or rlcatalog_tf.TFModelV2."
        )


def refusal(
    function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> str | None:
    """Return the signature of a function or class that does not accept these arguments, otherwise
    None.
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


def _keywords(cls: type) -> tuple[list[str], bool]:
    """Return the names of a constructor's keyword arguments, and whether it accepts arbitrary
    others.
    """
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    accepted = [
        p.name for p in parameters if p.kind not in kinds and p.name not in (*STANDARD, *GIVEN)
    ]
    return accepted, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _known(cls: type) -> Iterable[str]:
    """Yield the names of keyword arguments from the constructors of a class and its bases."""
    for base in cls.__mro__:
        if "__init__" in vars(base):
            accepted, any_name = _keywords(base)
            yield from accepted
            if not any_name:
                return
