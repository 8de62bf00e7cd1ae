"""`rlcatalog port`: what code becomes, which lines it reports, and the command."""

import textwrap

import numpy as np
import pytest

from rlcatalog_cli import main
from rlcatalog_compat import frames, layers
from rlcatalog_compat.codemod import commands
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


IMPORT_PADDING = "from ray.rllib.models.torch.misc import SlimFC, valid_padding\n"


def test_older_valid_padding_becomes_same_padding():
    # It returned two values, as same_padding does now.
    use = "padding, out_size = valid_padding(in_size, kernel, [2, 2])\n"

    content, notes = port_code(IMPORT_PADDING + use)

    new_import = (
        "from rlcatalog_compat.rllib.models.torch.misc import"
        " SlimFC, same_padding as valid_padding\n"
    )
    assert content == new_import + use
    assert notes == []


def test_newer_valid_padding_is_unchanged():
    use = "height, width = valid_padding(in_size, kernel, [2, 2])\n"

    content, notes = port_code(IMPORT_PADDING + use)

    new_import = "from rlcatalog_compat.rllib.models.torch.misc import SlimFC, valid_padding\n"
    assert content == new_import + use
    assert notes == []


def test_sizes_of_recurrent_torch_layers_become_int():
    # They reject NumPy's integers, which Gymnasium's Discrete has.
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
    code = """
    import tensorflow as tf
    x = tf.keras.layers.Input((3,))
    for layer in [tf.keras.layers.Dense(8), tf.nn.relu]:
        x = layer(x)
    """

    content, _ = port_code(code)

    lifted = "rlcatalog_compat.operations.lift(tf.nn.relu)"
    assert f"[tf.keras.layers.Dense(8), {lifted}]" in content


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


def test_operations_of_keras_backend_become_layers():
    code = """\
    def build():
        x = tf.keras.layers.Input((3,))
        return tf.keras.backend.cast(x, tf.int32)
    """

    content, _ = port_code(HEAD + textwrap.dedent(code))

    call = "lambda x: tf.keras.backend.cast(x, tf.int32), x"
    assert f"return rlcatalog_compat.operations.apply({call})" in content


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
    assert 'self.other(input_dict["obs"], state, seq_lens)' in content  # no Keras model


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

    content, _ = port_code(HEAD + textwrap.dedent(code))

    expected = """
        super().__init__(*args, **kwargs)
        self.kept_layers = rlcatalog_compat.layers"""
    assert expected in content


LAYERS = """\
class Net(TFModelV2):
    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs"]
        with tf1.variable_scope("model", reuse=tf1.AUTO_REUSE):
            for i in range(2):
                x = tf1.layers.dense(x, 8, activation=tf.tanh, name="fc{}".format(i))  # hidden
                x = tf1.layers.batch_normalization(x, training=True, name="bn{}".format(i))
            x = tf.layers.dense(tf.layers.flatten(x), self.num_outputs)
            bias = tf1.get_variable("bias", shape=(), initializer=tf.keras.initializers.Zeros())
        self.register_variables(tf1.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES))
        return x + bias, state
"""


def test_layers_of_tensorflow_1_are_kept_by_the_model():
    content, notes = port_code(HEAD + LAYERS)

    layers = "rlcatalog_compat.layers"
    flat = f'{layers}.flatten(self, "flatten", x)'
    assert notes == []
    # By their names, or by what they are.
    assert f'x = {layers}.dense(self, "fc{{}}".format(i), x, 8, activation=tf.tanh)' in content
    assert f'{layers}.batch_normalization(self, "bn{{}}".format(i), x, training=True)' in content
    assert f'x = {layers}.dense(self, "dense", {flat}, self.num_outputs)\n' in content
    assert f'bias = {layers}.get_variable(self, "bias", shape=(), initializer=' in content
    assert "activation=tf.tanh)  # hidden\n" in content


def test_layers_of_tensorflow_1_have_their_import_and_place():
    content, _ = port_code(HEAD + LAYERS)

    expected = """\
        super().__init__(*args, **kwargs)
        self.kept_layers = rlcatalog_compat.layers.start()
"""
    assert "try_import_tf\nimport rlcatalog_compat.layers\n" in content
    assert expected in content


class NetWithLayers:
    """A model after porting: it has a place for its layers."""

    def __init__(self):
        self.kept_layers = layers.start()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("conv2d", (3, 2)), ("flatten", ()), ("batch_normalization", ()), ("dense", (2,))],
)
def test_layer_is_the_same_at_each_pass(name, arguments):
    tf = pytest.importorskip("tensorflow")
    net = NetWithLayers()
    x = tf.random.normal([2, 4, 4, 1])
    call_layer = getattr(layers, name)

    first = call_layer(net, "my_layer", x, *arguments)
    second = call_layer(net, "my_layer", x, *arguments)

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
@pytest.mark.parametrize(
    "frames_shape", [(2,), (2, 3), (2, 3, 2)], ids=["pictures", "frames", "frames of frames"]
)
def test_each_frame_is_convolved_alone(frames_shape, options, strides, padding):
    tf = pytest.importorskip("tensorflow")
    x = np.random.default_rng(0).random((*frames_shape, 7, 6, 2)).astype(np.float32)
    layer = frames.conv2d(4, 3, activation="relu", **options)

    symbolic = layer(tf.keras.Input(x.shape[1:]))
    outputs = layer(x).numpy()

    kernel, bias = [weight.numpy() for weight in layer.weights]
    assert symbolic.shape == (None, *outputs.shape[1:])
    for place in np.ndindex(*frames_shape):
        maps = tf.nn.conv2d(x[place][None], kernel, strides, padding) + bias
        expected = tf.nn.relu(maps).numpy()[0]
        np.testing.assert_allclose(outputs[place], expected, rtol=1e-4, atol=1e-5)


