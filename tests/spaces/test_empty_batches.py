"""Batches of 0 rows, wherever a batch is taken: nothing in, nothing out, in the shapes and dtypes
of a full one.
"""

from __future__ import annotations

import contextlib
from functools import cache

import numpy as np
import pytest
import tensorflow as tf
from action_kinds import ACTIONS, DEPENDENT
from builders import sample_observations, to_tensor
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array
from nested import leaves
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

CATALOG = rlcatalog.default_catalog()
THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
IMAGE_42x42 = spaces.Box(0, 255, (42, 42, 3), np.uint8)
TWO_ACTIONS = spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4]}
ALL_ACTIONS = {**ACTIONS, **DEPENDENT}
MASKED = spaces.Dict(
    {"obs": THREE_FEATURES, "action_mask": spaces.Dict({"a": spaces.MultiBinary(2)})}
)
#: Name → observation space, action space, config.
PARTS = {
    "structured actions": (THREE_FEATURES, *ALL_ACTIONS["dict, one part by path"]),
    "dependent actions": (THREE_FEATURES, *ALL_ACTIONS["dict, autoregressive"]),
    "dependent choices": (THREE_FEATURES, *ALL_ACTIONS["multi_discrete, autoregressive"]),
    "masks": (MASKED, spaces.Dict({"a": TWO_ACTIONS, "b": THREE_FEATURES}), {}),
    "a filter": (THREE_FEATURES, TWO_ACTIONS, {"observation_filter": "MeanStdFilter"}),
    "images, RLlib's list": (spaces.Box(0, 255, (84, 84, 4), np.uint8), TWO_ACTIONS, {}),
    "images, flattened": (
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        TWO_ACTIONS,
        {"conv_filters": "nature"},
    ),
    "images, residual": (
        spaces.Box(0, 255, (16, 16, 3), np.uint8),
        TWO_ACTIONS,
        {"conv_filters": "impala"},
    ),
    "images, a list": (
        spaces.Box(0, 255, (16, 12, 3), np.uint8),
        TWO_ACTIONS,
        {"conv_filters": [[4, [4, 4], 2], [8, [8, 6], 1]]},
    ),
    "parts with an image": (
        spaces.Dict({"image": IMAGE_42x42, "vector": THREE_FEATURES, "choice": TWO_ACTIONS}),
        TWO_ACTIONS,
        {},
    ),
    "lstm": (THREE_FEATURES, TWO_ACTIONS, {"use_lstm": True, "lstm_cell_size": 4}),
    "lstm, past": (
        THREE_FEATURES,
        ACTIONS["dict"][0],
        {
            "use_lstm": True,
            "lstm_cell_size": 4,
            "lstm_use_prev_action": True,
            "lstm_use_prev_reward": True,
        },
    ),
    "attention, past": (
        THREE_FEATURES,
        TWO_ACTIONS,
        {
            "use_attention": True,
            "attention_use_n_prev_actions": 2,
            "attention_use_n_prev_rewards": 1,
        },
    ),
    "recurrent custom model": (THREE_FEATURES, TWO_ACTIONS, {"custom_model": "recurrent"}),
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


def assert_same_but_for_rows(empty, two_rows):
    """Check values of 0 rows against those of 2: structure, dtypes, and all axes but the first."""
    assert type(empty) is type(two_rows)
    for none, two in zip(leaves(empty), leaves(two_rows), strict=True):
        if two is None:
            assert none is None
            continue
        assert len(two) == 2
        if isinstance(two, list):  # the actions of a OneOf, one for each row
            assert none == []
            continue
        assert none.shape == (0, *two.shape[1:])
        assert none.dtype == two.dtype


# --- policies -------------------------------------------------------------------------------------


class Batches:
    """A policy with two observations, an empty batch of them, and what `act` returned for both."""

    def __init__(self, part, framework):
        obs_space, action_space, keys = PARTS[part]
        config = {**SMALL, **keys}
        if config.get("custom_model") == "recurrent":
            config["custom_model"] = RECURRENT[framework]
        self.policy = rlcatalog.build(obs_space, action_space, config, framework)
        self.obs = [allow_all(obs) for obs in sample_observations(obs_space, rows=2)]
        self.empty_obs = create_empty_array(obs_space, 0)
        self.step = self.policy.act(self.obs, prev_reward=np.zeros(2, np.float32))
        self.empty_step = self.act_without_rows(self.empty_obs)

    def act_without_rows(self, empty_obs):
        state = self.policy.initial_state(0)
        return self.policy.act(empty_obs, state, prev_reward=np.zeros(0, np.float32))


@cache
def make_batches(part, framework):
    return Batches(part, framework)


@pytest.fixture
def batches(part, framework):
    """The batches of a part, which several tests read."""
    return make_batches(part, framework)


for_each_part = pytest.mark.parametrize("part", PARTS)
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


@pytest.mark.grid
@frameworks
@for_each_part
def test_act_accepts_an_empty_batch_or_list(batches):
    step_of_list = batches.act_without_rows([])

    for field in ("action", "raw_action", "logp", "value", "dist_inputs"):
        expected = getattr(batches.step, field)
        assert_same_but_for_rows(getattr(batches.empty_step, field), expected)
        assert_same_but_for_rows(getattr(step_of_list, field), expected)


@pytest.mark.grid
@frameworks
@for_each_part
def test_state_after_an_empty_batch_has_no_rows(batches):
    state = batches.empty_step.state
    if state is None:  # the policy has no memory
        return
    assert_same_but_for_rows(state.memory, batches.step.state.memory)
    assert_same_but_for_rows(state.views, batches.step.state.views)
    for window in leaves(dict(state.history.windows)):
        assert window.shape[0] == 0


@pytest.mark.grid
@frameworks
@for_each_part
def test_preprocess_and_masks_accept_an_empty_batch(batches):
    policy = batches.policy

    encoded = policy.preprocess(batches.empty_obs, update=True)
    mask = policy.action_mask(batches.empty_obs)

    assert_same_but_for_rows(encoded, policy.preprocess(batches.obs))
    assert_same_but_for_rows(mask, policy.action_mask(batches.obs))


@pytest.mark.grid
@frameworks
@for_each_part
def test_values_of_an_empty_batch_have_no_rows(batches):
    encoded = batches.policy.preprocess(batches.empty_obs)
    state = batches.empty_step.state

    values = batches.policy.values(encoded, state, prev_reward=np.zeros(0))

    assert values.shape == (0,)
    assert values.dtype == batches.step.value.dtype


@pytest.mark.grid
@frameworks
@for_each_part
def test_evaluate_accepts_an_empty_batch(batches):
    policy = batches.policy
    step = batches.empty_step
    batch = {
        "obs": policy.preprocess(batches.empty_obs),
        "raw_action": step.raw_action,
        "dist_inputs": step.dist_inputs,
        "mask": policy.action_mask(batches.empty_obs),
    }
    if policy.views.training_repeats:
        batch["views"] = step.state.views  # the past steps that the model reads
    if policy.memory:
        batch["seq_lens"] = np.zeros(0, np.int32)
        batch["state"] = step.state.memory

    evaluation = policy.evaluate(batch)

    for values in (evaluation.logp, evaluation.entropy, evaluation.value, evaluation.kl):
        assert tuple(values.shape) == (0,)


# --- distributions and codecs ---------------------------------------------------------------------


#: Without autoregressive actions, whose distribution belongs to a model.
each_action = pytest.mark.parametrize(("space", "config"), ACTIONS.values(), ids=ACTIONS)


@pytest.mark.grid
@frameworks
@each_action
@pytest.mark.parametrize("rows", [0, 2])
def test_distributions_return_a_number_for_each_row(framework, space, config, rows):
    dist_class, size = CATALOG.action_dist(space, config, framework=framework)
    inputs = np.zeros((rows, size), np.float32)
    dist = dist_class(to_tensor(framework, inputs))

    for sample in (dist.rsample(), dist.sample(), dist.deterministic_sample()):
        assert tuple(dist.logp(sample).shape) == (rows,)
        assert tuple(dist.entropy_estimate().shape) == (rows,)
    with contextlib.suppress(NoClosedFormError):  # some have no formula
        assert tuple(dist.kl(dist).shape) == (rows,)


@pytest.mark.grid
@frameworks
@each_action
@pytest.mark.parametrize("action_bounds", ["clip", "affine"])
def test_action_codecs_accept_empty_batches(framework, space, config, action_bounds):
    resolution = CATALOG.resolve(THREE_FEATURES, space, config, framework)
    raw_kinds = resolution.dists.raw_kinds(framework)  # how each part is drawn
    codec = action_codec(SpaceInfo.read(space, "action"), action_bounds, raw_kinds)
    raw_of_two = np.zeros((2, codec.width), np.float32)
    empty_raw = np.zeros((0, codec.width), np.float32)

    empty_actions = codec.adapt(empty_raw)

    assert_same_but_for_rows(empty_actions, codec.adapt(raw_of_two))
    # `shown` gives raw actions in the space's shape, `inputs` as a model reads them.
    assert_same_but_for_rows(codec.shown(empty_raw), codec.shown(raw_of_two))
    assert codec.invert(empty_actions).shape == (0, codec.width)
    assert codec.inputs(empty_raw).shape == (0, codec.input_width)


each_kind = pytest.mark.parametrize(("space", "keys"), KINDS.values(), ids=KINDS)


@each_kind
def test_preprocessor_accepts_an_empty_list_and_batch(space, keys):
    preprocessor = CATALOG.preprocessor_for(space, {**SIZES, **keys})
    two_rows = preprocessor.transform_batch(sample_observations(space, rows=2))

    assert_same_but_for_rows(preprocessor.transform_batch([]), two_rows)

    empty = create_empty_array(space, 0)
    if all(leaf is not None for leaf in leaves(empty)):  # Gymnasium has batches of its own spaces
        assert_same_but_for_rows(preprocessor.encode_batch(empty), two_rows)


# --- masks ----------------------------------------------------------------------------------------


each_maskable_space = pytest.mark.parametrize(
    "space",
    [
        TWO_ACTIONS,
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Tuple([TWO_ACTIONS, spaces.MultiDiscrete([3])]),
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
