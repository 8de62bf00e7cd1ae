"""Errors for configs, spaces and algorithms that Stable-Baselines3 cannot combine."""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import torch
from engine_models import SamplesArrays, WithoutValue
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, RecurrentPPO
from sb3_helpers import RandomEnv, extractor_kwargs
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from torch_weights import copy_weights

from rlcatalog import ActionCodecSpec, ViewRequirement
from rlcatalog.actions import ActionCodec
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog_sb3 import (
    CatalogExtractor,
    CatalogMaskablePolicy,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    for_sb3,
)
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_torch import RecurrentNetwork

TWO_NUMBERS = Box(-1, 1, (2,))
LSTM = {"use_lstm": True}


# --- models and memories --------------------------------------------------------------------------


class WithCustomLoss(WithoutValue):
    """A model that overrides `custom_loss`."""

    def value_function(self):
        return torch.zeros(1)

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss + self.layer.weight.square().sum()


class ReadsThePast(WithoutValue):
    """A model that requests the two observations before the current one."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements["past"] = ViewRequirement("obs", shift="-2:-1")

    def value_function(self):
        return torch.zeros(1)


@pytest.mark.parametrize(
    ("algorithm", "config", "error", "message"),
    [
        pytest.param(
            PPO,
            {"use_lstm": True},
            NotServedError,
            "^use_lstm: PPO keeps .* RecurrentPPO",
            id="PPO, LSTM",
        ),
        pytest.param(
            PPO,
            {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 4},
            NotServedError,
            "^use_lstm, lstm_cell_size: PPO keeps",
            id="PPO, LSTM with its size",
        ),
        pytest.param(
            A2C,
            {"use_attention": True},
            NotServedError,
            "^use_attention: A2C .* rlcatalog-ppo",
            id="A2C, attention",
        ),
        pytest.param(
            PPO,
            {"observation_filter": "MeanStdFilter"},
            NotServedError,
            "filter='MeanStdFilter'.*VecNormalize",
            id="PPO, filter",
        ),
        pytest.param(
            PPO,
            {"custom_model": WithCustomLoss},
            NotServedError,
            "WithCustomLoss.custom_loss",
            id="PPO, custom loss",
        ),
        pytest.param(
            PPO,
            {"custom_model": ReadsThePast},
            NotServedError,
            "ReadsThePast requests the views past",
            id="PPO, past observations",
        ),
        pytest.param(
            PPO,
            {"custom_model": WithoutValue},
            ModelContractError,
            r"WithoutValue has no value_function\(\)",
            id="PPO, no value",
        ),
        pytest.param(
            RecurrentPPO,
            {"use_attention": True},
            NotServedError,
            "^use_attention: RecurrentPPO supports",
            id="RecurrentPPO, attention",
        ),
        pytest.param(
            RecurrentPPO,
            {"use_lstm": True, "lstm_use_prev_action": True},
            NotServedError,
            "requests the views past_actions, .* only",
            id="RecurrentPPO, past actions",
        ),
        pytest.param(
            RecurrentPPO,
            {"use_lstm": True, "lstm_use_prev_reward": True},
            NotServedError,
            "requests the views past_rewards, .* only",
            id="RecurrentPPO, past rewards",
        ),
        pytest.param(
            RecurrentPPO,
            {},
            ConfigError,
            "the model has no memory. Set use_lstm",
            id="RecurrentPPO, no memory",
        ),
        pytest.param(
            PPO,
            {"fcnet_hidens": [8]},
            ConfigError,
            "Did you mean 'fcnet_hiddens'",
            id="PPO, misspelt key",
        ),
    ],
)
def test_unsupported_config_is_rejected(algorithm, config, error, message):
    policy = CatalogRecurrentPolicy if algorithm is RecurrentPPO else CatalogPolicy

    with pytest.raises(error, match=message):
        algorithm(policy, "CartPole-v1", policy_kwargs={"model_config": config}, device="cpu")


def test_rejection_names_a_subclass_of_the_algorithm():
    class MyPPO(PPO):
        """A user's algorithm."""

    with pytest.raises(NotServedError, match=r"^use_lstm: MyPPO keeps no state"):
        MyPPO(CatalogPolicy, "CartPole-v1", policy_kwargs={"model_config": LSTM}, device="cpu")


