"""Construction of one model: what its constructor is given, what it may leave, and what is wrong where it refuses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlcatalog.errors import ConfigError, ModelContractError, nearest
from rlcatalog.models.inside import is_model
from rlcatalog.models.model import ModelV2

#: What every model's constructor takes, in this order.
STANDARD = ("obs_space", "action_space", "num_outputs", "model_config", "name")
#: What `assemble` gives to memories and heads beside those.
GIVEN = ("trunk", "value_trunk", "action_dist")


def construct(
    cls: type,
    standard: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    held: Mapping[str, Any],
    left_out: set[str] | None = None,
) -> ModelV2:
    """Build one model and check that it is one.

    Args:
        cls: The class.
        standard: What every constructor takes.
        kwargs: Keyword arguments of the user's.
        held: Those of `assemble`.
        left_out: Where given, the class is built without the keyword arguments it does not take, as RLlib does, and
            their names are added here.

    Raises:
        ModelContractError: It is no model class, or its constructor does not take what it is given.
        ConfigError: A keyword argument of the user's that it does not take; with `left_out`, one that is close to
            another that it does.
    """
    check_class(cls)
    kwargs = {name: value for name, value in kwargs.items() if name not in (left_out or ())}
    accepted, takes_any = _keywords(cls)
    for name in [name for name in kwargs if not takes_any and name not in accepted]:
        _leave(cls, kwargs, name, left_out)
    while True:
        try:
            model = cls(*standard, **kwargs, **held)
            break
        except TypeError as error:
            # One that takes **kwargs hands them on to a base, which may refuse them.
            refused = _REFUSED.search(str(error))
            if left_out is not None and refused is not None and refused[1] in kwargs:
                _leave(cls, kwargs, refused[1], left_out)
                continue
            if (found := refusal(cls, standard, {**kwargs, **held})) is None:
                raise
            given = ", ".join((*STANDARD, *kwargs, *held))
            raise ModelContractError(
                f"{cls.__name__}.__init__ is given ({given}) and takes {found}; a memory takes trunk=, a head also"
                " value_trunk= and action_dist=."
            ) from error
    if not is_model(model):
        raise ModelContractError(
            f"{cls.__name__}.__init__ must call its base's __init__(obs_space, action_space, num_outputs, model_config,"
            " name); it did not."
        )
    assert isinstance(model, ModelV2)
    return model


_REFUSED = re.compile(r"__init__\(\) got an unexpected keyword argument '(\w+)'")


def check_class(cls: Any) -> None:
    """Raise unless `cls` is a model class.

    Raises:
        ModelContractError: It is not a subclass of TorchModelV2 or TFModelV2.
    """
    if not (isinstance(cls, type) and issubclass(cls, ModelV2) and getattr(cls, "framework_of_class", None)):
        raise ModelContractError(f"{cls!r} must be a subclass of rlcatalog_torch.TorchModelV2 or"
                                 " rlcatalog_tf.TFModelV2.")  # fmt: skip


def refusal(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> str | None:
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


def _leave(cls: type, kwargs: dict[str, Any], name: str, left_out: set[str] | None) -> None:
    """Take out a keyword argument that is not taken.

    Raises:
        ConfigError: None may be left out, or this one is close to one that is taken: misspelt.
    """
    accepted = list(_known(cls))
    near = nearest(name, accepted)
    if left_out is None or near:
        raise ConfigError(f"custom_model_config: {cls.__name__} takes no {name!r}.{near}"
                          f" Accepted: {', '.join(accepted) or 'none'}.")  # fmt: skip
    del kwargs[name]
    left_out.add(name)
