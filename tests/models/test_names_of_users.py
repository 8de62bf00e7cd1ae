"""Names in models: users may choose any, and the kernel uses those with a reserved prefix."""

from __future__ import annotations

import copy
import pickle
import types

import gymnasium as gym
import numpy as np
import pytest
from user_names import CONTRACT, OF_THE_KERNEL, all_names

import rlcatalog
from rlcatalog import ModelV2
from rlcatalog.errors import StaleOutputError
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog_policy import load

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
NESTED = gym.spaces.Dict({"a": THREE_FEATURES, "b": gym.spaces.Discrete(3)})
TWO_ACTIONS = gym.spaces.Discrete(2)

in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

#: Names of base classes that users may call or set, beside those of RLlib.
OFFERED = {"framework_of_class", "get_weights", "inner_models", "set_weights", "variable_axes"}


def base_of(framework):
    if framework == "torch":
        from rlcatalog_torch import TorchModelV2

        return TorchModelV2
    from rlcatalog_tf import TFModelV2

    return TFModelV2


def names_of(framework):
    """Return the names that a user may choose: in PyTorch all except those of `nn.Module`."""
    if framework == "tf":
        return all_names()
    import torch

    names_of_pytorch = {*dir(torch.nn.Module), *vars(torch.nn.Module())}
    return [name for name in all_names() if name not in names_of_pytorch]


def make_layer(framework, inputs, outputs):
    if framework == "torch":
        import torch

        return torch.nn.Linear(inputs, outputs)
    from rlcatalog_tf import keras

    layer = keras.layers.Dense(outputs)
    layer.build((None, inputs))
    return layer


def define_model(framework, junk_before=(), junk_after=(), **methods):
    """Return a model class whose attributes of some names are strings.

    Args:
        framework: Framework of the class.
        junk_before: Names of attributes that are set before the base class's constructor runs.
        junk_after: Names of attributes that are set after it.
        **methods: More attributes of the class.
    """
    base = base_of(framework)

    class Cluttered(base):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            for junk in junk_before:
                setattr(self, junk, f"junk {junk}")
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            size = int(np.prod(obs_space.shape))
            self.num_outputs = 8 if num_outputs is None else num_outputs
            self.tests_out = make_layer(framework, size, self.num_outputs)
            self.tests_value = make_layer(framework, size, 1)
            for junk in junk_after:
                setattr(self, junk, f"junk {junk}")

        def forward(self, input_dict, state, seq_lens):
            self.tests_obs = input_dict["obs_flat"]
            if isinstance(input_dict["obs"], dict):
                assert set(input_dict["obs"]) == {"a", "b"}
            return self.tests_out(self.tests_obs), state

        def value_function(self):
            return self.tests_value(self.tests_obs)[:, 0]

    return types.new_class("Cluttered", (Cluttered,), exec_body=lambda body: body.update(methods))


def act_evaluate_save_and_load(
    catalog, model, framework, folder, obs_space=THREE_FEATURES, **config
):
    """Build a policy, let it act, evaluate, save and load it; return it."""
    catalog.register_model("cluttered", model)
    config["custom_model"] = "cluttered"
    policy = rlcatalog.build(obs_space, TWO_ACTIONS, config, framework, catalog=catalog)
    obs_space.seed(0)
    obs = [obs_space.sample() for _ in range(4)]
    step = policy.act(obs, explore=False)

    encoded = policy.preprocess(obs)
    batch = {"obs": encoded, "raw_action": step.raw_action}
    if step.state is None:
        np.testing.assert_allclose(policy.values(encoded), step.value, rtol=1e-4, atol=1e-6)
    else:
        batch["seq_lens"] = np.ones(4, np.int32)
    logp = policy.evaluate(batch).logp
    logp = logp.detach().numpy() if framework == "torch" else logp.numpy()
    np.testing.assert_allclose(logp, step.logp, rtol=1e-4, atol=1e-6)

    policy.save(folder / "policy")
    loaded_step = load(folder / "policy", catalog=catalog).act(obs, explore=False)
    np.testing.assert_array_equal(loaded_step.dist_inputs, step.dist_inputs)
    np.testing.assert_array_equal(loaded_step.value, step.value)
    return policy


# --- attributes and methods of users --------------------------------------------------------------


@in_both_frameworks
@pytest.mark.parametrize("when", ["junk_before", "junk_after"])
def test_model_may_have_an_attribute_of_any_name(catalog, framework, when, tmp_path):
    names = names_of(framework)
    # The attribute `x` is the text "junk x", set before or after the base class's constructor.
    model_class = define_model(framework, **{when: names})

    policy = act_evaluate_save_and_load(catalog, model_class, framework, tmp_path)

    for name in names:
        assert vars(policy.model)[name] == f"junk {name}"


