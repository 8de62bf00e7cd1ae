"""`policy_kwargs` of Stable-Baselines3's own policies (`net_arch`, `activation_fn`,
`log_std_init`), translated to the model config.
"""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from gymnasium.spaces import Box, Dict, Discrete
from sb3_helpers import RandomEnv
from stable_baselines3 import A2C, PPO
from torch import nn

from rlcatalog.errors import ConfigError
from rlcatalog_sb3 import CatalogPolicy, for_sb3
from rlcatalog_sb3.policy_kwargs import ACTIVATIONS
from rlcatalog_torch import TorchModelV2

FIVE_NUMBERS = Box(-1, 1, (5,), np.float32)
IMAGE_42x42 = Box(0, 255, (42, 42, 3), np.uint8)
TWO_NUMBERS = Box(-1, 1, (2,), np.float32)


def five_numbers_env():
    """Return an environment with observations of five numbers and actions of two."""
    return RandomEnv(FIVE_NUMBERS, TWO_NUMBERS)


def make_model(policy=CatalogPolicy, *, env=None, algorithm=PPO, **policy_kwargs):
    """Return an algorithm; without an environment, for five numbers and actions of two."""
    return algorithm(
        policy,
        five_numbers_env() if env is None else env,
        n_steps=64,
        seed=0,
        device="cpu",
        policy_kwargs=policy_kwargs,
    )


# --- compared with Stable-Baselines3's own policies -----------------------------------------------


#: What the weights of a catalog model begin with, for each part of Stable-Baselines3's own net.
NAMES = {
    "actor": "hidden",
    "logits": "outputs.logits",
    "log_std": "outputs.free_log_std.log_std",
    "critic": "value_hidden",
    "value": "outputs.value",
}
#: The same for a model with a critic of its own.
NAMES_WITH_CRITIC = {
    "actor": "policy.hidden",
    "logits": "policy.outputs.logits",
    "log_std": "policy.outputs.free_log_std.log_std",
    "critic": "critic.hidden",
    "value": "value",
}


def copy_weights(own_policy, catalog_policy, names=NAMES):
    """Copy the weights of Stable-Baselines3's own policy to a `CatalogPolicy`, layer by layer."""
    layers = {
        names["logits"]: own_policy.action_net,
        names["value"]: own_policy.value_net,
    }
    networks = {
        names["actor"]: own_policy.mlp_extractor.policy_net,
        names["critic"]: own_policy.mlp_extractor.value_net,
    }
    for name, network in networks.items():
        linear_layers = [layer for layer in network if isinstance(layer, nn.Linear)]
        for index, layer in enumerate(linear_layers):
            layers[f"{name}.layers.{index}"] = layer
    weights = {}
    for name, layer in layers.items():
        weights[f"{name}.weight"] = layer.weight.detach().numpy()
        weights[f"{name}.bias"] = layer.bias.detach().numpy()
    # Only Stable-Baselines3's policies for Boxes have it.
    if hasattr(own_policy, "log_std"):
        weights[names["log_std"]] = own_policy.log_std.detach().numpy()
    catalog_policy.model.set_weights(weights)  # raises if names or shapes differ


def sample_batch(space, size):
    """Return samples of a space as tensors."""
    samples = [space.sample() for _ in range(size)]
    if not isinstance(space, Dict):
        return torch.as_tensor(np.stack(samples))
    return {
        key: torch.as_tensor(np.stack([sample[key] for sample in samples])) for key in space.spaces
    }


