"""Outputs, values and gradients against NumPy, the two frameworks against each other, and padding
against itself.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog_torch import RecurrentNetwork

pytestmark = pytest.mark.twins

LOWEST = np.finfo(np.float32).min
APART = {"vf_share_layers": False}


def by_hand(head, weights, kind, obs, masked):
    """Logits and values in NumPy, from the observations as they are."""
    place = np.stack([row["real_obs"] for row in obs])

    def layer(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    features = np.tanh(layer(place, "trunk.hidden.layers.0"))
    apart = "value_trunk.hidden.layers.0.weight" in weights
    own = np.tanh(layer(place, "value_trunk.hidden.layers.0")) if apart else features
    logits = layer(features, "outputs.logits")
    if kind != "mask":
        logits = np.einsum("be,bne->bn", logits, head.embeddings(obs))
    if masked:
        logits = np.where(head.allowed(obs), logits, LOWEST)
    return logits, layer(own, "outputs.value")[:, 0]


@pytest.mark.grid
@pytest.mark.parametrize("config", [{}, APART], ids=["shared", "apart"])
def test_a_model_that_is_shown_the_mask(framework, head, kind, config):
    space = head.space(kind)
    model, preprocessor = head.model(framework, space, config)
    obs = head.observations(space, 20)
    logits, values = head.run(model, preprocessor.transform_batch(obs))
    expected = by_hand(head, model.get_weights(), kind, obs, masked=True)
    head.close(logits, expected[0])
    head.close(values, expected[1])
    assert not (logits[head.allowed(obs)] == LOWEST).any()


@pytest.mark.grid
@pytest.mark.parametrize("config", [{}, APART], ids=["shared", "apart"])
def test_a_policy(framework, head, kind, config):
    """The mask is not shown to the model; the inputs of the distribution have it all the same."""
    space = head.space(kind)
    policy = head.policy(framework, space, config)
    obs = head.observations(space, 500)
    step, again = policy.act(obs), policy.act(obs, explore=False)
    logits, values = by_hand(head, policy.model.get_weights(), kind, obs, masked=True)
    head.close(step.dist_inputs, logits)
    head.close(step.value, values)
    chosen = step.action - head.actions.start
    assert head.allowed(obs)[np.arange(500), chosen].all()
    np.testing.assert_array_equal(again.action - head.actions.start, logits.argmax(axis=1))
    # Log-probabilities are those of a softmax over what is allowed.
    weights = np.where(head.allowed(obs), np.exp(logits - logits.max(axis=1, keepdims=True)), 0)
    head.close(step.logp, np.log(weights[np.arange(500), chosen] / weights.sum(axis=1)), 1e-4)
    batch = {
        "obs": policy.preprocess(obs),
        "raw_action": step.raw_action,
        "dist_inputs": step.dist_inputs,
    }
    found = policy.evaluate({**batch, "mask": policy.action_mask(obs)})
    head.close(head.array(found.logp), step.logp, 1e-4)
    head.close(head.array(found.kl), 0)
    assert np.isfinite(head.array(found.entropy)).all()


@pytest.mark.parametrize("config", [{}, APART], ids=["shared", "apart"])
def test_both_frameworks_have_the_same_weights(head, kind, config):
    policies = [head.policy(name, head.space(kind), config) for name in ("torch", "tf")]
    theirs, ours = (policy.model.get_weights() for policy in policies)
    assert list(ours) == list(theirs)
    names = [
        f"{trunk}.hidden.layers.0" for trunk in ("trunk", *(["value_trunk"] if config else []))
    ]
    names += ["outputs.logits", "outputs.value"]
    assert set(ours) == {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    width = head.n if kind == "mask" else head.width
    assert ours["outputs.logits.weight"].shape == (width, 8)


def test_a_fresh_policy_is_close_to_uniform(framework, head, kind):
    policy = rlcatalog.build(head.space(kind), head.actions, head.small, framework)
    weights = policy.model.get_weights()
    np.testing.assert_allclose(
        np.linalg.norm(weights["outputs.logits.weight"], axis=1), 0.01, rtol=1e-4
    )
    np.testing.assert_allclose(
        np.linalg.norm(weights["outputs.value.weight"], axis=1), 0.01, rtol=1e-4
    )


# --- what stands for no action --------------------------------------------------------------------


def gradients(model, encoded, head):
    """Gradients of the allowed logits' squares and of the values, by name."""
    variables = model.trainable_variables(as_dict=True)
    if model.framework == "torch":
        output, _ = model({"obs": torch.from_numpy(encoded)})
        loss = (
            torch.where(output > LOWEST, output, 0.0).square().sum()
            + model.value_function().square().sum()
        )
        model.zero_grad(set_to_none=True)
        loss.backward()
        return head.array(output), {name: p.grad.numpy() for name, p in variables.items()}
    with tf.GradientTape() as tape:
        output, _ = model({"obs": tf.constant(encoded)})
        loss = tf.reduce_sum(tf.where(output > LOWEST, output, 0.0) ** 2) + tf.reduce_sum(
            model.value_function() ** 2
        )
    found = tape.gradient(loss, list(variables.values()))
    return output.numpy(), {name: x.numpy() for name, x in zip(variables, found, strict=True)}


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["both", "list", "list and mask"])
@pytest.mark.parametrize("content", [7.0, 1e30, np.nan, np.inf])
def test_what_stands_for_no_action_has_no_influence(framework, head, kind, content):
    space = head.space(kind)
    model, preprocessor = head.model(framework, space)
    obs = head.observations(space, 12)
    encoded = preprocessor.transform_batch(obs)
    changed = encoded.copy()
    leaf = next(
        leaf for leaf in preprocessor.leaves() if "avail" in leaf.path and leaf.kind != "length"
    )
    places = changed[:, leaf.start : leaf.stop].reshape(len(obs), head.n, head.width)
    places[~head.allowed(obs)] = content  # in `changed` itself
    changed[:, leaf.start : leaf.stop] = places.reshape(len(obs), -1)
    assert not np.array_equal(changed, encoded)
    (logits, expected), (found, ours) = (gradients(model, x, head) for x in (encoded, changed))
    np.testing.assert_array_equal(found, logits)
    for name, gradient in ours.items():
        np.testing.assert_array_equal(gradient, expected[name], err_msg=name)
        assert np.abs(gradient).max() > 0


