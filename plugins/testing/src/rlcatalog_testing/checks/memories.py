"""Checks for models with a state, that is, memories and recurrent trunks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np

from rlcatalog.frameworks import Array
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.passes import ModelTrial, Pass, alike, few, first, same_answers

#: Lengths of two episodes, the second of which is padded.
LENGTHS = (4, 2)


class Episodes:
    """Two episodes, passed step by step through a model that has a state.

    Args:
        trial: The model.

    Attributes:
        trial: The model.
        encoded: The episodes' observations `[2, T, ...]`.

    Raises:
        NotApplicable: The model has no state, or also reads past states.
    """

    def __init__(self, trial: ModelTrial) -> None:
        if not trial.policy.memory:
            raise NotApplicable("it has no state")
        if any(name.startswith("state_in_") for name in trial.policy.views.acting_names):
            raise NotApplicable("it reads windows of its state, which the kernel cuts")
        encoded = trial.encoded(2 * LENGTHS[0])
        self.trial = trial
        self.encoded = encoded.reshape(2, LENGTHS[0], *encoded.shape[1:])

    @cached_property
    def passes(self) -> list[Pass]:
        """The results at each step, in both episodes."""
        passes = []
        state: tuple[Array, ...] | None = None
        for t in range(LENGTHS[0]):
            step = self.trial.run(self.encoded[:, t], state)
            state = step.state
            passes.append(step)
        return passes

    def __str__(self) -> str:
        return str(self.trial)

    def run(self, start: int = 0, state: tuple[Array, ...] | None = None) -> Pass:
        """Run the model over both episodes in one pass, from a given step on; all results are
        `[2, T, ...]`.
        """
        rest = self.encoded[:, start:]
        steps = rest.shape[1]
        whole = self.trial.run(rest.reshape(-1, *rest.shape[2:]), state, [steps] * 2)
        value = None if whole.value is None else whole.value.reshape(2, steps)
        return Pass(whole.outputs.reshape(2, steps, -1), value, whole.state)

    def run_padded(self, garbage: float) -> Pass:
        """Run the model over the episodes cut to `LENGTHS`, with garbage in the padding; outputs
        are `[2, T, n]`.
        """
        padded = self.encoded.copy()
        padded[1, LENGTHS[1] :] = np.asarray(garbage).astype(padded.dtype)
        whole = self.trial.run(padded.reshape(-1, *padded.shape[2:]), lengths=LENGTHS)
        return Pass(whole.outputs.reshape(2, LENGTHS[0], -1), whole.value, whole.state)


def _episodes_of_first(subject: Subject) -> Iterator[Episodes]:
    return map(Episodes, first(subject))


def _episodes_of_few(subject: Subject) -> Iterator[Episodes]:
    return map(Episodes, few(subject))


#: Checks for parts with a state, over episodes from the first example.
check_episodes = partial(check, "memory", "trunk", each=_episodes_of_first)


@check(
    "memory",
    each=few,
    hint="return the state at the start of an episode, unbatched, and set is_memory = True on the"
    " class",
)
def has_a_state(trial: ModelTrial) -> None:
    """A memory declares its initial state and its role as a memory."""
    model_class = trial.subject.part.load(str(trial.subject.framework))
    # The author's class may be of any kind.
    is_memory = getattr(model_class, "is_memory", False) is True
    require(
        is_memory,
        "its class does not set is_memory = True, which keeps it away from trunks whose state it"
        " would not carry",
    )
    has_state = bool(trial.policy.memory)
    require(
        has_state, f"{trial}: get_initial_state() returned [], so nothing is kept from step to step"
    )


@check_episodes(
    hint="return as many tensors as get_initial_state() does, with the same shapes and one row per"
    " episode"
)
def state_keeps_its_shapes(episodes: Episodes) -> None:
    """The state keeps its shapes from step to step, with one row per episode."""
    trial = episodes.trial
    before = trial.policy.memory.start(3)
    after = trial.run(trial.encoded(3), before).state
    shapes_before = [array.shape for array in before]
    shapes_after = [array.shape for array in after]
    require(
        shapes_before == shapes_after,
        f"{trial}: the state has shapes {shapes_before}, but {shapes_after} after a step",
    )


@check_episodes(
    each=_episodes_of_few,
    hint="start each sequence from its state and run it in time order; watch out for time-major"
    " input",
)
def steps_equal_a_sequence(episodes: Episodes) -> None:
    """Single steps give the same results as one pass over the whole sequence."""
    whole = episodes.run()
    for t, step in enumerate(episodes.passes):
        same_answers(
            step,
            whole.at((slice(None), t)),
            f"{episodes}: step {t} on its own, compared with the sequence",
        )


@check_episodes(hint="start from the state passed to forward, and do not keep state in attributes")
def state_carries_everything(episodes: Episodes) -> None:
    """A sequence cut in two gives the same results if the state is passed on; restarted rows get a
    new state.
    """
    trial = episodes.trial
    passes = episodes.passes
    half = LENGTHS[0] // 2
    state_at_half = passes[half - 1].state  # after the steps 0 to half - 1
    rest = episodes.run(half, state_at_half)
    alike(
        rest.outputs[:, -1],
        passes[-1].outputs,
        f"{trial}: continued from a state, compared with all steps",
    )
    second_step = episodes.encoded[:, 1]
    state = tuple(array.copy() for array in passes[0].state)
    # The first episode begins again, the second one goes on.
    state_of_new_episode = trial.policy.memory.start(1)
    for array, initial in zip(state, state_of_new_episode, strict=True):
        array[0] = initial[0]
    outputs = trial.run(second_step, state).outputs
    outputs_without_past = trial.run(second_step).outputs
    outputs_with_past = passes[1].outputs
    alike(
        outputs[:1],
        outputs_without_past[:1],
        f"{trial}: a row that restarts remembers its episode",
    )
    alike(
        outputs[1:],
        outputs_with_past[1:],
        f"{trial}: a row forgets its episode when another restarts",
    )
    is_stateless = np.allclose(
        outputs_without_past[1:], outputs_with_past[1:], rtol=1e-7, atol=1e-7
    )
    require(not is_stateless, f"{trial}: its outputs do not depend on its state")


@check_episodes(hint="return the state at seq_lens - 1, not at the padded end")
def state_at_seq_lens(episodes: Episodes) -> None:
    """After a padded sequence, the state is the one after the last real step."""
    for index, array in enumerate(episodes.run_padded(0.0).state):
        for row, length in enumerate(LENGTHS):
            last_step = length - 1
            alike(
                array[row],
                episodes.passes[last_step].state[index][row],
                f"{episodes}: state {index} after {length} steps padded to {LENGTHS[0]}, compared"
                f" with the state after step {last_step}",
            )


@check_episodes(hint="mask padded steps with seq_lens before they can affect a real step")
def padding_never_reaches_it(episodes: Episodes) -> None:
    """Values in the padding change neither the outputs nor the state."""
    zeros_in_padding = episodes.run_padded(0.0)
    garbage_in_padding = episodes.run_padded(100.0)
    for padded in (zeros_in_padding, garbage_in_padding):
        for row, length in enumerate(LENGTHS):
            expected = np.stack([step.outputs[row] for step in episodes.passes[:length]])
            alike(padded.outputs[row, :length], expected, f"{episodes}: padding changes outputs")
    states = zip(zeros_in_padding.state, garbage_in_padding.state, strict=True)
    for with_zeros, with_garbage in states:
        alike(with_zeros, with_garbage, f"{episodes}: padding changes the state")
