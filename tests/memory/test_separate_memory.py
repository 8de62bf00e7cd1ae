"""`vf_share_layers=False` with a memory: the value has a chain of its own, whose state stands
beside the policy's.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import rlcatalog
from rlcatalog import Catalog, ViewRequirement
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog.plugins.discovery import scan
from rlcatalog_ppo import PPO
from rlcatalog_torch import TorchModelV2, features_of

pytestmark = pytest.mark.twins

OBS, TWO = Box(-1, 1, (3,), np.float32), Discrete(2)
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
APART = {"vf_share_layers": False}


OBSERVATIONS = np.random.default_rng(0).uniform(-1, 1, (2, 4, 3)).astype(np.float32)


class OwnConfig(msgspec.Struct, frozen=True, kw_only=True):
    own_part: bool = False


class Fading(TorchModelV2):
    """A stranger's memory: a fading sum of the features, whose state is a vector."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, *, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk, self.width = trunk, trunk.num_outputs
        self.fade = torch.nn.Parameter(torch.full((self.width,), 0.5))
        self.num_outputs = self.width if num_outputs is None else num_outputs
        self.top = None if num_outputs is None else torch.nn.Linear(self.width, num_outputs + 1)

    def forward(self, input_dict, state, seq_lens):
        x, _ = features_of(self.trunk, input_dict, [], None)
        count = len(x) if seq_lens is None else len(seq_lens)
        timed, held, found = x.reshape(count, -1, self.width), state[0], []
        lengths = torch.ones(count) if seq_lens is None else seq_lens
        for t in range(timed.shape[1]):
            new = held * self.fade + timed[:, t]
            held = torch.where((lengths > t)[:, None], new, held)
            found.append(held)
        features = torch.stack(found, 1).flatten(0, 1)
        if self.top is None:
            return features, [held]
        outputs = self.top(features)
        self.last = outputs[:, -1]
        return outputs[:, :-1], [held]

    def value_function(self):
        return self.last

    def get_initial_state(self):
        return [np.zeros(self.width, np.float32)]


def catalog_with_fading():
    catalog = Catalog(scan(), environ={})
    catalog.register_model("fading", Fading, slot="memory", switch="own_part", config=OwnConfig)
    return catalog


def array(x):
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def shaken(policy, seed):
    """Give a policy weights that leave no layer close to zero."""
    rng = np.random.default_rng(seed)
    policy.model.set_weights(
        {n: rng.normal(0, 0.5, w.shape) for n, w in policy.model.get_weights().items()}
    )
    return policy


def composed(config, framework, **more):
    """Two policies that share, and one that is made of them: the first one's logits, the second
    one's value.
    """
    first, second = (shaken(rlcatalog.build(OBS, TWO, config, framework), seed) for seed in (1, 2))
    both = rlcatalog.build(OBS, TWO, {**config, **APART, **more}, framework)
    theirs = {"trunk": first.model.get_weights(), "value_trunk": second.model.get_weights()}
    copied = {}
    for name in both.model.get_weights():
        chain, _, rest = name.partition(".")
        if chain == "outputs":
            copied[name] = theirs["value_trunk" if rest.startswith("value.") else "trunk"][name]
        else:
            copied[name] = theirs[chain][rest]
    both.model.set_weights(copied)
    return first, second, both


def played(policy, obs, explore=False):
    """Act for some steps [B, T, 3]; return the steps."""
    state, found = None, []
    for t in range(obs.shape[1]):
        found.append(
            policy.act(obs[:, t], state, prev_reward=np.full(len(obs), 0.1 * t), explore=explore)
        )
        state = found[-1].state
    return found


