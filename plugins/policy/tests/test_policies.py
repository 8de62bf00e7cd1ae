"""Policies: what they pass on, to whom, and how they are copied and built."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import Policy, ViewRequirement
from rlcatalog.errors import (
    ActionMaskError,
    ConfigError,
    MissingColumnError,
    MissingFrameworkError,
    MissingPluginError,
    NonFiniteError,
    NotServedError,
    ObservationError,
    SavedPolicyError,
    UnsupportedSpaceError,
)
from rlcatalog.models import SeparateValue
from rlcatalog.plugins import install_hint
from rlcatalog_policy import Frozen, config_with_model
from rlcatalog_policy.policy import load_extension
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

OBS, THREE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
SMALL = {"fcnet_hiddens": [2]}
ROWS = np.float32([[0.5, -0.5], [1, 0]])


@pytest.fixture
def policy():
    return rlcatalog.build(OBS, THREE, SMALL, "torch")


class Valueless(TorchModelV2):
    """Even odds, without a value, and a weight in an inner model that has its own loss."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        return torch.zeros(len(input_dict["obs_flat"]), self.num_outputs) * self.scale, state


# --- what a policy is -----------------------------------------------------------------------------


def test_actions_are_drawn_unless_told_otherwise():
    policy = rlcatalog.build(OBS, THREE, {"custom_model": Valueless}, "torch")
    frozen, many = Frozen(policy, None), np.zeros((200, 2), np.float32)
    for call in (policy.act, policy.act_encoded, frozen.act, frozen.act_encoded):
        assert set(call(many).raw_action[:, 0]) == {0, 1, 2}
        assert len(set(call(many, explore=False).raw_action[:, 0])) == 1


def test_a_model_without_a_value_has_none(policy):
    without = rlcatalog.build(OBS, THREE, {"custom_model": Valueless}, "torch")
    assert policy.has_value
    assert not without.has_value
    with pytest.raises(NotServedError, match=r"^values: Valueless has no value_function\(\)\.$"):
        without.values(ROWS)
    assert without.act(ROWS).value is None


def test_values_are_checked(policy):
    np.testing.assert_array_equal(policy.values(ROWS), policy.act(ROWS).value)
    with pytest.raises(ObservationError, match=r"expected encoded observations of shape \[B, 2\]"):
        policy.values(ROWS[0])
    policy.model.set_weights(
        {name: array + np.nan for name, array in policy.model.get_weights().items()}
    )
    with pytest.raises(
        NonFiniteError,
        match="row 0 of 2: its value estimate is NaN: look at its observation, and at",
    ):
        policy.values(ROWS)


class Losing(FullyConnectedNetwork):
    """A model with a loss of its own."""

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss


def test_methods_that_a_model_or_an_inner_one_overrides_are_found(policy):
    assert not policy.overrides("custom_loss")
    assert policy.overrides("forward")
    config = {**SMALL, "custom_model": Losing, "use_lstm": True, "lstm_cell_size": 2}
    around = rlcatalog.build(OBS, THREE, config, "torch")
    assert type(around.model).custom_loss is not Losing.custom_loss
    assert around.overrides("custom_loss")


def test_a_separate_value_chain_does_not_give_a_model_its_name(policy):
    assert policy.model_name == "FullyConnectedNetwork"
    config = {**SMALL, "use_lstm": True, "lstm_cell_size": 2, "vf_share_layers": False}
    separate = rlcatalog.build(OBS, THREE, config, "torch")
    assert isinstance(separate.model, SeparateValue)
    assert (
        separate.model_name == type(separate.model.trunk).__name__ != type(separate.model).__name__
    )


def test_only_policies_with_a_memory_or_views_have_a_state(policy):
    assert policy.initial_state(2) is None
    assert policy.restart(None, [0]) is None
    carrying = rlcatalog.build(
        OBS, THREE, {**SMALL, "use_lstm": True, "lstm_cell_size": 2}, "torch"
    )
    state = carrying.act(ROWS).state
    assert all(part.any() for part in state.memory)
    assert not any(part.any() for part in carrying.initial_state(2).memory)
    again = carrying.restart(state, [1])
    for before, after in zip(state.memory, again.memory, strict=True):
        assert not after[1].any()
        np.testing.assert_array_equal(after[0], before[0])
    assert len(policy.as_module()(torch.zeros(2, 2))) == 2
    assert len(carrying.as_module()(torch.zeros(2, 2))) == 3


