"""ONNX files: what `Actor` checks, states and episodes, and what cannot be exported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import onnx
import pytest
import torch
from export_steps import assert_acts_alike
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

import rlcatalog
from rlcatalog import Policy, errors
from rlcatalog_export.onnx_graph import Graph, GraphOutput, bind_graph
from rlcatalog_export.onnx_operations import FORMULAS, Value
from rlcatalog_preprocessors.integers import OneHotPreprocessor
from rlcatalog_torch import TorchModelV2

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
#: An LSTM that reads the last reward.
LSTM = {
    "use_lstm": True,
    "lstm_cell_size": 4,
    "fcnet_hiddens": [4],
    "lstm_use_prev_reward": True,
}


@dataclass
class Export:
    """A policy, and the ONNX file it was exported to."""

    policy: Policy
    path: Path


@pytest.fixture(scope="module")
def masked_export(tmp_path_factory):
    """A policy with three actions and an action mask."""
    obs = Dict({"action_mask": Box(0, 1, (3,), np.int8), "v": THREE_FEATURES})
    policy = rlcatalog.build(obs, Discrete(3), {"fcnet_hiddens": [4]}, "torch")
    path = tmp_path_factory.mktemp("masked") / "masked.onnx"
    policy.export(path)
    return Export(policy, path)


@pytest.fixture(scope="module")
def lstm_export(tmp_path_factory):
    """A policy with three actions and an LSTM that reads the last reward."""
    policy = rlcatalog.build(THREE_FEATURES, Discrete(3), LSTM, "torch")
    path = tmp_path_factory.mktemp("lstm") / "lstm.onnx"
    policy.export(path)
    return Export(policy, path)


def describe_error(function, *arguments, **keywords):
    """Call a function, and return type and message of the error that it raises."""
    with pytest.raises(errors.CatalogError) as caught:
        function(*arguments, **keywords)
    return f"{type(caught.value).__name__}: {caught.value}"


# --- observations and masks -----------------------------------------------------------------------


def make_observation(mask=(1, 1, 1), v=(0.0, 0.5, -0.5)):
    return {"action_mask": np.array(mask, np.int8), "v": np.array(v, np.float32)}


OUT_OF_BOUNDS = [make_observation(v=(0, 0, 5))]
TWO_FREE_MASKS = np.ones((2, 3), np.int8)
INVALID_OBSERVATIONS = {
    "another shape": {"action_mask": TWO_FREE_MASKS, "v": np.zeros((2, 4), np.float32)},
    "a key is missing": {"action_mask": TWO_FREE_MASKS},
    "not a batch": make_observation(),
    "NaN": {"action_mask": TWO_FREE_MASKS, "v": np.full((2, 3), np.nan, np.float32)},
    "no action is allowed": [make_observation(), make_observation(mask=(0, 0, 0))],
    "no mask": [{"v": np.zeros(3, np.float32)}],
}


@pytest.fixture(params=[False, True], ids=["first-act", "second-act"])
def actors(request, masked_export):
    """The policy and the actor of a file, before and after they acted once."""
    policy = masked_export.policy
    actor = rlcatalog.Actor(masked_export.path)
    policy.preprocessor.set_check("first")  # forgets earlier checks
    if request.param:
        policy.act([make_observation(), make_observation()])
        actor.act([make_observation(), make_observation()])
    return policy, actor


@pytest.mark.parametrize("batch", INVALID_OBSERVATIONS.values(), ids=list(INVALID_OBSERVATIONS))
def test_actor_rejects_observations_like_its_policy(actors, batch):
    policy, actor = actors

    assert describe_error(actor.act, batch) == describe_error(policy.act, batch)


def test_actor_rejects_out_of_bounds_like_its_policy(masked_export):
    policy = masked_export.policy
    policy.preprocessor.set_check("first")  # forgets earlier checks
    actor = rlcatalog.Actor(masked_export.path)

    assert describe_error(actor.act, OUT_OF_BOUNDS) == describe_error(policy.act, OUT_OF_BOUNDS)


def test_actor_checks_bounds_only_once_like_its_policy(masked_export):
    policy = masked_export.policy
    policy.preprocessor.set_check("first")
    actor = rlcatalog.Actor(masked_export.path)
    policy.act([make_observation()])
    actor.act([make_observation()])

    value = actor.act(OUT_OF_BOUNDS).value

    np.testing.assert_allclose(value, policy.act(OUT_OF_BOUNDS).value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(np.ones((2, 4), bool), id="4-for-3-actions"),
        pytest.param(np.array([[1, 1, 1], [0, 0, 0]], bool), id="nothing-in-row-1"),
    ],
)
def test_actor_rejects_masks_like_its_policy(masked_export, mask):
    policy = masked_export.policy
    actor = rlcatalog.Actor(masked_export.path)
    batch = [make_observation(), make_observation()]

    expected = describe_error(policy.act, batch, mask=mask)

    assert describe_error(actor.act, batch, mask=mask) == expected


def test_mask_argument_replaces_the_mask_of_the_observation(masked_export):
    actor = rlcatalog.Actor(masked_export.path, seed=0)
    batch = [make_observation(mask=(1, 1, 1))] * 50

    with_own_mask = actor.act(batch)
    with_argument = actor.act(batch, mask=np.tile([False, True, False], (50, 1)))

    assert set(with_own_mask.action) == {0, 1, 2}
    assert set(with_argument.action) == {1}


# --- states and rewards ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reward",
    [
        pytest.param(None, id="none"),
        pytest.param(np.zeros(3), id="3-for-2-rows"),
        pytest.param(np.array([0, np.nan]), id="NaN"),
    ],
)
def test_actor_rejects_rewards_like_its_policy(lstm_export, reward):
    policy = lstm_export.policy
    actor = rlcatalog.Actor(lstm_export.path)
    batch = np.zeros((2, 3), np.float32)

    message = describe_error(actor.act, batch, actor.act(batch).state, prev_reward=reward)

    expected = describe_error(policy.act, batch, policy.act(batch).state, prev_reward=reward)
    assert message == expected


def test_actor_rejects_the_state_of_a_policy(lstm_export):
    actor = rlcatalog.Actor(lstm_export.path)
    batch = np.zeros((2, 3), np.float32)
    policy_state = lstm_export.policy.act(batch).state

    with pytest.raises(errors.ModelContractError, match="found State"):
        actor.act(batch, policy_state)


def test_actor_rejects_a_state_with_other_rows(lstm_export):
    actor = rlcatalog.Actor(lstm_export.path)
    state_of_two = actor.act(np.zeros((2, 3), np.float32)).state

    with pytest.raises(errors.CatalogError, match="found 2 rows"):
        actor.act(np.zeros((1, 3), np.float32), state_of_two)


def test_actor_returns_no_rows_for_an_empty_batch(lstm_export):
    empty = np.zeros((0, 3), np.float32)

    step = rlcatalog.Actor(lstm_export.path).act(empty)

    expected = lstm_export.policy.act(empty)
    assert [array.shape for array in step[:5]] == [array.shape for array in expected[:5]]
    assert len(step.state) == 0


def test_actors_with_the_same_seed_draw_the_same(lstm_export):
    actor = rlcatalog.Actor(lstm_export.path, seed=3)
    same_seed = rlcatalog.Actor(lstm_export.path, seed=3)
    batch = np.zeros((20, 3), np.float32)

    actions = [actor.act(batch).action for _ in range(3)]

    assert not np.array_equal(actions[0], actions[1])
    assert np.array_equal(actions, [same_seed.act(batch).action for _ in range(3)])


def test_seed_repeats_the_actions_of_an_actor(lstm_export):
    actor = rlcatalog.Actor(lstm_export.path, seed=3)
    batch = np.zeros((20, 3), np.float32)
    first = actor.act(batch).action

    actor.seed(3)

    np.testing.assert_array_equal(actor.act(batch).action, first)


# --- steppers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_stepper_of_an_actor_acts_like_that_of_its_policy(lstm_export, mode):
    policy_stepper = lstm_export.policy.stepper(3, autoreset=mode)
    actor_stepper = rlcatalog.Actor(lstm_export.path).stepper(3, autoreset=mode)
    random = np.random.default_rng(0)

    done = None
    reward = None
    for _ in range(12):
        obs = random.uniform(-1, 1, (3, 3)).astype(np.float32)
        arguments = {"done": done, "prev_reward": reward, "explore": False}
        expected = policy_stepper.step(obs, **arguments)
        step = actor_stepper.step(obs, **arguments)
        np.testing.assert_array_equal(step.action, expected.action)
        np.testing.assert_allclose(step.value, expected.value, rtol=1e-5, atol=1e-5)
        done = random.random(3) < 0.3
        reward = random.normal(size=3)


class ShortEpisodes(gym.Env):
    """Episodes of about four steps."""

    observation_space = THREE_FEATURES
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        obs, _ = self.reset()
        return obs, float(action), self.np_random.random() < 0.25, False, {}


def play(actor, env):
    """Play twenty steps; return the values, and how many episodes ended."""
    stepper = actor.stepper(env)
    obs, _ = env.reset(seed=0)
    done = None
    reward = None
    values = []
    ends = 0
    for _ in range(20):
        step = stepper.step(obs, done=done, prev_reward=reward, explore=False)
        values.append(step.value)
        obs, reward, done, _, _ = env.step(step.action)
        ends += done.sum()
    return values, ends


def test_stepper_of_vector_envs_restarts_like_its_policy(lstm_export):
    env = gym.vector.SyncVectorEnv([ShortEpisodes, ShortEpisodes])

    values, ends = play(rlcatalog.Actor(lstm_export.path, seed=0), env)

    expected_values, _ = play(lstm_export.policy, env)
    assert ends > 2
    np.testing.assert_allclose(values, expected_values, rtol=1e-5, atol=1e-5)


# --- content of files -----------------------------------------------------------------------------


def test_file_contains_no_path_of_its_machine(lstm_export):
    content = lstm_export.path.read_bytes()

    assert b'File "' not in content
    assert str(Path(rlcatalog.__file__).parent).encode() not in content


def test_file_of_a_small_policy_is_small(lstm_export):
    assert len(lstm_export.path.read_bytes()) < 60_000  # 228 weights, and a graph


class HalvingFilter(rlcatalog.Filter):
    """A filter without `lowered`: it has no form for the operations of a graph."""

    def __call__(self, encoded, *, update=False):
        return encoded / 2


@pytest.fixture
def halving_policy():
    catalog = rlcatalog.Catalog()
    catalog.register_filter("halve")(HalvingFilter)
    config = {"fcnet_hiddens": [4], "observation_filter": "halve"}
    return rlcatalog.build(THREE_FEATURES, Discrete(3), config, "torch", catalog=catalog)


def test_filter_without_graph_operations_is_left_out(halving_policy, tmp_path):
    interface = halving_policy.export(tmp_path / "policy.onnx")

    [port] = [port for port in interface.inputs if port.role == "observation"]
    assert interface.observation == "filtered"
    assert port.name == "obs"
    assert port.encoded is True


def test_actor_of_a_file_without_filter_takes_filtered_input(halving_policy, tmp_path):
    halving_policy.export(tmp_path / "policy.onnx")
    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    obs = np.full((2, 3), 0.5, np.float32)

    value = actor.act(obs / 2).value

    np.testing.assert_allclose(value, halving_policy.act(obs).value, rtol=1e-5, atol=1e-6)
    with pytest.raises(errors.CatalogError, match=r"as Policy\.preprocess returns"):
        actor.act(obs[:, :2])  # 2 of 3 numbers


def test_action_codec_without_graph_operations_is_left_out(tmp_path, monkeypatch):
    actions = Dict({"a": Discrete(3, start=5)})
    policy = rlcatalog.build(THREE_FEATURES, actions, {"fcnet_hiddens": [4]}, "torch")
    # `lowered` is the codec in the form of a graph's operations.
    discrete_codec = policy.action_codec.children[0]
    monkeypatch.setattr(type(discrete_codec), "lowered", None)

    interface = policy.export(tmp_path / "policy.pt2")

    assert "raw_action" in [port.role for port in interface.outputs]
    assert "action" not in [port.role for port in interface.outputs]
    # The actor turns raw actions into actions by itself.
    step = rlcatalog.Actor(tmp_path / "policy.pt2").act(np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(step.action["a"], step.raw_action[:, 0] + 5)


# --- models that cannot be exported ---------------------------------------------------------------


class LinearModel(TorchModelV2, nn.Module):
    """Linear logits and value; its subclasses compute the input of both."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.logits = nn.Linear(3, num_outputs)
        self.value = nn.Linear(3, 1)

    def value_function(self):
        return self.value(self.x).squeeze(1)


