"""What models are given and announce: widths of any integer type, observations as NumPy arrays of
any rank.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from observation_kinds import KINDS, SIZES

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.models import inner_model
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

OBS, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
IMAGE = spaces.Box(0, 255, (12, 12, 3), np.uint8)
SMALL = {"fcnet_hiddens": [4], "lstm_cell_size": 4, "conv_filters": [[4, [12, 12], 1]]}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def custom(framework, announced):
    base = TorchModelV2 if framework == "torch" else TFModelV2

    class Custom(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.announced_by_base = self.num_outputs
            if announced is not None and self.num_outputs is None:
                self.num_outputs = announced
            elif announced is not None:
                self.num_outputs = type(announced)(self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            x = input_dict["obs_flat"]
            return x[:, :1] + (torch.zeros if framework == "torch" else tf.zeros)(
                self.num_outputs
            ), state

    return Custom


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8, int])
def test_num_outputs_is_a_plain_integer_however_it_is_given(framework, number):
    cases = [
        (OBS, {}),
        (IMAGE, {}),
        (OBS, {"use_lstm": True}),
        (OBS, {"use_attention": True}),
        (spaces.Dict({"i": IMAGE, "v": OBS}), {}),
        (OBS, {"custom_model": custom(framework, None)}),
        (OBS, {"custom_model": custom(framework, number(5))}),
        (OBS, {"custom_model": custom(framework, number(5)), "use_lstm": True}),
    ]
    for obs_space, config in cases:
        encoded = rlcatalog.default_catalog().preprocessor_for(obs_space).observation_space
        model = ModelCatalog.get_model_v2(encoded, TWO, number(2), {**SMALL, **config}, framework)
        while model is not None:
            assert type(model.num_outputs) is int
            assert type(getattr(model, "announced_by_base", None) or 1) is int
            model = inner_model(model)


@pytest.mark.parametrize(
    ("space", "keys"), [(space, keys) for space, keys, *_ in KINDS.values()], ids=KINDS
)
def test_a_tensorflow_model_takes_observations_as_arrays(space, keys):
    policy = rlcatalog.build(space, TWO, {**SIZES, "fcnet_hiddens": [4], **keys}, "tf")
    space.seed(0)
    obs = policy.preprocess([space.sample() for _ in range(3)])
    for given in (obs, obs.tolist()):
        outputs, _ = policy.model({"obs": np.asarray(given, obs.dtype), "is_training": False})
        expected, _ = policy.model({"obs": tf.constant(obs), "is_training": False})
        np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


PARTS = spaces.Dict(
    a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,)), c=spaces.Tuple([spaces.MultiDiscrete([2, 3])])
)
TAKEN = {
    "a": np.array([0, 2]),
    "b": np.array([[0.5, 0.25], [-1, 1]], np.float32),
    "c": (np.array([[1, 2], [0, 0]]),),
}
#: By hand, the keys in their order.
LAID_OUT = [[1, 0, 0, 0.5, 0.25, 0, 1, 0, 0, 1], [0, 0, 1, -1, 1, 1, 0, 1, 0, 0]]


@frameworks
@pytest.mark.parametrize("use_lstm", [False, True])
def test_a_model_takes_the_parts_of_observations_as_arrays(framework, use_lstm):
    tensor = torch.as_tensor if framework == "torch" else tf.constant
    encoded = ModelCatalog.get_preprocessor_for_space(PARTS).observation_space
    model = ModelCatalog.get_model_v2(encoded, TWO, 2, {**SMALL, "use_lstm": use_lstm}, framework)
    state = [tensor(np.zeros((2, 4), np.float32)) for _ in range(2 * use_lstm)]
    lengths = tensor(np.ones(2, np.int32))
    flat = np.array(LAID_OUT, np.float32)
    expected = np.asarray(
        model({"obs": tensor(flat)}, state, lengths)[0].numpy(force=True)
        if framework == "torch"
        else model({"obs": tensor(flat)}, state, lengths)[0]
    )
    for obs in (TAKEN, flat):
        given = {"obs": obs}
        outputs, _ = model(given, state, lengths)
        np.testing.assert_allclose(
            outputs.detach() if framework == "torch" else outputs, expected, rtol=1e-5
        )
        assert given["obs"] is obs


@frameworks
def test_a_users_model_sees_tensors(framework):
    base, is_tensor = (
        (TorchModelV2, torch.is_tensor) if framework == "torch" else (TFModelV2, tf.is_tensor)
    )

    class Seer(base):
        def forward(self, input_dict, state, seq_lens):
            obs, flat = input_dict["obs"], input_dict["obs_flat"]
            assert all(map(is_tensor, (obs["a"], obs["b"], obs["c"][0], flat)))
            np.testing.assert_array_equal(flat, np.array(LAID_OUT, np.float32))
            return flat[:, :2], state

    Seer(ModelCatalog.get_preprocessor_for_space(PARTS).observation_space, TWO, 2, {}, "seer")(
        {"obs": TAKEN}
    )


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 5, 3), (2, 2, 2, 2)], ids=str)
def test_what_a_users_tensorflow_model_sees_of_an_array_is_flat(shape):
    class Seer(TFModelV2):
        def forward(self, input_dict, state, seq_lens):
            self.seen = input_dict["obs_flat"]
            return tf.zeros([len(self.seen), 2]), state

    space = spaces.Box(-1, 1, shape, np.float32)
    model = Seer(space, TWO, 2, {}, "seer")
    obs = np.random.default_rng(0).uniform(-1, 1, (5, *shape)).astype(np.float32)
    model({"obs": obs})
    np.testing.assert_array_equal(np.asarray(model.seen), obs.reshape(5, -1))
