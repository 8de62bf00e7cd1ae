"""The package of the framework tape, which has code for two parts of other packages.

Crosses: testing, ppo, policy, torch.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from tape import Array

import rlcatalog
from rlcatalog import FrameworkSpec
from rlcatalog.errors import NotServedError
from rlcatalog.models import weights_of
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_tape import plugin
from rlcatalog_tape.categorical import Categorical
from rlcatalog_tape.fcnet import FullyConnected
from rlcatalog_tape.kit import Kit
from rlcatalog_tape.layers import linear
from rlcatalog_tape.learner import Learner
from rlcatalog_testing import PluginEntryPoint, cases, isolated_catalog, outcomes, plugin_of
from rlcatalog_torch import TorchLearner

pytestmark = pytest.mark.usefixtures("one_thread")

TAPE = PluginEntryPoint(
    "rlcatalog_tape.plugin", "rlcatalog-tape", requires=("rlcatalog>=0.1,<0.2",)
)
PARTS = (
    "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical", "rlcatalog-gaussian",
    "rlcatalog-multi-action",
)  # fmt: skip
OBS_SPACE = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTION_SPACE = gym.spaces.Discrete(4)
CONFIG = {"fcnet_hiddens": [8, 5], "fcnet_activation": "tanh"}


@pytest.fixture
def catalog():
    return isolated_catalog(*PARTS, TAPE)


def build(catalog, framework, **config):
    return rlcatalog.build(
        OBS_SPACE, ACTION_SPACE, {**CONFIG, **config}, framework, catalog=catalog
    )


def build_twins(catalog, **config):
    """Return a policy in PyTorch and one in the framework tape with the same weights."""
    policy = build(catalog, "torch", **config)
    twin = build(catalog, "tape", **config)
    rng = np.random.default_rng(0)
    weights = {}
    for name, array in policy.model.get_weights().items():
        weights[name] = rng.normal(size=array.shape)
    policy.model.set_weights(weights)
    twin.model.set_weights(weights)
    return policy, twin


def make_batch():
    rng = np.random.default_rng(1)
    obs = rng.uniform(-1, 1, (6, 3)).astype(np.float32)
    return {"obs": obs, "raw_action": rng.integers(0, 4, (6, 1))}


# --- the same as in PyTorch -----------------------------------------------------------------------


CONFIGS = [
    pytest.param({"vf_share_layers": True}, id="shared"),
    pytest.param({"vf_share_layers": False}, id="separate"),
    pytest.param({"fcnet_activation": "relu", "post_fcnet_hiddens": [4]}, id="relu"),
    pytest.param({"categorical_temperature": 0.5}, id="temperature"),
]


def add_stored_inputs(batch):
    """Return a batch that was collected by another policy."""
    inputs = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
    return {**batch, "dist_inputs": inputs}


@pytest.mark.parametrize("config", CONFIGS)
def test_policy_evaluates_as_in_torch(catalog, config):
    policy, twin = build_twins(catalog, **config)
    batch = add_stored_inputs(make_batch())

    expected = policy.evaluate({name: torch.as_tensor(array) for name, array in batch.items()})
    actual = twin.evaluate(batch)

    for name in ("logp", "entropy", "value", "kl"):
        tensor = getattr(expected, name).detach()
        np.testing.assert_allclose(getattr(actual, name), tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", CONFIGS)
def test_gradient_is_that_of_torch(catalog, config):
    policy, twin = build_twins(catalog, **config)
    batch = add_stored_inputs(make_batch())
    tensors = {name: torch.as_tensor(array) for name, array in batch.items()}

    def loss_of(some_policy, some_batch):
        evaluation = some_policy.evaluate(some_batch)
        terms = evaluation.logp * evaluation.value + 0.5 * evaluation.entropy - evaluation.kl
        return terms.sum(), None

    expected = TorchLearner(policy).gradient(loss_of, policy, tensors)
    actual = Learner(twin).gradient(loss_of, twin, batch)

    np.testing.assert_allclose(actual.loss, expected.loss.item(), rtol=1e-4)
    np.testing.assert_allclose(actual.norm, expected.norm.item(), rtol=1e-4)
    for name, parameter in policy.model.named_parameters():
        np.testing.assert_allclose(actual.of_weights[name], parameter.grad, rtol=1e-3, atol=1e-4)


def test_extreme_logits_give_finite_results():
    most = np.finfo(np.float32).max
    logits = np.array([[most, -most, 0.0], [-most, -most, 5.0]], np.float32)

    dist = Categorical(logits, temperature=0.5)

    assert np.isfinite(dist.entropy().data).all()
    assert np.isfinite(dist.logp(np.array([1, 1])).data).all()


def test_policy_saved_in_torch_acts_the_same(catalog, tmp_path):
    policy, _ = build_twins(catalog)
    policy.save(tmp_path / "policy")
    obs = make_batch()["obs"]

    loaded = rlcatalog.load(tmp_path / "policy", framework="tape", catalog=catalog)

    assert isinstance(loaded.model, FullyConnected)
    expected = policy.act(obs, explore=False)
    actual = loaded.act(obs, explore=False)
    np.testing.assert_allclose(actual.dist_inputs, expected.dist_inputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(actual.action, expected.action)


def test_policy_saved_here_loads_in_torch(catalog, tmp_path):
    _, twin = build_twins(catalog)
    twin.save(tmp_path / "policy")

    loaded = rlcatalog.load(tmp_path / "policy", framework="torch", catalog=catalog)

    for name, array in weights_of(twin.model).items():
        np.testing.assert_allclose(weights_of(loaded.model)[name], array, rtol=1e-6)


# --- learners -------------------------------------------------------------------------------------


def test_torch_learner_clips_to_the_limit(catalog):
    policy = build(catalog, "torch")
    learner = TorchLearner(policy)
    batch = make_batch()

    gradient = learner.gradient(lambda: (100 * policy.evaluate(batch).logp.sum(), "extra"))
    learner.apply(gradient, lr=0.0, limit=0.5)

    gradients = [parameter.grad for parameter in learner.parameters]
    norms = [of_weight.norm() for of_weight in gradients if of_weight is not None]
    assert gradient.results == "extra"
    assert gradient.norm > 1.0
    assert torch.stack(norms).norm().item() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("framework", "learner_class", "zero"),
    [("torch", TorchLearner, torch.zeros(())), ("tape", Learner, Array(0.0))],
    ids=["torch", "tape"],
)
def test_gradient_of_a_constant_is_none(catalog, framework, learner_class, zero):
    learner = learner_class(build(catalog, framework))
    assert learner.gradient(lambda: (zero, None)) is None


# --- what is missing ------------------------------------------------------------------------------


@pytest.fixture
def catalog_without_bookkeeping():
    """Catalog whose framework has no target "bookkeeping"."""
    [declared] = plugin.rlcatalog_frameworks()
    targets = {name: path for name, path in declared.targets.items() if name != "bookkeeping"}
    framework = FrameworkSpec("tape", targets, "arrays", module="tape")
    package = plugin_of(
        rlcatalog_frameworks=[framework],
        rlcatalog_models=plugin.rlcatalog_models(),
        rlcatalog_action_dists=plugin.rlcatalog_action_dists(),
    )
    return isolated_catalog(*PARTS, PluginEntryPoint(package, "rlcatalog-tape"))


def test_saving_names_the_missing_target(catalog_without_bookkeeping, tmp_path):
    policy = build(catalog_without_bookkeeping, "tape")

    with pytest.raises(NotServedError) as caught:
        policy.save(tmp_path / "policy")

    assert str(caught.value) == (
        "framework 'tape' cannot read the weights of a model: ModelBookkeeping does not implement"
        " weights(). Derive a class from rlcatalog.models.ModelBookkeeping that does, and declare"
        " it as the framework's target 'bookkeeping'."
    )


def test_setting_weights_names_the_missing_target(catalog_without_bookkeeping):
    policy = build(catalog_without_bookkeeping, "tape")
    with pytest.raises(NotServedError, match="does not implement set_weights"):
        policy.model.set_weights({})


def test_padding_names_the_missing_method(catalog):
    bookkeeping = build(catalog, "tape").model._rlcatalog_bookkeeping
    with pytest.raises(NotServedError, match="tell padding from the rows of sequences"):
        bookkeeping.padding(np.array([1]), np.zeros((1, 3)))


# --- the conformance kit --------------------------------------------------------------------------


def run_kit(distribution, catalog):
    """Return the outcome of each case of a package, by name."""
    return {outcome.name: outcome for outcome in outcomes(cases(distribution, catalog=catalog))}


def test_code_that_does_not_look_ids_up_is_refused(catalog):
    items = gym.spaces.Discrete(50)
    config = {"embeddings": 8}

    rlcatalog.build(items, gym.spaces.Discrete(2), config, "torch", catalog=catalog)
    with pytest.raises(NotServedError, match="the code of 'fcnet' for framework='tape'"):
        rlcatalog.build(items, gym.spaces.Discrete(2), config, "tape", catalog=catalog)


def test_kit_passes_code_for_parts_of_other_packages():
    catalog = isolated_catalog(*PARTS, "rlcatalog-ppo", TAPE)

    results = run_kit("rlcatalog-tape", catalog)

    assert [outcome.why for outcome in results.values() if outcome.status == "failed"] == []
    passed = {name for name, outcome in results.items() if outcome.status == "passed"}
    assert passed >= {
        "framework-tape-the_backend_evaluates",
        "trunk-fcnet-has_a_summary-tape",
        "trunk-fcnet-every_weight_is_trained-tape",
        "trunk-fcnet-frameworks_agree",
        "trunk-fcnet-ppo_moves_every_weight-tape",
        "action_dist-categorical-draws_follow_logp-tape",
        "action_dist-categorical-frameworks_agree",
    }


def test_kit_says_which_spaces_are_left_out(catalog):
    all_cases = cases("rlcatalog-tape", catalog=catalog)
    [case] = [case for case in all_cases if str(case) == "trunk-fcnet-spaces_have_code-tape"]

    [outcome] = outcomes([case])

    assert outcome.status == "skipped"
    assert "MultiBinary(3)" in outcome.why
    assert (
        "action_dist 'diag_gaussian' (rlcatalog-gaussian 0.1.0) has no code for framework='tape'"
        in outcome.why
    )


def test_kit_needs_no_parts_of_models(catalog, monkeypatch):
    knows_value = staticmethod(lambda policy, batch: set())
    monkeypatch.setattr(Kit, "weights_of_value", knows_value, raising=False)
    all_cases = cases("rlcatalog-tape", catalog=catalog)
    [case] = [case for case in all_cases if case.check.name == "value_has_its_own_part"]

    [outcome] = outcomes([case])

    assert outcome.status == "skipped"
    assert "cannot tell which weights belong to which part" in outcome.why


def test_kit_checks_only_own_code_of_an_extended_part(catalog):
    alone = [str(case) for case in cases("rlcatalog-fcnet", catalog=isolated_catalog(*PARTS))]
    beside = [str(case) for case in cases("rlcatalog-fcnet", catalog=catalog)]
    assert beside == alone


def test_kit_fails_code_that_another_package_brings_too():
    framework = plugin_of(rlcatalog_frameworks=plugin.rlcatalog_frameworks())
    packages = [PluginEntryPoint(framework, "rlcatalog-tape")]
    for name in ("one", "two"):
        package = plugin_of(
            rlcatalog_models=plugin.rlcatalog_models(),
            rlcatalog_action_dists=plugin.rlcatalog_action_dists(),
        )
        packages.append(PluginEntryPoint(package, name))
    catalog = isolated_catalog(*PARTS, *packages)
    all_cases = cases("two", catalog=catalog)
    [case] = [case for case in all_cases if str(case) == "trunk-fcnet-output_width-tape"]

    [outcome] = outcomes([case])

    assert outcome.status == "failed"
    assert "one 1.0 and two 1.0 provide its code for 'tape'" in outcome.why


class WithoutActivation(FullyConnected):
    """A fully connected network that leaves out its second layer's activation."""

    def __init__(self, *args):
        super().__init__(*args)
        for layer in self.hidden[1:2]:
            layer.activation = linear


