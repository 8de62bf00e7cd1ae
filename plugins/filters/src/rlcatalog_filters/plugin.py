"""Plugin declarations: the filters that `observation_filter` can name, besides the kernel's
`"NoFilter"`.
"""

from __future__ import annotations

from rlcatalog import FilterSpec, hookimpl


@hookimpl
def rlcatalog_filters() -> list[FilterSpec]:
    return [
        FilterSpec(
            "MeanStdFilter",
            {"numpy": "rlcatalog_filters.encoded_filter:EncodedMeanStdFilter"},
            "normalises numbers: subtracts their running mean and divides by their running"
            " standard deviation",
            config="rlcatalog_filters.config:FiltersConfig",
            reads=("observation_filter", "action_mask_key"),
        )
    ]
