"""A third framework from a plugin: NumPy, with code for the fully connected net and the categorical distribution."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog import ActionDistribution, ActionDistSpec, FrameworkSpec, ModelSpec, ModelV2
from rlcatalog.errors import DeclarationError, NotServedError, UnknownNameError
from rlcatalog.frameworks import TensorOps, frameworks, tensor_ops
from rlcatalog.models import OutputPlan, output_plan
from rlcatalog_policy import Evaluation, load
from rlcatalog.testing import PluginEntryPoint, isolated_catalog, plugin_of

SPACE, ACTIONS = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4)
PARTS = ("rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical")


# --- the framework: what a package of its own would hold --------------------------------------------------------------


class Engine:
    """Runs a policy in NumPy."""

    def __init__(self, policy: rlcatalog.Policy) -> None:
        self.policy = policy

    def _forward(self, obs, mask):
        inputs, _ = self.policy.model({"obs": obs, "is_training": False}, [], None)
        return inputs if mask is None else self.policy.dist_class.masked(inputs, mask)

    def act(self, obs, views, memory, mask, explore) -> tuple[Any, ...]:
        inputs = self._forward(obs, mask)
        dist = self.policy.dist_class(inputs, self.policy.model)
        sample = dist.sample() if explore else dist.deterministic_sample()
        return sample[:, None], dist.logp(sample), self.policy.model.value_function(), inputs, ()

    def values(self, obs, views, memory):
        self._forward(obs, None)
        return self.policy.model.value_function()

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        raise NotServedError("framework 'toy' computes no gradients; evaluate in torch or tf.")

    def to(self, device: str) -> None:
        """There is one device."""


class Net(ModelV2):
    """The fully connected net without its hidden layers, for this is a toy."""

    framework_of_class = "toy"

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name, "toy")
        plan: OutputPlan = output_plan(self.model_config, math.prod(obs_space.shape), [], num_outputs)
        rng = np.random.default_rng(0)
        self.weights = {
            "logits": rng.normal(size=(plan.inputs, plan.outputs)).astype(np.float32),
            "value": rng.normal(size=plan.inputs).astype(np.float32),
        }

    def forward(self, input_dict, state, seq_lens):
        self.features = input_dict["obs_flat"]
        return self.features @ self.weights["logits"], state

    def value_function(self):
        return self.features @ self.weights["value"]

    def get_weights(self):
        return dict(self.weights)

    def set_weights(self, weights):
        self.weights = {name: np.asarray(weights[name]) for name in self.weights}


class Choice(ActionDistribution):
    """A categorical distribution."""

    framework_of_class = "toy"

    def __init__(self, inputs, model=None):
        super().__init__(inputs, model)
        shifted = inputs - inputs.max(axis=1, keepdims=True)
        self.logits = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    def sample(self):
        noise = np.random.default_rng(len(self.inputs)).gumbel(size=self.logits.shape)
        return (self.logits + noise).argmax(axis=1)

    def deterministic_sample(self):
        return self.logits.argmax(axis=1)

    def logp(self, actions):
        return np.take_along_axis(self.logits, actions.reshape(-1, 1).astype(int), axis=1)[:, 0]


_NUMPY = tensor_ops("numpy")
#: The four that any framework has; it leaves out all others but one.
OPS = TensorOps("toy", _NUMPY.reshape, _NUMPY.integers, _NUMPY.side_by_side, _NUMPY.fill_forbidden, total=sum)


def targets(**named: str) -> dict[str, str]:
    return {name: f"toy_framework:{attribute}" for name, attribute in named.items()}


FRAMEWORK = FrameworkSpec("toy", targets(engine="Engine", ops="OPS"), "NumPy", module="numpy", aliases=("np",))
NET = ModelSpec("fcnet", targets(toy="Net"), "fcnet in NumPy", extends="rlcatalog-fcnet/fcnet")
DIST = ActionDistSpec("categorical", targets(toy="Choice"), "in NumPy", extends="rlcatalog-categorical/categorical")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The module that the targets name."""
    monkeypatch.setitem(sys.modules, "toy_framework", sys.modules[__name__])


@pytest.fixture
def catalog():
    """Catalog of the built-in parts, the framework, and a second plugin with its code for two of them."""
    parts = plugin_of(rlcatalog_models=[NET], rlcatalog_action_dists=[DIST])
    return isolated_catalog(
        *PARTS,
        PluginEntryPoint(parts, "a-toy-parts"),  # loaded before its framework's plugin
        PluginEntryPoint(plugin_of(rlcatalog_frameworks=[FRAMEWORK]), "toy-framework"),
    )