def test_kit_finds_code_that_differs_from_the_owners(monkeypatch):
    monkeypatch.setattr("rlcatalog_tape.fcnet.FullyConnected", WithoutActivation)
    catalog = isolated_catalog(*PARTS, TAPE)
    all_cases = cases("rlcatalog-tape", catalog=catalog)
    [case] = [case for case in all_cases if str(case) == "trunk-fcnet-frameworks_agree"]

    [outcome] = outcomes([case])

    assert outcome.status == "failed"
    assert "model 'fcnet' (rlcatalog-tape 1.0)" in outcome.why
    assert "torch and tape with the same weights" in outcome.why


class StoresDividedLogits(Categorical):
    """A categorical distribution whose stored logits have been divided by the temperature."""

    def __init__(self, inputs, model=None, temperature=1.0):
        super().__init__(inputs, model, temperature)
        self.inputs = self.inputs / temperature


class WithoutTemperature(Categorical):
    """A categorical distribution that ignores the temperature."""

    def __init__(self, inputs, model=None, temperature=1.0):
        super().__init__(inputs, model)


@pytest.mark.parametrize(
    ("faulty_class", "check"),
    [
        (StoresDividedLogits, "is_rebuilt_from_stored_parameters-tape"),
        (WithoutTemperature, "frameworks_agree"),
    ],
)
def test_kit_tries_options_that_follow_from_the_config(monkeypatch, faulty_class, check):
    monkeypatch.setattr("rlcatalog_tape.categorical.Categorical", faulty_class)
    catalog = isolated_catalog(*PARTS, TAPE)
    all_cases = cases("rlcatalog-tape", catalog=catalog)
    [case] = [case for case in all_cases if str(case) == f"action_dist-categorical-{check}"]

    [outcome] = outcomes([case])

    assert outcome.status == "failed"
    assert "Discrete(3, start=1) with {'categorical_temperature': 1.5}" in outcome.why


