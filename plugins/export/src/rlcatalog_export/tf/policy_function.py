"""A policy as a traced function from observations and noise to actions."""

from __future__ import annotations

import copy
import traceback
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import numpy as np

import rlcatalog_tf
from rlcatalog.errors import CatalogError, NotServedError, reason
from rlcatalog_export.export_error import line_of
from rlcatalog_export.policy_function import PolicyFunction
from rlcatalog_export.tf.noise import TFNoise
from rlcatalog_policy import Policy
from rlcatalog_tf import OPS, drawing_from, tf
from rlcatalog_tf.private_api import inner_graphs


class TFPolicyFunction(PolicyFunction, tf.Module):  # type: ignore[misc]
    """Copy of a policy as a function of tensors, described by `interface`.

    Args:
        policy: The policy, which is copied.

    Attributes:
        program: The function from a dict of inputs to a dict of outputs, traced for any number of
            rows.

    Raises:
        NotServedError: The policy uses something that cannot be exported.
    """

    noise_class = TFNoise
    drawing = staticmethod(drawing_from)

    def __init__(self, policy: Policy) -> None:
        tf.Module.__init__(self)
        PolicyFunction.__init__(self, copy.deepcopy(policy), OPS)
        self.program = self._traced()

    def drawing_given(self, numbers: np.ndarray[Any, Any]) -> AbstractContextManager[Any]:
        """Return a context in which the policy samples from given numbers `[B, k]`,
        as a file does.
        """
        return self.policy.backend.untraced(TFNoise(len(numbers), numbers))  # type: ignore[no-any-return]

    def _traced(self) -> Any:
        """Return the traced function.

        Raises:
            NotServedError: The policy cannot be traced, or uses TensorFlow's random numbers.
        """
        ports = self.interface.inputs
        signature = []
        for port in ports:
            has_batch_axis = port.role != "deterministic"
            shape = [None, *port.shape] if has_batch_axis else []
            signature.append(tf.TensorSpec(shape, port.dtype, port.name))
        names = [port.name for port in ports]

        def run(*tensors: Any) -> dict[str, Any]:
            given = dict(zip(names, tensors, strict=True))
            noise = TFNoise(rows=None, uniforms=given.get("noise"), widths=self.widths)
            outputs = self.run(given, noise)
            # A SavedModel must not return its own inputs.
            return {name: tf.identity(tensor) for name, tensor in outputs.items()}

        try:
            program = tf.function(
                run, input_signature=signature, autograph=False
            ).get_concrete_function()
        except CatalogError:
            raise
        except Exception as error:
            line = line_of(traceback.extract_tb(error.__traceback__), tf, rlcatalog_tf)
            raise NotServedError(
                f"export: {line or 'this policy'} cannot be exported: {reason(error)}"
            ) from error
        graphs = [program.graph, *inner_graphs(program.graph)]
        for operation in chain.from_iterable(graph.get_operations() for graph in graphs):
            if "Random" in operation.type or operation.type in ("Multinomial", "TruncatedNormal"):
                line = line_of(operation.traceback, tf, rlcatalog_tf)
                raise NotServedError(
                    f"export: {line or operation.name} uses TensorFlow's random numbers"
                    f" ({operation.type}), but a file only samples from given noise. Use"
                    " draw_uniform, draw_normal, draw_gamma and draw_categorical from"
                    " rlcatalog_tf."
                )
        return program