# --- what the catalog makes of it ------------------------------------------------------------------------------------


def test_all_plugins_load(catalog):
    assert [(record.name, record.status, record.error) for record in catalog.plugins if record.status != "loaded"] == []
    assert catalog.registry.get("model", "fcnet").frameworks == ("torch", "tf", "toy")
    assert [c.provider for c in catalog.components("framework")] == ["toy-framework 1.0"]


def test_a_lookup_is_explained(catalog):
    found = catalog.explain(SPACE, ACTIONS, {}, "toy").as_dict()
    assert (found["framework"], found["model"]["chosen"], found["action_dist"]["chosen"]) == (
        "toy", "fcnet", "categorical")  # fmt: skip
    assert catalog.explain(SPACE, ACTIONS, {}, "np").as_dict()["framework"] == "toy"
    reasons = {c["name"]: c["reason"] for c in found["model"]["candidates"]}
    assert found["shapes"][-1] == {"stage": "action", "shape": []}
    assert reasons["fcnet"]


def test_a_policy_acts_in_it(catalog):
    policy = catalog.build(SPACE, ACTIONS, {}, "toy")
    obs = np.random.default_rng(1).uniform(-1, 1, (5, 3)).astype(np.float32)
    step = policy.act(obs, explore=False)
    logits = obs @ policy.model.weights["logits"]
    np.testing.assert_array_equal(step.action, logits.argmax(axis=1))
    np.testing.assert_allclose(step.dist_inputs, logits, rtol=1e-6)
    density = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(step.logp, np.log(density.max(axis=1)), rtol=1e-5)
    np.testing.assert_allclose(policy.values(policy.preprocess(obs)), obs @ policy.model.weights["value"], rtol=1e-5)
    mask = np.zeros((5, 4), bool)
    mask[:, 2] = True
    assert policy.act(obs, mask=mask).action.tolist() == [2] * 5  # forbidden inputs are filled by its own operations
    assert policy.to("cpu") is policy


def test_what_it_cannot_do_is_refused_by_type(catalog):
    policy = catalog.build(SPACE, ACTIONS, {}, "toy")
    with pytest.raises(NotServedError, match="computes no gradients"):
        policy.evaluate({"obs": np.zeros((1, 3), np.float32), "raw_action": np.zeros((1, 1))})
    with pytest.raises(NotServedError, match=r"'lstm'.*has no code for framework='toy'"):
        isolated_catalog(*PARTS, "rlcatalog-lstm").registry.get("model", "lstm").load("toy")


def test_an_operation_it_leaves_out_is_refused_by_name(catalog):
    ops = catalog.build(SPACE, ACTIONS, {}, "toy").model._rlcatalog.ops
    assert ops is OPS
    assert ops.total([1, 2]) == 3
    with pytest.raises(NotServedError, match="framework 'toy' has no tensor operation 'cut'"):
        ops.cut(np.ones((2, 3)), None)
    with pytest.raises(NotServedError, match="'mean'"):
        ops.mean(np.ones(2), axis=0)


def test_a_policy_is_saved_and_loaded(catalog, tmp_path):
    policy = catalog.build(SPACE, ACTIONS, {}, "toy")
    policy.model.weights["value"][:] = 2
    policy.save(tmp_path / "policy")
    again = load(catalog, tmp_path / "policy")
    obs = np.ones((2, 3), np.float32) / 2
    assert again.framework == "toy"
    np.testing.assert_array_equal(again.act(obs, explore=False).dist_inputs, policy.act(obs, explore=False).dist_inputs)
    np.testing.assert_allclose(again.act(obs).value, [3, 3])


def test_the_other_frameworks_go_on(catalog):
    assert catalog.build(SPACE, ACTIONS, {"fcnet_hiddens": [4]}, "torch").framework == "torch"
    assert catalog.build(SPACE, ACTIONS, {"fcnet_hiddens": [4]}).framework == "torch"


# --- what is refused -------------------------------------------------------------------------------------------------


def failed(*plugins: tuple[str, Any]) -> dict[str, str]:
    """What the catalog says of plugins that fail, by distribution."""
    with pytest.warns(rlcatalog.errors.PluginWarning):
        found = isolated_catalog(*PARTS, *(PluginEntryPoint(plugin, name) for name, plugin in plugins))
    said = {record.distribution: record.error for record in found.plugins if record.status == "failed"}
    assert not {component.distribution for component in found.components()} & set(said)  # nothing of them stays
    return said


