"""Checks of the conformance kit for parts that are no models, codecs or filters, with their faults.

They are distributions, wrappers, commands, frameworks and formats of export.
"""

from __future__ import annotations

import gymnasium as gym
import pytest
import sound_parts as sound
import torch
from faults import (
    AROUND,
    PARTS,
    SOUND_COMMAND,
    Fault,
    assert_all_pass,
    assert_check_finds,
    find_cases,
    find_checks,
    list_faults,
    with_mutants,
)

import rlcatalog
from rlcatalog import Match, Rank
from rlcatalog_testing import cases, isolated_catalog, outcomes
from rlcatalog_testing.checks import (
    commands,
    densities,
    distributions,
    draws,
    exporters,
    frameworks,
    ways_in,
    wrappers,
)

#: Those for an exported program whose fault has nothing to do with a state. An export without one
#: is quicker.
WITHOUT_MEMORY = tuple(name for name in AROUND if name != "rlcatalog-lstm")


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


class OpsWithWrongIntegers(sound.Ops):
    """Adds one to integers."""

    def integers(self, x):
        return super().integers(x) + 1


class ReturnsColumnsOfLogp(sound.Backend):
    """Returns log densities of shape [B, 1]."""

    def act(self, *arguments):
        raw, logp, *others = super().act(*arguments)
        return (raw, logp[:, None], *others)


class ReturnsNoValues(sound.Backend):
    """Returns no values, although the model has a value branch."""

    def act(self, *arguments):
        raw, logp, _, *others = super().act(*arguments)
        return (raw, logp, None, *others)


class FailsToEvaluate(sound.Backend):
    def evaluate(self, batch, entropy=True):
        raise KeyError("logp")


FAULTY_FRAMEWORKS = [
    Fault(
        "operations_are_those_of_numpy",
        "plain",
        "integers..: ",
        objects={"OPS": OpsWithWrongIntegers()},
    ),
    Fault(
        "the_backend_acts",
        "plain",
        "log densities have shape",
        objects={"Backend": ReturnsColumnsOfLogp},
    ),
    Fault(
        "the_backend_acts",
        "plain",
        "values are NoneType",
        label="backend-returns-no-values",
        objects={"Backend": ReturnsNoValues},
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
    *FAULTY_WRAPPERS,
    *FAULTY_COMMANDS,
    *FAULTY_FRAMEWORKS,
    *FAULTY_FORMATS,
    *FAULTY_MODELS,
]


# --- the checks -----------------------------------------------------------------------------------

CHECKS = find_checks(
    ways_in, distributions, draws, densities, wrappers, commands, frameworks, exporters
)
# Of the checks in other modules, only this one is tested here.
CHECKS.add("ppo_moves_every_weight")
# It needs a framework of another package; tests/frameworks/test_partial_framework.py has one.
CHECKS.remove("spaces_have_code")


@pytest.mark.parametrize("fault", list_faults(FAULTS))
def test_check_finds_its_fault_and_names_the_plugin(make_catalog, fault):
    assert_check_finds(fault, make_catalog(fault))


@pytest.mark.parametrize("part", ["choice", "doubled", "sail", "plain", "program", "trunk"])
def test_sound_part_passes(make_catalog, part):
    no_fault = Fault(check="", part=part, cause="")

    assert_all_pass(find_cases(make_catalog(no_fault), CHECKS))


def test_built_in_frameworks_pass():
    catalog = isolated_catalog(*AROUND, "rlcatalog-torch", "rlcatalog-tf")
    all_cases = cases("rlcatalog-torch", catalog=catalog) + cases("rlcatalog-tf", catalog=catalog)
    chosen = [case for case in all_cases if case.check.name in CHECKS]
    results = list(outcomes(chosen))

    assert [outcome.why for outcome in results if outcome.status == "failed"] == []
    passed = [outcome for outcome in results if outcome.status == "passed"]
    assert len(passed) == 6  # three checks of each framework


def test_checks_all_have_a_fault():
    assert {fault.check for fault in FAULTS} | with_mutants(CHECKS) == CHECKS
