"""`vf_share_layers=False` with a memory: the value has its own trunk and memory, whose state
follows that of the policy's memory.
"""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import pytest
import torch
from builders import assert_ppo_trains_every_weight, to_array
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import rlcatalog
from rlcatalog import Catalog, ViewRequirement
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog.plugins.discovery import scan
from rlcatalog_torch import TorchModelV2, features_of

pytestmark = pytest.mark.twins

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)
SMALL = {"fcnet_hiddens": [5]}
LSTM = {
    **SMALL,
    "use_lstm": True,
    "lstm_cell_size": 6,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}
ATTENTION = {
    **SMALL,
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 3,
    "attention_memory_training": 3,
    "attention_use_n_prev_actions": 2,
}
MEMORIES = {"lstm": LSTM, "attention": ATTENTION}
#: Without inputs of past actions, so that policies whose actions differ see the same.
WITHOUT_ACTIONS = {
    "lstm": {**LSTM, "lstm_use_prev_action": False},
    "attention": {**ATTENTION, "attention_use_n_prev_actions": 0},
}
SEPARATE = {"vf_share_layers": False}
each_memory = pytest.mark.parametrize("memory", MEMORIES)
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

#: Two episodes of four steps.
OBSERVATIONS = np.random.default_rng(0).uniform(-1, 1, (2, 4, 3)).astype(np.float32)


class OwnConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The config key that switches a registered part on."""

    own_part: bool = False


class Fading(TorchModelV2):
    """A third-party memory: a fading sum of the features, whose state is a vector."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, *, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk = trunk
        self.width = trunk.num_outputs
        self.fade = torch.nn.Parameter(torch.full((self.width,), 0.5))
        self.num_outputs = self.width if num_outputs is None else num_outputs
        self.top = None if num_outputs is None else torch.nn.Linear(self.width, num_outputs + 1)

    def forward(self, input_dict, state, seq_lens):
        x, _ = features_of(self.trunk, input_dict, [], None)
        lengths = torch.ones(len(x)) if seq_lens is None else seq_lens
        sequences = x.reshape(len(lengths), -1, self.width)
        total = state[0]
        totals = []
        for t in range(sequences.shape[1]):
            new = total * self.fade + sequences[:, t]
            total = torch.where((lengths > t)[:, None], new, total)  # padding changes nothing
            totals.append(total)
        features = torch.stack(totals, 1).flatten(0, 1)
        if self.top is None:
            return features, [total]
        outputs = self.top(features)
        self.last = outputs[:, -1]
        return outputs[:, :-1], [total]

    def value_function(self):
        return self.last

    def get_initial_state(self):
        return [np.zeros(self.width, np.float32)]


def register(model, slot):
    """Return a catalog with a model in a slot, which `own_part` switches on."""
    catalog = Catalog(scan(), environ={})
    catalog.register_model("own", model, slot=slot, switch="own_part", config=OwnConfig)
    return catalog


def build_with_random_weights(
    config, framework="torch", *, seed, obs_space=THREE_FEATURES, catalog=None
):
    """Build a policy whose weights leave no layer close to zero."""
    policy = rlcatalog.build(obs_space, TWO_ACTIONS, config, framework, catalog=catalog)
    rng = np.random.default_rng(seed)
    weights = {}
    for name, array in policy.model.get_weights().items():
        weights[name] = rng.normal(0, 0.5, array.shape)
    policy.model.set_weights(weights)
    return policy


def join_weights(policy, value_policy, names):
    """Return the weights of a model with a separate value: those of a policy, and the value of
    another one.
    """
    policy_weights = policy.model.get_weights()
    value_weights = value_policy.model.get_weights()
    joined = {}
    for name in names:
        if name.startswith("value_trunk."):
            joined[name] = value_weights[name.removeprefix("value_trunk.")]
        elif name.startswith("outputs.value."):
            joined[name] = value_weights[name]
        else:
            joined[name] = policy_weights[name.removeprefix("trunk.")]
    return joined


def play(policy, obs, explore=False):
    """Act on observations `[rows, steps, 3]`; return the steps."""
    state = None
    steps = []
    for t in range(obs.shape[1]):
        reward = np.full(len(obs), 0.1 * t)
        step = policy.act(obs[:, t], state, prev_reward=reward, explore=explore)
        steps.append(step)
        state = step.state
    return steps


# --- outputs --------------------------------------------------------------------------------------


def assert_same_logits(steps, expected_steps):
    for step, expected in zip(steps, expected_steps, strict=True):
        np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, rtol=1e-6, atol=1e-6)


def assert_same_values(steps, expected_steps):
    for step, expected in zip(steps, expected_steps, strict=True):
        np.testing.assert_allclose(step.value, expected.value, rtol=1e-6, atol=1e-6)


