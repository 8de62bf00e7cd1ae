"""Plain `nn.Module`s as models: building, the trial pass, ownership of weights, and saving."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, Tuple
from torch import nn

import rlcatalog
from rlcatalog import FrameworkSpec
from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    ModelContractError,
    NotServedError,
    SavedPolicyError,
    UnknownNameError,
    UnreadKeysWarning,
)
from rlcatalog_plain.torch import PlainModel
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
TWO_OBSERVATIONS = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


class TanhNet(nn.Module):
    """A dense layer with tanh."""

    def __init__(self, space, hidden=8):
        super().__init__()
        self.space = space
        self.layers = nn.Sequential(nn.Linear(space.shape[0], hidden), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


class LogitsAndValueNet(nn.Module):
    """Takes `num_outputs`, and returns logits and value itself."""

    def __init__(self, space, num_outputs):
        super().__init__()
        self.logits = nn.Linear(4, num_outputs)
        self.value = nn.Linear(4, 1)

    def forward(self, obs):
        return self.logits(obs), self.value(obs)


def build_policy(model, config=None, action_space=None):
    return rlcatalog.build(FOUR_FEATURES, action_space or Discrete(3), config, "torch", model=model)


def apply_layer(weights, name, x):
    """Return the output of the dense layer with this name."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def act_greedily(policy):
    return policy.act(TWO_OBSERVATIONS, explore=False).dist_inputs


# --- building -------------------------------------------------------------------------------------


def test_module_class_returns_features_below_logits_and_value():
    policy = build_policy(TanhNet)

    step = policy.act(TWO_OBSERVATIONS)

    weights = policy.model.get_weights()
    features = np.tanh(apply_layer(weights, "module.layers.0", TWO_OBSERVATIONS))
    logits = apply_layer(weights, "outputs.logits", features)
    values = apply_layer(weights, "outputs.value", features)[:, 0]
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-6)
    np.testing.assert_allclose(step.value, values, atol=1e-6)


def test_module_class_receives_space_and_custom_model_config():
    policy = build_policy(TanhNet, {"custom_model_config": {"hidden": 5}})

    module = policy.model.module

    assert module.space == FOUR_FEATURES
    assert module.layers[0].out_features == 5


def make_without_arguments():
    return nn.Linear(4, 6)


def make_with_default_width(width=7):
    return nn.Linear(4, width)


def make_with_optional_space(space=None):
    return nn.Linear(space.shape[0], 9)


def make_with_keyword(*, width):
    return nn.Linear(4, width)


@pytest.mark.parametrize(
    ("factory", "arguments", "width"),
    [
        pytest.param(make_without_arguments, {}, 6, id="no-arguments"),
        pytest.param(make_with_default_width, {}, 7, id="default-width"),
        pytest.param(make_with_default_width, {"width": 3}, 3, id="given-width"),
        pytest.param(make_with_optional_space, {}, 9, id="optional-space"),
        pytest.param(make_with_keyword, {"width": 2}, 2, id="keyword-only"),
        pytest.param(lambda space: nn.Linear(space.shape[0], 5), {}, 5, id="lambda"),
        pytest.param(
            functools.partial(make_with_default_width, width=4), {}, 4, id="partial-function"
        ),
        pytest.param(functools.partial(TanhNet, hidden=11), {}, 11, id="partial-class"),
    ],
)
def test_factory_receives_the_arguments_it_takes(factory, arguments, width):
    policy = build_policy(factory, {"custom_model_config": arguments})

    logits_weight = policy.model.get_weights()["outputs.logits.weight"]

    assert logits_weight.shape == (3, width)  # 3 actions


def test_misspelt_argument_is_an_error_with_the_signature():
    with pytest.raises(ConfigError, match=r"'hidde'. Did you mean 'hidden'") as caught:
        build_policy(TanhNet, {"custom_model_config": {"hidde": 5}})

    assert "does not fit TanhNet(space, hidden=8): " in str(caught.value)


def test_missing_argument_is_an_error_with_the_signature():
    with pytest.raises(ConfigError, match=r"missing a required .*'width'") as caught:
        build_policy(make_with_keyword)

    assert "does not fit make_with_keyword(*, width): " in str(caught.value)


