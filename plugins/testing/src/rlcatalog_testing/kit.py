"""The conformance kit: all checks for a distribution's parts, and functions that run the checks.

`check_plugin` runs all checks, `rlcatalog check` does so on the command line, and
`parametrize_with_checks` passes the checks to pytest.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rlcatalog.catalog import Catalog, default_catalog
from rlcatalog.errors import CatalogError, PartError, UnknownNameError, nearest, reason
from rlcatalog.internals import normalize
from rlcatalog.plugins import Part
from rlcatalog_testing import checks as own_checks
from rlcatalog_testing.checks.declarations import EVERY
from rlcatalog_testing.contract import Check, ExampleError, NotApplicable, Subject
from rlcatalog_testing.controls import fault_elsewhere, fault_of_check
from rlcatalog_testing.examples import kind_of, quiet
from rlcatalog_testing.passes import seed

#: The kernel's own checks.
_MODULES = [import_module(f"{own_checks.__name__}.{name}") for name in own_checks.MODULES]
#: Advice if a plain module raises: without examples, the kit builds it for every standard space
#: that it fits.
_SPACES = (
    "if it is not for this space, declare examples='package.module:function' with the spaces"
    " that it takes"
)
OWN = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Check)
)


class ConformanceError(CatalogError, AssertionError):
    """A plugin's part violates its contract; the message contains every failed check
    with its hint.
    """


class BlockedError(ConformanceError):
    """A check cannot tell whether a part keeps its contract, because a part of another
    package that it needs is faulty.
    """


@dataclass(frozen=True)
class Case:
    """A single check for a single part.

    Calling the case raises an error if the part violates the contract.

    Attributes:
        check: The check.
        subject: The part.
        expected: Why the check is expected to fail; None if it is not.
        after: Earlier checks; if any of them fails, this check does not run.
        provider: The part that brought the check; None for the kit's own checks.
    """

    check: Check
    subject: Subject
    expected: str | None = None
    after: tuple[Check, ...] = ()
    provider: Part | None = None

    def __str__(self) -> str:
        framework = (
            f"-{self.subject.framework}"
            if self.check.every_framework and self.subject.framework
            else ""
        )
        name = f"{kind_of(self.subject.part)}-{self.subject.part.name}"
        return f"{name}-{self.check.name}{framework}"

    def __call__(self) -> None:
        """Run the check.

        Raises:
            ConformanceError: The part violates the contract.
            BlockedError: A part of another package that the check needs is faulty.
            NotApplicable: The check does not apply to this part, or the check belongs to another
                package and cannot run because of a fault in another package.
        """
        # Omit from pytest's reports, because the message shows the failure.
        __tracebackhide__ = True
        for check in self.after:
            if self.subject.once(
                ("fails", check.name, self.subject.framework), Case(check, self.subject)._fails
            ):
                raise NotApplicable(f"{check.name} comes first, and fails")
        try:
            if self.check.every_framework:
                seed(self.subject.framework)
            self.check(self.subject)
        except (KeyboardInterrupt, NotApplicable):
            raise
        except BaseException as error:
            self._raise_fault_elsewhere(error)
            raise self._failure(error) from (None if isinstance(error, AssertionError) else error)

    def _raise_fault_elsewhere(self, error: BaseException) -> None:
        """Note a fault in another package, if there is one that explains an error, and raise it.

        Without the checks of other packages, the part is still checked against its contract. The
        kit's own checks are needed.
        """
        foreign = self._foreign_provider()
        frameworks = self.subject.frameworks
        if self.check.every_framework:
            frameworks = [name for name in frameworks if name == self.subject.framework]
        fault = fault_elsewhere(self.subject, error, frameworks)
        if fault is None and foreign is not None:
            fault = fault_of_check(self.check, foreign, self.subject)
        if fault is None:
            return
        self.subject.notes.append(fault)
        if foreign is not None:
            raise NotApplicable(fault) from error
        raise BlockedError(f"{self}: {fault.rstrip('.')}.") from error

    def _foreign_provider(self) -> Part | None:
        """Return the part that brought the check, if it is another package's."""
        if self.provider is None or self.provider.distribution == self.subject.part.distribution:
            return None
        return self.provider

    def _failure(self, error: BaseException) -> ConformanceError:
        """Return the message for a fault of the part, with advice if the check has some."""
        ours = isinstance(error, AssertionError | CatalogError)
        title = f"{self.subject.part.title}: "
        what = str(error).removeprefix(title)
        if not ours:
            what = f"{reason(error)}{_place(error, self.subject)}"
        advice = self._advice(error)
        hint = f" Hint: {advice}." if advice else ""
        return ConformanceError(f"{self}: {title}{what.rstrip('.') or 'it does not hold'}.{hint}")

    def _advice(self, error: BaseException) -> str:
        """Return advice for the part's author; "" if there is none for this error."""
        if isinstance(error, PartError) and error.__cause__ is not None:
            declared = self.subject.part.declaration
            is_plain = getattr(declared, "plain", False) and declared.examples is None
            return _SPACES if is_plain else ""
        # The check's hint does not apply to errors in the part's own code.
        is_from_check = isinstance(error, AssertionError | CatalogError)
        if not is_from_check or isinstance(error, ExampleError):
            return ""
        return self.check.hint

    def _fails(self) -> bool:
        try:
            with suppress(NotApplicable):
                self()
        except ConformanceError:
            return True
        return False