def test_rejection_without_an_algorithm_names_the_policy():
    def learning_rate(progress):
        return 1e-3

    with pytest.raises(NotServedError, match=r"^use_lstm: CatalogPolicy keeps no state"):
        CatalogPolicy(TWO_NUMBERS, Discrete(2), learning_rate, model_config=LSTM)


def test_recurrent_ppo_rejects_a_policy_without_memory():
    with pytest.raises(NotServedError, match=r"^RecurrentPPO does not accept") as caught:
        RecurrentPPO(CatalogPolicy, "CartPole-v1")

    message = str(caught.value)
    assert "does not accept CatalogPolicy" in message
    assert "CatalogRecurrentPolicy, with use_lstm" in message


def test_ppo_rejects_a_recurrent_policy():
    with pytest.raises(NotServedError, match=r"^PPO does not accept") as caught:
        PPO(CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs={"model_config": LSTM})

    message = str(caught.value)
    assert "does not accept CatalogRecurrentPolicy" in message
    assert "rlcatalog_sb3.RecurrentPPO" in message


def make_model_with_state(initial_state):
    """Return a recurrent model class with an initial state."""

    class WithState(RecurrentNetwork):
        def get_initial_state(self):
            return initial_state

        def value_function(self):
            return torch.zeros(1)

    return WithState


#: Initial states that are not vectors of zeros, and their shapes in messages.
each_unsupported_state = pytest.mark.parametrize(
    ("initial_state", "shapes"),
    [
        pytest.param([torch.zeros(3), torch.zeros(2, 2)], "[(3,), (2, 2)]", id="one matrix"),
        pytest.param([torch.zeros(3, dtype=torch.int64)], "[(3,)]", id="integers"),
        pytest.param([torch.zeros(3), torch.ones(3)], "[(3,), (3,)]", id="ones"),
        pytest.param([torch.zeros(3, 2), torch.zeros(3, 2)], "[(3, 2), (3, 2)]", id="matrices"),
    ],
)


@each_unsupported_state
def test_recurrent_ppo_needs_states_of_zero_vectors(initial_state, shapes):
    config = {"custom_model": make_model_with_state(initial_state)}

    with pytest.raises(NotServedError, match="initially zero, as in an LSTM") as caught:
        RecurrentPPO(CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs={"model_config": config})

    assert f"WithState has states of shapes {shapes}" in str(caught.value)


@each_unsupported_state
def test_ppo_advises_rlcatalog_ppo_for_other_states(initial_state, shapes):
    config = {"custom_model": make_model_with_state(initial_state)}

    with pytest.raises(NotServedError, match="WithState is recurrent") as caught:
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs={"model_config": config})

    message = str(caught.value)
    assert "PPO keeps no state" in message
    assert "rlcatalog-ppo" in message


def test_error_names_a_distribution_that_samples_arrays():
    kwargs = {"model_config": {"custom_action_dist": SamplesArrays}}
    env = RandomEnv(TWO_NUMBERS, Discrete(3))
    model = PPO(CatalogPolicy, env, policy_kwargs=kwargs, device="cpu")

    with pytest.raises(ModelContractError, match=r"SamplesArrays\.sample\(\) must") as caught:
        model.predict(np.zeros(2, np.float32))

    message = str(caught.value)
    assert "must return tensors" in message
    assert "'torch'; found ndarray" in message


# --- policy_kwargs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "hint"),
    [
        pytest.param(
            {"net_arc": [8]}, "Did you mean 'net_arch'.*keys of model_config", id="net_arc"
        ),
        pytest.param({"model_confg": {}}, "Did you mean 'model_config'?", id="model_confg"),
        pytest.param(
            {"features_extractor_kwargs": {}}, "Name one with custom_model", id="extractor"
        ),
        pytest.param(
            {"share_features_extractor": False}, "in model_config, vf_share", id="shared extractor"
        ),
    ],
)
def test_unknown_policy_kwargs_are_rejected_with_a_hint(kwargs, hint):
    (name,) = kwargs

    with pytest.raises(ConfigError, match=f"does not accept '{name}'.*{hint}"):
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs=kwargs, device="cpu")


