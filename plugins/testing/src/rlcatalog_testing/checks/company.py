"""Checks for combinations, with each model inside, around and next to the other
installed models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.errors import MissingPluginError
from rlcatalog.internals import NOT_IN_CRITIC, shared_keys
from rlcatalog.models import ModelV2
from rlcatalog.plugins import Part
from rlcatalog.spaces import SpaceInfo
from rlcatalog_testing.checks.models import innermost
from rlcatalog_testing.combinations import REFUSALS, others, works_for, works_with
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.controls import fault_without
from rlcatalog_testing.examples import VECTOR, Example, named
from rlcatalog_testing.passes import ModelTrial, every


def _check_with_all(subject: Subject, slot: str, *, outside: bool) -> None:
    """Check the part combined with each installed model for a slot, which is outside or inside the
    part.
    """
    works = False
    for other in others(subject, slot):
        with _blame_the_faulty(subject, other):
            works |= works_with(subject, other, outside=outside)
    if not works:
        raise NotApplicable(f"no installed {slot} can be combined with it")


@contextmanager
def _blame_the_faulty(subject: Subject, other: Part) -> Iterator[None]:
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
    _check_with_all(subject, "memory", outside=True)


@check(
    "trunk",
    "memory",
    hint="if num_outputs=None, return features of the declared width; read no observation by key",
)
def works_under_heads(subject: Subject) -> None:
    """The model works under every installed head."""
    _check_with_all(subject, "head", outside=True)


@check(
    "trunk",
    "memory",
    hint="read the shape from obs_space, which is not the policy's; if num_outputs=None, return"
    " features of the declared width",
)
def works_as_a_critic(subject: Subject) -> None:
    """The model works as a critic of its own, which sees another part of the observation than the
    policy.
    """
    example = subject.examples[0]
    try:
        subject.catalog.resolve(VECTOR, example.action, framework=subject.framework)
    except MissingPluginError as error:
        raise NotApplicable("no installed model can be the policy's") from error
    keys_of_both_sides = shared_keys(subject.catalog.registry)
    config: dict[str, Any] = {}
    critic: dict[str, Any] = {}
    for key, value in example.config.items():
        if key in keys_of_both_sides:
            config[key] = value
        elif key not in NOT_IN_CRITIC:
            critic[key] = value
    config["critic"] = critic
    config["obs_groups"] = {"policy": ["other"], "critic": ["mine"]}
    draw = None
    if example.draw is not None:
        draw = partial(_draw_both, example.draw)
    joined = Example(
        spaces.Dict({"mine": example.obs, "other": VECTOR}), example.action, config, draw
    )
    if not works_for(subject, joined, subject.part):
        raise NotApplicable("its example cannot be an entry of another observation")


def _draw_both(
    draw_mine: Callable[[np.random.Generator], Any], rng: np.random.Generator
) -> dict[str, Any]:
    """Return an observation for the critic and the policy.

    Args:
        draw_mine: Returns an observation of the part's example.
        rng: The generator.
    """
    other = rng.uniform(-1, 1, VECTOR.shape).astype(np.float32)
    return {"mine": draw_mine(rng), "other": other}


@check(
    "memory",
    "head",
    hint="take the trunk as a keyword argument, and its features at trunk.num_outputs",
)
def works_around_trunks(subject: Subject) -> None:
    """The model works around every installed trunk."""
    _check_with_all(subject, "trunk", outside=False)


@check(
    "trunk",
    hint="read the shape from obs_space: for part of an observation, it is not the environment's"
    " space",
)
def works_for_a_part_of_an_observation(subject: Subject) -> None:
    """The model works inside trunks that use a separate model for each part of an observation."""
    simple_examples = [
        example
        for example in subject.examples
        if not isinstance(example.obs, spaces.Dict | spaces.Tuple)
    ]
    if not simple_examples:
        raise NotApplicable("its examples have no simple observation")
    works = False
    for outer in others(subject, "trunk"):
        if outer.declaration.has("pinned_keys"):
            with _blame_the_faulty(subject, outer):
                works |= _works_inside_trunk(subject, outer, simple_examples[0])
    if not works:
        raise NotApplicable(
            "no installed trunk selects a model for a part of an observation by name"
        )


def _works_inside_trunk(subject: Subject, outer: Part, example: Example) -> bool:
    """Check the part inside a trunk that takes the names of the models for parts of an observation;
    return False if the two cannot be combined.

    Args:
        subject: The part.
        outer: The trunk.
        example: The part's example, whose observations become a part of the trunk's.
    """
    obs = spaces.Dict({"mine": example.obs, "other": VECTOR})
    [path] = [
        child.path for child in SpaceInfo.read(obs).children if child.path.endswith("['mine']")
    ]
    config = {}
    for key, value in example.config.items():
        # The config must choose the trunk instead of the part.
        if not key.startswith("custom_model") and key != subject.part.switch:
            config[key] = value
    outer_example = named(outer, Example(obs, example.action, config))
    try:
        pinned = subject.resolve(outer_example).pinned_keys()
    except REFUSALS:
        return False
    # Config key of the trunk → path of a part of the observation → name of its model.
    names: dict[str, dict[str, str]] = {}
    for key, value in pinned.items():
        if isinstance(value, dict) and path in value:
            names[key] = {**value, path: subject.part.address}
    if not names:
        return False
    joined = Example(obs, example.action, {**outer_example.config, **names})
    return works_for(subject, joined, outer)


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
    trunk = innermost(trial.policy)
    require(
        trunk is not trial.policy.model, f"{trial}: it contains no trunk: inner_models() is empty"
    )
    inputs = _inputs_of_calls(trunk, trial)
    require(bool(inputs), f"{trial}: it never calls its trunk")
    unclaimed = trial.policy.resolution.unclaimed
    if unclaimed is None:
        return
    obs = inputs[0]["obs"]
    if isinstance(obs, dict):
        claimed = [key for key in unclaimed.hidden_keys if key in obs]
        require(not claimed, f"{trial}: the trunk receives {claimed}, which the head has claimed")
    is_vector = len(unclaimed.preprocessor.shape) == 1
    if is_vector:
        width = inputs[0]["obs_flat"].shape[-1]
        expected = unclaimed.preprocessor.size
        require(
            width == expected,
            f"{trial}: the trunk receives {width} values per row, expected the remaining"
            f" {expected}",
        )


def _inputs_of_calls(inner: ModelV2, trial: ModelTrial) -> list[dict[str, Any]]:
    """Return the input dicts with which a pass calls a model inside the trial's."""
    model: Any = inner
    forward = model.forward
    inputs: list[dict[str, Any]] = []

    def keep(input_dict: dict[str, Any], *more: Any) -> Any:
        inputs.append(input_dict)
        return forward(input_dict, *more)

    model.forward = keep
    try:
        trial.run(trial.encoded(3))
    finally:
        # Removes the function from the instance; the class's method stays.
        del model.forward
    return inputs