class JoinedPolicies:
    """Two policies with shared layers, and one with a separate value: the logits of the first, the
    value of the second.
    """

    def __init__(self, config, value_config, separate, framework):
        policy = build_with_random_weights(config, framework, seed=1)
        value_policy = build_with_random_weights(value_config, framework, seed=2)
        self.joined = rlcatalog.build(
            THREE_FEATURES, TWO_ACTIONS, {**config, **separate}, framework
        )
        names = self.joined.model.get_weights()
        self.joined.model.set_weights(join_weights(policy, value_policy, names))
        self.steps = play(self.joined, OBSERVATIONS)
        self.policy_steps = play(policy, OBSERVATIONS)
        self.value_steps = play(value_policy, OBSERVATIONS)


@cache  # several tests look at the same steps
def join_policies(memory, framework):
    config = WITHOUT_ACTIONS[memory]
    return JoinedPolicies(config, config, SEPARATE, framework)


@pytest.fixture
def with_memory(memory, framework):
    """Policies whose value has the same memory as the policy."""
    return join_policies(memory, framework)


@pytest.mark.grid
@frameworks
@each_memory
def test_separate_value_is_that_of_a_second_net(with_memory):
    assert_same_logits(with_memory.steps, with_memory.policy_steps)
    assert_same_values(with_memory.steps, with_memory.value_steps)
    difference = with_memory.steps[-1].value - with_memory.policy_steps[-1].value
    assert np.abs(difference).max() > 0.01


@pytest.mark.grid
@frameworks
@each_memory
def test_state_has_that_of_the_value_behind_that_of_the_policy(with_memory):
    last_step = with_memory.steps[-1]
    policy_memory = with_memory.policy_steps[-1].state.memory
    value_memory = with_memory.value_steps[-1].state.memory

    assert len(last_step.state.memory) == 4  # two arrays for each memory
    expected = (*policy_memory, *value_memory)
    for part, expected_part in zip(last_step.state.memory, expected, strict=True):
        np.testing.assert_allclose(part, expected_part, rtol=1e-6, atol=1e-6)


@pytest.mark.grid
@frameworks
@each_memory
def test_values_without_a_state_are_those_of_the_first_step(with_memory):
    values = with_memory.joined.values(OBSERVATIONS[:, 0], None)
    np.testing.assert_allclose(values, with_memory.steps[0].value, rtol=1e-6, atol=1e-6)


@frameworks
@each_memory
def test_vf_memory_none_gives_the_value_a_trunk_without_memory(memory, framework):
    without_memory = {**SEPARATE, "vf_memory": "none"}
    policies = JoinedPolicies(WITHOUT_ACTIONS[memory], SMALL, without_memory, framework)

    assert_same_logits(policies.steps, policies.policy_steps)
    assert_same_values(policies.steps, policies.value_steps)
    for step, policy_step in zip(policies.steps, policies.policy_steps, strict=True):
        assert len(step.state.memory) == len(policy_step.state.memory)


@frameworks
def test_head_around_a_memory_has_a_separate_value(framework):
    config = {**WITHOUT_ACTIONS["lstm"], **SEPARATE}
    # A mask puts a head around the model.
    masked = Dict({"action_mask": MultiBinary(2), "x": THREE_FEATURES})
    head_policy = build_with_random_weights(config, framework, seed=4, obs_space=masked)
    plain_policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, framework)
    plain_policy.model.set_weights(take_weights_inside_head(head_policy, plain_policy))

    steps = play_masked(head_policy, OBSERVATIONS[0])

    plain_steps = play(plain_policy, OBSERVATIONS[:1])
    assert_same_logits(steps, plain_steps)
    assert_same_values(steps, plain_steps)
    for step in steps:
        assert len(step.state.memory) == 4  # two arrays for each LSTM


def take_weights_inside_head(head_policy, plain_policy):
    """Return the weights of a model inside a head under the names that they have without one; most
    of the former begin with "trunk.".
    """
    head_weights = head_policy.model.get_weights()
    weights = {}
    for name in plain_policy.model.get_weights():
        in_trunk = f"trunk.{name}"
        weights[name] = head_weights[in_trunk if in_trunk in head_weights else name]
    return weights


def play_masked(policy, rows):
    """Act on observations `[steps, 3]` under a mask that allows every action."""
    state = None
    steps = []
    for t, row in enumerate(rows):
        obs = {"action_mask": np.ones((1, 2), np.int8), "x": row[None]}
        step = policy.act(obs, state, prev_reward=np.full(1, 0.1 * t), explore=False)
        steps.append(step)
        state = step.state
    return steps


