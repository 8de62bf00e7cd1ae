"""The conformance kit: every check of every part of a distribution, and who runs them.

`check_plugin` runs them at once, `rlcatalog check` does so on the command line, and `parametrize_with_checks` hands
them to pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlcatalog.catalog import Catalog, default_catalog
from rlcatalog.errors import CatalogError, UnknownNameError, nearest, reason
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins import Component, normalize
from rlcatalog.testing.checks import (
    codecs,
    commands,
    declarations,
    densities,
    distributions,
    filters,
    frameworks as framework_checks,
    models,
    wrappers,
)
from rlcatalog.testing.contract import Check, NotApplicable, Part
from rlcatalog.testing.examples import kind_of

#: The kernel's own checks.
_MODULES = (
    declarations, models, distributions, densities, codecs, filters, wrappers, commands, framework_checks,
)  # fmt: skip
OWN = tuple(value for module in _MODULES for value in vars(module).values() if isinstance(value, Check))


class ConformanceError(CatalogError, AssertionError):
    """A part of a plugin breaks its contract; the message has every check that failed, with its hint."""


@dataclass(frozen=True)
class Case:
    """One check of one part, to be called; it raises where the contract is broken.

    Attributes:
        check: The check.
        part: The part.
        expected: Why it is expected to fail, or None.
    """

    check: Check
    part: Part
    expected: str | None = None

    def __str__(self) -> str:
        framework = "" if self.part.framework is None else f"-{self.part.framework}"
        return f"{kind_of(self.part.component)}-{self.part.component.name}-{self.check.name}{framework}"

    def __call__(self) -> None:
        """Run it.

        Raises:
            ConformanceError: The part breaks the contract.
            NotApplicable: The check has nothing to say about this part.
        """
        try:
            self.check(self.part)
        except (KeyboardInterrupt, NotApplicable):
            raise
        except BaseException as error:
            what = str(error) if isinstance(error, AssertionError | CatalogError) else reason(error)
            raise ConformanceError(
                f"{self}: {self.part.component.kind} {self.part.component.name!r}"
                f" ({self.part.component.provider}): {what or 'it does not hold'}. Hint: {self.check.hint}."
            ) from error


@dataclass(frozen=True)
class Outcome:
    """How one case ended: `"passed"`, `"failed"`, `"expected"` (to fail, and did) or `"skipped"`, and why."""

    name: str
    status: str
    why: str = ""


def cases(
    distribution: str, *, catalog: Catalog | None = None, expected: Mapping[str, str] | None = None
) -> list[Case]:
    """Return every check of every part of a distribution.

    Args:
        distribution: Its name.
        catalog: The catalog it is loaded in; the process's own when None.
        expected: Names of cases that are expected to fail, such as `"trunk-glu-rows_independent-tf"`, with the reason.

    Raises:
        UnknownNameError: No such distribution has parts, or a name in `expected` is no case.
    """
    catalog = catalog or default_catalog()
    asked, expected = normalize(distribution), expected or {}
    components = [c for c in catalog.components() if c.distribution == asked and c.kind != "check"]
    if not components:
        known = sorted({c.distribution for c in catalog.components() if c.distribution})
        raise UnknownNameError(
            f"{distribution!r} has no part in this catalog.{nearest(asked, known)} Known: {', '.join(known)};"
            " `rlcatalog list` says how each plugin was loaded."
        )
    checks = all_checks(catalog)
    found = [
        Case(check, part)
        for component in components
        for framework in _frameworks_of(component)
        for part in [Part(component, catalog, framework)]
        for check in checks
        if kind_of(component) in check.kinds and (check.every_framework or framework == _frameworks_of(component)[0])
    ]
    names = [str(case) for case in found]
    if unknown := [name for name in expected if name not in names]:
        raise UnknownNameError(f"expected: {unknown[0]!r} is no case of {distribution}.{nearest(unknown[0], names)}")
    return [Case(case.check, case.part, expected.get(str(case))) for case in found]


def all_checks(catalog: Catalog) -> list[Check]:
    """Return the kernel's checks and those that installed plugins add."""
    found = [*OWN]
    for component in catalog.components("check"):
        added = component.load("checks")
        if not isinstance(added, Check):
            raise component.fault("its target must be a rlcatalog.testing.Check: decorate the function with @check.")
        found.append(added)
    return found


def _frameworks_of(component: Component) -> list[str | None]:
    """Return the installed frameworks that a part has code for, or `[None]` where it needs none."""
    if component.declaration.targets_allowed is not None:
        return [None]
    return [name for name in component.frameworks if name in frameworks() and frameworks()[name].is_installed]


def outcomes(found: list[Case]) -> Iterator[Outcome]:
    """Run cases and yield how each ended."""
    for case in found:
        try:
            case()
        except NotApplicable as error:
            yield Outcome(str(case), "skipped", str(error))
        except ConformanceError as error:
            if case.expected is None:
                yield Outcome(str(case), "failed", str(error))
            else:
                yield Outcome(str(case), "expected", case.expected)
        else:
            if case.expected is None:
                yield Outcome(str(case), "passed")
            else:
                yield Outcome(str(case), "failed", f"{case}: expected to fail ({case.expected}), and passes.")


def check_plugin(
    distribution: str, *, catalog: Catalog | None = None, expected: Mapping[str, str] | None = None
) -> list[Outcome]:
    """Check every part of an installed plugin against its contract.

    Args:
        distribution: Its name: `"acme-resnet"`.
        catalog: The catalog it is loaded in; the process's own when None.
        expected: Names of cases that are expected to fail, with the reason.

    Returns:
        How each case ended.

    Raises:
        ConformanceError: A case failed that was not expected to, or passed that was.
        UnknownNameError: No such distribution has parts, or a name in `expected` is no case.
    """
    ended = list(outcomes(cases(distribution, catalog=catalog, expected=expected)))
    if failed := [outcome for outcome in ended if outcome.status == "failed"]:
        raise ConformanceError(
            f"{distribution}: {len(failed)} of {len(ended)} checks failed:\n" + "\n".join(f.why for f in failed)
        )
    return ended


def parametrize_with_checks(
    *distributions: str, catalog: Catalog | None = None, expected: Mapping[str, str] | None = None
) -> Callable[[Any], Any]:
    """Parametrize a pytest function over the checks of distributions; it is given each as `check`.

    Example:
        >>> @parametrize_with_checks("acme-resnet")
        ... def test_contract(check):
        ...     check()
    """
    import pytest

    found = [case for name in distributions for case in cases(name, catalog=catalog, expected=expected)]
    marks = [[] if case.expected is None else [pytest.mark.xfail(reason=case.expected, strict=True)] for case in found]

    def skipping(case: Case) -> Callable[[], None]:
        def run() -> None:
            try:
                case()
            except NotApplicable as why:
                pytest.skip(str(why))

        return run

    parameters = [
        pytest.param(skipping(case), id=str(case), marks=mark) for case, mark in zip(found, marks, strict=True)
    ]
    return pytest.mark.parametrize("check", parameters)
