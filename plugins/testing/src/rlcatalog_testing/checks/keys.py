"""Checks of config keys: what a model declares to read it reads, and nothing else."""

from __future__ import annotations

import hashlib
import types
import typing
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import numpy as np

from rlcatalog.catalog import Catalog
from rlcatalog.config import ACTIVATIONS, INITIALIZERS, convert, same
from rlcatalog.errors import CatalogError, ConfigError, NotServedError, UnsupportedSpaceError
from rlcatalog.internals import Key
from rlcatalog.models import weights_of
from rlcatalog_testing.contract import Part, check, require
from rlcatalog_testing.examples import Example, parts_in, quiet
from rlcatalog_testing.passes import array_of, batch_of, encoded_of, kit_of, run

MODELS = ("trunk", "memory", "head")
#: The kernel's keys that change batches, observations and names, not what a model computes.
ELSEWHERE = frozenset(
    {
        "max_seq_len", "_time_major", "check_observations", "action_mask_key", "custom_model", "custom_model_config",
        "custom_action_dist", "custom_preprocessor", "observation_filter", "action_bounds",
    }
)  # fmt: skip
#: How a combination is refused: an effect, too.
_REFUSALS = (ConfigError, NotServedError, UnsupportedSpaceError)


@check(
    *MODELS,
    hint="read the key where the model is built, or leave it out of config and reads; where a key acts only on some"
    " spaces or beside another key, declare an Example with it",
    every_framework=False,
    where=lambda part: bool(_declared(part)),
)
def declared_keys_have_an_effect(part: Part) -> None:
    """Another value of a declared key changes the shapes, the weights or the outputs, or is refused."""
    idle = [key.name for key in _declared(part) if not _acts(part, key)]
    require(not idle, f"these declared keys change nothing in any of its examples: {', '.join(idle)}")


@check(*MODELS, hint="declare the key: in config where it is the package's own, else in reads", every_framework=False)
def undeclared_keys_have_none(part: Part) -> None:
    """No other key changes what the model is."""
    keys = part.catalog.schema.keys
    for example in part.few:
        chosen = list(_parts(part, example.config, example))
        known = {name for component in chosen for name in part.catalog.config_keys(component)}
        changed = []
        for key in [keys[name] for name in keys if name not in known and name not in ELSEWHERE]:
            for config in changes(key, keys, part.catalog, example.config):
                # Where another part is chosen for it the key is that part's.
                if _parts(part, {**example.config, **config}, example) == chosen:
                    changed.append(config)
                    break
        before, at_once = _print(part, example, {}), {key: value for config in changed for key, value in config.items()}
        if _print(part, example, at_once) == before:
            continue
        for config in changed:
            after = _print(part, example, config)
            require(after in (before, None), f"{example}: {config} changes the model, which does not declare it")


def _declared(part: Part) -> list[Key]:
    """Return the keys that a part declares and that change what it computes."""
    keys = part.catalog.schema.keys
    names = part.catalog.config_keys(part.component)
    return [keys[name] for name in names if name in keys and name not in ELSEWHERE]


def _acts(part: Part, key: Key) -> bool:
    """Whether a key has an effect in some example, alone or beside another of its keys that is changed."""
    setting = [example for example in part.examples if key.name in example.config]
    for example in setting:  # its author has set it: seen against the config without it
        rest = {name: value for name, value in example.config.items() if not name.startswith(key.name)}
        if _print(part, Example(example.obs, example.action, rest, example.draw), {}) != _print(part, example, {}):
            return True
    first = part.examples[0]
    if any(_differs(part, example, key, {}) for example in (*part.few, *setting)):
        return True
    keys = part.catalog.schema.keys
    others = [keys[name] for name in part.catalog.config_keys(part.component) if name in keys and name != key.name]
    others.sort(key=lambda other: other.name.split("_")[0] != key.name.split("_")[0])  # those like it first
    for other in others[:4]:
        for beside in _changes(part, first, other, {})[:1]:
            if _print(part, first, beside) is not None and _differs(part, first, key, beside):
                return True
    return any(_differs(part, example, key, {}) for example in part.examples if example not in part.few)


def _differs(part: Part, example: Example, key: Key, beside: Mapping[str, Any]) -> bool:
    """Whether one of the first changes of a key changes the model of an example, or is refused."""
    before = _print(part, example, beside)
    return any(
        _print(part, example, {**beside, **change}) != before for change in _changes(part, example, key, beside)[:3]
    )