def _place(error: BaseException, subject: Subject) -> str:
    """Return the line in the plugin's own files that raised an error; empty if the error came from
    elsewhere.
    """
    roots = {
        target.partition(".")[0].partition(":")[0]
        for target in subject.part.declaration.targets.values()
    }
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.stem in roots or roots & set(path.parts[:-1]):
            return f" (at {path.name}:{frame.lineno} in {frame.name})"
    return ""


@dataclass(frozen=True)
class Outcome:
    """Result of a case.

    Attributes:
        name: The case's name.
        status: `"passed"`; `"failed"`; `"expected"`, an expected failure; `"skipped"`; or
            `"blocked"`, if a part of another package that the check needs is faulty.
        why: The reason, if any.
        notes: Faults of other packages that the check met. They do not count against the part.
    """

    name: str
    status: str
    why: str = ""
    notes: tuple[str, ...] = ()


def cases(
    distribution: str, *, catalog: Catalog | None = None, expected: Mapping[str, str] | None = None
) -> list[Case]:
    """Return all checks for all parts of a distribution.

    Args:
        distribution: The distribution's name.
        catalog: The catalog that loads the distribution. If None, the process's.
        expected: Names of cases that are expected to fail, such as `"trunk-glu-output_width-tf"`,
            with the reason.

    Raises:
        UnknownNameError: The distribution does not exist or has no parts, or a name in `expected`
            is not a case.
    """
    catalog = catalog or default_catalog()
    own, expected = normalize(distribution), expected or {}
    parts = [c for c in catalog.parts() if c.distribution == own]
    if not parts:
        raise _without_parts(catalog, distribution)
    if any(c.is_third_party for c in parts) and own not in catalog.prefer:
        # If it takes precedence, try everything that it fits, not only what listed parts do not
        # fit.
        with quiet():  # the first catalog has warned of plugins that do not load
            catalog = Catalog(
                catalog.entry_points, environ=catalog.environ, prefer=(own, *catalog.prefer)
            )
        parts = [c for c in catalog.parts() if c.distribution == own]
    checks = dict[Check, Part | None].fromkeys(OWN) | checks_of_plugins(catalog)
    found = list[Case]()
    for whole in (Subject(part, catalog) for part in parts):
        # Once per installed framework that it supports, or once if it does not need one.
        for subject in [whole.within(name) for name in whole.frameworks] or [whole]:
            found += _cases_of(subject, checks)
    names = [str(case) for case in found]
    if unknown := [name for name in expected if name not in names]:
        raise UnknownNameError(
            f"expected: {unknown[0]!r} is not a case of {distribution}.{nearest(unknown[0], names)}"
        )
    return [replace(case, expected=expected.get(str(case))) for case in found]


def _cases_of(subject: Subject, checks: Mapping[Check, Part | None]) -> Iterator[Case]:
    stopping: tuple[Check, ...] = ()
    for check, provider in checks.items():
        now = check.every_framework or subject.framework in (None, *subject.frameworks[:1])
        if now and kind_of(subject.part) in check.kinds and check.where(subject):
            yield Case(check, subject, after=stopping, provider=provider)
            stopping += (check,) if check.stops else ()


def checks_of_plugins(catalog: Catalog) -> dict[Check, Part]:
    """Return the checks of installed plugins, each with the part that brought it.

    A check that cannot be loaded is replaced by one that is skipped with the reason.
    """
    return {_load_check(part): part for part in catalog.parts("check")}


