"""Batches of 0 rows, wherever a batch is taken: nothing in, nothing out, in the shapes and dtypes
of a full one.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from action_kinds import ACTIONS, DEPENDENT
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array
from observation_kinds import KINDS, SIZES
from seed_models import TorchRNN

import rlcatalog
from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionMasks, action_codec
from rlcatalog.errors import ActionMaskError, NoClosedFormError
from rlcatalog_tf import RecurrentNetwork

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

OBS, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4]}
ALL_ACTIONS = {**ACTIONS, **DEPENDENT}
MASKED = spaces.Dict({"obs": OBS, "action_mask": spaces.Dict({"a": spaces.MultiBinary(2)})})
#: Name → observation space, action space, config.
PARTS = {
    "structured actions": (OBS, *ALL_ACTIONS["dict, one part by path"]),
    "dependent actions": (OBS, *ALL_ACTIONS["dict, autoregressive"]),
    "dependent choices": (OBS, *ALL_ACTIONS["multi_discrete, autoregressive"]),
    "masks": (MASKED, spaces.Dict({"a": TWO, "b": OBS}), {}),
    "a filter": (OBS, TWO, {"observation_filter": "MeanStdFilter"}),
    "images, RLlib's list": (spaces.Box(0, 255, (84, 84, 4), np.uint8), TWO, {}),
    "images, flattened": (
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        TWO,
        {"conv_filters": "nature"},
    ),
    "images, residual": (
        spaces.Box(0, 255, (16, 16, 3), np.uint8),
        TWO,
        {"conv_filters": "impala"},
    ),
    "images, a list": (
        spaces.Box(0, 255, (16, 12, 3), np.uint8),
        TWO,
        {"conv_filters": [[4, [4, 4], 2], [8, [8, 6], 1]]},
    ),
    "parts with an image": (
        spaces.Dict({"i": spaces.Box(0, 255, (42, 42, 3), np.uint8), "v": OBS, "d": TWO}),
        TWO,
        {},
    ),
    "lstm": (OBS, TWO, {"use_lstm": True, "lstm_cell_size": 4}),
    "lstm, past": (
        OBS,
        ACTIONS["dict"][0],
        {
            "use_lstm": True,
            "lstm_cell_size": 4,
            "lstm_use_prev_action": True,
            "lstm_use_prev_reward": True,
        },
    ),
    "attention, past": (
        OBS,
        TWO,
        {
            "use_attention": True,
            "attention_use_n_prev_actions": 2,
            "attention_use_n_prev_rewards": 1,
        },
    ),
    "recurrent, a user's": (OBS, TWO, {"custom_model": "recurrent"}),
}


class TFRNN(RecurrentNetwork):
    """A recurrent model of a user's."""

    def __init__(self, *args):
        super().__init__(*args)
        self.cell, self.end = (
            tf.keras.layers.GRU(5, return_sequences=True, return_state=True),
            tf.keras.layers.Dense(3),
        )

    def get_initial_state(self):
        return [np.zeros(5, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        y, h = self.cell(inputs, initial_state=state[0])
        ends = self.end(y)
        self.value = tf.reshape(ends[..., 2], [-1])
        return ends[..., :2], [h]

    def value_function(self):
        return self.value


RECURRENT = {"torch": TorchRNN, "tf": TFRNN}


def allowing(obs):
    if isinstance(obs, dict) and "action_mask" in obs:
        obs["action_mask"] = {"a": np.ones(2, np.int8)}
    return obs


def leaves(value):
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    return (
        [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]
    )


def same_but_for_rows(empty, full):
    """Check values of 0 rows against those of 2: structure, dtypes, and all axes but the first."""
    assert type(empty) is type(full)
    for none, two in zip(leaves(empty), leaves(full), strict=True):
        if two is None:
            assert none is None
            continue
        assert (none.shape, none.dtype) == ((0, *two.shape[1:]), two.dtype)
        assert len(two) == 2


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(("obs_space", "action_space", "config"), PARTS.values(), ids=PARTS)
def test_policy_accepts_empty_batches(framework, obs_space, action_space, config):
    config = {**SMALL, **config}
    if config.get("custom_model") == "recurrent":
        config["custom_model"] = RECURRENT[framework]
    policy = rlcatalog.build(obs_space, action_space, config, framework)
    obs_space.seed(0)
    obs = [allowing(obs_space.sample()) for _ in range(2)]
    empty = create_empty_array(obs_space, 0)
    two = policy.act(obs, prev_reward=np.zeros(2, np.float32))
    state = policy.initial_state(0)
    for none in (empty, []):
        found = policy.act(none, state, prev_reward=np.zeros(0, np.float32), explore=none is empty)
        same_but_for_rows(found[:5], two[:5])
    if two.state is not None:
        same_but_for_rows(found.state.memory, two.state.memory)
        same_but_for_rows(found.state.seen, two.state.seen)
        assert all(part.shape[0] == 0 for part in leaves(dict(found.state.history.windows)))
    encoded = policy.preprocess(empty, update=True)
    same_but_for_rows(encoded, policy.preprocess(obs))
    values = policy.values(encoded, found.state, prev_reward=np.zeros(0))
    same_but_for_rows(
        values, policy.values(policy.preprocess(obs), two.state, prev_reward=np.zeros(2))
    )
    mask = policy.action_mask(empty)
    same_but_for_rows(mask, policy.action_mask(obs))
    batch = {
        "obs": encoded,
        "raw_action": found.raw_action,
        "dist_inputs": found.dist_inputs,
        "mask": mask,
    }
    if policy.views.training:
        batch["views"] = found.state.seen
    if policy.memory:
        batch |= {"seq_lens": np.zeros(0, np.int32), "state": found.state.memory}
    evaluated = policy.evaluate(batch)
    for values in (evaluated.logp, evaluated.entropy, evaluated.value, evaluated.kl):
        assert tuple(values.shape) == (0,)


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(("space", "config"), ALL_ACTIONS.values(), ids=ALL_ACTIONS)
def test_distributions_action_codecs_take_no_rows(framework, space, config):
    request = rlcatalog.default_catalog().resolve(OBS, space, {**SMALL, **config}, framework)
    dist_class = request.dists.load(framework, request.config.fresh())
    info, kinds = SpaceInfo.read(space, "action"), request.dists.raw_kinds(framework)
    if "autoregressive" in str(config):
        return  # its conditionals belong to a model
    make = tf.zeros if framework == "tf" else __import__("torch").zeros
    drawn = {}
    for rows in (0, 2):
        dist = dist_class(make((rows, request.num_outputs)))
        for sample in (dist.rsample(), dist.sample(), dist.deterministic_sample()):
            drawn[rows] = sample
            for values in (dist.logp(sample), dist.entropy_estimate()):
                assert tuple(values.shape) == (rows,)
        with contextlib.suppress(NoClosedFormError):
            assert tuple(dist.kl(dist).shape) == (rows,)
    flat = np.zeros((2, action_codec(info, raw_kinds=kinds).width), np.float32)
    for bounds in ("clip", "affine"):
        codec = action_codec(info, bounds, kinds)
        none = codec.adapt(flat[:0])
        same_but_for_rows(none, codec.adapt(flat))
        assert codec.invert(none).shape == (0, codec.width)
    form = action_codec(info, raw_kinds=kinds)
    assert form.inputs(flat[:0]).shape == (0, form.input_width)
    same_but_for_rows(form.shown(flat[:0]), form.shown(flat))


@pytest.mark.parametrize(
    ("space", "keys"), [(space, keys) for space, keys, *_ in KINDS.values()], ids=KINDS
)
def test_every_codec_takes_no_rows(space, keys):
    catalog = rlcatalog.default_catalog()
    codec = catalog.preprocessor_for(space, {**SIZES, **keys})
    space.seed(1)
    full = codec.transform_batch([space.sample() for _ in range(2)])
    same_but_for_rows(codec.transform_batch([]), full)
    empty = create_empty_array(space, 0)
    # Gymnasium knows no batch of other spaces than its own.
    if not any(leaf is None for leaf in leaves(empty)):
        same_but_for_rows(codec.encode_batch(empty), full)


def test_masks_of_no_rows():
    for space in (
        TWO,
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Tuple([TWO, spaces.MultiDiscrete([3])]),
    ):
        masks = ActionMasks(SpaceInfo.read(space, "action"))
        for none in ([], np.zeros((0, masks.size), bool)):
            assert masks.matrix(none).shape == masks.matrix(none, 0).shape == (0, masks.size)
        with pytest.raises(ActionMaskError):
            masks.matrix([], 2)
