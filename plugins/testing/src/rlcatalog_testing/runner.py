"""The conformance kit: all checks for a distribution's parts, and functions that run the checks.

`check_plugin` runs all checks, `rlcatalog check` does so on the command line, and
`parametrize_with_checks` passes the checks to pytest.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from rlcatalog.catalog import Catalog, default_catalog
from rlcatalog.errors import CatalogError, PartError, UnknownNameError, nearest, reason
from rlcatalog.internals import normalize
from rlcatalog.plugins import Part
from rlcatalog_testing import checks as own_checks
from rlcatalog_testing.checks.declarations import EVERY, OF_EXTENSIONS
from rlcatalog_testing.contract import Check, ExampleError, NotApplicable, Subject
from rlcatalog_testing.controls import fault_elsewhere, fault_of_check
from rlcatalog_testing.examples import quiet
from rlcatalog_testing.passes import seed

#: The kernel's own checks.
_MODULES = [import_module(f"{own_checks.__name__}.{name}") for name in own_checks.MODULES]
#: Advice if a plain module raises: without examples, the kit builds it for every standard space
#: that it fits.
_SPACES = (
    "if it is not for this space, declare examples='package.module:function' with the spaces"
    " that it takes"
)


def _checks_of(modules: Iterable[ModuleType]) -> Iterator[Check]:
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Check):
                yield value


OWN = tuple(_checks_of(_MODULES))


class ConformanceError(CatalogError, AssertionError):
    """At least one check of a plugin failed; the message contains each of them with its hint."""


class BlockedError(ConformanceError):
    """A check cannot be completed, because it needs a part of another package that is faulty."""


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
        part = self.subject.part
        name = f"{part.slot}-{part.name}-{self.check.name}"
        if self.check.every_framework and self.subject.framework:
            name += f"-{self.subject.framework}"
        elif part.declaration.extends is not None:
            # A package may also extend a part several times, or extend its own.
            name += f"-{'-'.join(part.declaration.targets)}"
        return name

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
            key = ("fails", check.name, self.subject.framework)
            earlier_case = Case(check, self.subject)
            if self.subject.once(key, earlier_case._fails):
                raise NotApplicable(f"{check.name} comes first, and fails")
        try:
            if self.check.every_framework:
                seed(self.subject.framework)
            self.check(self.subject)
        except (KeyboardInterrupt, NotApplicable):
            raise
        except AssertionError as error:
            self._raise_fault_elsewhere(error)
            # The message has all that a check's own error says.
            raise self._failure(error) from None
        except BaseException as error:
            self._raise_fault_elsewhere(error)
            raise self._failure(error) from error

    def _raise_fault_elsewhere(self, error: BaseException) -> None:
        """Note a fault in another package, if there is one that explains an error, and raise it.

        Another package's check is then skipped, because the kit still checks the part against its
        contract. A check of the kit is blocked, because nothing else checks the same.
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
        raise BlockedError(
            f"{self}: {fault.rstrip('.')}. The check needs this part of another package. Upgrade or"
            " uninstall that package, and run the check again."
        ) from error

    def _foreign_provider(self) -> Part | None:
        """Return the part that brought the check, if it is another package's."""
        if self.provider is None or self.provider.distribution == self.subject.distribution:
            return None
        return self.provider

    def _failure(self, error: BaseException) -> ConformanceError:
        """Return the message for a fault of the part, with advice if the check has some."""
        title = f"{self.subject.code.title}: "
        if _is_from_check(error):
            what = str(error).removeprefix(title)
        else:
            what = f"{reason(error)}{_place(error, self.subject)}"
        what = what.rstrip(".") or "it does not hold"
        message = f"{self}: {title}{what}."
        advice = self._advice(error)
        if advice:
            message += f" Hint: {advice}."
        return ConformanceError(message)

    def _advice(self, error: BaseException) -> str:
        """Return advice for the part's author; "" if there is none for this error."""
        part = self.subject.part
        if isinstance(error, PartError) and error.__cause__ is not None:
            if part.is_plain and part.declaration.examples is None:
                return _SPACES
            return ""
        # The check's hint does not apply to errors in the part's own code.
        if not _is_from_check(error) or isinstance(error, ExampleError):
            return ""
        return self.check.hint

    def _fails(self) -> bool:
        try:
            with suppress(NotApplicable):
                self()
        except ConformanceError:
            return True
        return False


