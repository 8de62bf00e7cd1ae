"""Errors inside the parts of plugins: which part and method the message names, and distributions
that do not match their declarations.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import ActionDistSpec, Match, ModelSpec, Rank
from rlcatalog.errors import ModelContractError, PartError
from rlcatalog.models import ModelV2
from rlcatalog_policy.contract_checker import model_chain
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_torch import Categorical, FullyConnectedNetwork

OBS = spaces.Box(-1, 1, (2,), np.float32)
THREE = spaces.Discrete(3)
SMALL = {"fcnet_hiddens": [2]}
SMALL_LSTM = {"fcnet_hiddens": [2], "use_lstm": True, "lstm_cell_size": 2}
ONE_OBSERVATION = np.zeros((1, 2), np.float32)
INSTALLED = ["rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical"]


# --- errors inside a plugin's model ---------------------------------------------------------------


class FailingModel(FullyConnectedNetwork):
    """A model that raises `error`, if there is one."""

    error = None

    def forward(self, input_dict, state, seq_lens):
        if self.error is not None:
            raise self.error
        return super().forward(input_dict, state, seq_lens)


@pytest.fixture
def acme_policy():
    """A policy with the model `FailingModel` of the plugin acme-nets 1.0."""
    spec = ModelSpec("net", {"torch": f"{__name__}:FailingModel"}, "")
    point = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme-nets")
    catalog = isolated_catalog(*INSTALLED, point)
    return rlcatalog.build(OBS, THREE, {"custom_model": "acme-nets/net"}, "torch", catalog=catalog)


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit("broken"), TypeError("broken")], ids=repr
)
def test_error_in_act_names_the_plugin_and_the_line(acme_policy, error):
    acme_policy.model.error = error

    with pytest.raises(
        PartError, match=r"forward\(\) raised .*broken.*\(at .*\.py:\d+\)"
    ) as caught:
        acme_policy.act(ONE_OBSERVATION)

    assert "acme-nets 1.0" in str(caught.value)


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit("broken"), TypeError("broken")], ids=repr
)
def test_error_in_values_names_the_method(acme_policy, error):
    acme_policy.model.error = error

    with pytest.raises(PartError, match="forward"):
        acme_policy.values(ONE_OBSERVATION)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), GeneratorExit(), ModelContractError("typed")], ids=repr
)
def test_interrupts_and_typed_errors_are_not_replaced(acme_policy, error):
    acme_policy.model.error = error

    with pytest.raises(type(error)) as caught:
        acme_policy.act(ONE_OBSERVATION)

    assert caught.value is error


def test_error_outside_of_the_part_blames_its_return_value(acme_policy):
    # No frame of the plugin is in the traceback.
    with pytest.raises(PartError, match="failed on this part or its return value") as caught:
        acme_policy.contract.blame(ValueError("outside"))

    message = str(caught.value)
    assert "acme-nets 1.0" in message
    assert ": the policy failed on this part or its return value: ValueE" in message


def test_blaming_replaces_errors_of_its_block(acme_policy):
    with pytest.raises(PartError), acme_policy.contract.blaming():
        raise ValueError("outside")


def test_errors_are_not_replaced_without_third_party_parts():
    policy = rlcatalog.build(OBS, THREE, SMALL, "torch")

    policy.contract.blame(ValueError("outside"))  # raises nothing
    with pytest.raises(ValueError, match="outside"), policy.contract.blaming():
        raise ValueError("outside")


# --- methods with other arguments -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "count", "wrong_method"),
    [
        ("forward", 3, lambda self, input_dict: None),
        ("get_initial_state", 0, lambda self, rows: []),
        ("value_function", 0, lambda self, features: None),
    ],
)
def test_type_error_names_a_model_method_with_wrong_arguments(method, count, wrong_method):
    class OddModel(FullyConnectedNetwork):
        pass

    policy = rlcatalog.build(OBS, THREE, {**SMALL, "custom_model": OddModel}, "torch")
    policy.contract.blame(TypeError("missing"))  # raises nothing: all methods are as required

    setattr(OddModel, method, wrong_method)
    with pytest.raises(
        ModelContractError, match="cannot be called as the contract requires"
    ) as error:
        policy.contract.blame(TypeError("missing"))

    message = str(error.value)
    assert message.startswith(
        f"OddModel.{method}() cannot be called as the contract requires, with {count} arguments:"
        " it takes ("
    )
    assert message.endswith("TypeError: missing")


@pytest.fixture
def inner_model_class():
    """A model class of its own for each test, which the test may change."""

    class InnerModel(FullyConnectedNetwork):
        pass

    return InnerModel


def test_inner_model_may_have_another_value_function(inner_model_class):
    config = {**SMALL_LSTM, "custom_model": inner_model_class}
    policy = rlcatalog.build(OBS, THREE, config, "torch")

    def value_function(self, features):
        return None

    inner_model_class.value_function = value_function

    policy.contract.blame(TypeError("missing"))  # raises nothing: the LSTM computes the values


def test_type_error_names_an_inner_model_with_another_forward(inner_model_class):
    config = {**SMALL_LSTM, "custom_model": inner_model_class}
    policy = rlcatalog.build(OBS, THREE, config, "torch")

    def forward(self, input_dict):
        return None

    inner_model_class.forward = forward

    with pytest.raises(ModelContractError, match=r"^InnerModel\.forward\(\) cannot be called"):
        policy.contract.blame(TypeError("missing"))


@pytest.mark.parametrize(
    ("method", "count", "wrong_method"),
    [
        # The counts include self.
        ("sample", 1, lambda self, n: None),
        ("deterministic_sample", 1, lambda self, n: None),
        ("logp", 2, lambda self: 0),
        ("entropy", 1, lambda self, n: None),
        ("kl", 2, lambda self: None),
        ("kl", 2, lambda self, a, b: None),
    ],
)
def test_type_error_names_a_dist_method_with_wrong_arguments(method, count, wrong_method):
    class OddDist(Categorical):
        pass

    policy = rlcatalog.build(OBS, THREE, {**SMALL, "custom_action_dist": OddDist}, "torch")
    policy.contract.blame(TypeError("missing"))  # raises nothing: all methods are as required

    setattr(OddDist, method, wrong_method)
    with pytest.raises(
        ModelContractError, match="cannot be called as the contract requires"
    ) as error:
        policy.contract.blame(TypeError("missing"))

    assert str(error.value).startswith(
        f"OddDist.{method}() cannot be called as the contract requires, with {count} arguments:"
        " it takes ("
    )


def test_signatures_are_not_checked_after_other_errors():
    class OddDist(Categorical):
        pass

    policy = rlcatalog.build(OBS, THREE, {**SMALL, "custom_action_dist": OddDist}, "torch")

    def sample(self, n):
        return None

    OddDist.sample = sample

    policy.contract.blame(ValueError("no TypeError"))  # raises nothing


def test_model_chain_lists_a_model_and_those_inside():
    policy = rlcatalog.build(OBS, THREE, SMALL_LSTM, "torch")

    chain = model_chain(policy.model)

    assert chain[0] is policy.model
    assert FullyConnectedNetwork in [type(model) for model in chain]
    assert len(chain) >= 2
    assert len({id(model) for model in chain}) == len(chain)  # each is listed once
    assert all(isinstance(model, ModelV2) for model in chain)


@pytest.mark.parametrize("value", [None, "text"])
def test_model_chain_of_another_value_is_empty(value):
    assert model_chain(value) == []


# --- distributions against their declarations -----------------------------------------------------


@pytest.fixture
def build_with_dist(module):
    """Build a policy with a distribution that a plugin declares for three inputs."""

    def build(dist_class):
        module(Declared=dist_class)
        spec = ActionDistSpec(
            "declared",
            {"torch": "made_up_parts:Declared"},
            "",
            match=lambda request: Match(Rank.SPECIFIC, "any"),
            size=lambda action, config: 3,
        )
        point = PluginEntryPoint(plugin_of(rlcatalog_action_dists=[spec]), "acme-odd")
        catalog = isolated_catalog(*INSTALLED, point, prefer=["acme-odd"])
        return rlcatalog.build(OBS, THREE, SMALL, "torch", catalog=catalog)

    return build


class InheritsShape(Categorical):
    """A distribution that says nothing about its number of inputs."""


class NeedsThreeInputs(Categorical):
    @staticmethod
    def required_model_output_shape(space, config=None):
        return (3, 1)


@pytest.mark.parametrize("dist_class", [InheritsShape, NeedsThreeInputs])
def test_dist_that_matches_its_declaration_is_built(build_with_dist, dist_class):
    assert build_with_dist(dist_class).dist_class is dist_class


class NeedsFourInputs(Categorical):
    @staticmethod
    def required_model_output_shape(space, config=None):
        return 4


class TakesNoModel(Categorical):
    def __init__(self, inputs):
        super().__init__(inputs, None)


class FailingShape(Categorical):
    @staticmethod
    def required_model_output_shape(space, config=None):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("dist_class", "match"),
    [
        (NeedsFourInputs, "it takes 3 inputs for Discrete"),
        (TakesNoModel, r"__init__ is called with \(inputs, model\), but takes \(inputs\)"),
        (FailingShape, "required_model_output_shape.*ZeroDivisionError"),
    ],
)
def test_dist_that_does_not_match_its_declaration_is_an_error(build_with_dist, dist_class, match):
    with pytest.raises(PartError, match=match) as caught:
        build_with_dist(dist_class)

    assert "acme-odd" in str(caught.value)