def test_state_dependent_exploration_is_rejected():
    with pytest.raises(ConfigError, match="use_sde=True"):
        PPO(CatalogPolicy, "Pendulum-v1", use_sde=True, device="cpu")


def test_policy_has_no_noise_to_reset():
    policy = PPO(CatalogPolicy, "Pendulum-v1", device="cpu").policy

    with pytest.raises(NotServedError, match="reset_noise"):
        policy.reset_noise()


def test_policy_has_no_features_extractor():
    policy = PPO(CatalogPolicy, "Pendulum-v1", device="cpu").policy

    with pytest.raises(NotServedError, match="no features extractor"):
        policy.extract_features(torch.zeros(1, 3))


# --- action spaces --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "action_space", "config", "reason"),
    [
        pytest.param(PPO, Discrete(3, start=1), {}, "values do not start at 0", id="offset"),
        pytest.param(
            PPO,
            MultiDiscrete([2, 2], start=[0, 1]),
            {},
            "values do not start at 0",
            id="offset of one choice",
        ),
        pytest.param(
            PPO, MultiDiscrete([[2, 2], [2, 2]]), {}, "more than one axis", id="matrix of choices"
        ),
        pytest.param(PPO, Box(-3, 3, (2,), np.int16), {}, "stored as int16", id="int16"),
        pytest.param(
            PPO,
            Discrete(3),
            {"custom_action_dist": "gumbel_softmax"},
            "draws one-hots",
            id="one-hots",
        ),
        pytest.param(
            RecurrentPPO,
            TWO_NUMBERS,
            {"use_lstm": True, "action_bounds": "affine"},
            "action_bounds='affine' would not be applied",
            id="RecurrentPPO does not scale",
        ),
    ],
)
# Stable-Baselines3 warns about such spaces.
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_actions_that_need_conversion_need_for_sb3(algorithm, action_space, config, reason):
    policy = CatalogRecurrentPolicy if algorithm is RecurrentPPO else CatalogPolicy
    env = RandomEnv(TWO_NUMBERS, action_space)

    with pytest.raises(NotServedError, match=rf"{reason}.*for_sb3\(env, model_config\)"):
        algorithm(policy, env, policy_kwargs={"model_config": config}, device="cpu")

    algorithm(policy, for_sb3(env, config), device="cpu")


class Weather(Discrete):
    """Two choices, which the environment knows as "calm" and "storm"."""


class WeatherCodec(ActionCodec):
    """Converts the choices 0 and 1 to "calm" and "storm"."""

    scalar = whole = True

    def __init__(self, info, *others):
        super().__init__(info, *others)
        self.counts = (2,)
        self.choices = [(info.path, 2)]
        self.input_width = 2

    def adapt(self, raw):
        return np.array(["calm", "storm"])[raw[:, 0].astype(int)]


def test_codec_that_changes_choices_needs_for_sb3():
    # The codec of a plugin converts the choices 0 and 1 of a space to "calm" and "storm".
    codec = ActionCodecSpec(
        "weather",
        {"numpy": f"{__name__}:WeatherCodec"},
        "choices between calm and storm",
        kinds=(f"{__name__}.Weather",),
    )
    plugin = PluginEntryPoint(plugin_of(rlcatalog_action_codecs=[codec]), "acme")
    catalog = isolated_catalog(
        "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical", plugin
    )
    env = RandomEnv(TWO_NUMBERS, Weather(2))
    kwargs = {"catalog": catalog}

    with pytest.raises(NotServedError, match="WeatherCodec, changes raw actions") as caught:
        PPO(CatalogPolicy, env, policy_kwargs=kwargs, device="cpu")

    assert "for_sb3(env, model_config)" in str(caught.value)
    PPO(CatalogPolicy, for_sb3(env, catalog=catalog), policy_kwargs=kwargs, device="cpu")


