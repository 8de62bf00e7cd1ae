"""A third framework from a plugin: NumPy, with code for the fully connected net and the categorical
distribution.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import planted_tf
import pytest
from toy_framework import (
    DIST,
    FRAMEWORK,
    NET,
    OPS,
    OWN_DIST,
    OWN_NET,
    PPO_STEP,
    match_choice,
    size_of_choice,
    targets,
)

import rlcatalog
from rlcatalog import ActionDistSpec, FrameworkSpec, ModelSpec
from rlcatalog.errors import (
    AmbiguousChoiceError,
    DeclarationError,
    MissingFrameworkError,
    NotServedError,
    UnknownNameError,
)
from rlcatalog.frameworks import frameworks, ops_of, require_framework, tensor_ops
from rlcatalog_policy import load
from rlcatalog_ppo import PPO
from rlcatalog_testing import PluginEntryPoint, cases, isolated_catalog, outcomes, plugin_of

SPACE, ACTIONS = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4)
PARTS = ("rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical")


OWN = plugin_of(
    rlcatalog_frameworks=[FRAMEWORK, PPO_STEP],
    rlcatalog_models=[OWN_NET],
    rlcatalog_action_dists=[OWN_DIST],
)


@pytest.fixture
def catalog():
    """Catalog of the built-in parts, the framework, and a second plugin with its code for two of
    them.
    """
    parts = plugin_of(rlcatalog_models=[NET], rlcatalog_action_dists=[DIST])
    return isolated_catalog(
        *PARTS,
        PluginEntryPoint(parts, "a-toy-parts"),  # loaded before its framework's plugin
        PluginEntryPoint(OWN, "toy"),
    )


# --- what the catalog makes of it -----------------------------------------------------------------


def test_all_plugins_load(catalog):
    assert [
        (record.name, record.status, record.error)
        for record in catalog.plugins
        if record.status != "loaded"
    ] == []
    assert catalog.registry.get("model", "fcnet").frameworks == ("torch", "tf", "toy")
    assert [c.provider for c in catalog.components("framework")] == ["toy 1.0"]


def test_operations_are_found_once_their_framework_is_registered(request):
    array = np.zeros(3).view(type("Array", (np.ndarray,), {}))
    assert ops_of(array) is tensor_ops("numpy")
    request.getfixturevalue("catalog")
    assert ops_of(array) is OPS


def test_explanation_names_the_framework(catalog):
    found = catalog.explain(SPACE, ACTIONS, {}, "toy").as_dict()
    assert (found["framework"], found["model"]["chosen"], found["action_dist"]["chosen"]) == (
        "toy",
        "fcnet",
        "categorical",
    )
    assert catalog.explain(SPACE, ACTIONS, {}, "np").as_dict()["framework"] == "toy"
    reasons = {c["name"]: c["reason"] for c in found["model"]["candidates"]}
    assert found["shapes"][-1] == {"stage": "action", "shape": []}
    assert reasons["fcnet"]


def test_policy_acts_in_the_third_framework(catalog):
    policy = rlcatalog.build(SPACE, ACTIONS, {}, "toy", catalog=catalog)
    obs = np.random.default_rng(1).uniform(-1, 1, (5, 3)).astype(np.float32)
    step = policy.act(obs, explore=False)
    logits = obs @ policy.model.weights["logits"]
    np.testing.assert_array_equal(step.action, logits.argmax(axis=1))
    np.testing.assert_allclose(step.dist_inputs, logits, rtol=1e-6)
    density = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(step.logp, np.log(density.max(axis=1)), rtol=1e-5)
    np.testing.assert_allclose(
        policy.values(policy.preprocess(obs)), obs @ policy.model.weights["value"], rtol=1e-5
    )
    mask = np.zeros((5, 4), bool)
    mask[:, 2] = True
    # Forbidden inputs are filled by its own operations.
    assert policy.act(obs, mask=mask).action.tolist() == [2] * 5
    assert policy.to("cpu") is policy


def test_error_without_the_library_has_no_install_line(catalog, monkeypatch):
    assert catalog.plugins  # the framework is known once they are loaded
    monkeypatch.setattr(FrameworkSpec, "is_installed", property(lambda spec: False))
    with pytest.raises(MissingFrameworkError) as caught:
        require_framework("toy")
    assert str(caught.value) == (
        f"framework='toy' needs the package {FRAMEWORK.module!r}, which is not installed."
        " Install it as its authors describe."
    )


def test_unsupported_feature_is_rejected_by_type(catalog):
    policy = rlcatalog.build(SPACE, ACTIONS, {}, "toy", catalog=catalog)
    assert policy.freeze().reason == "no installed package supports this for framework='toy'"
    with pytest.raises(NotServedError, match=r"'lstm'.*has no code for framework='toy'"):
        isolated_catalog(*PARTS, "rlcatalog-lstm").registry.get("model", "lstm").load("toy")


def test_missing_operation_is_rejected_by_name(catalog):
    ops = rlcatalog.build(SPACE, ACTIONS, {}, "toy", catalog=catalog).model._rlcatalog.ops
    assert ops is OPS
    assert ops.total([1, 2]) == 3
    with pytest.raises(NotServedError, match="framework 'toy' has no tensor operation 'cut'"):
        ops.cut(np.ones((2, 3)), None)
    with pytest.raises(NotServedError, match="'padded'"):
        ops.padded(np.ones((2, 3)), 4)


def test_policy_of_the_third_framework_is_saved_and_loaded(catalog, tmp_path):
    policy = rlcatalog.build(SPACE, ACTIONS, {}, "toy", catalog=catalog)
    policy.model.weights["value"][:] = 2
    policy.save(tmp_path / "policy")
    again = load(tmp_path / "policy", catalog=catalog)
    obs = np.ones((2, 3), np.float32) / 2
    assert again.framework == "toy"
    np.testing.assert_array_equal(
        again.act(obs, explore=False).dist_inputs, policy.act(obs, explore=False).dist_inputs
    )
    np.testing.assert_allclose(again.act(obs).value, [3, 3])


def test_kit_checks_the_third_framework_and_its_parts():
    catalog = isolated_catalog("rlcatalog-preprocessors", PluginEntryPoint(OWN, "toy"))
    ended = list(outcomes(cases("toy", catalog=catalog)))
    assert [outcome.why for outcome in ended if outcome.status == "failed"] == []
    passed = {outcome.name for outcome in ended if outcome.status == "passed"}
    assert {
        "framework-toy-the_backend_evaluates",
        "trunk-toy_linear-every_weight_is_trained-toy",
        "trunk-toy_linear-saved_and_restored-toy",
        "action_dist-toy_choice-draws_follow_logp-toy",
        "action_dist-toy_choice-gradients_are_finite-toy",
    } <= passed


def test_kit_compares_the_other_frameworks_if_one_is_missing():
    """In the third framework nothing around the distribution has code, so that no policy is built
    there.
    """
    home = ModuleType("unlike_parts")
    home.Unlike = type(
        "Unlike", (planted_tf.Dist,), {"entropy": lambda self: 2 * planted_tf.Dist.entropy(self)}
    )
    both = {"toy": "planted_toy:Dist", "torch": "planted_torch:Dist"}
    specs = {
        name: ActionDistSpec(
            name, {**both, "tf": tf}, "one of n", match=match_choice, size=size_of_choice
        )
        for name, tf in (("alike", "planted_tf:Dist"), ("unlike", "unlike_parts:Unlike"))
    }
    plugin = plugin_of(rlcatalog_frameworks=[FRAMEWORK], rlcatalog_action_dists=[*specs.values()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "unlike_parts", home)
        catalog = isolated_catalog(*PARTS, PluginEntryPoint(plugin, "acme"))
        found = [
            case for case in cases("acme", catalog=catalog) if case.check.name == "frameworks_agree"
        ]
        said = {
            case.part.component.name: outcome
            for case, outcome in zip(found, outcomes(found), strict=True)
        }
    assert said["alike"].status == "passed", said["alike"].why
    assert "in torch and tf, the entropy" in said["unlike"].why


class Bandit(gym.Env):
    """Pays for one action of four."""

    observation_space, action_space = SPACE, ACTIONS

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(3, np.float32) / 2, {}

    def step(self, action):
        return np.ones(3, np.float32) / 2, float(action == 2), True, False, {}


def test_ppo_learns_in_it_and_goes_on_from_a_checkpoint(catalog, tmp_path):
    config = {
        "framework": "toy",
        "num_envs": 2,
        "rollout_length": 16,
        "minibatch_size": 16,
        "num_epochs": 4,
        "lr": 0.05,
        "seed": 0,
        "frozen": "never",
    }
    algorithm = PPO(Bandit, config, catalog=catalog)
    before = np.mean(algorithm.evaluate(20, seed=0, explore=True))
    for _ in range(5):
        algorithm.train()
    algorithm.save_checkpoint(tmp_path / "checkpoint")
    result = [algorithm.train() for _ in range(5)][-1]
    algorithm.stop()
    assert before < 0.6
    assert result["episode_return_mean"] > 0.8
    again = PPO.restore(tmp_path / "checkpoint", Bandit, catalog=catalog)
    assert [again.train() for _ in range(5)][-1]["info"] == result["info"]
    again.stop()
    for name, array in algorithm.policy.model.get_weights().items():
        np.testing.assert_array_equal(again.policy.model.get_weights()[name], array)


def test_other_frameworks_work_beside_the_third(catalog):
    assert (
        rlcatalog.build(SPACE, ACTIONS, {"fcnet_hiddens": [4]}, "torch", catalog=catalog).framework
        == "torch"
    )
    assert (
        rlcatalog.build(SPACE, ACTIONS, {"fcnet_hiddens": [4]}, catalog=catalog).framework
        == "torch"
    )


# --- what is refused ------------------------------------------------------------------------------


def failed(*plugins: tuple[str, Any]) -> dict[str, str]:
    """What the catalog says of plugins that fail, by distribution."""
    with pytest.warns(rlcatalog.errors.PluginWarning):
        found = isolated_catalog(
            *PARTS, *(PluginEntryPoint(plugin, name) for name, plugin in plugins)
        )
    said = {
        record.distribution: record.error for record in found.plugins if record.status == "failed"
    }
    # Nothing of them stays.
    assert not {component.distribution for component in found.components()} & set(said)
    return said


def test_code_that_is_there_already_is_not_replaced():
    """And who brings it loses that part alone."""
    other = ModelSpec("fcnet", targets(toy="Net"), "", extends="rlcatalog-fcnet/fcnet")
    beside = ModelSpec("beside", targets(torch="Net"), "")
    torch = ModelSpec("fcnet", targets(torch="Net"), "", extends="rlcatalog-fcnet/fcnet")
    one = ("one", plugin_of(rlcatalog_frameworks=[FRAMEWORK], rlcatalog_models=[NET]))
    said = failed(one, ("three", plugin_of(rlcatalog_models=[torch])))
    assert (
        "model rlcatalog-fcnet/fcnet, but its code for 'torch' belongs to rlcatalog-fcnet"
        in said["three"]
    )
    two = PluginEntryPoint(plugin_of(rlcatalog_models=[beside, other]), "two")
    with pytest.warns(
        rlcatalog.errors.PluginWarning,
        match="two extends .*, but its code for 'toy' belongs to one",
    ):
        catalog = isolated_catalog(*PARTS, PluginEntryPoint(one[1], "one"), two)
    assert catalog.registry.get("model", "two/beside").distribution == "two"
    assert [c.distribution for c in catalog.registry.get("model", "fcnet").extensions["toy"]] == [
        "one"
    ]


def test_code_from_two_packages_is_an_error_where_it_is_used():
    """Neither is the framework's own; the part works in every other framework."""
    brought = [
        PluginEntryPoint(plugin_of(rlcatalog_models=[NET]), name) for name in ("two", "three")
    ]
    catalog = isolated_catalog(
        *PARTS, PluginEntryPoint(plugin_of(rlcatalog_frameworks=[FRAMEWORK]), "one"), *brought
    )
    with pytest.raises(
        AmbiguousChoiceError, match=r"three 1\.0 and two 1\.0 provide its code for 'toy'"
    ):
        catalog.registry.get("model", "fcnet").load("toy")
    assert rlcatalog.build(SPACE, ACTIONS, {}, "torch", catalog=catalog).framework == "torch"


