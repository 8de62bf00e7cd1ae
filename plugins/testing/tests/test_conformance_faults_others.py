"""Checks of the conformance kit for parts other than models, each of which finds a planted fault.

They are distributions, codecs, filters, wrappers, commands, frameworks and formats of export.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import sound_parts as sound
import torch
from planted_mutants import MUTANTS

import rlcatalog
from rlcatalog import (
    ActionCodecSpec,
    ActionDistSpec,
    CommandSpec,
    EnvWrapperSpec,
    ExporterSpec,
    FilterSpec,
    FrameworkSpec,
    Match,
    ModelSpec,
    PreprocessorSpec,
    Rank,
)
from rlcatalog.errors import CatalogError, UnsupportedSpaceError
from rlcatalog.frameworks import TensorOps
from rlcatalog_testing import (
    Check,
    ConformanceError,
    PluginEntryPoint,
    cases,
    isolated_catalog,
    outcomes,
    passes,
    plugin_of,
)
from rlcatalog_testing.checks import (
    action_codecs,
    codecs,
    commands,
    densities,
    distributions,
    draws,
    exporters,
    filters,
    frameworks,
    ways_in,
    wrappers,
)

#: The module that the targets of the parts are in.
PARTS = "made_up_parts"
#: The packages beside the one under test.
AROUND = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
    "rlcatalog-multi-action",
    "rlcatalog-lstm",
    "rlcatalog-ppo",
)
#: Those for an exported program whose fault has nothing to do with a state. An export without one
#: is quicker.
WITHOUT_MEMORY = tuple(name for name in AROUND if name != "rlcatalog-lstm")


def count_actions(action, config):
    if action.kind != "discrete":
        raise UnsupportedSpaceError(f"{action.path}: takes Discrete")
    return action.n


#: Name in these tests → the declaration of a sound part.
SPECS = {
    "choice": ActionDistSpec(
        "acme_choice",
        {"torch": f"{PARTS}:Choice"},
        "a choice",
        size=count_actions,
        examples=f"{PARTS}:choices",
    ),
    "heading": PreprocessorSpec(
        "acme_heading",
        {"numpy": f"{PARTS}:HeadingCodec"},
        "angles",
        kinds=("sound_parts.Heading",),
        examples=f"{PARTS}:headings",
    ),
    "pair": ActionCodecSpec(
        "acme_pair",
        {"numpy": f"{PARTS}:PairCodec"},
        "pairs",
        kinds=("sound_parts.Pair",),
        examples=f"{PARTS}:pairs",
    ),
    "largest": FilterSpec(
        "acme_largest", {"numpy": f"{PARTS}:Largest"}, "divides", examples=f"{PARTS}:mixed"
    ),
    "doubled": EnvWrapperSpec(
        "acme_doubled",
        {"numpy": f"{PARTS}:doubled"},
        "doubles rewards",
        match=sound.matches_pendulum,
        switch="acme_double",
        config=f"{PARTS}:DoubledConfig",
        examples=f"{PARTS}:pendulums",
    ),
    "sail": CommandSpec("acme_sail", {"cli": "made_up_commands:sail"}, "sails"),
    "plain": FrameworkSpec(
        "plain", {"backend": f"{PARTS}:Backend", "ops": f"{PARTS}:OPS"}, "NumPy", module="numpy"
    ),
    "program": ExporterSpec(
        "acme_program", {"runner": f"{PARTS}:ProgramRunner"}, "programs", suffix=".acme"
    ),
    "trunk": ModelSpec("acme_trunk", {"torch": f"{PARTS}:Trunk"}, "a net"),
}
#: Hook of each kind of declaration.
HOOKS = {
    ActionDistSpec: "rlcatalog_action_dists", PreprocessorSpec: "rlcatalog_preprocessors",
    ActionCodecSpec: "rlcatalog_action_codecs", FilterSpec: "rlcatalog_filters",
    EnvWrapperSpec: "rlcatalog_env_wrappers", CommandSpec: "rlcatalog_commands",
    FrameworkSpec: "rlcatalog_frameworks", ModelSpec: "rlcatalog_models",
    ExporterSpec: "rlcatalog_exporters",
}  # fmt: skip
SOUND_COMMAND = 'def sail() -> None:\n    """Sail."""\n'


@dataclass
class Fault:
    """A part with a fault, and the check that finds it.

    Attributes:
        check: Name of the check.
        part: Name of the sound part in `SPECS`.
        cause: Regular expression for the message of the error.
        label: What is wrong; by default the name of the check.
        objects: Objects that replace those of the same names in the module of the sound parts.
        declared: Fields that replace those of the declaration.
        command: Source of the command, if the part is one.
        around: The packages beside it.
        is_slow: Whether the check takes a whole export.
    """

    check: str
    part: str
    cause: str
    label: str = ""
    objects: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)
    command: str = SOUND_COMMAND
    around: tuple[str, ...] = AROUND
    is_slow: bool = False


# --- faulty distributions -------------------------------------------------------------------------
# Further ones are among the mutants.


class DrawsOneMore(sound.Choice):
    """Samples from 1 to n, instead of 0 to n - 1."""

    def sample(self):
        self.last_sample = torch.multinomial(self.logits.exp(), 1)[:, 0] + 1
        return self.last_sample


class TwinChoice(rlcatalog.ActionDistribution):
    """The choice in TensorFlow, of twice the logits, and without `kl`."""

    framework_of_class = "tf"
    factor = 2

    def __init__(self, inputs, model=None):
        import tensorflow as tf

        super().__init__(inputs, model)
        self.tf = tf
        self.logits = tf.nn.log_softmax(self.factor * inputs)

    def deterministic_sample(self):
        return self.tf.argmax(self.logits, -1)

    def logp(self, actions):
        return self.tf.gather(self.logits, self.tf.cast(actions, self.tf.int64), batch_dims=1)

    def entropy(self):
        return -self.tf.reduce_sum(self.tf.exp(self.logits) * self.logits, -1)


class TwinWithoutKL(TwinChoice):
    """The choice in TensorFlow. Only `kl` is missing."""

    factor = 1


IN_BOTH_FRAMEWORKS = {"targets": {"torch": f"{PARTS}:Choice", "tf": f"{PARTS}:Twin"}}

FAULTY_DISTRIBUTIONS = [
    Fault(
        "actions_lie_in_the_space",
        "choice",
        "does not become an action",
        objects={"Choice": DrawsOneMore},
    ),
    Fault(
        "frameworks_agree",
        "choice",
        "in torch and tf, logp",
        objects={"Twin": TwinChoice},
        declared=IN_BOTH_FRAMEWORKS,
    ),
    Fault(
        "frameworks_agree",
        "choice",
        "only one has a kl: .True, False.",
        label="kl-in-one-framework",
        objects={"Twin": TwinWithoutKL},
        declared=IN_BOTH_FRAMEWORKS,
    ),
]


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


FAULTY_PREPROCESSORS = [
    Fault(
        "single_is_batch",
        "heading",
        "a list, compared with each on",
        objects={"HeadingCodec": ConstantBatches},
    ),
    Fault(
        "single_is_batch",
        "heading",
        "a list, compared with each on",
        label="batch-writer-writes-nothing",
        objects={"HeadingCodec": WritesNoBatches},
    ),
    Fault(
        "single_is_batch",
        "heading",
        "a list, compared with each on",
        label="writer-writes-nothing",
        objects={"HeadingCodec": WritesNoRows},
    ),
    Fault(
        "nested_is_alone",
        "heading",
        "its slice, compared with its",
        objects={"HeadingCodec": AddsItsPlace},
    ),
    Fault(
        "writes_only_its_slice",
        "heading",
        r"its batch_writer\(start\) writes to position start\+2",
        objects={"HeadingCodec": WritesBeyondItsSlice},
    ),
    Fault(
        "encodes_within_its_bounds",
        "heading",
        r"outside \[0.0, 1.0\], the range that its bounds\(\) returns",
        objects={"HeadingCodec": NarrowBounds},
    ),
    Fault(
        "tells_observations_apart",
        "heading",
        "obs have the same encoding",
        objects={"HeadingCodec": WritesNothing},
    ),
    Fault(
        "refuses_what_does_not_fit",
        "heading",
        "accepted -987654321, which is not in",
        objects={"HeadingCodec": AcceptsAnyNumber},
    ),
    Fault(
        "leaves_observations_alone",
        "heading",
        "an array that the next call writes into",
        objects={"HeadingCodec": ReturnsItsBuffer},
    ),
    Fault(
        "leaves_cover_the_vector",
        "heading",
        "its leaves begin at",
        objects={"HeadingCodec": LeafWithoutItsLastValue},
    ),
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
    Fault(
        "actions_are_inverted",
        "pair",
        "invert.adapt.raw",
        objects={"PairCodec": InvertsToActions},
    ),
    Fault(
        "actions_are_inverted",
        "pair",
        "adapt.invert.action.",
        label="inverts-to-zeros",
        objects={"PairCodec": InvertsToZeros},
    ),
    Fault(
        "adapted_actions_lie_in_the_space",
        "pair",
        "not an action in it",
        objects={"PairCodec": AdaptsToRawValues},
    ),
    Fault(
        "adapted_actions_lie_in_the_space",
        "pair",
        "not an action in it",
        label="adapts-to-zeros",
        objects={"PairCodec": AdaptsToZeros},
    ),
    Fault(
        "sizes_are_those_of_arrays",
        "pair",
        "inputs.. has .5, 2., expected .5, 6.",
        objects={"PairCodec": RawInputs},
    ),
    Fault(
        "models_can_tell_actions_apart",
        "pair",
        "different actions become 1 model",
        objects={"PairCodec": SameInputs},
    ),
    Fault(
        "models_can_tell_actions_apart",
        "pair",
        "5 different actions become 4 model inputs",  # the first one, and two in each column
        label="inputs-shared-by-two-values",
        objects={"PairCodec": SharedInputs},
    ),
    Fault(
        "the_space_is_written_down",
        "pair",
        "read back as",
        objects={"PairCodec": ReadsAnotherSpace},
    ),
    Fault(
        "masks_become_columns",
        "pair",
        "a mask given as columns became",
        objects={"PairCodec": AllowsAllColumns},
    ),
    Fault(
        "masks_become_columns",
        "pair",
        "one column for each choice",
        label="columns-of-the-first-choice-for-both",
        objects={"PairCodec": TakesColumnsOfTheFirstChoice},
    ),
    Fault(
        "nested_actions_are_those_alone",
        "pair",
        "its part is",
        objects={"PairCodec": AdaptsDifferentlyAlone},
    ),
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
    Fault(
        "leaves_its_input_alone",
        "largest",
        "changes its argument",
        objects={"Largest": ChangesItsArgument},
    ),
    Fault(
        "returns_what_it_announced",
        "largest",
        "returned shape .6, 4., expected .6, 7.",
        objects={"Largest": ReturnsFourColumns},
    ),
    Fault(
        "returns_what_it_announced",
        "largest",
        "float64, but its space has dtype float32",
        label="returns-float64",
        objects={"Largest": ReturnsFloat64},
    ),
    Fault(
        "learns_only_when_asked",
        "largest",
        "the same observations, filtered again",
        objects={"Largest": AlwaysLearns},
    ),
    Fault(
        "state_is_saved_and_restored",
        "largest",
        "a filter with its state, compared",
        objects={"Largest": ForgetsItsState},
    ),
    Fault(
        "state_is_saved_and_restored",
        "largest",
        "further learning",
        label="state-without-all-that-it-learns-from",
        objects={"Largest": CountsItsCalls},
    ),
    Fault(
        "copies_are_independent",
        "largest",
        "after (a copy|another filter) has learned",
        objects={"Largest": SharesItsState},
    ),
    Fault(
        "leaves_one_hots_and_masks_alone",
        "largest",
        r"\(discrete\)",
        objects={"Largest": ChangesOneHots},
    ),
    Fault(
        "filters_each_row_alone",
        "largest",
        "one by one, compared with all at once",
        objects={"Largest": SubtractsTheMeanOfTheBatch},
    ),
]


# --- faulty wrappers ------------------------------------------------------------------------------


def change_environment(env, config):
    """Change the environment itself, instead of wrapping it."""
    env.unwrapped.reward_factor = 2
    return env


class ReturnsFourValues(gym.Wrapper):
    """Returns no info from a step."""

    def step(self, action):
        return self.env.step(action)[:4]


def wrap_without_info(env, config):
    return ReturnsFourValues(env)


def match_every_environment(request):
    return Match(Rank.SPECIFIC, "everything")


def match_no_environment(request):
    return Match(None, "never")


FAULTY_WRAPPERS = [
    Fault(
        "applied_twice_is_once",
        "doubled",
        "it returns the given environment itself",
        objects={"doubled": change_environment},
    ),
    Fault(
        "wrapped_environments_conform",
        "doubled",
        "must be a python dictionary",
        objects={"doubled": wrap_without_info},
    ),
    Fault(
        "leaves_others_alone",
        "doubled",
        "it matches CartPole-v1",
        declared={"match": match_every_environment},
    ),
    Fault(
        "has_a_way_in",
        "doubled",
        "no user input selects it",
        declared={"switch": None},
    ),
    Fault(
        "has_a_way_in",
        "doubled",
        "it matches none of its examples",
        label="matches-none-of-its-examples",
        declared={"match": match_no_environment, "examples": f"{PARTS}:pendulums"},
    ),
]


# --- faulty commands ------------------------------------------------------------------------------

FAULTY_COMMANDS = [
    Fault("help_is_shown", "sail", "no boat", command="raise RuntimeError('no boat')\n"),
    Fault(
        "help_imports_no_framework",
        "sail",
        "--help imports torch",
        command=f"import torch\n{SOUND_COMMAND}",
    ),
]


# --- faulty frameworks ----------------------------------------------------------------------------


def add_one(x):
    return x.astype(np.int64) + 1


def make_ops_with_wrong_integers():
    operations = dict(vars(sound.OPS))
    operations["integers"] = add_one
    return TensorOps(**operations)


class ReturnsColumnsOfLogp(sound.Backend):
    """Returns log densities of shape [B, 1]."""

    def act(self, *arguments):
        raw, logp, *others = super().act(*arguments)
        return (raw, logp[:, None], *others)


class FailsToEvaluate(sound.Backend):
    def evaluate(self, batch, entropy=True):
        raise KeyError("logp")


FAULTY_FRAMEWORKS = [
    Fault(
        "operations_are_those_of_numpy",
        "plain",
        "integers..: ",
        objects={"OPS": make_ops_with_wrong_integers()},
    ),
    Fault(
        "the_backend_acts",
        "plain",
        "log densities have shape",
        objects={"Backend": ReturnsColumnsOfLogp},
    ),
    Fault(
        "the_backend_evaluates",
        "plain",
        "KeyError|AttributeError",
        objects={"Backend": FailsToEvaluate},
    ),
]


# --- faulty formats of export ---------------------------------------------------------------------


class WrongValueOfFourRows(sound.ProgramRunner):
    def run(self, feeds, outputs):
        arrays = list(super().run(feeds, outputs))
        for i, name in enumerate(outputs):
            if name == "value" and len(arrays[i]) == 4:
                arrays[i] = arrays[i] + 1
        return arrays


class IgnoresItsState(sound.ProgramRunner):
    def run(self, feeds, outputs):
        feeds = dict(feeds)
        for name in feeds:
            if name.startswith("memory"):
                feeds[name] = feeds[name] * 0
        return super().run(feeds, outputs)


class ClaimsAnotherFramework(sound.ProgramRunner):
    def __init__(self, path):
        super().__init__(path)
        self.interface = self.interface.replace('"framework":"torch"', '"framework":"elsewhere"')


class ReadsFilesUnguarded(sound.ProgramRunner):
    """Raises the error of the library for a damaged file."""

    def __init__(self, path):
        torch.export.load(path)
        super().__init__(path)


def change_weights_while_writing(policy, path):
    written = sound.write_program(policy, path)
    weights = policy.model.get_weights()
    policy.model.set_weights({name: array + 1 for name, array in weights.items()})
    return written


FAULTY_FORMATS = [
    Fault(
        "the_file_acts_as_the_policy",
        "program",
        "step 0 with 4 rows: value is",
        objects={"ProgramRunner": WrongValueOfFourRows},
        around=WITHOUT_MEMORY,
    ),
    Fault(
        "the_file_acts_as_the_policy",
        "program",
        "acts differently from",
        label="file-ignores-its-state",
        objects={"ProgramRunner": IgnoresItsState},
        is_slow=True,
    ),
    Fault(
        "exporting_leaves_the_policy_alone",
        "program",
        "exporting changed .*hidden",
        objects={"write_program": change_weights_while_writing},
        around=WITHOUT_MEMORY,
        is_slow=True,
    ),
    Fault(
        "the_interface_is_in_the_file",
        "program",
        "framework='elsewhere'",
        objects={"ProgramRunner": ClaimsAnotherFramework},
        around=WITHOUT_MEMORY,
        is_slow=True,
    ),
    Fault(
        "damaged_files_are_refused",
        "program",
        "RuntimeError|PytorchStreamReader|zip",
        objects={"ProgramRunner": ReadsFilesUnguarded},
        around=WITHOUT_MEMORY,
        is_slow=True,
    ),
]


# --- a faulty model for an engine -----------------------------------------------------------------


class IdleWeight(sound.Trunk):
    """Has a weight with which nothing is computed."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.idle = torch.nn.Parameter(torch.ones(3))


