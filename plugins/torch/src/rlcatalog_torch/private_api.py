"""All names of PyTorch that are not part of its public interface and that rlcatalog uses.

No other module of rlcatalog uses such a name. Each is here because PyTorch has no public
equivalent, or because the public one is slower where every microsecond counts; such functions are
PyTorch's own objects, so that calling them costs nothing extra.

They were tried with PyTorch 2.8.0 and 2.13.0. If another version lacks a name, the code that needs
it raises `NotServedError` (see `rlcatalog.private_names`), unless the comment beside the name says
otherwise. `plugins/torch/tests/test_torch_private_api.py` checks that the names still do what is
relied on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from torch import Tensor, nn
from torch.autograd.graph import Node

from rlcatalog.private_names import PrivateNames

P = ParamSpec("P")
T = TypeVar("T")
TORCH = PrivateNames("torch", tried="2.13.0")
_MODULE = nn.Module()

# --- drawing --------------------------------------------------------------------------------------

#: Draws Gamma values with gradients. `torch.distributions.Gamma` calls it too, but first computes
#: a scale that we do not have. Without it, Beta and Dirichlet cannot sample.
standard_gamma: Callable[[Tensor], Tensor] = TORCH.name(
    "torch:_standard_gamma", "draw Gamma values with gradients"
)
#: What `torch.distributions.Dirichlet` draws with. An export replaces it; without it, a policy with
#: that distribution cannot be exported.
sample_dirichlet: Callable[..., Tensor] = TORCH.name(
    "torch:_sample_dirichlet", "export policies with torch.distributions.Dirichlet"
)

# --- learning -------------------------------------------------------------------------------------

#: One step of Adam on all weights. `torch.optim.Adam(fused=True)` calls it too, but constructing an
#: optimiser imports PyTorch's compiler, which takes most of a short run's time. Without these four
#: functions, PPO, A2C and PG cannot train.
fused_adam_: Callable[..., None] = TORCH.name("torch:_fused_adam_", "update weights with Adam")
#: Adds a number to all tensors of a list in one operation: the steps that Adam counts.
foreach_add_: Callable[[Sequence[Tensor], float], None] = TORCH.name(
    "torch:_foreach_add_", "count the steps of Adam"
)
#: Norms of all gradients in one operation: `clip_grad_norm_` needs twice the time.
foreach_norm: Callable[[Sequence[Tensor]], tuple[Tensor, ...]] = TORCH.name(
    "torch:_foreach_norm", "compute the norm of gradients"
)
#: Scales all gradients in one operation, as `clip_grad_norm_` does.
foreach_mul_: Callable[[Sequence[Tensor], Tensor], None] = TORCH.name(
    "torch:_foreach_mul_", "clip gradients"
)

# --- how a function is being called ---------------------------------------------------------------

#: Whether `vmap`, `grad` or another transform of `torch.func` is running, in which PyTorch's LSTM
#: and Python's random draws do not work. Without it, neither LSTMs nor training steps can run.
are_transforms_active: Callable[[], bool] = TORCH.name(
    "torch._C:_are_functorch_transforms_active", "notice the transforms of torch.func"
)

# --- tensors --------------------------------------------------------------------------------------

#: The number of writes to a tensor's memory so far. Without it, a model that overwrites its inputs,
#: a sample that was changed, and weights that changed under a frozen policy go unnoticed.
version_of: Callable[[Tensor], int] = TORCH.attribute(
    Tensor, "_version", "notice writes to a tensor"
)
#: The tensor that a view is a view of, or None. Without it, a model that writes to a part of a
#: tensor cannot be frozen.
base_of: Callable[[Tensor], Tensor | None] = TORCH.attribute(
    Tensor, "_base", "record a write to a part of a tensor"
)


def leaf_of(function: Node) -> Tensor | None:
    """Return the leaf tensor that an autograd function adds gradients to, or None for any other
    function.

    Without the attribute `variable`, training steps no longer report weights that are not
    registered as parameters.
    """
    # PyTorch's own functions have no such attribute.
    leaf = getattr(function, "variable", None)
    return leaf if isinstance(leaf, Tensor) else None


# --- modules --------------------------------------------------------------------------------------

#: Key of a module's `__dict__` for its submodules. It is there as soon as the module's constructor
#: has run. Models look layers up in it, because `nn.Module.__getattr__` takes longer; without the
#: key, that is what they use.
MODULES = "_modules"
#: Key of a module's `__dict__` for what `compile()` made of it, which calls the original module, so
#: that copies must not have it. Without it, nothing is left out.
COMPILED = "_compiled_call_impl"


@TORCH.needs(_MODULE, "_parameters", purpose="read a layer's weights")
def parameters_of(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return a module's own parameters by name.

    `module.weight` goes through `nn.Module.__getattr__`, and `named_parameters()` searches all
    submodules; both take longer. Without the attribute, dense layers and LSTMs cannot run.
    """
    return module._parameters


