"""The nets inside, built the same way for both frameworks."""

from __future__ import annotations

from typing import Any

from rlcatalog import Request, SpaceInfo
from rlcatalog.catalog import default_catalog
from rlcatalog.config import plain
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.models import ModelPart, ModelV2, assemble
from rlcatalog.observations import preprocessor_of
from rlcatalog_complex_input.describing import unencoded
from rlcatalog_complex_input.parts import nets_of
from rlcatalog_complex_input.planning import Net, Plan, plan


class NetsInside:
    """A model with a net for each part: their losses, metrics and update_ops are the model's."""

    def inner_models(self) -> dict[str, ModelV2]:
        """Return the nets, by the paths of their parts."""
        model: Any = self
        paths = [part.path for part in nets_of(model._complex_input_parts)]
        found = {f"{path}: ": net for path, net in zip(paths, model.nets, strict=True)}
        if model.value_nets is not None:
            found |= {f"value: {path}: ": net for path, net in zip(paths, model.value_nets, strict=True)}
        return found


def plan_for(model: Any) -> Plan:
    """Return the plan of a complex-input network from what its constructor was given.

    Raises:
        UnsupportedSpaceError: The observations are not encoded.
        CatalogError: See `rlcatalog_complex_input.planning.plan`.
    """
    preprocessor = preprocessor_of(model.obs_space)
    catalog = default_catalog() if preprocessor is None else preprocessor.catalog
    config = {**catalog.schema.defaults(), **model.model_config}
    if preprocessor is None:
        preprocessor = catalog.preprocessor_for(model.obs_space, config, check="never")
        if preprocessor.structured:
            raise unencoded(preprocessor.info.describe())
    action = None if model.action_space is None else SpaceInfo.read(model.action_space, "action")
    request = Request(preprocessor.info, action, config, model.framework, preprocessor.shape, catalog=catalog)
    return plan(preprocessor, request, model.obs_space)


def build_nets(model: Any, nets: tuple[Net, ...], name: str) -> list[Any]:
    """Build the net of each part, as a trunk.

    Raises:
        ModelContractError: A net does not announce the width of its features.
        NotServedError: A net has a state, or asks for more than the current observation.
    """
    return [_build(model, net, f"{name}{net.part.index}") for net in nets]


def _build(model: Any, net: Net, name: str) -> Any:
    cls = net.component.load(model.framework)
    config = net.request.config
    made = assemble([ModelPart(cls)], net.space, model.action_space, None, lambda: plain(config), name)
    if not isinstance(made.num_outputs, int):
        raise ModelContractError(
            f"{cls.__name__} was built for {net.part.path}, with num_outputs=None, and did not announce the width of"
            " its features in self.num_outputs."
        )
    views = sorted(set(made.view_requirements) - {"obs"})
    if views or list(made.get_initial_state()):
        wants = f"asks for the views {views}" if views else "has a state"
        raise NotServedError(
            f"{net.part.path}: {cls.__name__} {wants}; a net for one part sees the current observation only."
            " Name another one in input_nets, and put the memory behind complex_input."
        )
    return made
