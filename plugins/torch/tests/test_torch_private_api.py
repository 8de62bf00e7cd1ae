"""Private names of PyTorch: each still does what rlcatalog relies on in the installed version.

If one of these tests fails after an upgrade, PyTorch has changed the name: adapt
`rlcatalog_torch/private_api.py`, which says what the name is for.
"""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.overrides import TorchFunctionMode

from rlcatalog_torch import private_api

#: Names the version in the message of every failure.
VERSION = f"PyTorch {torch.__version__}"

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")


class Calls(TorchFunctionMode):
    """Context that records the PyTorch functions that are called."""

    def __init__(self):
        super().__init__()
        self.functions = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


def test_standard_gamma_draws_gamma_values():
    samples = private_api.standard_gamma(torch.full((100_000,), 3.0))

    # Mean and variance of a Gamma distribution with scale 1 are its concentration.
    assert samples.mean().item() == pytest.approx(3, abs=0.05), VERSION
    assert samples.var().item() == pytest.approx(3, abs=0.1), VERSION


def test_standard_gamma_has_gradients():
    concentration = torch.full((100_000,), 3.0, requires_grad=True)
    private_api.standard_gamma(concentration).mean().backward()
    # The mean is the concentration, so the gradients of all values add up to 1.
    assert concentration.grad.sum().item() == pytest.approx(1, abs=0.02), VERSION


@pytest.mark.parametrize(
    ("function", "distribution"),
    [
        (private_api.standard_gamma, torch.distributions.Gamma(torch.ones(2), torch.ones(2))),
        (private_api.sample_dirichlet, torch.distributions.Dirichlet(torch.ones(2))),
    ],
    ids=["Gamma", "Dirichlet"],
)
def test_distributions_draw_with_the_functions_we_replace(function, distribution):
    with Calls() as calls:
        distribution.sample()
    assert function in calls.functions, f"{VERSION}: {distribution} draws in another way"


def test_fused_adam_takes_the_step_of_the_paper():
    weight = torch.tensor([1.0, -2.0])
    gradient = torch.tensor([0.5, -0.1])
    first_moment = torch.zeros(2)
    second_moment = torch.zeros(2)
    step = torch.tensor(1.0)

    private_api.fused_adam_(
        (weight,),
        (gradient,),
        (first_moment,),
        (second_moment,),
        (),  # the largest second moments, which only AMSGrad needs
        (step,),
        lr=0.1,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        weight_decay=0.0,
        amsgrad=False,
        maximize=False,
    )

    # Adam's first step has the length of the learning rate, against the gradient's sign.
    torch.testing.assert_close(weight, torch.tensor([0.9, -1.9]), msg=VERSION)
    torch.testing.assert_close(first_moment, 0.1 * gradient, msg=VERSION)  # 1 - beta1
    torch.testing.assert_close(second_moment, 0.001 * gradient**2, msg=VERSION)  # 1 - beta2


def test_foreach_add_adds_in_place():
    steps = [torch.tensor(1.0), torch.tensor(5.0)]
    private_api.foreach_add_(steps, 1)
    assert [step.item() for step in steps] == [2, 6], VERSION


def test_foreach_norm_returns_a_norm_per_tensor():
    norms = private_api.foreach_norm([torch.tensor([3.0, 4.0]), torch.full((2, 2), 1.0)])
    assert [norm.item() for norm in norms] == [5, 2], VERSION


def test_foreach_mul_scales_in_place_with_a_tensor():
    gradients = [torch.tensor([3.0, 4.0]), torch.ones(1)]
    private_api.foreach_mul_(gradients, torch.tensor(0.5))
    assert [gradient.tolist() for gradient in gradients] == [[1.5, 2], [0.5]], VERSION


@pytest.mark.parametrize("transform", [vmap, lambda f: vmap(grad(f))], ids=["vmap", "vmap of grad"])
def test_transforms_are_active_inside_torch_func_alone(transform):
    active = []

    def square(x):
        active.append(private_api.are_transforms_active())
        return x * x

    transform(square)(torch.ones(3))

    assert all(active), f"{VERSION}: a transform of torch.func goes unnoticed"
    assert not private_api.are_transforms_active(), VERSION


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
@pytest.mark.parametrize("part", [slice(None), slice(1)], ids=["itself", "a view"])
def test_version_of_a_tensor_grows_with_each_write(part):
    tensor = torch.zeros(2)
    before = private_api.version_of(tensor)
    tensor[part].add_(1)
    assert private_api.version_of(tensor) == before + 1, VERSION