@TORCH.needs(_MODULE, "_buffers", purpose="read a layer's constants")
def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """Return a module's own buffers by name, for the same reason as `parameters_of`."""
    return module._buffers


@TORCH.needs(_MODULE, "_modules", purpose="find a model's first layer")
def modules_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """Return a module's own submodules by name, for the same reason as `parameters_of`."""
    return module._modules


@TORCH.needs(
    _MODULE,
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_compiled_call_impl",
    purpose="notice the hooks of a model",
)
def needs_call(module: nn.Module) -> bool:
    """Return whether a module has hooks or was compiled, so that calling it does more than calling
    its `forward`.

    Calling `forward` saves three microseconds. Without these attributes, models cannot run.
    """
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module._compiled_call_impl is not None
    )


def original_of(module: Callable[..., Any]) -> Any:
    """Return the module inside a result of `torch.compile`, or None for any other module.

    Without the attribute `_orig_mod`, the result counts as a separate module, whose weights have
    longer names.
    """
    # Only PyTorch's compiled modules have this attribute.
    return getattr(module, "_orig_mod", None)


class Movable(nn.Module):
    """Module that notices when its tensors are moved or converted, even as a part of another
    module.

    `to`, `cuda`, `double` and the like all call `_apply`, and an outer module only calls its parts'
    `_apply`. Without it, a policy that was moved continues to create tensors on the former device.
    """

    def on_move(self) -> None:
        """React to a move or a conversion."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        result = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.on_move()
        return result


# --- compiling --------------------------------------------------------------------------------


def constant_in_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function of constants: `torch.compile` calls it while it compiles, and takes the
    result as a constant.

    `torch.compiler.assume_constant_result` sets the same attribute, but imports the compiler,
    which takes seconds. Without it, compiled policies are slower, and some cannot be compiled.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def cached_constant(function: Callable[P, T], maxsize: int = 256) -> Callable[P, T]:
    """Cache the results of a function of hashable constants; see `constant_in_graphs`."""
    cached = lru_cache(maxsize)(function)

    @wraps(function)
    def constant(*args: P.args, **kwargs: P.kwargs) -> T:
        return cached(*args, **kwargs)  # type: ignore[arg-type]

    return constant_in_graphs(constant)


def many_cached_constants(function: Callable[P, T]) -> Callable[P, T]:
    """Cache results as `cached_constant` does, for a function that each entry of a large space
    calls with other arguments.
    """
    return cached_constant(function, maxsize=4096)


# --- recording ------------------------------------------------------------------------------------


_DispatchMode: Any = TORCH.name(
    "torch.utils._python_dispatch:TorchDispatchMode", "record a policy's operations"
)


class OperationMode(_DispatchMode):  # type: ignore[misc]
    """Context in which `__torch_dispatch__` receives every operation.

    PyTorch documents the base class under this name. Without it, policies cannot be frozen.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Prevent PyTorch from importing its compiler for this class, which takes seconds."""
        return False
