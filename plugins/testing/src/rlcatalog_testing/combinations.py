"""Models made of a part and the other installed models, for the checks in `company` and for
controls.
"""

from __future__ import annotations

from gymnasium import spaces

from rlcatalog.errors import ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError
from rlcatalog.plugins import Part
from rlcatalog_testing.checks.models import check_outputs, check_trained
from rlcatalog_testing.contract import Subject
from rlcatalog_testing.examples import Example, examples_of, named
from rlcatalog_testing.passes import ModelTrial

#: Errors from parts that cannot be combined; any other error is a fault.
REFUSALS = (ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError)


def others(subject: Subject, slot: str) -> list[Part]:
    """Return the other installed models for a slot that support the part's framework."""
    models = []
    for model in subject.catalog.parts("model"):
        has_code = subject.framework is None or subject.framework in model.frameworks
        if has_code and model is not subject.part and model.slot == slot:
            models.append(model)
    return models


def works_with(subject: Subject, other: Part, *, outside: bool) -> bool:
    """Check a part combined with another model.

    Args:
        subject: The part.
        other: The other model.
        outside: Whether the other model is outside the part, rather than inside.

    Returns:
        Whether the two can be combined.

    Raises:
        AssertionError: The combined model returns wrong results.
        CatalogError: One of the two raises an error.
    """
    others_examples = examples_of(other, subject.catalog)
    if not others_examples:
        return False
    mine = subject.examples[0]
    theirs = named(other, others_examples[0])
    if outside:
        joined = _join(subject, inner=mine, outer=theirs, outer_slot=other.slot)
    else:
        joined = _join(subject, inner=theirs, outer=mine, outer_slot=subject.part.slot)
    return works_for(subject, joined, subject.part, other)


def _join(subject: Subject, *, inner: Example, outer: Example, outer_slot: str) -> Example:
    """Return an example in which a memory or head wraps a different example's model.

    The outer model receives the part of the observation that the head claims; the inner model
    receives all other parts.
    """
    config = {**outer.config, **inner.config}
    resolution = subject.resolve(outer)
    if outer_slot == "memory":
        return Example(inner.obs, inner.action, config, inner.draw)
    outer_keys: set[str] = set()
    if resolution.unclaimed is not None:
        outer_keys.update(resolution.unclaimed.hidden_keys)
    if resolution.mask_key is not None:
        outer_keys.add(resolution.mask_key)
    if not outer_keys:
        return Example(inner.obs, outer.action, config)
    assert isinstance(outer.obs, spaces.Dict)
    joined = {key: space for key, space in outer.obs.spaces.items() if key in outer_keys}
    joined["rest"] = inner.obs
    return Example(spaces.Dict(joined), outer.action, config)


def works_for(subject: Subject, example: Example, *members: Part) -> bool:
    """Check a model made of several parts; return False if the parts are not chosen together or
    cannot be combined.
    """
    try:
        parts = list(subject.resolve(example).parts())
        are_chosen = all(member in parts for member in members)
        if not are_chosen:
            return False
        trial = ModelTrial(subject, example)
    except REFUSALS:
        return False
    check_outputs(trial)
    check_trained(trial)
    return True