def test_version_of_a_tensor_stays_while_it_is_read():
    tensor = torch.zeros(2)
    before = private_api.version_of(tensor)
    tensor.sum()
    assert private_api.version_of(tensor) == before, VERSION


def test_base_of_a_view_is_the_whole_tensor():
    whole = torch.zeros(2, 3)
    assert private_api.base_of(whole[0]) is whole, VERSION
    assert private_api.base_of(whole[0][1:]) is whole, VERSION
    assert private_api.base_of(whole) is None, VERSION


def test_leaf_of_a_function_is_the_weight_it_adds_to():
    weight = nn.Parameter(torch.ones(2))
    product = (weight * 2).grad_fn
    functions = [function for function, _ in product.next_functions if function is not None]
    (accumulate,) = functions  # the number 2 has none

    assert private_api.leaf_of(accumulate) is weight, VERSION
    assert private_api.leaf_of(product) is None, VERSION


def test_modules_key_appears_with_the_constructor():
    layers = nn.Sequential.__new__(nn.Sequential)
    assert private_api.MODULES not in layers.__dict__, VERSION
    layers.__init__(nn.Identity())
    assert layers.__dict__[private_api.MODULES]["0"] is layers[0], VERSION


def test_compiled_key_holds_what_compile_made():
    layer = nn.Linear(2, 2)
    layer.compile(backend="eager")
    assert layer.__dict__[private_api.COMPILED] is not None, VERSION


def test_own_parts_of_a_module_are_found_by_name():
    layer = nn.BatchNorm1d(2)
    layers = nn.Sequential(layer)
    assert private_api.parameters_of(layer)["weight"] is layer.weight, VERSION
    assert private_api.buffers_of(layer)["running_mean"] is layer.running_mean, VERSION
    assert private_api.modules_of(layers)["0"] is layer, VERSION
    assert not private_api.parameters_of(layers), VERSION


def test_plain_module_needs_no_call():
    assert not private_api.needs_call(nn.Linear(2, 2)), VERSION


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_module_with_a_hook_needs_a_call(register):
    layer = nn.Linear(2, 2)
    handle = getattr(layer, register)(lambda *arguments: None)
    assert private_api.needs_call(layer), f"{VERSION}: {register} goes unnoticed"
    handle.remove()
    assert not private_api.needs_call(layer), VERSION


def test_module_after_compile_needs_a_call():
    layer = nn.Linear(2, 2)
    layer.compile(backend="eager")
    assert private_api.needs_call(layer), VERSION


def test_original_of_a_compiled_module_is_the_module():
    layer = nn.Linear(2, 2)
    assert private_api.original_of(torch.compile(layer, backend="eager")) is layer, VERSION
    assert private_api.original_of(layer) is None, VERSION


def test_movable_module_notices_a_conversion_around_it():
    class Part(private_api.Movable):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def on_move(self):
            self.dtype_after_move = self.weight.dtype

    part = Part()
    outer = nn.Sequential(nn.Sequential(part))

    outer.double()

    assert part.dtype_after_move is torch.float64, VERSION


def test_operation_mode_sees_operations_by_name():
    class Names(private_api.OperationMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.name())
            return func(*args, **(kwargs or {}))

    names = []
    with Names():
        torch.ones(2) + 1
    assert names[-1] == "aten::add.Tensor", VERSION


OPERATION_MODE_PROGRAM = """
import sys, torch
from rlcatalog_torch.private_api import OperationMode

class Plain(OperationMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

with Plain():
    torch.ones(2) + 1
print("torch._dynamo" in sys.modules)  # the compiler
"""


def test_operation_mode_does_not_import_the_compiler():
    result = subprocess.run(
        [sys.executable, "-c", OPERATION_MODE_PROGRAM], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False", f"{VERSION}: {result.stdout}{result.stderr}"