class CountsRows(LinearModel):
    def forward(self, input_dict, state, seq_lens):
        self.x = input_dict["obs"] + torch.zeros(len(input_dict["obs"]), 1)
        return self.logits(self.x), state


class BranchesOnData(LinearModel):
    def forward(self, input_dict, state, seq_lens):
        self.x = input_dict["obs"]
        if self.x.sum() > 0:
            self.x = -self.x
        return self.logits(self.x), state


class UsesNumpy(LinearModel):
    def forward(self, input_dict, state, seq_lens):
        self.x = torch.from_numpy(input_dict["obs"].numpy() * 2)
        return self.logits(self.x), state


class DrawsIntegers(LinearModel):
    def forward(self, input_dict, state, seq_lens):
        self.x = input_dict["obs"] + torch.randint(3, (1,))
        return self.logits(self.x), state


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (CountsRows, "len(input_dict["),
        (BranchesOnData, "if self.x.sum() > 0:"),
        (UsesNumpy, 'torch.from_numpy(input_dict["obs"].numpy() * 2)'),
        (DrawsIntegers, "randint"),
    ],
)
def test_export_error_shows_the_code_that_cannot_be_exported(tmp_path, model, code):
    policy = rlcatalog.build(THREE_FEATURES, Discrete(2), {"custom_model": model}, "torch")

    with pytest.raises(errors.NotServedError) as caught:
        policy.export(tmp_path / "policy.onnx")

    assert code in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    policy.act(np.zeros((2, 3), np.float32))  # the policy still acts


