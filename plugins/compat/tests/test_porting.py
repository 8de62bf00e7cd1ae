"""`rlcatalog port`: what code becomes, and which lines it reports."""

import textwrap

import numpy as np
import pytest

from rlcatalog_compat import frames, layers
from rlcatalog_compat.codemod.porter import port

HEAD = """\
from rlcatalog_compat.rllib.utils.framework import try_import_tf
tf1, tf, tfv = try_import_tf()
import numpy as np
"""


def port_code(code):
    """Port code twice, which changes nothing; return it and the (line, code) of each note."""
    result = port(textwrap.dedent(code).encode())
    assert port(result.content).content == result.content
    return result.content.decode(), [(note.line, note.what) for note in result.notes]


def port_tensorflow_code(code):
    """Port code that begins, as RLlib's files do, with an import of TensorFlow as `tf`."""
    return port_code(HEAD + textwrap.dedent(code))


# --- single lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import ray", "import rlcatalog_compat as ray"),
        ("import ray as r  # ours", "import rlcatalog_compat as r  # ours"),
        ("import ray.rllib.agents.ppo as ppo", "import rlcatalog_compat.rllib.agents.ppo as ppo"),
        ("import ray.rllib", "import rlcatalog_compat as ray"),
        ("from ray import tune", "from rlcatalog_compat import tune"),
        ("from ray.rllib.agents import ppo", "from rlcatalog_compat.rllib.agents import ppo"),
        (
            "from ray.rllib.models.torch.misc import SlimFC, \\\n    normc_initializer as normc",
            "from rlcatalog_compat.rllib.models.torch.misc import SlimFC, \\\n"
            "    normc_initializer as normc",
        ),
        (
            "from ray.rllib.utils.annotations import *",
            "from rlcatalog_compat.rllib.utils.annotations import *",
        ),
        ("from ray.rllib import SampleBatch", "from rlcatalog_compat.rllib import SampleBatch"),
        ("import gym", "import gymnasium as gym"),
        ("import gym as g", "import gymnasium as g"),
        ("import gym.spaces", "import gymnasium as gym"),
        ("import os, gym", "import os, gymnasium as gym"),
        ("from gym.spaces import Box, Dict", "from gymnasium.spaces import Box, Dict"),
        ("from gym import spaces", "from gymnasium import spaces"),
        ("from .ray import tune", "from .ray import tune"),
        ("import rayon, gymtools", "import rayon, gymtools"),
    ],
)
def test_imports_of_ray_and_gym_are_replaced(old, new):
    content, notes = port_code(old + "\n")

    assert content == new + "\n"
    assert notes == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = np.product(shape)", "x = np.prod(shape)"),
        ("x = np.zeros(3, np.float)", "x = np.zeros(3, float)"),
        ("x = np.float32(-np.Inf)", "x = np.float32(-np.inf)"),
        ("x = np.random.normal()", "x = np.random.normal()"),
        ("x = tf.log(mask)", "x = tf.math.log(mask)"),
        (
            "x = tf.maximum(tf.log(tf.to_float(mask)), tf.float32.min)",
            "x = tf.maximum(tf.math.log(tf.cast(mask, tf.float32)), tf.float32.min)",
        ),
        (
            "x = tf.reduce_sum(y, axis=1, keep_dims=True)",
            "x = tf.reduce_sum(y, axis=1, keepdims=True)",
        ),
        ("x = tf.random_normal([3])", "x = tf.random.normal([3])"),
        ("x = tf1.log(y)", "x = tf1.log(y)"),  # compat.v1 has it
        (
            "layer = tf.keras.layers.Dense(num_outputs)",
            "layer = tf.keras.layers.Dense(int(num_outputs))",
        ),
        (
            "d = tf.keras.layers.Dense(units=action_space.n)",
            "d = tf.keras.layers.Dense(units=int(action_space.n))",
        ),
        (
            "layer = tf.keras.layers.Dense(256, name='n')",
            "layer = tf.keras.layers.Dense(256, name='n')",
        ),
        (
            "i = tf.keras.layers.Input(shape=(num_frames))",
            "i = tf.keras.layers.Input(shape=(num_frames,))",
        ),
        (
            "i = tf.keras.layers.Input(shape=(obs_space.shape))",
            "i = tf.keras.layers.Input(shape=(obs_space.shape))",
        ),
        (
            "i = tf.keras.layers.Input(shape=(None,) + shape)",
            "i = tf.keras.layers.Input(shape=(None,) + shape)",
        ),
        ("i = tf.keras.layers.Input(shape=4)", "i = tf.keras.layers.Input(shape=(4,))"),
        (
            "y = tf.keras.layers.LSTM(3, name='l')(inputs=x, mask=m)",
            "y = tf.keras.layers.LSTM(3, name='l')(x, mask=m)",
        ),
        ("out = model([input_dict])", "out = model(input_dict)"),
        ("out = model([a, b])", "out = model([a, b])"),
        ("n = x.get_shape()[-1].value", "n = x.shape[-1]"),
        ("n = f(x).shape[1].value * 2", "n = f(x).shape[1] * 2"),
        ("b, *rest = x.get_shape().as_list()", "b, *rest = list(x.shape)"),
        ("x = tf.reshape(y, (y.shape[0], 4))", "x = tf.reshape(y, (tf.shape(y)[0], 4))"),
        ("x = tf.reshape(y, [z.shape[0] * 2, 4])", "x = tf.reshape(y, [z.shape[0] * 2, 4])"),
        ("x = tf.reshape(y, [z.shape[1], 4])", "x = tf.reshape(y, [z.shape[1], 4])"),
        ("n = x.shape.as_list()[1]", "n = list(x.shape)[1]"),
        ("t = tf\nm = t.math\nx = t.log(m.abs(y))", "t = tf\nm = t.math\nx = t.math.log(m.abs(y))"),
        ("n = enum[0].value, env.get_shape()", "n = enum[0].value, env.get_shape()"),
    ],
)
def test_older_numpy_and_tensorflow_is_updated(old, new):
    content, notes = port_code(HEAD + old + "\n")

    assert content == HEAD + new + "\n"
    assert notes == []


