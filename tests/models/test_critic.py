"""`critic` and `obs_groups`: a critic with a config of its own, and a policy that sees only a part
of the observation.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import randomize_weights, sample_observations, to_array
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.errors import (
    ConfigError,
    ConfigTypeError,
    ModelContractError,
    NotServedError,
    ObservationError,
    ObservationWarning,
    UnreadKeysWarning,
    UnsupportedSpaceError,
)
from rlcatalog.models import SeparateCritic
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

CART = Box(-1, 1, (3,), np.float32)
SECRET = Box(-1, 1, (2,), np.float32)
CAMERA = Box(0, 255, (8, 8, 3), np.uint8)
SMALL_NETS = {"fcnet_hiddens": [5]}
LSTM = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 7}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 3,
    "attention_memory_training": 3,
}
#: The same in a critic, in which keys about both sides are refused.
LSTM_OF_CRITIC = {"use_lstm": True, "lstm_cell_size": 3}


def make_case(entries, *, policy, action=None, critic=None, **config):
    """Return spaces and a config in which the critic sees all entries, the policy only some."""
    space = Dict(entries)
    nets: dict[str, Any] = {} if policy == ["camera"] else SMALL_NETS
    critic_config: dict[str, Any] = {"fcnet_hiddens": [6]}
    if "camera" in policy:
        config["conv_filters"] = [[4, [8, 8], 1]]
        critic_config["conv_filters"] = [[3, [8, 8], 1]]
    return (
        space,
        action or Discrete(4),
        {
            **nets,
            "critic": {**critic_config, **(critic or {})},
            "obs_groups": {"policy": policy},
            **config,
        },
    )


CASES = {
    "vector": make_case({"cart": CART, "secret": SECRET}, policy=["cart"]),
    "image": make_case({"camera": CAMERA, "secret": SECRET}, policy=["camera"]),
    "image-and-vector": make_case(
        {"camera": CAMERA, "cart": CART, "secret": SECRET}, policy=["camera", "cart"]
    ),
    "nested": make_case(
        {"robot": Dict({"joints": CART, "secret": SECRET}), "goal": Discrete(3)},
        policy=["robot.joints", "obs['goal']"],
    ),
    "mask": make_case(
        {"action_mask": MultiBinary(4), "cart": CART, "secret": SECRET}, policy=["cart"]
    ),
    "embeddings": make_case(
        {"avail_actions": Box(-1, 1, (4, 3)), "cart": CART, "secret": SECRET},
        policy=["avail_actions", "cart"],
    ),
    "autoregressive": make_case(
        {"cart": CART, "secret": SECRET},
        policy=["cart"],
        action=MultiDiscrete([2, 3]),
        use_autoregressive=True,
    ),
    "free-log-std": make_case(
        {"cart": CART, "secret": SECRET},
        policy=["cart"],
        action=Box(-1, 1, (2,)),
        free_log_std=True,
    ),
    "filter": make_case(
        {"cart": CART, "secret": SECRET}, policy=["cart"], observation_filter="MeanStdFilter"
    ),
    "lstm-policy": make_case({"cart": CART, "secret": SECRET}, policy=["cart"], **LSTM),
    "lstm-critic": make_case(
        {"cart": CART, "secret": SECRET}, policy=["cart"], critic=LSTM_OF_CRITIC, max_seq_len=7
    ),
    "lstm-both": make_case(
        {"cart": CART, "secret": SECRET}, policy=["cart"], critic=LSTM_OF_CRITIC, **LSTM
    ),
    "past-actions-of-critic": make_case(
        {"cart": CART, "secret": SECRET},
        policy=["cart"],
        critic={**LSTM_OF_CRITIC, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
        max_seq_len=7,
    ),
    "past-actions-of-policy": make_case(
        {"cart": CART, "secret": SECRET},
        policy=["cart"],
        lstm_use_prev_action=True,
        lstm_use_prev_reward=True,
        **LSTM,
    ),
    "past-actions-of-both": make_case(
        {"cart": CART, "secret": SECRET},
        policy=["cart"],
        critic={**LSTM_OF_CRITIC, "lstm_use_prev_action": True},
        lstm_use_prev_action=True,
        **LSTM,
    ),
    "past-steps-of-attention": make_case(
        {"cart": CART, "secret": SECRET},
        policy=["cart"],
        attention_use_n_prev_actions=2,
        attention_use_n_prev_rewards=2,
        **ATTENTION,
    ),
    "attention-policy": make_case({"cart": CART, "secret": SECRET}, policy=["cart"], **ATTENTION),
    "attention-critic": make_case(
        {"cart": CART, "secret": SECRET}, policy=["cart"], critic=ATTENTION
    ),
    "masked-lstm-both": make_case(
        {"action_mask": MultiBinary(4), "cart": CART, "secret": SECRET},
        policy=["cart"],
        critic=LSTM_OF_CRITIC,
        **LSTM,
    ),
}
MEMORIES = [name for name in CASES if "lstm" in name or "attention" in name]
each_case = pytest.mark.parametrize("case", CASES)
each_memory = pytest.mark.parametrize("case", MEMORIES)

BESIDE = CASES["vector"]


def build_case(case, framework="torch"):
    """Return a policy with random weights."""
    space, action, config = CASES[case]
    policy = rlcatalog.build(space, action, config, framework)
    randomize_weights(policy.model)
    return policy


def observations_of(policy, rows=4, seed=0):
    """Return observations in which every action is allowed."""
    observations = sample_observations(policy.observation_space, rows, seed)
    for obs in observations:
        if "action_mask" in obs:
            obs["action_mask"][:] = 1
    return observations


def act(policy, observations):
    """Take the first step of episodes, without exploring."""
    no_reward = np.zeros(len(observations))
    return policy.act(observations, prev_reward=no_reward, explore=False)


def replace_secret(obs, value):
    """Return an observation with another value in the entry that only the critic sees."""
    if "robot" in obs:
        return {**obs, "robot": {**obs["robot"], "secret": np.full(2, value, np.float32)}}
    return {**obs, "secret": np.full(2, value, np.float32)}


def without_secret(obs):
    """Return an observation without the entry that only the critic sees."""
    if "robot" in obs:
        return {**obs, "robot": {"joints": obs["robot"]["joints"]}}
    return {name: value for name, value in obs.items() if name != "secret"}


def secret_columns(policy):
    """Return the columns of the entry that only the critic sees."""
    (leaf,) = [leaf for leaf in policy.preprocessor.leaves() if "secret" in leaf.path]
    return slice(leaf.start, leaf.stop)


def gradients(policy, encoded):
    """Return the gradients of a model's outputs and of its values for encoded observations."""
    of_outputs, of_values = gradients_of(policy, encoded, "obs")
    return of_outputs, of_values


