"""The contract on paper: what a model is built around is known, whatever its
constructor calls it.

Crosses: policy, torch, tf.
"""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
from planted import MODULE, Fault, catalog_of
from planted_parts import sound

import rlcatalog
from rlcatalog.errors import ModelContractError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

both = pytest.mark.parametrize("framework", ["torch", "tf"])
OBS = np.zeros((3, 4), np.float32)


@pytest.fixture(autouse=True)
def alone():
    yield
    sys.modules.pop(MODULE, None)


def built(framework, around, kind="memory", **config):
    """Build a policy of a part of another plugin around a trunk with a loss, metrics and update_ops
    of its own.
    """

    class Trunk(sound("model", framework)):
        def custom_loss(self, policy_loss, loss_inputs):
            return policy_loss + 5

        def metrics(self):
            return {"seen": 7}

        def update_ops(self):
            return [lambda: "updated"]

    fault = Fault("none", kind, around)
    return rlcatalog.build(
        fault.obs,
        fault.action,
        {"custom_model": Trunk, **config},
        framework,
        catalog=catalog_of(fault, framework),
    )


def renamed(base):
    """The trunk is `self.body`, as `planted` writes its memory and its head."""
    return base


def concealed(base):
    """The trunk stands where nobody looks for it."""

    class Concealed(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            body = self.body
            del self.body
            self.show = lambda: body

        def __getattr__(self, name):
            if name == "body" and "show" in self.__dict__:
                return self.show()
            above = getattr(super(), "__getattr__", None)
            if above is None:
                raise AttributeError(name)
            return above(name)

    return Concealed


def silent(base):
    """Another's `inner_models` that does not speak of the trunk."""
    return type("Silent", (base,), {"inner_models": lambda self: {}})


@pytest.mark.grid
@both
@pytest.mark.parametrize("around", [renamed, concealed, silent])
@pytest.mark.parametrize("kind", ["memory", "head"])
def test_loss_metrics_and_update_ops_of_the_trunk_count(framework, around, kind):
    model = built(framework, around, kind).model
    assert model.custom_loss(1, {}) == 6
    assert [value for name, value in model.metrics().items() if name.endswith("seen")] == [7]
    assert [operation() for operation in model.update_ops()] == ["updated"]


def _own(base, custom_loss=None, metrics=None, update_ops=None):
    def loss_by_itself(self, policy_loss, loss_inputs):
        return policy_loss * 2

    own = {
        "custom_loss": custom_loss or loss_by_itself,
        "metrics": metrics or (lambda self: {"own": 1}),
        "update_ops": update_ops or (lambda self: [lambda: "own"]),
    }
    return type("Own", (base,), own)


def by_itself(base):
    """Overrides that do not think of the trunk."""
    return _own(base)


def by_super(base):
    """Overrides that ask the base's, which ask the trunk."""
    return _own(
        base,
        lambda self, loss, inputs: base.custom_loss(self, loss * 2, inputs),
        lambda self: {"own": 1, **base.metrics(self)},
        lambda self: [lambda: "own", *base.update_ops(self)],
    )


def by_the_trunk(base):
    """Overrides that ask the trunk themselves."""
    return _own(
        base,
        lambda self, loss, inputs: self.body.custom_loss(loss * 2, inputs),
        lambda self: {"own": 1, **self.body.metrics()},
        lambda self: [lambda: "own", *self.body.update_ops()],
    )


@pytest.mark.grid
@both
@pytest.mark.parametrize("around", [by_itself, by_super, by_the_trunk])
@pytest.mark.parametrize("kind", ["memory", "head"])
def test_what_the_trunk_says_counts_once_whatever_an_override_asks(framework, around, kind):
    model = built(framework, around, kind).model
    for _ in range(2):
        assert model.custom_loss(1, {}) == 7
        assert model.metrics() == {"own": 1, "seen": 7}
        assert [operation() for operation in model.update_ops()] == ["own", "updated"]


@both
def test_weights_of_a_concealed_trunk_are_found_trained_and_set(framework):
    policy, open_one = built(framework, concealed), built(framework, renamed)
    weights = policy.model.get_weights()
    assert len(weights) == len(open_one.model.get_weights())
    assert len(policy.model.trainable_variables()) == len(open_one.model.trainable_variables())
    hidden = {name for name in weights if "body" not in name and "_rlcatalog_trunk" in name}
    assert {name.rpartition("_rlcatalog_trunk.")[2] for name in hidden} >= {
        "hidden.weight",
        "hidden.bias",
    }
    before = policy.act(OBS, explore=False)
    policy.model.set_weights({name: np.zeros_like(array) for name, array in weights.items()})
    assert not policy.act(OBS, explore=False).dist_inputs.any()
    policy.model.set_weights(weights)
    np.testing.assert_array_equal(policy.act(OBS, explore=False).dist_inputs, before.dist_inputs)


def test_a_copy_of_a_model_holds_a_copy():
    policy = built("torch", renamed)
    model = copy.deepcopy(policy.model)
    assert model.inner_models()[""] is model.body is not policy.model.body


@both
def test_a_trunk_inside_a_memory_inside_a_head_counts_once(framework):
    model = built(framework, renamed, "head", use_lstm=True, lstm_cell_size=3).model
    assert model.custom_loss(1, {}) == 6
    assert len(model.update_ops()) == 1


def forgetful(base):
    """A head that carries no state."""
    return type("Forgetful", (base,), {"get_initial_state": lambda self: []})


@both
def test_a_head_that_would_forget_its_trunk_s_state_is_refused(framework):
    assert not built(framework, forgetful, "head").memory
    with pytest.raises(
        ModelContractError,
        match=r"get_initial_state\(\) \(.*acme-planted.*returned 0 tensors.*LSTMWrapper",
    ):
        built(framework, forgetful, "head", use_lstm=True)