@in_both_frameworks
def test_attributes_of_any_name_change_no_weights_or_methods(framework):
    # After its two layers, the model sets a string as attribute for each name a user may choose.
    model_class = define_model(framework, junk_after=names_of(framework))
    model = model_class(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")

    assert set(weights_of(model)) == {
        "tests_out.weight",
        "tests_out.bias",
        "tests_value.weight",
        "tests_value.bias",
    }
    assert len(model.trainable_variables()) == 4
    assert model.custom_loss(1, {}) == 1  # the base class returns the loss unchanged
    assert model.metrics() == {}


@in_both_frameworks
def test_trunk_of_lstm_may_have_attributes_of_any_name(catalog, framework, tmp_path):
    names = names_of(framework)
    model_class = define_model(framework, junk_before=names, junk_after=names)

    policy = act_evaluate_save_and_load(
        catalog, model_class, framework, tmp_path, NESTED, use_lstm=True, lstm_cell_size=4
    )

    assert policy.model.trunk.held == "junk held"


@in_both_frameworks
def test_methods_with_former_kernel_names_are_not_called(catalog, framework, tmp_path):
    def refuse(self, *args, **kwargs):
        raise AssertionError("the kernel called a user's method")

    # The kernel calls `inner_models` of users as well.
    methods = dict.fromkeys(set(OF_THE_KERNEL) - {"inner_models"}, refuse)
    act_evaluate_save_and_load(catalog, define_model(framework, **methods), framework, tmp_path)


def test_weights_are_copied_although_get_weights_is_overridden():
    def return_nothing(self, *args):
        return []

    overrides = {"get_weights": return_nothing, "set_weights": return_nothing}
    torch_model = define_model("torch", **overrides)(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")
    tf_model = define_model("tf", **overrides)(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")

    set_weights_of(tf_model, weights_of(torch_model))

    tf_weights = weights_of(tf_model)
    for name, torch_array in weights_of(torch_model).items():
        np.testing.assert_array_equal(tf_weights[name], torch_array)


# --- names of the kernel --------------------------------------------------------------------------


@in_both_frameworks
def test_base_classes_define_only_rllib_and_reserved_names(framework):
    base = base_of(framework)
    names = {name for cls in base.__mro__ if issubclass(cls, ModelV2) for name in vars(cls)}
    names -= {"_abc_impl"}  # Python's, of an abstract class
    names -= {"train"}  # PyTorch's, with a change for parts that do not learn
    public = {name for name in names if not name.startswith(("__", "_rlcatalog"))}
    assert public <= CONTRACT | OFFERED


@in_both_frameworks
def test_new_model_has_one_private_attribute(framework):
    names = set(vars(base_of(framework)(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")))
    if framework == "torch":
        import torch

        names -= set(vars(torch.nn.Module()))
    assert [name for name in names if name.startswith("_")] == ["_rlcatalog_bookkeeping"]
    assert names - {"_rlcatalog_bookkeeping"} <= CONTRACT | OFFERED


def call_new_model(framework):
    """Return a model that has computed the outputs of two observations."""
    rows = np.zeros((2, 3), np.float32)
    if framework == "torch":
        import torch

        rows = torch.from_numpy(rows)
    model = define_model(framework)(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")
    model({"obs": rows})
    return model


@in_both_frameworks
def test_kernel_state_is_pickled_without_the_last_output(framework):
    bookkeeping = call_new_model(framework)._rlcatalog_bookkeeping
    assert bookkeeping.last_output is not None

    restored = pickle.loads(pickle.dumps(bookkeeping))

    assert restored.last_output is None
    assert restored.ops == bookkeeping.ops
    assert restored.is_vector == bookkeeping.is_vector


def test_torch_model_can_be_copied():
    import torch

    model = define_model("torch")(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")
    rows = torch.zeros(2, 3)

    output, _ = copy.deepcopy(model)({"obs": rows})

    assert torch.equal(output, model({"obs": rows})[0])


def test_copy_of_a_torch_model_has_no_last_output():
    model_copy = copy.deepcopy(call_new_model("torch"))
    with pytest.raises(StaleOutputError, match="call the model before"):
        model_copy.last_output()


# --- overrides of value_function ------------------------------------------------------------------

# TensorFlow's base class wraps them, to check that the value is that of the last forward pass.


def scaled_value(self, scale=1.0, *, shift=0.0):
    return scale * self.tests_value(self.tests_obs)[:, 0] + shift


scaled_value.note = "mine"


@pytest.fixture
def tf_model_class():
    return define_model("tf", value_function=scaled_value)


def test_override_of_value_function_keeps_its_attributes(tf_model_class):
    assert tf_model_class.value_function.note == "mine"
    assert tf_model_class.value_function.__name__ == "scaled_value"


def test_override_of_value_function_keeps_its_arguments(tf_model_class):
    model = tf_model_class(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")
    model({"obs": np.ones((2, 3), np.float32)})

    value = model.value_function()
    scaled = model.value_function(2.0, shift=1.0)

    np.testing.assert_allclose(scaled, 2 * value + 1, rtol=1e-5)


def test_value_function_may_be_a_property(tf_model_class):
    class WithProperty(tf_model_class):
        @property
        def value_function(self):
            return lambda: "the value"

    model = WithProperty(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")
    model({"obs": np.ones((2, 3), np.float32)})

    assert model.value_function() == "the value"


def test_value_function_after_a_trace_is_an_error(tf_model_class):
    import tensorflow as tf

    model = tf_model_class(THREE_FEATURES, TWO_ACTIONS, 2, {}, "net")
    rows = tf.ones([2, 3])
    tf.function(lambda: model({"obs": rows})[0])()
    with pytest.raises(StaleOutputError, match="value_function"):
        model.value_function()
