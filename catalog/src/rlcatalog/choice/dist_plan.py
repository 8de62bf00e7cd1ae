"""Choice of distributions for an action space: one per leaf, and a joint one for each Tuple, Dict
or OneOf.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcatalog.actions.distribution import bind
from rlcatalog.choice.selection import Choice, match_if_named, refuses
from rlcatalog.errors import CatalogError, ConfigError, UnsupportedSpaceError, raised_as, shown
from rlcatalog.plugins import ActionDistSpec, Part, Request
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.choice.resolution import PartAddresses
    from rlcatalog.choice.slots import Slots

#: The distributions that a caller names: path → part. The key None means the whole space, or
#: every part that the distribution fits.
CustomDists = Mapping[str | None, Part]


@dataclass(frozen=True)
class DistPlan:
    """Distribution chosen for one node of an action space.

    Attributes:
        info: The node.
        choice: The choice and its reason.
        size: Number of model outputs that it needs, including its children's.
        children: The plans of the action's parts (`SpaceInfo.action_parts`) if the distribution
            joins them; or, if it wraps another distribution, the inner one's plan for the same
            node.
        place: Its place in the plan, for saved policies: the node's path, marked if it is inside
            another distribution.
    """

    info: SpaceInfo
    choice: Choice
    size: int
    children: tuple[DistPlan, ...] = ()
    place: str = ""

    @property
    def part(self) -> Part:
        """The chosen part."""
        assert self.choice.part is not None
        return self.choice.part

    def walk(self) -> Iterator[DistPlan]:
        """Yield this node and all nodes below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def load(self, framework: str, config: Mapping[str, Any]) -> Any:
        """Import the distribution's class and return it bound to the space:
        `dist_class(inputs, model)`.
        """
        children = [(child.load(framework, config), child.size) for child in self.children]
        cls = self.part.load(framework)
        # Every action distribution has this method. A class of the running program was checked when
        # it was registered.
        if not hasattr(cls, "logp") and not self.part.in_process:
            raise self.part.fault(
                f"its target must be a subclass of ActionDistribution, found {shown(cls)}."
            )
        problem = f"its class cannot be bound to {self.info.describe()}"
        with raised_as(lambda why: self.part.fault(f"{problem}: {why}"), CatalogError):
            return bind(cls, self.info, config, children)

    def raw_kinds(self, framework: str) -> dict[str, str]:
        """Import the distributions' classes, and return their `raw_kind` by path.

        See `ActionDistribution.raw_kind`.
        """
        raw_kinds = {}
        for node in self.walk():
            if not node.children:
                cls = node.part.load(framework)
                # A class in RLlib's form need not derive from ours.
                raw_kinds[node.info.path] = getattr(cls, "raw_kind", "values")
        return raw_kinds


def named_dists(
    slots: Slots, custom: str | type | Mapping[str, Any] | None, dist_type: str | type | None = None
) -> CustomDists:
    """Return the distributions that the caller names.

    Args:
        slots: Resolves the names.
        custom: `custom_action_dist`: a name, a class, a dict from path to name or class, or None.
        dist_type: A name or class to use if `custom` is None.
    """
    names: dict[str | None, Any] = {None: dist_type}  # None: wherever the distribution fits
    if isinstance(custom, Mapping):
        for key in custom:
            names[key] = custom[key]
    elif custom is not None:
        names[None] = custom
    parts: dict[str | None, Part] = {}
    for path, name in names.items():
        part = slots.named("action_dist", name)
        if part is not None:
            parts[path] = part
    return parts


def plan_dists(
    slots: Slots, request: Request, custom_dists: CustomDists, pins: PartAddresses | None = None
) -> DistPlan:
    """Choose the distribution for a request's action space, and for its children if they are
    joined.

    Args:
        slots: The parts.
        request: The request.
        custom_dists: The distributions that the caller names.
        pins: Addresses of the parts of an earlier lookup, which this lookup repeats.

    Raises:
        UnsupportedSpaceError: No distribution supports the space or one of its subspaces, or a
            named distribution fits none of them; the message names the leaf.
        ConfigError: A path does not exist; or `free_log_std` is set for a distribution without log
            standard deviations.
    """
    repeated: Mapping[str, str] = {}
    if pins is not None:
        repeated = pins.action_dists
    plan = _Planner(slots, custom_dists, repeated).plan(request)
    if not repeated:  # a saved policy's distributions count, whatever the names mean now
        _check_custom_dists(custom_dists, plan, request)
    if request.config.get("free_log_std"):
        _check_free_log_std(slots, plan)
    return plan