# --- flattened environments -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_config", "policy_config", "difference"),
    [
        pytest.param({}, {"action_bounds": "clip"}, "action_bounds='affine'", id="bounds"),
        pytest.param({"custom_action_dist": "squashed_gaussian"}, {}, "raw_kinds=", id="raw kind"),
    ],
)
def test_policy_and_flattened_environment_need_equal_configs(env_config, policy_config, difference):
    env = for_sb3(RandomEnv(TWO_NUMBERS, TWO_NUMBERS), env_config)

    with pytest.raises(ConfigError, match=f"flattened with {difference}") as caught:
        PPO(CatalogPolicy, env, policy_kwargs={"model_config": policy_config}, device="cpu")

    assert "Pass the same config to both" in str(caught.value)


@pytest.mark.parametrize("env_config", [{}, {"custom_action_dist": "squashed_gaussian"}])
def test_policy_of_a_flattened_environment_may_have_other_layers(env_config):
    env = for_sb3(RandomEnv(TWO_NUMBERS, TWO_NUMBERS), env_config)
    policy_config = {**env_config, "fcnet_hiddens": [8]}

    model = PPO(CatalogPolicy, env, policy_kwargs={"model_config": policy_config}, device="cpu")

    assert model.policy.catalog_policy.config["fcnet_hiddens"] == [8]


def test_set_env_shows_how_flattened_spaces_differ():
    model = PPO(CatalogPolicy, for_sb3("Pendulum-v1", {"action_bounds": "clip"}))

    with pytest.raises(ValueError, match=r"bounds='clip'.* != .*bounds='affine'"):
        model.set_env(for_sb3("Pendulum-v1"))


def test_for_sb3_rejects_filters():
    with pytest.raises(NotServedError, match="VecNormalize"):
        for_sb3("CartPole-v1", {"observation_filter": "MeanStdFilter"})


# --- features extractors --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observation_space", "config", "error", "message"),
    [
        pytest.param(
            TWO_NUMBERS, LSTM, NotServedError, "^use_lstm: .* cannot use a memory", id="memory"
        ),
        pytest.param(
            TWO_NUMBERS,
            {"critic": {}},
            NotServedError,
            "^critic: a features extractor is only a trunk",
            id="critic",
        ),
        pytest.param(
            TWO_NUMBERS,
            {"observation_filter": "MeanStdFilter"},
            NotServedError,
            "VecNormalize",
            id="filter",
        ),
        pytest.param(
            TWO_NUMBERS,
            {"custom_action_dist": "gumbel_softmax"},
            ConfigError,
            "custom_action_dist: .*TD3 choose",
            id="distribution",
        ),
        pytest.param(
            Dict({"x": TWO_NUMBERS, "action_mask": Box(0, 1, (3,), np.int8)}),
            {},
            NotServedError,
            "^action_mask: .*TD3 do not mask actions",
            id="mask",
        ),
    ],
)
@pytest.mark.parametrize("flatten", [False, True], ids=["own", "flat"])
def test_extractor_rejects_unsupported_config(observation_space, config, error, message, flatten):
    env = RandomEnv(observation_space, Discrete(3))
    if flatten:
        env = for_sb3(env)
    policy = "MultiInputPolicy" if isinstance(env.observation_space, Dict) else "MlpPolicy"

    with pytest.raises(error, match=message):
        DQN(policy, env, policy_kwargs=extractor_kwargs(config), device="cpu")


def test_extractor_rejects_tuple_actions():
    env = for_sb3(RandomEnv(TWO_NUMBERS, Tuple([Discrete(2), TWO_NUMBERS])))

    with pytest.raises(NotServedError, match="DQN needs a Discrete; SAC and TD3 need"):
        CatalogExtractor(env.observation_space)


# --- other algorithms -----------------------------------------------------------------------------


