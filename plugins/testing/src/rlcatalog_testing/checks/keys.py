"""Checks for config keys: a model reads exactly the keys that it declares."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from rlcatalog.errors import CatalogError, ConfigError, NotServedError, UnsupportedSpaceError
from rlcatalog.internals import PLAIN_KEYS, Key
from rlcatalog.models import weights_of
from rlcatalog.plugins import Part
from rlcatalog_testing.changes import changes
from rlcatalog_testing.contract import Subject, check, require
from rlcatalog_testing.examples import Example, quiet
from rlcatalog_testing.passes import ModelTrial, array_of, kit_of

MODELS = ("trunk", "memory", "head")
#: The kernel's keys that change batches, observations, names and the order of a model's layers, but
#: not what a single part computes.
ELSEWHERE = (
    "max_seq_len", "_time_major", "check_observations", "action_mask_key", "custom_model",
    "custom_model_config", "memory", "memory_config", "custom_action_dist", "custom_preprocessor",
    "observation_filter", "action_bounds", "memory_first",
)  # fmt: skip
#: Errors that reject a combination of keys, which also counts as an effect.
_REFUSALS = (ConfigError, NotServedError, UnsupportedSpaceError)
#: The example's own config.
NO_CHANGE: Mapping[str, Any] = {}


def _declared_keys(subject: Subject) -> list[Key]:
    """Return the declared keys that change a part's outputs; for plain modules, rlcatalog declares
    the keys.

    The part's own switch is left out: it chooses the part, and has no effect on a part that the
    config names. The check `has_a_way_in` covers it.
    """
    keys = subject.catalog.schema.keys
    ignored = set(ELSEWHERE)
    if subject.part.switch is not None:
        ignored.add(subject.part.switch)
    if subject.part.is_plain:
        ignored.update(PLAIN_KEYS)
    names = subject.catalog.config_keys(subject.part)
    return [keys[name] for name in names if name in keys and name not in ignored]


def _declares_keys(subject: Subject) -> bool:
    return bool(_declared_keys(subject))


@check(
    *MODELS,
    hint="read the key when the model is built, or leave it out of config and reads; if a key only"
    " matters for some spaces or together with another key, declare an Example with it",
    every_framework=False,
    where=_declares_keys,
)
def declared_keys_have_an_effect(subject: Subject) -> None:
    """A different value for a declared key changes the shapes, the weights or the outputs, or is
    rejected. The part's switch is left out, because the check `has_a_way_in` tests it.
    """
    idle = [key.name for key in _declared_keys(subject) if not _has_effect(subject, key)]
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
    for example in subject.few:
        single_changes = list(_undeclared_changes(subject, example))
        all_changes: dict[str, Any] = {}
        for change in single_changes:
            all_changes.update(change)
        before = _fingerprint(subject, example)
        if _fingerprint(subject, example, all_changes) == before:
            continue  # together they have no effect, so no single one is tried
        for change in single_changes:
            after = _fingerprint(subject, example, change)
            is_rejected = after is None
            require(
                is_rejected or after == before,
                f"{example}: {change} changes the model, which does not declare it",
            )


def _undeclared_changes(subject: Subject, example: Example) -> Iterator[dict[str, Any]]:
    """Yield a config with another value for each key that none of an example's parts declares."""
    catalog = subject.catalog
    parts = _parts_for(subject, example, example.config)
    declared: set[str] = set()
    for part in parts:
        declared.update(catalog.config_keys(part))
    for name, key in catalog.schema.keys.items():
        if name in declared or name in ELSEWHERE:
            continue
        for change in changes(key, catalog, example.config):
            # If another part is chosen for a request, the key belongs to that part.
            if _parts_for(subject, example, {**example.config, **change}) == parts:
                yield change
                break


def _has_effect(subject: Subject, key: Key) -> bool:
    """Return whether a key has an effect in some example, either on its own or together with
    another changed key.
    """
    with_key = [example for example in subject.examples if key.name in example.config]
    if any(_differs_without_key(subject, example, key) for example in with_key):
        return True
    first_examples = [*subject.few, *with_key]
    if any(_differs_with_change(subject, example, key) for example in first_examples):
        return True
    if _has_effect_with_another(subject, key):
        return True
    # The other examples come last, because each takes time.
    rest = [example for example in subject.examples if example not in subject.few]
    return any(_differs_with_change(subject, example, key) for example in rest)


