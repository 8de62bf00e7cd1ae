"""Exported policies act as they did before, step by step, where no framework can be imported."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

from export_cases import built, cases
from export_steps import near, task_for_child
from gymnasium.spaces import Box, Discrete
from overheads import keep_table_of_operations
from scipy.stats import chisquare

import rlcatalog

SUPPORT = Path(__file__).resolve().parents[1] / "support"
#: `make test` exports one of each way there is: in PyTorch a filter, a memory, a user's views; in
#: TensorFlow, whose exporter is quicker, several kinds of operations. PyTorch's graphs of all
#: parts: test_frozen.py.
SHORT = [
    "categorical, filter", "bernoulli," " lstm", "a user's" " views", "choices, attention," " tf",
    "autoregressive," " tf", "a user's codec, tf",
]  # fmt: skip
#: Exported by `make attack`.
LONG = {*cases()} - {*SHORT}
NAMES = [*SHORT, *(pytest.param(name, marks=pytest.mark.attack) for name in sorted(LONG))]


LOGITS = np.array([2.0, 0.0, -1.0, 0.5], np.float32)


def drawn_policy():
    policy = rlcatalog.build(
        Box(-1, 1, (2,), np.float32), Discrete(4), {"fcnet_hiddens": []}, "torch"
    )
    weights = policy.model.get_weights()
    for name, array in weights.items():
        weights[name] = LOGITS if array.shape == (4,) else array * 0
    policy.model.set_weights(weights)
    return policy


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return exported(SHORT, tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return exported(LONG, tmp_path_factory.mktemp("exported"))


@pytest.fixture
def everything(name, request):
    """What `exported` returns for a case and those beside it."""
    return request.getfixturevalue("long" if name in LONG else "short")


def exported(names, folder):
    """Export cases, and act from the files in one child process; case → expected, found; and the
    interfaces.
    """
    keep_table_of_operations()
    given, expected, interfaces, unharmed = {}, {}, {}, {}
    for i, name in enumerate(names):
        case = cases()[name]
        policy = built(case)
        kept = {
            key: array.copy()
            for key, array in (policy.model.get_weights() | policy.random_state()).items()
        }
        path = folder / f"{i}.onnx"
        interfaces[name] = policy.export(path)
        after = policy.model.get_weights() | policy.random_state()
        unharmed[name] = all(np.array_equal(kept[key], after[key]) for key in kept)
        given[name], expected[name] = task_for_child(case, policy, path, interfaces[name])
    policy = drawn_policy()
    policy.export(folder / "drawn.onnx")
    batch = np.zeros((1000, 2), np.float32)
    given["drawn"] = {
        "path": str(folder / "drawn.onnx"),
        "prepared": "",
        "spaces": {},
        "draws": (batch, 20),
    }
    (folder / "in").write_bytes(pickle.dumps(given))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    subprocess.run(
        [sys.executable, SUPPORT / "export_child.py", folder / "in", folder / "out"],
        check=True,
        env=environ,
        timeout=300,
    )
    found = pickle.loads((folder / "out").read_bytes())
    return expected, found, interfaces, unharmed


@pytest.mark.parametrize("name", NAMES)
def test_exported_file_acts_as_its_policy_without_framework(everything, name):
    expected, found, _, _ = everything
    assert isinstance(found[name], list), found[name]
    case = cases()[name]
    for t, (one, other) in enumerate(zip(expected[name], found[name], strict=True)):
        near(one, other, case.tolerance, f"step {t}")


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")
@pytest.mark.parametrize("kind", ["model", "action_dist", "preprocessor", "filter"])
def test_cases_cover_every_built_in_part(kind):
    """A new part wants a case."""
    used = {
        component.address
        for name, case in cases().items()
        if not case.prepared
        for resolution in [
            rlcatalog.default_catalog().resolve(case.obs, case.action, case.config, case.framework)
        ]
        for component in parts_of(resolution)
    }
    ours = {c.address for c in rlcatalog.default_catalog().registry.active(kind) if c.is_indexed}
    assert ours
    assert ours <= used


def parts_of(resolution):
    yield from (
        choice.component for choice in resolution.choices.values() if choice.component is not None
    )
    yield from (
        component for _, component in resolution.preprocessor.components() if component is not None
    )
    yield from (node.component for node in resolution.dists.walk())


def test_child_process_imports_no_framework(short):
    assert short[1]["imported"] == []


@pytest.mark.parametrize("name", NAMES)
def test_exporting_leaves_the_policy_as_it_was(everything, name):
    assert everything[3][name]


def test_actions_are_drawn_as_often_as_their_probabilities_say(short):
    """Chi-square over 20,000 draws; one in ten thousand seeds would fail."""
    drawn = np.concatenate(short[1]["drawn"]).ravel()
    weights = np.exp(LOGITS.astype(np.float64))
    probabilities = weights / weights.sum()
    counts = np.bincount(drawn, minlength=4)
    assert chisquare(counts, probabilities * len(drawn)).pvalue > 1e-4


@pytest.mark.parametrize("group", ["short", pytest.param("long", marks=pytest.mark.attack)])
def test_file_without_codec_takes_encoded_observations(group, request):
    interfaces = request.getfixturevalue(group)[2]
    encoded = {name: [p.path for p in i.inputs if p.encoded] for name, i in interfaces.items()}
    assert {name: paths for name, paths in encoded.items() if paths} == {
        f"{name}{framework}": paths
        for framework in ("", ", tf")
        for name, paths in (
            ("dirichlet, text", ["obs['o']", "obs['t']"]),
            ("a user's codec", ["obs['h']"]),
            ("slates, nature, sequences", ["obs['g']", "obs['s']"]),
            ("gtrxl, simplex", ["obs['r']", "obs['t']"]),
            ("memory of a game", ["obs"]),
            ("pixels of a game", ["obs"]),
        )
        if f"{name}{framework}" in interfaces
    }


@pytest.mark.attack  # so does test_sb3_saving.py
def test_policy_trained_by_stable_baselines_is_exported(tmp_path):
    pytest.importorskip("sb3_contrib")
    from rlcatalog_sb3 import CatalogRecurrentPolicy, RecurrentPPO, to_policy

    small = {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [4]}
    model = RecurrentPPO(
        CatalogRecurrentPolicy,
        "CartPole-v1",
        n_steps=8,
        batch_size=8,
        policy_kwargs={"model_config": small},
    )
    policy = to_policy(model.learn(16))
    policy.export(tmp_path / "policy.onnx")
    actor, state, other = rlcatalog.Actor(tmp_path / "policy.onnx"), None, None
    rng = np.random.default_rng(0)
    for _ in range(3):
        obs = rng.uniform(-0.2, 0.2, (2, 4)).astype(np.float32)
        one, found = policy.act(obs, state, explore=False), actor.act(obs, other, explore=False)
        near(tuple(one)[:5], tuple(found)[:5], 1e-5, "step")
        state, other = one.state, found.state
