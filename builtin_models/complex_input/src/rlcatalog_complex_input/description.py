"""Description of a complex-input network before it is built: networks, stages and shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rlcatalog import Request, Stage
from rlcatalog.choice import model_stages
from rlcatalog.errors import CatalogError, UnsupportedSpaceError
from rlcatalog_complex_input.config import plan_last_layers
from rlcatalog_complex_input.parts import Items, ObservationPart
from rlcatalog_complex_input.plans import Net, Plan, plan_nets


class PartStages(NamedTuple):
    """Stages of one or several parts.

    Attributes:
        stages: The stages.
        width: Width of the parts' features, or None if a net's width is unknown.
    """

    stages: list[Stage]
    width: int | None


def plan_of(request: Request) -> Plan | None:
    """Return the plan for a request, or None if the config leaves open how observations are
    encoded.

    Raises:
        UnsupportedSpaceError: The observations are not encoded.
    """
    from rlcatalog.catalog import default_catalog

    if request.encoded_shape is None:
        raise unencoded(request.obs.describe())
    catalog = request.catalog or default_catalog()
    request = request.replace(catalog=catalog)
    preprocessor = request.preprocessor
    if preprocessor is None:
        try:
            preprocessor = catalog.preprocessor_for(request.obs, request.config, check="never")
        except UnsupportedSpaceError:
            # The space needs a config key, such as a longest length, that this config lacks.
            return None
    # Otherwise another preprocessor, unknown here, has encoded the observations.
    if preprocessor.shape != request.encoded_shape:
        return None
    return plan_nets(preprocessor, request)


def unencoded(space: str) -> UnsupportedSpaceError:
    """Return the error for a space without a preprocessor."""
    return UnsupportedSpaceError(
        f"complex_input needs encoded observations, not observations of {space}: pass"
        " ModelCatalog.get_preprocessor_for_space(space).observation_space."
    )


def stages(request: Request) -> list[Stage]:
    """Return the stages of all networks and of the layers after them; raise an error if they cannot
    be built.
    """
    plan = plan_of(request)
    parts = PartStages([], width=None)
    if plan is not None:
        parts = _describe_parts(plan.parts, plan.nets)
    layers = plan_last_layers(request.config, parts.width or 0, request.num_outputs)
    features = Stage("concatenated features", _vector(parts.width), weights=0)
    return layers.stages("post_fcnet", before=[*parts.stages, features])


def _describe_parts(parts: Sequence[ObservationPart | Items], nets: Sequence[Net]) -> PartStages:
    """Return the stages of several parts, and the width of their concatenated features."""
    stages: list[Stage] = []
    width: int | None = 0
    for part in parts:
        if isinstance(part, Items):
            described = _describe_items(part, nets)
        else:
            described = _describe_net(nets[part.index])
        stages += described.stages
        if width is None or described.width is None:
            width = None  # one unknown width makes the sum unknown
        else:
            width += described.width
    return PartStages(stages, width)


def _describe_items(items: Items, nets: Sequence[Net]) -> PartStages:
    """Return the stages of a list: those of its items, and the average over them."""
    inner = _describe_parts(items.parts, nets)
    width = None
    if inner.width is not None:
        width = inner.width + 1  # the list's length
    features = "average of the items, length" if items.parts else "length"
    stage = Stage(f"{items.path}: {features}", _vector(width), weights=0)
    return PartStages([*inner.stages, stage], width)


def _describe_net(net: Net) -> PartStages:
    """Return the stages of a part's net."""
    part = net.part
    stages = _stages_of_net(net)
    if not stages:
        # A net without stages passes its input through.
        return PartStages([], math.prod(part.shape))
    shape = stages[-1].shape
    width = shape[-1] if shape else None
    return PartStages(
        [replace(stage, name=f"{part.path}: {stage.name}") for stage in stages], width
    )


def _stages_of_net(net: Net) -> list[Stage]:
    """Return the stages of a net; an error names its part."""
    try:
        return model_stages([net.trunk], net.request, num_outputs=None)
    except CatalogError as error:
        if net.part.path not in str(error):
            error.args = (f"{net.part.path}: {error}",)
        raise


def _vector(width: int | None) -> tuple[int] | None:
    """Return the shape of a vector, or None if its width is unknown."""
    return None if width is None else (width,)
