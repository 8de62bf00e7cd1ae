"""ONNX files: what `Actor` checks, what cannot be exported, what becomes of files, TensorFlow's
policies.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import onnx
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

import rlcatalog
from rlcatalog import errors
from rlcatalog_torch import TorchModelV2

VECTOR = Box(-1, 1, (3,), np.float32)
MASKED = Dict({"action_mask": Box(0, 1, (3,), np.int8), "v": VECTOR})
REMEMBERING = {
    "use_lstm": True,
    "lstm_cell_size": 4,
    "fcnet_hiddens": [4],
    "lstm_use_prev_reward": True,
}


def exported(folder, name, obs, action, config, framework="torch"):
    policy = rlcatalog.build(obs, action, config, framework)
    path = folder / f"{name}.onnx"
    policy.export(path)
    return policy, path


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return exported(
        tmp_path_factory.mktemp("masked"), "masked", MASKED, Discrete(3), {"fcnet_hiddens": [4]}
    )


@pytest.fixture(scope="module")
def remembering(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("lstm"), "lstm", VECTOR, Discrete(3), REMEMBERING)


def said(function):
    """Return class and text of the error that a function raises."""
    with pytest.raises(errors.CatalogError) as caught:
        function()
    return type(caught.value), str(caught.value)


def observation(mask=(1, 1, 1), v=(0.0, 0.5, -0.5)):
    return {"action_mask": np.array(mask, np.int8), "v": np.array(v, np.float32)}


WRONG = {
    "out of bounds": [observation(v=(0, 0, 5))],
    "another shape": {"action_mask": np.ones((2, 3), np.int8), "v": np.zeros((2, 4), np.float32)},
    "a key is missing": {"action_mask": np.ones((2, 3), np.int8)},
    "a single one": observation(),
    "not a number": {
        "action_mask": np.ones((2, 3), np.int8),
        "v": np.full((2, 3), np.nan, np.float32),
    },
    "nothing allowed": [observation(), observation(mask=(0, 0, 0))],
    "no mask": [{"v": np.zeros(3, np.float32)}],
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("acted_before", [False, True])
def test_an_actor_refuses_what_its_policy_refuses_in_the_same_words(masked, what, acted_before):
    policy, path = masked
    actor = rlcatalog.Actor(path)
    policy.preprocessor.set_check("first")
    if acted_before:
        for one in (policy, actor):
            one.act([observation(), observation()])
    batch = WRONG[what]
    if acted_before and what == "out of bounds":  # under `check_observations="first"`
        np.testing.assert_allclose(
            actor.act(batch).value, policy.act(batch).value, rtol=1e-5, atol=1e-6
        )
    else:
        assert said(lambda: actor.act(batch)) == said(lambda: policy.act(batch))


@pytest.mark.parametrize("mask", [np.ones((2, 4), bool), np.array([[1, 1, 1], [0, 0, 0]], bool)])
def test_masks_that_are_given_are_checked_as_the_policy_checks_them(masked, mask):
    policy, path = masked
    actor, batch = rlcatalog.Actor(path), [observation(), observation()]
    assert said(lambda: actor.act(batch, mask=mask)) == said(lambda: policy.act(batch, mask=mask))


def test_a_mask_that_is_given_wins_over_the_observation_s(masked):
    actor = rlcatalog.Actor(masked[1], seed=0)
    only = np.tile([False, True, False], (50, 1))
    assert set(actor.act([observation()] * 50, mask=only).action) == {1}
    assert len(set(actor.act([observation()] * 50).action)) == 3


def test_state_and_rewards_are_checked(remembering):
    policy, path = remembering
    actor, batch = rlcatalog.Actor(path), np.zeros((2, 3), np.float32)
    states = {one: one.act(batch).state for one in (policy, actor)}
    for reward in (None, np.zeros(3), np.array([0, np.nan])):
        one, other = (
            said(partial(one.act, batch, states[one], prev_reward=reward))
            for one in (policy, actor)
        )
        assert one == other
    kind, text = said(lambda: actor.act(batch, policy.act(batch).state))
    assert kind is errors.ModelContractError
    assert "found State" in text
    assert "found 2 rows" in said(lambda: actor.act(batch[:1], states[actor]))[1]


def test_a_batch_of_no_rows_gives_none(remembering):
    policy, path = remembering
    none = np.zeros((0, 3), np.float32)
    one, other = policy.act(none), rlcatalog.Actor(path).act(none)
    assert [array.shape for array in other[:5]] == [array.shape for array in one[:5]]
    assert len(other.state) == 0


def test_a_file_contains_no_path_of_the_machine_that_wrote_it(remembering):
    content = remembering[1].read_bytes()
    assert b'File "' not in content
    assert str(Path(rlcatalog.__file__).parent).encode() not in content
    assert len(content) < 60_000  # 228 weights, and a graph


def test_the_same_seed_draws_the_same(remembering):
    one, other = (rlcatalog.Actor(remembering[1], seed=3) for _ in range(2))
    batch = np.zeros((20, 3), np.float32)
    first = [one.act(batch).action for _ in range(3)]
    assert not np.array_equal(first[0], first[1])
    assert np.array_equal(first, [other.act(batch).action for _ in range(3)])
    one.seed(3)
    assert np.array_equal(first[0], one.act(batch).action)


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_a_stepper_keeps_the_state_as_the_policy_s_does(remembering, mode):
    policy, path = remembering
    steppers = [one.stepper(3, mode) for one in (policy, rlcatalog.Actor(path))]
    rng, done = np.random.default_rng(0), None
    for t in range(12):
        obs, reward = (
            rng.uniform(-1, 1, (3, 3)).astype(np.float32),
            rng.normal(size=3) if t else None,
        )
        one, other = (s.step(obs, done=done, prev_reward=reward, explore=False) for s in steppers)
        known = ~done if mode == "next_step" and done is not None else np.ones(3, bool)
        assert np.array_equal(one.action[known], other.action[known])
        np.testing.assert_allclose(other.value, one.value, rtol=1e-5, atol=1e-5)
        done = rng.random(3) < 0.3


class Short(gym.Env):
    """Episodes of about four steps."""

    observation_space, action_space = VECTOR, Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        return self.reset()[0], float(action), self.np_random.random() < 0.25, False, {}


def test_an_actor_finds_the_ends_of_episodes_of_a_vector_environment(remembering):
    policy, path = remembering
    steppers, env = {}, gym.vector.SyncVectorEnv([Short] * 2)
    for one in (policy, rlcatalog.Actor(path, seed=0)):
        stepper = one.stepper(env)
        obs, _ = env.reset(seed=0)
        done, reward, values, ended = None, None, [], 0
        for _ in range(20):
            step = stepper.step(obs, done=done, prev_reward=reward, explore=False)
            values.append(step.value)
            obs, reward, done, _, _ = env.step(step.action)
            ended += done.sum()
        assert ended > 2
        steppers[one] = values
    np.testing.assert_allclose(*steppers.values(), rtol=1e-5, atol=1e-5)


class Halve(rlcatalog.Filter):
    """A filter that says nothing of tensor operations."""

    def __call__(self, encoded, *, update=False):
        return encoded / 2


def test_a_filter_without_such_a_form_stays_outside_of_the_file(tmp_path):
    catalog = rlcatalog.Catalog()
    catalog.register_filter("halve")(Halve)
    policy = rlcatalog.build(
        VECTOR,
        Discrete(3),
        {"fcnet_hiddens": [4], "observation_filter": "halve"},
        "torch",
        catalog=catalog,
    )
    interface = policy.export(tmp_path / "policy.onnx")
    assert interface.observation == "filtered"
    assert [
        (port.name, port.encoded) for port in interface.inputs if port.role == "observation"
    ] == [("obs", True)]
    actor, obs = rlcatalog.Actor(tmp_path / "policy.onnx"), np.full((2, 3), 0.5, np.float32)
    np.testing.assert_allclose(
        actor.act(obs / 2).value, policy.act(obs).value, rtol=1e-5, atol=1e-6
    )
    assert "as Policy.preprocess returns" in said(lambda: actor.act(obs[:, :2]))[1]


# --- what cannot be exported ----------------------------------------------------------------------


class Plain(TorchModelV2, nn.Module):
    """What the models below have in common."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.logits, self.value = nn.Linear(3, num_outputs), nn.Linear(3, 1)

    def value_function(self):
        return self.value(self.x).squeeze(1)


