"""The model config of a configured algorithm: defaults like Ray's own nets, and keys that the user
passed to Ray's config.
"""

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.spaces.space_utils import unsquash_action

import rlcatalog_rllib
from rlcatalog.config import RULES
from rlcatalog.errors import ConfigError, NotServedError, UnknownConfigKeyError
from rlcatalog_rllib.recipe import Recipe, build_policy, choose_parts
from rlcatalog_torch import FullyConnectedNetwork


def build_module(config, env_id="CartPole-v1", **arguments):
    """Configure an algorithm, and return the module that it would build; warnings are errors."""
    # pytest makes any warning an error.
    configured = rlcatalog_rllib.configure(config, env_id, **arguments)
    return configured.get_rl_module_spec(env=gym.make(env_id)).build()


def build_own_module(config_class):
    """Return Ray's own module of an algorithm."""
    config = config_class().environment("CartPole-v1")
    return config.get_rl_module_spec(env=gym.make("CartPole-v1")).build()


# --- layers that actor and critic share -----------------------------------------------------------


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig, IMPALAConfig])
def test_actor_and_critic_share_layers_as_in_own_nets(config_class):
    own_encoder = build_own_module(config_class).encoder
    own_nets_share = getattr(own_encoder, "critic_encoder", None) is None

    module = build_module(config_class())

    assert module.policy.config["vf_share_layers"] == own_nets_share


def test_dqn_has_shared_layers():
    assert build_module(DQNConfig()).policy.config["vf_share_layers"] is True


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig, IMPALAConfig, DQNConfig])
@pytest.mark.parametrize("vf_share_layers", [True, False])
def test_vf_share_layers_overrides_the_default(config_class, vf_share_layers):
    model = {"vf_share_layers": vf_share_layers}

    module = build_module(config_class(), model=model)

    assert module.policy.config["vf_share_layers"] is vf_share_layers


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig, IMPALAConfig, DQNConfig])
@pytest.mark.parametrize("vf_share_layers", [True, False])
def test_vf_share_layers_of_rays_config_overrides_the_default(config_class, vf_share_layers):
    config = config_class().rl_module(model_config={"vf_share_layers": vf_share_layers})

    module = build_module(config)

    assert module.policy.config["vf_share_layers"] is vf_share_layers