def test_error_of_a_constructor_is_shown_with_the_call():
    def broken(space):
        raise KeyError("size")

    with pytest.raises(ModelContractError, match="raised KeyError: 'size'") as caught:
        build_policy(broken)

    assert "broken(Box(4,) float32) raised" in str(caught.value)


def test_module_with_num_outputs_returns_logits_and_value():
    policy = build_policy(LogitsAndValueNet)

    step = policy.act(TWO_OBSERVATIONS)

    weights = policy.model.get_weights()
    logits = apply_layer(weights, "module.logits", TWO_OBSERVATIONS)
    values = apply_layer(weights, "module.value", TWO_OBSERVATIONS)[:, 0]
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-6)
    np.testing.assert_allclose(step.value, values, atol=1e-6)


@pytest.mark.parametrize("key", ["use_lstm", "use_attention"])
def test_module_with_num_outputs_takes_no_memory(key):
    with pytest.raises(NotServedError, match="takes num_outputs, so it returns logits"):
        build_policy(LogitsAndValueNet, {key: True})


@pytest.mark.parametrize(
    ("key", "value"),
    [("vf_share_layers", False), ("post_fcnet_hiddens", [4]), ("free_log_std", True)],
)
def test_module_with_num_outputs_rejects_keys_of_outputs(key, value):
    with pytest.raises(ConfigError, match=f"{key}=.* has no effect") as caught:
        build_policy(LogitsAndValueNet, {key: value}, action_space=Box(-1, 1, (2,)))

    assert "has no effect: LogitsAndValueNet takes num_outputs" in str(caught.value)


def test_post_fcnet_layers_follow_the_features():
    policy = build_policy(TanhNet, {"post_fcnet_hiddens": [5], "post_fcnet_activation": "tanh"})

    step = policy.act(TWO_OBSERVATIONS)

    weights = policy.model.get_weights()
    features = np.tanh(apply_layer(weights, "module.layers.0", TWO_OBSERVATIONS))
    hidden = np.tanh(apply_layer(weights, "hidden.layers.0", features))
    logits = apply_layer(weights, "outputs.logits", hidden)
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-6)


def test_keys_that_plain_modules_do_not_read_are_warned_of():
    with pytest.warns(UnreadKeysWarning, match="fcnet_hiddens"):
        build_policy(TanhNet, {"fcnet_hiddens": [8]})


def test_autoregressive_head_is_built_on_a_module():
    actions = Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)])
    policy = build_policy(TanhNet, {"use_autoregressive": True}, action_space=actions)
    step = policy.act(TWO_OBSERVATIONS)

    evaluation = policy.evaluate({"obs": TWO_OBSERVATIONS, "raw_action": step.raw_action})

    assert type(policy.model).__name__ == "AutoregressiveModel"
    assert isinstance(policy.model.trunk.module, TanhNet)
    np.testing.assert_allclose(evaluation.logp.detach(), step.logp, atol=1e-5)


# --- where a module may stand ---------------------------------------------------------------------


def test_custom_model_takes_a_module_class():
    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3), {"custom_model": TanhNet})

    assert policy.framework == "torch"
    assert policy.act(TWO_OBSERVATIONS).dist_inputs.shape == (2, 3)  # 3 actions


def test_custom_model_takes_the_name_of_a_decorated_class():
    catalog = rlcatalog.Catalog()
    decorated = catalog.register_model("mine")(TanhNet)

    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3), {"custom_model": "mine"}, catalog=catalog)

    assert decorated is TanhNet
    assert policy.framework == "torch"
    assert policy.act(TWO_OBSERVATIONS).dist_inputs.shape == (2, 3)  # 3 actions


def test_get_model_v2_takes_a_module_class():
    model = rlcatalog.ModelCatalog.get_model_v2(
        FOUR_FEATURES, Discrete(3), 3, {"custom_model": TanhNet}, "torch"
    )

    assert model.num_outputs == 3


def test_custom_model_and_another_model_are_an_error():
    with pytest.raises(ConfigError, match="are both given"):
        rlcatalog.build(FOUR_FEATURES, Discrete(3), {"custom_model": "fcnet"}, model=TanhNet)