# --- training -------------------------------------------------------------------------------------


def select_first(columns, lengths):
    """Return the first values of each row of `[steps, rows, ...]`, row after row."""
    by_row = np.stack(columns, axis=1)
    return np.concatenate([row[:length] for row, length in zip(by_row, lengths, strict=True)])


def assert_trains_as_it_acts(policy):
    """Assert that sequences of different lengths, which are padded inside, score as acting did,
    and that the gradient reaches every weight.
    """
    steps = play(policy, OBSERVATIONS, explore=True)
    lengths = [4, 2]
    views = {}
    for name in steps[0].state.views or {}:
        views[name] = select_first([step.state.views[name] for step in steps], lengths)

    evaluation = policy.evaluate(
        {
            "obs": np.concatenate([OBSERVATIONS[0, :4], OBSERVATIONS[1, :2]]),
            "raw_action": select_first([step.raw_action for step in steps], lengths),
            "views": views,
            "seq_lens": np.array(lengths, np.int32),
        }
    )

    logp = select_first([step.logp for step in steps], lengths)
    value = select_first([step.value for step in steps], lengths)
    np.testing.assert_allclose(to_array(evaluation.logp), logp, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_array(evaluation.value), value, rtol=1e-4, atol=1e-5)
    if policy.framework == "torch":
        (evaluation.logp.sum() + evaluation.value.square().sum()).backward()
        for name, weight in policy.model.named_parameters():
            assert weight.grad is not None, name
            assert weight.grad.any(), name


each_value = pytest.mark.parametrize(
    ("memory", "value_config", "framework"),
    [
        pytest.param("lstm", {}, "torch", id="lstm-own-torch"),
        pytest.param("lstm", {}, "tf", id="lstm-own-tf"),
        pytest.param("lstm", {"vf_memory": "none"}, "torch", id="lstm-none-torch"),
        pytest.param("lstm", {"vf_memory": "none"}, "tf", id="lstm-none-tf"),
        pytest.param("attention", {}, "torch", id="attention-own-torch"),
        pytest.param("attention", {}, "tf", id="attention-own-tf"),
        pytest.param("attention", {"vf_memory": "none"}, "torch", id="attention-none-torch"),
        pytest.param(
            *("attention", {"vf_memory": "none"}, "tf"),
            id="attention-none-tf",
            marks=pytest.mark.slow,
        ),
    ],
)


@each_value
def test_training_scores_as_acting_did(memory, value_config, framework):
    config = {**MEMORIES[memory], **SEPARATE, **value_config}
    assert_trains_as_it_acts(build_with_random_weights(config, framework, seed=3))


@each_value
def test_loaded_policy_acts_the_same(memory, value_config, framework, tmp_path):
    config = {**MEMORIES[memory], **SEPARATE, **value_config}
    policy = build_with_random_weights(config, framework, seed=3)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    expected_steps = play(policy, OBSERVATIONS)
    for step, expected in zip(play(loaded, OBSERVATIONS), expected_steps, strict=True):
        np.testing.assert_array_equal(step.value, expected.value)
        np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)


@pytest.mark.parametrize(
    ("value_config", "state_shapes"),
    [({}, [(5,), (5,)]), ({"vf_memory": "none"}, [(5,)])],  # five features
    ids=["value with memory", "value without memory"],
)
def test_third_party_memory_is_doubled_for_the_value(value_config, state_shapes):
    catalog = register(Fading, slot="memory")
    config = {**SMALL, "own_part": True, **SEPARATE, **value_config}
    policy = build_with_random_weights(config, seed=3, catalog=catalog)

    assert [part.shape for part in policy.memory.initial] == state_shapes
    assert_trains_as_it_acts(policy)


@each_memory
def test_ppo_trains_every_weight(memory):
    assert_ppo_trains_every_weight(
        "CartPole-v1",
        model={**MEMORIES[memory], "vf_share_layers": False},
        framework="torch",
        rollout_length=24,
        minibatch_size=24,
        num_epochs=2,
        lr=1e-2,
    )


# --- explanations ---------------------------------------------------------------------------------


def test_explanation_shows_the_layers_of_the_value():
    explanation = rlcatalog.explain(THREE_FEATURES, TWO_ACTIONS, {**LSTM, **SEPARATE}, "torch")

    stages = [(stage.name, stage.shape) for stage in explanation.resolution.shapes]
    assert ("value, fcnet: hidden 1 (tanh)", (5,)) in stages
    assert ("value, lstm: cell (lstm)", (6,)) in stages
    assert stages[-4:-2] == [("value", ()), ("logits (linear)", (2,))]