def test_backend_code_declares_the_keys_it_reads():
    narrow = replace(NET, reads=("fcnet_hiddens",))
    plugin = plugin_of(
        rlcatalog_frameworks=[FRAMEWORK], rlcatalog_models=[narrow], rlcatalog_action_dists=[DIST]
    )
    catalog = isolated_catalog(*PARTS, PluginEntryPoint(plugin, "one"))
    fcnet = catalog.registry.get("model", "fcnet")
    assert catalog.config_keys(fcnet, "toy") == ["fcnet_hiddens"]
    assert "fcnet_activation" in catalog.config_keys(fcnet, "torch")
    config = {"fcnet_hiddens": [4], "fcnet_activation": "relu"}
    assert list(catalog.explain(SPACE, ACTIONS, config, "toy").as_dict()["unread"]) == [
        "fcnet_activation"
    ]
    assert not catalog.explain(SPACE, ACTIONS, config, "torch").as_dict()["unread"]


def test_names_of_built_in_frameworks_are_taken():
    mine = FrameworkSpec(
        "mine", targets(backend="Backend", ops="OPS"), "", module="numpy", aliases=("tf2",)
    )
    assert (
        "framework 'tf2' already exists"
        in failed(("one", plugin_of(rlcatalog_frameworks=[mine])))["one"]
    )


