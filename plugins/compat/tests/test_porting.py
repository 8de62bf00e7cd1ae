"""`rlcatalog port`: small samples in, what they become out; what cannot be ported, with lines."""

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


def ported(code):
    found = port(textwrap.dedent(code).encode())
    again = port(found.content)
    assert again.content == found.content, "not idempotent"
    return found.content.decode(), [(note.line, note.what) for note in found.notes]


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
def test_imports(old, new):
    assert ported(old + "\n") == (new + "\n", [])


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
def test_lines(old, new):
    assert ported(HEAD + old + "\n") == (HEAD + new + "\n", [])


def test_where_of_the_older_tensorflow_chooses_rows():
    tf = pytest.importorskip("tensorflow")
    lines = (
        "from ray.rllib.utils import try_import_tf\n\ntf = try_import_tf()\ny = tf.where(rows,"
        " x, -x)\n"
    )
    content, notes = ported(lines)
    assert "y = tf.compat.v1.where(rows, x, -x)" in content
    assert notes == []
    assert ported(content) == (content, [])
    given = np.arange(6.0).reshape(3, 2)
    names = {"x": tf.constant(given), "rows": tf.constant([True, False, True])}
    exec(content, names)
    assert names["y"].numpy().tolist() == [[0, 1], [-2, -3], [4, 5]]


def test_where_of_todays_tensorflow_stays():
    line = "y = tf.where(rows, x, -x)\n"
    assert ported(HEAD + line) == (HEAD + line, [])


def test_the_older_try_import_tf():
    found, _ = ported(
        "from ray.rllib.utils import try_import_tf\n\ntf = try_import_tf()  # maybe\ny ="
        " tf.log(x)\n"
    )
    assert found == (
        "from rlcatalog_compat.rllib.utils import try_import_tf\n\n"
        "_, tf, _ = try_import_tf()  # maybe\ny = tf.math.log(x)\n"
    )


def test_names_that_are_not_tensorflow_stay():
    code = "import math as tf\n\nx = tf.log(3)\nnp = {}\nnp.product = 1\n"
    assert ported(code) == (code, [])


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
    found, notes = ported(HEAD + MASK)
    assert notes == []
    layer = "rlcatalog_compat.operations.apply(lambda x: {}, {})"
    mask = layer.format("tf.sequence_mask(x[0], tf.shape(x[1])[1])", "[seq_in, inputs]")
    assert f"        inputs,\n        mask={mask},  # hides padding\n" in found
    assert layer.format("tf.expand_dims(tf.concat([x[0], x[1]], axis=1), 1)", "[out, h]") in found
    assert "    # the memory\n" in found


def test_the_older_valid_padding_is_todays_same_padding():
    old = "from ray.rllib.models.torch.misc import SlimFC, valid_padding\n"
    new = "from rlcatalog_compat.rllib.models.torch.misc import SlimFC, {}\n"
    uses = "padding, out_size = valid_padding(in_size, kernel, [2, 2])\n"
    assert ported(old + uses) == (new.format("same_padding as valid_padding") + uses, [])
    uses = "height, width = valid_padding(in_size, kernel, [2, 2])\n"
    assert ported(old + uses) == (new.format("valid_padding") + uses, [])


def test_tensorflow_functions_in_lists_of_layers_are_lifted():
    code = """
import tensorflow as tf
x = tf.keras.layers.Input((3,))
for layer in [tf.keras.layers.Dense(8), tf.nn.relu]:
    x = layer(x)
"""
    ported = port(code.encode()).content.decode()
    assert "[tf.keras.layers.Dense(8), rlcatalog_compat.operations.lift(tf.nn.relu)]" in ported


def test_lists_of_dtypes_and_models_without_inputs_stay():
    code = """
import tensorflow as tf
x = tf.keras.layers.Input((3,))
kinds = [tf.float32, tf.int32]
"""
    functions = "import tensorflow as tf\nfunctions = [tf.nn.relu]\n"
    assert "lift" not in port(code.encode()).content.decode()
    assert port(functions.encode()).content.decode() == functions


def test_time_distributed_layers_take_any_number_of_steps():
    code = "import tensorflow as tf\nlayer = tf.keras.layers.TimeDistributed(net, name='a')\n"
    ported = port(code.encode()).content.decode()
    assert "layer = rlcatalog_compat.operations.time_distributed(net, name='a')" in ported
    assert "import rlcatalog_compat.operations" in ported


def test_operations_of_keras_backend_become_layers_too():
    build = (
        "def build():\n    x = tf.keras.layers.Input((3,))\n    return"
        " tf.keras.backend.cast(x, tf.int32)\n"
    )
    found, _ = ported(HEAD + build)
    assert (
        "return rlcatalog_compat.operations.apply(lambda x: tf.keras.backend.cast(x, tf.int32), x)"
        in found
    )