def _differs_without_key(subject: Subject, example: Example, key: Key) -> bool:
    """Return whether an example's model differs when its config lacks a key, with the key's
    `…_config`.
    """
    config = {}
    for name, value in example.config.items():
        if not name.startswith(key.name):
            config[name] = value
    without_key = Example(example.obs, example.action, config, example.draw)
    return _fingerprint(subject, without_key) != _fingerprint(subject, example)


def _has_effect_with_another(subject: Subject, key: Key) -> bool:
    """Return whether a key has an effect in the first example when another key has a different
    value; only four other keys are tried.
    """
    example = subject.examples[0]
    others = [other for other in _declared_keys(subject) if other.name != key.name]
    # Keys with the same first word come first, such as fcnet_activation for fcnet_hiddens.
    first_word = _first_word(key)
    others.sort(key=lambda other: _first_word(other) != first_word)
    for other in others[:4]:
        change = next(changes(other, subject.catalog, example.config), None)
        if change is None or _fingerprint(subject, example, change) is None:
            continue
        if _differs_with_change(subject, example, key, beside=change):
            return True
    return False


def _first_word(key: Key) -> str:
    return key.name.split("_")[0]


def _differs_with_change(
    subject: Subject, example: Example, key: Key, beside: Mapping[str, Any] = NO_CHANGE
) -> bool:
    """Return whether one of the first changes to a key either changes an example's model or is
    rejected.

    Args:
        subject: The part.
        example: The example.
        key: The key.
        beside: Changes to other keys, which both models have.
    """
    before = _fingerprint(subject, example, beside)
    all_changes = changes(key, subject.catalog, {**example.config, **beside})
    for change in islice(all_changes, 3):
        if _fingerprint(subject, example, {**beside, **change}) != before:
            return True
    return False


def _parts_for(subject: Subject, example: Example, config: Mapping[str, Any]) -> list[Part]:
    """Return the parts chosen for a config, including the models inside them; empty if the config
    is rejected.
    """
    try:
        resolution = subject.resolve(example, config)
        with quiet():
            pinned = resolution.pinned_keys()
        parts = list(resolution.parts())
        for value in pinned.values():
            # Path of a part of the observation → name of its model.
            if isinstance(value, dict):
                parts += [subject.catalog.registry.get("model", name) for name in value.values()]
    except CatalogError:
        return []
    return parts


def _fingerprint(
    subject: Subject, example: Example, config: Mapping[str, Any] = NO_CHANGE
) -> str | None:
    """Return a hash of the model for a config (weights, outputs, requested inputs), or None if the
    config is rejected.

    Args:
        subject: The part.
        example: The example.
        config: Keys that are added to the example's config.
    """
    key = ("print", subject.framework, str(example), str(config))
    return subject.once(key, lambda: _compute_fingerprint(subject, example, config))


def _compute_fingerprint(
    subject: Subject, example: Example, config: Mapping[str, Any]
) -> str | None:
    kit = kit_of(str(subject.framework))
    kit.seed(1)
    try:
        with warnings.catch_warnings(action="ignore"):
            policy = subject.build(example, **config)
    except _REFUSALS:
        return None
    trial = ModelTrial(subject, example, policy)
    step = trial.run(trial.encoded(3))
    kit.seed(2)
    evaluation = policy.evaluate(trial.batch(4))
    assert evaluation.entropy is not None
    memory_shapes = [array.shape for array in policy.memory.initial]
    views = sorted(policy.model.view_requirements)
    digest = hashlib.sha256()
    digest.update(repr([memory_shapes, views, evaluation.entropy_kind]).encode())
    for name, array in weights_of(policy.model).items():
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    results = [step.outputs, *step.state]
    if step.value is not None:
        results.append(step.value)
    # A head's weights may belong to its distribution.
    results.append(array_of(evaluation.logp))
    results.append(array_of(evaluation.entropy))
    for array in results:
        digest.update(np.round(array.astype(np.float64), 5).tobytes())
    return digest.hexdigest()
