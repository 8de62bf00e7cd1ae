"""Plain nn.Modules as models: how they are built, tried, trained, copied and saved."""

from __future__ import annotations

import copy
import functools
import pickle

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, Tuple
from torch import nn

import rlcatalog
from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    ModelContractError,
    NotServedError,
    SavedPolicyError,
    UnknownNameError,
    UnreadKeysWarning,
)
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = Box(-1, 1, (4,), np.float32)
ROWS = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


class Net(nn.Module):
    """A layer of a width that is asked for."""

    def __init__(self, space, hidden=8):
        super().__init__()
        self.space = space
        self.layers = nn.Sequential(nn.Linear(space.shape[0], hidden), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


class Pair(nn.Module):
    """Gives logits and value itself."""

    def __init__(self, space, num_outputs):
        super().__init__()
        self.logits, self.value = nn.Linear(4, num_outputs), nn.Linear(4, 1)

    def forward(self, obs):
        return self.logits(obs), self.value(obs)


def build(model, config=None, action=None):
    return rlcatalog.build(OBS, action or Discrete(3), config, "torch", model=model)


def linear(weights, x, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


# --- building -------------------------------------------------------------------------------------


def test_a_class_gives_features_and_rlcatalog_adds_logits_and_value():
    policy = build(Net)
    step, weights = policy.act(ROWS), policy.model.get_weights()
    features = np.tanh(linear(weights, ROWS, "module.layers.0"))
    np.testing.assert_allclose(
        step.dist_inputs, linear(weights, features, "outputs.logits"), atol=1e-6
    )
    np.testing.assert_allclose(
        step.value, linear(weights, features, "outputs.value")[:, 0], atol=1e-6
    )
    scored = policy.evaluate({"obs": policy.preprocess(ROWS), "raw_action": step.raw_action})
    np.testing.assert_allclose(scored.logp.detach(), step.logp, atol=1e-6)


def test_a_class_is_called_with_the_space_and_its_arguments():
    module = build(Net, {"custom_model_config": {"hidden": 5}}).model.module
    assert (module.space, module.layers[0].out_features) == (OBS, 5)


def bare():
    return nn.Linear(4, 6)


def with_default(width=7):
    return nn.Linear(4, width)


def with_optional_space(space=None):
    return nn.Linear(space.shape[0], 9)


def by_keyword(*, width):
    return nn.Linear(4, width)


@pytest.mark.parametrize(
    ("factory", "options", "width"),
    [
        (bare, {}, 6),
        (with_default, {}, 7),
        (with_default, {"width": 3}, 3),
        (with_optional_space, {}, 9),
        (by_keyword, {"width": 2}, 2),
        (lambda space: nn.Linear(space.shape[0], 5), {}, 5),
        (functools.partial(with_default, width=4), {}, 4),
        (functools.partial(Net, hidden=11), {}, 11),
    ],
)
def test_a_factory_is_called_with_what_it_takes(factory, options, width):
    policy = build(factory, {"custom_model_config": options})
    assert policy.model.get_weights()["outputs.logits.weight"].shape == (3, width)


def test_an_argument_that_is_misspelt_or_missing_is_an_error():
    with pytest.raises(
        ConfigError, match=r"does not fit Net\(space, hidden=8\): .*'hidde'. Did you mean 'hidden'"
    ):
        build(Net, {"custom_model_config": {"hidde": 5}})
    with pytest.raises(
        ConfigError, match=r"does not fit by_keyword\(\*, width\): missing a required .*'width'"
    ):
        build(by_keyword)


def test_what_a_constructor_raises_is_told_with_the_call():
    def broken(space):
        raise KeyError("size")

    with pytest.raises(
        ModelContractError, match=r"broken\(Box\(4,\) float32\) raised KeyError: 'size'"
    ):
        build(broken)


def test_a_module_that_takes_num_outputs_stands_alone():
    policy = build(Pair)
    step, weights = policy.act(ROWS), policy.model.get_weights()
    np.testing.assert_allclose(step.dist_inputs, linear(weights, ROWS, "module.logits"), atol=1e-6)
    np.testing.assert_allclose(step.value, linear(weights, ROWS, "module.value")[:, 0], atol=1e-6)
    for config in ({"use_lstm": True}, {"use_attention": True}):
        with pytest.raises(
            NotServedError, match="takes num_outputs, so it returns logits and value itself"
        ):
            build(Pair, config)
    for config in ({"vf_share_layers": False}, {"post_fcnet_hiddens": [4]}, {"free_log_std": True}):
        with pytest.raises(
            ConfigError, match=f"{next(iter(config))}=.* has no effect: Pair takes num_outputs"
        ):
            build(Pair, config, Box(-1, 1, (2,)))


def test_the_layers_that_the_config_asks_for_follow_the_features():
    config = {"post_fcnet_hiddens": [5], "post_fcnet_activation": "tanh"}
    policy = build(Net, config)
    step, weights = policy.act(ROWS), policy.model.get_weights()
    x = np.tanh(
        linear(weights, np.tanh(linear(weights, ROWS, "module.layers.0")), "hidden.layers.0")
    )
    np.testing.assert_allclose(step.dist_inputs, linear(weights, x, "outputs.logits"), atol=1e-6)


def test_keys_that_no_plain_module_reads_are_reported():
    with pytest.warns(UnreadKeysWarning, match="fcnet_hiddens"):
        build(Net, {"fcnet_hiddens": [8]})


@pytest.mark.parametrize("form", ["class", "instance", "registered", "decorated", "config"])
def test_it_stands_wherever_a_model_class_may(form):
    catalog = rlcatalog.Catalog()
    config, model = {}, None
    if form == "registered":
        catalog.register_model("mine", Net)
        config = {"custom_model": "mine"}
    elif form == "decorated":
        assert catalog.register_model("mine")(Net) is Net
        model = "mine"
    elif form == "config":
        config = {"custom_model": Net}
    else:
        model = Net if form == "class" else Net(OBS)
    policy = rlcatalog.build(OBS, Discrete(3), config, model=model, catalog=catalog)
    assert policy.framework == "torch"
    assert policy.act(ROWS).dist_inputs.shape == (2, 3)
    assert (
        rlcatalog.ModelCatalog.get_model_v2(
            OBS, Discrete(3), 3, {"custom_model": Net}, "torch"
        ).num_outputs
        == 3
    )


def test_two_different_models_are_an_error():
    with pytest.raises(ConfigError, match="are both given"):
        rlcatalog.build(OBS, Discrete(3), {"custom_model": "fcnet"}, model=Net)
    assert rlcatalog.build(OBS, Discrete(3), {"custom_model": Net}, model=Net).model_name == "Net"


@pytest.mark.parametrize("value", [torch.optim.Adam, 3.0, torch.zeros(2)])
def test_what_is_no_module_is_refused(value):
    with pytest.raises(ModelContractError, match=r"or a torch.nn.Module or keras.Layer"):
        build(value)


def test_the_package_that_makes_models_of_modules_is_named_where_it_is_missing(monkeypatch):
    from rlcatalog import provided

    table = {
        name: spec
        for name, spec in provided.declarations["framework"].items()
        if name != "torch: plain"
    }
    monkeypatch.setitem(provided.declarations, "framework", table)
    with pytest.raises(
        MissingPluginError, match="a plain module as a model is provided by rlcatalog-fcnet"
    ):
        build(Net)


def test_a_model_that_is_built_is_no_plain_module():
    model = build(Net).model
    assert isinstance(model, TorchModelV2)
    with pytest.raises(ModelContractError, match="must be a registered name or a subclass of"):
        build(model)


# --- one pass before anything is built around it --------------------------------------------------


class Returns(nn.Module):
    """Returns what a function makes of a layer's output."""

    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Linear(4, 6), change

    def forward(self, obs):
        return self.change(self.layer(obs))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:, None], r"features \[B, F\], found \w+ of shape \(2, 1, 6\)"),
        (lambda x: x[:, 0], r"found \w+ of shape \(2,\)"),
        (lambda x: x.mean(0), r"found \w+ of shape \(6,\)"),
        (lambda x: x[:1], r"found \w+ of shape \(1, 6\)"),
        (lambda x: x[:, :0], r"found \w+ of shape \(2, 0\)"),
        (lambda x: (x > 0).long(), r"must return only floating-point features"),
        (
            lambda x: (x, x),
            r"of shape \(2, 6\) and \w+ of shape \(2, 6\).*no state: set use_lstm"
            r" .*RecurrentNetwork",
        ),
        (lambda x: {"x": x}, r"found dict of shape \(\)"),
        (lambda x: x @ x, r"raised RuntimeError: .* for a batch of two observations of Box"),
    ],
)
def test_other_outputs_are_an_error_with_the_shapes(change, words):
    with pytest.raises(ModelContractError, match=words):
        build(Returns(change))


