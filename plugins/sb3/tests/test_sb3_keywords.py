"""`policy_kwargs` of Stable-Baselines3's own policies give the net they give there, or are refused
by name.
"""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from gymnasium.spaces import Box, Dict, Discrete
from stable_baselines3 import A2C, PPO
from torch import nn

import rlcatalog
from rlcatalog.errors import ConfigError
from rlcatalog_sb3 import CatalogPolicy, for_sb3
from rlcatalog_sb3.policy_kwargs import ACTIVATIONS
from rlcatalog_torch import TorchModelV2

VECTOR, IMAGE, TWO = (
    Box(-1, 1, (5,), np.float32),
    Box(0, 255, (42, 42, 3), np.uint8),
    Box(-1, 1, (2,), np.float32),
)
MIXED = Dict({"a": VECTOR, "b": Discrete(3)})


class Seen(gym.Env):
    """Shows observations of a space, and takes any action."""

    def __init__(self, observation_space=VECTOR, action_space=TWO):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def made(policy=CatalogPolicy, env=None, algorithm=PPO, **kwargs):
    return algorithm(policy, env or Seen(), n_steps=64, seed=0, device="cpu", policy_kwargs=kwargs)


def test_a_dictionary_as_a_model_is_told_where_config_keys_go():
    with pytest.raises(
        ConfigError, match=r"as policy_kwargs=\{'model_config': \{'fcnet_hiddens': \[8\]\}\}"
    ):
        made(model={"fcnet_hiddens": [8]})
    made(model_config={"fcnet_hiddens": [8]})


# --- the truth: Stable-Baselines3's own policy ----------------------------------------------------


def copied(theirs, ours):
    """Write the weights of their policy into ours, layer by layer."""
    weights = {}
    for name, place in (
        ("hidden", theirs.mlp_extractor.policy_net),
        ("value_hidden", theirs.mlp_extractor.value_net),
    ):
        layers = [layer for layer in place if isinstance(layer, nn.Linear)]
        weights |= {f"{name}.layers.{i}": layer for i, layer in enumerate(layers)}
    weights |= {"outputs.logits": theirs.action_net, "outputs.value": theirs.value_net}
    arrays = {
        f"{name}.{kind}": getattr(layer, kind).detach().numpy()
        for name, layer in weights.items()
        for kind in ("weight", "bias")
    }
    if hasattr(theirs, "log_std"):
        arrays["outputs.free_log_std.log_std"] = theirs.log_std.detach().numpy()
    ours.model.set_weights(arrays)  # which wants all of them, in their shapes