def gradients_of(policy, encoded, name):
    """Return the gradients of a model's outputs and of its values for an entry of its input.

    Args:
        policy: The policy.
        encoded: Encoded observations `[B, ...]`. The past steps of each row are random.
        name: The entry, such as "obs" or "prev_actions".
    """
    rows = len(encoded)
    rng = np.random.default_rng(0)
    views = {}
    for view, values in policy.views.see(policy.views.start(rows), encoded).items():
        views[view] = rng.uniform(0.2, 1, np.shape(values)).astype(np.float32)
    inputs, memory = policy.backend.inputs_of(encoded, views, policy.memory.start(rows))
    if policy.framework == "torch":
        entry = inputs[name].clone().requires_grad_()
        lengths = torch.ones(rows, dtype=torch.int32) if memory else None
        outputs, _ = policy.model({**inputs, name: entry}, memory, lengths)
        results = (outputs, policy.model.value_function())
        return [
            gradient_or_zeros(
                torch.autograd.grad(result.sum(), entry, retain_graph=True, allow_unused=True)[0],
                entry,
            )
            for result in results
        ]
    entry = tf.convert_to_tensor(inputs[name])
    lengths = tf.ones([rows], tf.int32) if memory else None
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(entry)
        outputs, _ = policy.model({**inputs, name: entry, "is_training": True}, memory, lengths)
        values = policy.model.value_function()
    return [gradient_or_zeros(tape.gradient(result, entry), entry) for result in (outputs, values)]


def gradient_or_zeros(gradient, entry):
    """Return a gradient as an array; zeros if there is none, because nothing depends on it."""
    if gradient is None:
        return np.zeros(tuple(entry.shape), np.float32)
    return to_array(gradient)


# --- who sees what --------------------------------------------------------------------------------


@frameworks
@each_case
def test_outputs_have_no_gradient_for_a_hidden_entry(case, framework):
    policy = build_case(case, framework)
    encoded = policy.preprocess(observations_of(policy))
    hidden = secret_columns(policy)

    of_outputs, of_values = gradients(policy, encoded)

    assert not of_outputs[:, hidden].any()  # exactly 0
    assert of_outputs.any()
    assert of_values[:, hidden].any()


