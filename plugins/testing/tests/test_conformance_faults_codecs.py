"""Checks of the conformance kit for codecs and filters, each of which finds a planted fault."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sound_parts as sound
from faults import (
    AROUND,
    Fault,
    assert_all_pass,
    assert_check_finds,
    find_cases,
    find_checks,
    list_faults,
    with_mutants,
)

from rlcatalog.observations import Ids
from rlcatalog_testing import cases, isolated_catalog, outcomes
from rlcatalog_testing.checks import action_codecs, codecs, filters

# --- faulty preprocessors -------------------------------------------------------------------------


def write_nothing(obs, out):
    """Write nothing into an array."""


class ConstantBatches(sound.HeadingCodec):
    """Encodes every row of a batch as 0.5."""

    def batch_writer(self, start):
        def write(batch, out):
            out[:, start : start + self.size] = 0.5

        return write


class WritesNoBatches(sound.HeadingCodec):
    def batch_writer(self, start):
        return write_nothing


class WritesNoRows(sound.HeadingCodec):
    def writer(self, start):
        return write_nothing


class WritesNothing(sound.HeadingCodec):
    def writer(self, start):
        return write_nothing

    def batch_writer(self, start):
        return write_nothing


class AddsItsPlace(sound.HeadingCodec):
    """Encodes another angle if it does not begin at place 0 of the vector."""

    def writer(self, start):
        def write(obs, out):
            out[start : start + 2] = math.cos(obs + start), math.sin(obs + start)

        return write

    def batch_writer(self, start):
        write_row = self.writer(start)

        def write(batch, out):
            for obs, row in zip(batch, out, strict=True):
                write_row(obs, row)

        return write


class WritesBeyondItsSlice(sound.HeadingCodec):
    """Writes three values, although its size is 2."""

    def batch_writer(self, start):
        def write(batch, out):
            out[:, start : start + 3] = 0.5

        return write


class NarrowBounds(sound.HeadingCodec):
    """Says that its values lie in [0, 1], although they may be negative."""

    def bounds(self):
        return np.zeros(2, np.float32), np.ones(2, np.float32)


class AcceptsAnyNumber(sound.HeadingCodec):
    def check(self, obs):
        if not isinstance(obs, float | np.ndarray):
            self.refuse("a number", obs)


class ReturnsItsBuffer(sound.HeadingCodec):
    """Returns the same array from each call."""

    buffer = None

    def transform(self, obs):
        if self.buffer is None:
            self.buffer = np.zeros(2, np.float32)
        self.write(obs, self.buffer, 0)
        return self.buffer


class LeafWithoutItsLastValue(sound.HeadingCodec):
    def leaves(self, start=0):
        return [replace(leaf, stop=leaf.stop - 1) for leaf in super().leaves(start)]


class SaysThatAnglesAreIds(sound.HeadingCodec):
    def ids(self):
        return Ids(np.zeros(2, np.int64), np.full(2, 360))


class IdsOfOneValue(sound.HeadingCodec):
    """Writes two values, but has ids for one."""

    def ids(self):
        return Ids(np.zeros(1, np.int64), np.full(1, 360))


#: A check, the faulty class that it finds, and the cause in the message of the error.
FAULTY_PREPROCESSORS = [
    ("single_is_batch", ConstantBatches, "a list, compared with each on"),
    ("single_is_batch", WritesNoBatches, "a list, compared with each on"),
    ("single_is_batch", WritesNoRows, "a list, compared with each on"),
    ("nested_is_alone", AddsItsPlace, "its slice, compared with its"),
    (
        "writes_only_its_slice",
        WritesBeyondItsSlice,
        r"writes to position start\+2",
    ),
    (
        "encodes_within_its_bounds",
        NarrowBounds,
        r"outside \[0.0, 1.0\], the range that its bounds",
    ),
    ("tells_observations_apart", WritesNothing, "obs have the same encoding"),
    ("refuses_what_does_not_fit", AcceptsAnyNumber, "accepted -987654321, which is not in"),
    ("leaves_observations_alone", ReturnsItsBuffer, "an array that the next call writes into"),
    ("leaves_cover_the_vector", LeafWithoutItsLastValue, "its leaves begin at"),
    ("ids_are_what_it_writes", SaysThatAnglesAreIds, "values that are not among its ids"),
    ("ids_are_what_it_writes", IdsOfOneValue, "those of 1 values, but it writes 2"),
]


# --- faulty action codecs -------------------------------------------------------------------------


class InvertsToActions(sound.PairCodec):
    """Forgets that raw values count from 0."""

    def invert(self, action):
        return np.asarray(action)


class InvertsToZeros(sound.PairCodec):
    def invert(self, action):
        return np.zeros_like(action, np.float32)


class AdaptsToRawValues(sound.PairCodec):
    """Forgets that actions count from 1."""

    def adapt(self, raw):
        return raw.astype(np.int64)


class AdaptsToZeros(sound.PairCodec):
    def adapt(self, raw):
        return np.zeros_like(raw, np.int64)


class AdaptsDifferentlyAlone(sound.PairCodec):
    """Adds 1 only if it is not inside a composite."""

    def adapt(self, raw):
        is_alone = self.info.path == "action"
        return raw.astype(np.int64) + int(is_alone)


class RawInputs(sound.PairCodec):
    """Returns 2 inputs, although its width is 6."""

    def inputs(self, raw):
        return raw.astype(np.float32)


class SameInputs(sound.PairCodec):
    def inputs(self, raw):
        return np.zeros((len(raw), 6), np.float32)


class SharedInputs(sound.PairCodec):
    """Has the same inputs for two values of the second number; few random actions differ there."""

    def inputs(self, raw):
        return super().inputs(np.minimum(raw, [2, 1]))


class ReadsAnotherSpace(sound.PairCodec):
    @staticmethod
    def space_from_json(data):
        return sound.Pair(data["n"] + 1)


class AllowsAllColumns(sound.PairCodec):
    def mask_columns(self, mask, rows=None):
        return np.ones((rows, 6), bool)


class TakesColumnsOfTheFirstChoice(sound.PairCodec):
    """Returns for both choices the columns of the first one."""

    def mask_taken(self, raw):
        return raw.astype(np.int64)


FAULTY_ACTION_CODECS = [
    ("actions_are_inverted", InvertsToActions, "invert.adapt.raw"),
    ("actions_are_inverted", InvertsToZeros, "adapt.invert.action."),
    ("adapted_actions_lie_in_the_space", AdaptsToRawValues, "not an action in it"),
    ("adapted_actions_lie_in_the_space", AdaptsToZeros, "not an action in it"),
    ("sizes_are_those_of_arrays", RawInputs, "inputs.. has .5, 2., expected .5, 6."),
    ("models_can_tell_actions_apart", SameInputs, "different actions become 1 model"),
    # Two of the five have the same inputs.
    ("models_can_tell_actions_apart", SharedInputs, "5 different actions become 4 model inputs"),
    ("the_space_is_written_down", ReadsAnotherSpace, "read back as"),
    ("masks_become_columns", AllowsAllColumns, "a mask given as columns became"),
    ("masks_become_columns", TakesColumnsOfTheFirstChoice, "one column for each choice"),
    ("nested_actions_are_those_alone", AdaptsDifferentlyAlone, "its part is"),
]


# --- faulty filters -------------------------------------------------------------------------------

#: What all filters of the class SharesItsState have learned.
SHARED_STATE: dict[str, Any] = {}


class ChangesItsArgument(sound.Largest):
    def __call__(self, encoded, *, update=False):
        encoded /= 2
        return encoded.copy()


class ReturnsFourColumns(sound.Largest):
    """Returns 4 of 7 values."""

    def __call__(self, encoded, update=False):
        return encoded[:, :4].copy()


class ReturnsFloat64(sound.Largest):
    def __call__(self, encoded, update=False):
        return super().__call__(encoded, update=update).astype(np.float64)


class AlwaysLearns(sound.Largest):
    def __call__(self, encoded, *, update=False):
        return super().__call__(encoded, update=True)

    def learn(self, flat):
        self.largest = self.largest * 0.99


class ForgetsItsState(sound.Largest):
    def set_state(self, state):
        """Ignore the state."""

    def learn(self, flat):
        self.largest = self.largest + 1


class CountsItsCalls(sound.Largest):
    """Learns from a number that its state does not contain."""

    calls = 0

    def learn(self, flat):
        self.calls += 1
        self.largest = self.largest + self.calls


class SharesItsState(sound.Largest):
    def learn(self, flat):
        super().learn(flat)
        SHARED_STATE["largest"] = self.largest + 1

    def get_state(self):
        return {"largest": np.array(SHARED_STATE.get("largest", self.largest))}


class ChangesOneHots(sound.Largest):
    """Divides all values, not only quantities."""

    def __call__(self, encoded, *, update=False):
        if update:
            self.learn(encoded)
        return (encoded / (1 + self.largest)).astype(np.float32)


class SubtractsTheMeanOfTheBatch(sound.Largest):
    def __call__(self, encoded, *, update=False):
        centred = encoded - encoded.mean(axis=0) * self.numeric
        return super().__call__(centred, update=update)


FAULTY_FILTERS = [
    ("leaves_its_input_alone", ChangesItsArgument, "changes its argument"),
    ("returns_what_it_announced", ReturnsFourColumns, "returned shape .6, 4., expected .6, 7."),
    ("returns_what_it_announced", ReturnsFloat64, "float64, but its space has dtype float32"),
    ("learns_only_when_asked", AlwaysLearns, "the same observations, filtered again"),
    ("state_is_saved_and_restored", ForgetsItsState, "a filter with its state, compared"),
    ("state_is_saved_and_restored", CountsItsCalls, "further learning"),
    ("copies_are_independent", SharesItsState, "after (a copy|another filter) has learned"),
    ("leaves_one_hots_and_masks_alone", ChangesOneHots, r"\(discrete\)"),
    ("filters_each_row_alone", SubtractsTheMeanOfTheBatch, "one by one, compared with all at once"),
]


FAULTS = [
    *[
        Fault(check, "heading", cause, cls.__name__, objects={"HeadingCodec": cls})
        for check, cls, cause in FAULTY_PREPROCESSORS
    ],
    *[
        Fault(check, "pair", cause, cls.__name__, objects={"PairCodec": cls})
        for check, cls, cause in FAULTY_ACTION_CODECS
    ],
    *[
        Fault(check, "largest", cause, cls.__name__, objects={"Largest": cls})
        for check, cls, cause in FAULTY_FILTERS
    ],
]


# --- the checks -----------------------------------------------------------------------------------

CHECKS = find_checks(codecs, action_codecs, filters)


@pytest.mark.parametrize("fault", list_faults(FAULTS))
def test_check_finds_its_fault_and_names_the_plugin(make_catalog, fault):
    assert_check_finds(fault, make_catalog(fault))


@pytest.mark.parametrize("part", ["heading", "pair", "largest"])
def test_sound_part_passes(make_catalog, part):
    no_fault = Fault(check="", part=part, cause="")

    assert_all_pass(find_cases(make_catalog(no_fault), CHECKS))


def test_built_in_codecs_pass():
    all_cases = cases("rlcatalog-preprocessors", catalog=isolated_catalog(*AROUND))
    chosen = [case for case in all_cases if case.check.name in CHECKS]
    results = list(outcomes(chosen))

    assert [outcome.why for outcome in results if outcome.status == "failed"] == []
    passed = [outcome for outcome in results if outcome.status == "passed"]
    assert len(passed) > 20


def test_checks_all_have_a_fault():
    assert {fault.check for fault in FAULTS} | with_mutants(CHECKS) == CHECKS