NETS = {
    "list": (VECTOR, TWO, {"net_arch": [8, 6], "log_std_init": 0.0}),
    "dict": (VECTOR, Discrete(3), {"net_arch": {"pi": [8], "vf": [8]}}),
    "dict in a list": (VECTOR, Discrete(3), {"net_arch": [{"pi": [7, 7], "vf": [7, 7]}]}),
    "no layers": (VECTOR, Discrete(3), {"net_arch": []}),
    "parts": (MIXED, TWO, {"net_arch": (8,), "activation_fn": nn.ELU, "log_std_init": 0}),
    "a number of NumPy": (
        Discrete(4),
        Discrete(3),
        {"net_arch": [np.int64(8)], "activation_fn": nn.ReLU},
    ),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("algorithm", [PPO, A2C])
# Theirs, about the old form.
@pytest.mark.filterwarnings("ignore:As shared layers in the mlp_extractor:UserWarning")
def test_a_translated_net_computes_what_their_own_does_with_the_same_weights(algorithm, name):
    observations, actions, kwargs = NETS[name]
    env = Seen(observations, actions)
    kind = "MultiInputPolicy" if isinstance(observations, Dict) else "MlpPolicy"
    theirs, ours = (
        made(policy, env, algorithm, **kwargs).policy for policy in (kind, CatalogPolicy)
    )
    copied(theirs, ours)
    shown = [observations.sample() for _ in range(20)]
    if isinstance(observations, Dict):
        obs = {
            key: torch.as_tensor(np.stack([row[key] for row in shown]))
            for key in observations.spaces
        }
    else:
        obs = torch.as_tensor(np.stack(shown))
    drawn = torch.as_tensor(np.stack([actions.sample() for _ in range(20)]))
    for found, truth in zip(
        ours.evaluate_actions(obs, drawn), theirs.evaluate_actions(obs, drawn), strict=True
    ):
        torch.testing.assert_close(found.flatten(), truth.flatten(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls", ACTIVATIONS, ids=lambda cls: cls.__name__)
def test_an_activation_is_the_function_that_the_class_is(cls):
    ours, theirs = (
        made(policy, activation_fn=cls, net_arch=[8]).policy
        for policy in (CatalogPolicy, "MlpPolicy")
    )
    assert ours.catalog_policy.config["fcnet_activation"] == ACTIVATIONS[cls]
    obs = torch.randn(20, 5)
    with torch.no_grad():
        layer, function = theirs.mlp_extractor.policy_net
        ours.model.hidden.layers[0].load_state_dict(layer.state_dict())
        torch.testing.assert_close(ours.model.hidden(obs), function(layer(obs)))


def test_what_is_said_of_ortho_init_is_so():
    """The hidden layers begin as theirs where the message's keys are set; the value layer does not:
    hence refused.
    """
    for ortho in (True, False):
        with pytest.raises(
            ConfigError,
            match=r"does not accept 'ortho_init'.*output layers, including the value layer, always"
            r" start",
        ):
            made(ortho_init=ortho)
    config = {
        "fcnet_weights_initializer": "orthogonal",
        "fcnet_weights_initializer_config": {"gain": 2**0.5},
    }
    ours, theirs = (
        made(net_arch=[8, 6], model_config=config).policy,
        made("MlpPolicy", net_arch=[8, 6]).policy,
    )
    layers = [*ours.model.hidden.layers, *ours.model.value_hidden.layers]
    own = [layer for layer in theirs.mlp_extractor.modules() if isinstance(layer, nn.Linear)]
    for layer, truth in zip(layers, own, strict=True):
        torch.testing.assert_close(
            torch.linalg.svdvals(layer.weight), torch.linalg.svdvals(truth.weight)
        )
        assert not layer.bias.any()
    assert ours.model.outputs.value.weight.norm() < 0.1 < theirs.value_net.weight.norm()


def test_another_beginning_of_the_standard_deviations_is_set_as_the_refusal_says():
    with pytest.raises(
        ConfigError, match=r"log_std_init=-2.*'outputs.free_log_std.log_std'.*get_weights"
    ):
        made(log_std_init=-2)
    model, theirs = made(model_config={"free_log_std": True}), made("MlpPolicy", log_std_init=-2)
    weights = model.policy.model.get_weights()
    model.policy.model.set_weights(
        {**weights, "outputs.free_log_std.log_std": np.full(2, -2.0, np.float32)}
    )
    obs = torch.zeros(1, 5)
    deviation = torch.as_tensor(model.policy.get_distribution(obs).distribution.std)
    torch.testing.assert_close(deviation, theirs.policy.get_distribution(obs).distribution.stddev)


# --- refusals -------------------------------------------------------------------------------------


class Own(TorchModelV2):
    """A model of the user's, which may read any key."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.net = nn.Linear(obs_space.shape[0], num_outputs)
        self.seen = model_config["fcnet_hiddens"]

    def forward(self, input_dict, state, seq_lens):
        return self.net(input_dict["obs_flat"]), state

    def value_function(self):
        return self.net.weight.sum().expand(1)


UNEQUAL = {"pi": [8], "vf": [9]}
REFUSED = [
    (VECTOR, TWO, {"net_arch": UNEQUAL}, "the same widths.*fcnet_hiddens in model_config"),
    (VECTOR, TWO, {"net_arch": {"pi": [8]}}, "the same widths"),
    (VECTOR, TWO, {"net_arch": [64, {"pi": [8], "vf": [8]}]}, r"expected widths, as in \[64, 64\]"),
    (VECTOR, TWO, {"net_arch": 64}, "net_arch=64: expected widths"),
    (VECTOR, TWO, {"net_arch": [0]}, "expected widths"),
    (
        VECTOR,
        TWO,
        {"activation_fn": nn.Hardtanh},
        "activation_fn=Hardtanh has no name.*set fcnet_activation in",
    ),
    (VECTOR, TWO, {"activation_fn": "relu"}, "activation_fn='relu' has no name"),
    (VECTOR, Discrete(2), {"log_std_init": 0.0}, "log_std_init=0.0: categorical.*Leave it out"),
    (VECTOR, TWO, {"log_std_init": False}, "log_std_init=False: in the catalog, they start at 0"),
    (
        VECTOR,
        TWO,
        {"log_std_init": 0.0, "model_config": {"custom_action_dist": "beta"}},
        "beta.*free_log_std",
    ),
    (IMAGE, TWO, {"net_arch": [8]}, "the observation contains images.*post_fcnet_hiddens"),
    (IMAGE, TWO, {"activation_fn": nn.ReLU}, "activation_fn=ReLU.*conv_activation"),
    (Dict({"a": VECTOR, "b": IMAGE}), TWO, {"net_arch": [8]}, "the observation contains images"),
    (
        VECTOR,
        TWO,
        {"net_arch": [8], "model_config": {"custom_model": "gtrxl"}},
        "the model gtrxl does not read",
    ),
    (
        VECTOR,
        TWO,
        {"net_arch": [8], "model_config": {"fcnet_hiddens": [9]}},
        r"net_arch=\[8\] .*fcnet_hiddens=\[9\]",
    ),
    (
        VECTOR,
        TWO,
        {"net_arch": [8], "model_config": {"vf_share_layers": True}},
        "net_arch=.*vf_share_layers=True",
    ),
    (
        VECTOR,
        TWO,
        {"activation_fn": nn.Tanh, "model_config": {"fcnet_activation": "ReLU"}},
        "activation_fn=Tanh .*fcnet_activation='ReLU'",
    ),
    (
        VECTOR,
        TWO,
        {"log_std_init": 0.0, "model_config": {"free_log_std": False}},
        "free_log_std=False",
    ),
]


@pytest.mark.parametrize(("observations", "actions", "kwargs", "message"), REFUSED)
def test_what_has_no_key_of_the_same_meaning_is_refused(observations, actions, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        made(env=Seen(observations, actions), **kwargs)


def test_the_config_of_a_flattened_environment_may_agree_or_not():
    env = for_sb3(Seen(), {"fcnet_hiddens": [8], "fcnet_activation": "relu"})
    found = made(env=env, net_arch=[8], activation_fn=nn.ReLU).policy.catalog_policy.config
    assert (found["fcnet_hiddens"], found["vf_share_layers"], found["fcnet_activation"]) == (
        [8],
        False,
        "relu",
    )
    with pytest.raises(
        ConfigError, match=r"net_arch=\[9\] means fcnet_hiddens=\[9\].*fcnet_hiddens=\[8\]"
    ):
        made(env=env, net_arch=[9])


@pytest.mark.parametrize("value", ["Tanh", "tanh", nn.Tanh])
def test_a_key_that_says_the_same_is_kept(value):
    config = {
        "fcnet_activation": value,
        "fcnet_hiddens": [8],
        "vf_share_layers": False,
        "free_log_std": True,
    }
    found = made(
        model_config=config, net_arch=[8], activation_fn=nn.Tanh, log_std_init=0.0
    ).policy.catalog_policy
    assert {key: found.config[key] for key in config} == config


def test_a_model_of_ones_own_sees_the_keys():
    assert made(model_config={"custom_model": Own}, net_arch=[9]).policy.model.seen == [9]


def test_an_activation_without_a_name_goes_into_the_model_config():
    policy = made(model_config={"fcnet_activation": nn.Hardtanh, "fcnet_hiddens": [8]}).policy
    assert policy.model.hidden(torch.full((1, 5), 1e3)).abs().max() <= 1


# --- with sb3-contrib -----------------------------------------------------------------------------


def test_masks_and_memories_take_them_too():
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    masked = made(
        "CatalogMaskablePolicy", Seen(VECTOR, Discrete(3)), contrib.MaskablePPO, net_arch=[8]
    )
    assert masked.policy.catalog_policy.config["fcnet_hiddens"] == [8]
    memory = {"use_lstm": True, "lstm_cell_size": 4}
    model = made(
        "CatalogRecurrentPolicy", None, contrib.RecurrentPPO, log_std_init=0.0, model_config=memory
    )
    assert "outputs.free_log_std.log_std" in model.policy.model.get_weights()
    for kwargs, message in (
        ({"net_arch": [8]}, "after the memory.*Set fcnet_hiddens"),
        ({"activation_fn": nn.ReLU}, "after the memory.*Set fcnet_activation"),
        (
            {"lstm_hidden_size": 8},
            "does not accept 'lstm_hidden_size': in model_config, set lstm_cell_size",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            made(
                "CatalogRecurrentPolicy", None, contrib.RecurrentPPO, model_config=memory, **kwargs
            )


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_is_saved_comes_back_the_same(wrapped, tmp_path):
    env = for_sb3(Seen(), {"gaussian_log_std_max": 1.0}) if wrapped else Seen()
    model = made(env=env, net_arch={"pi": [8], "vf": [8]}, activation_fn=nn.ELU, log_std_init=0.0)
    model.learn(64)
    model.save(tmp_path / "model.zip")
    model.policy.save(tmp_path / "policy.pt")
    rlcatalog.Policy.save(model.policy.catalog_policy, tmp_path / "own")
    obs = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    expected = model.predict(obs, deterministic=True)[0]
    for loaded in (
        PPO.load(tmp_path / "model.zip", device="cpu").policy,
        CatalogPolicy.load(tmp_path / "policy.pt", device="cpu"),
    ):
        np.testing.assert_array_equal(loaded.predict(obs, deterministic=True)[0], expected)
        assert dict(loaded.catalog_policy.config) == dict(model.policy.catalog_policy.config)
    saved = rlcatalog.load(tmp_path / "own")
    np.testing.assert_allclose(
        saved.act(obs, explore=False).action, np.clip(expected, -1, 1), rtol=1e-5, atol=1e-6
    )
    PPO.load(tmp_path / "model.zip", env=env, device="cpu").learn(64)
