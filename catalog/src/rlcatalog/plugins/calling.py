"""The one place where what a part's code raises becomes an error that names the part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlcatalog.errors import CatalogError, ModelContractError, PartError, raised_as
from rlcatalog.plugins.component import Component


def call_target(component: Component, framework: str, *arguments: Any, **options: Any) -> Any:
    """Call a part's target and return what it makes.

    Raises:
        CatalogError: It cannot be imported, or refuses the arguments.
        PartError: It raised anything else.
    """
    target = component.load(framework)
    with blamed(component):
        return target(*arguments, **options)


@contextmanager
def named(component: Component) -> Iterator[None]:
    """Run a part's code; where it breaks its contract, the error says whose part it is."""
    try:
        yield
    except ModelContractError as error:
        if component.distribution and component.provider not in str(error):
            error.args = (f"{component.kind} {component.name!r} ({component.provider}): {error}",)
        raise


@contextmanager
def blamed(component: Component, what: str = "") -> Iterator[None]:
    """Run a part's code under its name.

    Args:
        component: The part.
        what: What of it runs, where the message should say: a method's name.

    Raises:
        PartError: The code raised something that is not ours.
    """

    def error(why: str) -> PartError:
        who = f"{component.kind} {component.name!r} ({component.provider}){what and f': its {what}'}"
        return PartError(f"{who} raised {why}", component)

    with raised_as(error, CatalogError):  # ours is about the environment, the observation or the config
        yield
