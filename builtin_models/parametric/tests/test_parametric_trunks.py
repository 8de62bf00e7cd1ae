"""The head in front of every kind of trunk and memory, under filters, saved and loaded, and around
custom models.
"""

from __future__ import annotations

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

IMAGE = spaces.Box(0, 255, (10, 10, 2), np.uint8)
RESTS = {
    "vector": (spaces.Box(-1, 1, (4,), np.float32), "fcnet"),
    "discrete": (spaces.Discrete(4), "fcnet"),
    "image": (IMAGE, "visionnet"),
    "dict": (
        spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)}),
        "fcnet",
    ),
    "dict with image": (spaces.Dict({"eye": IMAGE, "self": spaces.Discrete(3)}), "complex_input"),
}
SMALL = {"conv_activation": "tanh"}
#: One config serves trunks of all kinds here: of the widths and activations in it each reads its
#: own.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")


def config_of(head, memory):
    own = {
        "lstm": {**head.lstm, "lstm_use_prev_action": True},
        "attention": head.attention,
        "none": {},
    }[memory]
    return {**SMALL, **own}


@pytest.mark.grid
@pytest.mark.parametrize(
    ("rest", "memory"),
    [
        *((rest, "none") for rest in RESTS),
        ("vector", "lstm"),
        ("image", "lstm"),
        ("vector", "attention"),
        ("dict", "attention"),
    ],
)
@pytest.mark.parametrize("kind", ["both", "list and mask"])
def test_any_trunk_sees_the_rest(head, kind, rest, memory):
    """Both frameworks with the same weights: step by step and in one pass over sequences; the mask
    is kept.
    """
    space, config = head.space(kind, RESTS[rest][0]), config_of(head, memory)
    policies = {framework: head.policy(framework, space, config) for framework in ("torch", "tf")}
    weights = policies["torch"].model.get_weights()
    assert list(weights) == list(policies["tf"].model.get_weights())
    found = policies["torch"].explain().as_dict()
    assert found["model"]["chosen"] == RESTS[rest][1]
    assert (found["memory"]["chosen"] or "none") == memory
    rows, steps = 3, 3
    obs = [head.observations(space, rows, seed=t) for t in range(steps)]
    played = {}
    for framework, policy in policies.items():
        state, taken = None, []
        for t in range(steps):
            taken.append(policy.act(obs[t], state, explore=False))
            state = taken[-1].state
            assert head.allowed(obs[t])[
                np.arange(rows), taken[-1].action - head.actions.start
            ].all()
        played[framework] = taken
        batch = {
            "obs": policy.preprocess([obs[t][row] for row in range(rows) for t in range(steps)]),
            "raw_action": np.stack([step.raw_action for step in taken], axis=1).reshape(-1, 1),
            "mask": np.stack([policy.action_mask(one) for one in obs], axis=1).reshape(-1, head.n),
        }
        if state is not None:
            batch["seq_lens"] = np.full(rows, steps, np.int32)
            batch["views"] = {
                name: np.stack([step.state.seen[name] for step in taken], axis=1).reshape(
                    rows * steps, *x.shape[1:]
                )
                for name, x in taken[0].state.seen.items()
            }
        evaluation, gradients = trained(policy, batch)
        head.close(
            head.array(evaluation.logp), np.stack([s.logp for s in taken], axis=1).ravel(), 1e-3
        )
        head.close(
            head.array(evaluation.value), np.stack([s.value for s in taken], axis=1).ravel(), 1e-3
        )
        silent = [
            name
            for name, gradient in gradients.items()
            if gradient is None or not np.any(head.array(gradient))
        ]
        assert silent == []
    for ours, theirs in zip(played["torch"], played["tf"], strict=True):
        head.close(theirs.dist_inputs, ours.dist_inputs)
        head.close(theirs.value, ours.value)
        np.testing.assert_array_equal(theirs.action, ours.action)


def trained(policy, batch):
    variables = policy.model.trainable_variables(as_dict=True)
    noise = np.random.default_rng(1).normal(size=len(batch["raw_action"])).astype(np.float32)
    if policy.framework == "torch":
        found = policy.evaluate(batch)
        ((found.logp * torch.from_numpy(noise)).sum() + found.value.square().sum()).backward()
        return found, {name: p.grad for name, p in variables.items()}
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        loss = tf.reduce_sum(found.logp * noise) + tf.reduce_sum(found.value**2)
    return found, dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))