FAULTY_MODELS = [
    Fault(
        "ppo_moves_every_weight",
        "trunk",
        "does not change these weights: idle",
        objects={"Trunk": IdleWeight},
    ),
]

FAULTS = [
    *FAULTY_DISTRIBUTIONS,
    *FAULTY_PREPROCESSORS,
    *FAULTY_ACTION_CODECS,
    *FAULTY_FILTERS,
    *FAULTY_WRAPPERS,
    *FAULTY_COMMANDS,
    *FAULTY_FRAMEWORKS,
    *FAULTY_FORMATS,
    *FAULTY_MODELS,
]


# --- the plugin around a part ---------------------------------------------------------------------


def make_hooks(part, declared):
    """Return the hooks of a plugin with this part, and with the others that it needs."""
    spec = replace(SPECS[part], **declared)
    hooks: dict[str, Any] = {HOOKS[type(spec)]: [spec]}
    if part == "plain":
        # A framework needs a model and a distribution to act with.
        net = ModelSpec("fcnet", {"plain": f"{PARTS}:Net"}, "", extends="rlcatalog-fcnet/fcnet")
        dist = ActionDistSpec(
            "categorical",
            {"plain": f"{PARTS}:PlainChoice"},
            "",
            extends="rlcatalog-categorical/categorical",
        )
        hooks["rlcatalog_models"] = [net]
        hooks["rlcatalog_action_dists"] = [dist]
    if part == "program":
        # A format of export needs a framework that writes it.
        writer = {"export-acme_program": f"{PARTS}:write_program"}
        framework = FrameworkSpec("torch", writer, "", extends="rlcatalog-torch/torch")
        hooks["rlcatalog_frameworks"] = [framework]
    return hooks