class UserPolicy(CatalogPolicy):
    """A user's policy, with its own constructor."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


#: Algorithms that build their own nets, and action spaces that they accept.
OTHER_ALGORITHMS = [
    (SAC, TWO_NUMBERS),
    (TD3, TWO_NUMBERS),
    (DDPG, TWO_NUMBERS),
    (TQC, TWO_NUMBERS),
    (CrossQ, TWO_NUMBERS),
    (TRPO, TWO_NUMBERS),
]
each_other_algorithm = pytest.mark.parametrize(("algorithm", "action_space"), OTHER_ALGORITHMS)
each_observation_space = pytest.mark.parametrize(
    "observation_space", [TWO_NUMBERS, Dict({"a": TWO_NUMBERS})], ids=["Box", "Dict"]
)


def short_settings(algorithm):
    """Return settings with which an algorithm learns after a few steps."""
    if algorithm is TRPO:
        return {"n_steps": 16, "batch_size": 16, "device": "cpu"}
    return {"buffer_size": 10, "learning_starts": 2, "device": "cpu"}


@pytest.mark.parametrize("policy", [CatalogMaskablePolicy, CatalogRecurrentPolicy, UserPolicy])
def test_dqn_rejects_other_catalog_policies(policy):
    with pytest.raises(NotServedError, match=f"^DQN does not accept {policy.__name__}: "):
        DQN(policy, "CartPole-v1")


def find_call(message):
    """Return the call that a message shows, with a layer of eight units and short training.

    It says "… a catalog trunk: DQN("MlpPolicy", env, policy_kwargs=…), with CatalogExtractor from".
    """
    _, _, after_colon = message.partition("catalog trunk: ")
    call, _, _ = after_colon.partition(", with CatalogExtractor")
    call = call.replace("{...}", '{"fcnet_hiddens": [8]}')
    return call.replace(", policy_kwargs", ", **settings, policy_kwargs")


@pytest.mark.grid
@each_other_algorithm
@each_observation_space
def test_rejection_shows_a_call_that_trains(algorithm, action_space, observation_space):
    env = RandomEnv(observation_space, action_space)
    settings = short_settings(algorithm)
    message = f"^{algorithm.__name__} does not accept CatalogPolicy: "
    with pytest.raises(NotServedError, match=message) as caught:
        algorithm("CatalogPolicy", env, **settings)

    # Such as DQN("MlpPolicy", env, policy_kwargs=...).
    call = find_call(str(caught.value))
    model = eval(call, {**globals(), "env": env, "settings": settings})

    modules = model.policy.modules()
    extractor = next(module for module in modules if isinstance(module, CatalogExtractor))
    weights_before = copy_weights(extractor)
    num_steps = 16 if algorithm is TRPO else 6  # enough for an update
    model.learn(num_steps)
    weights = copy_weights(extractor)
    assert any(not weights[name].equal(before) for name, before in weights_before.items())


@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_rejection_of_q_learning_names_its_own_policy(algorithm):
    own_algorithm = f"rlcatalog_sb3.{algorithm.__name__}"

    with pytest.raises(NotServedError, match=f"learns values .* {own_algorithm}"):
        algorithm("CatalogPolicy", "CartPole-v1")


def test_policy_of_a_user_is_accepted_by_ppo():
    model = PPO(UserPolicy, RandomEnv(TWO_NUMBERS, Discrete(3)), device="cpu")

    assert isinstance(model.policy, UserPolicy)


@pytest.mark.parametrize("net", ["q_net", "actor", "critic", "quantile_net"])
def test_catalog_policy_has_no_nets_of_other_algorithms(net):
    model = PPO(UserPolicy, RandomEnv(TWO_NUMBERS, Discrete(3)), device="cpu")

    assert not hasattr(model.policy, net)


def test_policy_is_built_without_an_algorithm():
    def learning_rate(progress):
        return 1e-3

    policy = CatalogPolicy(TWO_NUMBERS, Discrete(3), learning_rate)

    assert policy.catalog_policy.has_value


@pytest.mark.parametrize("name", ["PPO", "SAC", "MaskablePPO"])
def test_importing_an_algorithm_shows_lines_that_build_it(name):
    with pytest.raises(ImportError, match=f"rlcatalog_sb3 has no {name}; .* Write:") as caught:
        exec(f"from rlcatalog_sb3 import {name}")

    _, _, lines = str(caught.value).partition("Write:\n")
    variables = {"env": "Pendulum-v1" if name == "SAC" else "CartPole-v1"}
    exec(lines, variables)
    assert type(variables["model"]).__name__ == name


def test_importing_an_unknown_name_is_an_import_error():
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from rlcatalog_sb3 import Nothing  # noqa: F401