# --- lines that cannot be ported ------------------------------------------------------------------

NOT_PORTABLE = """\
from ray.rllib.models import Model, ModelCatalog  # both
from ray.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from ray import tune
import ray
import gym
import tensorflow as tf

class Env(gym.Env):
    def step(self, action):
        return 1, 0.0, False, {}

class Critic:
    def central_value_function(self, obs):
        with tf.variable_scope("x"):
            return tf.contrib.layers.fully_connected(obs, 3)

ray.init()
tune.run("PPO")
tune.register_env("mine", Env)
ray.get(ray.put(1))
for i in range(2):
    def inner():
        return i
    x = tf.layers.batch_normalization(x)
class Loops:
    def forward(self, x):
        for i in range(2):
            def inner():
                return i
            x = tf.layers.batch_normalization(x)
"""


def test_lines_that_cannot_be_ported_are_reported():
    _, notes = port_code(NOT_PORTABLE)

    assert notes == [
        (1, "from ray.rllib.models import Model"),
        (2, "from ray.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy"),
        (10, "return 1, 0.0, False, {}"),
        (13, "central_value_function"),
        (14, "tf.variable_scope"),
        (15, "tf.contrib.layers.fully_connected"),
        (18, "tune.run"),
        (20, "ray.get"),
        (24, "tf.layers.batch_normalization"),
        (30, "tf.layers.batch_normalization"),
    ]


def test_import_with_an_unknown_name_is_split():
    content, _ = port_code(NOT_PORTABLE)

    expected = """\
from rlcatalog_compat.rllib.models import ModelCatalog  # both
from ray.rllib.models import Model
from ray.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy
"""
    assert content.startswith(expected)


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
    assert notes == [
        (1, "obs = self.env.reset()"),
        (2, "obs, reward, done, info = env.step(action)"),
    ]


# --- the command ----------------------------------------------------------------------------------


def run_port(capsys, *arguments):
    """Run `rlcatalog port`, and return its exit status and output."""
    try:
        main(["port", *map(str, arguments)])
        status = 0
    except SystemExit as end:
        status = end.code or 0
    return status, capsys.readouterr().out


@pytest.fixture
def file_to_port(tmp_path):
    """A file that is not in UTF-8, with Windows line ends, and without one at its end."""
    file = tmp_path / "a.py"
    file.write_bytes(b"# caf\xc3\xa9\r\nimport gym\r\n\r\nx = 1")
    return file


def test_port_shows_changes_and_writes_none(file_to_port, capsys):
    before = file_to_port.read_bytes()

    status, output = run_port(capsys, file_to_port.parent)

    assert status == 0
    assert "-import gym" in output
    assert "+import gymnasium as gym" in output
    assert "1 file to change; pass --write to change; 0 places could not be ported" in output
    assert file_to_port.read_bytes() == before


def test_port_write_changes_files(file_to_port, capsys):
    before = file_to_port.read_bytes()

    status, output = run_port(capsys, file_to_port.parent, "--write")

    assert status == 0
    assert output == "1 file changed; 0 places could not be ported\n"
    assert file_to_port.read_bytes() == before.replace(b"import gym", b"import gymnasium as gym")


def test_port_after_write_has_nothing_to_change(file_to_port, capsys):
    run_port(capsys, file_to_port.parent, "--write")

    status, output = run_port(capsys, file_to_port.parent)

    assert status == 0
    assert output == ("0 files to change; pass --write to change; 0 places could not be ported\n")


@pytest.mark.parametrize("name", [".venv/b.py", "c.txt"], ids=["hidden-folder", "text-file"])
def test_port_skips_hidden_folders_and_other_files(tmp_path, capsys, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("import gym\n")

    run_port(capsys, tmp_path, "--write")

    assert file.read_text() == "import gym\n"


def test_port_fails_if_lines_cannot_be_ported(tmp_path, capsys):
    file = tmp_path / "a.py"
    file.write_text("from ray.rllib.models import Model\n")

    status, output = run_port(capsys, file)

    assert status == 1
    assert f"{file}:1: from ray.rllib.models import Model: the first model interface" in output


def test_port_fails_if_a_file_is_not_python_3(tmp_path, capsys):
    file = tmp_path / "b.py"
    file.write_text("print 'Python 2'\n")

    status, output = run_port(capsys, file)

    assert status == 1
    assert f"{file}: cannot be read as Python 3" in output


def read_errors_of_port(capsys, path):
    """Run `rlcatalog port`, which exits, and return the lines of its error output."""
    with pytest.raises(SystemExit):
        main(["port", str(path)])
    return capsys.readouterr().err.splitlines()


def test_port_of_a_missing_path_is_an_error(tmp_path, capsys):
    lines = read_errors_of_port(capsys, tmp_path / "nowhere")

    assert any("expected a file or folder" in line for line in lines)


@pytest.fixture
def folder_of_three_files(tmp_path):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("x = 1\n")
    return tmp_path


def test_port_that_is_quick_shows_no_progress(folder_of_three_files, capsys):
    assert read_errors_of_port(capsys, folder_of_three_files) == []


def test_port_that_takes_long_shows_its_progress(folder_of_three_files, capsys, monkeypatch):
    monkeypatch.setattr(commands, "SECONDS", 0)  # so that every file counts as slow

    assert read_errors_of_port(capsys, folder_of_three_files) == [
        "read 0 of 3 files",
        "read 1 of 3 files",
        "read 2 of 3 files",
    ]
