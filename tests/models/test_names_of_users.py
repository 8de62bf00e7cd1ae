"""The contract on names: all of a user's are the user's; the kernel's own begin with one reserved
prefix.
"""

from __future__ import annotations

import copy
import pickle
import types

import gymnasium as gym
import numpy as np
import pytest
from user_names import CONTRACT, OF_THE_KERNEL, all_names, harvested

import rlcatalog
from rlcatalog import ModelV2
from rlcatalog.errors import StaleOutputError
from rlcatalog.models import ModelInternals, set_weights_of, weights_of
from rlcatalog_policy import load

BOX, TWO = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
PARTS = gym.spaces.Dict({"a": BOX, "b": gym.spaces.Discrete(3)})

both = pytest.mark.parametrize("framework", ["torch", "tf"])
pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

#: Offered to users, beside RLlib's contract, or read of a class.
OFFERED = {"framework_of_class", "get_weights", "inner_models", "set_weights", "variable_axes"}


def base_of(framework):
    if framework == "torch":
        from rlcatalog_torch import TorchModelV2

        return TorchModelV2
    from rlcatalog_tf import TFModelV2

    return TFModelV2


def names_of(framework):
    """What a user may name: in PyTorch not what is nn.Module's."""
    if framework == "tf":
        return all_names()
    import torch

    theirs = {*dir(torch.nn.Module), *vars(torch.nn.Module())}
    return [name for name in all_names() if name not in theirs]


def dense(framework, inputs, outputs):
    if framework == "torch":
        import torch

        return torch.nn.Linear(inputs, outputs)
    from rlcatalog_tf import keras

    made = keras.layers.Dense(outputs)
    made.build((None, inputs))
    return made


def cluttered(framework, before=(), after=(), **own):
    """A model class with junk under every name, set before and after its base's
    constructor runs.
    """
    base = base_of(framework)

    class Cluttered(base):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            for junk in before:
                setattr(self, junk, f"junk {junk}")
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            size = int(np.prod(obs_space.shape))
            self.tests_out = dense(framework, size, 8 if num_outputs is None else num_outputs)
            self.tests_value = dense(framework, size, 1)
            self.num_outputs = 8 if num_outputs is None else num_outputs
            for junk in after:
                setattr(self, junk, f"junk {junk}")

        def forward(self, input_dict, state, seq_lens):
            self.tests_seen = input_dict["obs_flat"]
            assert not isinstance(input_dict["obs"], dict) or set(input_dict["obs"]) == {"a", "b"}
            return self.tests_out(self.tests_seen), state

        def value_function(self):
            return self.tests_value(self.tests_seen)[:, 0]

    return types.new_class(
        "Cluttered", (Cluttered,), exec_body=lambda namespace: namespace.update(own)
    )


def used(catalog, cls, framework, folder, obs=BOX, **config):
    """Build, act, value, evaluate, save and load; return the policy."""
    catalog.register_model("cluttered", cls)
    policy = rlcatalog.build(
        obs, TWO, {"custom_model": "cluttered", **config}, framework, catalog=catalog
    )
    rng = np.random.default_rng(0)
    obs.seed(0)
    seen = (
        rng.uniform(-1, 1, (4, 3)).astype(np.float32)
        if obs is BOX
        else [obs.sample() for _ in range(4)]
    )
    step = policy.act(seen, explore=False)
    encoded = policy.preprocess(seen)
    state = {} if step.state is None else {"seq_lens": np.ones(4, np.int32)}
    found = policy.evaluate({"obs": encoded, "raw_action": step.raw_action, **state})
    numbers = found.logp.detach().numpy() if framework == "torch" else found.logp.numpy()
    np.testing.assert_allclose(numbers, step.logp, rtol=1e-4, atol=1e-6)
    if not state:
        np.testing.assert_allclose(policy.values(encoded), step.value, rtol=1e-4, atol=1e-6)
    policy.save(folder / "policy")
    again = load(folder / "policy", catalog=catalog).act(seen, explore=False)
    np.testing.assert_array_equal(again.dist_inputs, step.dist_inputs)
    np.testing.assert_array_equal(again.value, step.value)
    return policy


def test_the_names_are_those_of_the_issue_and_of_many_more():
    assert {
        "_registered",
        "_flat",
        "_preprocessor",
        "_ops",
        "held",
        "_rest",
        "_run",
        "_inside",
        "_remember",
    } <= set(all_names())
    assert {"get_weights", "action_embed_model", "_value_branch", "lstm"} <= set(all_names())
    assert len(harvested()) > 300