def test_framework_of_a_failed_plugin_is_forgotten():
    wrong = ModelSpec("mine", targets(trch="Net"), "")
    failed(("one", plugin_of(rlcatalog_frameworks=[FRAMEWORK], rlcatalog_models=[wrong])))
    assert "toy" not in frameworks()


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"toy": "Net"}, "unknown framework 'toy' in targets"),
        ({"tf": "Net", "trch": "Net"}, "unknown framework 'trch'.*Did you mean 'torch'"),
    ],
)
def test_part_for_an_unknown_framework_is_rejected(named, says):
    part = ModelSpec("mine", targets(**named), "")
    assert re.search(says, failed(("one", plugin_of(rlcatalog_models=[part])))["one"])


def test_part_may_have_code_for_a_missing_framework():
    part = ModelSpec("mine", targets(torch="Net", jax="Net"), "")
    found = isolated_catalog(*PARTS, PluginEntryPoint(plugin_of(rlcatalog_models=[part]), "one"))
    assert found.registry.get("model", "one/mine").frameworks == ("torch", "jax")
    with pytest.raises(UnknownNameError, match="Unknown framework 'jax'"):
        rlcatalog.build(SPACE, ACTIONS, {"custom_model": "one/mine"}, "jax", catalog=found)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"targets": targets(backend="Backend")}, "targets must have 'ops'"),
        ({"targets": targets(backend="Backend", ops="OPS", net="Net")}, "unknown target 'net'"),
        ({"module": "numpy.linalg"}, "module must be the name of a top-level module"),
        ({"module": ""}, "module must be"),
        ({"aliases": "np"}, "aliases must be a tuple of text"),
        ({"extends": "toy"}, "extends must be 'distribution/name'"),
        ({"extends": "other/else"}, "an extension has the same name as the extended component"),
    ],
)
def test_invalid_declaration_is_rejected(arguments, says):
    given = {"targets": targets(backend="Backend", ops="OPS"), "module": "numpy", **arguments}
    with pytest.raises(DeclarationError, match=says):
        FrameworkSpec("toy", given.pop("targets"), "", **given)