@pytest.mark.parametrize("memory", ["lstm", "attention"])
def test_a_memory_under_an_algorithm_that_shows_the_mask(framework, head, memory):
    """`get_model_v2` and padded sequences: real rows are masked, and are what they are without the
    padding.
    """
    space = head.space("both")
    model, preprocessor = head.model(framework, space, getattr(head, memory))
    obs = head.observations(space, 4)
    encoded = preprocessor.transform_batch(obs)
    padded = np.concatenate([encoded, np.zeros((2, encoded.shape[1]), np.float32)])

    def start(rows):
        parts = [head.array(part) for part in model.get_initial_state()]
        return [head.tensor(framework, np.repeat(part[None], rows, axis=0)) for part in parts]

    outputs, values = head.run(model, padded, start(2), [3, 1])
    np.testing.assert_array_equal(outputs[:4] == np.finfo(np.float32).min, ~head.allowed(obs))
    for rows, length in ((slice(0, 3), 3), (slice(3, 4), 1)):
        alone = head.run(model, encoded[rows], start(1), [length])
        head.close(outputs[rows], alone[0])
        head.close(values[rows], alone[1])


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["both", "list and mask"])
def test_a_filter_leaves_mask_and_embeddings_alone(framework, head, kind):
    """The head is given what the environment says of actions; the trunk sees the rest filtered."""
    space = head.space(kind, spaces.Box(-100, 100, (4,), np.float32))
    policy = head.policy(framework, space, {"observation_filter": "MeanStdFilter"})
    obs = head.observations(space, 64)
    encoded = policy.preprocess(obs, update=True)
    plain = policy.preprocessor.transform_batch(
        [{k: v for k, v in row.items() if k != "action_mask"} for row in obs]
    )
    for leaf in policy.preprocessor.leaves():
        ours, theirs = encoded[:, leaf.start : leaf.stop], plain[:, leaf.start : leaf.stop]
        if "real_obs" in leaf.path:
            np.testing.assert_allclose(ours.mean(axis=0), 0, atol=0.02)
            np.testing.assert_allclose(ours.std(axis=0), 1, atol=0.02)
        else:
            np.testing.assert_array_equal(ours, theirs)
    step = policy.act(obs)
    assert head.allowed(obs)[np.arange(64), step.action - head.actions.start].all()
    weights = policy.model.get_weights()
    place = next(leaf for leaf in policy.preprocessor.leaves() if "real_obs" in leaf.path)
    features = np.tanh(
        encoded[:, place.start : place.stop] @ weights["trunk.hidden.layers.0.weight"].T
        + weights["trunk.hidden.layers.0.bias"]
    )
    intent = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    expected = np.einsum("be,bne->bn", intent, head.embeddings(obs))
    head.close(step.dist_inputs[head.allowed(obs)], expected[head.allowed(obs)], 1e-4)


# --- saving ---------------------------------------------------------------------------------------


def test_what_was_saved_without_a_head_is_loaded_without_one(head, tmp_path):
    """A policy of before this package was installed keeps its form."""
    names = [entry for entry in scan() if entry.dist.name != "rlcatalog-parametric"]
    before = rlcatalog.build(
        head.space("mask"),
        head.actions,
        {"fcnet_hiddens": [8]},
        "torch",
        catalog=Catalog(names, environ={}),
    )
    before.save(tmp_path)
    loaded, obs = rlcatalog.load(tmp_path), head.observations(head.space("mask"))
    assert list(loaded.model.get_weights()) == list(before.model.get_weights())
    head.close(
        loaded.act(obs, explore=False).dist_inputs, before.act(obs, explore=False).dist_inputs
    )


# --- custom models --------------------------------------------------------------------------------


class TorchDouble(TorchModelV2):
    """A trunk whose features are twice what it sees."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = self.obs_space.shape[0]
        self.calls = []

    def forward(self, input_dict, state, seq_lens):
        return 2 * input_dict["obs"], state

    def update_ops(self):
        return [lambda: self.calls.append(1)]


class TFDouble(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = self.obs_space.shape[0]
        self.calls = []

    def forward(self, input_dict, state, seq_lens):
        return 2 * input_dict["obs"], state

    def update_ops(self):
        return [lambda: self.calls.append(1)]


@pytest.mark.grid
@pytest.mark.parametrize("apart", [False, True])
def test_around_a_custom_model_when_asked_for(framework, head, kind, apart):
    """It is the trunk: it sees the one entry that is left, as a vector."""
    own = TorchDouble if framework == "torch" else TFDouble
    config = {"custom_model": own, "use_parametric": True, "vf_share_layers": not apart}
    policy = head.policy(framework, head.space(kind), config)
    assert type(policy.model.trunk) is own
    assert policy.model.trunk.num_outputs == 4
    obs = head.observations(head.space(kind), 50)
    step, weights = policy.act(obs), policy.model.get_weights()
    logits = 2 * np.stack([row["real_obs"] for row in obs]) @ weights["outputs.logits.weight"].T
    logits += weights["outputs.logits.bias"]
    if kind != "mask":
        logits = np.einsum("be,bne->bn", logits, head.embeddings(obs))
    free = head.allowed(obs)
    head.close(step.dist_inputs[free], logits[free])
    assert (step.dist_inputs[~free] == np.finfo(np.float32).min).all()
    assert free[np.arange(50), step.action - head.actions.start].all()
    for operation in policy.model.update_ops():
        operation()
    assert policy.model.trunk.calls == [1]
    assert not apart or policy.model.value_trunk.calls == [1]


def test_a_custom_model_reads_mask_and_embeddings_itself(framework, head):
    own = TorchDouble if framework == "torch" else TFDouble

    class Reads(own):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 5

        def forward(self, input_dict, state, seq_lens):
            obs = input_dict["obs"]
            assert sorted(obs) == ["action_mask", "avail_actions", "real_obs"]
            return obs["avail_actions"][:, :, 0] + 100 * obs["action_mask"], state

    policy = rlcatalog.build(head.space("both"), head.actions, {"custom_model": Reads}, framework)
    obs = head.observations(head.space("both"), 20)
    shown = np.stack([row["avail_actions"][:, 0] + 100 * row["action_mask"] for row in obs])
    free = head.allowed(obs)
    head.close(policy.act(obs).dist_inputs[free], shown[free])
