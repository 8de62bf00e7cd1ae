"""The parametric head on trunks and memories of every kind, under filters, loaded, customized."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

# One config serves trunks of all kinds here; each trunk reads only its own keys.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

#: The logit of an action that is not allowed.
LOWEST = np.finfo(np.float32).min

IMAGE = spaces.Box(0, 255, (10, 10, 2), np.uint8)
#: The part of an observation that the trunk reads, and the trunk that is chosen for it.
REAL_OBS = {
    "vector": (spaces.Box(-1, 1, (4,), np.float32), "fcnet"),
    "discrete": (spaces.Discrete(4), "fcnet"),
    "image": (IMAGE, "visionnet"),
    "dict": (
        spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)}),
        "fcnet",
    ),
    "dict with image": (spaces.Dict({"eye": IMAGE, "self": spaces.Discrete(3)}), "complex_input"),
}
LSTM = {"use_lstm": True, "lstm_cell_size": 6}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_num_heads": 2,
    "attention_head_dim": 4,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
    "attention_position_wise_mlp_dim": 8,
}
MEMORIES = {
    None: {},
    "lstm": {**LSTM, "lstm_use_prev_action": True},
    "attention": ATTENTION,
}


# --- trunks and memories --------------------------------------------------------------------------


@dataclass
class Recording:
    """Three steps of a policy in three environments: raw observations, and what `act` returned."""

    observations: list
    steps: list


@pytest.fixture
def record_three_steps(draw_observations):
    """Act without exploration in three environments for three steps."""

    def record(policy):
        recording = Recording([], [])
        state = None
        for t in range(3):
            observations = draw_observations(policy.observation_space, rows=3, seed=t)
            step = policy.act(observations, state, explore=False)
            recording.observations.append(observations)
            recording.steps.append(step)
            state = step.state
        return recording

    return record


def join_steps(arrays):
    """Return the rows of all steps: those of the first environment, of the second, …"""
    sequences = np.stack(arrays, axis=1)
    return sequences.reshape(-1, *sequences.shape[2:])


def make_batch(policy, recording):
    """Return the batch of three sequences that training makes of a recording."""
    steps = recording.steps
    batch = {
        "obs": join_steps([policy.preprocess(obs) for obs in recording.observations]),
        "raw_action": join_steps([step.raw_action for step in steps]),
        "mask": join_steps([policy.action_mask(obs) for obs in recording.observations]),
    }
    if steps[0].state is not None:
        batch["seq_lens"] = np.array([3, 3, 3], np.int32)
        batch["views"] = {}
        for name in steps[0].state.seen:
            batch["views"][name] = join_steps([step.state.seen[name] for step in steps])
    return batch


trunks_and_memories = pytest.mark.parametrize(
    ("real_obs", "memory"),
    [
        ("vector", None),
        ("discrete", None),
        ("image", None),
        ("dict", None),
        ("dict with image", None),
        ("vector", "lstm"),
        ("image", "lstm"),
        ("vector", "attention"),
        ("dict", "attention"),
    ],
)
kinds = pytest.mark.parametrize("kind", ["embeddings and mask", "list and mask"])


@pytest.fixture
def build_with_trunk(make_space, build_policy):
    """Build a policy for an observation of a kind, with the trunk and memory that it needs."""

    def build(framework, kind, real_obs, memory):
        space, _ = REAL_OBS[real_obs]
        config = {"conv_activation": "tanh", **MEMORIES[memory]}
        return build_policy(framework, make_space(kind, space), config)

    return build


@pytest.mark.grid
@kinds
@trunks_and_memories
def test_trunk_and_memory_of_the_head_are_chosen(kind, real_obs, memory, build_with_trunk):
    policy = build_with_trunk("torch", kind, real_obs, memory)

    explanation = policy.explain().as_dict()

    _, trunk = REAL_OBS[real_obs]
    assert explanation["model"]["chosen"] == trunk
    assert explanation["memory"]["chosen"] == memory


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@kinds
@trunks_and_memories
def test_actions_are_allowed_with_any_trunk(
    framework, kind, real_obs, memory, build_with_trunk, record_three_steps, find_allowed
):
    policy = build_with_trunk(framework, kind, real_obs, memory)

    recording = record_three_steps(policy)

    for observations, step in zip(recording.observations, recording.steps, strict=True):
        chosen = step.action - 2  # Discrete(5, start=2)
        assert find_allowed(observations)[np.arange(3), chosen].all()


@pytest.mark.grid
@kinds
@trunks_and_memories
def test_frameworks_act_alike_with_any_trunk(
    kind, real_obs, memory, build_with_trunk, record_three_steps, assert_close
):
    torch_policy = build_with_trunk("torch", kind, real_obs, memory)
    tf_policy = build_with_trunk("tf", kind, real_obs, memory)
    assert list(torch_policy.model.get_weights()) == list(tf_policy.model.get_weights())
    tf_policy.model.set_weights(torch_policy.model.get_weights())

    torch_steps = record_three_steps(torch_policy).steps
    tf_steps = record_three_steps(tf_policy).steps

    for torch_step, tf_step in zip(torch_steps, tf_steps, strict=True):
        assert_close(tf_step.dist_inputs, torch_step.dist_inputs)
        assert_close(tf_step.value, torch_step.value)
        np.testing.assert_array_equal(tf_step.action, torch_step.action)


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@kinds
@trunks_and_memories
def test_evaluate_returns_what_acting_returned_with_any_trunk(
    framework,
    kind,
    real_obs,
    memory,
    build_with_trunk,
    record_three_steps,
    to_array,
    assert_close,
):
    policy = build_with_trunk(framework, kind, real_obs, memory)
    recording = record_three_steps(policy)

    evaluation = policy.evaluate(make_batch(policy, recording))

    logp = join_steps([step.logp for step in recording.steps])
    value = join_steps([step.value for step in recording.steps])
    assert_close(to_array(evaluation.logp), logp, tolerance=1e-3)
    assert_close(to_array(evaluation.value), value, tolerance=1e-3)


def compute_gradients(policy, batch):
    """Return the gradients of weighted log probabilities and squared values, by name."""
    variables = policy.model.trainable_variables(as_dict=True)
    random = np.random.default_rng(1)
    factors = random.normal(size=len(batch["raw_action"])).astype(np.float32)
    if policy.framework == "torch":
        evaluation = policy.evaluate(batch)
        loss = (evaluation.logp * torch.from_numpy(factors)).sum()
        (loss + evaluation.value.square().sum()).backward()
        return {name: weight.grad for name, weight in variables.items()}
    with tf.GradientTape() as tape:
        evaluation = policy.evaluate(batch)
        loss = tf.reduce_sum(evaluation.logp * factors) + tf.reduce_sum(evaluation.value**2)
    return dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@kinds
@trunks_and_memories
def test_gradients_reach_every_parameter_of_any_trunk(
    framework, kind, real_obs, memory, build_with_trunk, record_three_steps, to_array
):
    policy = build_with_trunk(framework, kind, real_obs, memory)
    batch = make_batch(policy, record_three_steps(policy))

    gradients = compute_gradients(policy, batch)

    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert np.any(to_array(gradient)), name


@pytest.fixture
def run_padded(make_space, draw_observations, build_model, to_array, to_tensor, run_model):
    """Run a memory on two sequences, of three steps and of one; the second is padded with zeros.

    The model is built as an algorithm does that knows nothing of masks.
    """

    def run(framework, config):
        space = make_space("embeddings and mask")
        model, preprocessor = build_model(framework, space, config)
        observations = draw_observations(space, rows=4)
        encoded = preprocessor.transform_batch(observations)

        def run_sequences(rows, lengths):
            state = []
            for part in model.get_initial_state():
                repeated = np.repeat(to_array(part)[None], len(lengths), axis=0)
                state.append(to_tensor(framework, repeated))
            return run_model(model, rows, state, lengths)

        padding = np.zeros((2, encoded.shape[1]), np.float32)
        outputs, values = run_sequences(np.concatenate([encoded, padding]), [3, 1])
        return SimpleNamespace(
            observations=observations,
            outputs=outputs,
            values=values,
            first_alone=run_sequences(encoded[:3], [3]),
            second_alone=run_sequences(encoded[3:], [1]),
        )

    return run


@pytest.mark.parametrize("memory", [LSTM, ATTENTION], ids=["lstm", "attention"])
def test_real_steps_of_padded_sequences_are_masked(framework, memory, run_padded, find_allowed):
    results = run_padded(framework, memory)

    is_lowest = results.outputs[:4] == LOWEST
    np.testing.assert_array_equal(is_lowest, ~find_allowed(results.observations))


@pytest.mark.parametrize("memory", [LSTM, ATTENTION], ids=["lstm", "attention"])
def test_padding_does_not_change_real_steps(framework, memory, run_padded, assert_close):
    results = run_padded(framework, memory)

    first_outputs, first_values = results.first_alone
    second_outputs, second_values = results.second_alone
    assert_close(results.outputs[:3], first_outputs)
    assert_close(results.values[:3], first_values)
    assert_close(results.outputs[3:4], second_outputs)
    assert_close(results.values[3:4], second_values)


# --- filters --------------------------------------------------------------------------------------


@pytest.fixture
def build_filtered(make_space, draw_observations, build_policy):
    """Build a policy whose filter has seen 64 observations; return it, them and their encoding."""

    def build(framework, kind):
        space = make_space(kind, spaces.Box(-100, 100, (4,), np.float32))
        policy = build_policy(framework, space, {"observation_filter": "MeanStdFilter"})
        observations = draw_observations(space, rows=64)
        encoded = policy.preprocess(observations, update=True)
        return policy, observations, encoded

    return build


@pytest.mark.parametrize("kind", ["embeddings and mask", "list and mask"])
def test_filter_normalizes_the_input_of_the_trunk_only(framework, kind, build_filtered):
    policy, observations, encoded = build_filtered(framework, kind)
    without_mask = []
    for obs in observations:
        without_mask.append({key: obs[key] for key in ("avail_actions", "real_obs")})

    unfiltered = policy.preprocessor.transform_batch(without_mask)

    for leaf in policy.preprocessor.leaves():
        place = slice(leaf.start, leaf.stop)
        if "real_obs" in leaf.path:
            np.testing.assert_allclose(encoded[:, place].mean(axis=0), 0, atol=0.02)
            np.testing.assert_allclose(encoded[:, place].std(axis=0), 1, atol=0.02)
        else:
            np.testing.assert_array_equal(encoded[:, place], unfiltered[:, place])


@pytest.mark.parametrize("kind", ["embeddings and mask", "list and mask"])
def test_logits_use_filtered_observations_and_raw_embeddings(
    framework, kind, build_filtered, find_allowed, stack_embeddings, assert_close
):
    policy, observations, encoded = build_filtered(framework, kind)

    step = policy.act(observations)

    weights = policy.model.get_weights()
    [leaf] = [leaf for leaf in policy.preprocessor.leaves() if "real_obs" in leaf.path]
    real_obs = encoded[:, leaf.start : leaf.stop]
    hidden = real_obs @ weights["trunk.hidden.layers.0.weight"].T
    features = np.tanh(hidden + weights["trunk.hidden.layers.0.bias"])
    intents = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    logits = np.einsum("be,bne->bn", intents, stack_embeddings(observations))
    is_allowed = find_allowed(observations)
    assert_close(step.dist_inputs[is_allowed], logits[is_allowed], tolerance=1e-4)
    assert is_allowed[np.arange(64), step.action - 2].all()  # Discrete(5, start=2)


# --- saving ---------------------------------------------------------------------------------------


def test_policy_saved_without_a_head_is_loaded_without_one(
    make_space, draw_observations, assert_close, tmp_path
):
    # As if rlcatalog-parametric were not installed when the policy is saved.
    entry_points = [point for point in scan() if point.dist.name != "rlcatalog-parametric"]
    policy = rlcatalog.build(
        make_space("mask"),
        spaces.Discrete(5, start=2),
        {"fcnet_hiddens": [8]},
        "torch",
        catalog=Catalog(entry_points, environ={}),
    )
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    observations = draw_observations(make_space("mask"), rows=6)
    step = loaded.act(observations, explore=False)
    expected = policy.act(observations, explore=False)
    assert list(loaded.model.get_weights()) == list(policy.model.get_weights())
    assert_close(step.dist_inputs, expected.dist_inputs)


# --- custom models --------------------------------------------------------------------------------


class TorchDoubling(TorchModelV2):
    """Returns twice its observation, and counts the calls of its update op."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = self.obs_space.shape[0]
        self.updates = []

    def forward(self, input_dict, state, seq_lens):
        return 2 * input_dict["obs"], state

    def update_ops(self):
        return [lambda: self.updates.append(1)]