# --- training -------------------------------------------------------------------------------------


@pytest.mark.learn
def test_ppo_learns_cartpole():
    catalog = isolated_catalog(*PARTS, "rlcatalog-ppo", TAPE)
    config = {"framework": "tape", "model": {"fcnet_hiddens": [64]}, "seed": 0, "lr": 3e-3}
    algorithm = PPO("CartPole-v1", config, catalog=catalog)

    algorithm.learn(20_000)
    mean_return = np.mean(algorithm.evaluate(20, seed=0))
    algorithm.stop()

    assert mean_return > 100  # a random policy reaches about 20


@pytest.mark.parametrize("algorithm_class", [A2C, PG])
def test_other_algorithms_train_all_weights_that_they_read(algorithm_class):
    catalog = isolated_catalog(*PARTS, "rlcatalog-ppo", TAPE)
    config = {"framework": "tape", "model": CONFIG, "seed": 0, "num_envs": 2}
    algorithm = algorithm_class("CartPole-v1", {**config, "rollout_length": 16}, catalog=catalog)
    before = algorithm.policy.model.get_weights()

    algorithm.train()
    after = algorithm.policy.model.get_weights()
    algorithm.stop()

    same = {name for name, array in before.items() if np.array_equal(after[name], array)}
    value_layer = {"outputs.value.weight", "outputs.value.bias"}
    assert same == (value_layer if algorithm_class is PG else set())
