"""Policies with a transformer: acting, training, past actions and rewards, saving."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import tensorflow as tf
import torch
from action_kinds import ACTIONS as ACTION_KINDS
from gymnasium import spaces

import rlcatalog
from rlcatalog.actions import action_codec
from rlcatalog.spaces import SpaceInfo

pytestmark = pytest.mark.twins

BOX = spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
#: A transformer of width 6 over 8 features, which remembers 3 steps.
SMALL_ATTENTION = {
    "use_attention": True,
    "fcnet_hiddens": [8],
    "attention_dim": 6,
    "attention_head_dim": 4,
    "attention_memory_inference": 3,
    "attention_memory_training": 3,
}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


# --- evaluating what a policy did -----------------------------------------------------------------


@dataclass
class Recording:
    """Six steps of a policy in two environments.

    Attributes:
        steps: What `act` returned at each step.
        obs: The encoded observations of each step.
        states: The state before each step.
    """

    steps: list
    obs: list
    states: list


def record_six_steps(policy):
    random = np.random.default_rng(0)
    space = policy.observation_space
    space.seed(0)
    recording = Recording(steps=[], obs=[], states=[])
    state = policy.initial_state(2)
    rewards = None
    for _ in range(6):
        observations = [space.sample(), space.sample()]
        step = policy.act(observations, state, prev_reward=rewards)
        recording.steps.append(step)
        recording.obs.append(policy.preprocess(observations))
        recording.states.append(state)
        state = step.state
        rewards = random.normal(size=2).astype(np.float32)
    return recording


def cut_into_sequences(arrays):
    """Return the rows of four sequences: steps 0-3 of both environments, then steps 4-5."""
    stacked = np.stack(arrays)
    return np.concatenate([stacked[:4, 0], stacked[:4, 1], stacked[4:, 0], stacked[4:, 1]])


def make_batch(recording):
    """Return the batch that training makes of a recording: four sequences with their states."""
    steps = recording.steps
    views = {}
    for name in steps[0].state.seen:
        views[name] = cut_into_sequences([step.state.seen[name] for step in steps])
    first_state = recording.states[0].memory
    middle_state = recording.states[4].memory
    return {
        "obs": cut_into_sequences(recording.obs),
        "raw_action": cut_into_sequences([step.raw_action for step in steps]),
        "views": views,
        "state": [np.concatenate(parts) for parts in zip(first_state, middle_state, strict=True)],
        "seq_lens": np.array([4, 4, 2, 2], np.int32),
    }


def check_evaluate_returns_what_act_returned(policy):
    recording = record_six_steps(policy)

    evaluation = policy.evaluate(make_batch(recording))

    logp = cut_into_sequences([step.logp for step in recording.steps])
    value = cut_into_sequences([step.value for step in recording.steps])
    np.testing.assert_allclose(to_array(evaluation.logp), logp, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(to_array(evaluation.value), value, rtol=1e-4, atol=1e-5)


def to_array(tensor):
    return tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor.numpy()


@both_frameworks
def test_evaluate_returns_what_act_returned(framework, set_random_weights):
    config = {**SMALL_ATTENTION, "attention_num_transformer_units": 2}
    policy = rlcatalog.build(BOX, TWO_ACTIONS, config, framework)
    set_random_weights(policy.model)

    check_evaluate_returns_what_act_returned(policy)


@pytest.mark.parametrize(
    ("framework", "kind"),
    [*(("torch", kind) for kind in ACTION_KINDS), ("tf", "discrete"), ("tf", "dict")],
)
def test_past_actions_of_every_kind_and_rewards_are_read(framework, kind):
    space, config_of_kind = ACTION_KINDS[kind]
    config = {
        **SMALL_ATTENTION,
        **config_of_kind,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 3,
    }

    policy = rlcatalog.build(BOX, space, config, framework)

    action_width = action_codec(SpaceInfo.read(space, "action")).input_width
    input_weight = policy.model.get_weights()["transformer.input.weight"]
    assert input_weight.shape == (6, 8 + 2 * action_width + 3)  # features, actions, rewards
    check_evaluate_returns_what_act_returned(policy)


DICT = spaces.Dict(
    {"at": BOX, "kind": spaces.Discrete(3), "more": spaces.Tuple([spaces.MultiBinary(2), BOX])}
)


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize(
    ("space", "fcnet_hiddens", "trunk"),
    [
        pytest.param(DICT, {"fcnet_hiddens": [8]}, "FullyConnectedNetwork", id="dict"),
        pytest.param(spaces.Box(0, 255, (42, 42, 1), np.uint8), {}, "VisionNetwork", id="image"),
    ],
)
def test_trunk_of_the_transformer_fits_the_observation(framework, space, fcnet_hiddens, trunk):
    config = {
        "use_attention": True,
        "attention_dim": 6,
        "attention_head_dim": 4,
        "attention_memory_inference": 3,
        "attention_memory_training": 3,
        **fcnet_hiddens,
    }

    policy = rlcatalog.build(space, TWO_ACTIONS, config, framework)

    assert type(policy.model.trunk).__name__ == trunk
    check_evaluate_returns_what_act_returned(policy)


def compute_gradients(policy, batch):
    """Return the gradients of the sum of log probabilities and values, by name."""
    if policy.framework == "torch":
        evaluation = policy.evaluate(batch)
        (evaluation.logp.sum() + evaluation.value.sum()).backward()
        return {name: weight.grad for name, weight in policy.model.named_parameters()}
    variables = policy.model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        evaluation = policy.evaluate(batch)
        loss = tf.reduce_sum(evaluation.logp) + tf.reduce_sum(evaluation.value)
    gradients = tape.gradient(loss, list(variables.values()))
    return dict(zip(variables, gradients, strict=True))


@both_frameworks
def test_gradients_reach_every_parameter(framework, set_random_weights):
    config = {**SMALL_ATTENTION, "attention_num_transformer_units": 2}
    policy = rlcatalog.build(BOX, TWO_ACTIONS, config, framework)
    set_random_weights(policy.model)
    random = np.random.default_rng(2)

    # Ten sequences of four steps.
    batch = {
        "obs": random.normal(size=(40, 3)).astype(np.float32),
        "raw_action": random.integers(0, 2, (40, 1)),
        "seq_lens": np.array([4] * 10, np.int32),
    }
    gradients = compute_gradients(policy, batch)

    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert np.abs(np.asarray(gradient)).sum() > 0, name


# --- past actions and rewards ---------------------------------------------------------------------

#: Rewards of both environments after each of four steps.
REWARDS = np.float32([[0.5, -1], [2, 3], [-4, 0.25], [1, 1]])


def show_input_in_the_memory(policy, place):
    """Set the weights so that the memory's first number is this input of the transformer."""
    weights = policy.model.get_weights()
    weights["transformer.input.bias"][:] = 0
    weights["transformer.input.weight"][:] = 0
    weights["transformer.input.weight"][0, place] = 1
    policy.model.set_weights(weights)


