"""A third framework from a plugin: `tape_plugin`, with code for the fully connected net and the
categorical distribution.
"""

from __future__ import annotations

import re
from dataclasses import replace

import gymnasium as gym
import numpy as np
import planted_tf
import pytest
import tape
from tape_own_parts import (
    DIST,
    FRAMEWORK,
    NET,
    OWN_DIST,
    OWN_NET,
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
    PluginWarning,
    UnknownNameError,
)
from rlcatalog.frameworks import frameworks, ops_of, require_framework, tensor_ops
from rlcatalog_policy import load
from rlcatalog_ppo import PPO
from rlcatalog_tape.ops import OPS
from rlcatalog_testing import PluginEntryPoint, cases, isolated_catalog, outcomes, plugin_of

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
FOUR = gym.spaces.Discrete(4)
PARTS = ("rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical")

#: The framework "tape", with a model and a distribution.
TAPE_PLUGIN = plugin_of(
    rlcatalog_frameworks=[FRAMEWORK],
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
        PluginEntryPoint(parts, "a-tape-parts"),  # loaded before its framework's plugin
        PluginEntryPoint(TAPE_PLUGIN, "tape"),
    )


@pytest.fixture
def tape_policy(catalog):
    config = {"fcnet_hiddens": [], "vf_share_layers": True}  # a linear net
    return rlcatalog.build(THREE_FEATURES, FOUR, config, "tape", catalog=catalog)


# --- registration ---------------------------------------------------------------------------------


def test_all_plugins_load(catalog):
    assert {record.name: record.error for record in catalog.plugins if record.error} == {}
    assert {record.status for record in catalog.plugins} == {"loaded"}


def test_built_in_model_has_code_for_the_framework(catalog):
    assert catalog.registry.get("model", "fcnet").frameworks == ("torch", "tf", "tape")


def test_catalog_lists_the_framework(catalog):
    assert [part.provider for part in catalog.parts("framework")] == ["tape 1.0"]


def test_operations_are_found_once_their_framework_is_registered(request):
    array = type("Array", (tape.Array,), {})(np.zeros(3))
    assert ops_of(array) is tensor_ops("numpy")

    request.getfixturevalue("catalog")  # registers the framework

    assert ops_of(array) is OPS


# --- explanations ---------------------------------------------------------------------------------


def test_explanation_names_framework_and_parts(catalog):
    explanation = catalog.explain(THREE_FEATURES, FOUR, {}, "tape").as_dict()

    assert explanation["framework"] == "tape"
    assert explanation["model"]["chosen"] == "fcnet"
    assert explanation["action_dist"]["chosen"] == "categorical"
    reasons = {part["name"]: part["reason"] for part in explanation["model"]["candidates"]}
    assert reasons["fcnet"]


def test_explanation_ends_with_the_action(catalog):
    explanation = catalog.explain(THREE_FEATURES, FOUR, {}, "tape").as_dict()
    assert explanation["shapes"][-1] == {"stage": "action", "shape": []}


def test_framework_is_found_by_its_alias():
    plugin = plugin_of(
        rlcatalog_frameworks=[replace(FRAMEWORK, aliases=("ribbon",))],
        rlcatalog_models=[NET],
        rlcatalog_action_dists=[DIST],
    )
    catalog = isolated_catalog(*PARTS, PluginEntryPoint(plugin, "tape"))
    assert catalog.explain(THREE_FEATURES, FOUR, {}, "ribbon").as_dict()["framework"] == "tape"


# --- policies -------------------------------------------------------------------------------------


@pytest.fixture
def obs():
    return np.random.default_rng(1).uniform(-1, 1, (5, 3)).astype(np.float32)


def test_policy_takes_the_most_likely_action(tape_policy, obs):
    logits = obs @ tape_policy.model.get_weights()["outputs.logits.weight"].T
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    step = tape_policy.act(obs, explore=False)

    np.testing.assert_allclose(step.dist_inputs, logits, rtol=1e-6)
    np.testing.assert_array_equal(step.action, logits.argmax(axis=1))
    np.testing.assert_allclose(step.logp, np.log(probabilities.max(axis=1)), rtol=1e-5)


def test_policy_returns_values(tape_policy, obs):
    values = tape_policy.values(tape_policy.preprocess(obs))
    weights = tape_policy.model.get_weights()["outputs.value.weight"][0]
    np.testing.assert_allclose(values, obs @ weights, rtol=1e-5)


def test_policy_takes_no_forbidden_action(tape_policy, obs):
    only_two = np.zeros((5, 4), bool)
    only_two[:, 2] = True

    # The framework's operations fill the inputs of the others.
    assert tape_policy.act(obs, mask=only_two).action.tolist() == [2, 2, 2, 2, 2]


