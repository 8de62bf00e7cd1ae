"""Built-in models compiled, exported and called with other weights, against their plain calls."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing.examples import examples_of, quiet
from rlcatalog_testing.passes import observations_of
from rlcatalog_torch import RecurrentNetwork

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

CATALOG = Catalog(scan(), environ={})
BUILT_IN_MODELS = [
    part
    for part in CATALOG.parts("model")
    if "torch" in part.declaration.targets and part.distribution != "rlcatalog-compat"
]


def collect_examples():
    """Return two example spaces and configs of each model, three of the parametric one, by name:
    fcnet-0, fcnet-1, ….
    """
    examples = {}
    for part in BUILT_IN_MODELS:
        count = 3 if part.name == "parametric" else 2
        for i, example in enumerate(examples_of(part, CATALOG)[:count]):
            examples[f"{part.name}-{i}"] = example
    return examples


EXAMPLES = collect_examples()
each_example = pytest.mark.parametrize("name", EXAMPLES)
#: Compiling takes half a second each: the first of every model, and all of the parametric one,
#: which gets masks and lists.
each_compiled_example = pytest.mark.parametrize(
    "name", [name for name in EXAMPLES if name.endswith("-0") or name.startswith("parametric")]
)
#: Models keep the features of a pass for `value_function`; PyTorch warns that an exported program
#: does not keep them.
ignore_lost_attributes = pytest.mark.filterwarnings("ignore:The tensor attribute")


class OutputsValueAndState(nn.Module):
    """Calls a model, and returns all that acting needs: outputs, value and new states."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *arguments):
        output, state = self.model(*arguments)
        return output, self.model.value_function(), *state


def build_policy(name):
    example = EXAMPLES[name]
    config = {**example.config, "fcnet_hiddens": [8]}
    with quiet():
        return rlcatalog.build(example.obs, example.action, config, "torch", catalog=CATALOG)