def act_at_step(policy, t, state):
    rewards = None if t == 0 else REWARDS[t - 1]
    return policy.act(np.zeros((2, 3), np.float32), state, prev_reward=rewards)


def record_past_inputs(policy, width):
    """Act for four steps.

    Returns:
        The actions, one-hot, and the transformer's inputs after the 8 features, [4, 2, width].
    """
    states = [None]
    actions = []
    for t in range(4):
        step = act_at_step(policy, t, states[-1])
        actions.append(np.eye(4, dtype=np.float32)[step.raw_action[:, 0].astype(int)])
        states.append(step.state)

    inputs = np.zeros((4, 2, width), np.float32)
    for place in range(width):
        show_input_in_the_memory(policy, 8 + place)
        for t in range(4):
            memory, _ = act_at_step(policy, t, states[t]).state.memory
            inputs[t, :, place] = memory[:, 0, -1, 0]  # the newest slot of unit 0
    return actions, inputs


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("count", [1, 3])
def test_transformer_reads_past_actions_oldest_first(framework, count):
    config = {**SMALL_ATTENTION, "attention_use_n_prev_actions": count}
    policy = rlcatalog.build(BOX, spaces.Discrete(4), config, framework)

    actions, inputs = record_past_inputs(policy, width=4 * count)

    history = [np.zeros((2, 4))] * count + actions  # zeros before the first step
    for t in range(4):
        expected = np.concatenate(history[t : t + count], axis=1)
        np.testing.assert_allclose(inputs[t], expected, atol=1e-6)


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("count", [1, 2])
def test_transformer_reads_past_rewards_oldest_first(framework, count):
    config = {**SMALL_ATTENTION, "attention_use_n_prev_rewards": count}
    policy = rlcatalog.build(BOX, spaces.Discrete(4), config, framework)

    _, inputs = record_past_inputs(policy, width=count)

    history = [np.zeros(2)] * count + list(REWARDS)  # zeros before the first step
    for t in range(4):
        expected = np.stack(history[t : t + count], axis=1)
        np.testing.assert_allclose(inputs[t], expected, atol=1e-6)


@pytest.mark.grid
@both_frameworks
def test_transformer_reads_past_actions_before_rewards(framework):
    config = {
        **SMALL_ATTENTION,
        "attention_use_n_prev_actions": 3,
        "attention_use_n_prev_rewards": 2,
    }
    policy = rlcatalog.build(BOX, spaces.Discrete(4), config, framework)

    actions, inputs = record_past_inputs(policy, width=3 * 4 + 2)

    action_history = [np.zeros((2, 4))] * 3 + actions
    reward_history = [np.zeros(2)] * 2 + list(REWARDS)
    for t in range(4):
        past_actions = np.concatenate(action_history[t : t + 3], axis=1)
        past_rewards = np.stack(reward_history[t : t + 2], axis=1)
        np.testing.assert_allclose(inputs[t, :, :12], past_actions, atol=1e-6)
        np.testing.assert_allclose(inputs[t, :, 12:], past_rewards, atol=1e-6)
    input_weight = policy.model.get_weights()["transformer.input.weight"]
    assert input_weight.shape == (6, 8 + 12 + 2)  # features, actions, rewards