@pytest.mark.parametrize(
    ("observation_space", "action_space", "kwargs"),
    [
        pytest.param(
            FIVE_NUMBERS, TWO_NUMBERS, {"net_arch": [8, 6], "log_std_init": 0.0}, id="list"
        ),
        pytest.param(FIVE_NUMBERS, Discrete(3), {"net_arch": {"pi": [8], "vf": [8]}}, id="dict"),
        pytest.param(
            FIVE_NUMBERS,
            Discrete(3),
            {"net_arch": [{"pi": [7, 7], "vf": [7, 7]}]},
            id="dict in a list",
        ),
        pytest.param(FIVE_NUMBERS, Discrete(3), {"net_arch": []}, id="no layers"),
        pytest.param(
            Dict({"a": FIVE_NUMBERS, "b": Discrete(3)}),
            TWO_NUMBERS,
            {"net_arch": (8,), "activation_fn": nn.ELU, "log_std_init": 0},
            id="Dict observation",
        ),
        pytest.param(
            Discrete(4),
            Discrete(3),
            {"net_arch": [np.int64(8)], "activation_fn": nn.ReLU},
            id="width of NumPy",
        ),
    ],
)
# Stable-Baselines3 warns about a dict in a list.
@pytest.mark.filterwarnings("ignore:As shared layers in the mlp_extractor:UserWarning")
def test_translated_net_computes_the_outputs_of_the_own_net(
    observation_space, action_space, kwargs
):
    env = RandomEnv(observation_space, action_space)
    own_name = "MultiInputPolicy" if isinstance(observation_space, Dict) else "MlpPolicy"
    own_policy = make_model(own_name, env=env, **kwargs).policy
    catalog_policy = make_model(CatalogPolicy, env=env, **kwargs).policy
    copy_weights(own_policy, catalog_policy)
    obs = sample_batch(observation_space, size=20)
    actions = sample_batch(action_space, size=20)

    values, logp, entropy = catalog_policy.evaluate_actions(obs, actions)

    own_values, own_logp, own_entropy = own_policy.evaluate_actions(obs, actions)
    torch.testing.assert_close(values, own_values, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logp, own_logp, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(entropy, own_entropy, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("observation_space", "action_space", "kwargs"),
    [
        pytest.param(
            FIVE_NUMBERS,
            TWO_NUMBERS,
            {"net_arch": {"pi": [8], "vf": [6, 5]}, "log_std_init": 0.0},
            id="dict",
        ),
        pytest.param(
            FIVE_NUMBERS,
            Discrete(3),
            {"activation_fn": nn.ReLU, "net_arch": {"pi": [8, 7], "vf": [6]}},
            id="activation",
        ),
        pytest.param(FIVE_NUMBERS, Discrete(3), {"net_arch": {"pi": [8]}}, id="linear critic"),
        pytest.param(FIVE_NUMBERS, Discrete(3), {"net_arch": {"vf": (8,)}}, id="linear actor"),
        pytest.param(
            Dict({"a": FIVE_NUMBERS, "b": Discrete(3)}),
            TWO_NUMBERS,
            {"net_arch": {"pi": [8], "vf": [6]}, "activation_fn": nn.ELU},
            id="Dict observation",
        ),
    ],
)
def test_different_sides_compute_the_outputs_of_the_own_net(
    observation_space, action_space, kwargs
):
    env = RandomEnv(observation_space, action_space)
    own_name = "MultiInputPolicy" if isinstance(observation_space, Dict) else "MlpPolicy"
    own_policy = make_model(own_name, env=env, **kwargs).policy
    catalog_policy = make_model(CatalogPolicy, env=env, **kwargs).policy
    copy_weights(own_policy, catalog_policy, NAMES_WITH_CRITIC)
    obs = sample_batch(observation_space, size=20)
    actions = sample_batch(action_space, size=20)

    values, logp, entropy = catalog_policy.evaluate_actions(obs, actions)

    own_values, own_logp, own_entropy = own_policy.evaluate_actions(obs, actions)
    torch.testing.assert_close(values, own_values, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logp, own_logp, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(entropy, own_entropy, rtol=1e-5, atol=1e-6)


def dense_net(weights, names, activation):
    """Return a bare net of PyTorch with weights of a catalog model."""
    layers = []
    for name in names:
        weight = torch.from_numpy(weights[f"{name}.weight"])
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": torch.from_numpy(weights[f"{name}.bias"])})
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])  # no activation after the last layer