@frameworks
@pytest.mark.parametrize(
    ("case", "policy_reads", "critic_reads"),
    [
        ("past-actions-of-policy", True, False),
        ("past-actions-of-critic", False, True),
        ("past-actions-of-both", True, True),
        ("past-steps-of-attention", True, False),
    ],
)
def test_past_actions_reach_the_side_that_asks(case, policy_reads, critic_reads, framework):
    policy = build_case(case, framework)
    encoded = policy.preprocess(observations_of(policy))
    (name,) = [view for view in policy.views.acting_names if "action" in view]

    of_outputs, of_values = gradients_of(policy, encoded, name)

    assert of_outputs.any() == policy_reads
    assert of_values.any() == critic_reads


@frameworks
@each_case
def test_hidden_entry_changes_values_alone(case, framework):
    policy = build_case(case, framework)
    observations = observations_of(policy)
    others = [replace_secret(obs, 0.5) for obs in observations]

    step = act(policy, observations)
    other_step = act(policy, others)

    np.testing.assert_array_equal(step.dist_inputs, other_step.dist_inputs)
    assert (step.value != other_step.value).all()


@frameworks
@each_case
def test_policy_acts_without_the_critics_entry(case, framework):
    policy = build_case(case, framework)
    observations = observations_of(policy)

    step = act(policy, observations)
    narrow_step = act(policy, [without_secret(obs) for obs in observations])

    assert narrow_step.value is None
    np.testing.assert_array_equal(narrow_step.dist_inputs, step.dist_inputs)
    np.testing.assert_array_equal(narrow_step.raw_action, step.raw_action)


@each_memory
def test_policys_memory_goes_on_without_the_critics_entry(case):
    policy = build_case(case)
    episode = [observations_of(policy, seed=seed) for seed in range(3)]
    state = None
    narrow_state = None
    for observations in episode:
        # Only models that read past rewards use them.
        step = policy.act(observations, state, prev_reward=np.ones(4), explore=False)
        narrow = [without_secret(obs) for obs in observations]
        narrow_step = policy.act(narrow, narrow_state, prev_reward=np.ones(4), explore=False)
        state = step.state
        narrow_state = narrow_step.state

        np.testing.assert_array_equal(narrow_step.dist_inputs, step.dist_inputs)


def test_batch_of_a_vector_environment_may_lack_the_entry():
    policy = build_case("nested")
    observations = observations_of(policy)
    batch = {
        "goal": np.array([obs["goal"] for obs in observations]),
        "robot": {"joints": np.stack([obs["robot"]["joints"] for obs in observations])},
    }

    step = policy.act(batch, explore=False)

    expected = policy.act(observations, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)


def test_stepper_acts_without_the_critics_entry_after_an_episode():
    policy = build_case("lstm-both")
    stepper = policy.stepper(2, autoreset="next_step")
    observations = [without_secret(obs) for obs in observations_of(policy, rows=2)]

    stepper.step(observations)
    step = stepper.step(observations, done=[True, False])

    assert step.value is None


def test_policy_needs_its_own_entries():
    policy = build_case("vector")

    with pytest.raises(ObservationError, match="the entries that the policy sees"):
        policy.act([{}])


def test_act_encoded_may_leave_the_critic_out():
    policy = build_case("vector")
    encoded = policy.preprocess(observations_of(policy))

    step = policy.act_encoded(encoded, explore=False, policy_only=True)

    assert step.value is None
    expected = policy.act_encoded(encoded, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)


def test_policy_without_a_critic_cannot_leave_it_out():
    policy = rlcatalog.build(CART, Discrete(2), SMALL_NETS)

    with pytest.raises(NotServedError, match="only a critic of its own"):
        policy.act_encoded(np.zeros((1, 3), np.float32), policy_only=True)


def test_critics_list_hides_entries_from_the_critic():
    space = Dict({"cart": CART, "secret": SECRET})
    groups = {"actor": ["cart", "secret"], "critic": ["secret"]}
    config = {**SMALL_NETS, "critic": {}, "obs_groups": groups}
    policy = rlcatalog.build(space, Discrete(2), config)
    randomize_weights(policy.model)

    of_outputs, of_values = gradients(policy, policy.preprocess(observations_of(policy)))

    assert of_outputs.all()
    assert not of_values[:, :3].any()  # the columns of the cart
    assert of_values[:, 3:].any()