#: `try_import_tf` returned TensorFlow 1 alone in older versions of Ray.
OLDER_WHERE = """\
from ray.rllib.utils import try_import_tf

tf = try_import_tf()
y = tf.where(rows, x, -x)
"""


def test_where_of_tensorflow_1_stays_the_same_function():
    content, notes = port_code(OLDER_WHERE)

    assert "y = tf.compat.v1.where(rows, x, -x)" in content
    assert notes == []


def test_where_of_tensorflow_1_chooses_rows_after_porting():
    tf = pytest.importorskip("tensorflow")
    content, _ = port_code(OLDER_WHERE)
    x = tf.constant([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    names = {"x": x, "rows": tf.constant([True, False, True])}

    exec(content, names)

    assert names["y"].numpy().tolist() == [[0, 1], [-2, -3], [4, 5]]


def test_where_of_tensorflow_2_is_unchanged():
    code = HEAD + "y = tf.where(rows, x, -x)\n"

    assert port_code(code) == (code, [])


def test_older_try_import_tf_is_unpacked():
    # In older versions, try_import_tf returned only TensorFlow. Now it returns three values.
    code = """\
    from ray.rllib.utils import try_import_tf

    tf = try_import_tf()  # maybe
    y = tf.log(x)
    """

    content, _ = port_code(code)

    expected = """\
    from rlcatalog_compat.rllib.utils import try_import_tf

    _, tf, _ = try_import_tf()  # maybe
    y = tf.math.log(x)
    """
    assert content == textwrap.dedent(expected)


def test_names_that_are_not_tensorflow_are_unchanged():
    code = "import math as tf\n\nx = tf.log(3)\nnp = {}\nnp.product = 1\n"

    assert port_code(code) == (code, [])


@pytest.mark.parametrize(
    "assignment",
    [
        pytest.param("L = {}", id="to another value"),
        pytest.param("for L in nets: pass", id="in a loop"),
        pytest.param("self.L = tf.keras.layers", id="to an attribute"),
    ],
)
def test_name_that_is_no_longer_a_module_is_unchanged(assignment):
    first = "" if "self" in assignment else "L = tf.keras.layers\n"
    code = f"{HEAD}{first}{assignment}\nlayer = L.TimeDistributed(net)\n"

    content, _ = port_code(code)

    assert "layer = L.TimeDistributed(net)" in content


def test_older_valid_padding_becomes_same_padding():
    # In older versions, valid_padding returned two values, as same_padding does now.
    code = """\
    from ray.rllib.models.torch.misc import SlimFC, valid_padding
    padding, out_size = valid_padding(in_size, kernel, [2, 2])
    """

    content, notes = port_code(code)

    module = "rlcatalog_compat.rllib.models.torch.misc"
    new_import, call = content.splitlines()
    assert new_import == f"from {module} import SlimFC, same_padding as valid_padding"
    assert call == "padding, out_size = valid_padding(in_size, kernel, [2, 2])"
    assert notes == []


def test_newer_valid_padding_is_unchanged():
    code = """\
    from ray.rllib.models.torch.misc import SlimFC, valid_padding
    height, width = valid_padding(in_size, kernel, [2, 2])
    """

    content, notes = port_code(code)

    assert content == textwrap.dedent(code).replace("ray.", "rlcatalog_compat.")
    assert notes == []


def test_sizes_of_recurrent_torch_layers_become_int():
    # Recurrent layers reject NumPy's integers, and the `n` of Gymnasium's Discrete is one.
    code = """\
    from torch import nn
    class Net(nn.Module):
        def __init__(self, obs_space, action_space):
            self.n = action_space.n
            self.rnn = nn.LSTM(int(action_space.n) + space.n, 4, batch_first=True)
    """

    content, notes = port_code(code)

    assert "self.n = int(action_space.n)" in content
    assert "nn.LSTM(int(action_space.n) + int(space.n), 4" in content
    assert not notes


def test_sizes_of_other_torch_layers_are_unchanged():
    code = "x = nn.Linear(action_space.n, 4)\n"

    assert port_code(code) == (code, [])


@pytest.mark.parametrize("module", ["layers", "operations", "frames"])
def test_imports_that_port_wrote_are_unchanged(module):
    code = f"import rlcatalog_compat.{module}\n"

    assert port_code(code) == (code, [])


# --- Keras layers ---------------------------------------------------------------------------------

MASK = """\
def build(size):
    seq_in = tf.keras.layers.Input(shape=(), dtype=tf.int32)
    inputs = tf.keras.layers.Input(shape=(None, size))
    # the memory
    out, h, c = tf.keras.layers.LSTM(8, return_state=True)(
        inputs=inputs,
        mask=tf.sequence_mask(seq_in),  # hides padding
    )
    wide = tf.expand_dims(tf.concat([out, h], axis=1), 1)
    return tf.keras.Model([inputs, seq_in], wide)
"""


def test_operations_on_keras_inputs_become_layers():
    content, notes = port_code(HEAD + MASK)

    apply = "rlcatalog_compat.operations.apply"
    concat = "tf.expand_dims(tf.concat([x[0], x[1]], axis=1), 1)"
    assert notes == []
    assert f"wide = {apply}(lambda x: {concat}, [out, h])" in content
    assert "    # the memory\n" in content


def test_mask_becomes_as_long_as_its_input():
    content, _ = port_code(HEAD + MASK)

    mask = (
        "rlcatalog_compat.operations.apply("
        "lambda x: tf.sequence_mask(x[0], tf.shape(x[1])[1]), [seq_in, inputs])"
    )
    assert f"        inputs,\n        mask={mask},  # hides padding\n" in content


def test_ported_mask_runs_with_more_padding_than_its_lengths():
    tf = pytest.importorskip("tensorflow")
    content, _ = port_code(HEAD + MASK)
    names = {}
    exec(content, names)
    model = names["build"](3)

    output = model([tf.zeros([2, 5, 3]), tf.constant([2, 3])])

    assert output.shape == (2, 1, 16)


def test_tensorflow_functions_in_lists_of_layers_are_lifted():
    code = """\
    x = tf.keras.layers.Input((3,))
    for layer in [tf.keras.layers.Dense(8), tf.nn.relu]:
        x = layer(x)
    """

    content, _ = port_tensorflow_code(code)

    # Keras 3 does not accept TensorFlow's functions as layers.
    lifted_function = "rlcatalog_compat.operations.lift(tf.nn.relu)"
    assert f"[tf.keras.layers.Dense(8), {lifted_function}]" in content


def test_lists_of_dtypes_are_not_lifted():
    code = """
    import tensorflow as tf
    x = tf.keras.layers.Input((3,))
    kinds = [tf.float32, tf.int32]
    """

    content, _ = port_code(code)

    assert "lift" not in content


def test_functions_without_keras_inputs_are_not_lifted():
    code = "import tensorflow as tf\nfunctions = [tf.nn.relu]\n"

    assert port_code(code) == (code, [])


def test_time_distributed_layers_take_any_number_of_steps():
    code = "import tensorflow as tf\nlayer = tf.keras.layers.TimeDistributed(net, name='a')\n"

    content, _ = port_code(code)

    assert "layer = rlcatalog_compat.operations.time_distributed(net, name='a')" in content
    assert "import rlcatalog_compat.operations" in content


def test_name_of_a_module_is_read_like_the_module():
    code = """
    layers = tf.keras.layers
    def build(net):
        layers = tf.keras.layers
        layer = layers.TimeDistributed(net)
    """

    content, _ = port_tensorflow_code(code)

    assert "layer = rlcatalog_compat.operations.time_distributed(net)" in content


def test_operations_of_keras_backend_become_layers():
    code = """\
    def build():
        x = tf.keras.layers.Input((3,))
        return tf.keras.backend.cast(x, tf.int32)
    """

    content, _ = port_tensorflow_code(code)

    new_call = "rlcatalog_compat.operations.apply(lambda x: tf.keras.backend.cast(x, tf.int32), x)"
    assert f"return {new_call}\n" in content


def test_call_of_a_keras_model_loses_state_and_seq_lens():
    code = """\
    class Net(TFModelV2):
        def __init__(self):
            self.base_model = tf.keras.models.Model(i, o)
            self.other = Other()

        def forward(self, input_dict, state, seq_lens):
            self.other(input_dict["obs"], state, seq_lens)
            return self.base_model(input_dict["obs"], state, seq_lens)
    """

    content, _ = port_code(code)

    assert 'return self.base_model(input_dict["obs"])\n' in content
    # The other call is not that of a Keras model.
    assert 'self.other(input_dict["obs"], state, seq_lens)' in content


# --- layers of TensorFlow 1 -----------------------------------------------------------------------

NORM = """\
class Net(TFModelV2):
    \"\"\"A net.\"\"\"

    def __init__(self, *args):
        super(Net, self).__init__(*args)
        self.batch_norm = 3

    def forward(self, input_dict, state, seq_lens):
        x = tf.layers.batch_normalization(
            input_dict["obs"], training=input_dict["is_training"], momentum=0.9)  # as in the page
        return tf.layers.batch_normalization(x, training=False, name="second"), state
"""


def test_batch_normalization_becomes_a_layer_of_the_model():
    content, notes = port_code(HEAD + NORM)

    layer = "rlcatalog_compat.layers.batch_normalization"
    arguments = 'input_dict["obs"], training=input_dict["is_training"], momentum=0.9'
    first = f'{layer}(\n            self, "batch_normalization", {arguments})'
    assert notes == []
    assert f"x = {first}  # as in the page\n" in content
    assert f'return {layer}(self, "second", x, training=False), state' in content


def test_constructor_creates_the_place_of_layers():
    content, _ = port_code(HEAD + NORM)

    expected = """
        super(Net, self).__init__(*args)
        self.kept_layers = rlcatalog_compat.layers.start()
        self.batch_norm = 3
"""
    assert expected in content


def test_class_without_constructor_gets_one():
    code = """\
    class Net(TFModelV2):
        def forward(self, x):
            return tf.layers.batch_normalization(x)
    """

    content, _ = port_tensorflow_code(code)

    constructor = """\
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kept_layers = rlcatalog_compat.layers.start()
"""
    assert constructor in content


def test_layers_of_tensorflow_1_are_kept_by_the_model():
    code = """\
    class Net(TFModelV2):
        def forward(self, x):
            with tf1.variable_scope("model", reuse=tf1.AUTO_REUSE):
                for i in range(2):
                    x = tf1.layers.dense(x, 8, activation=tf.tanh, name="fc{}".format(i))  # hidden
                x = tf.layers.dense(tf.layers.flatten(x), self.num_outputs)
                bias = tf1.get_variable("bias", shape=())
            self.register_variables(tf1.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES))
            return x + bias
    """

    content, notes = port_tensorflow_code(code)

    # A layer is kept by its name or, without a name, by what it is.
    hidden = 'layers.dense(self, "fc{}".format(i), x, 8, activation=tf.tanh)  # hidden\n'
    outputs = 'layers.dense(self, "dense", rlcatalog_compat.layers.flatten(self, "flatten", x)'
    bias = 'layers.get_variable(self, "bias", shape=())'
    assert f"x = rlcatalog_compat.{hidden}" in content
    assert f"x = rlcatalog_compat.{outputs}, self.num_outputs)\n" in content
    assert f"bias = rlcatalog_compat.{bias}\n" in content
    assert "try_import_tf\nimport rlcatalog_compat.layers\n" in content
    assert notes == []


class NetWithLayers:
    """A model after porting: it has a place for its layers."""

    def __init__(self):
        self.kept_layers = layers.start()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("conv2d", {"filters": 3, "kernel_size": 2}, id="conv2d"),
        pytest.param("flatten", {}, id="flatten"),
        pytest.param("batch_normalization", {}, id="batch_normalization"),
        pytest.param("dense", {"units": 2}, id="dense"),
    ],
)
def test_layer_is_the_same_at_each_pass(name, arguments):
    tf = pytest.importorskip("tensorflow")
    net = NetWithLayers()
    images = tf.random.normal([2, 4, 4, 1])
    call_layer = getattr(layers, name)

    first = call_layer(net, "my_layer", images, **arguments)
    second = call_layer(net, "my_layer", images, **arguments)

    np.testing.assert_array_equal(first, second)
    assert list(net.kept_layers) == ["my_layer"]