def test_a_mask_as_long_as_the_padding_runs():
    tf = pytest.importorskip("tensorflow")
    found, _ = ported(HEAD + MASK)
    names = {}
    exec(found, names)
    model = names["build"](3)
    assert model([tf.zeros([2, 5, 3]), tf.constant([2, 3])]).shape == (2, 1, 16)


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


def test_batch_normalisation_becomes_a_layer_of_the_model():
    found, notes = ported(HEAD + NORM)
    assert notes == []
    assert (
        """
        super(Net, self).__init__(*args)
        self.kept_layers = rlcatalog_compat.layers.start()
        self.batch_norm = 3
"""
        in found
    )
    kept = "rlcatalog_compat.layers.batch_normalization"
    inputs = 'input_dict["obs"], training=input_dict["is_training"], momentum=0.9'
    assert (
        f'x = {kept}(\n            self, "batch_normalization", {inputs})  # as in the page\n'
        in found
    )
    assert f'return {kept}(self, "second", x, training=False), state' in found


def test_a_class_without_constructor_gets_one():
    code = (
        HEAD + "class Net(TFModelV2):\n    def forward(self, x):\n        return"
        " tf.layers.batch_normalization(x)\n"
    )
    found, _ = ported(code)
    assert (
        "        super().__init__(*args, **kwargs)\n        self.kept_layers ="
        " rlcatalog_compat.layers" in found
    )


def test_a_keras_models_call_without_state():
    code = """\
    class Net(TFModelV2):
        def __init__(self):
            self.base_model = tf.keras.models.Model(i, o)
            self.other = Other()

        def forward(self, input_dict, state, seq_lens):
            self.other(input_dict["obs"], state, seq_lens)
            return self.base_model(input_dict["obs"], state, seq_lens)
    """
    found, _ = ported(code)
    assert 'return self.base_model(input_dict["obs"])\n' in found
    assert 'self.other(input_dict["obs"], state, seq_lens)' in found


def test_layers_of_tensorflow_1_are_kept_by_the_model():
    code = """\
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
    found, notes = ported(HEAD + textwrap.dedent(code))
    assert notes == []
    assert "try_import_tf\nimport rlcatalog_compat.layers\n" in found
    kept = "rlcatalog_compat.layers"
    assert (
        f"        super().__init__(*args, **kwargs)\n        self.kept_layers = {kept}.start()\n"
        in found
    )
    assert (
        f'x = {kept}.dense(self, "fc{{}}".format(i), x, 8, activation=tf.tanh)  # hidden\n' in found
    )
    assert f'x = {kept}.batch_normalization(self, "bn{{}}".format(i), x, training=True)\n' in found
    assert (
        f'x = {kept}.dense(self, "dense", {kept}.flatten(self, "flatten", x), self.num_outputs)\n'
        in found
    )
    assert f'bias = {kept}.get_variable(self, "bias", shape=(), initializer=' in found


def test_kept_layers_are_the_same_at_each_pass():
    tf = pytest.importorskip("tensorflow")

    class Net:
        def __init__(self):
            self.kept_layers = layers.start()

    net, other, x = Net(), Net(), tf.random.normal([2, 4, 4, 1])
    for function, arguments in [
        ("conv2d", (3, 2)),
        ("flatten", ()),
        ("batch_normalization", ()),
        ("dense", (2,)),
    ]:
        called = getattr(layers, function)
        first = called(net, function, x, *arguments)
        assert np.array_equal(called(net, function, x, *arguments), first)
    assert list(net.kept_layers) == ["conv2d", "flatten", "batch_normalization", "dense"]
    assert not np.array_equal(
        layers.dense(net, "second", x, 2), layers.dense(other, "second", x, 2)
    )
    bias = layers.get_variable(net, "bias", (3,), initializer=0.5)
    assert bias.numpy().tolist() == [0.5] * 3
    assert layers.get_variable(net, "bias", (3,)) is bias


def test_convolutions_of_frames_are_those_of_keras_2():
    code = """\
    def block(x):
        x = tf.keras.layers.Conv2D(filters=4, kernel_size=3, name="conv")(x)
        return tf.keras.layers.MaxPool3D(pool_size=2)(x)
    """
    found, notes = ported(HEAD + textwrap.dedent(code))
    assert notes == []
    assert "try_import_tf\nimport rlcatalog_compat.frames\n" in found
    assert (
        '    x = rlcatalog_compat.frames.conv2d(filters=4, kernel_size=3, name="conv")(x)\n'
        in found
    )
    assert ported(found) == (found, [])
    flat = HEAD + textwrap.dedent(code).replace("MaxPool3D", "MaxPool2D")
    # Rows of pictures: Keras 3's layer takes them.
    assert "layers.Conv2D(filters=4" in ported(flat)[0]


@pytest.mark.parametrize("options", [{}, {"strides": 2, "padding": "same"}], ids=str)
@pytest.mark.parametrize(
    "before", [(2,), (2, 3), (2, 3, 2)], ids=["pictures", "frames", "frames of frames"]
)
def test_each_frame_is_convolved_alone(before, options):
    tf = pytest.importorskip("tensorflow")
    x = np.random.default_rng(0).random((*before, 7, 6, 2)).astype(np.float32)
    layer = frames.conv2d(4, 3, activation="relu", **options)
    symbolic = layer(tf.keras.Input(x.shape[1:]))
    found = layer(x).numpy()
    assert symbolic.shape == (None, *found.shape[1:])
    kernel, bias = (weight.numpy() for weight in layer.weights)
    padding, strides = options.get("padding", "valid").upper(), options.get("strides", 1)
    for place in np.ndindex(*before):
        expected = tf.nn.relu(
            tf.nn.conv2d(x[place][None], kernel, strides, padding) + bias
        ).numpy()[0]
        np.testing.assert_allclose(found[place], expected, rtol=1e-4, atol=1e-5)


REPORTED = """\
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


