"""Checks of models together: each inside, around and beside the others that are installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium import spaces

from rlcatalog import ModelSpec
from rlcatalog.errors import ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError
from rlcatalog.plugins import Component
from rlcatalog.spaces import SpaceInfo
from rlcatalog_testing.checks.models import check_outputs, check_trained, innermost
from rlcatalog_testing.contract import NotApplicable, Part, check, require
from rlcatalog_testing.examples import VECTOR, Example, examples_of, kind_of, named, parts_in, quiet
from rlcatalog_testing.passes import encoded_of, run

#: How parts say that they do not go together; anything else is a fault.
REFUSALS = (ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError)


def _others(part: Part, slot: str) -> Iterator[Component]:
    """Yield the installed models of a slot that have code for the part's framework."""
    for component in part.catalog.components("model"):
        serves = part.framework is None or part.framework in component.frameworks
        if component is not part.component and serves and kind_of(component) == slot:
            yield component


def _join(inner: Example, outer: Example, part: Part, outside: Component) -> Example:
    """Return an example of a memory or a head around the model of another.

    Of the observation, what a head takes is the outer one's, and what it leaves the inner one's.
    """
    resolution = _resolve(part, outer)
    if isinstance(outside.declaration, ModelSpec) and outside.declaration.slot == "memory":
        return Example(inner.obs, inner.action, {**outer.config, **inner.config}, inner.draw)
    claimed = resolution.unclaimed.claimed if resolution.unclaimed is not None else ()
    taken = {*claimed, *([resolution.mask_key] if resolution.mask_key is not None else [])}
    obs = inner.obs
    if taken:
        assert isinstance(outer.obs, spaces.Dict)
        kept = {key: outer.obs.spaces[key] for key in outer.obs.spaces if key in taken}
        obs = spaces.Dict({**kept, "rest": inner.obs})
    return Example(obs, outer.action, {**outer.config, **inner.config})


def _resolve(part: Part, example: Example) -> Any:
    with quiet():
        return part.catalog.resolve(example.obs, example.action, example.config, part.framework)


def _works(part: Part, example: Example, *members: Component) -> bool:
    """Check a model of several parts; return False where they are not chosen together, or say they do not go."""
    try:
        chosen = list(parts_in(_resolve(part, example)))
        if not all(member in chosen for member in members):
            return False
        policy = part.policy(example)
    except REFUSALS:
        return False
    check_outputs(policy, example)
    check_trained(policy, example)
    return True


def _company(part: Part, slot: str, outside: bool) -> None:
    """Check the part with each installed model of a slot, which stands outside it or inside."""
    tried = [
        _works(part, _join(inner, outer, part, other if outside else part.component), part.component, other)
        for other in _others(part, slot)
        for mine in part.few[:1]
        for theirs in (named(other, example) for example in examples_of(other, part.catalog)[:1])
        for inner, outer in [(mine, theirs) if outside else (theirs, mine)]
    ]
    if not any(tried):
        raise NotApplicable(f"no {slot} that is installed goes with it")


@check(
    "trunk", hint="with num_outputs=None build no logits, announce self.num_outputs, and return features of that width"
)
def works_inside_memories(part: Part) -> None:
    """As a trunk it works inside every installed memory."""
    if part.policy(part.examples[0]).memory:
        raise NotApplicable("it has a state of its own, and no memory goes around that")
    _company(part, "memory", outside=True)


@check(
    "trunk", "memory", hint="with num_outputs=None return features of the announced width; read no observation by key"
)
def works_under_heads(part: Part) -> None:
    """It works under every installed head."""
    _company(part, "head", outside=True)


@check("memory", "head", hint="take the trunk as a keyword argument, and its features at trunk.num_outputs")
def works_around_trunks(part: Part) -> None:
    """It works around every installed trunk."""
    _company(part, "trunk", outside=False)


@check(
    "trunk", hint="take obs_space's shape from the argument: as a part of an observation it is not the environment's"
)
def works_for_a_part_of_an_observation(part: Part) -> None:
    """It works inside trunks that give each part of an observation a model of its own."""
    mine = next((e for e in part.examples if not isinstance(e.obs, spaces.Dict | spaces.Tuple)), None)
    if mine is None:
        raise NotApplicable("its examples have no simple observation")
    tried = False
    for holder in _others(part, "trunk"):
        declaration = holder.declaration
        if not isinstance(declaration, ModelSpec) or declaration.pinned_keys is None:
            continue
        obs = spaces.Dict({"mine": mine.obs, "other": VECTOR})
        path = next(child.path for child in SpaceInfo.read(obs).children if child.path.endswith("['mine']"))
        config = {key: value for key, value in mine.config.items() if not key.startswith("custom_model")}
        example = named(holder, Example(obs, mine.action, config))
        try:
            pinned = _resolve(part, example).pinned_keys()
        except REFUSALS:
            continue
        nets = {
            key: {**value, path: part.component.address}
            for key, value in pinned.items()
            if isinstance(value, dict) and path in value
        }
        tried |= bool(nets) and _works(part, Example(obs, mine.action, {**example.config, **nets}), holder)
    if not tried:
        raise NotApplicable("no trunk that is installed gives a part of an observation a model by name")


@check("memory", "head", hint="call self.trunk(input_dict, state, seq_lens), not its forward, once in each pass")
def shows_the_trunk_its_input(part: Part) -> None:
    """It calls the trunk it holds, which sees all that is left for it, and nothing that a head has claimed."""
    for example in part.examples:
        policy = part.policy(example)
        trunk: Any = innermost(policy)
        require(trunk is not policy.model, f"{example}: it holds no trunk: inner_models() is empty")
        seen: list[Any] = []
        forward = trunk.forward
        trunk.forward = lambda inputs, *more, kept=seen, run=forward: (kept.append(inputs), run(inputs, *more))[1]
        try:
            run(policy, encoded_of(policy, example, 3))
        finally:
            del trunk.forward
        require(bool(seen), f"{example}: it never calls its trunk")
        unclaimed = policy.resolution.unclaimed
        if unclaimed is None:
            continue
        obs = seen[0]["obs"]
        shown = [key for key in unclaimed.claimed if isinstance(obs, dict) and key in obs]
        require(not shown, f"{example}: the trunk is shown {shown}, which the head has claimed")
        width = unclaimed.preprocessor.size
        found = seen[0]["obs_flat"].shape[-1] if len(unclaimed.preprocessor.shape) == 1 else width
        require(found == width, f"{example}: the trunk is shown {found} values in a row, and {width} are left for it")
