"""Models around a trunk: its loss, metrics, update_ops and weights count, wherever it is stored.

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

in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
around_each_kind = pytest.mark.parametrize("kind", ["memory", "head"])
THREE_ROWS = np.zeros((3, 4), np.float32)


@pytest.fixture(autouse=True)
def remove_planted_module():
    yield
    sys.modules.pop(MODULE, None)


def build_around_trunk(framework, around, kind="memory", **config):
    """Build a policy of a memory or head of another package around a custom trunk.

    The trunk adds 5 to the loss, and has the metric `seen` and an update operation.

    Args:
        framework: Framework of both.
        around: Function that makes the outer class of a base class, whose `self.body` is the trunk.
        kind: `"memory"` or `"head"`.
        **config: More keys of the model config.
    """

    class Trunk(sound("model", framework)):
        def custom_loss(self, policy_loss, loss_inputs):
            return policy_loss + 5

        def metrics(self):
            return {"seen": 7}

        def update_ops(self):
            return [lambda: "update of trunk"]

    fault = Fault("none", kind, around)
    return rlcatalog.build(
        fault.obs,
        fault.action,
        {"custom_model": Trunk, **config},
        framework,
        catalog=catalog_of(fault, framework),
    )


def keep_as_body(base):
    """Return the class as it is: its trunk is `self.body`."""
    return base


def hide_trunk(base):
    """Return a class whose trunk is not among its attributes."""

    class HidesTrunk(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            body = self.body
            del self.body
            self.get_body = lambda: body

        def __getattr__(self, name):
            if name == "body" and "get_body" in self.__dict__:
                return self.get_body()
            # PyTorch's modules have `__getattr__`; Keras' models have none.
            get_of_base = getattr(super(), "__getattr__", None)
            if get_of_base is None:
                raise AttributeError(name)
            return get_of_base(name)

    return HidesTrunk


def list_no_inner_models(base):
    """Return a class whose `inner_models` does not list the trunk."""

    class ListsNone(base):
        def inner_models(self):
            return {}

    return ListsNone


# --- loss, metrics and update operations ----------------------------------------------------------


def run_updates(model):
    return [operation() for operation in model.update_ops()]


@pytest.mark.grid
@in_both_frameworks
@pytest.mark.parametrize("around", [keep_as_body, hide_trunk, list_no_inner_models])
@around_each_kind
def test_loss_metrics_and_update_ops_include_the_trunk(framework, around, kind):
    model = build_around_trunk(framework, around, kind).model

    assert model.custom_loss(1, {}) == 1 + 5
    metrics = {name: value for name, value in model.metrics().items() if name.endswith("seen")}
    assert list(metrics.values()) == [7]
    assert run_updates(model) == ["update of trunk"]


def override_without_trunk(base):
    """Return a class with overrides that do not call the trunk's methods."""

    class Outer(base):
        def custom_loss(self, policy_loss, loss_inputs):
            return policy_loss * 2

        def metrics(self):
            return {"own": 1}

        def update_ops(self):
            return [lambda: "own update"]

    return Outer


def override_with_super(base):
    """Return a class with overrides that call those of the base class, which call the trunk's."""

    class Outer(base):
        def custom_loss(self, policy_loss, loss_inputs):
            return super().custom_loss(policy_loss * 2, loss_inputs)

        def metrics(self):
            return {"own": 1, **super().metrics()}

        def update_ops(self):
            return [lambda: "own update", *super().update_ops()]

    return Outer


def override_with_trunk(base):
    """Return a class with overrides that call the trunk's methods."""

    class Outer(base):
        def custom_loss(self, policy_loss, loss_inputs):
            return self.body.custom_loss(policy_loss * 2, loss_inputs)

        def metrics(self):
            return {"own": 1, **self.body.metrics()}

        def update_ops(self):
            return [lambda: "own update", *self.body.update_ops()]

    return Outer


@pytest.mark.grid
@in_both_frameworks
@pytest.mark.parametrize(
    "around", [override_without_trunk, override_with_super, override_with_trunk]
)
@around_each_kind
def test_overrides_count_the_trunk_once(framework, around, kind):
    model = build_around_trunk(framework, around, kind).model

    for _ in range(2):  # the second call counts it once as well
        assert model.custom_loss(1, {}) == 2 * 1 + 5
        assert model.metrics() == {"own": 1, "seen": 7}
        assert run_updates(model) == ["own update", "update of trunk"]


@in_both_frameworks
def test_trunk_inside_memory_inside_head_counts_once(framework):
    memory = {"use_lstm": True, "lstm_cell_size": 3}
    model = build_around_trunk(framework, keep_as_body, "head", **memory).model
    assert model.custom_loss(1, {}) == 1 + 5
    assert len(model.update_ops()) == 1


# --- weights --------------------------------------------------------------------------------------


@in_both_frameworks
def test_weights_of_a_hidden_trunk_are_listed(framework):
    # Two memories around the same trunk, which only the second has as an attribute, `body`.
    model = build_around_trunk(framework, hide_trunk).model
    model_with_body = build_around_trunk(framework, keep_as_body).model

    names = list(model.get_weights())

    # A trunk that is not found among the attributes is listed as `_rlcatalog_trunk`.
    assert any(name.endswith("_rlcatalog_trunk.hidden.weight") for name in names)
    assert any(name.endswith("_rlcatalog_trunk.hidden.bias") for name in names)
    assert len(names) == len(model_with_body.get_weights())
    assert len(model.trainable_variables()) == len(model_with_body.trainable_variables())


@in_both_frameworks
def test_weights_of_a_hidden_trunk_are_set(framework):
    policy = build_around_trunk(framework, hide_trunk)
    weights = policy.model.get_weights()
    before = policy.act(THREE_ROWS, explore=False).dist_inputs

    policy.model.set_weights({name: np.zeros_like(array) for name, array in weights.items()})
    assert not policy.act(THREE_ROWS, explore=False).dist_inputs.any()

    policy.model.set_weights(weights)
    np.testing.assert_array_equal(policy.act(THREE_ROWS, explore=False).dist_inputs, before)


def test_deepcopy_of_a_model_copies_its_trunk():
    model = build_around_trunk("torch", keep_as_body).model

    model_copy = copy.deepcopy(model)

    assert model_copy.body is not model.body
    assert model_copy.inner_models()[""] is model_copy.body


# --- states ---------------------------------------------------------------------------------------


def forget_state(base):
    """Return a head without a state."""

    class WithoutState(base):
        def get_initial_state(self):
            return []

    return WithoutState


@in_both_frameworks
def test_head_without_state_accepts_a_trunk_without_one(framework):
    assert not build_around_trunk(framework, forget_state, "head").memory


@in_both_frameworks
def test_head_that_forgets_the_state_of_its_trunk_is_refused(framework):
    message = r"get_initial_state\(\) \(.*acme-planted.*returned 0 tensors.*LSTMWrapper"
    with pytest.raises(ModelContractError, match=message):
        build_around_trunk(framework, forget_state, "head", use_lstm=True)
