"""A policy: its actions and values, its state, and how it is built."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import Policy, ViewRequirement
from rlcatalog.errors import (
    ConfigError,
    MissingFrameworkError,
    MissingPluginError,
    NonFiniteError,
    NotServedError,
    ObservationError,
    UnsupportedSpaceError,
)
from rlcatalog.models import SeparateValue
from rlcatalog.plugins import install_hint
from rlcatalog_policy import Frozen, config_with_model
from rlcatalog_policy.extensions import load_extension
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)
THREE_ACTIONS = spaces.Discrete(3)
SMALL = {"fcnet_hiddens": [2]}
SMALL_LSTM = {"fcnet_hiddens": [2], "use_lstm": True, "lstm_cell_size": 2}
TWO_OBS = np.float32([[0.5, -0.5], [1, 0]])


@pytest.fixture
def policy():
    return rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, SMALL, "torch")


@pytest.fixture
def lstm_policy():
    return rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, SMALL_LSTM, "torch")


class UniformWithoutValue(TorchModelV2):
    """Gives all actions the same probability, and has no value function."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        return torch.zeros(len(input_dict["obs_flat"]), self.num_outputs) * self.scale, state


@pytest.fixture
def uniform_policy():
    return rlcatalog.build(
        TWO_FEATURES, THREE_ACTIONS, {"custom_model": UniformWithoutValue}, "torch"
    )


class WithCustomLoss(FullyConnectedNetwork):
    """A model that overrides `custom_loss`."""

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss


# --- actions and values ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_frozen", [False, True], ids=["policy", "frozen"])
@pytest.mark.parametrize("method", ["act", "act_encoded"])
def test_act_samples_actions_only_if_it_explores(uniform_policy, is_frozen, method):
    actor = Frozen(uniform_policy, None) if is_frozen else uniform_policy
    act = getattr(actor, method)
    many_rows = np.zeros((200, 2), np.float32)

    sampled = act(many_rows).raw_action[:, 0]
    greedy = act(many_rows, explore=False).raw_action[:, 0]

    assert set(sampled) == {0, 1, 2}
    assert len(set(greedy)) == 1


def test_values_are_those_of_act(policy):
    assert policy.has_value
    np.testing.assert_array_equal(policy.values(TWO_OBS), policy.act(TWO_OBS).value)


def test_values_without_value_function_are_an_error(uniform_policy):
    assert not uniform_policy.has_value
    assert uniform_policy.act(TWO_OBS).value is None
    with pytest.raises(NotServedError, match=r"^values: .* has no value_function\(\)\.$") as caught:
        uniform_policy.values(TWO_OBS)
    assert "UniformWithoutValue" in str(caught.value)


def test_values_of_wrong_shape_are_rejected(policy):
    with pytest.raises(ObservationError, match=r"encoded observations of shape \[B, 2\]"):
        policy.values(TWO_OBS[0])


def test_values_that_are_nan_are_rejected(policy):
    weights = policy.model.get_weights()
    policy.model.set_weights({name: array + np.nan for name, array in weights.items()})

    with pytest.raises(NonFiniteError, match="row 0 of 2: its value estimate is NaN"):
        policy.values(TWO_OBS)


def test_random_state_restores_sampled_actions(policy):
    rows = np.zeros((64, 2))
    state = policy.random_state()
    first = policy.act(rows).raw_action
    second = policy.act(rows).raw_action

    policy.set_random_state(state)

    assert (first != second).any()
    np.testing.assert_array_equal(policy.act(rows).raw_action, first)


# --- evaluating batches ---------------------------------------------------------------------------


def make_batch(policy, *, obs=TWO_OBS):
    return {"obs": obs, "raw_action": policy.act(TWO_OBS).raw_action}


def test_evaluate_computes_entropy_unless_told_not_to(policy):
    batch = make_batch(policy)

    assert policy.evaluate(batch).entropy is not None
    assert policy.evaluate(batch, entropy=False).entropy is None


def test_evaluate_rejects_nan_unless_told_not_to_check(policy):
    batch = make_batch(policy, obs=TWO_OBS * np.nan)

    with pytest.raises(NonFiniteError):
        policy.evaluate(batch)
    policy.evaluate(batch, check=False)


# --- the model ------------------------------------------------------------------------------------


def test_critic_without_a_value_function_estimates_no_value():
    config = {**SMALL, "critic": {"custom_model": UniformWithoutValue}}

    policy = rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, config, "torch")

    assert not policy.has_value
    assert policy.act(TWO_OBS).value is None