@pytest.mark.parametrize("model", [CountsRows, BranchesOnData, UsesNumpy])
def test_export_error_names_the_file_of_the_code(tmp_path, model):
    policy = rlcatalog.build(THREE_FEATURES, Discrete(2), {"custom_model": model}, "torch")

    with pytest.raises(errors.NotServedError, match=r"test_onnx\.py"):
        policy.export(tmp_path / "policy.onnx")


class InverseErrorFunction(nn.Module):
    """Uses an operation that ONNX does not have."""

    def __init__(self, space):
        super().__init__()
        self.layer = nn.Linear(space.shape[0], 4)

    def forward(self, x):
        return torch.erfinv(0.9 * torch.tanh(self.layer(x)))


def test_export_error_names_the_operation_that_onnx_lacks(tmp_path):
    policy = rlcatalog.build(THREE_FEATURES, Discrete(2), model=InverseErrorFunction)

    with pytest.raises(errors.NotServedError, match=r"erf_inv.*export a \.pt2 file") as caught:
        policy.export(tmp_path / "policy.onnx")

    assert "x1b" not in str(caught.value)  # a colour of PyTorch's terminal text
    policy.export(tmp_path / "policy.pt2")


def test_export_that_acts_differently_leaves_the_old_file(tmp_path, monkeypatch):
    policy = rlcatalog.build(Discrete(3), Discrete(2), {"fcnet_hiddens": [4]}, "torch")
    path = tmp_path / "policy.pt2"
    path.write_text("an older file")
    real_lowered = OneHotPreprocessor.lowered

    def encode_the_next_number(self):
        encode = real_lowered(self)
        return lambda x, ops: encode(x + 1, ops)

    # A fault in the graph: it encodes another observation than the policy.
    monkeypatch.setattr(OneHotPreprocessor, "lowered", encode_the_next_number)

    with pytest.raises(errors.NotServedError, match="differently from the policy: dist_inputs"):
        policy.export(path)

    assert path.read_text() == "an older file"
    assert list(tmp_path.iterdir()) == [path]