def test_explanation_shows_no_memory_of_the_value_without_one():
    config = {**LSTM, **SEPARATE, "vf_memory": "none"}
    explanation = rlcatalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch")

    names = [stage.name for stage in explanation.resolution.shapes]
    assert "value, fcnet: hidden 1 (tanh)" in names
    assert "value, lstm: cell (lstm)" not in names


def test_explanation_counts_the_weights_of_both_chains():
    config = {**LSTM, **SEPARATE}
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config)

    explanation = rlcatalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch")

    weights = sum(array.size for array in policy.model.get_weights().values())
    assert sum(stage.weights for stage in explanation.resolution.shapes) == weights


def test_all_keys_of_a_separate_memory_are_read():
    explanation = rlcatalog.explain(THREE_FEATURES, TWO_ACTIONS, {**LSTM, **SEPARATE}, "torch")
    assert explanation.as_dict()["unread"] == []


def test_vf_memory_is_unread_with_shared_layers():
    with pytest.warns(rlcatalog.errors.UnreadKeysWarning, match="vf_memory"):
        rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, {**SMALL, "vf_memory": "none"})


# --- shared layers --------------------------------------------------------------------------------


def test_model_with_shared_layers_is_the_memory():
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, LSTM, "torch")
    assert type(policy.model).__name__ == "LSTMWrapper"


def test_trunk_of_an_algorithm_has_no_separate_value():
    catalog = Catalog(scan(), environ={})

    # Without a number of outputs, an algorithm asks for features.
    trunk = catalog.model_v2(THREE_FEATURES, TWO_ACTIONS, None, {**LSTM, **SEPARATE}, "torch")

    assert type(trunk).__name__ == "LSTMWrapper"
    assert trunk.outputs is None


# --- errors ---------------------------------------------------------------------------------------


def test_memory_created_without_the_catalog_is_an_error():
    model = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, LSTM, "torch").model
    lstm_class = type(model)

    message = r"use_lstm with vf_share_layers=False: .*Build the model with rlcatalog"
    with pytest.raises(ConfigError, match=message):
        lstm_class(
            THREE_FEATURES, TWO_ACTIONS, 2, {**LSTM, **SEPARATE}, "direct", trunk=model.trunk
        )


def test_memory_with_a_view_of_its_state_is_an_error():
    class SeesTwoStates(Fading):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            last_two = ViewRequirement("state_out_0", shift="-2:-1", space=THREE_FEATURES)
            self.view_requirements["state_in_0"] = last_two

    catalog = register(SeesTwoStates, slot="memory")
    config = {**SMALL, "own_part": True, "vf_share_layers": False}

    message = r"SeesTwoStates.* requests the view 'state_in_0' of its state; with vf_share"
    with pytest.raises(NotServedError, match=message):
        rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog)


class CallsTheValueFirst(TorchModelV2):
    """A head that calls its value_trunk, but never its trunk."""

    def __init__(
        self,
        obs_space,
        action_space,
        num_outputs,
        model_config,
        name,
        *,
        trunk,
        value_trunk,
        action_dist,
    ):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk = trunk
        self.value_trunk = value_trunk

    def forward(self, input_dict, state, seq_lens):
        return features_of(self.value_trunk, input_dict, [], seq_lens)

    def get_initial_state(self):
        return self.trunk.get_initial_state()


@pytest.fixture
def value_first_model():
    catalog = register(CallsTheValueFirst, slot="head")
    lstm = {"use_lstm": True, "lstm_cell_size": 6}
    config = {**SMALL, **lstm, **SEPARATE, "own_part": True}
    return catalog.model_v2(THREE_FEATURES, TWO_ACTIONS, 2, config, "torch")


ONE_STEP = {"obs": torch.zeros(2, 3)}
ZERO_STATE = [torch.zeros(2, 6)] * 4  # two arrays for each of two LSTMs


def test_head_that_calls_the_value_first_is_an_error(value_first_model):
    with pytest.raises(ModelContractError, match="call its trunk before its value_trunk"):
        value_first_model(ONE_STEP, ZERO_STATE, None)


def test_value_trunk_returns_features_after_the_trunk(value_first_model):
    value_first_model.trunk(ONE_STEP, ZERO_STATE, None)

    features, _ = value_first_model.value_trunk(ONE_STEP, [], None)

    assert features.shape == (2, 6)


def test_value_trunk_returns_features_only_once(value_first_model):
    value_first_model.trunk(ONE_STEP, ZERO_STATE, None)
    value_first_model.value_trunk(ONE_STEP, [], None)

    # The features of the last call are not used again.
    with pytest.raises(ModelContractError, match="call its trunk before its value_trunk"):
        value_first_model(ONE_STEP, ZERO_STATE, None)