def test_policy_stays_on_the_cpu(tape_policy):
    assert tape_policy.to("cpu") is tape_policy


def test_saved_policy_is_loaded(tape_policy, catalog, obs, tmp_path):
    tape_policy.save(tmp_path / "policy")

    loaded = load(tmp_path / "policy", catalog=catalog)

    assert loaded.framework == "tape"
    expected = tape_policy.act(obs, explore=False)
    actual = loaded.act(obs, explore=False)
    np.testing.assert_array_equal(actual.dist_inputs, expected.dist_inputs)
    np.testing.assert_array_equal(actual.value, expected.value)


@pytest.mark.parametrize("framework", ["torch", None], ids=["by name", "by default"])
def test_torch_works_beside_the_third_framework(catalog, framework):
    policy = rlcatalog.build(
        THREE_FEATURES, FOUR, {"fcnet_hiddens": [4]}, framework, catalog=catalog
    )
    assert policy.framework == "torch"


# --- missing features -----------------------------------------------------------------------------


def test_error_without_the_library_has_no_install_line(catalog, monkeypatch):
    assert catalog.plugins  # loads them, which registers the framework
    monkeypatch.setattr(FrameworkSpec, "is_installed", property(lambda spec: False))

    with pytest.raises(MissingFrameworkError) as caught:
        require_framework("tape")

    assert str(caught.value) == (
        f"framework='tape' needs the package {FRAMEWORK.module!r}, which is not installed."
        " Install it as its authors describe."
    )


def test_frozen_policy_says_that_the_framework_cannot_freeze(tape_policy):
    reason = tape_policy.freeze().reason
    assert reason == (
        "no installed package supports 'freeze' for framework='tape'. It is supported for"
        " framework='torch': save the policy, and load it with rlcatalog.load(folder,"
        " framework='torch')."
    )


def test_part_without_code_for_the_framework_is_an_error(catalog):
    lstm = isolated_catalog(*PARTS, "rlcatalog-lstm").registry.get("model", "lstm")
    with pytest.raises(NotServedError, match=r"'lstm'.*has no code for framework='tape'"):
        lstm.load("tape")


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [("cut", (np.ones((2, 3)), None)), ("padded", (np.ones((2, 3)), 4))],
)
def test_missing_tensor_operation_is_an_error(tape_policy, operation, arguments):
    ops = tape_policy.model._rlcatalog_bookkeeping.ops
    assert ops is OPS

    with pytest.raises(NotServedError, match=f"has no tensor operation '{operation}'"):
        getattr(ops, operation)(*arguments)


def test_tensor_operation_of_the_framework_works(tape_policy):
    assert float(tape_policy.model._rlcatalog_bookkeeping.ops.total([1, 2])) == 3


# --- the conformance kit --------------------------------------------------------------------------


def test_kit_checks_the_third_framework_and_its_parts():
    catalog = isolated_catalog("rlcatalog-preprocessors", PluginEntryPoint(TAPE_PLUGIN, "tape"))

    # Runs each check of the kit for each part of the package.
    results = list(outcomes(cases("tape", catalog=catalog)))

    assert [outcome.why for outcome in results if outcome.status == "failed"] == []
    passed = {outcome.name for outcome in results if outcome.status == "passed"}
    assert passed >= {
        "framework-tape-the_backend_evaluates",
        "trunk-tape_linear-every_weight_is_trained-tape",
        "trunk-tape_linear-saved_and_restored-tape",
        "action_dist-tape_choice-draws_follow_logp-tape",
        "action_dist-tape_choice-gradients_are_finite-tape",
    }


class TwiceTheEntropy(planted_tf.Dist):
    """A distribution of TensorFlow that differs from its code for PyTorch."""

    def entropy(self):
        return 2 * super().entropy()


def run_frameworks_agree(tf_target):
    """Return the outcome of the check `frameworks_agree` for a distribution in three frameworks.

    No policy can be built in "tape", because nothing but the distribution has code for it.
    """
    spec = ActionDistSpec(
        "acme_dist",
        {"tape": "planted_tape:Dist", "torch": "planted_torch:Dist", "tf": tf_target},
        "one of n",
        match=match_choice,
        size=size_of_choice,
    )
    plugin = plugin_of(rlcatalog_frameworks=[FRAMEWORK], rlcatalog_action_dists=[spec])
    catalog = isolated_catalog(*PARTS, PluginEntryPoint(plugin, "acme"))
    all_cases = cases("acme", catalog=catalog)
    agreement = [case for case in all_cases if case.check.name == "frameworks_agree"]
    (outcome,) = outcomes(agreement)
    return outcome


def test_kit_passes_two_frameworks_that_agree():
    outcome = run_frameworks_agree("planted_tf:Dist")
    assert outcome.status == "passed", outcome.why