# --- formats and foreign files --------------------------------------------------------------------


def test_export_without_suffix_and_format_is_an_error(tmp_path, masked_export):
    with pytest.raises(errors.ConfigError):
        masked_export.policy.export(tmp_path / "policy")


def test_export_in_an_unknown_format_is_an_error(tmp_path, masked_export):
    with pytest.raises(errors.UnknownNameError, match=r"Did you mean 'onnx'\?"):
        masked_export.policy.export(tmp_path / "policy", format="onyx")


def test_actor_of_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(errors.CatalogError, match="there is no such file"):
        rlcatalog.Actor(tmp_path / "none.onnx")


def test_actor_of_a_file_in_another_format_is_an_error(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"nothing")

    with pytest.raises(errors.CatalogError, match="cannot be read"):
        rlcatalog.Actor(tmp_path / "bad.onnx")


def test_actor_of_a_foreign_onnx_file_is_an_error(tmp_path):
    # A valid ONNX file with the graph y = x.
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([node], "graph", inputs=[x], outputs=[y])
    opset = onnx.helper.make_opsetid("", 18)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    onnx.save_model(model, tmp_path / "foreign.onnx")

    with pytest.raises(errors.CatalogError, match="not a policy exported by rlcatalog"):
        rlcatalog.Actor(tmp_path / "foreign.onnx")