def test_code_that_is_there_already_is_not_replaced():
    """And who brings it loses that part alone."""
    other = ModelSpec("fcnet", targets(toy="Net"), "", extends="rlcatalog-fcnet/fcnet")
    beside = ModelSpec("beside", targets(torch="Net"), "")
    torch = ModelSpec("fcnet", targets(torch="Net"), "", extends="rlcatalog-fcnet/fcnet")
    one = ("one", plugin_of(rlcatalog_frameworks=[FRAMEWORK], rlcatalog_models=[NET]))
    said = failed(one, ("three", plugin_of(rlcatalog_models=[torch])))
    assert "framework 'torch' already, of rlcatalog-fcnet" in said["three"]
    two = ("two", plugin_of(rlcatalog_models=[beside, other]))
    plugins = [PluginEntryPoint(plugin, name) for name, plugin in (one, two)]
    with pytest.warns(rlcatalog.errors.PluginWarning) as caught:
        catalog = isolated_catalog(*PARTS, *plugins)
    for (me, other), warning in zip((("one", "two"), ("two", "one")), caught, strict=True):
        text = f"{me} extends model rlcatalog-fcnet/fcnet, which has code for framework 'toy' already, of {other}"
        assert text in str(warning.message)
    assert catalog.registry.get("model", "beside").distribution == "two"
    assert "toy" not in catalog.registry.get("model", "fcnet").frameworks
    with pytest.warns(rlcatalog.errors.PluginWarning, match="of two 1.0 is loaded, but"):
        catalog = isolated_catalog(*PARTS, *plugins, prefer=["one"])
    assert catalog.registry.get("model", "fcnet").extensions["toy"].distribution == "one"


def test_a_name_of_the_kernel_s_frameworks_is_taken():
    mine = FrameworkSpec("mine", targets(engine="Engine", ops="OPS"), "", module="numpy", aliases=("tf2",))
    assert "framework 'tf2' is known already" in failed(("one", plugin_of(rlcatalog_frameworks=[mine])))["one"]


def test_the_framework_of_a_plugin_that_fails_is_forgotten():
    wrong = ModelSpec("mine", targets(trch="Net"), "")
    failed(("one", plugin_of(rlcatalog_frameworks=[FRAMEWORK], rlcatalog_models=[wrong])))
    assert "toy" not in frameworks()


@pytest.mark.parametrize(
    ("named", "says"),
    [({"toy": "Net"}, "unknown framework 'toy' in targets"),
     ({"tf": "Net", "trch": "Net"}, "unknown framework 'trch'.*Did you mean 'torch'")],
)  # fmt: skip
def test_a_part_for_no_known_framework_is_refused(named, says):
    part = ModelSpec("mine", targets(**named), "")
    assert re.search(says, failed(("one", plugin_of(rlcatalog_models=[part])))["one"])


def test_a_part_may_have_code_for_a_framework_that_is_not_there():
    part = ModelSpec("mine", targets(torch="Net", jax="Net"), "")
    found = isolated_catalog(*PARTS, PluginEntryPoint(plugin_of(rlcatalog_models=[part]), "one"))
    assert found.registry.get("model", "mine").frameworks == ("torch", "jax")
    with pytest.raises(UnknownNameError, match="Unknown framework 'jax'"):
        found.build(SPACE, ACTIONS, {"custom_model": "mine"}, "jax")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"targets": targets(engine="Engine")}, "targets must have 'ops'"),
     ({"targets": targets(engine="Engine", ops="OPS", net="Net")}, "unknown framework 'net' in targets"),
     ({"module": "numpy.linalg"}, "module must be the name of a top-level module"),
     ({"module": ""}, "module must be"), ({"aliases": "np"}, "aliases must be a tuple of text"),
     ({"extends": "toy"}, "extends must be 'distribution/name'"),
     ({"extends": "other/else"}, "an extension answers to its victim's name")],
)  # fmt: skip
def test_a_declaration_says_what_is_wrong_with_it(arguments, says):
    given = {"targets": targets(engine="Engine", ops="OPS"), "module": "numpy", **arguments}
    with pytest.raises(DeclarationError, match=says):
        FrameworkSpec("toy", given.pop("targets"), "", **given)