def test_layers_of_two_models_have_their_own_weights():
    tf = pytest.importorskip("tensorflow")
    x = tf.random.normal([2, 4])

    first = layers.dense(NetWithLayers(), "dense", x, 2)
    second = layers.dense(NetWithLayers(), "dense", x, 2)

    assert not np.array_equal(first, second)


def test_variable_is_the_same_at_each_pass():
    pytest.importorskip("tensorflow")
    net = NetWithLayers()

    bias = layers.get_variable(net, "bias", (3,), initializer=0.5)

    assert bias.numpy().tolist() == [0.5, 0.5, 0.5]
    assert layers.get_variable(net, "bias", (3,)) is bias


# --- convolutions of frames -----------------------------------------------------------------------

CONV_BEFORE_POOL_3D = """\
def block(x):
    x = tf.keras.layers.Conv2D(filters=4, kernel_size=3, name="conv")(x)
    return tf.keras.layers.MaxPool3D(pool_size=2)(x)
"""


def test_convolution_of_frames_is_replaced():
    # Keras 3 has no Conv2D for inputs with more axes, which MaxPool3D takes.
    content, notes = port_code(HEAD + CONV_BEFORE_POOL_3D)

    convolution = 'rlcatalog_compat.frames.conv2d(filters=4, kernel_size=3, name="conv")'
    assert notes == []
    assert "try_import_tf\nimport rlcatalog_compat.frames\n" in content
    assert f"    x = {convolution}(x)\n" in content


