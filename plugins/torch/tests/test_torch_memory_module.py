"""`policy.as_module()` of models with a memory in PyTorch: states, sequences and weights."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim.swa_utils import AveragedModel

import rlcatalog
from rlcatalog.errors import ModelContractError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
LSTM = {"use_lstm": True, "lstm_cell_size": 5, "fcnet_hiddens": []}
ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_memory_inference": 4}
each_memory = pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])


def build_policy(config):
    return rlcatalog.build(THREE_FEATURES, Discrete(4), config, "torch")


def random_observations(*axes):
    obs = np.random.default_rng(0).uniform(-1, 1, (*axes, 3))
    return torch.from_numpy(obs.astype(np.float32))


def random_state(module, sequences):
    """Return a state that no episode starts with."""
    return tuple(part + 0.3 for part in module.initial_state(sequences))


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


# --- states and sequences -------------------------------------------------------------------------


def copy_lstm(cell):
    """Return PyTorch's LSTM with the weights of ours, which has one bias instead of two."""
    lstm = nn.LSTM(3, 5, batch_first=True)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(cell.weight_ih)
        lstm.weight_hh_l0.copy_(cell.weight_hh)
        lstm.bias_ih_l0.copy_(cell.bias)
        lstm.bias_hh_l0.zero_()
    return lstm


def test_lstm_module_computes_what_pytorch_computes():
    policy = build_policy(LSTM)
    obs = random_observations(2, 6)  # two sequences of six steps

    dist, value, state = policy.as_module()(obs.flatten(0, 1), seq_lens=[6, 6])

    features, (h, c) = copy_lstm(policy.model.cell)(obs)
    assert_close(dist.inputs, policy.model.outputs(features.flatten(0, 1)))
    assert_close(value, policy.model.outputs.values(features.flatten(0, 1)))
    assert_close(state, (h[0], c[0]))


@each_memory
def test_sequence_equals_its_single_steps(config):
    module = build_policy(config).as_module()
    obs = random_observations(6)

    dist, _, last_state = module(obs, seq_lens=[6])

    state = None  # the start of an episode
    for t in range(6):
        dist_of_step, _, state = module(obs[t : t + 1], state=state)
        assert_close(dist.inputs[t], dist_of_step.inputs[0])
    assert_close(last_state, state)


@each_memory
def test_sequences_of_different_lengths_are_read_as_if_alone(config):
    # Padding must neither be seen nor end up in the state.
    module = build_policy(config).as_module()
    lengths = [1, 3, 2]
    obs = random_observations(6)
    state = random_state(module, sequences=3)

    dist, value, last_state = module(obs, state=state, seq_lens=lengths)

    inputs_of_each = dist.inputs.split(lengths)
    value_of_each = value.split(lengths)
    for i, own_obs in enumerate(obs.split(lengths)):
        own_state = tuple(part[i : i + 1] for part in state)
        alone, value_alone, state_alone = module(own_obs, state=own_state, seq_lens=[len(own_obs)])
        assert_close(inputs_of_each[i], alone.inputs)
        assert_close(value_of_each[i], value_alone)
        assert_close(tuple(part[i : i + 1] for part in last_state), state_alone)


@each_memory
def test_module_scores_sequences_as_evaluate_does(config):
    policy = build_policy(config)
    module = policy.as_module()
    obs = random_observations(6)
    actions = torch.tensor([0, 1, 2, 3, 0, 1])
    state = random_state(module, sequences=2)

    dist, value, _ = module(obs, state=state, seq_lens=[4, 2])

    raw_action = actions[:, None]  # a batch has a column for each value of an action
    evaluation = policy.evaluate(
        {"obs": obs, "raw_action": raw_action, "state": state, "seq_lens": [4, 2]}
    )
    assert_close(dist.logp(actions), evaluation.logp)
    assert_close(value, evaluation.value)


@each_memory
def test_state_defaults_to_the_start_of_an_episode(config):
    module = build_policy(config).as_module()
    obs = random_observations(2)

    dist, _, _ = module(obs)

    expected, _, _ = module(obs, state=module.initial_state(2))
    assert_close(dist.inputs, expected.inputs)


@each_memory
def test_module_starts_episodes_as_the_policy_does(config):
    policy = build_policy(config)
    obs = random_observations(2)
    step = policy.act(obs.numpy(), policy.initial_state(2))

    dist, _, state = policy.as_module().eval()(obs)

    assert_close(dist.inputs, torch.from_numpy(step.dist_inputs))
    for part, expected in zip(state, step.state.memory, strict=True):
        np.testing.assert_allclose(part.detach(), expected, rtol=1e-5, atol=1e-6)


@each_memory
def test_seq_lens_that_do_not_add_up_to_rows_are_an_error(config):
    module = build_policy(config).as_module()

    with pytest.raises(ModelContractError, match="add up to 4 rows"):
        module(random_observations(4), seq_lens=[2, 3])


@each_memory
def test_state_with_wrong_number_of_rows_is_an_error(config):
    module = build_policy(config).as_module()

    with pytest.raises(ModelContractError, match="a row for each of 2 sequences"):
        module(random_observations(4), state=module.initial_state(4), seq_lens=[2, 2])