def test_critic_without_groups_sees_what_the_policy_sees():
    space = Dict({"action_mask": MultiBinary(4), "cart": CART})
    policy = rlcatalog.build(space, Discrete(4), {**SMALL_NETS, "critic": {"fcnet_hiddens": [7]}})

    assert type(policy.model) is not type(policy.model.policy)
    assert policy.resolution.critic.part("trunk").name == "fcnet"
    assert policy.model.get_weights()["critic.hidden.layers.0.weight"].shape == (7, 3)


def test_mask_in_a_group_changes_nothing():
    space, action, config = CASES["mask"]
    groups = {"policy": ["action_mask", "cart"], "critic": ["action_mask", "cart", "secret"]}

    policy = rlcatalog.build(space, action, {**config, "obs_groups": groups})

    weights = policy.model.get_weights()
    assert weights["policy.trunk.hidden.layers.0.weight"].shape == (5, 3)
    assert weights["critic.hidden.layers.0.weight"].shape == (6, 5)  # 3 of the cart, 2 secret ones


def test_critic_inherits_no_keys_of_layers():
    space, action, config = BESIDE
    policy = rlcatalog.build(space, action, {**config, "critic": {}})

    default_widths = rlcatalog.MODEL_DEFAULTS["fcnet_hiddens"]
    weights = policy.model.get_weights()
    assert weights["value.weight"].shape == (1, default_widths[-1])
    assert weights["policy.outputs.logits.weight"].shape == (4, 5)


def test_engines_defaults_reach_the_critic():
    space, action, config = BESIDE
    defaults = {"fcnet_weights_initializer": "zeros", "vf_share_layers": False}

    policy = rlcatalog.build(space, action, config, defaults=defaults)

    assert not policy.model.get_weights()["critic.hidden.layers.0.weight"].any()


def test_policys_model_has_no_value_layer():
    policy = build_case("vector")

    assert isinstance(policy.model, SeparateCritic)
    names = [name for name in policy.model.get_weights() if "value" in name]
    assert names == ["value.weight", "value.bias"]


# --- training -------------------------------------------------------------------------------------


def select_first(columns, lengths):
    """Return the first values of each row of `[steps, rows, ...]`, row after row."""
    by_row = np.stack(columns, axis=1)
    return np.concatenate([row[:length] for row, length in zip(by_row, lengths, strict=True)])


@frameworks
@each_case
def test_stored_steps_score_as_acting_did(case, framework):
    policy = build_case(case, framework)
    lengths = [4, 2]
    steps = []
    encoded = []
    state = None
    for seed in range(4):
        observations = observations_of(policy, rows=2, seed=seed)
        step = policy.act(observations, state, prev_reward=np.full(2, 0.1 * seed))
        encoded.append(policy.preprocess(observations))
        steps.append(step)
        state = step.state
    batch = {
        "obs": select_first(encoded, lengths),
        "raw_action": select_first([step.raw_action for step in steps], lengths),
        "mask": None,
    }
    if policy.memory:
        batch["seq_lens"] = np.array(lengths, np.int32)
    if policy.views:
        names = steps[0].state.views
        batch["views"] = {
            name: select_first([step.state.views[name] for step in steps], lengths)
            for name in names
        }

    evaluation = policy.evaluate(batch)

    logp = select_first([step.logp for step in steps], lengths)
    value = select_first([step.value for step in steps], lengths)
    np.testing.assert_allclose(to_array(evaluation.logp), logp, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_array(evaluation.value), value, rtol=1e-4, atol=1e-5)
    if framework == "torch":
        (evaluation.logp.sum() + evaluation.value.square().sum()).backward()
        for name, weight in policy.model.named_parameters():
            assert weight.grad is not None, name
            assert weight.grad.any(), name


@each_case
def test_weights_mean_the_same_in_both_frameworks(case):
    policy = build_case(case, "torch")
    space, action, config = CASES[case]
    tf_policy = rlcatalog.build(space, action, config, "tf")
    tf_policy.model.set_weights(policy.model.get_weights())
    observations = observations_of(policy)

    step = act(policy, observations)
    tf_step = act(tf_policy, observations)

    np.testing.assert_allclose(tf_step.dist_inputs, step.dist_inputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tf_step.value, step.value, rtol=1e-4, atol=1e-5)


