"""Masks that models are shown: of every action space, for Q-values, in half precision, and rows
that allow nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from masked_env import MASKED, Masked, allowed

from rlcatalog import ModelCatalog, SpaceInfo
from rlcatalog.actions import ActionMasks
from rlcatalog.errors import ActionMaskError
from rlcatalog_parametric.mask_columns import ShownMask
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

LOWEST = np.finfo(np.float32).min


def played(name, steps=20):
    """Observations of an environment with masks, and those masks."""
    env, obs, masks = Masked(name), [], []
    for seed in range(steps):
        obs.append(env.reset(seed=seed)[0])
        masks.append(env.mask)
    return env, obs, masks


@pytest.mark.parametrize("name", MASKED)
def test_the_columns_are_the_kernels(name):
    env, obs, _ = played(name)
    action, space = SpaceInfo.read(env.action_space, "action"), env.observation_space["action_mask"]
    shown = ShownMask(action, SpaceInfo.read(space, "obs['action_mask']"))
    batch = [row["action_mask"] for row in obs]
    rows = [[np.asarray(leaf, np.float32).ravel() for leaf in shown.leaves(mask)] for mask in batch]
    values = np.stack([np.concatenate(row) for row in rows])
    found = values != 0 if shown.places is None else values[:, shown.places] != shown.forbidding
    np.testing.assert_array_equal(found, ActionMasks(action, "action_mask").of(obs))


@pytest.mark.parametrize("name", MASKED)
def test_outputs_are_masked_for_every_action_space(framework, head, name):
    """Under an algorithm that knows nothing of masks: what is drawn is allowed,
    whatever the space.
    """
    env, obs, masks = played(name)
    preprocessor = ModelCatalog.get_preprocessor(env, head.small)
    dist_class, size = ModelCatalog.get_action_dist(
        env.action_space, head.small, framework=framework
    )
    encoded = preprocessor.transform_batch(obs)
    space, config = preprocessor.observation_space, {"fcnet_hiddens": [8]}
    model = head.randomise(
        ModelCatalog.get_model_v2(space, env.action_space, size, config, framework)
    )
    found, _ = head.run(model, encoded)
    blind = ModelCatalog.get_model_v2(
        space, env.action_space, size, {**config, "action_mask_key": "none"}, framework
    )
    assert "trunk.hidden.layers.0.weight" in model.get_weights()
    # The control: without a mask there is no head.
    assert "trunk.hidden.layers.0.weight" not in blind.get_weights()
    features, _ = model.trunk(
        {"obs": {"x": head.tensor(framework, np.stack([row["x"] for row in obs]))}}
    )
    matrix = ActionMasks(SpaceInfo.read(env.action_space, "action"), "action_mask").of(obs)
    expected = dist_class.masked(model.outputs(features), head.tensor(framework, matrix))
    np.testing.assert_array_equal(found, head.array(expected))
    for _ in range(5):
        raw = dist_class(head.tensor(framework, found), model).sample()
        assert all(
            allowed(env.action_space, action, mask)
            for action, mask in zip(actions(env, raw), masks, strict=True)
        )


def actions(env, raw):
    """The environment's actions of raw ones, row by row."""
    from rlcatalog.actions import action_codec
    from rlcatalog.spaces import parts_of

    parts = parts_of(raw)
    parts = [raw] if parts is None else parts
    flat = np.concatenate(
        [np.asarray(part, np.float64).reshape(len(np.asarray(part)), -1) for part in parts], axis=1
    )
    codec = action_codec(SpaceInfo.read(env.action_space, "action"), "clip")
    adapted = codec.adapt(flat if len(parts) > 1 or flat.shape[1] > 1 else flat.astype(np.int64))
    return [_row(env.action_space, adapted, i) for i in range(len(flat))]


def _row(space, batch, i):
    if isinstance(space, spaces.Dict):
        return {key: _row(child, batch[key], i) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_row(child, batch[k], i) for k, child in enumerate(space.spaces))
    return batch[i]


# --- Q-values -------------------------------------------------------------------------------------


class TorchQ(TorchModelV2):
    def get_q_values(self, output):
        return output


class TFQ(TFModelV2):
    def get_q_values(self, output):
        return output


@pytest.mark.grid
def test_the_maximum_of_q_values_is_over_what_is_allowed(framework, head, kind):
    space = head.space(kind)
    model, preprocessor = head.model(
        framework, space, interface=TorchQ if framework == "torch" else TFQ
    )
    obs = head.observations(space, 400)
    output, _ = model({"obs": head.tensor(framework, preprocessor.transform_batch(obs))})
    q, free = head.array(model.get_q_values(output)), head.allowed(obs)
    assert free[np.arange(400), q.argmax(axis=1)].all()
    assert (q.max(axis=1) > LOWEST).all()
    assert (q[~free] == LOWEST).all()


def test_a_head_with_a_mask_alone_hands_on_features(framework, head):
    """Below a dueling interface: the trunk's features; what is masked is for the
    interface to say.
    """
    model, preprocessor = head.model(
        framework, head.space("mask"), {"vf_share_layers": False}, num_outputs=None
    )
    assert model.num_outputs == 8
    assert list(model.get_weights()) == [
        "trunk.hidden.layers.0.weight",
        "trunk.hidden.layers.0.bias",
    ]
    obs = head.observations(head.space("mask"))
    found, _ = model({"obs": head.tensor(framework, preprocessor.transform_batch(obs))})
    weights, place = model.get_weights(), np.stack([row["real_obs"] for row in obs])
    head.close(
        head.array(found),
        np.tanh(
            place @ weights["trunk.hidden.layers.0.weight"].T
            + weights["trunk.hidden.layers.0.bias"]
        ),
    )


