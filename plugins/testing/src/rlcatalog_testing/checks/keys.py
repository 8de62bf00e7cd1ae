"""Checks for config keys: a model reads exactly the keys that it declares."""

from __future__ import annotations

import hashlib
import types
import typing
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

import numpy as np

from rlcatalog.catalog import Catalog
from rlcatalog.config import ACTIVATIONS, INITIALIZERS, convert, same
from rlcatalog.errors import CatalogError, ConfigError, NotServedError, UnsupportedSpaceError
from rlcatalog.internals import PLAIN_KEYS, Key
from rlcatalog.models import weights_of
from rlcatalog_testing.contract import Subject, check, require
from rlcatalog_testing.examples import Example, quiet
from rlcatalog_testing.passes import ModelTrial, array_of, kit_of

MODELS = ("trunk", "memory", "head")
#: The kernel's keys that change batches, observations and names, but not a model's outputs.
ELSEWHERE = (
    "max_seq_len", "_time_major", "check_observations", "action_mask_key", "custom_model",
    "custom_model_config", "custom_action_dist", "custom_preprocessor", "observation_filter",
    "action_bounds",
)  # fmt: skip
#: Errors that reject a combination of keys, which also counts as an effect.
_REFUSALS = (ConfigError, NotServedError, UnsupportedSpaceError)


@check(
    *MODELS,
    hint="read the key when the model is built, or leave it out of config and reads; if a key only"
    " matters for some spaces or together with another key, declare an Example with it",
    every_framework=False,
    where=lambda subject: bool(_declared(subject)),
)
def declared_keys_have_an_effect(subject: Subject) -> None:
    """A different value for a declared key changes the shapes, the weights or the outputs, or is
    rejected.
    """
    idle = [key.name for key in _declared(subject) if not _acts(subject, key)]
    require(
        not idle, f"these declared keys change nothing in any of its examples: {', '.join(idle)}"
    )


@check(
    *MODELS,
    hint="declare the key: in config if the package owns it, otherwise in reads",
    every_framework=False,
)
def undeclared_keys_have_none(subject: Subject) -> None:
    """Other keys do not change the model."""
    keys = subject.catalog.schema.keys
    for example in subject.few:
        chosen = list(_parts(subject, example.config, example))
        known = {name for part in chosen for name in subject.catalog.config_keys(part)}
        changed = []
        for key in [keys[name] for name in keys if name not in known and name not in ELSEWHERE]:
            for config in changes(key, subject.catalog, example.config):
                # If another part is chosen for a request, the key belongs to that part.
                if _parts(subject, {**example.config, **config}, example) == chosen:
                    changed.append(config)
                    break
        before, at_once = (
            _print(subject, example, {}),
            {key: value for config in changed for key, value in config.items()},
        )
        if _print(subject, example, at_once) == before:
            continue
        for config in changed:
            after = _print(subject, example, config)
            require(
                after in (before, None),
                f"{example}: {config} changes the model, which does not declare it",
            )


def _declared(subject: Subject) -> list[Key]:
    """Return the declared keys that change a part's outputs; for plain modules, rlcatalog declares
    the keys.
    """
    keys = subject.catalog.schema.keys
    names = subject.catalog.config_keys(subject.part)
    others = PLAIN_KEYS if getattr(subject.part.declaration, "plain", False) else ()
    return [keys[name] for name in names if name in keys and name not in (*ELSEWHERE, *others)]


def _acts(subject: Subject, key: Key) -> bool:
    """Return whether a key has an effect in some example, either on its own or together with
    another changed key.
    """
    setting = [example for example in subject.examples if key.name in example.config]
    for example in setting:  # the author has set it: compare with the config without it
        rest = {
            name: value for name, value in example.config.items() if not name.startswith(key.name)
        }
        if _print(subject, Example(example.obs, example.action, rest, example.draw), {}) != _print(
            subject, example, {}
        ):
            return True
    first = subject.examples[0]
    if any(_differs(subject, example, key, {}) for example in (*subject.few, *setting)):
        return True
    others = [other for other in _declared(subject) if other.name != key.name]
    # Similar keys first.
    others.sort(key=lambda other: other.name.split("_")[0] != key.name.split("_")[0])
    for other in others[:4]:
        for beside in islice(changes(other, subject.catalog, first.config), 1):
            if _print(subject, first, beside) is not None and _differs(subject, first, key, beside):
                return True
    return any(
        _differs(subject, example, key, {})
        for example in subject.examples
        if example not in subject.few
    )