def test_a_list_is_worth_what_the_same_box_with_a_mask_is(framework, head):
    """A variable number of actions, told by a length or by a mask: outputs, values and actions are
    the same.
    """
    lists, boxes = head.space("list"), head.space("both")
    first, second = head.policy(framework, lists), head.policy(framework, boxes)
    second.model.set_weights(first.model.get_weights())
    obs, random = head.observations(lists, 30), np.random.default_rng(1)
    same = []
    for row in obs:
        count = len(row["avail_actions"])
        padded = random.normal(size=(head.n, head.width)).astype(np.float32).clip(-1, 1)
        padded[:count] = row["avail_actions"]
        same.append(
            {
                **row,
                "avail_actions": padded,
                "action_mask": (np.arange(head.n) < count).astype(np.int8),
            }
        )
    ours, theirs = (policy.act(x, explore=False) for policy, x in ((first, obs), (second, same)))
    head.close(ours.dist_inputs, theirs.dist_inputs)
    head.close(ours.value, theirs.value)
    head.close(ours.logp, theirs.logp)


def test_a_sequence_is_worth_what_a_repeated_is(framework, head):
    lists = head.space("list")
    item = spaces.Box(-1, 1, (head.width,), np.float32)
    first = head.policy(framework, lists)
    obs = head.observations(lists, 8)
    expected = first.act(obs, explore=False).dist_inputs
    for stack in (False, True):
        space = spaces.Dict(
            {"avail_actions": spaces.Sequence(item, stack=stack), "real_obs": head.place}
        )
        policy = head.policy(framework, space, {"sequence_max_len": head.n})
        policy.model.set_weights(first.model.get_weights())
        shown = [
            np.stack(row["avail_actions"]) if stack else tuple(row["avail_actions"]) for row in obs
        ]
        same = [{**row, "avail_actions": one} for row, one in zip(obs, shown, strict=True)]
        head.close(policy.act(same, explore=False).dist_inputs, expected)


def test_where_an_embedding_stands_does_not_matter(framework, head):
    policy = head.policy(framework, head.space("embeddings"))
    obs = head.observations(head.space("embeddings"), 10)
    order = np.array([3, 0, 4, 1, 2])
    moved = [{**row, "avail_actions": row["avail_actions"][order]} for row in obs]
    one, other = policy.act(obs, explore=False), policy.act(moved, explore=False)
    head.close(other.dist_inputs, one.dist_inputs[:, order])
    head.close(other.value, one.value)
    assert len(np.unique(one.action)) > 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64])
def test_embeddings_of_other_dtypes(framework, head, dtype):
    shown = spaces.Box(0, 9, (head.n, head.width), dtype)
    policy = head.policy(framework, spaces.Dict({"avail_actions": shown, "real_obs": head.place}))
    obs = [{"avail_actions": shown.sample(), "real_obs": head.place.sample()} for _ in range(4)]
    expected = by_hand(head, policy.model.get_weights(), "embeddings", obs, masked=False)[0]
    head.close(policy.act(obs).dist_inputs, expected, 1e-4)


class Recurrent(RecurrentNetwork):
    """A trunk with a state."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs, self.layer = 4, torch.nn.Linear(4, 4)

    def get_initial_state(self):
        return [np.zeros(2, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        return self.layer(inputs), state


@pytest.mark.parametrize("apart", [{}, APART], ids=str)
def test_a_trunk_with_a_state_gives_the_value_one_of_its_own_where_it_is_apart(head, apart):
    config = {"custom_model": Recurrent, "use_parametric": True, **apart}
    found = head.policy("torch", head.space("embeddings"), config).act(
        head.observations(head.space("embeddings"))
    )
    assert len(found.state.memory) == (2 if apart else 1)
