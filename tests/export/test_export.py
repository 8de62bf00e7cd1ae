"""Exported policies, which act as before, step by step, where no framework can be imported."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

from export_cases import built as build_case, cases
from export_steps import assert_acts_alike, near as assert_near, task_for_child
from gymnasium.spaces import Box, Discrete
from overheads import keep_table_of_operations
from scipy.stats import chisquare

import rlcatalog

SUPPORT = Path(__file__).resolve().parents[1] / "support"
#: Exported by `make test`: in PyTorch a filter, a memory, a user's views; in TensorFlow, whose
#: exporter is faster, several kinds of operations. test_frozen.py records PyTorch's graphs of all
#: parts.
SHORT = [
    "categorical, filter",
    "bernoulli, lstm",
    "a user's views",
    "choices, attention, tf",
    "autoregressive, tf",
    "a user's codec, tf",
]
#: Exported by `make attack`.
LONG = {*cases()} - {*SHORT}
NAMES = [*SHORT, *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(LONG))]


#: Logits of the policy whose draws are counted.
LOGITS = np.array([2.0, 0.0, -1.0, 0.5], np.float32)


def build_with_constant_logits():
    config = {"fcnet_hiddens": []}
    policy = rlcatalog.build(Box(-1, 1, (2,), np.float32), Discrete(4), config, "torch")
    weights = policy.model.get_weights()
    for name, array in weights.items():
        weights[name] = LOGITS if array.shape == (4,) else array * 0
    policy.model.set_weights(weights)
    return policy


class Exports:
    """Exported cases, and what a child process without frameworks did with the files.

    Attributes:
        interfaces: Case → what `export` returned.
        expected: Case → the policy's steps.
        found: Case → the steps of the file, or an error; and what the child imported.
        unchanged: Case → whether weights and random state are the same after `export`.
    """

    def __init__(self, names, folder):
        keep_table_of_operations()  # PyTorch's exporter creates it anew for each file
        self.interfaces = {}
        self.expected = {}
        self.unchanged = {}
        self.tasks = {}
        for i, name in enumerate(names):
            self._export(name, folder / f"{i}.onnx")
        self._export_draws(folder / "drawn.onnx")
        self.found = self._run_child(folder)

    def _export(self, name, path):
        case = cases()[name]
        policy = build_case(case)
        arrays = policy.model.get_weights() | policy.random_state()
        before = {key: array.copy() for key, array in arrays.items()}
        self.interfaces[name] = policy.export(path)
        after = policy.model.get_weights() | policy.random_state()
        self.unchanged[name] = all(np.array_equal(before[key], after[key]) for key in before)
        task, expected = task_for_child(case, policy, path, self.interfaces[name])
        self.tasks[name] = task
        self.expected[name] = expected

    def _export_draws(self, path):
        """Let the child draw 20 times 1,000 actions."""
        build_with_constant_logits().export(path)
        draws = (np.zeros((1000, 2), np.float32), 20)
        self.tasks["drawn"] = {"path": str(path), "prepared": "", "spaces": {}, "draws": draws}

    def _run_child(self, folder):
        (folder / "in").write_bytes(pickle.dumps(self.tasks))
        path = os.pathsep.join([str(SUPPORT), *sys.path])
        subprocess.run(
            [sys.executable, SUPPORT / "export_child.py", folder / "in", folder / "out"],
            check=True,
            env={**os.environ, "PYTHONPATH": path},
            timeout=300,
        )
        return pickle.loads((folder / "out").read_bytes())


@pytest.fixture(scope="module")
def short_exports(tmp_path_factory):
    return Exports(SHORT, tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def long_exports(tmp_path_factory):
    return Exports(LONG, tmp_path_factory.mktemp("exported"))


@pytest.fixture
def exports(name, request):
    """The exports that have a case."""
    return request.getfixturevalue("long_exports" if name in LONG else "short_exports")


@pytest.mark.parametrize("name", NAMES)
def test_exported_file_acts_as_its_policy_without_framework(exports, name):
    steps = exports.found[name]
    assert isinstance(steps, list), steps  # else an error
    tolerance = cases()[name].tolerance
    for t, (expected, step) in enumerate(zip(exports.expected[name], steps, strict=True)):
        assert_near(expected, step, tolerance, f"step {t}")


@pytest.mark.parametrize("name", NAMES)
def test_exporting_leaves_the_policy_unchanged(exports, name):
    assert exports.unchanged[name]


def test_child_process_imports_no_framework(short_exports):
    assert short_exports.found["imported"] == []


def test_actions_of_a_file_are_drawn_by_their_probabilities(short_exports):
    actions = np.concatenate(short_exports.found["drawn"]).ravel()

    weights = np.exp(LOGITS.astype(np.float64))
    expected = len(actions) * weights / weights.sum()
    counts = np.bincount(actions, minlength=4)
    # One in ten thousand seeds would fail.
    assert chisquare(counts, expected).pvalue > 1e-4


#: Cases whose observations have no form as tensor operations, and the paths that come encoded.
ENCODED = {
    "dirichlet, text": ["obs['o']", "obs['t']"],
    "a user's codec": ["obs['h']"],
    "slates, nature, sequences": ["obs['g']", "obs['s']"],
    "gtrxl, simplex": ["obs['r']", "obs['t']"],
    "embedded integers": ["obs['t']"],
    "memory of a game": ["obs"],
    "pixels of a game": ["obs"],
}


@pytest.mark.parametrize("name", NAMES)
def test_interface_names_observations_that_come_encoded(exports, name):
    inputs = exports.interfaces[name].inputs
    encoded = [part.path for part in inputs if part.encoded]
    assert encoded == ENCODED.get(name.removesuffix(", tf"), [])


def parts_of(resolution):
    """Return all parts that a policy has."""
    parts = [choice.part for choice in resolution.choices.values()]
    parts += [part for _, part in resolution.preprocessor.parts()]
    parts += [node.part for node in resolution.dists.walk()]
    return [part for part in parts if part is not None]


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")
@pytest.mark.parametrize("kind", ["model", "action_dist", "preprocessor", "filter"])
def test_cases_cover_every_built_in_part(kind):
    catalog = rlcatalog.default_catalog()
    exported_parts = set()
    for case in cases().values():
        if case.prepared:  # has parts of a user
            continue
        resolution = catalog.resolve(case.obs, case.action, case.config, case.framework)
        exported_parts |= {part.address for part in parts_of(resolution)}

    # The index lists rlcatalog's own parts.
    built_in = {part.address for part in catalog.registry.active(kind) if part.is_indexed}
    assert built_in
    assert built_in <= exported_parts


@pytest.mark.slow  # a quick one is in test_sb3_saving.py
def test_policy_trained_by_stable_baselines_is_exported(tmp_path):
    pytest.importorskip("sb3_contrib")
    from rlcatalog_sb3 import CatalogRecurrentPolicy, RecurrentPPO, to_policy

    lstm = {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [4]}
    model = RecurrentPPO(
        CatalogRecurrentPolicy,
        "CartPole-v1",
        n_steps=8,
        batch_size=8,
        policy_kwargs={"model_config": lstm},
    )
    policy = to_policy(model.learn(16))

    policy.export(tmp_path / "policy.onnx")

    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    assert_acts_alike(actor, policy, steps=3, obs=np.float32([[0.1, 0, -0.1, 0.2]]))