@pytest.mark.parametrize(
    "change", [lambda x: x, lambda x: (x[:, :2], x[:, 0]), lambda x: (x[:, :3], x[:, :2])]
)
def test_a_module_that_takes_num_outputs_returns_a_pair(change):
    def net(space, num_outputs):
        return Returns(change)

    with pytest.raises(
        ModelContractError, match=r"must return \(\[B, 3\], \[B\] or \[B, 1\]\), because it"
    ):
        build(net)


def test_a_forward_with_seq_lens_is_refused():
    class Sequential(Net):
        def forward(self, obs, seq_lens=None):
            return self.layers(obs)

    with pytest.raises(NotServedError, match=r"its forward method takes seq_lens. .*use_lstm"):
        build(Sequential)


class Watched(nn.Module):
    """Counts its passes, draws, and notes the mode and the batch."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.register_buffer("passes", torch.zeros(()))
        self.modes, self.shapes, self.grads = [], [], []

    def forward(self, obs):
        self.passes = self.passes + 1  # another tensor under the same name
        self.norm.running_mean.add_(1)
        self.modes.append(self.training)
        self.shapes.append(tuple(obs.shape))
        self.grads.append(torch.is_grad_enabled())
        return self.norm(self.layer(obs)) + 0 * torch.rand(1)


def test_the_pass_leaves_random_state_buffers_and_mode_as_they_were():
    module = Watched()
    module.train()
    module.norm.eval()
    passes, random = module.passes, torch.get_rng_state()
    from rlcatalog_fcnet.torch import PlainModel

    PlainModel.of(module)(OBS, Discrete(3), None, {}, "tried")
    assert torch.equal(torch.get_rng_state(), random)
    assert (module.modes, module.shapes, module.grads) == ([False], [(2, 4)], [False])
    assert module.passes is passes
    assert float(passes) == 0.0
    assert not module.norm.running_mean.any()
    assert (module.training, module.layer.training, module.norm.training) == (True, True, False)


def test_lazy_layers_are_initialised_by_the_pass_each_with_weights_of_its_own():
    policy = build(lambda: nn.Sequential(nn.LazyLinear(5), nn.Tanh()), {"vf_share_layers": False})
    weights = policy.model.get_weights()
    assert weights["module.0.weight"].shape == weights["value_module.0.weight"].shape == (5, 4)
    assert not np.array_equal(weights["module.0.weight"], weights["value_module.0.weight"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_pass_and_acting_are_in_the_modules_precision(dtype):
    seen = []
    module = nn.Sequential(nn.Linear(4, 6)).to(dtype)
    module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    policy = build(module)
    assert policy.act(ROWS).dist_inputs.dtype == np.float32
    assert set(seen) == {dtype}


# --- whose it is ----------------------------------------------------------------------------------


def test_an_instance_is_used_and_not_initialised_again():
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    torch.manual_seed(5)
    policy = build(module)
    assert policy.model.module is module
    assert all(torch.equal(weight, before[name]) for name, weight in module.state_dict().items())
    with pytest.raises(
        ConfigError, match="Sequential is an instance, which takes no arguments, but found 'width'"
    ):
        build(module, {"custom_model_config": {"width": 3}})


def test_the_policy_goes_where_an_instance_is():
    policy = build(nn.Linear(4, 6, device="meta"))
    assert (policy.device, {p.device.type for p in policy.model.parameters()}) == ("meta", {"meta"})
    assert build(nn.Linear(4, 6)).device == "cpu"


def test_frozen_weights_are_not_trained():
    module = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 5))
    module[0].requires_grad_(False)
    names = build(module).model.trainable_variables(as_dict=True)
    assert [name for name in names if name.startswith("module")] == [
        "module.1.weight",
        "module.1.bias",
    ]


@pytest.mark.parametrize("copied", ["deepcopy", "make_model"])
def test_a_second_model_of_an_instance_is_a_deep_copy(copied):
    module = nn.Sequential(nn.Linear(4, 6))
    policy = build(module)
    other = copy.deepcopy(policy).model if copied == "deepcopy" else policy.make_model()
    assert other.module is not module
    assert torch.equal(other.module[0].weight, module[0].weight)
    with torch.no_grad():
        other.module[0].weight.zero_()
    assert module[0].weight.any()
    assert build(module).model.module is module


def test_a_deep_copy_of_the_model_stands_for_itself():
    model = build(nn.Sequential(nn.Linear(4, 6))).model
    twin = copy.deepcopy(model)
    twin.module[0].weight.data.zero_()
    assert model.module[0].weight.any()
    outputs, _ = twin({"obs": torch.from_numpy(ROWS)})
    torch.testing.assert_close(outputs[0], outputs[1])  # of features without the observation


def test_compiled_modules_keep_their_weights_names():
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    compiled = torch.compile(module, backend="eager")
    policy, plain = build(compiled), build(module)
    assert policy.model.get_weights().keys() == plain.model.get_weights().keys()
    assert policy.model_name == "Sequential"
    policy.model.set_weights(plain.model.get_weights())
    np.testing.assert_allclose(policy.act(ROWS).dist_inputs, plain.act(ROWS).dist_inputs, atol=1e-6)


# --- a separate value -----------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [{}, {"use_lstm": True, "lstm_cell_size": 4}])
def test_a_class_is_built_twice_for_a_value_of_its_own(memory):
    policy = build(Net, {"vf_share_layers": False, **memory})
    step = policy.act(ROWS)
    policy.evaluate({"obs": ROWS, "raw_action": step.raw_action}).value.sum().backward()
    moved = {
        name for name, p in policy.model.named_parameters() if p.grad is not None and p.grad.any()
    }
    first = "trunk.module.layers.0.weight" if memory else "module.layers.0.weight"
    second = (
        "value_trunk.trunk.module.layers.0.weight" if memory else "value_module.layers.0.weight"
    )
    assert not any(name.endswith(first) and "value" not in name for name in moved)
    assert any(name.endswith(second.removeprefix("value_trunk.trunk.")) for name in moved)


def test_an_instance_shares_and_an_explicit_false_is_an_error():
    module = nn.Sequential(nn.Linear(4, 6))
    for config in ({}, {"use_lstm": True}):
        with pytest.raises(
            ConfigError, match="vf_share_layers=False: the value needs a second module"
        ):
            build(module, {"vf_share_layers": False, **config})
    spaces = {"observation_space": OBS, "action_space": Discrete(3)}
    policy = rlcatalog.build(*spaces.values(), model=module, defaults={"vf_share_layers": False})
    assert policy.config["vf_share_layers"] is True
    assert policy.model.module is module


# --- saving ---------------------------------------------------------------------------------------


def test_an_unregistered_class_is_saved_by_name_and_loaded_with_its_code(tmp_path):
    policy = build(Net, {"custom_model_config": {"hidden": 5}})
    policy.save(tmp_path)
    with pytest.raises(
        UnknownNameError, match=r"Pass its code: rlcatalog\.load\(.*, model=Net\)\."
    ):
        rlcatalog.load(tmp_path)
    loaded = rlcatalog.load(tmp_path, model=Net)
    np.testing.assert_array_equal(loaded.act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs)


def test_the_weights_of_another_module_are_refused(tmp_path):
    build(Net).save(tmp_path)
    with pytest.raises(
        SavedPolicyError, match=r"belong to a different model. Missing: \['module.logits.bias'"
    ):
        rlcatalog.load(tmp_path, model=Pair)


@pytest.mark.parametrize(
    "config", [{}, {"use_lstm": True}, {"observation_filter": "MeanStdFilter"}]
)
def test_an_instance_is_saved_and_loaded_into_another(tmp_path, config):
    policy = build(nn.Sequential(nn.Linear(4, 6)), config)
    policy.save(tmp_path)
    other = nn.Sequential(nn.Linear(4, 6))
    loaded = rlcatalog.load(tmp_path, model=other)
    np.testing.assert_array_equal(loaded.act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs)


def test_a_registered_one_is_loaded_by_its_name(tmp_path):
    catalog = rlcatalog.Catalog()
    catalog.register_model("mine", nn.Sequential(nn.Linear(4, 6)))
    policy = rlcatalog.build(OBS, Discrete(3), model="mine", catalog=catalog)
    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path, catalog=catalog)
    np.testing.assert_array_equal(loaded.act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs)


def test_model_is_refused_for_a_saved_policy_of_packages(tmp_path):
    rlcatalog.build(OBS, Discrete(3)).save(tmp_path)
    with pytest.raises(ConfigError, match="this model comes from packages: rlcatalog-fcnet/fcnet"):
        rlcatalog.load(tmp_path, model=Net)


def test_it_acts_in_an_environment():
    env = gymnasium.make("CartPole-v1")
    policy = rlcatalog.build(env=env, model=lambda space: nn.Linear(space.shape[0], 3))
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(policy.act(obs[None]).action[0])


@pytest.mark.parametrize("form", ["class", "instance"])
def test_a_policy_of_a_registered_one_is_pickled(form):
    catalog = rlcatalog.Catalog()
    catalog.register_model("mine", Net if form == "class" else nn.Sequential(nn.Linear(4, 6)))
    policy = rlcatalog.build(OBS, Discrete(3), model="mine", catalog=catalog)
    again = pickle.loads(pickle.dumps(policy))
    np.testing.assert_array_equal(again.act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs)


@pytest.mark.parametrize(
    "config", [{"use_autoregressive": True}, {"use_autoregressive": True, "use_lstm": True}]
)
def test_an_autoregressive_head_is_built_on_its_features(config):
    policy = build(Net, config, Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)]))
    step = policy.act(ROWS)
    scored = policy.evaluate({"obs": ROWS, "raw_action": step.raw_action})
    np.testing.assert_allclose(scored.logp.detach(), step.logp, atol=1e-5)
    assert any("module.layers.0.weight" in name for name in policy.model.get_weights())
