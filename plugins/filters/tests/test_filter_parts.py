"""The small parts that filters are made of, each by itself."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo, default_catalog
from rlcatalog_filters.config import FiltersConfig
from rlcatalog_filters.encoded import leaves_to_filter
from rlcatalog_filters.mean_std import scaling
from rlcatalog_filters.running_stat import RunningStat, worst_place


@pytest.mark.parametrize(
    ("batch", "place"),
    [
        ([[1, 2], [3, -9]], (1, 1)),
        ([[-5, 2], [3, 4]], (0, 0)),
        ([[1, 2], [7, -4]], (1, 0)),
        ([[1, 2], [np.nan, np.inf]], (1, 0)),
        ([[1, -np.inf], [np.nan, 2]], (0, 1)),
    ],
)
def test_the_worst_place_is_the_first_that_is_no_number_or_the_largest_of_either_sign(batch, place):
    assert worst_place(np.array(batch, np.float64)) == place


@pytest.mark.parametrize(
    "options", [{}, {"demean": False}, {"destd": False}, {"demean": False, "destd": False}]
)
def test_unless_told_otherwise_the_mean_is_subtracted_and_the_deviation_divided_by(options):
    values = np.random.default_rng(0).normal(3, 2, (20, 2))
    stat = RunningStat((2,))
    for row in values:
        stat.push(row)
    offset, factor = scaling(stat, **options)
    np.testing.assert_allclose(
        offset, values.mean(axis=0) if options.get("demean", True) else [0, 0], rtol=1e-12
    )
    expected = 1 / values.std(axis=0, ddof=1) if options.get("destd", True) else [1, 1]
    np.testing.assert_allclose(factor, expected, rtol=1e-5)


def test_what_a_head_reads_itself_is_left_alone_unless_asked_for():
    space = spaces.Dict(
        avail=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))]),
        available=spaces.Box(-1, 1, (2,)),
    )
    leaves = default_catalog().preprocessor_for(SpaceInfo.read(space), {}).leaves()

    def chosen(claimed, **options):
        return [
            leaf.path
            for leaf in leaves_to_filter(leaves, FiltersConfig(**options), "action_mask", claimed)
        ]

    names = ["obs['avail'][0]", "obs['avail'][1]", "obs['available']"]
    assert chosen(()) == names
    assert chosen(["obs['avail']"]) == names[2:]
    assert chosen(["obs['avail'][1]"]) == [names[0], names[2]]
    assert chosen(["obs['avail']", "obs['available']"]) == []
    assert chosen(["obs['avail']"], filter_include=["obs['avail'][0]"]) == [names[0]]
