"""Framework-independent code for the complex-input network."""

from __future__ import annotations

from typing import Any

from rlcatalog import Request, SpaceInfo, default_catalog
from rlcatalog.config import plain
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks import TensorOps
from rlcatalog.models import ModelPart, ModelV2, assemble, last_values
from rlcatalog.observations import is_structure, preprocessor_of
from rlcatalog_complex_input.config import ending
from rlcatalog_complex_input.description import unencoded
from rlcatalog_complex_input.parts import Inputs, features, read, width
from rlcatalog_complex_input.plans import Net, Plan, plan


class ComplexInput(ModelV2):
    """One network per part of the observation, followed by dense layers, logits and a value.

    The catalog chooses a network for each part, unless `input_nets` names one. All items of a list
    share the same networks. The features are averaged over the items, and the list's length is an
    additional feature. With `vf_share_layers=False`, the value has separate networks and layers.
    When built as a trunk (`num_outputs=None`), the network ends with the `post_fcnet` layers or,
    without them, with the concatenated features.

    Attributes:
        ops: The framework's tensor operations.
        stack_class: The framework's stack of dense layers.
        outputs_class: The framework's `OutputLayers`.
        list_class: The framework's container for several layers.
        dtype_of: The framework's function that returns the dtype of a model's weights.
    """

    ops: TensorOps
    stack_class: Any
    outputs_class: Any
    list_class: Any
    dtype_of: Any

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        plan = plan_for(self)
        self.__parts, self.__paths = plan.parts, [net.part.path for net in plan.nets]
        self.__from_columns = any(part.columns is not None for part in plan.parts)
        self.nets = self._build(plan.nets, "net")
        layers = ending(self.model_config, width(plan.parts, list(self.nets)), num_outputs)
        self.num_outputs = layers.outputs
        self.hidden = self.stack_class(layers.inputs, layers.hidden)
        self.value_nets = self.value_hidden = self.outputs = None
        self._features: Any = None
        if num_outputs is not None:
            if not layers.share:
                self.value_nets = self._build(plan.nets, "value_net")
                self.value_hidden = self.stack_class(layers.inputs, layers.hidden)
            self.outputs = self.outputs_class(layers)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        flat = input_dict["obs_flat"] if self.__from_columns else None
        flat = None if is_structure(flat) else flat
        inputs = Inputs(self.dtype_of(self))
        read(self.__parts, input_dict["obs"], flat, self.ops, inputs)
        is_training = input_dict.get("is_training", False)
        answer = self.hidden(self._join(self.nets, inputs, is_training))
        if self.outputs is None:
            return answer, state
        self._features = answer
        if self.value_nets is not None and self.value_hidden is not None:
            self._features = self.value_hidden(self._join(self.value_nets, inputs, is_training))
        return self.outputs(answer), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def inner_models(self) -> dict[str, ModelV2]:
        """Return the nets, keyed by their parts' paths; their losses, metrics and update_ops belong
        to the model.
        """
        models = {f"{path}: ": net for path, net in zip(self.__paths, self.nets, strict=True)}
        if self.value_nets is not None:
            models |= {
                f"value: {path}: ": net
                for path, net in zip(self.__paths, self.value_nets, strict=True)
            }
        return models

    def _build(self, nets: tuple[Net, ...], name: str) -> Any:
        return self.list_class(
            [build_net(self, net, f"{self.name}_{name}{net.part.index}") for net in nets]
        )

    def _join(self, nets: Any, inputs: Inputs, is_training: Any) -> Any:
        """Return the concatenated features of all parts."""
        return features(self.__parts, inputs, list(nets), self.ops, is_training)


def plan_for(model: Any) -> Plan:
    """Return the plan for a complex-input network, based on its constructor's arguments.

    Raises:
        UnsupportedSpaceError: The observations are not encoded.
        CatalogError: See `rlcatalog_complex_input.plans.plan`.
    """
    preprocessor = preprocessor_of(model.obs_space)
    catalog = default_catalog() if preprocessor is None else preprocessor.catalog
    config = {**catalog.parse_config(None), **model.model_config}
    if preprocessor is None:
        preprocessor = catalog.preprocessor_for(model.obs_space, config, check="never")
        if preprocessor.structured:
            raise unencoded(preprocessor.info.describe())
    action = None if model.action_space is None else SpaceInfo.read(model.action_space, "action")
    request = Request(
        preprocessor.info, action, config, model.framework, preprocessor.shape, catalog=catalog
    )
    return plan(preprocessor, request, model.obs_space)


def build_net(model: Any, net: Net, name: str) -> Any:
    """Build a part's net as a trunk.

    Raises:
        ModelContractError: The net does not set `num_outputs`, the width of its features.
        NotServedError: The net has a state, or requests other inputs than the current observation.
    """
    cls = net.trunk.load(model.framework)
    config = net.request.config
    made = assemble(
        [ModelPart(cls)], net.space, model.action_space, None, lambda: plain(config), name
    )
    if not isinstance(made.num_outputs, int):
        raise ModelContractError(
            f"{cls.__name__} was built as a trunk for {net.part.path} (num_outputs=None), but did"
            " not set self.num_outputs to the width of its features."
        )
    views = sorted(set(made.view_requirements) - {"obs"})
    if views or list(made.get_initial_state()):
        wants = f"requests the views {views}" if views else "has a state"
        raise NotServedError(
            f"{net.part.path}: {cls.__name__} {wants}, but the net for a part sees only the"
            " current observation. Name a different net in input_nets, and put the memory after"
            " complex_input."
        )
    return made