class LossOfSides(TorchModelV2):
    """A trunk that adds a loss, for which it restores its observations."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = 2

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs_flat"][:, :2], state

    def custom_loss(self, policy_loss, loss_inputs):
        width = loss_inputs["obs"].shape[1]
        return policy_loss + width


def test_custom_loss_gets_what_its_side_sees():
    space, action, config = BESIDE
    lossy = {"custom_model": LossOfSides}
    policy = rlcatalog.build(space, action, {**config, **LSTM, **lossy, "critic": {}})

    loss = policy.model.custom_loss(torch.zeros(()), {"obs": torch.zeros(4, 5)})

    assert float(loss) == 3  # the width of the cart


# --- saving and copying ---------------------------------------------------------------------------


@frameworks
@each_case
def test_loaded_policy_acts_the_same(case, framework, tmp_path):
    policy = build_case(case, framework)
    observations = observations_of(policy)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    step = act(policy, observations)
    loaded_step = act(loaded, observations)
    np.testing.assert_array_equal(loaded_step.dist_inputs, step.dist_inputs)
    np.testing.assert_array_equal(loaded_step.value, step.value)


@frameworks
@pytest.mark.parametrize("case", ["image", "masked-lstm-both", "filter"])
def test_loaded_policy_acts_without_the_critics_entry(case, framework, tmp_path):
    policy = build_case(case, framework)
    observations = observations_of(policy)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    narrow_step = act(loaded, [without_secret(obs) for obs in observations])
    np.testing.assert_array_equal(narrow_step.dist_inputs, act(policy, observations).dist_inputs)
    assert narrow_step.value is None


def unpickle_pickle(policy):
    """Return what another process would have of a policy."""
    return pickle.loads(pickle.dumps(policy))


@pytest.mark.parametrize("make_copy", [copy.deepcopy, unpickle_pickle])
@pytest.mark.parametrize("case", ["image-and-vector", "masked-lstm-both"])
def test_copied_policy_acts_the_same(make_copy, case):
    policy = build_case(case)
    observations = observations_of(policy)

    copied = make_copy(policy)

    step = act(policy, observations)
    copied_step = act(copied, observations)
    np.testing.assert_array_equal(copied_step.dist_inputs, step.dist_inputs)
    np.testing.assert_array_equal(copied_step.value, step.value)


def test_pins_name_the_critics_parts():
    pins = rlcatalog.choice.PartAddresses.of(build_case("lstm-critic").resolution)

    assert pins.by_slot["critic.trunk"] == "rlcatalog-fcnet/fcnet"
    assert pins.by_slot["critic.memory"] == "rlcatalog-lstm/lstm"
    assert "memory" not in pins.by_slot


class OwnCritic(torch.nn.Module):
    """A plain module of the program."""

    def __init__(self, space, width=4):
        super().__init__()
        self.layer = torch.nn.Linear(space.shape[0], width)

    def forward(self, obs):
        return self.layer(obs)


def test_load_takes_the_code_of_a_critic(tmp_path):
    space = Box(-1, 1, (3,), np.float32)
    config = {**SMALL_NETS, "critic": {"custom_model": OwnCritic}}
    policy = rlcatalog.build(space, Discrete(2), config)
    policy.save(tmp_path)

    with pytest.raises(rlcatalog.errors.UnknownNameError, match="critic=OwnCritic"):
        rlcatalog.load(tmp_path)
    loaded = rlcatalog.load(tmp_path, critic=OwnCritic)

    obs = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(loaded.act(obs).value, policy.act(obs).value)


def test_load_refuses_code_for_a_missing_critic(tmp_path):
    rlcatalog.build(CART, Discrete(2), SMALL_NETS).save(tmp_path)

    with pytest.raises(ConfigError, match="which this policy does not have"):
        rlcatalog.load(tmp_path, critic=OwnCritic)


# --- users' models --------------------------------------------------------------------------------


class RllibModel(TorchModelV2):
    """A model in RLlib's form, which is no trunk: it always has last layers."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.logits = torch.nn.Linear(obs_space.shape[0], num_outputs)
        self.value_branch = torch.nn.Linear(obs_space.shape[0], 1)
        self._obs = None

    def forward(self, input_dict, state, seq_lens):
        self._obs = input_dict["obs_flat"]
        return self.logits(self._obs), state

    def value_function(self):
        return self.value_branch(self._obs).squeeze(1)


