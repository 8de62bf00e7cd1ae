"""Acting on tensors and training on them moves no number between the host and the device.

Tensors on "meta" have no numbers, so reading one raises an error, and `NoTransfers` refuses
operations between devices. Constants are uploaded at the first call, which runs outside it.

Crosses: policy, torch, preprocessors, filters, lstm, attention, categorical, gaussian.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from tensor_batches import NoTransfers, sample_batch, to_tensors

import rlcatalog
from rlcatalog.spaces import Simplex, map_tensors

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.CatalogWarning"),
]

ROWS = 6
THREE_FEATURES = Box(-1, 1, (3,), np.float32)
FOUR_ACTIONS = Discrete(4)
IMAGE = Box(0, 255, (12, 12, 3), np.uint8)
NESTED = Dict({"x": Tuple([THREE_FEATURES, Discrete(3, start=1)]), "m": MultiDiscrete([2, 3])})
TUPLE_ACTION = Tuple([Discrete(3), MultiBinary(2), Box(-1, 1, (2,))])
LSTM = {"use_lstm": True, "lstm_cell_size": 4}
PAST = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
SLATES = {"custom_action_dist": "slate_multi_categorical"}


def with_mask(mask_space, obs_space=THREE_FEATURES):
    return Dict({"obs": obs_space, "action_mask": mask_space})


class Halved(torch.nn.Module):
    """A plain module without weights."""

    def forward(self, x):
        return x / 2


class Case(NamedTuple):
    """A policy: its spaces and its config."""

    obs_space: Space[Any] = THREE_FEATURES
    action_space: Space[Any] = FOUR_ACTIONS
    config: Mapping[str, Any] = MappingProxyType({})


CASES = {
    # models
    "fcnet": Case(),
    "separate-value": Case(config={"vf_share_layers": False}),
    "vision": Case(IMAGE, config={"conv_filters": [[4, 4, 4], [8, 3, 1]]}),
    "complex-input": Case(Dict({"eye": IMAGE, "self": NESTED})),
    "embeddings": Case(NESTED, config={"embeddings": {"obs['m']": 4}}),
    "plain-module": Case(Box(-2, 5, (3,)), config={"custom_model": Halved}),
    "critic": Case(config={"critic": {"fcnet_hiddens": [4]}}),
    "q-values": Case(config={"custom_action_dist": "quantiles"}),
    # memories
    "lstm": Case(config=LSTM),
    "lstm-with-past": Case(action_space=TUPLE_ACTION, config={**LSTM, **PAST}),
    "lstm-separate-value": Case(config={**LSTM, "vf_share_layers": False}),
    "gru": Case(config={"use_gru": True}),
    "attention": Case(
        action_space=MultiDiscrete([2, 3]),
        config={
            "use_attention": True,
            "attention_dim": 8,
            "attention_use_n_prev_actions": 2,
            "attention_use_n_prev_rewards": 2,
        },
    ),
    # masks
    "mask": Case(with_mask(MultiBinary(4))),
    "mask-of-bits": Case(with_mask(MultiDiscrete([3, 3])), MultiBinary(2)),
    "mask-of-choices": Case(
        with_mask(Tuple([MultiBinary(2), MultiBinary(3)])), MultiDiscrete([2, 3])
    ),
    "mask-in-a-dict": Case(
        with_mask(Dict({"a": MultiBinary(3)})), Dict({"a": Discrete(3), "b": THREE_FEATURES})
    ),
    "mask-with-filter": Case(
        with_mask(MultiBinary(4), NESTED), config={"observation_filter": "MeanStdFilter"}
    ),
    "parametric": Case(
        Dict(
            {
                "x": THREE_FEATURES,
                "avail_actions": Box(-1, 1, (4, 2)),
                "action_mask": MultiBinary(4),
            }
        )
    ),
    # actions
    "box": Case(NESTED, Box(-2, 3, (2,))),
    "box-clip": Case(action_space=Box(-2, 3, (2,)), config={"action_bounds": "clip"}),
    "box-float16": Case(action_space=Box(-2, 3, (2,), np.float16)),
    "box-uint8": Case(action_space=Box(0, 255, (2,), np.uint8)),
    "multi-discrete": Case(action_space=MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [0, 5]])),
    "multi-binary": Case(action_space=MultiBinary((2, 2))),
    "simplex": Case(action_space=Simplex((3,))),
    "tuple": Case(Discrete(5, start=2), TUPLE_ACTION),
    "squashed": Case(
        action_space=Box(-2, 3, (2,)), config={"custom_action_dist": "squashed_gaussian"}
    ),
    "beta": Case(action_space=Box(-2, 3, (2,)), config={"custom_action_dist": "beta"}),
    "free-log-std": Case(action_space=Box(-2, 3, (2,)), config={"free_log_std": True}),
    "gumbel": Case(config={"custom_action_dist": "gumbel_softmax"}),
    "autoregressive": Case(action_space=TUPLE_ACTION, config={"use_autoregressive": True}),
    "autoregressive-choices": Case(
        action_space=MultiDiscrete([2, 3]), config={"use_autoregressive": True}
    ),
    # filters
    "filter": Case(config={"observation_filter": "MeanStdFilter"}),
    "filter-some-leaves": Case(NESTED, config={"observation_filter": "MeanStdFilter"}),
}


def build_policy(case, device="meta"):
    config = dict(case.config)
    if not isinstance(case.obs_space, Box) or case.obs_space.shape == (3,):
        config = {"fcnet_hiddens": [8], **config}
    return rlcatalog.build(case.obs_space, case.action_space, config, "torch").to(device)


def act_and_evaluate(policy, obs):
    """Run everything that a training loop on a device runs; return the loss."""
    reward = torch.zeros(ROWS, device=policy.device)
    ended = torch.zeros(ROWS, dtype=torch.bool, device=policy.device)
    encoded = policy.preprocess(obs, update=policy.filter is not None)
    state = None
    for _ in range(2):
        step = policy.act(obs, state, prev_reward=reward)
        state = policy.restart(step.state, ended)
    policy.act(obs, state, prev_reward=reward, explore=False)
    policy.adapt(step.raw_action, on_device=True)
    batch = {"obs": encoded, "raw_action": step.raw_action}
    if policy.masks.key is not None:
        batch["mask"] = policy.action_mask(obs)
    if step.state is not None:
        sequences = 2
        batch["restarts"] = ended
        batch["seq_lens"] = ROWS // sequences
        batch["state"] = tuple(part[:sequences] for part in step.state.memory)
        batch["views"] = step.state.views
    if policy.has_value:
        policy.values(encoded, state, prev_reward=reward)
    evaluation = policy.evaluate(batch)
    loss = evaluation.logp.sum() + evaluation.entropy.sum()
    if evaluation.value is not None:
        loss = loss + evaluation.value.sum()
    return loss


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nothing_crosses_between_host_and_device(case):
    policy = build_policy(case)
    obs = to_tensors(sample_batch(case.obs_space, rows=ROWS), "meta")
    act_and_evaluate(policy, obs)  # uploads constants

    with NoTransfers():
        loss = act_and_evaluate(policy, obs)
        loss.backward()

    assert loss.device.type == "meta"


# --- on a GPU -------------------------------------------------------------------------------------


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")


@pytest.fixture
def refuse_waiting():
    """Make PyTorch raise an error where the host waits for the GPU, from `start()` on."""

    def start():
        torch.cuda.set_sync_debug_mode("error")

    yield start
    torch.cuda.set_sync_debug_mode("default")


def sample_observations(case, device):
    """Return observations whose masks allow everything."""
    obs = sample_batch(case.obs_space, rows=ROWS)
    if isinstance(obs, dict) and "action_mask" in obs:
        obs["action_mask"] = map_tensors(obs["action_mask"], np.ones_like)
    return to_tensors(obs, device)


@needs_cuda
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nothing_waits_for_the_gpu(case, refuse_waiting):
    policy = build_policy(case, "cuda")
    obs = sample_observations(case, "cuda")
    act_and_evaluate(policy, obs)  # uploads constants

    refuse_waiting()
    act_and_evaluate(policy, obs).backward()

    torch.cuda.set_sync_debug_mode("default")
    policy.check()


@needs_cuda
def test_reading_a_number_of_the_gpu_is_noticed(refuse_waiting):
    policy = build_policy(CASES["fcnet"], "cuda")
    policy.act(torch.zeros(ROWS, 3, device="cuda"))

    refuse_waiting()

    with pytest.raises(RuntimeError, match="synchronizing"):
        policy.check()


@needs_cuda
@pytest.mark.parametrize("name", ["lstm-with-past", "mask-with-filter", "tuple"])
def test_steps_on_the_gpu_are_those_of_the_cpu(name):
    case = CASES[name]
    policy = build_policy(case, "cpu")
    step = policy.act(sample_observations(case, "cpu"), explore=False)

    policy.to("cuda")
    step_on_gpu = policy.act(sample_observations(case, "cuda"), explore=False)

    for field in ("logp", "value", "dist_inputs"):
        tensor = getattr(step_on_gpu, field)
        assert tensor.is_cuda
        torch.testing.assert_close(tensor.cpu(), getattr(step, field), rtol=1e-4, atol=1e-4)


# --- controls: the mode notices transfers ---------------------------------------------------------


def test_acting_for_an_environment_on_the_host_is_noticed():
    policy = build_policy(CASES["fcnet"])

    with NoTransfers(), pytest.raises((NotImplementedError, RuntimeError, TypeError)):
        policy.act_encoded(torch.zeros(ROWS, 3, device="meta"))


class ReadsANumber(torch.nn.Module):
    """Reads its inputs on the host."""

    def forward(self, x):
        x.tolist()
        return x


class MixesDevices(torch.nn.Module):
    """Adds a number on the CPU, which PyTorch allows."""

    def __init__(self):
        super().__init__()
        self.number = [torch.tensor(2.0)]  # in a list, so that the policy does not move it

    def forward(self, x):
        return x + self.number[0]


@pytest.mark.parametrize("module", [ReadsANumber, MixesDevices])
def test_modules_that_transfer_numbers_are_noticed(module):
    policy = rlcatalog.build(THREE_FEATURES, Discrete(4), {"custom_model": Halved}, "torch")
    policy.to("meta")
    policy.act(torch.zeros(ROWS, 3, device="meta"))
    policy.model.module = module()

    with NoTransfers(), pytest.raises((NotImplementedError, RuntimeError, AssertionError)):
        policy.act(torch.zeros(ROWS, 3, device="meta"))
