"""Registration of the running program's classes, and pickling of catalogs: methods of `Catalog`."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcatalog.choice.in_process import in_process, path_of
from rlcatalog.plugins import Component

if TYPE_CHECKING:
    from rlcatalog.catalog.catalog import Catalog


def register_model(
    catalog: Catalog,
    name: str,
    cls: Any = None,
    *,
    slot: str | None = None,
    match: Callable[..., Any] | None = None,
    switch: str | None = None,
    describe: Callable[..., Any] | None = None,
    config: type | None = None,
    reads: tuple[str, ...] = (),
) -> Any:
    """Register a model class under a name for `custom_model`; without a class, return a decorator
    that does.

    Args:
        name: The name.
        cls: The model class, or a plain module as a class, an instance or a function that creates
            one. If None, the method returns a decorator.
        slot: `"trunk"`, `"memory"` or `"head"`; if None, the class's own slot.
        match: A function that returns whether, how well and why the class fits a request. If None,
            the class is chosen only by name or by its switch.
        switch: Config key that turns the class on.
        describe: A function that returns the model's stages and their shapes for a request.
        config: A msgspec struct that defines the class's config keys.
        reads: Other config keys that the class reads. Without `reads` and `config`, rlcatalog
            assumes that it reads every key.

    Returns:
        The class, or a decorator that returns it.

    Example:
        >>> @rlcatalog.register_model("my_net")
        ... class MyNet(torch.nn.Sequential):
        ...     def __init__(self, width=32):
        ...         super().__init__(torch.nn.Linear(4, width), torch.nn.Tanh())
        >>> rlcatalog.build(env="CartPole-v1", config={"custom_model": "my_net"}).model_name
        'MyNet'
    """
    fields = {"slot": slot, "match": match, "switch": switch, "describe": describe}
    return _register(catalog, "model", name, cls, config, reads=reads, **fields)


def register_action_dist(
    catalog: Catalog,
    name: str,
    cls: Any = None,
    *,
    match: Callable[..., Any] | None = None,
    config: type | None = None,
    reads: tuple[str, ...] = (),
    num_inputs: int | Callable[[Any], int] | None = None,
) -> Any:
    """Register a distribution class for `custom_action_dist`, or return a decorator; see
    `register_model`.

    A class of `torch.distributions` is accepted if its `arg_constraints` define how model outputs
    become parameters. For other classes pass `num_inputs`: the number of model outputs, or a
    function of the action space that returns it. The class, or a function in its place, is called
    with the outputs `[B, num_inputs]` and returns the distribution.

    Example:
        >>> rlcatalog.register_action_dist("laplace", torch.distributions.Laplace)
        <class 'torch.distributions.laplace.Laplace'>
        >>> policy = rlcatalog.build(env="Pendulum-v1", config={"custom_action_dist": "laplace"})
        >>> policy.act([[1.0, 0.0, 0.0]]).action.shape
        (1, 1)
    """
    return _register(
        catalog, "action_dist", name, cls, config, reads=reads, match=match, num_inputs=num_inputs
    )


def register_preprocessor(
    catalog: Catalog,
    name: str,
    cls: Any = None,
    *,
    match: Callable[..., Any] | None = None,
    kinds: tuple[str, ...] = (),
    config: type | None = None,
    reads: tuple[str, ...] = (),
) -> Any:
    """Register a preprocessor class for `custom_preprocessor`, or return a decorator; see
    `register_model`.

    With `match`, or with `kinds` of spaces, the class is also chosen for spaces inside a Dict or
    Tuple.

    Example:
        >>> @rlcatalog.register_preprocessor("half")
        ... class Half(Preprocessor):
        ...     def _init_shape(self, obs_space, options): return obs_space.shape
        ...     def transform(self, observation): return observation / 2
        >>> policy = rlcatalog.build(env="CartPole-v1", config={"custom_preprocessor": "half"})
        >>> policy.preprocess([[2.0, 0.0, 0.0, 0.0]])
        array([[1., 0., 0., 0.]], dtype=float32)
    """
    return _register(
        catalog, "preprocessor", name, cls, config, reads=reads, match=match, kinds=kinds or None
    )


def register_filter(
    catalog: Catalog,
    name: str,
    cls: Any = None,
    *,
    config: type | None = None,
    reads: tuple[str, ...] = (),
) -> Any:
    """Register a filter class for `observation_filter`, or return a decorator; see
    `register_model`.
    """
    return _register(catalog, "filter", name, cls, config, reads=reads)


def _register(
    catalog: Catalog, kind: str, name: str, cls: type | None, config: type | None, **fields: Any
) -> Any:
    """Register a class, or return a decorator that does."""

    def register(cls: type) -> type:
        path = None if config is None else path_of(config)
        catalog.register(in_process(kind, cls, name, config=path, **fields), config=config)
        return cls

    return register if cls is None else register(cls)


# --- in other processes ---------------------------------------------------------------------------

#: Pickled catalogs, by a name that is the same in all processes.
_ALIVE: weakref.WeakValueDictionary[str, Catalog] = weakref.WeakValueDictionary()
_RESTORING = threading.RLock()


def pickled(
    catalog: Catalog, used: Sequence[str] | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function that recreates the catalog in another process, and its arguments.

    The arguments are the catalog's own arguments and the registered components. In a process that
    already has the catalog, the function returns the same object.

    Args:
        used: Names of the registered components to include; None includes all.
    """
    with catalog._changing:
        _ALIVE[catalog._name] = catalog
        registered = [
            (c, catalog.registry.config_paths.get(c.declaration.config or ""))
            for c in catalog.registry
            if c.in_process and (used is None or c.address in used)
        ]
    environ = None if catalog.environ is os.environ else catalog.environ
    return _restored, (
        type(catalog),
        catalog._name,
        catalog._given,
        environ,
        catalog._preferred,
        registered,
    )


def _restored(
    cls: Any,
    name: str,
    entry_points: tuple[Any, ...] | None,
    environ: Mapping[str, str] | None,
    prefer: Sequence[str],
    registered: Sequence[tuple[Component, type | None]],
) -> Any:
    with _RESTORING:
        if (catalog := _ALIVE.get(name)) is None:
            catalog = cls(entry_points, environ=environ, prefer=prefer)
            catalog._name, _ALIVE[name] = name, catalog
        there = {(c.kind, c.name) for c in catalog.registry if c.in_process}
        for component, struct in registered:  # there may be more than in an earlier pickle
            if (component.kind, component.name) not in there:
                catalog.register(component, config=struct)
    return catalog
