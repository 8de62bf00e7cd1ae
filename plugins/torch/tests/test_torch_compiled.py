"""PyTorch's transforms of every built-in model, found in the registry: compiled, exported, called
with other weights.

The truth is the plain call of the same model.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.func import functional_call, vmap

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing.examples import examples_of, quiet
from rlcatalog_testing.passes import observations_of
from rlcatalog_torch import RecurrentNetwork

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

CATALOG = Catalog(scan(), environ={})
BUILT_IN = [
    component
    for component in CATALOG.components("model")
    if "torch" in component.declaration.targets and component.distribution != "rlcatalog-compat"
]
EXAMPLES = {
    f"{component.name}-{i}": example
    for component in BUILT_IN
    for i, example in enumerate(
        examples_of(component, CATALOG)[: 3 if component.name == "parametric" else 2]
    )
}
examples = pytest.mark.parametrize("name", EXAMPLES)
#: Compiling takes half a second each: the first of every model, and what is shown masks and lists.
compiled = pytest.mark.parametrize(
    "name", [name for name in EXAMPLES if name.endswith("-0") or name.startswith("parametric")]
)


#: Models keep the features of a pass for `value_function`; PyTorch warns that an exported program
#: does not keep them.
exporting = pytest.mark.filterwarnings("ignore:The tensor attribute")


class Known(nn.Module):
    """All that acting asks of a model: outputs, value and new states, flattened."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *given):
        output, state = self.model(*given)
        return output, self.model.value_function(), *state


def policy_of(name):
    example = EXAMPLES[name]
    with quiet():
        return rlcatalog.build(
            example.obs,
            example.action,
            {**example.config, "fcnet_hiddens": [8]},
            "torch",
            catalog=CATALOG,
        )


def tensors(value):
    if isinstance(value, dict):
        return {name: tensors(part) for name, part in value.items()}
    return (
        tuple(map(tensors, value))
        if isinstance(value, tuple)
        else torch.from_numpy(np.array(value))
    )


def given(policy, name, rows):
    """What a model is called with while acting, in the middle of an episode."""
    observations = observations_of(EXAMPLES[name], rows)
    encoded, mask = policy.preprocess(observations), policy.action_mask(observations)
    state = policy.initial_state(rows)
    for _ in range(2):
        rewards = np.zeros(rows, np.float32)
        state = policy.act_encoded(encoded, state, prev_reward=rewards, mask=mask).state
    inputs = {"obs": encoded}
    if state is None:
        return (tensors(inputs),)
    seen = policy.views.see(state.history, encoded)
    inputs |= {view: seen[view] for view in policy.views.acting}
    memory = list(tensors(tuple(state.memory)))
    return (
        (tensors(inputs), memory, torch.ones(rows, dtype=torch.int32))
        if memory
        else (tensors(inputs),)
    )


def same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_every_built_in_model_is_here():
    names = {component.name for component in BUILT_IN}
    assert names >= {
        "fcnet",
        "visionnet",
        "complex_input",
        "lstm",
        "attention",
        "gtrxl",
        "parametric",
    }
    assert {name.rsplit("-", 1)[0] for name in EXAMPLES} == names


@compiled
def test_compiled(name):
    policy, graphs = policy_of(name), []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    known, arguments = Known(policy.model), given(policy, name, 3)
    with torch.no_grad():
        same(torch.compile(known, backend=backend)(*arguments), known(*arguments))
    assert any(node.op == "call_function" for graph in graphs for node in graph.graph.nodes)


def export(module, arguments):
    """Export a module so that it takes any number of rows."""
    return torch.export.export(
        module,
        arguments,
        # The module takes `*given`, which is one argument.
        dynamic_shapes=(with_any_number_of_rows(arguments),),
    ).module()


def with_any_number_of_rows(value):
    """Return the dynamic shapes of arguments whose first axis has any size."""
    if isinstance(value, dict):
        return {name: with_any_number_of_rows(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(with_any_number_of_rows, value))
    return {0: torch.export.Dim.AUTO}


@examples
@exporting
def test_exported_model_takes_any_number_of_rows(name):
    policy = policy_of(name)
    known = Known(policy.model)
    exported = export(known, given(policy, name, 3))
    for rows in (3, 5, 1):
        arguments = given(policy, name, rows)
        same(exported(*arguments), known(*arguments))


@exporting
def test_exported_recurrent_model_takes_any_number_of_sequences():
    class Sums(RecurrentNetwork):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = nn.Linear(2, 3)

        def forward_rnn(self, inputs, state, seq_lens):
            total = inputs.cumsum(1) + state[0][:, None]
            return self.layer(total), [total[:, -1]]

        def value_function(self):
            return self.last_output().sum(1)

    known = Known(Sums(Box(-1, 1, (2,), np.float32), Discrete(3), 3, {}, "sums"))

    def inputs(n, t):
        obs = torch.randn(n * t, 2)
        return (
            {"obs": obs, "obs_flat": obs},
            [torch.randn(n, 2)],
            torch.full((n,), t, dtype=torch.int32),
        )

    exported = export(known, inputs(2, 3))
    for sizes in ((2, 3), (4, 3), (1, 5)):
        arguments = inputs(*sizes)
        same(exported(*arguments), known(*arguments))


@examples
def test_called_with_the_weights_of_others_and_of_an_ensemble(name):
    policy = policy_of(name)
    known, arguments = Known(policy.model), given(policy, name, 3)
    members = []
    for factor in (-0.5, 2.0):
        other = copy.deepcopy(known)
        with torch.no_grad():
            for weight in other.parameters():
                weight.mul_(factor)
        members.append(other)
    expected = [member(*arguments) for member in members]
    weights = [{name: p.detach() for name, p in member.named_parameters()} for member in members]
    same(functional_call(known, weights[1], arguments), expected[1])
    stacked = {name: torch.stack([member[name] for member in weights]) for name in weights[0]}
    found = vmap(lambda own: functional_call(known, own, arguments))(stacked)
    same(found, [torch.stack(parts) for parts in zip(*expected, strict=True)])


def test_compiled_in_place_a_model_is_compiled_wherever_it_is_called():
    policy, graphs = policy_of("fcnet-0"), []
    obs = [EXAMPLES["fcnet-0"].obs.sample() for _ in range(3)]
    before = policy.act(obs, explore=False)
    torch._dynamo.reset()
    policy.model.compile(backend=lambda graph, _: (graphs.append(graph), graph.forward)[1])
    after = policy.act(obs, explore=False)
    assert graphs
    np.testing.assert_allclose(after.dist_inputs, before.dist_inputs, rtol=1e-6)
    np.testing.assert_allclose(after.value, before.value, rtol=1e-6)
    count, twin = len(graphs), copy.deepcopy(policy.model)
    with torch.no_grad():
        for weight in twin.parameters():
            weight.zero_()
    # The copy's own weights, not those that were compiled.
    assert not twin({"obs": torch.ones(1, 4)})[0].any()
    assert len(graphs) == count
