"""Framework-independent code for the complex-input network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlcatalog import Request, SpaceInfo, default_catalog
from rlcatalog.config import plain
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.models import ModelPart, ModelV2, assemble, last_values
from rlcatalog.observations import is_structure, preprocessor_of
from rlcatalog_complex_input.config import plan_last_layers
from rlcatalog_complex_input.description import unencoded
from rlcatalog_complex_input.parts import Inputs, width_of
from rlcatalog_complex_input.plans import Net, Plan, plan_nets

if TYPE_CHECKING:
    from gymnasium import Space


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
        obs_space: Space[Any],
        action_space: Space[Any] | None,
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        plan = plan_for(self)
        self._parts = plan.parts
        self._paths = [net.part.path for net in plan.nets]
        # Whether a net reads columns of the encoded observation, as for texts and graphs.
        self._reads_columns = any(part.columns is not None for part in plan.parts)
        self.nets = self._build(plan.nets, "net")  # "net" begins the nets' names
        features_width = width_of(plan.parts, list(self.nets))
        layers = plan_last_layers(self.model_config, features_width, num_outputs)
        self.num_outputs = layers.num_outputs
        self.hidden = self.stack_class(layers.num_inputs, layers.hidden)
        self.value_nets = None
        self.value_hidden = None
        self.outputs = None
        # The value layer's input in the last forward pass, which `value_function` reads.
        self._features: Any = None
        if num_outputs is None:
            return
        if not layers.value_shares_hidden:
            # With vf_share_layers=False, the value has its own nets and layers.
            self.value_nets = self._build(plan.nets, "value_net")
            self.value_hidden = self.stack_class(layers.num_inputs, layers.hidden)
        self.outputs = self.outputs_class(layers)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        # A caller may pass only the structure of an observation, without the encoded columns.
        encoded = None
        if self._reads_columns and not is_structure(input_dict["obs_flat"]):
            encoded = input_dict["obs_flat"]
        inputs = Inputs(self.ops, self.dtype_of(self))
        inputs.read(self._parts, input_dict["obs"], encoded)
        is_training = input_dict.get("is_training", False)
        features = self.hidden(self._join(self.nets, inputs, is_training))
        if self.outputs is None:
            return features, state
        if self.value_nets is None or self.value_hidden is None:
            self._features = features
        else:
            self._features = self.value_hidden(self._join(self.value_nets, inputs, is_training))
        return self.outputs(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def inner_models(self) -> dict[str, ModelV2]:
        """Return the nets, keyed by their parts' paths; their losses, metrics and update_ops belong
        to the model.
        """
        models = {}
        for path, net in zip(self._paths, self.nets, strict=True):
            models[f"{path}: "] = net
        if self.value_nets is not None:
            for path, net in zip(self._paths, self.value_nets, strict=True):
                models[f"value: {path}: "] = net
        return models

    def _build(self, nets: tuple[Net, ...], name: str) -> Any:
        models = [build_net(self, net, f"{self.name}_{name}{net.part.index}") for net in nets]
        return self.list_class(models)

    def _join(self, nets: Iterable[ModelV2], inputs: Inputs, is_training: bool | Tensor) -> Any:
        """Return the concatenated features of all parts."""
        return inputs.features(self._parts, list(nets), is_training)


def plan_for(model: ComplexInput) -> Plan:
    """Return the plan for a complex-input network, based on its constructor's arguments.

    The model's space of encoded observations has a preprocessor, which knows the catalog that
    created it. Without one (a Box, or integers with `_disable_preprocessor_api`), the config knows
    the catalog that builds the model.

    Raises:
        UnsupportedSpaceError: The observations are not encoded.
        CatalogError: See `rlcatalog_complex_input.plans.plan_nets`.
    """
    preprocessor = preprocessor_of(model.obs_space)
    if preprocessor is not None:
        catalog = preprocessor.catalog
    else:
        catalog = model.model_config.catalog or default_catalog()
    # The model's config may lack keys, whose defaults the catalog knows.
    config = {**catalog.parse_config(None), **model.model_config}
    if preprocessor is None:
        # It only describes the space and encodes no observations, so it checks none.
        preprocessor = catalog.preprocessor_for(model.obs_space, config, check="never")
        if preprocessor.structured:
            # A model sees the parts of such a space, which come from encoded observations.
            raise unencoded(preprocessor.info.describe())
    action = None
    if model.action_space is not None:
        action = SpaceInfo.read(model.action_space, "action")
    request = Request(
        obs=preprocessor.info,
        action=action,
        config=config,
        framework=model.framework,
        encoded_shape=preprocessor.shape,
        catalog=catalog,
        is_repeated=True,  # the nets were chosen when the model was described
    )
    return plan_nets(preprocessor, request, model.obs_space)


def build_net(model: ComplexInput, net: Net, name: str) -> ModelV2:
    """Build a part's net as a trunk.

    Raises:
        ModelContractError: The net does not set `num_outputs`, the width of its features.
        NotServedError: The net has a state, or requests other inputs than the current observation.
    """
    cls = net.trunk.load(model.framework)
    config = net.request.config
    trunk = assemble(
        [ModelPart(cls)],
        net.space,
        model.action_space,
        num_outputs=None,
        fresh_config=lambda: plain(config),  # each model gets its own copy
        name=name,
    )
    if not isinstance(trunk.num_outputs, int):
        raise ModelContractError(
            f"{cls.__name__} was built as a trunk for {net.part.path} (num_outputs=None), but did"
            " not set self.num_outputs to the width of its features."
        )
    views = sorted(set(trunk.view_requirements) - {"obs"})
    has_state = bool(list(trunk.get_initial_state()))
    if views or has_state:
        wants = f"requests the views {views}" if views else "has a state"
        raise NotServedError(
            f"{net.part.path}: {cls.__name__} {wants}, but the net for a part sees only the"
            " current observation. Name a different net in input_nets, and put the memory after"
            " complex_input."
        )
    return trunk
