"""`policy.as_module()` of models with a memory in PyTorch, against `torch.nn.LSTM`, single steps
and `Policy.evaluate`.
"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.func import functional_call, vmap
from torch.optim.swa_utils import AveragedModel

import rlcatalog
from rlcatalog.errors import ModelContractError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = Box(-1, 1, (3,), np.float32)
LSTM = {"use_lstm": True, "lstm_cell_size": 5, "fcnet_hiddens": []}
ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_memory_inference": 4}
memories = pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])


def policy_of(config):
    return rlcatalog.build(OBS, Discrete(4), config, "torch")


def observations(*axes):
    return torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (*axes, 3)).astype(np.float32))


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_lstm_module_is_the_lstm_of_pytorch():
    policy = policy_of(LSTM)
    cell = policy.model.cell
    truth = nn.LSTM(3, 5, batch_first=True)
    with torch.no_grad():
        truth.weight_ih_l0.copy_(cell.weight_ih)
        truth.weight_hh_l0.copy_(cell.weight_hh)
        truth.bias_ih_l0.copy_(cell.bias)
        truth.bias_hh_l0.zero_()
    obs = observations(2, 6)
    features, (h, c) = truth(obs)

    dist, value, state = policy.as_module()(obs.flatten(0, 1), seq_lens=[6, 6])

    assert_same(dist.inputs, policy.model.outputs(features.flatten(0, 1)))
    assert_same(value, policy.model.outputs.values(features.flatten(0, 1)))
    assert_same(state, (h[0], c[0]))


@memories
def test_memory_steps_are_one_sequence(config):
    module, obs = policy_of(config).as_module(), observations(2, 6)
    steps, state = [], None
    for t in range(6):
        dist, _, state = module(obs[:, t], state=state)
        steps.append(dist.inputs)
    dist, _, end = module(obs.flatten(0, 1), seq_lens=torch.tensor([6, 6]))
    assert_same(dist.inputs, torch.stack(steps, dim=1).flatten(0, 1))
    assert_same(end, state)


@memories
def test_memory_reads_sequences_of_any_lengths(config):
    """Each sequence alone is the truth: padding must neither be seen nor end up in the state."""
    module, obs = policy_of(config).as_module(), observations(6)
    state = tuple(part + 0.3 for part in module.initial_state(3))
    dist, value, end = module(obs, state=state, seq_lens=[1, 3, 2])
    for row, rows in enumerate((slice(0, 1), slice(1, 4), slice(4, 6))):
        own = tuple(part[row : row + 1] for part in state)
        alone = module(obs[rows], state=own, seq_lens=[rows.stop - rows.start])
        assert_same(dist.inputs[rows], alone[0].inputs)
        assert_same(value[rows], alone[1])
        assert_same(tuple(part[row : row + 1] for part in end), alone[2])


@memories
def test_memory_module_scores_as_evaluate(config):
    policy, obs, raw = policy_of(config), observations(6), torch.tensor([0, 1, 2, 3, 0, 1])
    state = tuple(part + 0.3 for part in policy.as_module().initial_state(2))
    scored = policy.evaluate(
        {"obs": obs, "raw_action": raw[:, None], "state": state, "seq_lens": [4, 2]}
    )
    dist, value, _ = policy.as_module()(obs, state=state, seq_lens=[4, 2])
    assert_same(dist.logp(raw), scored.logp)
    assert_same(value, scored.value)


@memories
def test_memory_begins_as_an_episode_of_the_policy(config):
    policy, obs = policy_of(config), observations(2)
    module = policy.as_module()
    first = module(obs)
    assert_same(first[0].inputs, module(obs, state=module.initial_state(2))[0].inputs)
    step = policy.act(obs.numpy(), policy.initial_state(2))
    module.eval()
    assert_same(module(obs)[0].inputs, torch.from_numpy(step.dist_inputs))
    for found, expected in zip(module(obs)[2], step.state.memory, strict=True):
        np.testing.assert_allclose(found.detach(), expected, rtol=1e-5, atol=1e-6)


@memories
def test_memory_that_does_not_fit_is_refused(config):
    module, obs = policy_of(config).as_module(), observations(4)
    with pytest.raises(ModelContractError, match="add up to 4 rows"):
        module(obs, seq_lens=[2, 3])
    with pytest.raises(ModelContractError, match="a row for each of 2 sequences"):
        module(obs, state=module.initial_state(4), seq_lens=[2, 2])


@memories
def test_memory_gets_gradients_through_its_state(config):
    module, obs = policy_of(config).as_module(), observations(2, 3)
    obs.requires_grad_()
    _, _, state = module(obs[:, 0])
    _, value, _ = module(obs[:, 1], state=state)
    value.sum().backward()
    assert module.model.trunk is not None
    # The transformer detaches its memory, as GTrXL does.
    assert bool(obs.grad[:, 0].any()) is ("use_lstm" in config)
    assert obs.grad[:, 1].any()


@memories
def test_memory_runs_with_other_weights(config):
    module, obs = policy_of(config).as_module(), observations(4)
    others = [policy_of(config).as_module() for _ in range(3)]

    def values(weights):
        return functional_call(module, weights, (obs,), {"seq_lens": [2, 2]})[1]

    weights = [dict(other.named_parameters()) for other in others]
    stacked = {name: torch.stack([one[name] for one in weights]) for name in weights[0]}
    expected = torch.stack([other(obs, seq_lens=[2, 2])[1] for other in others])
    assert_same(torch.stack([values(one) for one in weights]), expected)
    assert_same(vmap(values)(stacked), expected)


@memories
def test_memory_has_copies_and_averages(config):
    module, obs = policy_of(config).as_module(), observations(4)
    target, average = copy.deepcopy(module), AveragedModel(module)
    average.update_parameters(module)
    expected = module(obs, seq_lens=[2, 2])[1].detach()
    with torch.no_grad():
        for weight in module.parameters():
            weight += 1
    for other in (target, average):
        assert_same(other(obs, seq_lens=[2, 2])[1], expected)


@pytest.mark.parametrize(
    ("config", "observation_space"),
    [
        ({}, OBS),
        (LSTM, OBS),
        (ATTENTION, OBS),
        ({}, Box(np.zeros(2), np.array([9, 300]), dtype=np.int64)),
    ],
    ids=["fcnet", "lstm", "attention", "scaled integers"],
)
def test_module_returns_from_meta(config, observation_space):
    """`to_empty` leaves arbitrary numbers in buffers that a state dict does not contain."""
    policy = rlcatalog.build(observation_space, Discrete(4), config, "torch")
    module = policy.as_module()
    encoded = policy.preprocess([observation_space.sample() for _ in range(3)])
    obs = torch.from_numpy(encoded)
    weights = {name: weight.clone() for name, weight in module.state_dict().items()}
    expected = module(obs)[1].detach()

    module.to("meta")
    assert policy.device == "meta"
    module.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in module.buffers():
            if tensor.is_floating_point():
                assert not tensor.isnan().any()
    module.load_state_dict(weights)

    assert policy.device == "cpu"
    assert_same(module(obs)[1], expected)


# --- several processes ----------------------------------------------------------------------------


def _gradients(module, obs):
    """Return all gradients of a loss over sequences of two steps."""
    dist, value, _ = module(obs.flatten(0, 1), seq_lens=[2] * len(obs))
    raw = torch.arange(2 * len(obs)) % 4
    (dist.logp(raw) - value).mean().backward()
    return [weight.grad for weight in module.parameters()]


def _train_in_parallel(rank, store, config):
    """Child process: data parallel, on one's own half of the sequences."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.distributed.init_process_group(
        "gloo", rank=rank, world_size=2, store=torch.distributed.FileStore(store, 2)
    )
    obs = observations(4, 2)
    alone = policy_of(config).as_module()
    torch.manual_seed(0)
    module = nn.parallel.DistributedDataParallel(copy.deepcopy(alone))
    found = _gradients(module, obs[2 * rank : 2 * rank + 2])
    assert_same(found, _gradients(alone, obs))
    torch.distributed.destroy_process_group()


@memories
def test_memory_trains_data_parallel(config, tmp_path):
    """The truth is one process that sees all sequences."""
    arguments = (str(tmp_path / "store"), config)
    torch.multiprocessing.start_processes(
        _train_in_parallel, arguments, nprocs=2, start_method="fork"
    )


def _shard(rank, store, config):
    """Child process: FSDP's wrapping of a module."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group(
        "gloo", rank=rank, world_size=1, store=torch.distributed.FileStore(store, 1)
    )
    obs, module = observations(4, 2), policy_of(config).as_module()
    expected = _gradients(copy.deepcopy(module), obs)
    fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    with warnings.catch_warnings():
        # FSDP warns that the values are a view; this test does not change them in place.
        warnings.simplefilter("ignore")
        found = [gradient.full_tensor() for gradient in _gradients(module, obs)]
    assert_same(found, expected)
    torch.distributed.destroy_process_group()


@memories
def test_memory_is_sharded_by_fsdp(config, tmp_path):
    arguments = (str(tmp_path / "store"), config)
    torch.multiprocessing.start_processes(_shard, arguments, nprocs=1, start_method="fork")
