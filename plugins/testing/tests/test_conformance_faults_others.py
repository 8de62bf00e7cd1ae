"""Each check of distributions, codecs, filters, wrappers, commands, frameworks and formats fails on
a planted fault.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
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
from rlcatalog.errors import CatalogError
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

#: Module that the targets of the parts are in.
PARTS = "made_up_parts"
#: Distributions that the parts stand among.
AROUND = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
    "rlcatalog-multi-action",
    "rlcatalog-lstm",
    "rlcatalog-ppo",
)
#: Those for a program with a fault that has nothing to do with its state: to export one without is
#: quicker.
WITHOUT_MEMORY = tuple(name for name in AROUND if name != "rlcatalog-lstm")

SPECS = {
    "choice": ActionDistSpec(
        "acme_choice",
        {"torch": f"{PARTS}:Choice"},
        "a choice",
        size=lambda a, c: _n(a),
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


def _n(action):
    if action.kind != "discrete":
        raise rlcatalog.errors.UnsupportedSpaceError(f"{action.path}: takes Discrete")
    return action.n


@dataclass
class Fault:
    """What is wrong with a part, among others: methods in place of the sound ones, an object,
    another declaration.
    """

    part: str
    says: str
    methods: dict[str, Any] | None = None
    objects: dict[str, Any] | None = None
    declared: dict[str, Any] | None = None
    around: tuple[str, ...] = AROUND


#: Name in the module → the sound class that a part's methods are put into.
CLASSES = {
    "choice": "Choice",
    "heading": "HeadingCodec",
    "pair": "PairCodec",
    "largest": "Largest",
    "plain": "Backend",
    "trunk": "Trunk",
    "program": "ProgramRunner",
}


# --- faults that take more than a line ------------------------------------------------------------


def _unlike_alone(self, start):
    def write(obs, out):
        out[start : start + 2] = math.cos(obs + start), math.sin(obs + start)

    return write


def _beyond(self, start):
    def write(batch, out):
        out[:, start : start + 3] = 0.5

    return write


def _loose(self, obs):
    """Any number will do."""
    if not isinstance(obs, float | np.ndarray):
        self.refuse("a number", obs)


def _wrong_for_four(self, feeds, outputs):
    found = sound.ProgramRunner.run(self, feeds, outputs)
    return [
        x + 1 if name == "value" and len(x) == 4 else x
        for name, x in zip(outputs, found, strict=True)
    ]


def _without_state(self, feeds, outputs):
    return sound.ProgramRunner.run(
        self, {n: x * 0 if n.startswith("memory") else x for n, x in feeds.items()}, outputs
    )


def _harming(policy, path):
    written = sound.write_program(policy, path)
    policy.model.set_weights(
        {name: array + 1 for name, array in policy.model.get_weights().items()}
    )
    return written


def _of_elsewhere(self, path):
    sound.ProgramRunner.__init__(self, path)
    self.interface = self.interface.replace('"framework":"torch"', '"framework":"elsewhere"')


def _unguarded(self, path):
    torch.export.load(path)
    sound.ProgramRunner.__init__(self, path)


_seen: dict[str, Any] = {}


def _shared(self, flat):
    _seen["largest"] = self.largest = np.maximum(
        _seen.get("largest", 1.0), np.abs(flat).max(axis=0)
    )


def _in_place(self, encoded, *, update=False):
    encoded /= 2
    return encoded.copy()


def _always_learning(self, encoded, *, update=False):
    return sound.Largest.__call__(self, encoded, update=True)


def _by_its_batch(self, encoded, *, update=False):
    return sound.Largest.__call__(
        self, encoded - encoded.mean(axis=0) * self.numeric, update=update
    )


def _everything(self, encoded, *, update=False):
    if update:
        self.learn(encoded)
    return (encoded / (1 + self.largest)).astype(np.float32)


def _changed(env, config):
    env.unwrapped.reward_factor = 2
    return env


class Short(gym.Wrapper):
    """Forgets what an environment says of the time limit."""

    def step(self, action):
        return self.env.step(action)[:4]


class TwinChoice(rlcatalog.ActionDistribution):
    """The choice in TensorFlow, from twice the logits."""

    framework_of_class = "tf"
    factor = 2

    def __init__(self, inputs, model=None):
        import tensorflow as tf

        super().__init__(inputs, model)
        self.tf, self.logits = tf, tf.nn.log_softmax(self.factor * inputs)

    def deterministic_sample(self):
        return self.tf.argmax(self.logits, -1)

    def logp(self, actions):
        return self.tf.gather(self.logits, self.tf.cast(actions, self.tf.int64), batch_dims=1)

    def entropy(self):
        return -self.tf.reduce_sum(self.tf.exp(self.logits) * self.logits, -1)


class Idle(sound.Trunk):
    """A net with a weight that nothing is computed with."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.idle = torch.nn.Parameter(torch.ones(3))