class SharesAllLayers(FullyConnectedNetwork):
    """A model that rejects `vf_share_layers=False`."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        assert model_config["vf_share_layers"], "shares all layers"
        super().__init__(obs_space, action_space, num_outputs, model_config, name)


def test_default_of_vf_share_layers_gives_way_to_a_model():
    module = build_module(PPOConfig(), model={"custom_model": SharesAllLayers})

    assert module.policy.config["vf_share_layers"] is True


def test_given_vf_share_layers_does_not_give_way():
    model = {"custom_model": SharesAllLayers, "vf_share_layers": False}

    with pytest.raises(AssertionError, match="shares all layers"):
        build_module(PPOConfig(), model=model)


@pytest.mark.parametrize(("config_class", "is_shared"), [(PPOConfig, False), (IMPALAConfig, True)])
def test_spec_has_the_default_of_its_algorithm(config_class, is_shared):
    env = gym.make("CartPole-v1")
    spec = rlcatalog_rllib.spec(env.observation_space, env.action_space, {"fcnet_hiddens": [8]})

    config = config_class().environment("CartPole-v1").rl_module(rl_module_spec=spec)
    module = config.get_rl_module_spec(env=env).build()

    assert module.policy.config["vf_share_layers"] is is_shared


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig, IMPALAConfig, DQNConfig])
def test_config_without_keys_sets_only_the_defaults(config_class):
    module = build_module(config_class())

    # Keys that are set explicitly, by the user or by the catalog.
    keys_set_by_configure = module.policy.resolution.config.explicit.keys()
    assert keys_set_by_configure <= {
        # Settings of the catalog that every saved config contains.
        *RULES,
        # Defaults that match Ray's own nets.
        "max_seq_len",
        "vf_share_layers",
        "fcnet_weights_initializer",
        "fcnet_bias_initializer",
    }


# --- initial weights ------------------------------------------------------------------------------


def assert_uniform(weights, bound):
    """Check that the largest of uniform weights is near their bound."""
    largest = weights.abs().max()
    assert 0.9 * bound < largest <= bound


def build_module_from_spec():
    env = gym.make("CartPole-v1")
    return rlcatalog_rllib.spec(env.observation_space, env.action_space).build()


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: build_module(PPOConfig()), id="configure"),
        pytest.param(build_module_from_spec, id="spec"),
    ],
)
def test_dense_layers_start_like_rays_own_net(build):
    own_modules = build_own_module(PPOConfig).encoder.actor_encoder.modules()
    own_layers = [module for module in own_modules if isinstance(module, torch.nn.Linear)]
    layers = build().model.hidden.layers

    assert len(own_layers) == 2
    for layer, own_layer in zip(layers, own_layers, strict=True):
        assert layer.weight.shape == own_layer.weight.shape
        # PyTorch's default for linear layers: uniform within 1 / sqrt(number of inputs).
        bound = layer.in_features**-0.5
        assert_uniform(own_layer.weight, bound)
        assert_uniform(own_layer.bias, bound)
        assert_uniform(layer.weight, bound)
        assert_uniform(layer.bias, bound)


def test_given_init_overrides_the_default_initializers():
    module = build_module(PPOConfig(), model={"fcnet_hiddens": [8], "init": "orthogonal"})

    layer = module.policy.model.hidden.layers[0]
    # Orthogonal columns, with the gain of Stable-Baselines3.
    columns = layer.weight.detach().T
    torch.testing.assert_close(columns @ columns.T, 2 * torch.eye(4), rtol=1e-5, atol=1e-5)
    assert not layer.bias.any()


def test_given_initializer_overrides_the_default():
    module = build_module(PPOConfig(), model={"fcnet_weights_initializer": "zeros"})

    assert not module.model.hidden.layers[0].weight.any()


# --- action bounds --------------------------------------------------------------------------------


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig, IMPALAConfig, SACConfig])
@pytest.mark.parametrize(("normalize_actions", "bounds"), [(True, "affine"), (False, "clip")])
def test_action_bounds_follow_normalize_actions(config_class, normalize_actions, bounds):
    config = config_class().environment(normalize_actions=normalize_actions)

    policy = build_module(config, "Pendulum-v1").policy

    assert policy.config["action_bounds"] == bounds


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig, IMPALAConfig, SACConfig])
@pytest.mark.parametrize(("normalize_actions", "bounds"), [(True, "clip"), (False, "affine")])
def test_given_action_bounds_override_normalize_actions(config_class, normalize_actions, bounds):
    config = config_class().environment(normalize_actions=normalize_actions)

    policy = build_module(config, "Pendulum-v1", model={"action_bounds": bounds}).policy

    assert policy.config["action_bounds"] == bounds


def test_affine_actions_are_scaled_as_ray_does():
    model = {"action_bounds": "affine"}
    policy = build_module(PPOConfig(), "Pendulum-v1", model=model).policy
    raw_actions = np.linspace(-3, 3, 13, dtype=np.float32)[:, None]

    adapted = policy.action_codec.adapt(raw_actions)

    expected = np.clip(unsquash_action(raw_actions, policy.action_space), -2, 2)
    np.testing.assert_allclose(adapted, expected, rtol=1e-6)


def test_clipped_actions_are_not_scaled():
    policy = build_module(PPOConfig(), "Pendulum-v1", model={"action_bounds": "clip"}).policy

    adapted = policy.action_codec.adapt(np.float32([[-3], [-1.5], [0], [1.5], [3]]))

    assert adapted.ravel().tolist() == [-2, -1.5, 0, 1.5, 2]  # torques are in [-2, 2]


@pytest.mark.parametrize(("model", "bounds"), [({}, "affine"), ({"action_bounds": "clip"}, "clip")])
def test_spec_scales_actions_by_default(model, bounds):
    env = gym.make("Pendulum-v1")

    module = rlcatalog_rllib.spec(env.observation_space, env.action_space, model).build()

    assert module.policy.config["action_bounds"] == bounds


def test_recipe_of_an_earlier_version_keeps_its_rules():
    space = gym.spaces.Box(-2, 2, (1,), np.float32)
    recipe, _ = choose_parts(
        obs_space=space, action_space=space, model=None, catalog=None, defaults={}
    )
    # Earlier versions saved no keys of RULES. They clipped actions, and scaled no integers.
    earlier_model = {key: value for key, value in recipe.model.items() if key not in RULES}
    earlier_model_config = Recipe(earlier_model, recipe.pins).model_config()

    config = build_policy(recipe, space, space).config
    earlier_config = build_policy(Recipe.of(earlier_model_config), space, space).config

    assert config["action_bounds"] == "affine"
    assert earlier_config["action_bounds"] == "clip"
    assert earlier_config["scale_integers"] is False


# --- keys of Ray's config -------------------------------------------------------------------------


def pass_to_training(config, keys):
    config.training(model=keys)


def pass_to_rl_module(config, keys):
    config.rl_module(model_config=keys)


def pass_as_default_model_config(config, keys):
    config.rl_module(model_config=DefaultModelConfig(**keys))


def pass_in_spec(config, keys):
    config.rl_module(rl_module_spec=RLModuleSpec(model_config=keys))


each_way_to_pass_keys = pytest.mark.parametrize(
    "pass_keys", [pass_to_training, pass_to_rl_module, pass_as_default_model_config, pass_in_spec]
)


@each_way_to_pass_keys
def test_keys_passed_to_configure_override_those_of_ray(pass_keys):
    config = PPOConfig()
    pass_keys(config, {"fcnet_hiddens": [7], "fcnet_activation": "relu"})
    build_module(config)  # configuring a config again reads the same keys

    policy = build_module(config, model={"fcnet_activation": "elu"}).policy

    assert policy.config["fcnet_hiddens"] == [7]
    assert policy.config["fcnet_activation"] == "elu"


def test_head_layers_of_ray_follow_the_other_layers():
    model_config = DefaultModelConfig(head_fcnet_hiddens=[5], head_fcnet_activation="relu")

    model = build_module(PPOConfig().rl_module(model_config=model_config)).model

    shapes = [tuple(layer.weight.shape) for layer in model.hidden.layers]
    assert shapes == [(256, 4), (256, 256), (5, 256)]  # by default two layers of 256 units
    assert model.value_hidden.layers[2].weight.shape == (5, 256)


def test_initializers_of_ray_are_read():
    model_config = DefaultModelConfig(
        fcnet_kernel_initializer="zeros_",
        fcnet_bias_initializer="constant_",
        fcnet_bias_initializer_kwargs={"val": 0.25},
    )
    config = PPOConfig().rl_module(model_config=model_config)

    first_layer, _ = build_module(config).model.hidden.layers

    assert (first_layer.weight == 0).all()
    assert (first_layer.bias == 0.25).all()


@pytest.mark.parametrize(
    ("field", "value", "advice"),
    [
        ("fcnet_use_layernorm", True, "Remove it"),
        ("fusionnet_hiddens", [3], "Remove it"),
        ("log_std_clip_param", 2.0, "clip in your own distribution"),
    ],
)
def test_fields_without_equivalent_are_rejected(field, value, advice):
    if field not in DefaultModelConfig.__dataclass_fields__:
        pytest.skip("Ray 2.54 does not have this field")
    config = PPOConfig().rl_module(model_config=DefaultModelConfig(**{field: value}))

    with pytest.raises(ConfigError, match=f"{field}.*{advice}"):
        build_module(config)


def test_head_layers_need_a_separate_critic():
    # In IMPALA, actor and critic share their layers by default.
    config = IMPALAConfig().rl_module(model_config={"head_fcnet_hiddens": [5]})

    with pytest.raises(ConfigError, match=r"head_fcnet_hiddens=\[5\] with vf_share") as caught:
        build_module(config)

    message = str(caught.value)
    assert "with vf_share_layers=True" in message
    assert "vf_share_layers=False" in message


def test_unknown_keys_of_rays_config_are_rejected():
    config = PPOConfig().rl_module(model_config={"fcnet_hidens": [5]})

    with pytest.raises(UnknownConfigKeyError, match="fcnet_hidens"):
        build_module(config)


def test_module_class_in_rays_config_is_not_replaced():
    from ray.rllib.examples.rl_modules.classes.tiny_atari_cnn_rlm import TinyAtariCNN

    config = PPOConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=TinyAtariCNN))

    with pytest.raises(NotServedError, match=r"replace TinyAtariCNN .*custom_model"):
        build_module(config)