def _is_from_check(error: BaseException) -> bool:
    """Return whether a check or rlcatalog raised an error, rather than the part's own code."""
    return isinstance(error, AssertionError | CatalogError)


def _place(error: BaseException, subject: Subject) -> str:
    """Return the line in the plugin's own files that raised an error; empty if the error came from
    elsewhere.
    """
    packages = set()
    for target in subject.code.declaration.targets.values():
        module, _, _ = target.partition(":")
        packages.add(module.partition(".")[0])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        is_module = path.stem in packages
        is_in_package = not packages.isdisjoint(path.parts[:-1])
        if is_module or is_in_package:
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
    """Return all checks for all parts of a distribution, and for its code of parts of other
    packages (`extends`).

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
    normal_name = normalize(distribution)
    parts = _parts_of(normal_name, catalog)
    if not parts and not _extensions_of(normal_name, catalog):
        raise _without_parts(catalog, distribution)
    has_third_party = any(part.is_third_party for part in parts)
    if has_third_party and normal_name not in catalog.prefer:
        # If it takes precedence, try everything that it fits, not only what listed parts do not
        # fit.
        with quiet():  # the first catalog has warned of plugins that do not load
            catalog = Catalog(
                catalog.entry_points, environ=catalog.environ, prefer=(normal_name, *catalog.prefer)
            )
        parts = _parts_of(normal_name, catalog)
    checks: dict[Check, Part | None] = dict.fromkeys(OWN)
    checks.update(checks_of_plugins(catalog))
    all_cases: list[Case] = []
    for part in parts:
        for subject in _subjects_of(part, catalog):
            all_cases += _cases_of(subject, checks)
    for extension in _extensions_of(normal_name, catalog):
        declared = Subject(extension, catalog)
        all_cases += [Case(check, declared) for check in OF_EXTENSIONS if check.where(declared)]
        for subject in _subjects_of_extension(extension, catalog):
            all_cases += _cases_of_code(subject, checks)
    if expected is None:
        return all_cases
    return _with_expected_failures(all_cases, expected, distribution)


def _parts_of(distribution: str, catalog: Catalog) -> list[Part]:
    return [part for part in catalog.parts() if part.distribution == distribution]


def _extensions_of(distribution: str, catalog: Catalog) -> list[Part]:
    """Return what a distribution adds to parts of other packages, and to its own."""
    extensions = []
    for record in catalog.plugins:
        if record.distribution == distribution and record.status == "loaded":
            extensions += [part for part in record.parts if part.declaration.extends is not None]
    return extensions


def _subjects_of(part: Part, catalog: Catalog) -> list[Subject]:
    """Return the part once per installed framework that it supports, or once if it needs none."""
    subject = Subject(part, catalog)
    subjects = [subject.within(framework) for framework in subject.frameworks]
    return subjects or [subject]


def _subjects_of_extension(extension: Part, catalog: Catalog) -> Iterator[Subject]:
    """Yield the extended part once per framework for which the extension brings code, if the part
    and the framework are installed.
    """
    for part in catalog.parts(extension.kind):
        is_extended = part.address == extension.declaration.extends
        if not is_extended or part.distribution == extension.distribution:
            continue  # the cases of a package's own parts include all its frameworks
        for framework in extension.declaration.targets:
            subject = Subject(part, catalog, framework, extension=extension)
            if framework in subject.frameworks:
                yield subject


def _cases_of_code(subject: Subject, checks: Mapping[Check, Part | None]) -> Iterator[Case]:
    """Yield the cases of the code that an extension brings: the checks of code, but not those of
    the part's own declaration.
    """
    of_code = {}
    for check, provider in checks.items():
        if check.every_framework or check.between_frameworks:
            of_code[check] = provider
    return _cases_of(subject, of_code)


def _cases_of(subject: Subject, checks: Mapping[Check, Part | None]) -> Iterator[Case]:
    """Yield the cases of a part; each comes after the checks before it that stop at a failure."""
    is_first_framework = subject.framework in (None, *subject.frameworks[:1])
    stopping: list[Check] = []
    for check, provider in checks.items():
        if not check.every_framework and not is_first_framework:
            continue
        if subject.part.slot in check.kinds and check.where(subject):
            yield Case(check, subject, after=tuple(stopping), provider=provider)
            if check.stops:
                stopping.append(check)


def _with_expected_failures(
    all_cases: list[Case], expected: Mapping[str, str], distribution: str
) -> list[Case]:
    """Return the cases; each that is expected to fail has the reason.

    Raises:
        UnknownNameError: A name in `expected` is not a case.
    """
    names = [str(case) for case in all_cases]
    for name in expected:
        if name not in names:
            raise UnknownNameError(
                f"expected: {name!r} is not a case of {distribution}.{nearest(name, names)}"
            )
    return [replace(case, expected=expected.get(str(case))) for case in all_cases]


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
    name = normalize(distribution)
    records = {record.distribution: record for record in catalog.plugins}
    record = records.get(name)
    if record is not None and record.error is not None:
        note = _note_on_star_import(record.exception)
        return ConformanceError(f"{distribution} {record.version} {record.condition}{note}")
    if record is not None:
        return UnknownNameError(
            f"{distribution!r} has no part in this catalog. `rlcatalog list` shows how each"
            " plugin was loaded."
        )
    similar = nearest(name, records)
    if catalog is default_catalog():
        return UnknownNameError(
            f"{distribution!r} is not installed.{similar} Run `pip install -e .` in its folder."
        )
    return UnknownNameError(f"{distribution!r} is not in this catalog.{similar}")


def _note_on_star_import(error: BaseException | None) -> str:
    """Return a note on the star import behind an error, or "".

    A star import fails if any public name does.
    """
    if error is None:
        return ""
    for frame in traceback.extract_tb(error.__traceback__):
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
    # The cases of a part share its subject, and so its notes.
    case.subject.notes.clear()
    status, why = _run(case)
    notes = tuple(dict.fromkeys(case.subject.notes))
    return Outcome(str(case), status, why, notes)


def _run(case: Case) -> tuple[str, str]:
    """Run a case and return its status, and why."""
    try:
        case()
    except NotApplicable as error:
        return "skipped", str(error)
    except BlockedError as error:
        return "blocked", str(error)
    except ConformanceError as error:
        if case.expected is not None:
            return "expected", case.expected
        return "failed", str(error)
    if case.expected is not None:
        return "failed", f"{case}: expected to fail ({case.expected}), but passes."
    return "passed", ""


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
    results = list(outcomes(cases(distribution, catalog=catalog, expected=expected)))
    failures = [result for result in results if result.status in ("failed", "blocked")]
    if failures:
        messages = "\n".join(_messages_without_repeats(failures))
        raise ConformanceError(
            f"{distribution}: {len(failures)} of {len(results)} checks failed:\n{messages}"
        )
    return results


def cause_of(outcome: Outcome) -> str:
    """Return why a case failed, without its name and hint. Cases with the same cause have the same
    fault.
    """
    return outcome.why.removeprefix(f"{outcome.name}: ").partition(" Hint: ")[0]


def _messages_without_repeats(failures: Sequence[Outcome]) -> Iterator[str]:
    """Yield the message of each cause once, with the other cases that it fails."""
    names: dict[str, list[str]] = {}  # cause → the cases that it fails
    messages: dict[str, str] = {}  # cause → the message of the first of them
    for failure in failures:
        cause = cause_of(failure)
        names.setdefault(cause, []).append(failure.name)
        messages.setdefault(cause, failure.why)
    for cause, message in messages.items():
        others = names[cause][1:]
        if others:
            message += f" For the same reason, these fail, too: {', '.join(others)}."
        yield message


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
            marks = []
            if case.expected is not None:
                marks.append(pytest.mark.xfail(reason=case.expected, strict=True))
            parameters.append(pytest.param(partial(run, case), id=str(case), marks=marks))
    return pytest.mark.parametrize("check", parameters)