def _load_check(part: Part) -> Check:
    try:
        check = part.load("checks")
        if isinstance(check, Check):
            return check
        raise part.fault(
            "its target must be a rlcatalog_testing.Check. Decorate the function with @check."
        )
    except CatalogError as error:
        fault = str(error)

    def skip(subject: Subject) -> None:
        subject.notes.append(fault)
        raise NotApplicable(fault)

    # Only the check itself knows the kinds of parts to which it applies.
    return Check(part.name, (*EVERY, "exporter"), "", run=skip, every_framework=False)


def _without_parts(catalog: Catalog, distribution: str) -> CatalogError:
    """Return the error for a distribution that has no parts in a catalog."""
    asked, records = (
        normalize(distribution),
        {record.distribution: record for record in catalog.plugins},
    )
    if asked in records:
        record = records[asked]
        if record.error is not None:
            star = _star_import(record.exception)
            return ConformanceError(f"{distribution} {record.version} {record.condition}{star}")
        why = (
            f"{distribution!r} has no part in this catalog. `rlcatalog list` shows how each"
            " plugin was loaded."
        )
    elif catalog is default_catalog():
        why = (
            f"{distribution!r} is not installed.{nearest(asked, records)} Run `pip install -e .`"
            " in its folder."
        )
    else:
        why = f"{distribution!r} is not in this catalog.{nearest(asked, records)}"
    return UnknownNameError(why)


def _star_import(error: BaseException | None) -> str:
    """Return a note on the star import behind an error, or "".

    A star import fails if any public name does.
    """
    for frame in traceback.extract_tb(error.__traceback__) if error is not None else ():
        line = (frame.line or "").strip()
        if re.fullmatch(r"from [\w.]+ import \*.*", line):
            return (
                f" It is raised by `{line}` ({Path(frame.filename).name}:{frame.lineno}):"
                " import the names you use."
            )
    return ""


def outcomes(found: list[Case]) -> Iterator[Outcome]:
    """Run cases and yield each result."""
    for case in found:
        yield outcome_of(case)


def outcome_of(case: Case) -> Outcome:
    """Run a case and return its result."""
    case.subject.notes.clear()
    status, why = "passed", ""
    try:
        case()
        if case.expected is not None:
            status, why = "failed", f"{case}: expected to fail ({case.expected}), but passes."
    except NotApplicable as error:
        status, why = "skipped", str(error)
    except BlockedError as error:
        status, why = "blocked", str(error)
    except ConformanceError as error:
        status, why = "failed", str(error)
        if case.expected is not None:
            status, why = "expected", case.expected
    return Outcome(str(case), status, why, tuple(dict.fromkeys(case.subject.notes)))


def check_plugin(
    distribution: str, *, catalog: Catalog | None = None, expected: Mapping[str, str] | None = None
) -> list[Outcome]:
    """Check every part of an installed plugin against its contract.

    Args:
        distribution: The distribution's name: `"acme-resnet"`.
        catalog: The catalog that loads the distribution. If None, the process's.
        expected: Names of cases that are expected to fail, with the reason.

    Returns:
        The result of each case.

    Raises:
        ConformanceError: A case failed unexpectedly, it passed although it was expected to fail, or
            it cannot run because a part of another package that it needs is faulty.
        UnknownNameError: The distribution does not exist or has no parts, or a name in `expected`
            is not a case.

    Example:
        >>> results = check_plugin("rlcatalog-filters")
        >>> {result.status for result in results} <= {"passed", "skipped"}
        True
    """
    ended = list(outcomes(cases(distribution, catalog=catalog, expected=expected)))
    if failed := [outcome for outcome in ended if outcome.status in ("failed", "blocked")]:
        raise ConformanceError(
            f"{distribution}: {len(failed)} of {len(ended)} checks failed:\n"
            + "\n".join(f.why for f in failed)
        )
    return ended


def parametrize_with_checks(
    *distributions: str, catalog: Catalog | None = None, expected: Mapping[str, str] | None = None
) -> Callable[[Any], Any]:
    """Parametrize a pytest function over the checks for distributions; it receives each check as
    `check`.

    Example:
        >>> @parametrize_with_checks("acme-resnet")
        ... def test_contract(check):
        ...     check()
    """
    import pytest

    def run(case: Case) -> None:
        __tracebackhide__ = True
        try:
            case()
        except NotApplicable as why:
            pytest.skip(str(why))

    parameters = []
    for name in distributions:
        for case in cases(name, catalog=catalog, expected=expected):
            marks = (
                []
                if case.expected is None
                else [pytest.mark.xfail(reason=case.expected, strict=True)]
            )
            parameters.append(pytest.param(partial(run, case), id=str(case), marks=marks))
    return pytest.mark.parametrize("check", parameters)
