"""Framework-independent code for plain memories.

Each framework's `PlainMemory` inherits from `Memory` and then from the framework's base class for
models.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    ModelContractError,
    NotServedError,
    raised_as,
)
from rlcatalog.frameworks import Tensor, TensorTree, ops_of, tensor_ops
from rlcatalog.models import ModelV2, last_values, memory_outputs
from rlcatalog_plain.memory.state_layout import StateLayout, walk
from rlcatalog_plain.module_source import ModelOfModule

#: Number of rows with which a module is tried.
_TRIED_ROWS = 2


class Memory(ModelOfModule):
    """Recurrent layer, or module with a state, after a trunk, followed by logits and a value.

    `[S * T, obs] → trunk → module [S * T, width] → logits [S * T, outputs]`, and a value layer that
    reads the same features. When built as a trunk (`num_outputs=None`), the model ends with the
    module. The model's state is the module's, each of its tensors as a vector; the model returns
    the state at the end of each sequence, before the padding.

    A module is a recurrent layer of the framework, or has `initial_state(batch_size)` and a
    `forward(x, state) -> (y, state)` (in Keras: `call`) for one step.

    Each framework's class also implements the methods that raise NotImplementedError here.

    Args:
        *args: See `ModelV2`.
        trunk: The wrapped model.
        **options: Keyword arguments for the class or factory, from `memory_config`.

    Attributes:
        trunk: The wrapped model.
        module: The module.
        layout: The structure of the module's state.
        module_width: Width of its output.
        outputs: The layers for logits and value, or None.
        outputs_class: The framework's `OutputLayers`.
        expected: What a memory can be in this framework, for error messages.

    Raises:
        ConfigError: An argument is unknown or missing, or the value needs a second memory.
        ModelContractError: The module does not fit the trunk, or breaks the protocol.
        NotServedError: The module cannot be used as a memory.
    """

    is_memory = True
    options_key = "memory_config"
    outputs_class: Any
    expected: ClassVar[str]

    def __init__(self, *args: Any, trunk: ModelV2, **options: Any) -> None:
        super().__init__(*args)
        trunk_width = trunk.num_outputs
        assert trunk_width is not None, "the catalog checks a trunk before it wraps it"
        self._trunk_width = trunk_width
        self._refuse_sharing()
        self.trunk = trunk
        self.module = self.make_module(options)
        self.check_module()
        state = self._try_initial_state()
        self.layout = StateLayout(state, tensor_ops(self.framework))
        self.module_width = self._try_step(state)
        layers = memory_outputs(self.model_config, self.module_width, self.num_outputs, "memory")
        self.num_outputs = layers.num_outputs
        self.outputs: Any = None
        if layers.logits is not None:
            self.outputs = self.outputs_class(layers)
        # The value layer's input in the last forward pass, which `value_function` reads.
        self._features: Any = None

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits for sequences; see `ModelV2.forward`."""
        x = self.trunk_features(input_dict)
        if input_dict.get("single_steps"):
            seq_lens = None
        has_sequences = seq_lens is not None
        # With "outputs_only", the caller ignores the new state and the outputs at padded places.
        ignores_state = has_sequences and bool(input_dict.get("outputs_only"))
        has_no_padding = has_sequences and bool(input_dict.get("no_padding"))
        if not state:
            state = self.start(x if seq_lens is None else seq_lens)
        features, new_state = self.run(
            x,
            state,
            seq_lens,
            # Then padding is ignored or does not exist, so it may be processed like steps.
            like_steps=ignores_state or has_no_padding,
            training=bool(input_dict.get("is_training")),
        )
        if ignores_state:
            new_state = []
        if self.outputs is None:
            return features, new_state
        self._features = features
        return self.outputs(features), new_state

    def value_function(self) -> Any:
        """Return the value estimates `[S * T]` of the last forward pass."""
        return last_values(self, self._features)

    def get_initial_state(self) -> list[Any]:
        """Return the module's state at the start of an episode, each of its tensors as a vector."""
        return [vector[0] for vector in self.layout.vectors(self.initial_state(rows=1))]

    # --- methods of each framework's class --------------------------------------------------------

    def trunk_features(self, input_dict: dict[str, Any]) -> Any:
        """Return the trunk's features `[S * T, n]`."""
        raise NotImplementedError

    def start(self, like: Tensor) -> list[Any]:
        """Return the state vectors `[S, n]` at the start of episodes.

        Args:
            like: A tensor with a row for each episode.
        """
        raise NotImplementedError

    def run(
        self,
        x: Tensor,
        state: list[Any],
        seq_lens: Tensor | None,
        like_steps: bool,
        training: bool,
    ) -> tuple[Any, list[Any]]:
        """Run the module.

        Args:
            x: The trunk's features `[S * T, n]`, padded to equal lengths.
            state: The state vectors `[S, n]` before the first step.
            seq_lens: Lengths `[S]`, or None for single steps.
            like_steps: Whether to process padding like steps.
            training: Whether the pass is for training.

        Returns:
            Features `[S * T, width]`, with zeros at padded places, and the state vectors at the end
            of each sequence.
        """
        raise NotImplementedError

    def check_module(self) -> None:
        """Raise an error unless the module is a memory that fits the trunk."""
        raise NotImplementedError

    def initial_state(self, rows: int) -> Any:
        """Return the module's state at the start of episodes, with a row for each."""
        raise NotImplementedError

    def try_step(self, state: TensorTree, rows: int) -> Any:
        """Run the module for one step on zeros, in eval mode and without side effects."""
        raise NotImplementedError

    def is_trained(self, state: TensorTree) -> bool:
        """Return whether weights of the module are in a state."""
        raise NotImplementedError

    # --- what a class or factory is called with ---------------------------------------------------

    def first_arguments(
        self, signature: inspect.Signature, keywords: Mapping[str, Any]
    ) -> list[Any]:
        """Return the width of the trunk's features, if the class or factory takes it: if its first
        parameter that no keyword fills is required.
        """
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                return [self._trunk_width]
            if parameter.name in keywords:
                continue
            is_positional = parameter.kind in (
                parameter.POSITIONAL_ONLY,
                parameter.POSITIONAL_OR_KEYWORD,
            )
            if is_positional and parameter.default is parameter.empty:
                return [self._trunk_width]
            return []
        return []

    # --- errors about the module ------------------------------------------------------------------

    def refuse_width(self, module_width: int) -> None:
        """Raise an error unless the module takes inputs of the trunk's width."""
        if module_width == self._trunk_width:
            return
        name = type(self).__name__
        raise ModelContractError(
            f"memory: {name} takes {module_width} inputs, but the trunk has {self._trunk_width}"
            f" features. Pass its class, which gets the width (memory={name},"
            " memory_config={...}), or build it with"
            f" {self._trunk_width} inputs."
        )

    def no_memory(self) -> NotServedError:
        """Return the error for a module without a state."""
        return NotServedError(
            f"memory: {type(self).__name__} cannot be used as a memory: expected {self.expected}."
        )

    def not_served(self, what: str, advice: str) -> NotServedError:
        """Return the error for a recurrent layer with an option that cannot be served."""
        return NotServedError(f"memory: {type(self).__name__} with {what}. {advice}")

    # --- internals --------------------------------------------------------------------------------

    def _refuse_sharing(self) -> None:
        """Raise an error if the policy and the value would share the weights of an instance that
        the config asks to separate.
        """
        config = self.model_config
        value_has_memory = config.get("vf_memory", "own") != "none"
        if not self.is_instance or config.get("vf_share_layers", True) or not value_has_memory:
            return
        name = type(self).__name__
        raise ConfigError(
            f"vf_share_layers=False: the value needs a second memory, but {name} is an instance."
            f" Pass its class (memory={name}) or a function that creates one, or set"
            " vf_share_layers=True."
        )

    def _try_initial_state(self) -> Any:
        """Return the module's initial state for two rows, checked."""
        name = type(self).__name__
        call = f"{name}.initial_state({_TRIED_ROWS})"
        with raised_as(
            lambda why: ModelContractError(f"memory: {call} raised {why}"), CatalogError
        ):
            state = self.initial_state(rows=_TRIED_ROWS)
        places = list(walk(state))
        if not places:
            raise ModelContractError(
                f"memory: {call} returned no tensors, so nothing would be kept from step to step."
            )
        for place, tensor in places:
            # A user's module can return anything.
            shape = tuple(getattr(tensor, "shape", ()))
            if shape[:1] != (_TRIED_ROWS,) or ops_of(tensor).framework != self.framework:
                raise ModelContractError(
                    f"memory: {call} must return tensors with a row per episode,"
                    f" [{_TRIED_ROWS}, ...]; found {_describe(tensor)} at state{place}."
                )
        if self.is_trained(state):
            raise NotServedError(
                f"memory: {call} returns weights of the module. A policy stores states as data, so"
                " they would never be trained. Return zeros, or call detach() on them."
            )
        return state

    def _try_step(self, state: TensorTree) -> int:
        """Run the module for one step, and return the width of its output.

        Raises:
            ModelContractError: It raises an error, or returns something else than output and state.
        """
        name = type(self).__name__
        occasion = f"for features [{_TRIED_ROWS}, {self._trunk_width}] and its initial state"
        with raised_as(
            lambda why: ModelContractError(f"memory: {name} raised {why}, {occasion}."),
            CatalogError,
        ):
            result = self.try_step(state, rows=_TRIED_ROWS)
        is_pair = isinstance(result, tuple | list) and len(result) == 2
        if not is_pair:
            raise ModelContractError(
                f"memory: {name} must return (y, state), found {_describe(result)}, {occasion}."
            )
        y, new_state = result
        # A user's module can return anything.
        shape = tuple(getattr(y, "shape", ()))
        if len(shape) != 2 or shape[0] != _TRIED_ROWS:
            raise ModelContractError(
                f"memory: {name} must return y as [B, m], found {_describe(y)}, {occasion}."
            )
        tensors = self.layout.tensors(new_state)
        for leaf, tensor in zip(self.layout.leaves, tensors, strict=True):
            # A user's module can return anything.
            new_shape = tuple(getattr(tensor, "shape", ()))
            if new_shape != (_TRIED_ROWS, *leaf.shape):
                raise ModelContractError(
                    f"memory: {name} must return states of the shapes that initial_state returns:"
                    f" expected [B, {', '.join(map(str, leaf.shape))}] at state{leaf.place}, found"
                    f" {_describe(tensor)}, {occasion}."
                )
        return int(shape[1])


def _describe(value: Any) -> str:
    """Return the type, and the shape if there is one, of what a module returned."""
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    # A user's module can return anything.
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value).__name__
    return f"{type(value).__name__} of shape {tuple(shape)}"
