"""Checks of what carries a state: memories, and trunks that are recurrent themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rlcatalog_testing.contract import NotApplicable, Part, check, require
from rlcatalog_testing.examples import Example
from rlcatalog_testing.passes import Array, Pass, alike, encoded_of, run, same_answers

if TYPE_CHECKING:
    from rlcatalog_policy import Policy

CARRYING = ("memory", "trunk")
#: Lengths of two episodes, of which the second is padded.
LENGTHS = (4, 2)


class Steps(NamedTuple):
    """Two episodes, taken step by step.

    Attributes:
        encoded: Their observations `[2, T, ...]`.
        passes: What each step gave, in both.
    """

    encoded: Array
    passes: list[Pass]


def _carrying(part: Part, example: Example) -> Policy:
    """Return a policy that carries a state and nothing beside it."""
    policy = part.policy(example)
    if not policy.memory:
        raise NotApplicable("it has no state")
    if any(name.startswith("state_in_") for name in policy.views.acting):
        raise NotApplicable("it is shown windows of its state, which the kernel cuts")
    return policy


def _take_steps(policy: Policy, example: Example, state: tuple[Array, ...] | None = None) -> Steps:
    encoded = encoded_of(policy, example, 2 * LENGTHS[0])
    encoded = encoded.reshape(2, LENGTHS[0], *encoded.shape[1:])
    passes = []
    for t in range(LENGTHS[0]):
        passes.append(run(policy, encoded[:, t], state))
        state = passes[-1].state
    return Steps(encoded, passes)


def _pad(encoded: Array, garbage: float) -> Array:
    """Return the rows of both episodes, the second one's last steps replaced."""
    found = encoded.copy()
    found[1, LENGTHS[1] :] = np.asarray(garbage).astype(found.dtype)
    return found.reshape(-1, *encoded.shape[2:])


@check("memory", hint="return the state at the start of an episode, unbatched, and set is_memory = True on the class")
def has_a_state(part: Part) -> None:
    """A memory says what state an episode starts from, and that it is one."""
    require(
        getattr(part.component.load(str(part.framework)), "is_memory", False) is True,
        "its class has no is_memory = True, which keeps it from trunks whose state it would not carry",
    )
    for example in part.few:
        require(
            bool(part.policy(example).memory),
            f"{example}: get_initial_state() returned []: nothing is kept from step to step",
        )


@check(*CARRYING, hint="return as many tensors as get_initial_state() does, of the same shapes, one row per episode")
def state_keeps_its_shapes(part: Part) -> None:
    """The state has the same shapes from step to step, a row for each episode."""
    example = part.examples[0]
    policy = _carrying(part, example)
    before = policy.memory.start(3)
    after = run(policy, encoded_of(policy, example, 3), before).state
    shapes = [part.shape for part in before], [part.shape for part in after]
    require(shapes[0] == shapes[1], f"{example}: the state has shapes {shapes[0]}, and after a step {shapes[1]}")


@check(*CARRYING, hint="start each sequence from its state and run it in time order; mind time-major input")
def steps_equal_a_sequence(part: Part) -> None:
    """One step after another gives what the whole sequence gives at once."""
    for example in part.few:
        policy = _carrying(part, example)
        encoded, passes = _take_steps(policy, example)
        whole = run(policy, encoded.reshape(-1, *encoded.shape[2:]), lengths=[LENGTHS[0]] * 2)
        outputs = whole.outputs.reshape(2, LENGTHS[0], -1)
        values = [None] * LENGTHS[0] if whole.value is None else whole.value.reshape(2, -1).T
        for t, (one, value) in enumerate(zip(passes, values, strict=True)):
            same_answers(one, Pass(outputs[:, t], value, ()), f"{example}: step {t} by itself, against the sequence")


@check(*CARRYING, hint="carry on from the state that forward is given, and keep nothing in attributes")
def state_carries_everything(part: Part) -> None:
    """A sequence cut in two, the state handed on, gives what it gives whole; rows that restart begin anew."""
    example = part.examples[0]
    policy = _carrying(part, example)
    encoded, passes = _take_steps(policy, example)
    half = LENGTHS[0] // 2
    later = encoded[:, half:].reshape(-1, *encoded.shape[2:])
    rest = run(policy, later, passes[half - 1].state, [LENGTHS[0] - half] * 2)
    outputs = rest.outputs.reshape(2, LENGTHS[0] - half, -1)
    alike(outputs[:, -1], passes[-1].outputs, f"{example}: continued from a state, against all steps")
    mixed = tuple(part.copy() for part in passes[0].state)
    for part_, first in zip(mixed, policy.memory.start(1), strict=True):
        part_[0] = first[0]
    found = run(policy, encoded[:, 1], mixed)
    fresh = run(policy, encoded[:, 1])
    alike(found.outputs[:1], fresh.outputs[:1], f"{example}: a row that restarts remembers its episode")
    alike(found.outputs[1:], passes[1].outputs[1:], f"{example}: a row forgets its episode when another restarts")
    stateless = np.allclose(fresh.outputs[1:], passes[1].outputs[1:], rtol=1e-7, atol=1e-7)
    require(not stateless, f"{example}: its outputs do not depend on its state")


@check(*CARRYING, hint="return the state at seq_lens - 1, not at the padded end")
def state_at_seq_lens(part: Part) -> None:
    """After a padded sequence the state is the one at its last real step."""
    example = part.examples[0]
    policy = _carrying(part, example)
    encoded, passes = _take_steps(policy, example)
    found = run(policy, _pad(encoded, 0.0), lengths=LENGTHS).state
    for index, part_ in enumerate(found):
        for row, length in enumerate(LENGTHS):
            what = (
                f"{example}: of a sequence of {length} steps padded to {LENGTHS[0]}, the state {index}, against that of"
            )
            alike(part_[row], passes[length - 1].state[index][row], f"{what} step {length - 1}")


@check(*CARRYING, hint="mask padded steps with seq_lens before anything of them meets a real step")
def padding_never_reaches_it(part: Part) -> None:
    """What stands in the padding changes neither outputs nor state."""
    example = part.examples[0]
    policy = _carrying(part, example)
    encoded, passes = _take_steps(policy, example)
    one, two = (run(policy, _pad(encoded, garbage), lengths=LENGTHS) for garbage in (0.0, 100.0))
    for found in (one, two):
        outputs = found.outputs.reshape(2, LENGTHS[0], -1)
        for row, length in enumerate(LENGTHS):
            expected = np.stack([step.outputs[row] for step in passes[:length]])
            alike(outputs[row, :length], expected, f"{example}: padding changes outputs")
    for a, b in zip(one.state, two.state, strict=True):
        alike(a, b, f"{example}: padding changes the state")