def _remembering(draw):
    def sample(self):
        self.last_sample = draw(self)
        return self.last_sample

    return sample


#: Check → a fault, of which it says this.
FAULTS = {
    # distributions: those of one framework alone, and of one action space; the others are among the
    # mutants
    "actions_lie_in_the_space": Fault(
        "choice",
        "does not become an action",
        {"sample": _remembering(lambda self: torch.multinomial(self.logits.exp(), 1)[:, 0] + 1)},
    ),
    "frameworks_agree": Fault(
        "choice",
        "in torch and tf, logp",
        None,
        {"Twin": TwinChoice},
        {"targets": {"torch": f"{PARTS}:Choice", "tf": f"{PARTS}:Twin"}},
    ),
    # preprocessors
    "single_is_batch": Fault(
        "heading",
        "a list, compared with each on",
        {
            "batch_writer": lambda self, start: (
                lambda batch, out: out[:, start : start + self.size].fill(0.5)
            )
        },
    ),
    "nested_is_alone": Fault(
        "heading",
        "its slice, compared with its",
        {
            "writer": _unlike_alone,
            "batch_writer": lambda self, start: (
                lambda batch, out: [
                    _unlike_alone(self, start)(one, row)
                    for one, row in zip(batch, out, strict=True)
                ]
            ),
        },
    ),
    "writes_only_its_slice": Fault(
        "heading",
        r"its batch_writer\(start\) writes to position start\+2",
        {"batch_writer": _beyond},
    ),
    "encodes_within_its_bounds": Fault(
        "heading",
        r"outside \[0.0, 1.0\], the range that its bounds\(\) returns",
        {"bounds": lambda self: (np.zeros(2, np.float32), np.ones(2, np.float32))},
    ),
    "tells_observations_apart": Fault(
        "heading",
        "obs have the same encoding",
        {
            "writer": lambda self, start: lambda obs, out: None,
            "batch_writer": lambda self, start: lambda batch, out: None,
        },
    ),
    "refuses_what_does_not_fit": Fault(
        "heading", "accepted -987654321, which is not in", {"check": _loose}
    ),
    "leaves_observations_alone": Fault(
        "heading",
        "an array that the next call writes into",
        {"transform": lambda self, obs: _kept(self, obs)},
    ),
    "leaves_cover_the_vector": Fault(
        "heading",
        "its leaves begin at",
        {
            "leaves": lambda self, start=0: [
                replace(leaf, stop=leaf.stop - 1)
                for leaf in rlcatalog.Preprocessor.leaves(self, start)
            ]
        },
    ),
    # action codecs
    "actions_are_inverted": Fault(
        "pair", "invert.adapt.raw", {"invert": lambda self, action: np.asarray(action)}
    ),
    "adapted_actions_lie_in_the_space": Fault(
        "pair", "not an action in it", {"adapt": lambda self, raw: raw.astype(np.int64)}
    ),
    "sizes_are_those_of_arrays": Fault(
        "pair",
        "inputs.. has .5, 2., expected .5, 6.",
        {"inputs": lambda self, raw: raw.astype(np.float32)},
    ),
    "models_can_tell_actions_apart": Fault(
        "pair",
        "different actions become 1 model",
        {"inputs": lambda self, raw: np.zeros((len(raw), 6), np.float32)},
    ),
    "the_space_is_written_down": Fault(
        "pair",
        "read back as",
        {"space_from_json": staticmethod(lambda data: sound.Pair(data["n"] + 1))},
    ),
    "masks_become_columns": Fault(
        "pair",
        "a mask given as columns became",
        {"mask_columns": lambda self, mask, rows=None: np.ones((rows, 6), bool)},
    ),
    "nested_actions_are_those_alone": Fault(
        "pair",
        "its part is",
        {
            "adapt": lambda self, raw: (
                raw.astype(np.int64) + (1 if self.info.path == "action" else 0)
            )
        },
    ),
    # filters
    "leaves_its_input_alone": Fault("largest", "changes its argument", {"__call__": _in_place}),
    "returns_what_it_announced": Fault(
        "largest",
        "returned shape .6, 4., expected .6, 7.",
        {"__call__": lambda self, encoded, update=False: encoded[:, :4].copy()},
    ),
    "learns_only_when_asked": Fault(
        "largest",
        "the same observations, filtered again",
        {
            "__call__": _always_learning,
            "learn": lambda self, flat: setattr(self, "largest", self.largest * 0.99),
        },
    ),
    "state_is_saved_and_restored": Fault(
        "largest",
        "a filter with its state, compared",
        {
            "set_state": lambda self, state: None,
            "learn": lambda self, flat: setattr(self, "largest", self.largest + 1),
        },
    ),
    "copies_are_independent": Fault(
        "largest",
        "after (a copy|another filter) has learned",
        {
            "learn": lambda self, flat: (
                sound.Largest.learn(self, flat) or _seen.update(largest=self.largest + 1)
            ),
            "get_state": lambda self: {"largest": np.array(_seen.get("largest", self.largest))},
        },
    ),
    "leaves_one_hots_and_masks_alone": Fault("largest", r"\(discrete\)", {"__call__": _everything}),
    "filters_each_row_alone": Fault(
        "largest", "one by one, compared with all at once", {"__call__": _by_its_batch}
    ),
    # wrappers
    "applied_twice_is_once": Fault(
        "doubled", "it returns the given environment itself", None, {"doubled": _changed}
    ),
    "wrapped_environments_conform": Fault(
        "doubled", "must be a python dictionary", None, {"doubled": lambda env, config: Short(env)}
    ),
    "leaves_others_alone": Fault(
        "doubled",
        "it matches CartPole-v1",
        None,
        None,
        {"match": lambda request: Match(Rank.SPECIFIC, "everything")},
    ),
    "has_a_way_in": Fault("doubled", "no user input selects it", None, None, {"switch": None}),
    # commands
    "help_is_shown": Fault("sail", "no boat", None, {"sail": "raise RuntimeError('no boat')\n"}),
    "help_imports_no_framework": Fault(
        "sail",
        "--help imports torch",
        None,
        {"sail": 'import torch\n\ndef sail() -> None:\n    """Sail."""\n'},
    ),
    # frameworks
    "operations_are_those_of_numpy": Fault(
        "plain",
        "integers..: ",
        None,
        {"OPS": TensorOps(**{**vars(sound.OPS), "integers": lambda x: x.astype(np.int64) + 1})},
    ),
    "the_backend_acts": Fault(
        "plain",
        "log densities have shape",
        {
            "act": lambda self, *args: (lambda raw, logp, *rest: (raw, logp[:, None], *rest))(
                *sound.Backend.act(self, *args)
            )
        },
    ),
    "the_backend_evaluates": Fault(
        "plain",
        "KeyError|AttributeError",
        {"evaluate": lambda self, batch, entropy=True: {}["logp"]},
    ),
    # formats
    "the_file_acts_as_the_policy": Fault(
        "program", "step 0 with 4 rows: value is", {"run": _wrong_for_four}, around=WITHOUT_MEMORY
    ),
    "exporting_leaves_the_policy_alone": Fault(
        "program",
        "exporting changed .*hidden",
        None,
        {"write_program": _harming},
        around=WITHOUT_MEMORY,
    ),
    "the_interface_is_in_the_file": Fault(
        "program", "framework='elsewhere'", {"__init__": _of_elsewhere}, around=WITHOUT_MEMORY
    ),
    "damaged_files_are_refused": Fault(
        "program",
        "RuntimeError|PytorchStreamReader|zip",
        {"__init__": _unguarded},
        around=WITHOUT_MEMORY,
    ),
    # engines
    "ppo_moves_every_weight": Fault(
        "trunk", "does not change these weights: idle", None, {"Trunk": Idle}
    ),
}


