"""Policies with a transformer: acting, training, past actions and rewards, saving."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from action_kinds import ACTIONS as ACTION_KINDS
from gymnasium import spaces

import rlcatalog
from rlcatalog.actions import action_codec
from rlcatalog.spaces import SpaceInfo

pytestmark = pytest.mark.twins

BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
SMALL = {
    "use_attention": True,
    "fcnet_hiddens": [8],
    "attention_dim": 6,
    "attention_head_dim": 4,
    "attention_memory_inference": 3,
    "attention_memory_training": 3,
}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def array(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x.numpy()


def act_and_train_alike(policy, steps=6, n=2):
    """Act in `n` episodes, then score what was done as sequences: two per episode, the later with a
    stored state.
    """
    rng = np.random.default_rng(0)
    space = policy.observation_space
    space.seed(0)
    cut, state, taken, starts, obs, rewards = 4, policy.initial_state(n), [], {}, [], None
    for t in range(steps):
        if t in (0, cut):
            starts[t] = state
        seen = [space.sample() for _ in range(n)]
        obs.append(policy.preprocess(seen))
        taken.append(policy.act(seen, state, prev_reward=rewards))
        state, rewards = taken[-1].state, rng.normal(size=n).astype(np.float32)

    def rows(parts):
        """Lay steps out as sequences: each episode's first `cut` steps, then the rest of them."""
        stacked = np.stack(parts)
        return np.concatenate(
            [stacked[a:b, i] for a, b in ((0, cut), (cut, steps)) for i in range(n)]
        )

    views = {name: rows([step.state.seen[name] for step in taken]) for name in taken[0].state.seen}
    memory = [
        np.concatenate(both) for both in zip(starts[0].memory, starts[cut].memory, strict=True)
    ]
    batch = {
        "obs": rows(obs),
        "raw_action": rows([step.raw_action for step in taken]),
        "views": views,
        "state": memory,
        "seq_lens": np.array([cut] * n + [steps - cut] * n, np.int32),
    }
    found = policy.evaluate(batch)
    np.testing.assert_allclose(
        array(found.logp), rows([s.logp for s in taken]), rtol=2e-3, atol=2e-4
    )
    np.testing.assert_allclose(
        array(found.value), rows([s.value for s in taken]), rtol=1e-4, atol=1e-5
    )
    return taken


@pytest.mark.parametrize(
    ("framework", "kind"),
    [*(("torch", kind) for kind in ACTION_KINDS), ("tf", "discrete"), ("tf", "dict")],
)
def test_past_actions_of_every_kind_and_rewards(framework, kind):
    space, config = ACTION_KINDS[kind]
    config = {
        **SMALL,
        **config,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 3,
    }
    policy = rlcatalog.build(BOX, space, config, framework)
    width = action_codec(SpaceInfo.read(space, "action")).input_width
    assert policy.model.get_weights()["transformer.input.weight"].shape == (6, 8 + 2 * width + 3)
    act_and_train_alike(policy)


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize(("actions", "rewards"), [(1, 0), (0, 1), (3, 2)])
def test_what_the_units_read_of_the_past(framework, actions, rewards):
    config = {
        **SMALL,
        "attention_use_n_prev_actions": actions,
        "attention_use_n_prev_rewards": rewards,
    }
    policy = rlcatalog.build(BOX, spaces.Discrete(4), config, framework)
    # The first rows of the input layer hand on what it reads, so that the memory shows it.
    weights = policy.model.get_weights()
    weights["transformer.input.bias"][:] = 0
    paid, taken, states = np.float32([[0.5, -1], [2, 3], [-4, 0.25], [1, 1]]), [], [None]
    width = 4 * actions + rewards
    found = np.zeros((4, 2, width), np.float32)
    for place in range(width):
        weights["transformer.input.weight"][:] = 0
        weights["transformer.input.weight"][0, 8 + place] = 1
        policy.model.set_weights(weights)
        if not taken:
            for t in range(4):
                step = policy.act(
                    np.zeros((2, 3), np.float32), states[-1], prev_reward=paid[t - 1] if t else None
                )
                taken.append(np.eye(4, dtype=np.float32)[step.raw_action[:, 0].astype(int)])
                states.append(step.state)
        for t in range(4):
            step = policy.act(
                np.zeros((2, 3), np.float32), states[t], prev_reward=paid[t - 1] if t else None
            )
            found[t, :, place] = step.state.memory[0][:, 0, -1, 0]
    for t in range(4 if width else 0):
        expected = [np.zeros((2, 4))] * max(0, actions - t) + (
            taken[max(0, t - actions) : t] if actions else []
        )
        expected += [np.zeros((2, 1))] * max(0, rewards - t)
        expected += [reward[:, None] for reward in paid[max(0, t - rewards) : t]] if rewards else []
        np.testing.assert_allclose(found[t], np.concatenate(expected, axis=1), atol=1e-6)
    assert weights["transformer.input.weight"].shape == (6, 8 + width)


OBSERVATIONS = {
    "dict": spaces.Dict(
        {"at": BOX, "kind": spaces.Discrete(3), "more": spaces.Tuple([spaces.MultiBinary(2), BOX])}
    ),
    "image": spaces.Box(0, 255, (42, 42, 1), np.uint8),
}


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_other_observations(framework, kind):
    config = {
        key: value for key, value in SMALL.items() if kind == "dict" or key != "fcnet_hiddens"
    }
    policy = rlcatalog.build(OBSERVATIONS[kind], TWO, config, framework)
    assert (
        type(policy.model.trunk).__name__
        == {"dict": "FullyConnectedNetwork", "image": "VisionNetwork"}[kind]
    )
    act_and_train_alike(policy)


