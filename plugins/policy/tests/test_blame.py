"""Errors inside plugins' parts: who is named, for which method; and distributions against their
declarations.
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

OBS, THREE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
SMALL = {"fcnet_hiddens": [2]}
INSTALLED = [f"rlcatalog-{name}" for name in ("preprocessors", "fcnet", "categorical")]


@pytest.fixture(scope="module")
def policy():
    return rlcatalog.build(OBS, THREE, SMALL, "torch")


def refused(match, call, *arguments):
    with pytest.raises(ModelContractError, match=match) as caught:
        call(*arguments)
    return str(caught.value)


# --- who is to blame ------------------------------------------------------------------------------


class Acme(FullyConnectedNetwork):
    """A model of a plugin, which fails on request."""

    fails = None

    def forward(self, input_dict, state, seq_lens):
        if self.fails is not None:
            raise self.fails
        return super().forward(input_dict, state, seq_lens)


@pytest.fixture
def acme():
    spec = ModelSpec("net", {"torch": f"{__name__}:Acme"}, "")
    point = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme-nets")
    catalog = isolated_catalog(*INSTALLED, point)
    return rlcatalog.build(OBS, THREE, {"custom_model": "acme-nets/net"}, "torch", catalog=catalog)


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit("stop"), TypeError("wrong")], ids=repr
)
def test_error_inside_a_plugins_part_names_it(acme, error):
    acme.model.fails = error
    with pytest.raises(
        PartError,
        match=r"acme-nets 1\.0.*forward\(\) raised .*(broken|stop|wrong).*\(at .*\.py:\d+\)",
    ):
        acme.act(np.zeros((1, 2), np.float32))
    with pytest.raises(PartError, match="forward"):
        acme.values(np.zeros((1, 2), np.float32))


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), GeneratorExit(), ModelContractError("typed")], ids=repr
)
def test_interrupts_and_typed_errors_stay_as_they_are(acme, error):
    acme.model.fails = error
    with pytest.raises(type(error)) as caught:
        acme.act(np.zeros((1, 2), np.float32))
    assert caught.value is error


def test_error_outside_names_the_part_that_returned_the_value(acme, policy):
    with pytest.raises(
        PartError,
        match=r"acme-nets 1\.0.*: the policy failed on this part or its return value: ValueE",
    ):
        acme.contract.blame(ValueError("outside"))
    policy.contract.blame(ValueError("outside"))  # no plugin's part: the error stays
    with pytest.raises(ValueError, match="outside"), policy.contract.blaming():
        raise ValueError("outside")
    with pytest.raises(PartError), acme.contract.blaming():
        raise ValueError("outside")


@pytest.mark.parametrize(
    ("method", "count", "function"),
    [
        ("forward", 3, lambda self, input_dict: None),
        ("get_initial_state", 0, lambda self, rows: []),
        ("value_function", 0, lambda self, features: None),
    ],
)
def test_models_method_with_other_arguments_is_named(method, count, function):
    cls = type("Odd", (FullyConnectedNetwork,), {})
    policy = rlcatalog.build(OBS, THREE, {**SMALL, "custom_model": cls}, "torch")
    policy.contract.blame(TypeError("missing"))
    setattr(cls, method, function)
    message = refused(
        "cannot be called as the contract requires", policy.contract.blame, TypeError("missing")
    )
    assert message.startswith(
        f"Odd.{method}() cannot be called as the contract requires, with {count} arguments: it"
        " takes ("
    )
    assert message.endswith("TypeError: missing")


def test_inner_model_may_have_values_of_another_kind():
    cls = type("Odd", (FullyConnectedNetwork,), {})
    config = {**SMALL, "custom_model": cls, "use_lstm": True, "lstm_cell_size": 2}
    policy = rlcatalog.build(OBS, THREE, config, "torch")
    cls.value_function = lambda self, features: None
    policy.contract.blame(TypeError("missing"))
    cls.forward = lambda self, input_dict: None
    refused(r"^Odd\.forward\(\) cannot be called", policy.contract.blame, TypeError("missing"))


@pytest.mark.parametrize(
    ("method", "count", "function"),
    [
        ("sample", 1, lambda self, n: None),
        ("deterministic_sample", 1, lambda self, n: None),
        ("logp", 2, lambda self: 0),
        ("entropy", 1, lambda self, n: None),
        ("kl", 2, lambda self: None),
        ("kl", 2, lambda self, a, b: None),
    ],
)
def test_distributions_method_with_other_arguments_is_named(method, count, function):
    cls = type("Odd", (Categorical,), {})
    policy = rlcatalog.build(OBS, THREE, {**SMALL, "custom_action_dist": cls}, "torch")
    policy.contract.blame(TypeError("missing"))
    setattr(cls, method, function)
    message = refused(
        "cannot be called as the contract requires", policy.contract.blame, TypeError("missing")
    )
    assert message.startswith(
        f"Odd.{method}() cannot be called as the contract requires, with {count} arguments: it"
        " takes ("
    )
    policy.contract.blame(ValueError("another kind of error: signatures are not looked at"))


def test_models_inside_a_model_are_found():
    policy = rlcatalog.build(OBS, THREE, {**SMALL, "use_lstm": True, "lstm_cell_size": 2}, "torch")
    chain = model_chain(policy.model)
    assert chain[0] is policy.model
    assert FullyConnectedNetwork in map(type, chain)
    assert len({id(model) for model in chain}) == len(chain) >= 2
    assert all(isinstance(model, ModelV2) for model in chain)
    assert model_chain(None) == model_chain("text") == []


# --- distributions against their declarations -----------------------------------------------------


@pytest.mark.parametrize(
    ("members", "match"),
    [
        (
            {"required_model_output_shape": staticmethod(lambda space, config=None: 4)},
            r"it takes 3 inputs for Discrete\(3\)|it takes 3 inputs for Discrete",
        ),
        (
            {"__init__": lambda self, inputs: None},
            r"Odd\.__init__ is called with \(inputs, model\), but takes \(inputs\)",
        ),
        (
            {"required_model_output_shape": staticmethod(lambda space, config=None: 1 / 0)},
            "_model_output_shape.*Zero",
        ),
        ({"required_model_output_shape": staticmethod(lambda space, config=None: (3, 1))}, None),
        ({}, None),
    ],
)
def test_plugins_distribution_matches_its_declaration(module, members, match):
    module(Odd=type("Odd", (Categorical,), members))
    spec = ActionDistSpec(
        "odd",
        {"torch": "made_up_parts:Odd"},
        "",
        match=lambda request: Match(Rank.SPECIFIC, "any"),
        size=lambda action, config: 3,
    )
    point = PluginEntryPoint(plugin_of(rlcatalog_action_dists=[spec]), "acme-odd")
    catalog = isolated_catalog(*INSTALLED, point, prefer=["acme-odd"])
    if match is None:
        assert (
            rlcatalog.build(OBS, THREE, SMALL, "torch", catalog=catalog).dist_class.__name__
            == "Odd"
        )
        return
    with pytest.raises(PartError, match=match) as caught:
        rlcatalog.build(OBS, THREE, SMALL, "torch", catalog=catalog)
    assert "acme-odd" in str(caught.value)
