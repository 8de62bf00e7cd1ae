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
from rlcatalog_policy.output_checker import model_chain
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_torch import Categorical, FullyConnectedNetwork

TWO_NUMBERS = spaces.Box(-1, 1, (2,), np.float32)
THREE_ACTIONS = spaces.Discrete(3)
ONE_OBSERVATION = np.zeros((1, 2), np.float32)
INSTALLED = ["rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical"]


def build_policy(**config):
    return rlcatalog.build(TWO_NUMBERS, THREE_ACTIONS, {"fcnet_hiddens": [2], **config}, "torch")


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
    config = {"custom_model": "acme-nets/net"}
    return rlcatalog.build(TWO_NUMBERS, THREE_ACTIONS, config, "torch", catalog=catalog)


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit("broken"), TypeError("broken")], ids=repr
)
def test_error_in_act_names_the_plugin_and_the_line(acme_policy, error):
    acme_policy.model.error = error

    with pytest.raises(PartError, match=r"raised .*broken.*\(at .*\.py:\d+\)") as caught:
        acme_policy.act(ONE_OBSERVATION)

    assert "acme-nets 1.0" in str(caught.value)


def test_error_in_values_names_the_method(acme_policy):
    acme_policy.model.error = ValueError("broken")

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
        acme_policy.output_checker.raise_if_part_at_fault(ValueError("outside"))

    assert "acme-nets 1.0" in str(caught.value)


def test_errors_of_a_named_block_are_replaced(acme_policy):
    with pytest.raises(PartError), acme_policy.output_checker.name_part_in_errors():
        raise ValueError("outside")


def test_errors_are_not_replaced_without_third_party_parts():
    policy = build_policy()

    policy.output_checker.raise_if_part_at_fault(ValueError("outside"))  # raises nothing
    with pytest.raises(ValueError, match="outside"), policy.output_checker.name_part_in_errors():
        raise ValueError("outside")


# --- methods with other arguments -----------------------------------------------------------------


def forward_without_state(self, input_dict):
    """A `forward` that takes one argument instead of three."""


def initial_state_for_rows(self, rows):
    """A `get_initial_state` that takes an argument."""


def value_of_features(self, features):
    """A `value_function` that takes an argument."""


@pytest.mark.parametrize(
    ("method", "wrong_method", "required"),
    [
        ("forward", forward_without_state, "with 3 arguments"),
        ("get_initial_state", initial_state_for_rows, "with 0 arguments"),
        ("value_function", value_of_features, "with 0 arguments"),
    ],
)
def test_type_error_names_a_model_method_with_wrong_arguments(method, wrong_method, required):
    class OddModel(FullyConnectedNetwork):
        pass

    policy = build_policy(custom_model=OddModel)
    setattr(OddModel, method, wrong_method)

    with pytest.raises(ModelContractError, match=rf"^OddModel\.{method}\(\) cannot be") as caught:
        # This is called after a part has raised an error, and looks for the cause.
        policy.output_checker.raise_if_part_at_fault(TypeError("missing"))

    assert f"as the contract requires, {required}: it takes (" in str(caught.value)
    assert str(caught.value).endswith("TypeError: missing")


def test_type_error_with_right_arguments_is_not_replaced():
    class MyModel(FullyConnectedNetwork):
        pass

    class MyDist(Categorical):
        pass

    policy = build_policy(custom_model=MyModel, custom_action_dist=MyDist)

    policy.output_checker.raise_if_part_at_fault(TypeError("missing"))  # raises nothing


def test_inner_model_may_have_another_value_function():
    class InnerModel(FullyConnectedNetwork):
        pass

    policy = build_policy(custom_model=InnerModel, use_lstm=True)
    InnerModel.value_function = value_of_features

    policy.output_checker.raise_if_part_at_fault(
        TypeError("missing")
    )  # raises nothing: the LSTM computes the values


def test_type_error_names_an_inner_model_with_another_forward():
    class InnerModel(FullyConnectedNetwork):
        pass

    policy = build_policy(custom_model=InnerModel, use_lstm=True)
    InnerModel.forward = forward_without_state

    with pytest.raises(ModelContractError, match=r"^InnerModel\.forward\(\) cannot be"):
        policy.output_checker.raise_if_part_at_fault(TypeError("missing"))


def takes_one_argument(self, x):
    """A method with one argument besides self."""


def takes_nothing(self):
    """A method without arguments."""


@pytest.mark.parametrize(
    ("method", "wrong_method", "required"),
    [
        # The required arguments include self.
        ("sample", takes_one_argument, "with 1 arguments"),
        ("deterministic_sample", takes_one_argument, "with 1 arguments"),
        ("entropy", takes_one_argument, "with 1 arguments"),
        ("logp", takes_nothing, "with 2 arguments"),
        ("kl", takes_nothing, "with 2 arguments"),
    ],
)
def test_type_error_names_a_dist_method_with_wrong_arguments(method, wrong_method, required):
    class OddDist(Categorical):
        pass

    policy = build_policy(custom_action_dist=OddDist)
    setattr(OddDist, method, wrong_method)

    with pytest.raises(ModelContractError, match=rf"^OddDist\.{method}\(\) cannot be") as caught:
        # This is called after a part has raised an error, and looks for the cause.
        policy.output_checker.raise_if_part_at_fault(TypeError("missing"))

    assert f"as the contract requires, {required}: it takes (" in str(caught.value)


def test_signatures_are_not_checked_after_other_errors():
    class OddDist(Categorical):
        pass

    policy = build_policy(custom_action_dist=OddDist)
    OddDist.sample = takes_one_argument

    policy.output_checker.raise_if_part_at_fault(ValueError("not a TypeError"))  # raises nothing


def test_model_chain_lists_a_model_and_those_inside():
    policy = build_policy(use_lstm=True)

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
        return rlcatalog.build(TWO_NUMBERS, THREE_ACTIONS, framework="torch", catalog=catalog)

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
        (TakesNoModel, r"\(inputs, model\), but takes \(inputs\)"),
        (FailingShape, "_output_shape.*ZeroDivisionError"),
    ],
)
def test_dist_that_does_not_match_its_declaration_is_an_error(build_with_dist, dist_class, match):
    with pytest.raises(PartError, match=match) as caught:
        build_with_dist(dist_class)

    assert "acme-odd" in str(caught.value)
