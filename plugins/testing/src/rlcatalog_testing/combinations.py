"""Models made of a part and the other installed models, for the checks in `company` and for
controls.
"""

from __future__ import annotations

from gymnasium import spaces

from rlcatalog.errors import ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError
from rlcatalog.plugins import Component
from rlcatalog_testing.checks.models import check_outputs, check_trained
from rlcatalog_testing.contract import Part
from rlcatalog_testing.examples import Example, examples_of, kind_of, named
from rlcatalog_testing.passes import ModelTrial

#: Errors from parts that cannot be combined; any other error is a fault.
REFUSALS = (ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError)


def others(part: Part, slot: str) -> list[Component]:
    """Return the other installed models for a slot that support the part's framework."""
    models = [
        model
        for model in part.catalog.components("model")
        if part.framework in (None, *model.frameworks)
    ]
    return [model for model in models if model is not part.component and kind_of(model) == slot]


def works_with(part: Part, other: Component, *, outside: bool) -> bool:
    """Check a part combined with another model.

    Args:
        part: The part.
        other: The other model.
        outside: Whether the other model is outside the part, rather than inside.

    Returns:
        Whether the two can be combined.

    Raises:
        AssertionError: The combined model returns wrong results.
        CatalogError: One of the two raises an error.
    """
    works = False
    for example in examples_of(other, part.catalog)[:1]:
        mine = part.examples[0]
        theirs = named(other, example)
        if outside:
            joined = _join(mine, theirs, part, outside=other)
        else:
            joined = _join(theirs, mine, part, outside=part.component)
        works |= works_for(part, joined, part.component, other)
    return works


def _join(inner: Example, outer: Example, part: Part, outside: Component) -> Example:
    """Return an example in which a memory or head wraps a different example's model.

    The outer model receives the part of the observation that the head claims; the inner model
    receives all other parts.
    """
    resolution, config = part.resolve(outer), {**outer.config, **inner.config}
    if kind_of(outside) == "memory":
        return Example(inner.obs, inner.action, config, inner.draw)
    claimed = resolution.unclaimed.claimed if resolution.unclaimed is not None else ()
    taken = {*claimed, resolution.mask_key} - {None}
    if not taken:
        return Example(inner.obs, outer.action, config)
    assert isinstance(outer.obs, spaces.Dict)
    kept = {key: space for key, space in outer.obs.spaces.items() if key in taken}
    return Example(spaces.Dict({**kept, "rest": inner.obs}), outer.action, config)


def works_for(part: Part, example: Example, *members: Component) -> bool:
    """Check a model made of several parts; return False if the parts are not chosen together or
    cannot be combined.
    """
    try:
        chosen = list(part.resolve(example).parts())
        if not all(member in chosen for member in members):
            return False
        trial = ModelTrial(part, example)
    except REFUSALS:
        return False
    check_outputs(trial)
    check_trained(trial)
    return True