def test_custom_model_and_model_may_be_the_same_class():
    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3), {"custom_model": TanhNet}, model=TanhNet)

    assert policy.model_name == "TanhNet"


@pytest.mark.parametrize(
    "model",
    [torch.optim.Adam, 3.0, torch.zeros(2)],
    ids=["class-of-an-optimizer", "number", "tensor"],
)
def test_model_of_another_kind_is_an_error(model):
    with pytest.raises(ModelContractError, match=r"or a torch.nn.Module or keras.Layer"):
        build_policy(model)


def test_built_model_is_not_a_plain_module():
    model = build_policy(TanhNet).model

    assert isinstance(model, TorchModelV2)
    with pytest.raises(ModelContractError, match="must be a registered name or a subclass"):
        build_policy(model)


def test_missing_package_for_plain_modules_is_named(monkeypatch):
    # As if rlcatalog-plain, which declares "torch: plain", were not installed.
    specs = dict(FrameworkSpec.table.specs)
    del specs["torch: plain"]
    monkeypatch.setattr(FrameworkSpec.table, "_specs", specs)

    with pytest.raises(MissingPluginError, match="is provided by rlcatalog-plain") as caught:
        build_policy(TanhNet)

    assert "a plain module as a model is provided" in str(caught.value)


# --- the trial pass, before anything is built around a module -------------------------------------


class ChangedOutput(nn.Module):
    """Returns what `change` makes of a layer's output, which has shape [B, 6]."""

    def __init__(self, change):
        super().__init__()
        self.layer = nn.Linear(4, 6)
        self.change = change

    def forward(self, obs):
        return self.change(self.layer(obs))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda x: x[:, None], r"found \w+ of shape \(2, 1, 6\)", id="3-axes"),
        pytest.param(lambda x: x[:, 0], r"found \w+ of shape \(2,\)", id="no-features"),
        pytest.param(lambda x: x.mean(0), r"found \w+ of shape \(6,\)", id="no-rows"),
        pytest.param(lambda x: x[:1], r"found \w+ of shape \(1, 6\)", id="1-row-for-2"),
        pytest.param(lambda x: x[:, :0], r"found \w+ of shape \(2, 0\)", id="0-features"),
        pytest.param(
            lambda x: (x > 0).long(), r"must return only floating-point features", id="integers"
        ),
        pytest.param(
            lambda x: (x, x),
            r"\(2, 6\) and .*no state: set use_lstm",
            id="pair",
        ),
        pytest.param(lambda x: (), r"number of features\), found nothing", id="empty-tuple"),
        pytest.param(lambda x: {"x": x}, r"found dict of shape \(\)", id="dict"),
        pytest.param(
            lambda x: x @ x,
            "raised RuntimeError: .* for a batch of",
            id="raises",
        ),
    ],
)
def test_module_with_other_outputs_is_an_error(change, message):
    with pytest.raises(ModelContractError, match=message):
        build_policy(ChangedOutput(change))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x: x, id="features-only"),
        pytest.param(lambda x: (x[:, :2], x[:, 0]), id="2-logits-for-3-actions"),
        pytest.param(lambda x: (x[:, :3], x[:, :2]), id="2-values"),
    ],
)
def test_module_with_num_outputs_must_return_a_pair(change):
    def make_net(space, num_outputs):
        return ChangedOutput(change)

    with pytest.raises(ModelContractError, match="because it") as caught:
        build_policy(make_net)

    assert "must return outputs of shape (batch size, 3) and values" in str(caught.value)


def test_module_with_seq_lens_is_an_error():
    class TakesSeqLens(TanhNet):
        def forward(self, obs, seq_lens=None):
            return self.layers(obs)

    with pytest.raises(NotServedError, match=r"takes seq_lens. .*use_lstm"):
        build_policy(TakesSeqLens)