@pytest.fixture
def make_catalog(monkeypatch, tmp_path):
    """Return a catalog with a part, sound or faulty."""

    def make(part, *, objects=None, declared=None, command=SOUND_COMMAND, around=AROUND):
        module = ModuleType(PARTS)
        module.__dict__.update(vars(sound))
        module.__dict__.update(objects or {})
        monkeypatch.setitem(sys.modules, PARTS, module)
        if part == "sail":
            # The command runs in another process, beside an empty module that stands for PyTorch.
            (tmp_path / "made_up_commands.py").write_text(command)
            (tmp_path / "torch.py").write_text("")
            monkeypatch.syspath_prepend(str(tmp_path))
            passes.run_apart.cache_clear()
        plugin = PluginEntryPoint(plugin_of(**make_hooks(part, declared or {})), "acme")
        return isolated_catalog(*around, plugin)

    SHARED_STATE.clear()
    forget_loaded_parts()
    yield make
    forget_loaded_parts()


def forget_loaded_parts():
    """Forget what the process knows of frameworks and codecs of earlier tests."""
    sys.modules["rlcatalog.plugins.process_wide"]._load.cache_clear()
    sys.modules["rlcatalog.frameworks.ops"]._OF_CLASS.clear()
    sys.modules["rlcatalog.spaces.action_codecs"]._load.cache_clear()


