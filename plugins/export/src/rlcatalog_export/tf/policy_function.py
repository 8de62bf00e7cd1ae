"""A policy as one traced function of tensors: from observations and noise to actions."""

from __future__ import annotations

import copy
import importlib
from contextlib import AbstractContextManager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

import rlcatalog_tf
from rlcatalog.errors import CatalogError, NotServedError, reason
from rlcatalog_export import Exported
from rlcatalog_export.policy_function import PolicyFunction
from rlcatalog_export.user_lines import line_of
from rlcatalog_tf import OPS, Noise, drawing_from, tf

if TYPE_CHECKING:
    from rlcatalog_policy import Policy


class LoweredPolicy(PolicyFunction, tf.Module):  # type: ignore[misc]
    """A copy of a policy as one function of tensors; `interface` says which.

    Args:
        policy: The policy; it is copied.

    Attributes:
        program: The function, traced for any number of rows: inputs by name to outputs by name.
        held: The variables that it reads; a module that is saved holds them.

    Raises:
        NotServedError: The policy does something that cannot be exported.
    """

    def __init__(self, policy: Policy) -> None:
        tf.Module.__init__(self)
        PolicyFunction.__init__(self, copy.deepcopy(policy), OPS)
        self.program = self._traced()
        self.held = list(self.program.graph.variables)

    def new_noise(self, rows: int) -> Noise:
        """Return noise that draws its numbers itself and counts them."""
        return Noise(rows)

    def drawing(self, noise: Noise) -> AbstractContextManager[Any]:
        """Return a context in which distributions draw from noise."""
        return drawing_from(noise)

    def written(self) -> Exported:
        """Return what a written file is compared with."""

        def drawing(noise: np.ndarray[Any, Any]) -> AbstractContextManager[Any]:
            untraced: AbstractContextManager[Any] = self.policy.backend.untraced(Noise(len(noise), noise))
            return untraced

        return Exported(self.interface, self.policy, drawing)

    def _traced(self) -> Any:
        """Return the traced function.

        Raises:
            NotServedError: It cannot be traced, or draws by itself.
        """
        ports = self.interface.inputs
        signature = [
            tf.TensorSpec([] if port.role == "deterministic" else [None, *port.shape], port.dtype, port.name)
            for port in ports
        ]

        def run(*tensors: Any) -> dict[str, Any]:
            given = dict(zip((port.name for port in ports), tensors, strict=True))
            outputs = self.run(given, Noise(None, given.get("noise"), self.widths))
            return {name: tf.identity(tensor) for name, tensor in outputs.items()}

        try:
            program = tf.function(run, input_signature=signature, autograph=False).get_concrete_function()
        except CatalogError:
            raise
        except Exception as error:
            line = line_of(error.__traceback__, tf, rlcatalog_tf)
            raise NotServedError(f"export: {line or 'this policy'} cannot be exported: {reason(error)}") from error
        graphs = [program.graph, *(getattr(one, "graph", program.graph) for one in program.graph._functions.values())]
        for operation in chain.from_iterable(graph.get_operations() for graph in graphs):
            if "Random" in operation.type or operation.type in ("Multinomial", "TruncatedNormal"):
                line = line_of(operation.traceback, tf, rlcatalog_tf)
                raise NotServedError(
                    f"export: {line or operation.name} draws by itself ({operation.type}), and a file draws from given"
                    " noise alone: take draw_uniform, draw_normal, draw_gamma and draw_categorical of rlcatalog_tf."
                )
        return program


def constant_program(lowered: LoweredPolicy) -> Any:
    """Return a policy's program with its weights as constants, for what converts graphs."""
    convert = importlib.import_module("tensorflow.python.framework.convert_to_constants")

    return convert.convert_variables_to_constants_v2(lowered.program, lower_control_flow=False)