def _changes(part: Part, example: Example, key: Key, beside: Mapping[str, Any]) -> list[dict[str, Any]]:
    keys = part.catalog.schema.keys
    return list(islice(changes(key, keys, part.catalog, {**example.config, **beside}), 3))


def _parts(part: Part, config: Mapping[str, Any], example: Example) -> list[Any]:
    """Return the parts chosen under a config, the models that they hold included; none where it is refused."""
    try:
        with quiet():
            found = part.catalog.resolve(example.obs, example.action, config, part.framework)
            pinned = [value for value in found.pinned_keys().values() if isinstance(value, dict)]
            held = [name for nets in pinned for name in nets.values()]
            return [*parts_in(found), *(part.catalog.registry.get("model", name) for name in held)]
    except CatalogError:
        return []


def _print(part: Part, example: Example, config: Mapping[str, Any]) -> str | None:
    """Return a fingerprint of the model under a config: weights, outputs, what it asks for; None where refused."""
    shared = part.shared.setdefault("prints", {})
    key = (part.framework, str(example), str(config))
    if key not in shared:
        shared[key] = _make_print(part, example, config)
    found: str | None = shared[key]
    return found


def _make_print(part: Part, example: Example, config: Mapping[str, Any]) -> str | None:
    kit = kit_of(str(part.framework))
    kit.seed(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            policy = part.build(example, **config)
    except _REFUSALS:
        return None
    digest = hashlib.sha256()
    for name, array in weights_of(policy.model).items():
        digest.update(f"{name}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    digest.update(repr([part.shape for part in policy.memory.initial]).encode())
    digest.update(repr(sorted(policy.model.view_requirements)).encode())
    found = run(policy, encoded_of(policy, example, 3))
    for part_ in (found.outputs, *([] if found.value is None else [found.value]), *found.state):
        digest.update(np.round(part_.astype(np.float64), 5).tobytes())
    kit.seed(2)
    scored = policy.evaluate(batch_of(policy, example, 4))
    digest.update(scored.entropy_kind.encode())
    for tensor in (scored.logp, scored.entropy):  # a head's weights may be its distribution's
        digest.update(np.round(array_of(tensor).astype(np.float64), 5).tobytes())
    return digest.hexdigest()


#: Tried for keys of any type: names of an activation or an initialiser.
_NAMES = ("relu", "tanh", "normc", "uniform", "constant")


def changes(key: Key, keys: Mapping[str, Key], catalog: Catalog, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield configs in which a key has another legal value than it has.

    Args:
        key: The key.
        keys: All keys by name: the arguments of an initialiser, under `…_config`, come with the initialiser.
        catalog: Whose schema they must pass.
        given: The config they are changes of.
    """
    now = given.get(key.name, key.default)
    whole, arguments = key.name.removesuffix("_config"), []
    if whole != key.name and whole in keys:
        arguments = [
            {whole: name, key.name: {argument: number + 0.25}}
            for name in ("normc", "constant", "uniform")
            for argument, number in list(INITIALIZERS[name].items())[-1:]
        ]
    candidates = [*arguments, *({key.name: value} for value in _values(key.type, now))]
    for config in candidates:
        if same(config[key.name], now):
            continue
        try:
            convert(config[key.name], key)
            catalog.parse_config({**given, **config})
        except CatalogError:
            continue
        yield config


def _values(kind: Any, now: Any) -> Iterator[Any]:
    """Yield values of a type, the likeliest to differ first."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        yield from _values(typing.get_args(kind)[0], now)
    elif origin in (typing.Union, types.UnionType):
        for one in typing.get_args(kind):
            yield from _values(one, now)
    elif origin is Literal:
        yield from typing.get_args(kind)
    elif kind is Any:
        yield from _NAMES
        yield from ACTIVATIONS
    elif kind is bool:
        yield from (True, False)
    elif kind is int:
        yield from (now + 1, now - 1) if type(now) is int else (3, 1)
    elif kind is float:
        yield from (now + 0.5, now / 2, now - 0.5) if type(now) in (int, float) else (0.5,)
    elif kind is str:
        yield from (f"{now}_other",) if now else ("other",)
    elif origin is list or kind is list:
        yield from ([7, 5], [7], [0.5, 0.25], [0.5], ["other"])
    elif kind is type(None):
        yield None