def test_class_in_rllibs_form_estimates_values_itself():
    config = {**SMALL_NETS, "critic": {"custom_model": RllibModel}}
    policy = rlcatalog.build(CART, Discrete(2), config)
    obs = np.ones((2, 3), np.float32)

    value = policy.act(obs).value

    layer = policy.model.critic.value_branch
    np.testing.assert_array_equal(value, layer(torch.ones(2, 3)).detach()[:, 0])
    assert policy.model.value is None


def test_class_in_rllibs_form_acts_beside_a_critic():
    config = {"custom_model": RllibModel, "critic": {"fcnet_hiddens": [6]}}
    policy = rlcatalog.build(CART, Discrete(2), config)
    obs = np.ones((2, 3), np.float32)

    step = policy.act(obs)

    np.testing.assert_allclose(
        step.dist_inputs, policy.model.policy.logits(torch.ones(2, 3)).detach(), rtol=1e-6
    )
    assert policy.model.get_weights()["value.weight"].shape == (1, 6)


def test_class_in_rllibs_form_estimates_values_of_sequences():
    config = {**SMALL_NETS, **LSTM, "critic": {"custom_model": RllibModel}}
    policy = rlcatalog.build(CART, Discrete(2), config)
    obs = np.random.default_rng(0).uniform(-1, 1, (3, 3)).astype(np.float32)

    batch = {"obs": obs, "raw_action": np.zeros((3, 1)), "seq_lens": np.array([2, 1], np.int32)}
    value = policy.evaluate(batch).value

    layer = policy.model.critic.value_branch
    torch.testing.assert_close(value, layer(torch.from_numpy(obs))[:, 0])


class MaskedModel(TorchModelV2):
    """A model in RLlib's form, which sees the action mask."""

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = torch.nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        assert input_dict["obs"]["action_mask"].shape[1] == 4
        return self.layer(input_dict["obs"]["cart"]), state


def test_critic_sees_no_mask_that_the_policy_sees():
    space = Dict({"action_mask": MultiBinary(4), "cart": CART})
    config = {"custom_model": MaskedModel, "critic": {"fcnet_hiddens": [7]}}
    policy = rlcatalog.build(space, Discrete(4), config)

    policy.act(observations_of(policy))

    assert policy.model.get_weights()["critic.hidden.layers.0.weight"].shape == (7, 3)


def test_class_that_fails_as_trunk_is_named_under_a_memory():
    config = {"custom_model": RllibModel, **LSTM}

    with pytest.raises(ModelContractError, match="RllibModel was built as a trunk"):
        rlcatalog.build(CART, Discrete(2), config)


def test_plain_module_is_a_critic():
    config = {
        **SMALL_NETS,
        "critic": {"custom_model": OwnCritic, "custom_model_config": {"width": 8}},
    }
    policy = rlcatalog.build(CART, Discrete(2), config)

    assert policy.model.get_weights()["value.weight"].shape == (1, 8)


def test_instance_as_both_sides_is_refused():
    module = torch.nn.Linear(3, 4)

    with pytest.raises(ConfigError, match="both would have the same weights"):
        rlcatalog.build(
            CART, Discrete(2), {"custom_model": module, "critic": {"custom_model": module}}
        )


# --- what is refused ------------------------------------------------------------------------------

ENTRIES = Dict(
    {
        "cart": CART,
        "secret": SECRET,
        "pair": Tuple([CART, SECRET]),
    }
)


@pytest.mark.parametrize(
    ("space", "config", "message"),
    [
        (ENTRIES, {"obs_groups": {"policy": ["cart"]}}, "critic={}"),
        (ENTRIES, {"critic": {}, "obs_groups": {"student": ["cart"]}}, "unknown group 'student'"),
        (ENTRIES, {"critic": {}, "obs_groups": {"policy": ["card"]}}, "Did you mean .cart"),
        (ENTRIES, {"critic": {}, "obs_groups": {"policy": []}}, "is empty"),
        (
            ENTRIES,
            {"critic": {}, "obs_groups": {"policy": ["cart"], "actor": ["cart"]}},
            "two names for the policy's group",
        ),
        (ENTRIES, {"critic": {}, "obs_groups": {"policy": ["obs['pair'][0]"]}}, "inside another"),
        (CART, {"critic": {}, "obs_groups": {"policy": ["cart"]}}, "must be a Dict"),
        (CART, {"critic": {"image_layout": "hwc"}}, "about both the policy and the critic"),
        (CART, {"critic": {"observation_filter": "NoFilter"}}, "about both the policy"),
        (CART, {"critic": {"vf_share_layers": False}}, "is not for a critic"),
        (CART, {"critic": {"critic": {}}}, "is not for a critic"),
        (CART, {"critic": {"fcnet_hidens": [3]}}, "critic: Unknown model config key"),
        (CART, {"critic": {"custom_model": "parametric"}}, "is a head"),
        (CART, {"critic": {}, "vf_share_layers": True}, "shares no layers with the policy"),
    ],
)
def test_config_that_cannot_be_served_is_refused(space, config, message):
    with pytest.raises(ConfigError, match=message):
        rlcatalog.build(space, Discrete(2), config)