# --- the checks -----------------------------------------------------------------------------------

MODULES = (
    ways_in, distributions, draws, densities, codecs, action_codecs, filters, wrappers, commands,
    frameworks, exporters,
)  # fmt: skip
CHECKS = {
    name: check
    for module in MODULES
    for name, check in vars(module).items()
    if isinstance(check, Check)
}
#: Of the checks in other modules, only this one is tested here.
CHECKS_TESTED_HERE = {*CHECKS, "ppo_moves_every_weight"}


def find_cases(catalog, checks):
    """Return the cases of these checks for package acme, without TensorFlow."""
    return [
        case
        for case in cases("acme", catalog=catalog)
        if case.check.name in checks and case.part.framework != "tf"
    ]


def list_faults():
    """Return a parameter for each fault; `make attack` tries the slow ones."""
    return [
        pytest.param(
            fault,
            id=fault.label or fault.check,
            marks=pytest.mark.attack if fault.is_slow else (),
        )
        for fault in FAULTS
    ]


@pytest.mark.parametrize("fault", list_faults())
def test_check_finds_its_fault_and_names_the_plugin(make_catalog, fault):
    if fault.check == "frameworks_agree":
        pytest.importorskip("tensorflow")
    catalog = make_catalog(
        fault.part,
        objects=fault.objects,
        declared=fault.declared,
        command=fault.command,
        around=fault.around,
    )
    [case] = find_cases(catalog, [fault.check])

    with pytest.raises(ConformanceError, match=fault.cause) as caught:
        case()

    assert "acme 1.0" in str(caught.value)
    error = caught.value.__cause__
    is_error_of_the_part = error is not None and (
        error.__cause__ is not None or not isinstance(error, CatalogError)
    )
    # An error of the part's own code needs no hint.
    if not is_error_of_the_part:
        assert case.check.hint in str(caught.value)