# --- states ---------------------------------------------------------------------------------------


@both_frameworks
def test_loaded_policy_continues_from_a_state(framework, tmp_path, set_random_weights):
    config = {
        **SMALL_ATTENTION,
        "attention_use_n_prev_actions": 1,
        "attention_use_n_prev_rewards": 1,
    }
    policy = rlcatalog.build(BOX, TWO_ACTIONS, config, framework)
    set_random_weights(policy.model)
    state = policy.act(np.ones((2, 3), np.float32)).state
    policy.save(tmp_path / "policy")

    loaded = rlcatalog.load(tmp_path / "policy")

    obs = np.full((2, 3), 0.5, np.float32)
    for _ in range(2):
        expected = policy.act(obs, state, prev_reward=[1.0, 2.0], explore=False)
        step = loaded.act(obs, state, prev_reward=[1.0, 2.0], explore=False)
        np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)
        state = expected.state


@both_frameworks
def test_table_of_distances_is_not_a_weight(framework):
    policy = rlcatalog.build(BOX, TWO_ACTIONS, SMALL_ATTENTION, framework)

    assert not any("table" in name for name in policy.model.get_weights())


@both_frameworks
def test_stepper_clears_the_memory_of_done_rows(framework):
    policy = rlcatalog.build(
        BOX, TWO_ACTIONS, {**SMALL_ATTENTION, "attention_use_n_prev_rewards": 2}, framework
    )
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 3, 3)).astype(np.float32)
    rewards = [1.0, 2.0, 3.0]

    stepper = policy.stepper(3)
    for t in range(5):
        done = [False, t == 3, False]
        step = stepper.step(
            obs[t], done=None if t == 0 else done, prev_reward=rewards, explore=False
        )

    # Row 1 began an episode at step 3, so that it remembers two steps.
    memory, used = step.state.memory
    assert used.tolist() == [3, 2, 3]
    np.testing.assert_array_equal(memory[1, :, 0], 0)
    first = policy.act(obs[3], explore=False)
    second = policy.act(obs[4], first.state, prev_reward=rewards, explore=False)
    np.testing.assert_allclose(step.dist_inputs[1], second.dist_inputs[1], rtol=1e-5, atol=1e-6)


# --- models ---------------------------------------------------------------------------------------


@both_frameworks
def test_value_function_runs_no_second_pass(framework):
    model = rlcatalog.build(BOX, TWO_ACTIONS, SMALL_ATTENTION, framework).model
    passes = []
    trunk_forward = type(model.trunk).forward

    def count_trunk(*arguments):
        passes.append("trunk")
        return trunk_forward(model.trunk, *arguments)

    model.trunk.forward = count_trunk
    if framework == "torch":
        model.transformer.register_forward_hook(lambda *_: passes.append("transformer"))
        obs = torch.zeros(2, 3)
    else:
        transformer = model.transformer

        def count_transformer(*arguments):
            passes.append("transformer")
            return transformer(*arguments)

        model.transformer = count_transformer
        obs = tf.zeros([2, 3])

    model({"obs": obs})
    for _ in range(3):
        assert model.value_function().shape == (2,)  # 2 rows

    assert passes == ["trunk", "transformer"]


@both_frameworks
def test_make_model_returns_models_that_share_no_weights(framework):
    policy = rlcatalog.build(BOX, TWO_ACTIONS, SMALL_ATTENTION, framework)
    first = policy.make_model()
    second = policy.make_model()
    before = {name: array.copy() for name, array in second.get_weights().items()}

    first.set_weights({name: array + 1 for name, array in first.get_weights().items()})

    ids_of_first = {id(variable) for variable in first.variables()}
    ids_of_second = {id(variable) for variable in second.variables()}
    assert ids_of_first.isdisjoint(ids_of_second)
    for name, array in second.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


@both_frameworks
def test_make_model_draws_new_weights(framework):
    policy = rlcatalog.build(BOX, TWO_ACTIONS, SMALL_ATTENTION, framework)
    name = "transformer.units.0.attention.query"

    first = policy.make_model().get_weights()[name]
    second = policy.make_model().get_weights()[name]

    assert not np.array_equal(first, second)


def test_parametrization_of_a_weight_changes_the_next_step():
    class Double(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    torch.manual_seed(0)
    # Wide: of a few units, a ReLU may let none through.
    policy = rlcatalog.build(BOX, TWO_ACTIONS, {**SMALL_ATTENTION, "attention_dim": 32})
    attention = policy.model.transformer.units[0].attention
    obs = np.ones((2, 3), np.float32)
    state = policy.act(obs).state
    before = policy.act(obs, state, explore=False).dist_inputs

    torch.nn.utils.parametrize.register_parametrization(attention, "value", Double())

    after = policy.act(obs, state, explore=False).dist_inputs
    assert not np.array_equal(after, before)