@frameworks
@pytest.mark.parametrize("units", [2])
def test_acting_and_training_agree_and_gradients_reach_every_parameter(framework, units, scramble):
    policy = rlcatalog.build(
        BOX, TWO, {**SMALL, "attention_num_transformer_units": units}, framework
    )
    scramble(policy.model)
    act_and_train_alike(policy)
    rng = np.random.default_rng(2)
    batch = {
        "obs": rng.normal(size=(40, 3)).astype(np.float32),
        "raw_action": rng.integers(0, 2, (40, 1)),
        "seq_lens": np.array([4] * 10, np.int32),
    }
    if framework == "torch":
        found = policy.evaluate(batch)
        (found.logp.sum() + found.value.sum()).backward()
        gradients = {name: p.grad for name, p in policy.model.named_parameters()}
    else:
        import tensorflow as tf

        variables = policy.model.trainable_variables(as_dict=True)
        with tf.GradientTape() as tape:
            found = policy.evaluate(batch)
            loss = tf.reduce_sum(found.logp) + tf.reduce_sum(found.value)
        gradients = dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert np.abs(np.asarray(gradient)).sum() > 0, name


@frameworks
def test_a_saved_policy_goes_on_where_it_was(framework, tmp_path, scramble):
    config = {**SMALL, "attention_use_n_prev_actions": 1, "attention_use_n_prev_rewards": 1}
    policy = rlcatalog.build(BOX, TWO, config, framework)
    scramble(policy.model)
    state = policy.act(np.ones((2, 3), np.float32)).state
    policy.save(tmp_path / "policy")
    loaded = rlcatalog.load(tmp_path / "policy")
    assert "table" not in str(list(policy.model.get_weights()))  # constants are no weights
    for _ in range(2):
        steps = [
            p.act(np.full((2, 3), 0.5, np.float32), state, prev_reward=[1.0, 2.0], explore=False)
            for p in (policy, loaded)
        ]
        np.testing.assert_array_equal(steps[0].dist_inputs, steps[1].dist_inputs)
        state = steps[0].state


@frameworks
def test_a_stepper_starts_done_rows_anew(framework):
    policy = rlcatalog.build(BOX, TWO, {**SMALL, "attention_use_n_prev_rewards": 2}, framework)
    stepper, obs = (
        policy.stepper(3),
        np.random.default_rng(0).uniform(-1, 1, (5, 3, 3)).astype(np.float32),
    )
    for t in range(5):
        step = stepper.step(
            obs[t],
            done=[False, t == 3, False] if t else None,
            prev_reward=[1.0, 2.0, 3.0],
            explore=False,
        )
    memory, held = step.state.memory
    assert held.tolist() == [3, 2, 3]
    np.testing.assert_array_equal(memory[1, :, 0], 0)
    first = policy.act(obs[3], explore=False)
    second = policy.act(obs[4], first.state, prev_reward=[1.0, 2.0, 3.0], explore=False)
    np.testing.assert_allclose(step.dist_inputs[1], second.dist_inputs[1], rtol=1e-5, atol=1e-6)


@frameworks
def test_the_value_adds_no_pass(framework):
    policy = rlcatalog.build(BOX, TWO, SMALL, framework)
    model, passes = policy.model, []
    run = type(model.trunk).forward
    model.trunk.forward = lambda *a: passes.append("trunk") or run(model.trunk, *a)
    if framework == "torch":
        model.transformer.register_forward_hook(lambda *_: passes.append("units"))
        obs = torch.zeros(2, 3)
    else:
        import tensorflow as tf

        inner = model.transformer
        model.transformer = lambda *a: passes.append("units") or inner(*a)
        obs = tf.zeros([2, 3])
    model({"obs": obs})
    for _ in range(3):
        assert model.value_function().shape == (2,)
    assert passes == ["trunk", "units"]


@frameworks
def test_two_models_share_nothing(framework):
    policy = rlcatalog.build(BOX, TWO, SMALL, framework)
    first, second = policy.make_model(), policy.make_model()
    assert not {id(v) for v in first.variables()} & {id(v) for v in second.variables()}
    before = {name: value.copy() for name, value in second.get_weights().items()}
    first.set_weights({name: value + 1 for name, value in first.get_weights().items()})
    for name, value in second.get_weights().items():
        np.testing.assert_array_equal(value, before[name])
    assert not np.array_equal(
        before["transformer.units.0.attention.query"],
        policy.make_model().get_weights()["transformer.units.0.attention.query"],
    )


def test_parametrised_weights_are_read_anew():
    torch.manual_seed(0)
    # Of a few units, a ReLU may let none through.
    policy = rlcatalog.build(BOX, TWO, {**SMALL, "attention_dim": 32})
    attention = policy.model.transformer.units[0].attention
    obs = np.ones((2, 3), np.float32)
    state = policy.act(obs).state
    before = policy.act(obs, state, explore=False).dist_inputs

    class Twice(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    torch.nn.utils.parametrize.register_parametrization(attention, "value", Twice())
    # They may be small.
    assert not np.array_equal(policy.act(obs, state, explore=False).dist_inputs, before)