def test_overrides_finds_methods_of_the_model(policy):
    assert policy.overrides("forward")
    assert not policy.overrides("custom_loss")


def test_overrides_finds_a_function_assigned_to_the_model():
    policy = rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, SMALL, "torch")
    policy.model.custom_loss = lambda policy_loss, loss_inputs: policy_loss

    assert policy.overrides("custom_loss")
    assert not policy.overrides("update_ops")


def test_overrides_finds_methods_of_an_inner_model():
    config = {**SMALL_LSTM, "custom_model": WithCustomLoss}

    policy = rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, config, "torch")

    # The LSTM is the outer model, and the custom model lies inside it.
    assert type(policy.model).custom_loss is not WithCustomLoss.custom_loss
    assert policy.overrides("custom_loss")


@pytest.mark.parametrize(
    ("critic", "has_custom_loss"), [({}, False), ({"custom_model": WithCustomLoss}, True)], ids=str
)
def test_overrides_looks_at_both_sides_of_a_critic(critic, has_custom_loss):
    policy = rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, {**SMALL, "critic": critic}, "torch")

    # The model of both sides passes the loss on, which is not a loss of its own.
    assert policy.overrides("custom_loss") is has_custom_loss


def test_model_name_is_that_of_the_class(policy):
    assert policy.model_name == "FullyConnectedNetwork"


def test_model_name_with_separate_value_is_that_of_the_trunk():
    policy = rlcatalog.build(
        TWO_FEATURES, THREE_ACTIONS, {**SMALL_LSTM, "vf_share_layers": False}, "torch"
    )

    assert isinstance(policy.model, SeparateValue)
    assert policy.model_name == type(policy.model.trunk).__name__
    assert policy.model_name != "SeparateValue"


def test_stored_dist_is_the_distribution_class(policy):
    assert policy.stored_dist is policy.dist_class


def test_stored_dist_of_autoregressive_policy_scores_actions():
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)])
    policy = rlcatalog.build(TWO_FEATURES, pair, {"use_autoregressive": True}, "torch")
    step = policy.act(TWO_OBS)

    dist = policy.stored_dist(torch.tensor(step.dist_inputs), policy.model)
    logp = dist.logp(torch.tensor(step.raw_action))

    assert policy.stored_dist is not policy.dist_class
    np.testing.assert_allclose(logp.detach(), step.logp, rtol=1e-4, atol=1e-5)


# --- states ---------------------------------------------------------------------------------------


def test_policy_without_memory_has_no_state(policy):
    assert policy.initial_state(2) is None
    assert policy.restart(None, [0]) is None
    assert len(policy.as_module()(torch.zeros(2, 2))) == 2  # outputs and value


def test_policy_with_memory_returns_its_state(lstm_policy):
    initial = lstm_policy.initial_state(2)
    after_a_step = lstm_policy.act(TWO_OBS).state

    assert not any(part.any() for part in initial.memory)
    assert all(part.any() for part in after_a_step.memory)
    assert len(lstm_policy.as_module()(torch.zeros(2, 2))) == 3  # outputs, value and state


# --- inputs of the backend ------------------------------------------------------------------------