class WithoutDivergence(TwinChoice):
    """The choice in TensorFlow, as it should be but for its missing `kl`."""

    factor = 1


def _counting(self, flat):
    self.calls = getattr(self, "calls", 0) + 1
    self.largest = self.largest + self.calls


#: Further faults that one check is to find.
MORE = {
    # None of the five random actions differ in these two choices alone.
    "choices that share an input": (
        "models_can_tell_actions_apart",
        Fault(
            "pair",
            "5 different actions become 4 model inputs",  # the first one, and two in each column
            {"inputs": lambda self, raw: sound.PairCodec.inputs(self, np.minimum(raw, [2, 1]))},
        ),
    ),
    "a state without all that it learns from": (
        "state_is_saved_and_restored",
        Fault("largest", "further learning", {"learn": _counting}),
    ),
    "a kl in one framework": (
        "frameworks_agree",
        Fault(
            "choice",
            "only one has a kl: .True, False.",
            None,
            {"Twin": WithoutDivergence},
            {"targets": {"torch": f"{PARTS}:Choice", "tf": f"{PARTS}:Twin"}},
        ),
    ),
    "a batch writer that writes nothing": (
        "single_is_batch",
        Fault(
            "heading",
            "a list, compared with each on",
            {"batch_writer": lambda self, start: lambda batch, out: None},
        ),
    ),
    "a writer that writes nothing": (
        "single_is_batch",
        Fault(
            "heading",
            "a list, compared with each on",
            {"writer": lambda self, start: lambda obs, out: None},
        ),
    ),
    "actions that are all alike": (
        "adapted_actions_lie_in_the_space",
        Fault(
            "pair", "not an action in it", {"adapt": lambda self, raw: np.zeros_like(raw, np.int64)}
        ),
    ),
    "a codec of actions that inverts nothing": (
        "actions_are_inverted",
        Fault(
            "pair",
            "adapt.invert.action.",
            {"invert": lambda self, action: np.zeros_like(action, np.float32)},
        ),
    ),
    "a filter of float64": (
        "returns_what_it_announced",
        Fault(
            "largest",
            "float64, but its space has dtype float32",
            {
                "__call__": lambda self, encoded, update=False: sound.Largest.__call__(
                    self, encoded, update=update
                ).astype(np.float64)
            },
        ),
    ),
    "a file that ignores its state": (
        "the_file_acts_as_the_policy",
        Fault("program", "acts differently from", {"run": _without_state}),
    ),
    "a switch that is off": (
        "has_a_way_in",
        Fault(
            "doubled",
            "it matches none of its examples",
            None,
            None,
            {"match": lambda request: Match(None, "never"), "examples": f"{PARTS}:pendulums"},
        ),
    ),
    "columns of the first choice for both": (
        "masks_become_columns",
        Fault(
            "pair",
            "one column for each choice",
            {"mask_taken": lambda self, raw: raw.astype(np.int64)},
        ),
    ),
}