def _differs(subject: Subject, example: Example, key: Key, beside: Mapping[str, Any]) -> bool:
    """Return whether one of the first changes to a key either changes an example's model or is
    rejected.
    """
    before = _print(subject, example, beside)
    first = islice(changes(key, subject.catalog, {**example.config, **beside}), 3)
    return any(_print(subject, example, {**beside, **change}) != before for change in first)


def _parts(subject: Subject, config: Mapping[str, Any], example: Example) -> list[Any]:
    """Return the parts chosen for a config, including the models inside them; empty if the config
    is rejected.
    """
    try:
        chosen = subject.resolve(example, config)
        with quiet():
            nets = [value for value in chosen.pinned_keys().values() if isinstance(value, dict)]
        held = [
            subject.catalog.registry.get("model", name) for net in nets for name in net.values()
        ]
        return [*chosen.parts(), *held]
    except CatalogError:
        return []


def _print(subject: Subject, example: Example, config: Mapping[str, Any]) -> str | None:
    """Return a fingerprint of the model for a config (weights, outputs, requested inputs), or None
    if rejected.
    """
    key = ("print", subject.framework, str(example), str(config))
    return subject.once(key, lambda: _make_print(subject, example, config))


def _make_print(subject: Subject, example: Example, config: Mapping[str, Any]) -> str | None:
    kit = kit_of(str(subject.framework))
    kit.seed(1)
    try:
        with warnings.catch_warnings(action="ignore"):
            policy = subject.build(example, **config)
    except _REFUSALS:
        return None
    trial = ModelTrial(subject, example, policy)
    answer = trial.run(trial.encoded(3))
    kit.seed(2)
    scores = policy.evaluate(trial.batch(4))
    shapes = [array.shape for array in policy.memory.initial]
    pieces = [repr([shapes, sorted(policy.model.view_requirements), scores.entropy_kind]).encode()]
    for name, array in weights_of(policy.model).items():
        pieces.append(f"{name}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    # A head's weights may belong to its distribution.
    numbers = [
        answer.outputs,
        answer.value,
        *answer.state,
        array_of(scores.logp),
        array_of(scores.entropy),
    ]
    pieces += [
        np.round(array.astype(np.float64), 5).tobytes() for array in numbers if array is not None
    ]
    return hashlib.sha256(b"".join(pieces)).hexdigest()


#: Values tried for keys of any type: names of an activation and an initialiser.
_NAMES = ("relu", "tanh", "normc", "uniform", "constant")


def changes(key: Key, catalog: Catalog, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield configs in which one key has a different valid value.

    The arguments of an initialiser, under `…_config`, are set together with the initialiser.

    Args:
        key: The key.
        catalog: The catalog whose schema the configs must satisfy.
        given: The original config.
    """
    now = given.get(key.name, key.default)
    whole, arguments = key.name.removesuffix("_config"), []
    if whole != key.name and whole in catalog.schema.keys:
        arguments = [
            {whole: name, key.name: {argument: number + 0.25}}
            for name in ("normc", "constant", "uniform")
            for argument, number in list(INITIALIZERS[name].items())[-1:]
        ]
    for config in (*arguments, *({key.name: value} for value in _values(key.type, now))):
        if not same(config[key.name], now):
            with suppress(CatalogError):
                convert(config[key.name], key)
                catalog.parse_config({**given, **config})
                yield config


def _values(kind: Any, now: Any) -> Iterator[Any]:
    """Yield values of a type, beginning with the values most likely to have an effect."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        yield from _values(inside[0], now)
    elif origin in (typing.Union, types.UnionType):
        for one in inside:
            yield from _values(one, now)
    elif origin is Literal:
        yield from inside
    else:
        values: dict[Any, Sequence[Any]] = {
            Any: (*_NAMES, *ACTIVATIONS),
            bool: (True, False),
            int: (now + 1, now - 1) if type(now) is int else (3, 1),
            float: (now + 0.5, now / 2, now - 0.5) if type(now) in (int, float) else (0.5,),
            str: (f"{now}_other" if now else "other",),
            list: ([7, 5], [7], [0.5, 0.25], [0.5], ["other"]),
            type(None): (None,),
        }
        yield from values.get(origin or kind, ())