class ReadsPreviousObservation(TorchModelV2):
    """Reads a window of this observation and the one before."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = torch.nn.Linear(2, self.num_outputs)
        self.view_requirements["window"] = ViewRequirement("obs", shift="-1:0", space=TWO_FEATURES)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["window"][:, 0]), state


def test_backend_inputs_have_observations_and_mask(policy):
    inputs = policy.backend_inputs(TWO_OBS, mask=np.array([[1, 0, 1], [0, 1, 0]]))

    assert inputs["obs"] is TWO_OBS
    assert inputs["mask"].tolist() == [[True, False, True], [False, True, False]]
    assert inputs["views"] == {}
    assert inputs["memory"] == ()


def test_backend_inputs_without_mask_have_none(policy):
    assert policy.backend_inputs(TWO_OBS)["mask"] is None


def test_backend_inputs_keep_tensors_and_their_gradients(policy):
    tensor = torch.from_numpy(TWO_OBS)

    assert policy.backend_inputs(tensor)["obs"] is tensor
    assert policy.backend_inputs(tensor.clone().requires_grad_())["obs"].requires_grad


def test_backend_inputs_have_views_of_the_past():
    policy = rlcatalog.build(
        TWO_FEATURES, THREE_ACTIONS, {"custom_model": ReadsPreviousObservation}, "torch"
    )
    state = policy.act(TWO_OBS).state
    next_rows = (torch.from_numpy(TWO_OBS) + 1).requires_grad_()  # NumPy cannot read it

    inputs = policy.backend_inputs(next_rows, state)

    # The window is the observation before, and this one.
    np.testing.assert_array_equal(inputs["views"]["window"], np.stack([TWO_OBS, TWO_OBS + 1], 1))
    assert isinstance(inputs["obs"], torch.Tensor)


# --- missing packages -----------------------------------------------------------------------------


def test_policy_of_missing_framework_error_names_extra(policy, monkeypatch):
    from rlcatalog.frameworks import frameworks

    monkeypatch.setattr(type(frameworks()["torch"]), "is_installed", property(lambda spec: False))

    with pytest.raises(MissingFrameworkError) as caught:
        Policy(policy.catalog, policy.resolution, TWO_FEATURES, THREE_ACTIONS, policy.model)

    assert install_hint("rlcatalog[torch]") in str(caught.value)


def test_load_extension_returns_the_code_of_a_framework():
    assert callable(load_extension("torch", "policy_module"))


def test_load_extension_of_unknown_name_is_an_error():
    with pytest.raises(MissingPluginError, match="no installed package supports") as caught:
        load_extension("torch", "nonesuch")

    assert str(caught.value).endswith("for framework='torch'")


def test_load_extension_error_says_what_to_install(monkeypatch):
    from rlcatalog.frameworks import frameworks

    assert frameworks()["torch"].target("freeze") is not None
    monkeypatch.setattr(type(frameworks()["torch"]), "target", lambda spec, what: None)

    with pytest.raises(MissingPluginError, match="no installed package supports") as caught:
        load_extension("torch", "freeze")

    assert str(caught.value).endswith(install_hint("rlcatalog-export[torch]"))


# --- building -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observation_space", "action_space"),
    [
        pytest.param(None, None, id="no-space"),
        pytest.param(TWO_FEATURES, None, id="no-action-space"),
        pytest.param(None, THREE_ACTIONS, id="no-observation-space"),
    ],
)
def test_build_without_a_space_is_an_error(observation_space, action_space):
    with pytest.raises(UnsupportedSpaceError, match="an action space, or env="):
        rlcatalog.build(observation_space, action_space, SMALL, "torch")


def test_build_takes_the_spaces_of_an_environment():
    policy = rlcatalog.build(env="CartPole-v1", config=SMALL, framework="torch")

    assert policy.observation_space.shape == (4,)
    assert policy.catalog is rlcatalog.default_catalog()


def test_build_uses_the_given_catalog(catalog):
    policy = rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, SMALL, "torch", catalog=catalog)

    assert policy.catalog is catalog


def test_config_with_model_without_a_model_returns_the_config():
    assert config_with_model(SMALL, None) is SMALL
    assert config_with_model(None, None) is None


@pytest.mark.parametrize(
    ("config", "model", "expected"),
    [
        pytest.param(None, "fcnet", {"custom_model": "fcnet"}, id="no-config"),
        pytest.param({}, "fcnet", {"custom_model": "fcnet"}, id="empty-config"),
        pytest.param(
            SMALL, WithCustomLoss, {**SMALL, "custom_model": WithCustomLoss}, id="other-keys"
        ),
        pytest.param(
            {"custom_model": None}, WithCustomLoss, {"custom_model": WithCustomLoss}, id="key-none"
        ),
        pytest.param(
            {"custom_model": "fcnet"}, "fcnet", {"custom_model": "fcnet"}, id="same-model"
        ),
    ],
)
def test_config_with_model_sets_custom_model(config, model, expected):
    assert config_with_model(config, model) == expected


def test_config_with_model_rejects_two_models():
    with pytest.raises(ConfigError, match="are both given") as caught:
        config_with_model({"custom_model": "fcnet"}, "lstm")

    assert "model='lstm' and custom_model='fcnet' " in str(caught.value)


def test_config_with_model_rejects_a_dict_as_model():
    with pytest.raises(ConfigError, match="found a dictionary") as caught:
        config_with_model(None, {"a": 1}, "cfg({})")

    assert "Pass keys of the model config as cfg({'a': 1})" in str(caught.value)