@both
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_model_may_have_an_attribute_of_any_name(catalog, framework, when, tmp_path):
    names = names_of(framework)
    cls = cluttered(framework, **{when: names})
    policy = used(catalog, cls, framework, tmp_path)
    assert {name: vars(policy.model)[name] for name in names} == {
        name: f"junk {name}" for name in names
    }
    assert set(weights_of(policy.model)) == {
        f"tests_{layer}.{part}" for layer in ("out", "value") for part in ("weight", "bias")
    }
    assert len(policy.model.trainable_variables()) == 4
    assert policy.model.custom_loss(1, {}) == 1
    assert policy.model.metrics() == {}


@both
def test_also_behind_a_memory_and_over_a_structure(catalog, framework, tmp_path):
    cls = cluttered(framework, names_of(framework), names_of(framework))
    policy = used(catalog, cls, framework, tmp_path, obs=PARTS, use_lstm=True, lstm_cell_size=4)
    assert policy.model.trunk.held == "junk held"


@both
def test_a_class_may_have_a_method_of_any_name_the_kernel_once_used(catalog, framework, tmp_path):
    def refuse(self, *args, **kwargs):
        raise AssertionError("the kernel called a user's method")

    own = dict.fromkeys(set(OF_THE_KERNEL) - {"inner_models"}, refuse)
    used(catalog, cluttered(framework, **own), framework, tmp_path)


@both
def test_the_bases_define_rllibs_names_and_reserved_ones_alone(framework):
    base = base_of(framework)
    defined = {name for cls in base.__mro__ for name in vars(cls) if issubclass(cls, ModelV2)}
    model = base(BOX, TWO, 2, {}, "net")
    fresh = set(vars(model))
    if framework == "torch":
        import torch

        fresh -= set(vars(torch.nn.Module()))
    ours = {name for name in defined | fresh if not name.startswith(("__", "_rlcatalog"))}
    assert ours - {"_abc_impl"} <= CONTRACT | OFFERED
    assert [name for name in fresh if name.startswith("_")] == ["_rlcatalog"]


@both
def test_the_kernels_state_can_be_copied_and_pickled(framework):
    model = cluttered(framework)(BOX, TWO, 2, {}, "net")
    rows = np.zeros((2, 3), np.float32)
    if framework == "torch":
        import torch

        rows = torch.from_numpy(rows)
        assert torch.equal(copy.deepcopy(model)({"obs": rows})[0], model({"obs": rows})[0])
    model({"obs": rows})
    own = model._rlcatalog
    assert isinstance(own, ModelInternals)
    again = pickle.loads(pickle.dumps(own))
    assert (own.last_output is None, again.last_output) == (False, None)
    assert (again.ops, again.is_trunk, again.is_vector) == (own.ops, False, True)
    if framework == "torch":
        with pytest.raises(StaleOutputError, match="call the model before"):
            copy.deepcopy(model).last_output()


def test_weights_go_from_one_framework_to_the_other_whatever_a_class_calls_get_weights():
    own = {name: lambda self, *args: [] for name in ("get_weights", "set_weights")}
    one, two = (cluttered(f, **own)(BOX, TWO, 2, {}, "net") for f in ("torch", "tf"))
    set_weights_of(two, weights_of(one))
    for name, array in weights_of(one).items():
        np.testing.assert_array_equal(weights_of(two)[name], array)


def test_an_override_of_value_function_keeps_what_it_is():
    """TensorFlow's base watches over it, for it belongs to the last pass."""
    import tensorflow as tf

    def value_function(self, scale=1.0, *, shift=0.0):
        return scale * self.tests_value(self.tests_seen)[:, 0] + shift

    value_function.note = "mine"
    cls = cluttered("tf", value_function=value_function)
    model = cls(BOX, TWO, 2, {}, "net")
    rows = tf.ones([2, 3])
    model({"obs": rows})
    assert cls.value_function.note == "mine"
    assert cls.value_function.__name__ == "value_function"
    np.testing.assert_allclose(
        model.value_function(2.0, shift=1.0), 2 * model.value_function() + 1, rtol=1e-5
    )

    class Last(cls):
        value_function = property(lambda self: lambda: tf.zeros([2]))

    other = Last(BOX, TWO, 2, {}, "net")
    other({"obs": rows})
    assert other.value_function().numpy().tolist() == [0, 0]
    tf.function(lambda: model({"obs": rows})[0])()
    with pytest.raises(StaleOutputError, match="value_function"):
        model.value_function()