# The transformer detaches its memory, as GTrXL does.
@pytest.mark.parametrize(
    ("config", "reaches_past"), [(LSTM, True), (ATTENTION, False)], ids=["lstm", "attention"]
)
def test_gradient_passes_through_the_state(config, reaches_past):
    module = build_policy(config).as_module()
    obs = random_observations(2, 3).requires_grad_()  # two rows, three steps

    _, _, state = module(obs[:, 0])
    _, value, _ = module(obs[:, 1], state=state)
    value.sum().backward()

    assert obs.grad[:, 1].any()
    assert bool(obs.grad[:, 0].any()) is reaches_past


# --- weights --------------------------------------------------------------------------------------


@each_memory
def test_vmap_over_weights_computes_an_ensemble(config):
    first = build_policy(config).as_module()
    second = build_policy(config).as_module()
    obs = random_observations(4)

    def compute_value(weights):
        _, value, _ = functional_call(first, weights, (obs,), {"seq_lens": [2, 2]})
        return value

    weights_of_both, _ = stack_module_state([first, second])
    values = vmap(compute_value)(weights_of_both)

    _, value_of_first, _ = first(obs, seq_lens=[2, 2])
    _, value_of_second, _ = second(obs, seq_lens=[2, 2])
    assert_close(values, torch.stack([value_of_first, value_of_second]))


@each_memory
def test_averaged_model_keeps_its_values(config):
    module = build_policy(config).as_module()
    obs = random_observations(4)
    averaged = AveragedModel(module)  # which makes a deep copy
    averaged.update_parameters(module)
    _, value_before, _ = module(obs, seq_lens=[2, 2])

    with torch.no_grad():
        for weight in module.parameters():
            weight += 1

    _, value_of_average, _ = averaged(obs, seq_lens=[2, 2])
    assert_close(value_of_average, value_before)


@pytest.mark.parametrize(
    ("config", "obs_space"),
    [
        ({}, THREE_FEATURES),
        (LSTM, THREE_FEATURES),
        (ATTENTION, THREE_FEATURES),
        ({}, Box(np.zeros(2), np.array([9, 300]), dtype=np.int64)),
    ],
    ids=["fcnet", "lstm", "attention", "scaled integers"],
)
def test_module_returns_from_meta_device(config, obs_space):
    policy = rlcatalog.build(obs_space, Discrete(4), config, "torch")
    module = policy.as_module()
    obs = torch.from_numpy(policy.preprocess([obs_space.sample()]))
    weights = {name: weight.clone() for name, weight in module.state_dict().items()}
    _, value_before, *_ = module(obs)

    module.to("meta")
    assert policy.device == "meta"

    # `to_empty` leaves arbitrary numbers, and the state dict does not contain buffers, such as the
    # scale of integers.
    module.to_empty(device="cpu")
    module.load_state_dict(weights)
    assert policy.device == "cpu"
    _, value_after, *_ = module(obs)
    assert_close(value_after, value_before)


# --- several processes ----------------------------------------------------------------------------


def compute_gradients(module, obs):
    """Return all gradients of a loss over sequences of two steps."""
    dist, value, _ = module(obs.flatten(0, 1), seq_lens=[2] * len(obs))
    actions = torch.arange(2 * len(obs)) % 4
    (dist.logp(actions) - value).mean().backward()
    return [weight.grad for weight in module.parameters()]


def start_process_group(rank, processes, store):
    torch.distributed.init_process_group(
        "gloo",
        rank=rank,
        world_size=processes,
        store=torch.distributed.FileStore(store, processes),
    )


def train_half_of_the_sequences(rank, store, config):
    """Run one of two processes: each has its own half, and gets the gradients of all sequences."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start_process_group(rank, 2, store)
    obs = random_observations(4, 2)
    module = build_policy(config).as_module()
    torch.manual_seed(0)
    parallel = nn.parallel.DistributedDataParallel(copy.deepcopy(module))

    gradients = compute_gradients(parallel, obs[2 * rank : 2 * rank + 2])

    assert_close(gradients, compute_gradients(module, obs))
    torch.distributed.destroy_process_group()


@each_memory
def test_two_processes_compute_gradients_of_all_sequences(config, tmp_path):
    arguments = (str(tmp_path / "store"), config)

    # An error in a process is raised here.
    torch.multiprocessing.start_processes(
        train_half_of_the_sequences, arguments, nprocs=2, start_method="fork"
    )


def train_sharded(rank, store, config):
    """Run the only process: FSDP wraps the module, and computes the same gradients."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    start_process_group(rank, 1, store)
    obs = random_observations(4, 2)
    module = build_policy(config).as_module()
    expected = compute_gradients(copy.deepcopy(module), obs)

    fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    with warnings.catch_warnings():
        # FSDP warns that the values are a view; this test does not change them in place.
        warnings.simplefilter("ignore")
        gradients = [gradient.full_tensor() for gradient in compute_gradients(module, obs)]

    assert_close(gradients, expected)
    torch.distributed.destroy_process_group()


@each_memory
def test_fsdp_computes_the_same_gradients(config, tmp_path):
    arguments = (str(tmp_path / "store"), config)

    # An error in the process is raised here.
    torch.multiprocessing.start_processes(train_sharded, arguments, nprocs=1, start_method="fork")