class RecordsPasses(nn.Module):
    """Records mode, shape and gradients of each pass, draws a number, and changes its buffers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("passes", torch.zeros(()))
        self.modes = []
        self.shapes = []
        self.gradients = []

    def forward(self, obs):
        self.passes = self.passes + 1  # another tensor under the same name
        self.norm.running_mean.add_(1)
        self.modes.append("train" if self.training else "eval")
        self.shapes.append(tuple(obs.shape))
        self.gradients.append(torch.is_grad_enabled())
        return self.norm(self.layer(obs)) + 0 * torch.rand(1)


def run_trial_pass(module):
    # Without outputs nothing but the trial pass calls the module.
    num_outputs = None
    PlainModel.of(module)(FOUR_FEATURES, Discrete(3), num_outputs, {}, "net")


def test_trial_pass_is_one_of_two_rows_in_eval_mode():
    module = RecordsPasses()

    run_trial_pass(module)

    assert module.modes == ["eval"]
    assert module.shapes == [(2, 4)]
    assert module.gradients == [False]


def test_trial_pass_keeps_the_random_state():
    module = RecordsPasses()
    before = torch.get_rng_state()

    run_trial_pass(module)

    assert torch.equal(torch.get_rng_state(), before)


def test_trial_pass_keeps_the_buffers():
    module = RecordsPasses()
    passes = module.passes

    run_trial_pass(module)

    assert module.passes is passes
    assert float(passes) == 0.0
    assert not module.norm.running_mean.any()


def test_trial_pass_keeps_the_mode_of_each_layer():
    module = RecordsPasses()
    module.train()
    module.norm.eval()

    run_trial_pass(module)

    assert module.training
    assert module.layer.training
    assert not module.norm.training


def test_lazy_layers_of_policy_and_value_have_their_own_weights():
    def make_lazy_net():
        return nn.LazyLinear(5)

    policy = build_policy(make_lazy_net, {"vf_share_layers": False})

    weights = policy.model.get_weights()
    assert weights["module.weight"].shape == (5, 4)  # 4 inputs
    assert weights["value_module.weight"].shape == (5, 4)
    assert not np.array_equal(weights["module.weight"], weights["value_module.weight"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_module_receives_observations_in_its_precision(dtype):
    module = nn.Sequential(nn.Linear(4, 6)).to(dtype)
    input_dtypes = []
    module.register_forward_pre_hook(lambda _, inputs: input_dtypes.append(inputs[0].dtype))

    step = build_policy(module).act(TWO_OBSERVATIONS)

    assert step.dist_inputs.dtype == np.float32
    assert set(input_dtypes) == {dtype}


# --- instances and copies -------------------------------------------------------------------------


def test_instance_keeps_its_weights():
    module = nn.Linear(4, 6)
    weight = module.weight.detach().clone()

    policy = build_policy(module)

    assert policy.model.module is module
    assert torch.equal(module.weight, weight)


def test_instance_takes_no_arguments():
    with pytest.raises(ConfigError, match="which takes no arguments, but found") as caught:
        build_policy(nn.Sequential(nn.Linear(4, 6)), {"custom_model_config": {"width": 3}})

    message = str(caught.value)
    assert "Sequential is an instance, which takes no arguments, but found 'width'" in message


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_policy_is_on_the_device_of_an_instance(device):
    policy = build_policy(nn.Linear(4, 6, device=device))

    assert policy.device == device
    assert {weight.device.type for weight in policy.model.parameters()} == {device}


def test_frozen_weights_are_not_trained():
    module = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 5))
    module[0].requires_grad_(False)

    trained = build_policy(module).model.trainable_variables(as_dict=True)

    of_module = [name for name in trained if name.startswith("module")]
    assert of_module == ["module.1.weight", "module.1.bias"]


def test_make_model_copies_an_instance():
    module = nn.Linear(4, 6)
    policy = build_policy(module)

    other = policy.make_model()

    assert policy.model.module is module
    assert other.module is not module
    assert torch.equal(other.module.weight, module.weight)


def test_deepcopy_of_a_policy_has_its_own_module():
    policy = build_policy(nn.Linear(4, 6))
    before = act_greedily(policy)

    copied = copy.deepcopy(policy)
    np.testing.assert_array_equal(act_greedily(copied), before)
    copied.model.module.weight.data.zero_()

    np.testing.assert_array_equal(act_greedily(policy), before)
    # Without these weights both observations have the same features, and so the same outputs.
    first, second = act_greedily(copied)
    np.testing.assert_array_equal(first, second)


def test_compiled_module_has_the_names_of_the_original():
    module = nn.Linear(4, 6)
    compiled = build_policy(torch.compile(module, backend="eager"))
    original = build_policy(module)

    compiled.model.set_weights(original.model.get_weights())  # would reject other names

    assert compiled.model_name == "Linear"
    np.testing.assert_allclose(act_greedily(compiled), act_greedily(original), atol=1e-6)


# --- a separate value -----------------------------------------------------------------------------


def test_separate_value_has_its_own_module():
    policy = build_policy(TanhNet, {"vf_share_layers": False})
    before = policy.act(TWO_OBSERVATIONS, explore=False)

    with torch.no_grad():
        policy.model.module.layers[0].weight.zero_()

    after = policy.act(TWO_OBSERVATIONS, explore=False)
    assert not np.allclose(after.dist_inputs, before.dist_inputs)
    np.testing.assert_array_equal(after.value, before.value)


@pytest.mark.parametrize("memory", [{}, {"use_lstm": True}], ids=["no-memory", "lstm"])
def test_separate_value_of_an_instance_is_an_error(memory):
    with pytest.raises(ConfigError, match="the value needs a second module") as caught:
        build_policy(nn.Sequential(nn.Linear(4, 6)), {"vf_share_layers": False, **memory})

    assert "vf_share_layers=False: the value" in str(caught.value)


def test_instance_shares_its_layers_whatever_the_defaults():
    module = nn.Sequential(nn.Linear(4, 6))

    policy = rlcatalog.build(
        FOUR_FEATURES, Discrete(3), model=module, defaults={"vf_share_layers": False}
    )

    assert policy.config["vf_share_layers"] is True
    assert policy.model.module is module


# --- saving ---------------------------------------------------------------------------------------


def test_saved_class_is_loaded_with_its_code(tmp_path):
    policy = build_policy(TanhNet, {"custom_model_config": {"hidden": 5}})
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path, model=TanhNet)

    np.testing.assert_array_equal(act_greedily(loaded), act_greedily(policy))


def test_loading_an_unregistered_class_asks_for_its_code(tmp_path):
    build_policy(TanhNet).save(tmp_path)

    with pytest.raises(UnknownNameError, match=r"Pass its code: rlcatalog\.load\(") as caught:
        rlcatalog.load(tmp_path)

    assert ", model=TanhNet)." in str(caught.value)


def test_loading_with_another_class_is_an_error(tmp_path):
    build_policy(TanhNet).save(tmp_path)

    with pytest.raises(SavedPolicyError, match="belong to a different model") as caught:
        rlcatalog.load(tmp_path, model=LogitsAndValueNet)

    assert "Missing: ['module.logits.bias'" in str(caught.value)


def test_saved_module_is_loaded_by_its_registered_name(tmp_path):
    catalog = rlcatalog.Catalog()
    catalog.register_model("mine", nn.Sequential(nn.Linear(4, 6)))
    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3), model="mine", catalog=catalog)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path, catalog=catalog)

    np.testing.assert_array_equal(act_greedily(loaded), act_greedily(policy))


def test_loading_a_model_of_a_package_takes_no_class(tmp_path):
    rlcatalog.build(FOUR_FEATURES, Discrete(3)).save(tmp_path)

    with pytest.raises(ConfigError, match="this model comes from packages") as caught:
        rlcatalog.load(tmp_path, model=TanhNet)

    assert "comes from packages: rlcatalog-fcnet/fcnet" in str(caught.value)


@pytest.mark.parametrize(
    "model", [TanhNet, nn.Sequential(nn.Linear(4, 6))], ids=["class", "instance"]
)
def test_policy_of_a_registered_module_is_pickled(model):
    catalog = rlcatalog.Catalog()
    catalog.register_model("mine", model)
    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3), model="mine", catalog=catalog)

    unpickled = pickle.loads(pickle.dumps(policy))

    np.testing.assert_array_equal(act_greedily(unpickled), act_greedily(policy))
