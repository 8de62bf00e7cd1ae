"""Description of a complex-input network before it is built: networks, stages and shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rlcatalog import Request, Stage
from rlcatalog.choice import model_stages
from rlcatalog.errors import CatalogError, UnsupportedSpaceError
from rlcatalog_complex_input.config import ending
from rlcatalog_complex_input.parts import Items, ObservationPart
from rlcatalog_complex_input.plans import Net, Plan, plan as make_plan


def planned(request: Request) -> Plan | None:
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
    if (preprocessor := request.preprocessor) is None:
        try:
            preprocessor = catalog.preprocessor_for(request.obs, request.config, check="never")
        except UnsupportedSpaceError:
            return None  # only the preprocessor knows the sizes it needs
    return make_plan(preprocessor, request) if preprocessor.shape == request.encoded_shape else None


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
    plan = planned(request)
    described: list[Stage] = []
    width = None if plan is None else _describe(plan.parts, plan.nets, described)
    layers = ending(request.config, width or 0, request.num_outputs)
    described.append(Stage("concatenated features", None if width is None else (width,), 0))
    return layers.stages("post_fcnet", described)


def _describe(
    parts: Sequence[ObservationPart | Items], nets: Sequence[Net], into: list[Stage]
) -> int | None:
    """Append the parts' stages; return the width of their features, or None if a net's width is
    unknown.
    """
    widths: list[int | None] = []
    for part in parts:
        if isinstance(part, Items):
            inner = _describe(part.parts, nets, into)
            width = None if inner is None else inner + 1
            what = "average of the items, length" if part.parts else "length"
            into.append(Stage(f"{part.path}: {what}", None if width is None else (width,), 0))
        else:
            net = nets[part.index]
            own = _own_stages(net)
            into += [replace(stage, name=f"{part.path}: {stage.name}") for stage in own]
            # A net without stages passes its input through.
            width = (
                math.prod(part.shape) if not own else own[-1].shape[-1] if own[-1].shape else None
            )
        widths.append(width)
    known = [width for width in widths if width is not None]
    return sum(known) if len(known) == len(widths) else None


def _own_stages(net: Net) -> list[Stage]:
    try:
        return model_stages([net.trunk], net.request, None)
    except CatalogError as error:
        if net.part.path not in str(error):
            error.args = (f"{net.part.path}: {error}",)
        raise