def test_different_sides_are_two_bare_nets():
    env = RandomEnv(FIVE_NUMBERS, Discrete(3))
    net_arch = {"pi": [8, 7], "vf": [6]}
    policy = make_model(env=env, net_arch=net_arch, activation_fn=nn.SiLU).policy
    weights = policy.model.get_weights()
    obs = torch.randn(20, 5)

    actor = ["policy.hidden.layers.0", "policy.hidden.layers.1", "policy.outputs.logits"]
    logits = dense_net(weights, actor, nn.SiLU)(obs)
    values = dense_net(weights, ["critic.hidden.layers.0", "value"], nn.SiLU)(obs)

    dist = policy.get_distribution(obs)
    expected_logp = torch.log_softmax(logits, dim=1)[:, 0]
    torch.testing.assert_close(dist.log_prob(torch.zeros(20)), expected_logp)
    torch.testing.assert_close(policy.predict_values(obs), values)


def test_a2c_translates_net_arch():
    model = make_model(algorithm=A2C, net_arch=[8])

    assert model.policy.catalog_policy.config["fcnet_hiddens"] == [8]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda cls: cls.__name__)
def test_translated_activation_is_the_same_function(activation):
    catalog_policy = make_model(activation_fn=activation, net_arch=[8]).policy
    own_policy = make_model("MlpPolicy", activation_fn=activation, net_arch=[8]).policy
    # Stable-Baselines3's net has a linear layer and an activation. Copy the layer's weights.
    own_layer, own_activation = own_policy.mlp_extractor.policy_net
    catalog_policy.model.hidden.layers[0].load_state_dict(own_layer.state_dict())
    obs = torch.randn(20, 5)

    with torch.no_grad():
        hidden = catalog_policy.model.hidden(obs)
        expected = own_activation(own_layer(obs))

    torch.testing.assert_close(hidden, expected)
    assert catalog_policy.catalog_policy.config["fcnet_activation"] == ACTIVATIONS[activation]


# --- ortho_init and log_std_init ------------------------------------------------------------------


def dense_layers(module):
    """Return the linear layers of a module, in order."""
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("kwargs", [{}, {"ortho_init": True}], ids=["default", "ortho_init"])
def test_layers_start_orthogonal_with_the_gains_of_the_own_net(kwargs):
    model = make_model(net_arch=[8, 6], **kwargs).policy.model
    own_policy = make_model("MlpPolicy", net_arch=[8, 6], **kwargs).policy

    layers = [*model.hidden.layers, *model.value_hidden.layers]
    layers += [model.outputs.logits, model.outputs.value]
    own_layers = dense_layers(own_policy.mlp_extractor)
    own_layers += [own_policy.action_net, own_policy.value_net]

    for layer, own_layer in zip(layers, own_layers, strict=True):
        # The weights are random, but orthogonal matrices of the same scale have the same
        # singular values.
        singular_values = torch.linalg.svdvals(layer.weight)
        own_singular_values = torch.linalg.svdvals(own_layer.weight)
        torch.testing.assert_close(singular_values, own_singular_values)
        assert not layer.bias.any()
        assert not own_layer.bias.any()


def test_ortho_init_false_is_the_start_of_pytorch():
    policy = make_model(net_arch=[8], ortho_init=False).policy

    assert policy.catalog_policy.config["init"] == "fan_in_uniform"
    # PyTorch's biases are not zero.
    assert all(layer.bias.any() for layer in dense_layers(policy.model))


def test_ortho_init_that_contradicts_the_config_is_an_error():
    with pytest.raises(ConfigError, match="ortho_init=True means init='orthogonal'"):
        make_model(ortho_init=True, model_config={"init": "normc"})


def test_ortho_init_of_another_type_is_rejected():
    with pytest.raises(ConfigError, match="ortho_init=1: expected True or False"):
        make_model(ortho_init=1)


def test_log_std_init_other_than_zero_is_rejected():
    with pytest.raises(ConfigError, match="log_std_init=-2") as caught:
        make_model(log_std_init=-2)

    message = str(caught.value)
    assert "'outputs.free_log_std.log_std'" in message
    assert "get_weights" in message


def test_log_std_is_set_by_its_weight():
    # The error about log_std_init advises to set this weight.
    policy = make_model(model_config={"free_log_std": True}).policy
    weights = policy.model.get_weights()
    weights["outputs.free_log_std.log_std"] = np.array([-2.0, -2.0], np.float32)
    policy.model.set_weights(weights)

    std = policy.get_distribution(torch.zeros(1, 5)).distribution.std

    own_policy = make_model("MlpPolicy", log_std_init=-2).policy
    own_std = own_policy.get_distribution(torch.zeros(1, 5)).distribution.stddev
    torch.testing.assert_close(torch.as_tensor(std), own_std)


