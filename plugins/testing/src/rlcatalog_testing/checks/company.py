"""Checks for combinations, with each model inside, around and next to the other
installed models.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gymnasium import spaces

from rlcatalog.plugins import Part
from rlcatalog.spaces import SpaceInfo
from rlcatalog_testing.checks.models import innermost
from rlcatalog_testing.combinations import REFUSALS, others, works_for, works_with
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.controls import fault_without
from rlcatalog_testing.examples import VECTOR, Example, named
from rlcatalog_testing.passes import ModelTrial, every


def _company(subject: Subject, slot: str, *, outside: bool) -> None:
    """Check the part combined with each installed model for a slot, which is outside or inside the
    part.
    """
    works = False
    for other in others(subject, slot):
        with _blaming_the_faulty(subject, other):
            works |= works_with(subject, other, outside=outside)
    if not works:
        raise NotApplicable(f"no installed {slot} can be combined with it")


@contextmanager
def _blaming_the_faulty(subject: Subject, other: Part) -> Iterator[None]:
    """Note an error instead of raising it if the other model is faulty without the part, too."""
    try:
        yield
    except NotApplicable:
        raise
    except Exception:
        fault = fault_without(subject, other)
        if fault is None:
            raise
        subject.notes.append(fault)


@check(
    "trunk",
    hint="if num_outputs=None, do not build logits, set self.num_outputs, and return features of"
    " that width",
)
def works_inside_memories(subject: Subject) -> None:
    """As a trunk, the model works inside every installed memory."""
    if subject.policy(subject.examples[0]).memory:
        raise NotApplicable("it has a state, so a memory cannot be wrapped around it")
    _company(subject, "memory", outside=True)


@check(
    "trunk",
    "memory",
    hint="if num_outputs=None, return features of the declared width; read no observation by key",
)
def works_under_heads(subject: Subject) -> None:
    """The model works under every installed head."""
    _company(subject, "head", outside=True)


@check(
    "memory",
    "head",
    hint="take the trunk as a keyword argument, and its features at trunk.num_outputs",
)
def works_around_trunks(subject: Subject) -> None:
    """The model works around every installed trunk."""
    _company(subject, "trunk", outside=False)


@check(
    "trunk",
    hint="read the shape from obs_space: for part of an observation, it is not the environment's"
    " space",
)
def works_for_a_part_of_an_observation(subject: Subject) -> None:
    """The model works inside trunks that use a separate model for each part of an observation."""
    mine = next(
        (e for e in subject.examples if not isinstance(e.obs, spaces.Dict | spaces.Tuple)), None
    )
    if mine is None:
        raise NotApplicable("its examples have no simple observation")
    tried = False
    for holder in others(subject, "trunk"):
        if getattr(holder.declaration, "pinned_keys", None) is not None:
            with _blaming_the_faulty(subject, holder):
                tried |= _works_in_a_place_of(subject, holder, mine)
    if not tried:
        raise NotApplicable(
            "no installed trunk selects a model for a part of an observation by name"
        )


def _works_in_a_place_of(subject: Subject, holder: Part, mine: Example) -> bool:
    """Check the part inside a trunk that takes the names of the models for parts of an observation;
    return False if the two cannot be combined.
    """
    obs = spaces.Dict({"mine": mine.obs, "other": VECTOR})
    path = next(
        child.path for child in SpaceInfo.read(obs).children if child.path.endswith("['mine']")
    )
    config = {
        key: value for key, value in mine.config.items() if not key.startswith("custom_model")
    }
    example = named(holder, Example(obs, mine.action, config))
    try:
        pinned = subject.resolve(example).pinned_keys()
    except REFUSALS:
        return False
    held = {key: nets for key, nets in pinned.items() if isinstance(nets, dict) and path in nets}
    if not held:
        return False
    nets = {key: {**nets, path: subject.part.address} for key, nets in held.items()}
    return works_for(subject, Example(obs, mine.action, {**example.config, **nets}), holder)


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