class _Planner:
    """Plans an action space, node by node.

    Args:
        slots: The parts.
        custom_dists: The distributions that the caller names.
        repeated: Place → address, for the choices of an earlier lookup.
    """

    def __init__(
        self, slots: Slots, custom_dists: CustomDists, repeated: Mapping[str, str]
    ) -> None:
        self._slots = slots
        self._custom_dists = custom_dists
        self._repeated = repeated

    def plan(self, request: Request, outer: Part | None = None) -> DistPlan:
        """Plan the node that is the request's action space.

        Args:
            request: The request.
            outer: The distribution that wraps the one to choose, if there is one.
        """
        info = request.space_for("action_dist")
        place = info.path
        if outer is not None:
            place = f"{info.path} inside {outer.name}"
        choice = self._choose(request, place, outer)
        part = choice.part
        assert part is not None  # this slot is never empty
        spec = _spec(part)
        if spec.wraps_default:  # it wraps the distribution that would be chosen without it
            inner = self.plan(request, outer=part)
            size = _size(part, info, request.config, inner.size)
            return DistPlan(info, choice, size, children=(inner,), place=place)
        if not spec.composite:  # it does not join the distributions for an action's parts
            size = _size(part, info, request.config)
            return DistPlan(info, choice, size, place=place)
        children = [self.plan(request.replace(action=child)) for child in info.action_parts]
        size = sum(child.size for child in children)
        if _declares_size(part):
            size = _size(part, info, request.config)
        return DistPlan(info, choice, size, tuple(children), place)

    def _choose(self, request: Request, place: str, outer: Part | None) -> Choice:
        if place in self._repeated:
            return self._slots.repeat("action_dist", self._repeated[place])
        named = _custom_dist_at(request, self._custom_dists, outer)
        return self._slots.choose_action_dist(request, named, outer)


def _declares_size(part: Part) -> bool:
    """Return whether a class of the running program says how many outputs it needs, which may be
    more than its children need together.
    """
    return any("required_model_output_shape" in vars(cls) for cls in part.objects.values())


def _custom_dist_at(request: Request, custom_dists: CustomDists, outer: Part | None) -> Part | None:
    """Return the part named for the node that is the request's action space, or None; never
    `outer`, which wraps the result.
    """
    info = request.space_for("action_dist")
    at_path = custom_dists.get(info.path)
    if at_path is not None and at_path is not outer:
        return at_path
    # A distribution that the config names without a path serves the whole space or its leaves.
    for_any_path = custom_dists.get(None)
    if for_any_path is None or for_any_path is outer:
        return None
    is_whole_space = info.path == "action"
    if info.children and not is_whole_space:
        return None
    if _spec(for_any_path).wraps_default:
        return for_any_path if is_whole_space else None
    if _spec(for_any_path).composite:  # it joins the distributions for an action's parts
        return for_any_path if info.action_parts else None
    try:
        _size(for_any_path, info, request.config)  # raises an error if it does not fit the space
    except UnsupportedSpaceError:
        return None
    match = match_if_named(for_any_path, request)
    return None if refuses(for_any_path, match, request) else for_any_path


def _size(part: Part, action: SpaceInfo, config: Mapping[str, Any], *inner: int) -> int:
    """Return the number of inputs that a distribution needs for an action space."""
    if _spec(part).size is None:
        raise UnsupportedSpaceError(
            f"{action.path}: {part.name} joins the distributions for the parts of a Tuple, Dict"
            f" or OneOf, but {action.describe()} has none."
        )
    return part.ask("size", action, config, *inner, returns=_output_size)


def _output_size(size: Any) -> int:
    """Convert a distribution's size, a number or a shape, into an int."""
    if isinstance(size, list | tuple):
        return math.prod(map(_output_size, size))
    number = int(size)
    if number != size or number < 0:
        raise ValueError("an integer number of inputs was expected")
    return number


def _spec(part: Part) -> ActionDistSpec:
    assert isinstance(part.declaration, ActionDistSpec)
    return part.declaration


def _check_custom_dists(custom_dists: CustomDists, plan: DistPlan, request: Request) -> None:
    """Check that the plan uses every distribution that the caller names."""
    unused = [path for path, part in custom_dists.items() if not _is_used(part, path, plan)]
    if not unused:
        return
    if None in unused:  # the distribution that is named without a path
        part = custom_dists[None]
        _size(part, plan.info, request.config)  # raises an error with the reason, if there is one
        why = ""
        match = match_if_named(part, request)
        if refuses(part, match, request):
            why = f": {match.why}"
        raise UnsupportedSpaceError(
            f"{part.name} does not fit any part of {plan.info.describe()}{why}. Name another"
            " distribution, or remove the name, so that rlcatalog chooses one that fits."
        )
    first_unknown = min(map(str, unused))
    paths = ", ".join(node.path for node in plan.info.walk())
    raise ConfigError(
        f"custom_action_dist: the action space has no part {first_unknown!r}; parts: {paths}."
    )


def _is_used(part: Part, path: str | None, plan: DistPlan) -> bool:
    """Return whether a plan has a part at a path, or anywhere for None."""
    return any(node.part is part and path in (None, node.info.path) for node in plan.walk())


def _check_free_log_std(slots: Slots, plan: DistPlan) -> None:
    """Raise an error if a distribution does not read `free_log_std`, which the config sets.

    The caller has checked that the config sets it.
    """
    # A class of the running program need not declare the keys that it reads.
    if plan.part.in_process or "free_log_std" in plan.part.declaration.reads:
        return
    others = []
    for part in slots.registry.active("action_dist"):
        if "free_log_std" in part.declaration.reads:
            others.append(part.name)
    raise ConfigError(
        "free_log_std trains the second half of the model's outputs independently of the"
        f" observation, as log standard deviations; {plan.part.name}, for"
        f" {plan.info.describe()}, has none there. Remove it, or use a distribution that reads it:"
        f" {', '.join(others) or 'none is installed'}."
    )