def test_obs_groups_of_a_wrong_type_are_refused():
    with pytest.raises(ConfigTypeError, match="obs_groups"):
        rlcatalog.build(ENTRIES, Discrete(2), {"critic": {}, "obs_groups": {"policy": "cart"}})


def test_group_without_values_is_refused():
    space = Dict({"cart": CART, "nothing": Box(-1, 1, (0,))})
    config = {"critic": {}, "obs_groups": {"policy": ["nothing"]}}

    with pytest.raises(UnsupportedSpaceError, match="leaves no entry"):
        rlcatalog.build(space, Discrete(2), config)


class WholeCodec(rlcatalog.Preprocessor):
    """A preprocessor that encodes a Dict as one vector, not entry by entry."""

    def _init_shape(self, obs_space, options):
        return (5,)

    def transform(self, observation):
        return np.concatenate([observation["cart"], observation["secret"]])


def test_preprocessor_of_the_whole_observation_is_refused():
    space, action, config = BESIDE

    with pytest.raises(NotServedError, match="does not encode entry by entry"):
        rlcatalog.build(space, action, {**config, "custom_preprocessor": WholeCodec})


def test_get_model_v2_refuses_a_critic():
    with pytest.raises(NotServedError, match="takes neither critic nor obs_groups"):
        ModelCatalog.get_model_v2(CART, Discrete(2), 2, {"critic": {}}, "torch")


def test_unread_key_of_a_critic_is_named():
    with pytest.warns(UnreadKeysWarning, match="critic: no chosen part reads lstm_cell"):
        rlcatalog.build(CART, Discrete(2), {"critic": {"lstm_cell_size": 5}})


def test_entry_that_neither_side_sees_is_named():
    groups = {"policy": ["cart"], "critic": ["cart", "pair"]}

    with pytest.warns(ObservationWarning, match=r"obs\['secret'\] is in neither group"):
        rlcatalog.build(ENTRIES, Discrete(2), {"critic": {}, "obs_groups": groups})


class PastObservations(TorchModelV2):
    """A model that requests past observations."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements["past"] = rlcatalog.ViewRequirement("obs", shift=-1)
        self.layer = torch.nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs_flat"]), state

    def value_function(self):
        return torch.zeros(1)


def test_different_views_of_one_name_are_refused():
    config = {
        **LSTM,
        "lstm_use_prev_action": True,
        "critic": {**ATTENTION, "attention_use_n_prev_actions": 2},
    }

    with pytest.raises(NotServedError, match="different views under the name"):
        rlcatalog.build(CART, Discrete(2), config)


def test_views_of_past_observations_are_refused_under_groups():
    space, action, config = BESIDE

    with pytest.raises(NotServedError, match="passes only the current observation"):
        rlcatalog.build(space, action, {**config, "custom_model": PastObservations})


# --- explain --------------------------------------------------------------------------------------


def test_explain_says_who_sees_what():
    space, action, config = CASES["lstm-critic"]

    explanation = rlcatalog.explain(space, action, config)

    data = explanation.as_dict()
    seen_by = {leaf["path"]: leaf["seen_by"] for leaf in data["plan"]}
    assert seen_by == {"obs['cart']": ["policy", "critic"], "obs['secret']": ["critic"]}
    assert [view["name"] for view in data["model_sees"]] == ["obs", "obs_flat"]
    assert data["critic"]["model"]["chosen"] == "fcnet"
    assert data["critic"]["makes_recurrent"]
    text = explanation.text()
    assert "critic: fcnet" in text
    assert "seen by policy and critic" in text
    assert "because its critic has one" in text
