"""Batches of 0 rows, wherever a batch is taken: nothing in, nothing out, in the shapes and dtypes
of a full one.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf
import torch
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

OBS = spaces.Box(-1, 1, (3,), np.float32)
TWO = spaces.Discrete(2)
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
    "recurrent custom model": (OBS, TWO, {"custom_model": "recurrent"}),
}


class TFRNN(RecurrentNetwork):
    """A recurrent model of a user's."""

    def __init__(self, *args):
        super().__init__(*args)
        self.cell = tf.keras.layers.GRU(5, return_sequences=True, return_state=True)
        self.end = tf.keras.layers.Dense(3)

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


def allow_all(obs):
    """Let the action mask of an observation, if it has one, allow every action."""
    if isinstance(obs, dict) and "action_mask" in obs:
        obs["action_mask"] = {"a": np.ones(2, np.int8)}
    return obs


def leaves(value):
    """Return the arrays of a structure."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, tuple):
        return [value]
    arrays = []
    for part in value:
        arrays += leaves(part)
    return arrays


def assert_same_but_for_rows(empty, two_rows):
    """Check values of 0 rows against those of 2: structure, dtypes, and all axes but the first."""
    assert type(empty) is type(two_rows)
    for none, two in zip(leaves(empty), leaves(two_rows), strict=True):
        if two is None:
            assert none is None
            continue
        assert len(two) == 2
        assert none.shape == (0, *two.shape[1:])
        assert none.dtype == two.dtype


# --- policies -------------------------------------------------------------------------------------


class Batches:
    """A policy, two observations, and an empty batch of them; and what `act` returned for both."""

    def __init__(self, part, framework):
        obs_space, action_space, keys = PARTS[part]
        config = {**SMALL, **keys}
        if config.get("custom_model") == "recurrent":
            config["custom_model"] = RECURRENT[framework]
        self.policy = rlcatalog.build(obs_space, action_space, config, framework)
        obs_space.seed(0)
        self.two_rows = [allow_all(obs_space.sample()) for _ in range(2)]
        self.empty = create_empty_array(obs_space, 0)
        self.step_of_two = self.policy.act(self.two_rows, prev_reward=np.zeros(2, np.float32))

    def act(self, obs, explore=True):
        """Act on a batch without rows."""
        state = self.policy.initial_state(0)
        return self.policy.act(obs, state, prev_reward=np.zeros(0, np.float32), explore=explore)


@pytest.fixture
def batches(part, framework):
    return Batches(part, framework)


each_part = pytest.mark.parametrize("part", PARTS)
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


@pytest.mark.grid
@frameworks
@each_part
def test_act_accepts_an_empty_batch(batches):
    step = batches.act(batches.empty)
    # All fields but the state.
    assert_same_but_for_rows(step[:5], batches.step_of_two[:5])


@pytest.mark.grid
@frameworks
@each_part
def test_act_accepts_an_empty_list(batches):
    step = batches.act([], explore=False)
    assert_same_but_for_rows(step[:5], batches.step_of_two[:5])


@pytest.mark.grid
@frameworks
@each_part
def test_state_after_an_empty_batch_has_no_rows(batches):
    state = batches.act(batches.empty).state
    state_of_two = batches.step_of_two.state
    if state_of_two is None:  # the policy has no memory
        return
    assert_same_but_for_rows(state.memory, state_of_two.memory)
    assert_same_but_for_rows(state.seen, state_of_two.seen)
    for window in leaves(dict(state.history.windows)):
        assert window.shape[0] == 0


@pytest.mark.grid
@frameworks
@each_part
def test_preprocess_values_and_masks_accept_an_empty_batch(batches):
    policy = batches.policy
    state = batches.act(batches.empty).state
    state_of_two = batches.step_of_two.state

    encoded = policy.preprocess(batches.empty, update=True)
    values = policy.values(encoded, state, prev_reward=np.zeros(0))
    mask = policy.action_mask(batches.empty)

    encoded_two = policy.preprocess(batches.two_rows)
    assert_same_but_for_rows(encoded, encoded_two)
    values_of_two = policy.values(encoded_two, state_of_two, prev_reward=np.zeros(2))
    assert_same_but_for_rows(values, values_of_two)
    assert_same_but_for_rows(mask, policy.action_mask(batches.two_rows))


@pytest.mark.grid
@frameworks
@each_part
def test_evaluate_accepts_an_empty_batch(batches):
    policy = batches.policy
    step = batches.act(batches.empty)
    batch = {
        "obs": policy.preprocess(batches.empty),
        "raw_action": step.raw_action,
        "dist_inputs": step.dist_inputs,
        "mask": policy.action_mask(batches.empty),
    }
    if policy.views.training:
        batch["views"] = step.state.seen
    if policy.memory:
        batch["seq_lens"] = np.zeros(0, np.int32)
        batch["state"] = step.state.memory

    evaluation = policy.evaluate(batch)

    for values in (evaluation.logp, evaluation.entropy, evaluation.value, evaluation.kl):
        assert tuple(values.shape) == (0,)


# --- distributions and codecs ---------------------------------------------------------------------


def zeros(shape, framework):
    return torch.zeros(shape) if framework == "torch" else tf.zeros(shape)


#: Without autoregressive actions, whose distribution belongs to a model.
each_action = pytest.mark.parametrize(("space", "config"), ACTIONS.values(), ids=ACTIONS)


def resolve(space, config, framework):
    return rlcatalog.default_catalog().resolve(OBS, space, {**SMALL, **config}, framework)


@pytest.mark.grid
@frameworks
@each_action
@pytest.mark.parametrize("rows", [0, 2])
def test_distributions_return_a_number_for_each_row(framework, space, config, rows):
    resolution = resolve(space, config, framework)
    dist_class = resolution.dists.load(framework, resolution.config.fresh())
    dist = dist_class(zeros((rows, resolution.num_outputs), framework))

    for sample in (dist.rsample(), dist.sample(), dist.deterministic_sample()):
        assert tuple(dist.logp(sample).shape) == (rows,)
        assert tuple(dist.entropy_estimate().shape) == (rows,)
    with contextlib.suppress(NoClosedFormError):
        assert tuple(dist.kl(dist).shape) == (rows,)


@pytest.mark.grid
@frameworks
@each_action
@pytest.mark.parametrize("action_bounds", ["clip", "affine"])
def test_action_codecs_accept_empty_batches(framework, space, config, action_bounds):
    raw_kinds = resolve(space, config, framework).dists.raw_kinds(framework)
    codec = action_codec(SpaceInfo.read(space, "action"), action_bounds, raw_kinds)
    raw_of_two = np.zeros((2, codec.width), np.float32)
    empty_raw = raw_of_two[:0]

    actions = codec.adapt(empty_raw)

    assert_same_but_for_rows(actions, codec.adapt(raw_of_two))
    assert codec.invert(actions).shape == (0, codec.width)
    assert codec.inputs(empty_raw).shape == (0, codec.input_width)
    assert_same_but_for_rows(codec.shown(empty_raw), codec.shown(raw_of_two))


each_kind = pytest.mark.parametrize(("space", "keys"), KINDS.values(), ids=KINDS)


def transform_two(codec, space):
    space.seed(1)
    return codec.transform_batch([space.sample() for _ in range(2)])


@each_kind
def test_transform_batch_accepts_an_empty_list(space, keys):
    codec = rlcatalog.default_catalog().preprocessor_for(space, {**SIZES, **keys})
    assert_same_but_for_rows(codec.transform_batch([]), transform_two(codec, space))


@each_kind
def test_encode_batch_accepts_an_empty_batch(space, keys):
    codec = rlcatalog.default_catalog().preprocessor_for(space, {**SIZES, **keys})
    empty = create_empty_array(space, 0)
    if any(leaf is None for leaf in leaves(empty)):
        return  # Gymnasium has no batches of other spaces than its own
    assert_same_but_for_rows(codec.encode_batch(empty), transform_two(codec, space))


# --- masks ----------------------------------------------------------------------------------------


each_maskable_space = pytest.mark.parametrize(
    "space",
    [
        TWO,
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Tuple([TWO, spaces.MultiDiscrete([3])]),
    ],
    ids=["discrete", "multi_discrete", "multi_binary", "tuple"],
)


@each_maskable_space
def test_mask_matrix_accepts_no_rows(space):
    masks = ActionMasks(SpaceInfo.read(space, "action"))

    for empty in ([], np.zeros((0, masks.size), bool)):
        assert masks.matrix(empty).shape == (0, masks.size)
        assert masks.matrix(empty, batch_size=0).shape == (0, masks.size)


@each_maskable_space
def test_mask_matrix_rejects_no_rows_for_two(space):
    masks = ActionMasks(SpaceInfo.read(space, "action"))

    with pytest.raises(ActionMaskError):
        masks.matrix([], batch_size=2)
