"""Controls, which tell the faults of other packages from those of the part under test.

If a check fails, the cause may be a part of another package that was built together with the part
under test. A control does the same without the part under test: a fault that remains belongs to the
other package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from rlcatalog import Catalog, ModelSpec
from rlcatalog.errors import CatalogError, PartError, reason
from rlcatalog.internals import find_plugins
from rlcatalog.plugins import Part
from rlcatalog_testing.checks.models import check_outputs, check_trained
from rlcatalog_testing.combinations import others, works_with
from rlcatalog_testing.contract import Check, NotApplicable, Subject
from rlcatalog_testing.examples import observations_of, quiet
from rlcatalog_testing.passes import ModelTrial, kit_of, seed

#: Kinds of parts that a policy is built from.
BUILT = ("model", "action_dist", "preprocessor", "action_codec", "filter")
#: Slot of a model → the slots of the models around it.
SLOTS_OUTSIDE = {"trunk": ("memory", "head"), "memory": ("head",), "head": ()}
#: Slot of a model → the slots of the models inside it.
SLOTS_INSIDE = {"trunk": (), "memory": ("trunk",), "head": ("trunk",)}


def fault_elsewhere(
    subject: Subject, error: BaseException, frameworks: Sequence[str]
) -> str | None:
    """Return the fault of another package that explains why a check of a part failed.

    Args:
        subject: The part under test.
        error: The error with which the check failed.
        frameworks: The frameworks in which the check runs the part.

    Returns:
        What is wrong, beginning with the kind and the name of what is faulty; None if the control
        finds no fault outside the part's package.
    """
    for name in frameworks:
        fault = _fault_of_framework(subject, name)
        if fault is not None:
            return fault
    for suspect in _suspects(subject, error):
        fault = fault_without(subject, suspect)
        if fault is not None:
            return fault
    return None


def fault_without(subject: Subject, suspect: Part) -> str | None:
    """Return what is wrong with another package's part when the part under test is not there.

    Args:
        subject: The part under test.
        suspect: The other package's part.

    Returns:
        What is wrong, beginning with the suspect's kind and name; None if it works, or if it cannot
        be used without the part under test.
    """
    key = f"{suspect.kind} {suspect.address} {subject.framework}"
    if key not in subject.faults:
        subject.faults[key] = _control(subject, suspect)
    return subject.faults[key]


def fault_of_check(check: Check, provider: Part, subject: Subject) -> str | None:
    """Return what is wrong with another package's check that failed for the part under test.

    The control is a part of the same kind that the public index lists: a check that also fails for
    this part is faulty.

    Args:
        check: The check.
        provider: The part that brought it.
        subject: The part under test.

    Returns:
        What is wrong, beginning with the check's kind and name; None if the check passes for the
        listed part, or if there is none.
    """
    control = _catalog_without(subject)
    for part in control.parts():
        if not part.is_indexed or part.slot != subject.part.slot:
            continue
        listed = Subject(part, control, subject.framework)
        has_code = subject.framework is None or subject.framework in listed.frameworks
        if not has_code or not _is_usable(listed):
            continue
        try:
            seed(subject.framework)
            check(listed)
        except KeyboardInterrupt:
            raise
        except NotApplicable:
            continue
        except BaseException as error:
            return f"{provider.title}: it also fails for {part.title}: {_what(error)}"
        return None
    return None


def _is_usable(subject: Subject) -> bool:
    """Return whether a part works in its first example."""
    try:
        _use(subject)
    except Exception:
        return False
    return True


def _fault_of_framework(subject: Subject, name: str) -> str | None:
    """Return why a framework's code cannot be imported; None if it can, or if the part's package
    provides it.
    """
    declarations = subject.catalog.parts("framework")
    providers = [framework for framework in declarations if framework.name == name]
    if subject.distribution in [provider.distribution for provider in providers]:
        return None
    try:
        kit_of(name)
    except NotApplicable:
        return None
    except Exception as error:
        title = providers[0].title if providers else f"framework {name!r}"
        return f"{title}: it cannot be imported: {reason(error)}"
    return None


def _suspects(subject: Subject, error: BaseException) -> Iterator[Part]:
    """Yield parts of other packages that may be the cause of an error: those that it names, and
    those of unlisted packages in the part's examples.
    """
    distribution = subject.distribution
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, PartError):
            part = cause.part
            if part is not None and part.kind in BUILT and part.distribution != distribution:
                yield part
        cause = cause.__cause__ or cause.__context__
    # The part's own fault may prevent any of this.
    with suppress(Exception):
        for example in subject.few:
            for part in subject.resolve(example).parts():
                if part.is_third_party and part.distribution != distribution:
                    yield part


def _control(subject: Subject, suspect: Part) -> str | None:
    """Return what is wrong with a suspect in a catalog without the part under test."""
    control = _catalog_without(subject)
    candidates = [part for part in control.parts(suspect.kind) if part.address == suspect.address]
    if not candidates:
        return None
    [twin] = candidates
    alone = Subject(twin, control, subject.framework)
    try:
        _use(alone)
        if isinstance(twin.declaration, ModelSpec):
            _combine_with_listed(alone)
    except PartError as error:
        if error.part is not twin:
            # Where the part under test is missing, a third part may have taken its place.
            return None
        return str(error)
    except (NotApplicable, CatalogError):
        return None  # without the part under test, no policy can be built
    except Exception as error:
        return f"{twin.title}: {_what(error)}"
    return None


def _what(error: BaseException) -> str:
    """Return the message of a check or of rlcatalog; for any other error, with its type."""
    if isinstance(error, AssertionError | CatalogError) and str(error):
        return str(error)
    return reason(error)


def _use(subject: Subject) -> None:
    """Raise an error unless a part can be imported and works in its first example."""
    if subject.framework in subject.part.frameworks:
        # If the other parts of a policy are missing, this much can be tried without them.
        subject.part.load(subject.framework)
    example = subject.examples[0]
    policy = subject.build(example)
    if isinstance(subject.part.declaration, ModelSpec):
        trial = ModelTrial(subject, example, policy)
        check_outputs(trial)
        check_trained(trial)
    else:
        policy.act(observations_of(example, 3))


def _combine_with_listed(subject: Subject) -> None:
    """Raise an error unless a model works together with the models that the public index lists."""
    has_memory = bool(subject.policy(subject.examples[0]).memory)
    for slot in SLOTS_OUTSIDE[subject.part.slot]:
        if slot == "memory" and has_memory:
            continue  # a model with a state is inside no memory
        for other in _listed(others(subject, slot)):
            works_with(subject, other, outside=True)
    for slot in SLOTS_INSIDE[subject.part.slot]:
        for other in _listed(others(subject, slot)):
            works_with(subject, other, outside=False)


def _listed(parts: Iterable[Part]) -> list[Part]:
    return [part for part in parts if part.is_indexed]


def _catalog_without(subject: Subject) -> Catalog:
    """Return a catalog of all plugins except that of the part under test."""
    distribution = subject.distribution
    plugins = find_plugins(subject.catalog.entry_points)
    points = [plugin.entry_point for plugin in plugins if plugin.distribution != distribution]
    prefer = [name for name in subject.catalog.prefer if name != distribution]
    with quiet():
        return Catalog(points, environ=subject.catalog.environ, prefer=prefer)