class TFDoubling(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = self.obs_space.shape[0]
        self.updates = []

    def forward(self, input_dict, state, seq_lens):
        return 2 * input_dict["obs"], state

    def update_ops(self):
        return [lambda: self.updates.append(1)]


DOUBLING = {"torch": TorchDoubling, "tf": TFDoubling}


@pytest.fixture
def build_with_doubling_trunk(make_space, build_policy):
    """Build a policy whose trunk returns twice `real_obs`."""

    def build(framework, kind, share):
        config = {
            "custom_model": DOUBLING[framework],
            "use_parametric": True,
            "vf_share_layers": share,
        }
        return build_policy(framework, make_space(kind), config)

    return build


shared_and_separate_value = pytest.mark.parametrize(
    "share", [True, False], ids=["shared-value", "separate-value"]
)


@pytest.mark.grid
@shared_and_separate_value
def test_use_parametric_makes_a_custom_model_the_trunk(
    framework,
    kind,
    share,
    build_with_doubling_trunk,
    make_space,
    draw_observations,
    find_allowed,
    stack_embeddings,
    assert_close,
):
    policy = build_with_doubling_trunk(framework, kind, share)
    observations = draw_observations(make_space(kind), rows=50)

    step = policy.act(observations)

    weights = policy.model.get_weights()
    features = 2 * np.stack([obs["real_obs"] for obs in observations])
    logits = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    if kind != "mask":
        logits = np.einsum("be,bne->bn", logits, stack_embeddings(observations))
    is_allowed = find_allowed(observations)
    assert type(policy.model.trunk) is DOUBLING[framework]
    assert policy.model.trunk.num_outputs == 4
    assert_close(step.dist_inputs[is_allowed], logits[is_allowed])
    assert (step.dist_inputs[~is_allowed] == LOWEST).all()
    assert is_allowed[np.arange(50), step.action - 2].all()  # Discrete(5, start=2)


@pytest.mark.grid
@shared_and_separate_value
def test_update_ops_of_a_custom_trunk_are_run(framework, kind, share, build_with_doubling_trunk):
    model = build_with_doubling_trunk(framework, kind, share).model

    for update in model.update_ops():
        update()

    assert len(model.trunk.updates) == 1
    if not share:
        assert len(model.value_trunk.updates) == 1


def test_custom_model_without_a_head_reads_mask_and_embeddings(
    framework, make_space, draw_observations, find_allowed, assert_close
):
    class ReadsAllParts(DOUBLING[framework]):
        """Returns the first number of each embedding, plus 100 where the mask is 1."""

        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 5

        def forward(self, input_dict, state, seq_lens):
            obs = input_dict["obs"]
            assert sorted(obs) == ["action_mask", "avail_actions", "real_obs"]
            return obs["avail_actions"][:, :, 0] + 100 * obs["action_mask"], state

    space = make_space("embeddings and mask")
    policy = rlcatalog.build(space, spaces.Discrete(5), {"custom_model": ReadsAllParts}, framework)
    observations = draw_observations(space, rows=20)

    step = policy.act(observations)

    expected = np.stack([obs["avail_actions"][:, 0] + 100 for obs in observations])
    is_allowed = find_allowed(observations)
    assert_close(step.dist_inputs[is_allowed], expected[is_allowed])