def test_what_cannot_be_ported_is_reported_with_its_line():
    found, notes = ported(REPORTED)
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
    assert found.startswith(
        "from rlcatalog_compat.rllib.models import ModelCatalog  # both\nfrom ray.rllib.models"
        " import Model\nfrom ray.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy\n"
    )


def run(capsys, *arguments):
    try:
        main(["port", *map(str, arguments)])
        status = 0
    except SystemExit as end:
        status = end.code or 0
    return status, capsys.readouterr().out


def test_the_command_shows_then_writes(tmp_path, capsys):
    file, hidden, other = tmp_path / "a.py", tmp_path / ".venv/b.py", tmp_path / "c.txt"
    hidden.parent.mkdir()
    old = b"# caf\xc3\xa9\r\nimport gym\r\n\r\nx = 1"
    for path in (file, hidden, other):
        path.write_bytes(old)
    status, shown = run(capsys, tmp_path)
    assert status == 0
    assert "-import gym" in shown
    assert "+import gymnasium as gym" in shown
    assert "1 file to change; pass --write to change; 0 places could not be ported" in shown
    assert file.read_bytes() == old
    assert run(capsys, tmp_path, "--write") == (0, "1 file changed; 0 places could not be ported\n")
    assert file.read_bytes() == old.replace(b"import gym", b"import gymnasium as gym")
    assert (hidden.read_bytes(), other.read_bytes()) == (old, old)
    assert run(capsys, tmp_path) == (
        0,
        "0 files to change; pass --write to change; 0 places could not be ported\n",
    )


def test_the_commands_status_says_that_something_is_left(tmp_path, capsys):
    file, broken = tmp_path / "a.py", tmp_path / "b.py"
    file.write_text("from ray.rllib.models import Model\n")
    broken.write_text("print 'Python 2'\n")
    status, shown = run(capsys, file, broken)
    assert status == 1
    assert f"{file}:1: from ray.rllib.models import Model: the first model interface" in shown
    assert f"{broken}: cannot be read as Python 3" in shown
    with pytest.raises(SystemExit):
        main(["port", str(tmp_path / "nowhere")])
    assert "expected a file or folder" in capsys.readouterr().err


def test_the_command_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("x = 1\n")
    assert shown_errors(capsys, tmp_path) == []
    monkeypatch.setattr(commands, "SECONDS", 0)
    assert shown_errors(capsys, tmp_path) == [f"read {count} of 3 files" for count in range(3)]


def shown_errors(capsys, path):
    with pytest.raises(SystemExit):
        main(["port", str(path)])
    return capsys.readouterr().err.splitlines()


def test_numbers_for_recurrent_layers():
    """PyTorch's recurrent layers refuse NumPy's integers, which Gymnasium's Discrete has."""
    code = """\
    from torch import nn
    class Net(nn.Module):
        def __init__(self, obs_space, action_space):
            self.n = action_space.n
            self.rnn = nn.LSTM(int(action_space.n) + space.n, 4, batch_first=True)
    """
    new, notes = ported(code)
    assert "self.n = int(action_space.n)" in new
    assert "nn.LSTM(int(action_space.n) + int(space.n), 4" in new
    assert not notes
    plain = "x = nn.Linear(action_space.n, 4)\n"
    assert ported(plain) == (plain, [])


def test_calls_of_the_older_interface_of_gym_are_listed():
    code = """\
    obs = self.env.reset()
    obs, reward, done, info = env.step(action)
    obs, info = env.reset()
    obs, reward, terminated, truncated, info = env.step(action)
    state = model.reset()
    """
    new, notes = ported(code)
    assert new == textwrap.dedent(code)
    assert notes == [
        (1, "obs = self.env.reset()"),
        (2, "obs, reward, done, info = env.step(action)"),
    ]


def test_what_the_command_wrote_is_no_news_to_it():
    for module in ("layers", "operations", "frames"):
        line = f"import rlcatalog_compat.{module}\n"
        assert ported(line) == (line, [])