def _kept(self, obs):
    if not hasattr(self, "kept"):
        self.kept = np.zeros(2, np.float32)
    self.write(obs, self.kept, 0)
    return self.kept


# --- the plugin around a part ---------------------------------------------------------------------


@pytest.fixture
def plugged(monkeypatch, tmp_path):
    """A function that puts a part, with a fault or none, into a catalog."""

    def put(part: str, fault: Fault | None = None) -> rlcatalog.Catalog:
        fault = fault or Fault(part, "")
        module = ModuleType(PARTS)
        module.__dict__.update(vars(sound))
        if part in CLASSES:
            cls = getattr(sound, CLASSES[part])
            setattr(module, cls.__name__, type(cls.__name__, (cls,), fault.methods or {}))
        module.__dict__.update(fault.objects or {})
        monkeypatch.setitem(sys.modules, PARTS, module)
        text = (fault.objects or {}).get("sail", 'def sail() -> None:\n    """Sail."""\n')
        for name, lines in (("made_up_commands", text), ("torch", "")):
            if part == "sail":
                (tmp_path / f"{name}.py").write_text(lines)
        if part == "sail":
            monkeypatch.syspath_prepend(str(tmp_path))
            passes.run_apart.cache_clear()
        spec = replace(SPECS[part], **(fault.declared or {}))
        hooks: dict[str, Any] = {HOOKS[type(spec)]: [spec]}
        if part == "plain":
            hooks["rlcatalog_models"] = [
                ModelSpec("fcnet", {"plain": f"{PARTS}:Net"}, "", extends="rlcatalog-fcnet/fcnet")
            ]
            hooks["rlcatalog_action_dists"] = [
                ActionDistSpec(
                    "categorical",
                    {"plain": f"{PARTS}:PlainChoice"},
                    "",
                    extends="rlcatalog-categorical/categorical",
                )
            ]
        if part == "program":
            writer = {"export-acme_program": f"{PARTS}:write_program"}
            hooks["rlcatalog_frameworks"] = [
                FrameworkSpec("torch", writer, "", extends="rlcatalog-torch/torch")
            ]
        return isolated_catalog(*fault.around, PluginEntryPoint(plugin_of(**hooks), "acme"))

    _seen.clear()
    _forget()
    yield put
    _forget()