def to_tensors(value):
    """Convert the arrays in nested dicts and tuples."""
    if isinstance(value, dict):
        return {name: to_tensors(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(to_tensors(part) for part in value)
    return torch.from_numpy(np.array(value))


def make_arguments(policy, name, rows):
    """Return the arguments with which acting calls the model in the middle of an episode."""
    observations = observations_of(EXAMPLES[name], rows)
    encoded = policy.preprocess(observations)
    mask = policy.action_mask(observations)
    state = policy.initial_state(rows)
    for _ in range(2):
        rewards = np.zeros(rows, np.float32)
        state = policy.act_encoded(encoded, state, prev_reward=rewards, mask=mask).state
    inputs = {"obs": encoded}
    if state is None:
        return (to_tensors(inputs),)
    views = policy.views.see(state.history, encoded)
    for view in policy.views.acting_names:
        inputs[view] = views[view]
    memory = list(to_tensors(tuple(state.memory)))
    if not memory:
        return (to_tensors(inputs),)
    return to_tensors(inputs), memory, torch.ones(rows, dtype=torch.int32)


def assert_close(results, expected):
    assert len(results) == len(expected)
    for result, expected_result in zip(results, expected, strict=True):
        torch.testing.assert_close(result, expected_result, rtol=1e-4, atol=1e-5)


# --- torch.compile --------------------------------------------------------------------------------


class GraphRecorder:
    """A backend of `torch.compile` that keeps the graphs, and runs them as they are."""

    def __init__(self):
        torch._dynamo.reset()  # forget what other tests compiled
        self.graphs = []

    def __call__(self, graph, example_inputs):
        self.graphs.append(graph)
        return graph.forward


def has_computation(graph):
    return any(node.op == "call_function" for node in graph.graph.nodes)


@each_compiled_example
def test_compiled_model_computes_the_same(name):
    policy = build_policy(name)
    model = OutputsValueAndState(policy.model)
    arguments = make_arguments(policy, name, rows=3)
    recorder = GraphRecorder()

    with torch.no_grad():
        results = torch.compile(model, backend=recorder)(*arguments)
        expected = model(*arguments)

    assert_close(results, expected)
    # The model was really compiled.
    assert any(has_computation(graph) for graph in recorder.graphs)


def test_model_compiled_in_place_acts_alike():
    policy = build_policy("fcnet-0")  # the first example of the model "fcnet"
    obs = [policy.observation_space.sample()]
    before = policy.act(obs, explore=False)

    recorder = GraphRecorder()
    policy.model.compile(backend=recorder)
    after = policy.act(obs, explore=False)

    assert len(recorder.graphs) > 0  # the model was really compiled
    np.testing.assert_allclose(after.dist_inputs, before.dist_inputs, rtol=1e-6)
    np.testing.assert_allclose(after.value, before.value, rtol=1e-6)


def test_copy_of_compiled_model_is_not_compiled():
    policy = build_policy("fcnet-0")
    recorder = GraphRecorder()
    policy.model.compile(backend=recorder)

    model_copy = copy.deepcopy(policy.model)
    model_copy({"obs": torch.ones(1, 4)})

    assert recorder.graphs == []


def test_copy_of_compiled_model_uses_its_own_weights():
    policy = build_policy("fcnet-0")  # the first example of the model "fcnet"
    policy.model.compile(backend=GraphRecorder())
    policy.act([policy.observation_space.sample()])

    model_copy = copy.deepcopy(policy.model)
    with torch.no_grad():
        for weight in model_copy.parameters():
            weight.zero_()
    output, _ = model_copy({"obs": torch.ones(1, 4)})

    assert not output.any()  # weights of zero give an output of zero


# --- torch.export ---------------------------------------------------------------------------------


def export(module, arguments):
    """Export a module so that it takes any number of rows."""
    # The module takes `*arguments`, which is one argument to PyTorch.
    dynamic_shapes = (with_any_number_of_rows(arguments),)
    return torch.export.export(module, arguments, dynamic_shapes=dynamic_shapes).module()


def with_any_number_of_rows(value):
    """Return the dynamic shapes of arguments whose first axis has any size."""
    if isinstance(value, dict):
        return {name: with_any_number_of_rows(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(with_any_number_of_rows, value))
    return {0: torch.export.Dim.AUTO}


@each_example
@ignore_lost_attributes
def test_exported_model_takes_any_number_of_rows(name):
    policy = build_policy(name)
    model = OutputsValueAndState(policy.model)

    exported = export(model, make_arguments(policy, name, rows=3))

    for rows in (3, 5, 1):
        arguments = make_arguments(policy, name, rows)
        assert_close(exported(*arguments), model(*arguments))


class SumOfObservations(RecurrentNetwork):
    """Outputs a layer of the sum of all observations so far."""

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = nn.Linear(2, 3)

    def forward_rnn(self, inputs, state, seq_lens):
        total = inputs.cumsum(1) + state[0][:, None]
        return self.layer(total), [total[:, -1]]

    def value_function(self):
        return self.last_output().sum(1)


def make_sequences(sequences, steps):
    obs = torch.randn(sequences * steps, 2)
    state = [torch.randn(sequences, 2)]
    seq_lens = torch.full((sequences,), steps, dtype=torch.int32)
    return {"obs": obs, "obs_flat": obs}, state, seq_lens


@ignore_lost_attributes
def test_exported_recurrent_model_takes_any_number_of_sequences():
    obs_space = Box(-1, 1, (2,), np.float32)
    model = OutputsValueAndState(SumOfObservations(obs_space, Discrete(3), 3, {}, "sums"))

    exported = export(model, make_sequences(sequences=2, steps=3))

    for sequences, steps in [(2, 3), (4, 3), (1, 5)]:
        arguments = make_sequences(sequences, steps)
        assert_close(exported(*arguments), model(*arguments))


# --- torch.func -----------------------------------------------------------------------------------


@each_example
def test_vmap_over_weights_computes_an_ensemble(name):
    policy = build_policy(name)
    model = OutputsValueAndState(policy.model)
    arguments = make_arguments(policy, name, rows=3)
    halved = copy.deepcopy(model)
    with torch.no_grad():
        for weight in halved.parameters():
            weight.mul_(0.5)

    def run_with(weights):
        return functional_call(model, weights, arguments)

    weights_of_both, _ = stack_module_state([model, halved])
    results = vmap(run_with)(weights_of_both)

    # Each result is stacked: first that of the model, then that of the halved weights.
    results_of_model = tuple(result[0] for result in results)
    results_of_halved = tuple(result[1] for result in results)
    torch.testing.assert_close(results_of_model, model(*arguments), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(results_of_halved, halved(*arguments), rtol=1e-4, atol=1e-5)
