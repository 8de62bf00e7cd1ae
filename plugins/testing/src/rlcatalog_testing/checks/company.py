"""Checks for combinations, with each model inside, around and next to the other
installed models.
"""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from rlcatalog.errors import ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError
from rlcatalog.plugins import Component
from rlcatalog.spaces import SpaceInfo
from rlcatalog_testing.checks.models import check_outputs, check_trained, innermost
from rlcatalog_testing.contract import NotApplicable, Part, check, require
from rlcatalog_testing.examples import VECTOR, Example, examples_of, kind_of, named
from rlcatalog_testing.passes import ModelTrial, every

#: Errors from parts that cannot be combined; any other error is a fault.
REFUSALS = (ConfigError, NoMatchError, NotServedError, UnsupportedSpaceError)


def _others(part: Part, slot: str) -> list[Component]:
    """Return the other installed models for a slot that support the part's framework."""
    models = [
        model
        for model in part.catalog.components("model")
        if part.framework in (None, *model.frameworks)
    ]
    return [model for model in models if model is not part.component and kind_of(model) == slot]


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


def _works(part: Part, example: Example, *members: Component) -> bool:
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


def _company(part: Part, slot: str, outside: bool) -> None:
    """Check the part combined with each installed model for a slot, which is outside or inside the
    part.
    """
    works = False
    for other in _others(part, slot):
        for example in examples_of(other, part.catalog)[:1]:
            mine, theirs = part.examples[0], named(other, example)
            joined = (
                _join(mine, theirs, part, other)
                if outside
                else _join(theirs, mine, part, part.component)
            )
            works |= _works(part, joined, part.component, other)
    if not works:
        raise NotApplicable(f"no installed {slot} can be combined with it")


@check(
    "trunk",
    hint="if num_outputs=None, do not build logits, set self.num_outputs, and return features of"
    " that width",
)
def works_inside_memories(part: Part) -> None:
    """As a trunk, the model works inside every installed memory."""
    if part.policy(part.examples[0]).memory:
        raise NotApplicable("it has a state, so a memory cannot be wrapped around it")
    _company(part, "memory", outside=True)


@check(
    "trunk",
    "memory",
    hint="if num_outputs=None, return features of the declared width; read no observation by key",
)
def works_under_heads(part: Part) -> None:
    """The model works under every installed head."""
    _company(part, "head", outside=True)


@check(
    "memory",
    "head",
    hint="take the trunk as a keyword argument, and its features at trunk.num_outputs",
)
def works_around_trunks(part: Part) -> None:
    """The model works around every installed trunk."""
    _company(part, "trunk", outside=False)


@check(
    "trunk",
    hint="read the shape from obs_space: for part of an observation, it is not the environment's"
    " space",
)
def works_for_a_part_of_an_observation(part: Part) -> None:
    """The model works inside trunks that use a separate model for each part of an observation."""
    mine = next(
        (e for e in part.examples if not isinstance(e.obs, spaces.Dict | spaces.Tuple)), None
    )
    if mine is None:
        raise NotApplicable("its examples have no simple observation")
    tried, obs = False, spaces.Dict({"mine": mine.obs, "other": VECTOR})
    path = next(
        child.path for child in SpaceInfo.read(obs).children if child.path.endswith("['mine']")
    )
    config = {
        key: value for key, value in mine.config.items() if not key.startswith("custom_model")
    }
    for holder in _others(part, "trunk"):
        if getattr(holder.declaration, "pinned_keys", None) is None:
            continue
        example = named(holder, Example(obs, mine.action, config))
        try:
            pinned = part.resolve(example).pinned_keys()
        except REFUSALS:
            continue
        held = {
            key: nets for key, nets in pinned.items() if isinstance(nets, dict) and path in nets
        }
        nets = {key: {**nets, path: part.component.address} for key, nets in held.items()}
        tried |= bool(nets) and _works(
            part, Example(obs, mine.action, {**example.config, **nets}), holder
        )
    if not tried:
        raise NotApplicable(
            "no installed trunk selects a model for a part of an observation by name"
        )


@check(
    "memory",
    "head",
    each=every,
    hint="call self.trunk(input_dict, state, seq_lens), not its forward, once in each pass",
)
def shows_the_trunk_its_input(trial: ModelTrial) -> None:
    """The model calls its trunk, which only sees the part of the observation that no
    head claims.
    """
    trunk: Any = innermost(trial.policy)
    require(
        trunk is not trial.policy.model, f"{trial}: it contains no trunk: inner_models() is empty"
    )
    inputs: list[Any] = []
    forward = trunk.forward

    def keep(input_dict: Any, *more: Any) -> Any:
        inputs.append(input_dict)
        return forward(input_dict, *more)

    trunk.forward = keep
    try:
        trial.run(trial.encoded(3))
    finally:
        del trunk.forward
    require(bool(inputs), f"{trial}: it never calls its trunk")
    unclaimed, obs = trial.policy.resolution.unclaimed, inputs[0]["obs"]
    if unclaimed is None:
        return
    shown = [key for key in unclaimed.claimed if isinstance(obs, dict) and key in obs]
    require(not shown, f"{trial}: the trunk receives {shown}, which the head has claimed")
    width = unclaimed.preprocessor.size
    found = inputs[0]["obs_flat"].shape[-1] if len(unclaimed.preprocessor.shape) == 1 else width
    require(
        found == width,
        f"{trial}: the trunk receives {found} values per row, expected the remaining {width}",
    )