# --- half precision -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_all_is_finite_in_half_precision(head, kind, dtype):
    space = head.space(kind)
    model, preprocessor = head.model("torch", space)
    dist_class, _ = ModelCatalog.get_action_dist(head.actions, {}, framework="torch")
    obs = head.observations(space, 50)
    encoded = torch.from_numpy(preprocessor.transform_batch(obs))
    expected, _ = model({"obs": encoded})
    with torch.autocast("cpu", dtype):
        output, _ = model({"obs": encoded})
        dist, value = dist_class(output, model), model.value_function()
    assert output.dtype is dtype
    assert torch.isfinite(output).all()
    free = torch.from_numpy(head.allowed(obs))
    assert (output[~free] == torch.finfo(dtype).min).all()
    torch.testing.assert_close(output[free].float(), expected[free], rtol=0.1, atol=0.1)
    for found in (value, dist.entropy(), dist.kl(dist), dist.logp(dist.sample())):
        assert torch.isfinite(found).all()
    assert free[torch.arange(50), dist.sample()].all()
    (dist.entropy().sum() + value.sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=str)
def test_all_is_finite_in_half_precision_in_tensorflow(head, dtype):
    """Logits cast to half and masked, as a step under mixed precision does it."""
    dist_class, _ = ModelCatalog.get_action_dist(head.actions, {}, framework="tf")
    obs = head.observations(head.space("both"), 50)
    model, preprocessor = head.model("tf", head.space("both"))
    output, _ = model({"obs": tf.constant(preprocessor.transform_batch(obs))})
    free = head.allowed(obs)
    inputs = dist_class.masked(tf.cast(tf.where(free, output, 0.0), dtype), tf.constant(free))
    dist = dist_class(inputs, model)
    assert inputs.dtype == dtype
    for found in (inputs, dist.entropy(), dist.kl(dist), dist.logp(dist.sample())):
        assert np.isfinite(tf.cast(found, tf.float32)).all()
    assert free[np.arange(50), dist.sample()].all()


# --- rows that allow nothing ----------------------------------------------------------------------


def nothing_in_row_two(head, kind):
    obs = head.observations(head.space(kind), 4)
    if "action_mask" in obs[2]:
        obs[2]["action_mask"][:] = 0
    else:
        obs[2]["avail_actions"] = []
    return obs


@pytest.mark.parametrize("kind", ["mask", "both", "list", "list and mask"])
def test_a_row_that_allows_nothing_is_named(framework, head, kind):
    model, preprocessor = head.model(framework, head.space(kind))
    encoded = preprocessor.transform_batch(nothing_in_row_two(head, kind))
    with pytest.raises(
        ActionMaskError, match="row 2 allows no action; each row must allow at least one"
    ):
        head.run(model, encoded)
    assert head.run(model, encoded[:2])[0].shape == (2, 5)
    unchecked, _ = head.model(framework, head.space(kind), {"check_observations": "never"})
    logits, _ = head.run(unchecked, encoded)
    assert np.isfinite(logits).all()
    assert (logits[2] == LOWEST).all()


def test_a_list_and_a_mask_that_agree_on_nothing(framework, head):
    model, preprocessor = head.model(framework, head.space("list and mask"))
    obs = head.observations(head.space("list and mask"), 3)
    obs[1]["avail_actions"] = obs[1]["avail_actions"][:1]
    obs[1]["action_mask"] = np.array([0, 1, 1, 1, 1], np.int8)
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        head.run(model, preprocessor.transform_batch(obs))


@pytest.mark.parametrize("kind", ["mask", "both", "list", "list and mask"])
def test_a_policy_names_it_too(framework, head, kind):
    """A mask is checked by the kernel; an empty list by the head."""
    policy, obs = head.policy(framework, head.space(kind)), nothing_in_row_two(head, kind)
    with pytest.raises(ActionMaskError, match="row 2 allows no action"):
        policy.act(obs)


def test_it_is_named_inside_a_tf_function(head):
    model, preprocessor = head.model("tf", head.space("both"))
    encoded = tf.constant(preprocessor.transform_batch(nothing_in_row_two(head, "both")))
    acting = tf.function(lambda obs: model({"obs": obs})[0])
    training = tf.function(lambda obs: model({"obs": obs, "is_training": True})[0])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"mask: row(.|\n)*2(.|\n)*allows no value for action"
    ):
        acting(encoded)
    assert acting(encoded[:2]).shape == (2, 5)
    assert np.isfinite(training(encoded)).all()


@pytest.mark.parametrize("kind", ["mask", "list and mask"])
def test_padding_behind_a_sequence_allows_nothing_and_is_left_alone(framework, head, kind):
    space = head.space(kind)
    model, preprocessor = head.model(framework, space, head.lstm)
    encoded = preprocessor.transform_batch(head.observations(space, 6))
    encoded[4:] = 0  # the second sequence has one step, the first has three
    state = [head.tensor(framework, np.zeros((2, 6), np.float32))] * 2
    outputs, _ = head.run(model, encoded, state, [3, 1])
    assert np.isfinite(outputs).all()
    encoded[1] = 0
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        head.run(model, encoded, state, [3, 1])