def list_failures(results):
    return [outcome.why for outcome in results if outcome.status == "failed"]


@pytest.mark.parametrize("part", SPECS)
def test_sound_part_passes(make_catalog, part):
    results = list(outcomes(find_cases(make_catalog(part), CHECKS_TESTED_HERE)))

    assert list_failures(results) == []
    # At most three checks have nothing to say about the part.
    assert sum(outcome.status == "passed" for outcome in results) >= len(results) - 3


def test_built_in_codecs_and_frameworks_pass():
    packages = ("rlcatalog-preprocessors", "rlcatalog-torch", "rlcatalog-tf")
    catalog = isolated_catalog(*dict.fromkeys([*AROUND, *packages]))
    all_cases = []
    for package in packages:
        all_cases += cases(package, catalog=catalog)

    results = list(outcomes([case for case in all_cases if case.check.name in CHECKS_TESTED_HERE]))

    assert list_failures(results) == []
    assert sum(outcome.status == "passed" for outcome in results) > 40


def test_every_check_has_a_fault():
    checks_with_mutants = {mutant.check for mutant in MUTANTS}

    checks_with_faults = {fault.check for fault in FAULTS}
    checks_with_faults |= checks_with_mutants & CHECKS_TESTED_HERE

    assert checks_with_faults == CHECKS_TESTED_HERE


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_check_has_a_hint_and_a_docstring(check):
    assert check.hint
    assert check.__doc__