class Counting(Plain):
    def forward(self, input_dict, state, seq_lens):
        self.x = input_dict["obs"] + torch.zeros(len(input_dict["obs"]), 1)
        return self.logits(self.x), state


class Deciding(Plain):
    def forward(self, input_dict, state, seq_lens):
        self.x = input_dict["obs"]
        if self.x.sum() > 0:
            self.x = -self.x
        return self.logits(self.x), state


class Leaving(Plain):
    def forward(self, input_dict, state, seq_lens):
        self.x = torch.from_numpy(input_dict["obs"].numpy() * 2)
        return self.logits(self.x), state


class Shuffling(Plain):
    def forward(self, input_dict, state, seq_lens):
        self.x = input_dict["obs"] + torch.randint(3, (1,))
        return self.logits(self.x), state


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (Counting, "len(input_dict["),
        (Deciding, "if self.x.sum() > 0:"),
        (Leaving, 'torch.from_numpy(input_dict["obs"].numpy() * 2)'),
        (Shuffling, "randint"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_its_line_and_leaves_no_file(tmp_path, model, line):
    policy = rlcatalog.build(VECTOR, Discrete(2), {"custom_model": model}, "torch")
    kind, text = said(lambda: policy.export(tmp_path / "policy.onnx"))
    assert kind is errors.NotServedError
    assert line in text
    assert model is Shuffling or "test_onnx.py" in text
    assert list(tmp_path.iterdir()) == []
    policy.act(np.zeros((2, 3), np.float32))


def test_a_file_that_acts_otherwise_is_not_kept(tmp_path, monkeypatch):
    from rlcatalog_preprocessors.integers import OneHotPreprocessor

    policy = rlcatalog.build(Discrete(3), Discrete(2), {"fcnet_hiddens": [4]}, "torch")
    path = tmp_path / "policy.pt2"
    path.write_text("what was there")
    right = OneHotPreprocessor.lowered

    def shifted(self):
        encode = right(self)
        return lambda x, ops: encode(x + 1, ops)

    monkeypatch.setattr(OneHotPreprocessor, "lowered", shifted)
    kind, text = said(lambda: policy.export(path))
    assert kind is errors.NotServedError
    assert "the file acts differently from the policy: dist_inputs" in text
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_formats_and_files_that_are_none(tmp_path, masked):
    policy, _ = masked
    assert said(lambda: policy.export(tmp_path / "policy"))[0] is errors.ConfigError
    kind, text = said(lambda: policy.export(tmp_path / "policy", format="onyx"))
    assert kind is errors.UnknownNameError
    assert "Did you mean 'onnx'?" in text
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    assert "cannot be read" in said(lambda: rlcatalog.Actor(tmp_path / "bad.onnx"))[1]
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    foreign = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", ports[:1], ports[1:]),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.save_model(foreign, tmp_path / "foreign.onnx")
    assert (
        "not a policy exported by rlcatalog"
        in said(lambda: rlcatalog.Actor(tmp_path / "foreign.onnx"))[1]
    )
    assert "there is no such file" in said(lambda: rlcatalog.Actor(tmp_path / "none.onnx"))[1]


def test_an_action_codec_without_such_a_form_leaves_raw_actions(tmp_path, monkeypatch):
    policy = rlcatalog.build(
        VECTOR, Dict({"a": Discrete(3, start=5)}), {"fcnet_hiddens": [4]}, "torch"
    )
    monkeypatch.setattr(type(policy.action_codec.children[0]), "lowered", None)
    interface = policy.export(tmp_path / "policy.pt2")
    assert [port.role for port in interface.outputs if port.role.endswith("action")] == [
        "raw_action"
    ]
    found = rlcatalog.Actor(tmp_path / "policy.pt2").act(np.zeros((2, 3), np.float32))
    assert np.array_equal(found.action["a"], found.raw_action[:, 0] + 5)


def test_log_gamma_is_pytorch_s():
    from rlcatalog_export.onnx_graph import Graph, bind_graph
    from rlcatalog_export.onnx_operations import FORMULAS, Value

    x, graph = torch.logspace(-3, 5, 500, dtype=torch.float64), Graph()
    answer = FORMULAS["lgamma"](Value(graph, graph.input("x", "float64", (500,)), "float64"))
    content = graph.model([("y", answer.name, "float64", (500,))])
    run, outputs = bind_graph(content, {"x": x.numpy()}, {"y": ("float64", (500,))})
    run()
    torch.testing.assert_close(
        torch.from_numpy(outputs["y"]), torch.lgamma(x), rtol=1e-10, atol=1e-10
    )


# --- other formats and frameworks -----------------------------------------------------------------


@pytest.mark.attack
def test_the_command_writes_a_program_of_pytorch_that_acts_as_the_saved_policy(tmp_path, capsys):
    from rlcatalog_cli import main

    policy = rlcatalog.build(VECTOR, Box(-1, 2, (2,), np.float32), REMEMBERING, "torch")
    policy.save(tmp_path / "run" / "policy")
    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path / "run"), "--format", "torch"])
    assert left.value.code == 0
    assert "policy.pt2: inputs obs, " in capsys.readouterr().out
    actor, state, other = rlcatalog.Actor(tmp_path / "run" / "policy.pt2"), None, None
    for _ in range(3):
        obs = np.random.default_rng(0).uniform(-1, 1, (1, 3)).astype(np.float32)
        reward = np.ones(1)
        step = policy.act(obs, state, prev_reward=reward, explore=False)
        found = actor.act(obs, other, prev_reward=reward, explore=False)
        np.testing.assert_allclose(found.action, step.action, atol=1e-6)
        state, other = step.state, found.state


def test_a_policy_of_tensorflow_s_is_exported_from_its_own_graph(tmp_path):
    pytest.importorskip("tensorflow")
    pytest.importorskip("tf2onnx")
    config = {**REMEMBERING, "observation_filter": "MeanStdFilter"}
    policy = rlcatalog.build(VECTOR, Discrete(3), config, "tf")
    policy.preprocess(
        np.random.default_rng(0).uniform(-1, 1, (9, 3)).astype(np.float32), update=True
    )
    interface = policy.export(tmp_path / "policy.onnx")
    assert interface.framework == "tf"
    actor, state, other = rlcatalog.Actor(tmp_path / "policy.onnx"), None, None
    rng = np.random.default_rng(1)
    for _ in range(4):
        obs, reward = rng.uniform(-1, 1, (2, 3)).astype(np.float32), rng.normal(size=2)
        step = policy.act(obs, state, prev_reward=reward, explore=False)
        found = actor.act(obs, other, prev_reward=reward, explore=False)
        np.testing.assert_allclose(found.dist_inputs, step.dist_inputs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.value, step.value, rtol=1e-5, atol=1e-5)
        state, other = step.state, found.state