def in_order(steps, lengths, pick):
    """What `pick` takes of each step, one sequence behind the other."""
    return np.concatenate(
        [np.stack([pick(step)[i] for step in steps[:n]]) for i, n in enumerate(lengths)]
    )


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_separate_value_is_a_second_net_with_memory(memory, framework):
    config = {**MEMORIES[memory], "lstm_use_prev_action": False, "attention_use_n_prev_actions": 0}
    first, second, both = composed(config, framework)
    found = [played(policy, OBSERVATIONS) for policy in (first, second, both)]
    for left, right, own in zip(*found, strict=True):
        np.testing.assert_allclose(own.dist_inputs, left.dist_inputs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(own.value, right.value, rtol=1e-6, atol=1e-6)
        assert len(own.state.memory) == len(left.state.memory) + len(right.state.memory) == 4
        for mine, yours in zip(
            own.state.memory, (*left.state.memory, *right.state.memory), strict=True
        ):
            np.testing.assert_allclose(mine, yours, rtol=1e-6, atol=1e-6)
    assert np.abs(found[2][-1].value - found[0][-1].value).max() > 0.01  # it is not the policy's
    values = both.values(OBSERVATIONS[:, 0], None)
    np.testing.assert_allclose(values, found[2][0].value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_without_a_memory_the_value_is_that_of_a_trunk(memory, framework):
    config = {**MEMORIES[memory], "lstm_use_prev_action": False, "attention_use_n_prev_actions": 0}
    first = shaken(rlcatalog.build(OBS, TWO, config, framework), 1)
    plain = shaken(rlcatalog.build(OBS, TWO, SMALL, framework), 2)
    both = rlcatalog.build(OBS, TWO, {**config, **APART, "vf_memory": "none"}, framework)
    theirs = {f"trunk.{n}": w for n, w in first.model.get_weights().items()}
    theirs |= {f"value_trunk.{n}": w for n, w in plain.model.get_weights().items()}
    theirs |= {
        n: w for n, w in first.model.get_weights().items() if n.startswith("outputs.logits.")
    }
    theirs |= {n: w for n, w in plain.model.get_weights().items() if n.startswith("outputs.value.")}
    both.model.set_weights({name: theirs[name] for name in both.model.get_weights()})
    found = [played(policy, OBSERVATIONS) for policy in (first, plain, both)]
    for left, right, own in zip(*found, strict=True):
        np.testing.assert_allclose(own.dist_inputs, left.dist_inputs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(own.value, right.value, rtol=1e-6, atol=1e-6)
        assert len(own.state.memory) == len(left.state.memory)


def checked_in_training(policy):
    """Sequences of different lengths, padded inside, score as acting did, and every weight is
    reached.
    """
    steps, lengths = played(policy, OBSERVATIONS, explore=True), [4, 2]
    names = steps[0].state.seen or {}
    result = policy.evaluate(
        {
            "obs": np.concatenate([OBSERVATIONS[0], OBSERVATIONS[1, :2]]),
            "raw_action": in_order(steps, lengths, lambda step: step.raw_action),
            "views": {
                name: in_order(steps, lengths, lambda step, name=name: step.state.seen[name])
                for name in names
            },
            "seq_lens": np.array(lengths, np.int32),
        }
    )
    for name in ("logp", "value"):
        stored = in_order(steps, lengths, lambda step, name=name: getattr(step, name))
        np.testing.assert_allclose(array(getattr(result, name)), stored, rtol=1e-4, atol=1e-5)
    if policy.framework == "torch":
        (result.logp.sum() + result.value.square().sum()).backward()
        assert [
            n for n, p in policy.model.named_parameters() if p.grad is None or not p.grad.any()
        ] == []


@pytest.mark.parametrize(
    ("memory", "more", "framework"),
    [
        pytest.param(
            memory,
            more,
            framework,
            id=f"{memory}-{name}-{framework}",
            marks=pytest.mark.attack
            if (memory, name, framework) == ("attention", "none", "tf")
            else (),
        )
        for memory in MEMORIES
        for name, more in (("own", {}), ("none", {"vf_memory": "none"}))
        for framework in ("torch", "tf")
    ],
)
def test_training_sees_what_acting_saw_and_saves_come_back(memory, more, framework, tmp_path):
    policy = shaken(rlcatalog.build(OBS, TWO, {**MEMORIES[memory], **APART, **more}, framework), 3)
    checked_in_training(policy)
    policy.save(tmp_path)
    again = rlcatalog.load(tmp_path)
    for step, theirs in zip(played(policy, OBSERVATIONS), played(again, OBSERVATIONS), strict=True):
        np.testing.assert_array_equal(step.value, theirs.value)
        np.testing.assert_array_equal(step.dist_inputs, theirs.dist_inputs)


def test_third_party_memory_is_doubled():
    catalog = catalog_with_fading()
    config = {**SMALL, "own_part": True, **APART}
    policy = shaken(rlcatalog.build(OBS, TWO, config, "torch", catalog=catalog), 3)
    assert [part.shape for part in policy.memory.initial] == [(5,), (5,)]
    checked_in_training(policy)
    bare = shaken(
        rlcatalog.build(OBS, TWO, {**config, "vf_memory": "none"}, "torch", catalog=catalog), 3
    )
    assert [part.shape for part in bare.memory.initial] == [(5,)]
    checked_in_training(bare)


@pytest.mark.parametrize("memory", MEMORIES)
def test_ppo_moves_every_weight(memory):
    algo = PPO(
        "CartPole-v1",
        {
            "model": {**MEMORIES[memory], **APART},
            "framework": "torch",
            "num_envs": 2,
            "rollout_length": 24,
            "minibatch_size": 24,
            "num_epochs": 2,
            "lr": 1e-2,
        },
    )
    before = algo.policy.model.get_weights()
    algo.train()
    after = algo.policy.model.get_weights()
    assert [name for name, weight in after.items() if np.array_equal(weight, before[name])] == []


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_head_around_a_memory_has_a_separate_value(framework):
    space = Dict({"action_mask": MultiBinary(2), "x": OBS})
    config = {**LSTM, **APART, "lstm_use_prev_action": False}
    policy = shaken(rlcatalog.build(space, TWO, config, framework), 4)
    both = rlcatalog.build(OBS, TWO, config, framework)
    weights = policy.model.get_weights()
    both.model.set_weights(
        {
            name: weights[f"trunk.{name}" if f"trunk.{name}" in weights else name]
            for name in both.model.get_weights()
        }
    )
    found = played_masked(policy, OBSERVATIONS[0]), played(both, OBSERVATIONS[:1])
    for own, plain in zip(*found, strict=True):
        np.testing.assert_allclose(own.dist_inputs, plain.dist_inputs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(own.value, plain.value, rtol=1e-6, atol=1e-6)
        assert len(own.state.memory) == 4


def played_masked(policy, rows):
    state, found = None, []
    for t, x in enumerate(rows):
        obs = {"action_mask": np.ones((1, 2), np.int8), "x": x[None]}
        found.append(policy.act(obs, state, prev_reward=np.full(1, 0.1 * t), explore=False))
        state = found[-1].state
    return found


def test_explain_shows_both_chains_and_nothing_is_unread():
    found = rlcatalog.explain(OBS, TWO, {**LSTM, **APART}, "torch")
    stages = [(stage.name, stage.shape) for stage in found.resolution.shapes]
    assert ("value, fcnet: hidden 1 (tanh)", (5,)) in stages
    assert ("value, lstm: cell (lstm)", (6,)) in stages
    assert stages[-4:-2] == [("value", ()), ("logits (linear)", (2,))]
    assert found.as_dict()["unread"] == []
    bare = rlcatalog.explain(OBS, TWO, {**LSTM, **APART, "vf_memory": "none"}, "torch")
    names = [stage.name for stage in bare.resolution.shapes]
    assert "value, fcnet: hidden 1 (tanh)" in names
    assert "value, lstm: cell (lstm)" not in names
    weights = sum(
        array.size
        for array in rlcatalog.build(OBS, TWO, {**LSTM, **APART}).model.get_weights().values()
    )
    assert sum(stage.weights for stage in found.resolution.shapes) == weights
    with pytest.warns(rlcatalog.errors.UnreadKeysWarning, match="vf_memory"):
        rlcatalog.build(OBS, TWO, {**SMALL, "vf_memory": "none"})


def test_shared_layers_and_trunks_are_as_before():
    assert type(rlcatalog.build(OBS, TWO, LSTM, "torch").model).__name__ == "LSTMWrapper"
    trunk = Catalog(scan(), environ={}).model_v2(OBS, TWO, None, {**LSTM, **APART}, "torch")
    assert type(trunk).__name__ == "LSTMWrapper"
    assert trunk.outputs is None


def test_unsupported_separate_memory_is_rejected():
    made = rlcatalog.build(OBS, TWO, LSTM, "torch").model
    with pytest.raises(
        ConfigError, match=r"use_lstm with vf_share_layers=False: .*Build the model with rlcatalog"
    ):
        type(made)(OBS, TWO, 2, {**LSTM, **APART}, "direct", trunk=made.trunk)

    class Viewing(Fading):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.view_requirements["state_in_0"] = ViewRequirement(
                "state_out_0", shift="-2:-1", space=OBS
            )

    catalog = Catalog(scan(), environ={})
    catalog.register_model("viewing", Viewing, slot="memory", switch="own_part", config=OwnConfig)
    with pytest.raises(
        NotServedError,
        match=r"Viewing.* requests the view 'state_in_0' of its state; with vf_share",
    ):
        rlcatalog.build(OBS, TWO, {**SMALL, "own_part": True, **APART}, "torch", catalog=catalog)


def test_head_calling_the_value_first_is_rejected():
    class Hasty(TorchModelV2):
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
            self.trunk, self.value_trunk = trunk, value_trunk

        def forward(self, input_dict, state, seq_lens):
            return features_of(self.value_trunk, input_dict, [], seq_lens)

        def get_initial_state(self):
            return self.trunk.get_initial_state()

    catalog = Catalog(scan(), environ={})
    catalog.register_model("hasty", Hasty, slot="head", switch="own_part", config=OwnConfig)
    config = {**SMALL, "use_lstm": True, "lstm_cell_size": 6, **APART, "own_part": True}
    model = catalog.model_v2(OBS, TWO, 2, config, "torch")
    with pytest.raises(ModelContractError, match="must call its trunk before its value_trunk"):
        model({"obs": torch.zeros(2, 3)}, [torch.zeros(2, 6)] * 4, None)
    model.trunk({"obs": torch.zeros(2, 3)}, [torch.zeros(2, 6)] * 4, None)
    assert model.value_trunk({"obs": torch.zeros(2, 3)}, [], None)[0].shape == (2, 6)
    # Not with old features.
    with pytest.raises(ModelContractError, match="must call its trunk before its value_trunk"):
        model({"obs": torch.zeros(2, 3)}, [torch.zeros(2, 6)] * 4, None)