# --- rejected arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"net_arch": {"pi": [8], "vf": [9], "qf": [9]}}, "net_arch=.*expected widths"),
        ({"net_arch": {"pi": [8], "vf": 9}}, "net_arch=.*expected widths"),
        ({"net_arch": [64, {"pi": [8], "vf": [8]}]}, r"expected widths, as in \[64, 64\]"),
        ({"net_arch": 64}, "net_arch=64: expected widths"),
        ({"net_arch": [0]}, "expected widths"),
        (
            {"activation_fn": nn.Hardtanh},
            "Hardtanh has no name.*fcnet_activation",
        ),
        ({"activation_fn": "relu"}, "activation_fn='relu' has no name"),
        ({"log_std_init": False}, "log_std_init=False: in the catalog"),
    ],
    ids=str,
)
def test_values_without_translation_are_rejected(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_model(**kwargs)


@pytest.mark.parametrize(
    ("kwargs", "config", "message"),
    [
        ({"log_std_init": 0.0}, {"custom_action_dist": "beta"}, "beta.*free_log_std"),
        ({"log_std_init": 0.0}, {"free_log_std": False}, "free_log_std=False"),
        ({"net_arch": [8]}, {"custom_model": "gtrxl"}, "the model gtrxl does not read"),
        ({"net_arch": [8]}, {"fcnet_hiddens": [9]}, r"net_arch=\[8\] .*fcnet_hiddens=\[9\]"),
        ({"net_arch": [8]}, {"vf_share_layers": True}, "net_arch=.*vf_share_layers=True"),
        (
            {"net_arch": {"pi": [8], "vf": [9]}},
            {"vf_share_layers": True},
            "net_arch=.*vf_share_layers=True",
        ),
        (
            {"net_arch": {"pi": [8], "vf": [9]}},
            {"critic": {"fcnet_hiddens": [7]}},
            r"critic=\{.fcnet_hiddens.: \[9\]\}.*\[7\]",
        ),
        ({"net_arch": [8]}, {"critic": {"fcnet_hiddens": [7]}}, "means critic=.*has critic="),
        (
            {"net_arch": [8]},
            {"critic": {"custom_model": "gtrxl"}},
            "critic: the model gtrxl does not read",
        ),
        (
            {"activation_fn": nn.Tanh},
            {"critic": {"fcnet_activation": "relu"}},
            "fn=Tanh means critic=",
        ),
        (
            {"activation_fn": nn.Tanh},
            {"fcnet_activation": "ReLU"},
            "fn=Tanh .*fcnet_activation='ReLU'",
        ),
    ],
    ids=str,
)
def test_arguments_that_contradict_the_config_are_rejected(kwargs, config, message):
    with pytest.raises(ConfigError, match=message):
        make_model(**kwargs, model_config=config)


@pytest.mark.parametrize(
    ("observation_space", "kwargs", "message"),
    [
        pytest.param(
            IMAGE_42x42,
            {"net_arch": [8]},
            "contains images.*post_fcnet_hiddens",
            id="net_arch, image",
        ),
        pytest.param(
            IMAGE_42x42,
            {"net_arch": {"pi": [8], "vf": [9]}},
            r"critic=\{.post_fcnet_hiddens.: \[9\]\}",
            id="different sides, image",
        ),
        pytest.param(
            Dict({"a": FIVE_NUMBERS, "b": IMAGE_42x42}),
            {"net_arch": {"pi": [8], "vf": [9]}},
            r"contains images.*critic=",
            id="different sides, Dict with an image",
        ),
        pytest.param(
            IMAGE_42x42,
            {"activation_fn": nn.ReLU},
            "activation_fn=ReLU.*conv_activation",
            id="activation_fn, image",
        ),
        pytest.param(
            Dict({"a": FIVE_NUMBERS, "b": IMAGE_42x42}),
            {"net_arch": [8]},
            "the observation contains images",
            id="net_arch, Dict with an image",
        ),
    ],
)
def test_layers_for_images_are_rejected(observation_space, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_model(env=RandomEnv(observation_space, TWO_NUMBERS), **kwargs)


def test_log_std_init_of_discrete_actions_is_rejected():
    with pytest.raises(ConfigError, match=r"log_std_init=0\.0: categorical"):
        make_model(env=RandomEnv(FIVE_NUMBERS, Discrete(2)), log_std_init=0.0)


def test_config_passed_as_model_is_rejected():
    with pytest.raises(ConfigError) as caught:
        make_model(model={"fcnet_hiddens": [8]})

    assert "as policy_kwargs={'model_config': {'fcnet_hiddens': [8]}}" in str(caught.value)


# --- together with a model config -----------------------------------------------------------------


def test_model_config_is_accepted_alone():
    policy = make_model(model_config={"fcnet_hiddens": [8]}).policy

    assert policy.catalog_policy.config["fcnet_hiddens"] == [8]


def test_arguments_may_repeat_a_flattened_environment():
    env = for_sb3(five_numbers_env(), {"fcnet_hiddens": [8], "fcnet_activation": "relu"})

    policy = make_model(env=env, net_arch=[8], activation_fn=nn.ReLU).policy

    config = policy.catalog_policy.config
    assert config["fcnet_hiddens"] == [8]
    assert config["fcnet_activation"] == "relu"
    assert config["vf_share_layers"] is False


def test_different_sides_join_a_critic_of_the_config():
    config = {"critic": {"post_fcnet_hiddens": [5]}}
    net_arch = {"pi": [8], "vf": [9]}

    policy = make_model(model_config=config, net_arch=net_arch, activation_fn=nn.ReLU).policy

    critic = {"fcnet_hiddens": [9], "fcnet_activation": "relu", "post_fcnet_hiddens": [5]}
    assert policy.catalog_policy.config["fcnet_hiddens"] == [8]
    assert policy.catalog_policy.config["critic"] == critic
    assert config == {"critic": {"post_fcnet_hiddens": [5]}}  # unchanged


def test_equal_sides_set_the_layers_of_a_critic():
    policy = make_model(model_config={"critic": {}}, net_arch=[8]).policy

    assert policy.catalog_policy.config["critic"] == {"fcnet_hiddens": [8]}


def test_different_sides_serve_a_flattened_environment():
    env = for_sb3(five_numbers_env(), {"fcnet_hiddens": [8]})

    policy = make_model(env=env, net_arch={"pi": [8], "vf": [9]}).policy

    assert policy.catalog_policy.config["critic"] == {"fcnet_hiddens": [9]}


def test_arguments_may_not_contradict_a_flattened_environment():
    env = for_sb3(five_numbers_env(), {"fcnet_hiddens": [8], "fcnet_activation": "relu"})

    with pytest.raises(ConfigError, match=r"net_arch=\[9\] means fcnet_hiddens=\[9\]") as caught:
        make_model(env=env, net_arch=[9])

    assert "fcnet_hiddens=[8]" in str(caught.value)


@pytest.mark.parametrize("activation", ["Tanh", "tanh", nn.Tanh])
def test_arguments_may_repeat_the_model_config(activation):
    config = {
        "fcnet_activation": activation,
        "fcnet_hiddens": [8],
        "vf_share_layers": False,
        "free_log_std": True,
    }

    policy = make_model(
        model_config=config, net_arch=[8], activation_fn=nn.Tanh, log_std_init=0.0
    ).policy

    for key, value in config.items():
        assert policy.catalog_policy.config[key] == value


class RemembersHiddens(TorchModelV2):
    """A user's model, which remembers `fcnet_hiddens`."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.net = nn.Linear(obs_space.shape[0], num_outputs)
        self.hiddens = model_config["fcnet_hiddens"]

    def forward(self, input_dict, state, seq_lens):
        return self.net(input_dict["obs_flat"]), state

    def value_function(self):
        return self.net.weight.sum().expand(1)


def test_custom_model_gets_translated_keys():
    policy = make_model(model_config={"custom_model": RemembersHiddens}, net_arch=[9]).policy

    assert policy.model.hiddens == [9]


def test_activation_without_name_is_set_in_the_model_config():
    config = {"fcnet_activation": nn.Hardtanh, "fcnet_hiddens": [8]}

    policy = make_model(model_config=config).policy

    outputs = policy.model.hidden(torch.full((1, 5), 1e3))
    assert outputs.abs().max() <= 1  # Hardtanh cuts off at -1 and 1


# --- with sb3-contrib -----------------------------------------------------------------------------


@pytest.fixture
def sb3_contrib():
    return pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")


def test_maskable_policy_translates_net_arch(sb3_contrib):
    env = RandomEnv(FIVE_NUMBERS, Discrete(3))

    model = make_model(
        "CatalogMaskablePolicy", env=env, algorithm=sb3_contrib.MaskablePPO, net_arch=[8]
    )

    assert model.policy.catalog_policy.config["fcnet_hiddens"] == [8]


def test_recurrent_policy_translates_log_std_init(sb3_contrib):
    model = make_model(
        "CatalogRecurrentPolicy",
        algorithm=sb3_contrib.RecurrentPPO,
        log_std_init=0.0,
        model_config={"use_lstm": True, "lstm_cell_size": 4},
    )

    assert "outputs.free_log_std.log_std" in model.policy.model.get_weights()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"net_arch": {"pi": [8], "vf": [9]}}, r"critic.: \{.use_lstm.: True"),
        ({"lstm_hidden_size": 8}, "'lstm_hidden_size': .*lstm_cell_size"),
    ],
    ids=str,
)
def test_recurrent_policy_rejects_arguments_without_a_key(sb3_contrib, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_model(
            "CatalogRecurrentPolicy",
            algorithm=sb3_contrib.RecurrentPPO,
            model_config={"use_lstm": True, "lstm_cell_size": 4},
            **kwargs,
        )


@pytest.mark.parametrize(
    ("kwargs", "key"),
    [
        pytest.param({"net_arch": [8]}, "fcnet_hiddens", id="net_arch"),
        pytest.param({"activation_fn": nn.ReLU}, "fcnet_activation", id="activation_fn"),
    ],
)
def test_layers_before_the_memory_are_not_those_of_the_arguments(sb3_contrib, kwargs, key):
    config = {"use_lstm": True, "lstm_cell_size": 4, "memory_first": False}

    with pytest.raises(ConfigError, match=f"after the memory.*Set {key}"):
        make_model(
            "CatalogRecurrentPolicy",
            algorithm=sb3_contrib.RecurrentPPO,
            model_config=config,
            **kwargs,
        )


# --- saving ---------------------------------------------------------------------------------------


@pytest.fixture(params=[[8], [9]], ids=["equal sides", "different sides"])
def critic_layers(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["own spaces", "flattened"])
def model_with_keywords(request, critic_layers):
    """PPO, trained for a rollout, whose policy was built with translated arguments."""
    env = five_numbers_env()
    if request.param:
        env = for_sb3(env, {"gaussian_log_std_max": 1.0})
    model = make_model(
        env=env, net_arch={"pi": [8], "vf": critic_layers}, activation_fn=nn.ELU, log_std_init=0.0
    )
    return model.learn(64)


def assert_same_policy(policy, expected):
    """Compare actions and configs of two policies."""
    obs = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    actions, _ = policy.predict(obs, deterministic=True)
    expected_actions, _ = expected.predict(obs, deterministic=True)
    np.testing.assert_array_equal(actions, expected_actions)
    assert dict(policy.catalog_policy.config) == dict(expected.catalog_policy.config)


def test_saved_algorithm_has_translated_keys(model_with_keywords, tmp_path):
    model_with_keywords.save(tmp_path / "model.zip")

    loaded = PPO.load(tmp_path / "model.zip", device="cpu")

    assert_same_policy(loaded.policy, model_with_keywords.policy)


def test_saved_policy_has_translated_keys(model_with_keywords, tmp_path):
    model_with_keywords.policy.save(tmp_path / "policy.pt")

    loaded = CatalogPolicy.load(tmp_path / "policy.pt", device="cpu")

    assert_same_policy(loaded, model_with_keywords.policy)
