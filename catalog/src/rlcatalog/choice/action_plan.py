"""Distributions for an action space: one for a leaf, and for a composite one for each child, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlcatalog.actions.distribution import bind
from rlcatalog.choice.in_process import in_process_dist
from rlcatalog.choice.selection import Choice, repeat
from rlcatalog.errors import CatalogError, ConfigError, UnsupportedSpaceError, raised_as, shown
from rlcatalog.plugins import ActionDistSpec, Component, Request
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.choice.resolution import Pins
    from rlcatalog.choice.slots import Slots


@dataclass(frozen=True)
class ActionPlan:
    """The distribution chosen for one node of an action space.

    Attributes:
        info: The node.
        choice: What was chosen and why.
        size: Number of model outputs it needs, its children's included.
        children: The same for the node's children, where the distribution joins theirs; or, where it is built around
            another, for the same node again.
        place: Where it stands in the plan, for saved policies: the node's path, marked where it is inside another.
    """

    info: SpaceInfo
    choice: Choice
    size: int
    children: tuple[ActionPlan, ...] = ()
    place: str = ""

    @property
    def component(self) -> Component:
        """The chosen component."""
        assert self.choice.component is not None
        return self.choice.component

    def walk(self) -> Iterator[ActionPlan]:
        """Yield this node and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def load(self, framework: str, config: Mapping[str, Any]) -> Any:
        """Return the distribution class, bound to the space: `dist_class(inputs, model)`."""
        children = [(child.load(framework, config), child.size) for child in self.children]
        cls = self.component.load(framework)
        if not hasattr(cls, "logp") and not self.component.in_process:
            raise self.component.fault(f"its target must be a subclass of ActionDistribution, found {shown(cls)}.")
        cannot = f"its class cannot be bound to {self.info.describe()}"
        with raised_as(lambda why: self.component.fault(f"{cannot}: {why}"), CatalogError):
            return bind(cls, self.info, config, children)

    def raw_kinds(self, framework: str) -> dict[str, str]:
        """Return how raw actions are to be read, by path (see `ActionDistribution.raw_kind`)."""
        return {
            node.info.path: getattr(node.component.load(framework), "raw_kind", "values")
            for node in self.walk()
            if not node.children
        }


class NamedDistributions:
    """The distributions that a caller named: for the whole space, for the parts a name fits, or by path.

    Args:
        slots: Where names are looked up.
        custom: `custom_action_dist`: a name, a class, a dict of path → name or class, or None.
        dist_type: A name or class that stands back behind `custom`.
        pins: What an earlier lookup chose, to be repeated.
    """

    def __init__(
        self,
        slots: Slots,
        custom: str | type | Mapping[str, Any] | None,
        dist_type: str | type | None = None,
        pins: Pins | None = None,
    ) -> None:
        self._slots = slots
        self._pins = {} if pins is None else pins.action_dists
        by_path, custom = (custom, None) if isinstance(custom, Mapping) else ({}, custom)
        self._by_path = {path: slots.named("action_dist", value, in_process_dist) for path, value in by_path.items()}
        self.anywhere = slots.named("action_dist", dist_type if custom is None else custom, in_process_dist)
        self._unused = set(self._by_path)
        self._fitted = self.anywhere is None

    @property
    def components(self) -> list[Component]:
        """All components named."""
        return [c for c in (self.anywhere, *self._by_path.values()) if c is not None]

    def pinned(self, place: str) -> Component | None:
        """Return the component that an earlier lookup chose for a place, or None."""
        return self._slots.registry.get("action_dist", self._pins[place]) if place in self._pins else None

    def at(self, request: Request, outer: Component | None) -> Component | None:
        """Return the component named for a node, or None; never the one it is to stand inside of."""
        info = request.action
        assert info is not None
        named = self._by_path.get(info.path)
        if named is not None and named is not outer:
            self._unused.discard(info.path)
            return named
        if self.anywhere is None or self.anywhere is outer or not (not info.children or info.path == "action"):
            return None
        if not self._fits(request):
            return None
        self._fitted = True
        return self.anywhere

    def check_used(self, request: Request) -> None:
        """Raise unless each name has found its place.

        Raises:
            UnsupportedSpaceError: The distribution named fits no part of the space.
            ConfigError: A path names no part.
        """
        assert request.action is not None
        if self._pins:  # each node has its own
            return
        if not self._fitted:
            assert self.anywhere is not None
            self._slots.size(self.anywhere, request)  # says why
            raise UnsupportedSpaceError(f"{self.anywhere.name} fits no part of {request.action.describe()}.")
        if self._unused:
            paths = [node.path for node in request.action.walk()]
            raise ConfigError(f"custom_action_dist: no part of the action space stands at {min(self._unused)!r};"
                              f" parts: {', '.join(paths)}.")  # fmt: skip

    def _fits(self, request: Request) -> bool:
        assert self.anywhere is not None
        assert request.action is not None
        if wraps_default(self.anywhere):
            return request.action.path == "action"
        if is_composite(self.anywhere):
            return request.action.is_composite
        try:
            self._slots.size(self.anywhere, request)
        except UnsupportedSpaceError:
            return False
        return True


def plan_actions(slots: Slots, request: Request, names: NamedDistributions) -> ActionPlan:
    """Choose the distribution for a request's action space, and for its children where they are joined.

    Raises:
        UnsupportedSpaceError: Nothing takes the space, or a part of it; the message names the leaf.
        ConfigError: `free_log_std` for a distribution without log standard deviations.
    """
    plan = _plan(slots, request, names)
    names.check_used(request)
    if request.config.get("free_log_std"):
        _check_free_log_std(slots, plan)
    return plan


def _check_free_log_std(slots: Slots, plan: ActionPlan) -> None:
    if plan.component.in_process or "free_log_std" in plan.component.declaration.reads:
        return
    others = [c.name for c in slots.registry.active("action_dist") if "free_log_std" in c.declaration.reads]
    raise ConfigError(
        "free_log_std trains the second half of the model's outputs apart from the observation, as log standard"
        f" deviations; {plan.component.name}, for {plan.info.describe()}, has none there. Leave it out, or use a"
        f" distribution that reads it: {', '.join(others) or 'none is installed'}."
    )


def _plan(slots: Slots, request: Request, names: NamedDistributions, outer: Component | None = None) -> ActionPlan:
    info = request.action
    assert info is not None
    place = info.path if outer is None else f"{info.path} inside {outer.name}"
    pinned = names.pinned(place)
    choice = (
        slots.action_dist(request, names.at(request, outer), outer) if pinned is None else repeat("action_dist", pinned)
    )
    component = choice.component
    assert component is not None
    if wraps_default(component):
        inner = _plan(slots, request, names, component)
        return ActionPlan(info, choice, slots.size(component, request, inner.size), (inner,), place)
    if not is_composite(component):
        return ActionPlan(info, choice, slots.size(component, request), (), place)
    children = tuple(_plan(slots, replace(request, action=child), names) for child in info.children)
    size = sum(child.size for child in children)
    for cls in component.objects.values():  # a class of the running program may need more than its children do
        if "required_model_output_shape" in vars(cls):
            size = slots.size(component, request)
    return ActionPlan(info, choice, size, children, place)


def wraps_default(component: Component) -> bool:
    """Whether a distribution is built around the one that would be chosen without it."""
    assert isinstance(component.declaration, ActionDistSpec)
    return component.declaration.wraps_default


def is_composite(component: Component) -> bool:
    """Whether a distribution joins those of the space's children."""
    assert isinstance(component.declaration, ActionDistSpec)
    return component.declaration.composite