def test_kit_compares_two_frameworks_if_the_third_is_missing():
    outcome = run_frameworks_agree(f"{__name__}:TwiceTheEntropy")
    assert "in torch and tf, the entropy" in outcome.why


# --- training -------------------------------------------------------------------------------------


class Bandit(gym.Env):
    """Pays 1 for action 2 of four; an episode has one step."""

    observation_space = THREE_FEATURES
    action_space = FOUR

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(3, np.float32) / 2, {}

    def step(self, action):
        return np.ones(3, np.float32) / 2, float(action == 2), True, False, {}


PPO_CONFIG = {
    "framework": "tape",
    "num_envs": 2,
    "rollout_length": 16,
    "minibatch_size": 16,
    "num_epochs": 4,
    "lr": 0.05,
    "seed": 0,
    "frozen": "never",
    "model": {"fcnet_hiddens": [8]},
}


def train(algorithm, iterations):
    """Return the last result."""
    return [algorithm.train() for _ in range(iterations)][-1]


def test_ppo_learns_in_the_third_framework(catalog):
    algorithm = PPO(Bandit, PPO_CONFIG, catalog=catalog)
    untrained_return = np.mean(algorithm.evaluate(20, seed=0, explore=True))

    result = train(algorithm, iterations=10)
    algorithm.stop()

    assert untrained_return < 0.6
    assert result["episode_return_mean"] > 0.8


def test_restored_ppo_trains_as_the_saved_one(catalog, tmp_path):
    algorithm = PPO(Bandit, PPO_CONFIG, catalog=catalog)
    train(algorithm, iterations=2)
    algorithm.save_checkpoint(tmp_path / "checkpoint")
    expected = train(algorithm, iterations=2)
    algorithm.stop()

    restored = PPO.restore(tmp_path / "checkpoint", Bandit, catalog=catalog)
    result = train(restored, iterations=2)
    restored.stop()

    assert result["info"] == expected["info"]
    weights = restored.policy.model.get_weights()
    for name, array in algorithm.policy.model.get_weights().items():
        np.testing.assert_array_equal(weights[name], array)


# --- code from several packages -------------------------------------------------------------------


def framework_plugin(name, **parts):
    """Return a plugin with the framework, and parts."""
    return PluginEntryPoint(plugin_of(rlcatalog_frameworks=[FRAMEWORK], **parts), name)


def model_plugin(name, *specs):
    return PluginEntryPoint(plugin_of(rlcatalog_models=list(specs)), name)


def errors_of_failed(*plugins):
    """Load plugins of which some fail; return their errors by distribution."""
    with pytest.warns(PluginWarning):
        catalog = isolated_catalog(*PARTS, *plugins)
    errors = {}
    for record in catalog.plugins:
        if record.status == "failed":
            errors[record.distribution] = record.error
    # A plugin that fails leaves no part.
    assert not {part.distribution for part in catalog.parts()} & set(errors)
    return errors


def test_code_of_the_package_itself_is_not_replaced():
    torch_code = ModelSpec("fcnet", targets(torch="Net"), "", extends="rlcatalog-fcnet/fcnet")

    errors = errors_of_failed(
        framework_plugin("one", rlcatalog_models=[NET]), model_plugin("two", torch_code)
    )

    assert "model rlcatalog-fcnet/fcnet, but its code for 'torch' belongs to" in errors["two"]


def test_code_of_the_framework_is_not_replaced():
    # `NET` is the code for "tape" of the package that brings this framework.
    own_code = framework_plugin("one", rlcatalog_models=[NET])
    other_code = ModelSpec("fcnet", targets(tape="Net"), "a net", extends="rlcatalog-fcnet/fcnet")

    with pytest.warns(PluginWarning, match="its code for 'tape' belongs to one"):
        catalog = isolated_catalog(*PARTS, own_code, model_plugin("two", other_code))

    extensions = catalog.registry.get("model", "fcnet").extensions["tape"]
    assert [part.distribution for part in extensions] == ["one"]


def test_refused_code_leaves_other_parts_of_its_package():
    own_code = framework_plugin("one", rlcatalog_models=[NET])
    other_code = ModelSpec("fcnet", targets(tape="Net"), "a net", extends="rlcatalog-fcnet/fcnet")
    other_model = ModelSpec("beside", targets(torch="Net"), "another net")

    with pytest.warns(PluginWarning, match="its code for 'tape' belongs to one"):
        catalog = isolated_catalog(*PARTS, own_code, model_plugin("two", other_model, other_code))

    assert catalog.registry.get("model", "two/beside").distribution == "two"


@pytest.fixture
def catalog_with_two_codes():
    """Catalog in which two packages have code for the same model in the framework of a third."""
    return isolated_catalog(
        *PARTS, framework_plugin("one"), model_plugin("two", NET), model_plugin("three", NET)
    )