def _forget():
    """Forget the framework's table of operations, and codecs by their path."""
    sys.modules["rlcatalog.plugins.process_wide"]._load.cache_clear()
    sys.modules["rlcatalog.frameworks.ops"]._OF_CLASS.clear()
    sys.modules["rlcatalog.spaces.action_codecs"]._load.cache_clear()


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
KINDS = {check.name: check.kinds for check in CHECKS.values()}
OURS = {*CHECKS, "ppo_moves_every_weight"}
#: Faults of exporters that take a whole export each.
LONG = (
    "damaged_files_are_refused", "the_interface_is_in_the_file",
    "exporting_leaves_the_policy_alone", "a file that ignores its state",
)  # fmt: skip


def found(catalog, names):
    return [
        case
        for case in cases("acme", catalog=catalog)
        if case.check.name in names and case.part.framework != "tf"
    ]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param(*case, id=key, marks=pytest.mark.attack if key in LONG else ())
        for key, case in {**{name: (name, fault) for name, fault in FAULTS.items()}, **MORE}.items()
    ],
)
def test_a_fault_is_found_and_its_plugin_named(plugged, name, fault):
    if name == "frameworks_agree":
        pytest.importorskip("tensorflow")
    [case] = found(plugged(fault.part, fault), [name])
    with pytest.raises(ConformanceError, match=fault.says) as error:
        case()
    assert "acme 1.0" in str(error.value)
    cause = error.value.__cause__
    raised = cause is not None and (
        cause.__cause__ is not None or not isinstance(cause, CatalogError)
    )
    # What the part's own code raised needs no hint.
    assert raised or case.check.hint in str(error.value)


@pytest.mark.parametrize("part", SPECS)
def test_a_sound_part_passes(plugged, part):
    ended = list(outcomes(found(plugged(part), OURS)))
    assert [outcome.why for outcome in ended if outcome.status == "failed"] == []
    assert sum(outcome.status == "passed" for outcome in ended) >= len(ended) - 3


def test_the_kernel_s_own_codecs_and_frameworks_pass():
    owners = ("rlcatalog-preprocessors", "rlcatalog-torch", "rlcatalog-tf")
    catalog = isolated_catalog(*dict.fromkeys([*AROUND, *owners]))
    ours = [
        case
        for owner in owners
        for case in cases(owner, catalog=catalog)
        if case.check.name in OURS
    ]
    ended = list(outcomes(ours))
    assert [outcome.why for outcome in ended if outcome.status == "failed"] == []
    assert sum(outcome.status == "passed" for outcome in ended) > 40


def test_no_check_is_without_a_fault():
    assert set(FAULTS) | ({mutant.check for mutant in MUTANTS} & OURS) == OURS
    assert all(check.hint and check.__doc__ for check in CHECKS.values())