def test_log_gamma_of_a_graph_matches_torch():
    x = torch.logspace(-3, 5, 500, dtype=torch.float64)
    shape = (500,)
    # The graph computes the log-gamma function of its only input.
    graph = Graph()
    x_in_graph = Value(graph, graph.input("x", "float64", shape), "float64")
    lgamma = FORMULAS["lgamma"](x_in_graph)
    model = graph.model([GraphOutput("y", lgamma.name, "float64", shape)])

    run, outputs = bind_graph(model, inputs={"x": x.numpy()}, outputs={"y": ("float64", shape)})
    run()

    y = torch.from_numpy(outputs["y"])
    torch.testing.assert_close(y, torch.lgamma(x), rtol=1e-10, atol=1e-10)


# --- other formats and frameworks -----------------------------------------------------------------


@pytest.mark.slow
def test_export_command_writes_a_program_that_acts_like_the_save(tmp_path, capsys):
    from rlcatalog_cli import main

    actions = Box(-1, 2, (2,), np.float32)
    policy = rlcatalog.build(THREE_FEATURES, actions, LSTM, "torch")
    policy.save(tmp_path / "run" / "policy")

    with pytest.raises(SystemExit) as exit_info:
        main(["export", str(tmp_path / "run"), "--format", "torch"])

    assert exit_info.value.code == 0
    assert "policy.pt2: inputs obs, " in capsys.readouterr().out
    actor = rlcatalog.Actor(tmp_path / "run" / "policy.pt2")
    assert_acts_alike(actor, policy, steps=3, obs=np.float32([[0.5, -1, 0.25]]))
