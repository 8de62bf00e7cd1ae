"""Models made of a part and the other installed models, for the checks in `company` and for
controls.
"""

from __future__ import annotations

from gymnasium import spaces

from rlcatalog.errors import ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError
from rlcatalog.plugins import Part
from rlcatalog_testing.checks.models import check_outputs, check_trained
from rlcatalog_testing.contract import Subject
from rlcatalog_testing.examples import Example, examples_of, kind_of, named
from rlcatalog_testing.passes import ModelTrial

#: Errors from parts that cannot be combined; any other error is a fault.
REFUSALS = (ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError)


def others(subject: Subject, slot: str) -> list[Part]:
    """Return the other installed models for a slot that support the part's framework."""
    models = [
        model
        for model in subject.catalog.parts("model")
        if subject.framework in (None, *model.frameworks)
    ]
    return [model for model in models if model is not subject.part and kind_of(model) == slot]


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
    works = False
    for example in examples_of(other, subject.catalog)[:1]:
        mine = subject.examples[0]
        theirs = named(other, example)
        if outside:
            joined = _join(mine, theirs, subject, outside=other)
        else:
            joined = _join(theirs, mine, subject, outside=subject.part)
        works |= works_for(subject, joined, subject.part, other)
    return works


def _join(inner: Example, outer: Example, subject: Subject, outside: Part) -> Example:
    """Return an example in which a memory or head wraps a different example's model.

    The outer model receives the part of the observation that the head claims; the inner model
    receives all other parts.
    """
    resolution, config = subject.resolve(outer), {**outer.config, **inner.config}
    if kind_of(outside) == "memory":
        return Example(inner.obs, inner.action, config, inner.draw)
    claimed = resolution.unclaimed.claimed if resolution.unclaimed is not None else ()
    taken = {*claimed, resolution.mask_key} - {None}
    if not taken:
        return Example(inner.obs, outer.action, config)
    assert isinstance(outer.obs, spaces.Dict)
    kept = {key: space for key, space in outer.obs.spaces.items() if key in taken}
    return Example(spaces.Dict({**kept, "rest": inner.obs}), outer.action, config)


def works_for(subject: Subject, example: Example, *members: Part) -> bool:
    """Check a model made of several parts; return False if the parts are not chosen together or
    cannot be combined.
    """
    try:
        chosen = list(subject.resolve(example).parts())
        if not all(member in chosen for member in members):
            return False
        trial = ModelTrial(subject, example)
    except REFUSALS:
        return False
    check_outputs(trial)
    check_trained(trial)
    return True
