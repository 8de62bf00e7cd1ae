"""Construction of one model: what its constructor is given, what it may leave, and what is wrong where it refuses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rlcatalog.errors import CatalogError, ConfigError, ModelContractError, nearest, raised_as
from rlcatalog.models.internals import is_model
from rlcatalog.models.model import ModelV2
from rlcatalog.plugins import Component

#: What every model's constructor takes, in this order.
STANDARD = ("obs_space", "action_space", "num_outputs", "model_config", "name")
#: What `assemble` gives to memories and heads beside those.
GIVEN = ("trunk", "value_trunk", "action_dist")


@dataclass(frozen=True)
class ModelPart:
    """One class of a model's chain, with keyword arguments of its own.

    Attributes:
        cls: The class.
        slot: The slot it fills.
        kwargs: Keyword arguments of the user's.
        component: What was chosen; None for a class that was not.
        left_out: Keyword arguments that a class in RLlib's form does not take and is built without, as in RLlib.
    """

    cls: type
    slot: str = "trunk"
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    component: Component | None = None
    left_out: set[str] = field(default_factory=set)

    def construct(self, standard: tuple[Any, ...], held: Mapping[str, Any]) -> ModelV2:
        """Build the model of this part, and check that it is one.

        Args:
            standard: What every constructor takes.
            held: The models that it is built around, and what else a head is given.

        Raises:
            ModelContractError: It is no model class, or its constructor does not take what it is given.
            ConfigError: A keyword argument of the user's that it does not take, or, of a class in RLlib's form, that is
                close to another that it does.
            PartError: The class is a third-party plugin's, and does any of these, or raises.
        """
        cls, chosen = self.cls, self.component
        check_class(cls)
        kwargs = {name: value for name, value in self.kwargs.items() if name not in self.left_out}
        accepted, takes_any = _keywords(cls)
        for name in [name for name in kwargs if not takes_any and name not in accepted]:
            self._leave(kwargs, name)
        with nullcontext() if chosen is None or not chosen.is_third_party else self._blaming(chosen):
            while True:
                try:
                    model = cls(*standard, **kwargs, **held)
                    break
                except TypeError as error:
                    # One that takes **kwargs hands them on to a base, which may refuse them.
                    refused = _REFUSED.search(str(error))
                    if chosen is not None and chosen.undeclared and refused is not None and refused[1] in kwargs:
                        self._leave(kwargs, refused[1])
                        continue
                    if (signature := refusal(cls, standard, {**kwargs, **held})) is None:
                        raise
                    given = ", ".join((*STANDARD, *kwargs, *held))
                    raise ModelContractError(
                        f"{cls.__name__}.__init__ is given ({given}) and takes {signature}; a memory takes trunk=, a"
                        " head also value_trunk= and action_dist=."
                    ) from error
            if not is_model(model):
                raise ModelContractError(
                    f"{cls.__name__}.__init__ must call its base's __init__(obs_space, action_space, num_outputs,"
                    " model_config, name); it did not."
                )
        assert isinstance(model, ModelV2)
        model._rlcatalog.part = "" if chosen is None else chosen.label
        if held:  # what hands on features has no value
            model._rlcatalog.hold(model, held if standard[2] is not None else {**held, "value_trunk": None})
        return model

    @contextmanager
    def _blaming(self, chosen: Component) -> Iterator[None]:
        """Construct a third-party class under its plugin's name."""
        try:
            with raised_as(lambda why: chosen.fault(f"{self.cls.__name__} cannot be built: {why}"), CatalogError):
                yield
        except ModelContractError as error:
            raise chosen.fault(str(error)) from error

    def _leave(self, kwargs: dict[str, Any], name: str) -> None:
        """Take out a keyword argument that is not taken.

        Raises:
            ConfigError: None may be left out, or this one is close to one that is taken: misspelt.
        """
        accepted = list(_known(self.cls))
        near = nearest(name, accepted)
        if self.component is None or not self.component.undeclared or near:
            raise ConfigError(f"custom_model_config: {self.cls.__name__} takes no {name!r}.{near}"
                              f" Accepted: {', '.join(accepted) or 'none'}.")  # fmt: skip
        del kwargs[name]
        self.left_out.add(name)


_REFUSED = re.compile(r"__init__\(\) got an unexpected keyword argument '(\w+)'")


def check_class(cls: Any) -> None:
    """Raise unless `cls` is a model class.

    Raises:
        ModelContractError: It is not a subclass of TorchModelV2 or TFModelV2.
    """
    if not (isinstance(cls, type) and issubclass(cls, ModelV2) and getattr(cls, "framework_of_class", None)):
        raise ModelContractError(f"{cls!r} must be a subclass of rlcatalog_torch.TorchModelV2 or"
                                 " rlcatalog_tf.TFModelV2.")  # fmt: skip


def refusal(function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> str | None:
    """Return the signature of a function, or of a class's constructor, where it does not take these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # one that is not written in Python
        return None
    try:
        signature.bind(*arguments, **options)
    except TypeError:
        return str(signature)
    return None


def _keywords(cls: type) -> tuple[list[str], bool]:
    """Return the names of a constructor's own keyword arguments, and whether it takes any other."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    accepted = [p.name for p in parameters if p.kind not in kinds and p.name not in (*STANDARD, *GIVEN)]
    return accepted, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _known(cls: type) -> Iterable[str]:
    """Yield the names of the keyword arguments of a class's constructor, and of those it may hand them on to."""
    for base in cls.__mro__:
        if "__init__" in vars(base):
            accepted, any_name = _keywords(base)
            yield from accepted
            if not any_name:
                return