def test_code_from_two_packages_is_an_error_where_it_is_used(catalog_with_two_codes):
    fcnet = catalog_with_two_codes.registry.get("model", "fcnet")
    message = r"three 1\.0 and two 1\.0 provide its code for 'tape'"
    with pytest.raises(AmbiguousChoiceError, match=message):
        fcnet.load("tape")


def test_code_from_two_packages_leaves_other_frameworks(catalog_with_two_codes):
    policy = rlcatalog.build(THREE_FEATURES, FOUR, {}, "torch", catalog=catalog_with_two_codes)
    assert policy.framework == "torch"


# --- config keys ----------------------------------------------------------------------------------


@pytest.fixture
def catalog_reading_hiddens():
    """Catalog in which the framework's code for the model reads one config key."""
    net = replace(NET, reads=("fcnet_hiddens",))
    plugin = framework_plugin("one", rlcatalog_models=[net], rlcatalog_action_dists=[DIST])
    return isolated_catalog(*PARTS, plugin)


def test_config_keys_are_those_of_the_framework_code(catalog_reading_hiddens):
    fcnet = catalog_reading_hiddens.registry.get("model", "fcnet")
    assert catalog_reading_hiddens.config_keys(fcnet, "tape") == ["fcnet_hiddens"]
    assert "fcnet_activation" in catalog_reading_hiddens.config_keys(fcnet, "torch")


@pytest.mark.parametrize(("framework", "unread"), [("tape", ["fcnet_activation"]), ("torch", [])])
def test_explanation_lists_keys_that_the_framework_ignores(
    catalog_reading_hiddens, framework, unread
):
    config = {"fcnet_hiddens": [4], "fcnet_activation": "relu"}
    explanation = catalog_reading_hiddens.explain(THREE_FEATURES, FOUR, config, framework)
    assert list(explanation.as_dict()["unread"]) == unread


# --- errors ---------------------------------------------------------------------------------------


def test_alias_of_a_built_in_framework_is_an_error():
    spec = FrameworkSpec(
        "mine", targets(backend="Backend", ops="OPS"), "", module="numpy", aliases=("tf2",)
    )
    plugin = PluginEntryPoint(plugin_of(rlcatalog_frameworks=[spec]), "one")
    assert "framework 'tf2' already exists" in errors_of_failed(plugin)["one"]


def test_framework_of_a_failed_plugin_is_forgotten():
    wrong_framework = ModelSpec("mine", targets(trch="Net"), "")

    errors = errors_of_failed(framework_plugin("one", rlcatalog_models=[wrong_framework]))

    assert list(errors) == ["one"]
    assert "tape" not in frameworks()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"tape": "Net"}, "unknown framework 'tape' in targets"),
        ({"tf": "Net", "trch": "Net"}, "unknown framework 'trch'.*Did you mean 'torch'"),
    ],
    ids=["tape", "trch"],
)
def test_part_for_an_unknown_framework_is_an_error(named, message):
    spec = ModelSpec("mine", targets(**named), "")
    assert re.search(message, errors_of_failed(model_plugin("one", spec))["one"])


@pytest.fixture
def catalog_with_jax_model():
    """Catalog with a model for PyTorch, and for a framework that is not there."""
    spec = ModelSpec("mine", targets(torch="Net", jax="Net"), "")
    return isolated_catalog(*PARTS, model_plugin("one", spec))


def test_part_may_have_code_for_a_missing_framework(catalog_with_jax_model):
    model = catalog_with_jax_model.registry.get("model", "one/mine")
    assert model.frameworks == ("torch", "jax")


def test_building_in_a_missing_framework_is_an_error(catalog_with_jax_model):
    config = {"custom_model": "one/mine"}
    with pytest.raises(UnknownNameError, match="Unknown framework 'jax'"):
        rlcatalog.build(THREE_FEATURES, FOUR, config, "jax", catalog=catalog_with_jax_model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targets": targets(backend="Backend")}, "targets must have 'ops'"),
        ({"targets": targets(backend="Backend", ops="OPS", net="Net")}, "unknown target 'net'"),
        ({"module": "numpy.linalg"}, "module must be the name of a top-level"),
        ({"module": ""}, "module must be"),
        ({"aliases": "np"}, "aliases must be a tuple of text"),
        ({"extends": "tape"}, "extends must be 'distribution/name'"),
        ({"extends": "other/else"}, "an extension has the same name as"),
    ],
)
def test_invalid_framework_spec_is_an_error(arguments, message):
    fields = {"targets": targets(backend="Backend", ops="OPS"), "module": "numpy"} | arguments
    with pytest.raises(DeclarationError, match=message):
        FrameworkSpec(name="tape", summary="", **fields)