def test_convolution_of_pictures_is_unchanged():
    code = CONV_BEFORE_POOL_3D.replace("MaxPool3D", "MaxPool2D")

    content, _ = port_code(HEAD + code)

    assert "layers.Conv2D(filters=4" in content


@pytest.mark.parametrize(
    ("options", "strides", "padding"),
    [
        pytest.param({}, 1, "VALID", id="default"),
        pytest.param({"strides": 2, "padding": "same"}, 2, "SAME", id="strides-and-padding"),
    ],
)
def test_frames_are_convolved_one_by_one(options, strides, padding):
    tf = pytest.importorskip("tensorflow")
    layer = frames.conv2d(filters=4, kernel_size=3, activation="relu", **options)
    # Two rows of three frames, of 7 x 6 pixels with 2 channels.
    x = np.random.default_rng(0).random((2, 3, 7, 6, 2), np.float32)

    outputs = layer(x).numpy()

    kernel, bias = layer.weights
    for row in range(2):
        # TensorFlow's own convolution takes a batch of frames.
        expected = tf.nn.relu(tf.nn.conv2d(x[row], kernel, strides, padding) + bias)
        np.testing.assert_allclose(outputs[row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "shape",
    [(2, 7, 6, 2), (2, 3, 7, 6, 2), (2, 3, 2, 7, 6, 2)],
    ids=["pictures", "frames", "frames of frames"],
)
def test_convolution_of_frames_takes_keras_inputs(shape):
    tf = pytest.importorskip("tensorflow")
    layer = frames.conv2d(4, 3)

    symbolic = layer(tf.keras.Input(shape[1:]))

    assert symbolic.shape == (None, *layer(np.zeros(shape, np.float32)).shape[1:])


# --- lines that cannot be ported ------------------------------------------------------------------

PPO_TORCH_POLICY = "from ray.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy"
STEP_WITH_FOUR_VALUES = """\
import gym
class Env(TheirEnv):
    def step(self, action):
        return 1, 0.0, False, {}
"""
VARIABLE_SCOPE = """\
import tensorflow as tf
with tf.variable_scope("x"):
    y = tf.math.log(x)
"""
LAYER_IN_A_LOOP = """\
import tensorflow as tf
class Loops:
    def forward(self, x):
        for i in range(2):
            def inner():
                return i
            x = tf.layers.batch_normalization(x)
"""
LAYER_OUTSIDE_A_CLASS = "import tensorflow as tf\ny = tf.layers.batch_normalization(x)\n"


@pytest.mark.parametrize(
    ("code", "line", "what"),
    [
        pytest.param(f"{PPO_TORCH_POLICY}\n", 1, PPO_TORCH_POLICY, id="import"),
        pytest.param(STEP_WITH_FOUR_VALUES, 4, "return 1, 0.0, False, {}", id="step"),
        pytest.param(
            "def central_value_function(self, obs):\n    pass\n",
            1,
            "central_value_function",
            id="central_value_function",
        ),
        pytest.param(VARIABLE_SCOPE, 2, "tf.variable_scope", id="variable_scope"),
        pytest.param(
            "import tensorflow as tf\ny = tf.contrib.layers.fully_connected(x, 3)\n",
            2,
            "tf.contrib.layers.fully_connected",
            id="contrib",
        ),
        pytest.param("from ray import tune\ntune.run('PPO')\n", 2, "tune.run", id="tune.run"),
        pytest.param("import ray\nray.get(ray.put(1))\n", 2, "ray.get", id="ray.get"),
        pytest.param(LAYER_IN_A_LOOP, 7, "tf.layers.batch_normalization", id="layer in a loop"),
        pytest.param(
            LAYER_OUTSIDE_A_CLASS, 2, "tf.layers.batch_normalization", id="layer outside a class"
        ),
    ],
)
def test_line_that_cannot_be_ported_is_reported(code, line, what):
    _, notes = port_code(code)

    assert notes == [(line, what)]


def test_lines_that_rlcatalog_supports_are_not_reported():
    code = """\
    import ray
    from ray import tune
    ray.init()
    tune.register_env("mine", Env)
    """

    _, notes = port_code(code)

    assert notes == []


def test_import_with_an_unknown_name_is_split():
    content, notes = port_code("from ray.rllib.models import Model, ModelCatalog  # both\n")

    known, unknown = content.splitlines()
    assert known == "from rlcatalog_compat.rllib.models import ModelCatalog  # both"
    assert unknown == "from ray.rllib.models import Model"
    assert notes == [(1, unknown)]


def test_calls_of_the_older_interface_of_gym_are_reported():
    code = """\
    obs = self.env.reset()
    obs, reward, done, info = env.step(action)
    obs, info = env.reset()
    obs, reward, terminated, truncated, info = env.step(action)
    state = model.reset()
    """

    content, notes = port_code(code)

    assert content == textwrap.dedent(code)
    # Each note is the number of a line and its text. The calls of newer Gymnasium get none.
    assert notes == [
        (1, "obs = self.env.reset()"),
        (2, "obs, reward, done, info = env.step(action)"),
    ]