class Looking(TorchModelV2):
    """Reads this observation and the one before."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = torch.nn.Linear(2, self.num_outputs)
        self.view_requirements["before"] = ViewRequirement("obs", shift="-1:0", space=OBS)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["before"][:, 0]), state


def test_the_inputs_of_a_backend_are_those_of_a_step(policy):
    given = policy.backend_inputs(ROWS, mask=np.array([[1, 0, 1], [0, 1, 0]]))
    assert given["obs"] is ROWS
    assert given["mask"].tolist() == [[True, False, True], [False, True, False]]
    assert (given["views"], given["memory"]) == ({}, ())
    assert policy.backend_inputs(ROWS)["mask"] is None
    with pytest.raises(ActionMaskError, match=r"expected shape \(2, 3\)"):
        policy.backend_inputs(ROWS, mask=np.ones((1, 3)))
    tensor = torch.from_numpy(ROWS)
    assert policy.backend_inputs(tensor)["obs"] is tensor
    looking = rlcatalog.build(OBS, THREE, {"custom_model": Looking}, "torch")
    state = looking.act(ROWS).state
    given = looking.backend_inputs((tensor + 1).requires_grad_(), state)
    np.testing.assert_array_equal(given["views"]["before"], np.stack([ROWS, ROWS + 1], 1))
    assert isinstance(given["obs"], torch.Tensor)
    assert not policy.memory
    unchanged = policy.backend_inputs(tensor.clone().requires_grad_())
    assert unchanged["obs"].requires_grad  # nothing is read of it


def test_batches_are_checked_unless_told_otherwise(policy):
    step = policy.act(ROWS)
    batch = {"obs": ROWS, "raw_action": step.raw_action}
    assert policy.evaluate(batch).entropy is not None
    with pytest.raises(MissingColumnError):
        policy.evaluate({"obs": ROWS})
    wrong = {"obs": ROWS * np.nan, "raw_action": step.raw_action}
    with pytest.raises(NonFiniteError):
        policy.evaluate(wrong)
    policy.evaluate(wrong, check=False)
    assert policy.evaluate(batch, entropy=False).entropy is None


def test_distributions_are_rebuilt_by_the_class_that_stores_them(policy):
    assert policy.stored_dist is policy.dist_class
    pair = spaces.Tuple([THREE, spaces.Discrete(2)])
    joint = rlcatalog.build(OBS, pair, {**SMALL, "use_autoregressive": True}, "torch")
    assert joint.stored_dist is not joint.dist_class
    step = joint.act(ROWS)
    dist = joint.stored_dist(torch.from_numpy(np.array(step.dist_inputs)), joint.model)
    logp = dist.logp(torch.from_numpy(np.array(step.raw_action)))
    np.testing.assert_allclose(logp.detach().numpy(), step.logp, rtol=1e-4, atol=1e-5)


def test_random_states_are_restored(policy):
    state = policy.random_state()
    first, second = (policy.act(np.zeros((64, 2))).raw_action for _ in range(2))
    assert (first != second).any()
    policy.set_random_state(state)
    np.testing.assert_array_equal(policy.act(np.zeros((64, 2))).raw_action, first)


def test_a_policy_moves_with_its_weights(policy):
    assert policy.device == "cpu"
    assert policy.to("meta") is policy
    assert policy.device == "meta"
    assert {weight.device.type for weight in policy.model.parameters()} == {"meta"}


def test_a_framework_that_is_not_installed_is_named(policy, monkeypatch):
    from rlcatalog.frameworks import frameworks

    monkeypatch.setattr(type(frameworks()["torch"]), "is_installed", property(lambda spec: False))
    with pytest.raises(MissingFrameworkError, match=re.escape(install_hint("rlcatalog[torch]"))):
        Policy(policy.catalog, policy.resolution, OBS, THREE, policy.model)


def test_an_extension_that_no_package_adds_is_missing():
    with pytest.raises(MissingPluginError) as caught:
        load_extension("torch", "nonesuch")
    assert str(caught.value) == "no installed package supports this for framework='torch'"
    assert callable(load_extension("torch", "policy_module"))


def test_a_missing_extension_says_what_to_install(monkeypatch):
    from rlcatalog.frameworks import frameworks

    assert frameworks()["torch"].target("freeze") is not None
    monkeypatch.setattr(type(frameworks()["torch"]), "target", lambda spec, what: None)
    with pytest.raises(MissingPluginError) as caught:
        load_extension("torch", "freeze")
    assert str(caught.value) == (
        "no installed package supports this for framework='torch'."
        f" {install_hint('rlcatalog-export[torch]')}"
    )


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", [{}, {"observation_filter": "MeanStdFilter"}], ids=["plain", "filtered"]
)
def test_copies_have_the_same_numbers_and_statistics(config):
    policy = rlcatalog.build(OBS, THREE, {**SMALL, **config}, "torch")
    policy.preprocess(np.float32([[0.5, 1], [0.1, -1], [0.2, 0.9]]), update=True)
    memo = {}
    for other in (copy.deepcopy(policy, memo), pickle.loads(pickle.dumps(policy))):
        np.testing.assert_array_equal(other.act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs)
        np.testing.assert_array_equal(other.preprocess(ROWS), policy.preprocess(ROWS))
        assert other.config == policy.config
        assert other.model is not policy.model
        assert (other.filter is None) == (not config)
    assert memo[id(policy.model)] is not policy.model


def test_a_class_is_pickled_where_it_can_be_found_again(catalog):
    class Local(FullyConnectedNetwork):
        """A model inside a function."""

    catalog.register_model("losing", Losing)
    catalog.register_model("local", Local)
    policies = [
        rlcatalog.build(OBS, THREE, {**SMALL, "custom_model": name}, "torch", catalog=catalog)
        for name in ("losing", "local", Losing)
    ]
    other = pickle.loads(pickle.dumps(policies[0]))
    np.testing.assert_array_equal(other.act(ROWS).dist_inputs, policies[0].act(ROWS).dist_inputs)
    assert type(other.model) is Losing
    with pytest.raises(
        SavedPolicyError,
        match=r"^model 'local': the class .*Local cannot be imported from .*Define it at",
    ):
        pickle.dumps(policies[1])
    with pytest.raises(
        SavedPolicyError,
        match=r"the class Losing is in the config itself, so a policy with it cannot be",
    ):
        pickle.dumps(policies[2])


def test_a_pickle_keeps_the_models_that_were_chosen_for_parts_of_an_observation():
    space = spaces.Dict(a=OBS, b=spaces.Box(0, 255, (10, 10, 3), np.uint8))
    policy = rlcatalog.build(space, THREE, {"post_fcnet_hiddens": [2]}, "torch")
    pinned = policy.resolution.pinned_keys()
    assert pinned
    other = pickle.loads(pickle.dumps(policy))
    assert dict(other.resolution.config.given) == {**policy.resolution.config.given, **pinned}


def test_a_missing_plugin_is_named_before_its_config_keys(policy):
    state = policy.__reduce__()[1][1]
    state = {**state, "config": {**state["config"], "no_such_key": 1}}
    with pytest.raises(ConfigError, match="no_such_key"):
        policy.__reduce__()[0](Policy, state)
    pins = {**state["pins"], "parts": {"trunk": "absent/net"}}
    with pytest.raises(MissingPluginError, match="absent"):
        policy.__reduce__()[0](Policy, {**state, "pins": pins})
    weights = {
        name: array.astype(np.float64) for name, array in state["numbers"]["weights"].items()
    }
    numbers = {**state["numbers"], "weights": weights}
    config = policy.resolution.config.given
    with pytest.raises(
        SavedPolicyError,
        match=r"weights with a different dtype than the model is built with: .*float64 in",
    ):
        policy.__reduce__()[0](Policy, {**state, "config": config, "numbers": numbers})


# --- building -------------------------------------------------------------------------------------


def test_a_policy_needs_both_spaces():
    for spaces_given in ((None, None), (OBS, None), (None, THREE)):
        with pytest.raises(
            UnsupportedSpaceError, match="needs an observation space and an action space, or env="
        ):
            rlcatalog.build(*spaces_given, SMALL, "torch")
    other = rlcatalog.build(env="CartPole-v1", config=SMALL, framework="torch")
    assert other.observation_space.shape == (4,)
    assert other.catalog is rlcatalog.default_catalog()


def test_a_catalog_is_used_that_is_given(catalog):
    assert rlcatalog.build(OBS, THREE, SMALL, "torch", catalog=catalog).catalog is catalog


def test_a_model_is_named_once():
    assert config_with_model(SMALL, None) is SMALL
    assert config_with_model(None, None) is None
    assert (
        config_with_model(None, "fcnet")
        == config_with_model({}, "fcnet")
        == {"custom_model": "fcnet"}
    )
    assert config_with_model(SMALL, Losing) == {**SMALL, "custom_model": Losing}
    assert config_with_model({"custom_model": None}, Losing) == {"custom_model": Losing}
    assert config_with_model({"custom_model": "fcnet"}, "fcnet") == {"custom_model": "fcnet"}
    with pytest.raises(
        ConfigError, match=r"model='lstm' and custom_model='fcnet' are both given. Give one of them"
    ):
        config_with_model({"custom_model": "fcnet"}, "lstm")
    with pytest.raises(
        ConfigError, match=r"found a dictionary\. Pass keys of the model config as cfg\({'a': 1}\)"
    ):
        config_with_model(None, {"a": 1}, "cfg({})")
