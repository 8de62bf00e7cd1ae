"""`MeanStdFilter` inside a policy, which normalises the quantities in encoded observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space

from rlcatalog import Filter, SpaceInfo
from rlcatalog.config import read_config
from rlcatalog.errors import (
    CatalogWarning,
    ConfigError,
    NotServedError,
    ObservationError,
    SavedPolicyError,
)
from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.observations import Array, Leaf, Preprocessor
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import (
    find_path,
    is_image,
    is_in_part,
    matching_paths,
    parts_above,
    write_path,
)
from rlcatalog_filters.config import FiltersConfig
from rlcatalog_filters.mean_std import MeanStdFilter, scale, scaling
from rlcatalog_filters.running_stat import Moments, RunningStat, worst_place
from rlcatalog_filters.tensor_moments import TensorStatistics


class _Scaling(NamedTuple):
    """The numbers by which `scale` filters whole encoded observations.

    Attributes:
        offset: What is subtracted.
        factor: What the differences are multiplied by.
        low: Lower limits for the results, or None for no limits.
        high: Upper limits for the results, or None.
    """

    offset: Array
    factor: Array
    low: float | Array | None
    high: float | Array | None


class _TensorScaling(NamedTuple):
    """The numbers by which whole encoded observations are filtered on a device.

    Attributes:
        offset, factor, low, high: As in `_Scaling`, as tensors, or numbers for the limits.
        source: The offset of the filtered values alone, a new object after each change.
        clip: The limit on the results.
    """

    offset: Any
    factor: Any
    low: Any
    high: Any
    source: Any
    clip: float | None


class EncodedMeanStdFilter(Filter):
    """Filter that normalises quantities in encoded observations.

    It leaves images, one-hot vectors and flags, masks, indices and padding alone, unless the config
    names them. Pixel by pixel, a camera's image would lose its contrasts, and a pixel that was dark
    at first would be amplified to the limit.

    The filter learns only when it is called with `update=True`, which `Policy.act` never does.

    Args:
        preprocessor: Preprocessor whose output is filtered.
        options: The model config; see `FiltersConfig`.

    Raises:
        ConfigError: A path in the config does not match any leaf.
    """

    def __init__(self, preprocessor: Preprocessor, options: Mapping[str, Any]) -> None:
        super().__init__(preprocessor, options)
        config = read_config(options, FiltersConfig)
        plan = preprocessor.leaves()
        # The catalog adds this key: the leaves that a head reads itself, unfiltered.
        head_paths = options.get("claimed", ())
        image_layout = options.get("image_layout")
        left_alone = [*head_paths, *_images_and_flags(preprocessor, image_layout)]
        mask_key = options.get("action_mask_key", "action_mask")
        # The catalog adds this key, too: leaves that an exported policy does not see.
        hidden_paths = options.get("hidden", ())
        self.leaves = leaves_to_filter(plan, config, mask_key, left_alone, hidden_paths)
        if not self.leaves and not hidden_paths:
            names = ", ".join(f"{leaf.path} ({leaf.kind})" for leaf in plan) or "none"
            warn_caller(
                "observation_filter='MeanStdFilter' has nothing to filter in the leaves "
                f"{names}. Set it to"
                " 'NoFilter', or name leaves in filter_include.",
                CatalogWarning,
            )
        #: Which encoded values are filtered.
        self._is_filtered = np.zeros(preprocessor.size, np.bool_)
        for leaf in self.leaves:
            self._is_filtered[leaf.start : leaf.stop] = True
        self._filters_any = bool(self._is_filtered.any())
        self._filters_all = bool(self._is_filtered.all())
        num_filtered = int(self._is_filtered.sum())
        self._host_statistics = MeanStdFilter((num_filtered,), clip=config.filter_clip)
        #: The statistics and the scaling on a device, if the filter was called with tensors.
        self._tensor_statistics: TensorStatistics | None = None
        self._tensor_scaling: _TensorScaling | None = None
        # The scaling is computed again when something that it depends on has changed.
        self._scaling: _Scaling
        self._scaling_depends_on: tuple[Any, ...] = ()

    @property
    def statistics(self) -> MeanStdFilter:
        """A `MeanStdFilter` over the leaves' concatenated values.

        Workers that collect experience separately use it to combine their statistics:
        `here.statistics.apply_changes(there.statistics)`. If the filter has learned from tensors,
        reading it waits for their device.
        """
        if self._tensor_statistics is not None and self._tensor_statistics.is_ahead:
            self._tensor_statistics.download()
        return self._host_statistics

    def __call__(self, encoded: Array, *, update: bool = False) -> Array:
        """Filter encoded observations.

        Args:
            encoded: Array `[B, *shape]` of any numeric dtype, as the preprocessor returns it.
            update: Whether to update the statistics with the batch first.

        Returns:
            Float32 array of the same shape, with filtered leaves within the clip bounds; if nothing
            is filtered, the given array itself.

        Raises:
            ObservationError: The shape is wrong; or, with `update`, a value of a filtered leaf is
                not finite (in which case the filter stays unchanged).
        """
        if encoded.shape[1:] != self.preprocessor.shape or not encoded.ndim:
            raise ObservationError(
                f"{self.preprocessor.info.path}: expected encoded observations [B,"
                f" *{self.preprocessor.shape}], found shape {encoded.shape}."
            )
        if not self._filters_any:
            return encoded
        flat = encoded.reshape(len(encoded), self.preprocessor.size)
        if update:
            self._learn(flat if self._filters_all else flat[:, self._is_filtered])
        stats = self.statistics
        depends_on = (stats.running_stats.moments, stats.demean, stats.destd, stats.clip)
        # Learning replaces the moments, which are compared by identity.
        if depends_on != self._scaling_depends_on:
            self._scaling = self._compute_scaling()
            self._scaling_depends_on = depends_on
        return scale(flat, *self._scaling).reshape(encoded.shape)

    def lowered(self) -> Callable[[Tensor, TensorOps], Any]:
        """Return the function that filters encoded observations with tensors, for an export."""
        if not self._filters_any:
            return _as_it_is
        current = self._compute_scaling()
        size = self.preprocessor.size
        shape = self.preprocessor.shape

        def limit(bound: float | Array, x: Tensor, ops: TensorOps) -> Any:
            return ops.tensor(np.broadcast_to(bound, size).astype(np.float64), x)

        def apply(x: Tensor, ops: TensorOps) -> Any:
            flat = ops.as_type(ops.flat(x), "float64")
            offset = ops.tensor(np.array(current.offset), flat)
            factor = ops.tensor(np.array(current.factor), flat)
            flat = (flat - offset) * factor
            if current.low is not None and current.high is not None:
                low = limit(current.low, flat, ops)
                high = limit(current.high, flat, ops)
                flat = ops.clip(flat, low, high)
            return ops.rows(ops.as_type(flat, "float32"), shape)

        return apply

    def filter_tensors(self, encoded: Tensor, ops: TensorOps) -> Any:
        """Filter a tensor `[B, *shape]` with the current statistics, on its device."""
        if not self._filters_any:
            return encoded
        scaling = self._tensor_scaling_of(encoded, ops)
        values = ops.scaled(
            ops.flat(encoded), scaling.offset, scaling.factor, scaling.low, scaling.high
        )
        return ops.rows(values, self.preprocessor.shape)

    def _tensor_scaling_of(self, encoded: Tensor, ops: TensorOps) -> _TensorScaling:
        """Return the scaling of the whole vector on the device of a tensor, computed again when
        something that it depends on has changed.
        """
        stats = self._host_statistics
        offset, factor = self._statistics_on_device_of(encoded, ops).scaling()
        current = self._tensor_scaling
        if current is not None and current.source is offset and current.clip == stats.clip:
            return current
        source = offset
        low: Any = None
        high: Any = None
        if stats.clip is not None:
            low = -stats.clip
            high = stats.clip
        if not self._filters_all:
            offset = self._spread_tensor(offset, 0.0, ops)
            factor = self._spread_tensor(factor, 1.0, ops)
            if stats.clip is not None:
                low = ops.constant(self._spread(-stats.clip, elsewhere=-np.inf), offset)
                high = ops.constant(self._spread(stats.clip, elsewhere=np.inf), offset)
        self._tensor_scaling = _TensorScaling(offset, factor, low, high, source, stats.clip)
        return self._tensor_scaling

    def learn_from_tensors(self, encoded: Tensor, rows: Tensor | None, ops: TensorOps) -> None:
        """Update the statistics with a tensor `[B, *shape]`, on its device.

        Rows that contain a number that is not finite are left out.
        """
        if not self._filters_any:
            return
        flat = ops.flat(encoded)
        if not self._filters_all:
            flat = ops.columns_at(flat, np.flatnonzero(self._is_filtered))
        self._statistics_on_device_of(encoded, ops).learn(flat, rows)

    def _statistics_on_device_of(self, encoded: Tensor, ops: TensorOps) -> TensorStatistics:
        """Return the current statistics on the device of a tensor."""
        on_device = self._tensor_statistics
        if on_device is None or not on_device.is_on_device_of(encoded):
            # `self.statistics` first reads what was learned on another device.
            on_device = TensorStatistics(self.statistics, encoded, ops)
            self._tensor_statistics = on_device
        elif not on_device.is_ahead:
            on_device.refresh()
        return on_device

    def _spread_tensor(self, values: Any, elsewhere: float, ops: TensorOps) -> Any:
        """Return a tensor for the whole vector: `values` where it is filtered, and `elsewhere` in
        the other places.
        """
        other_value = ops.constant(np.array([elsewhere]), values)
        all_values = ops.concat([values, other_value])
        place_of_other_value = int(self._is_filtered.sum())
        places = np.where(self._is_filtered, _places_of(self._is_filtered), place_of_other_value)
        return ops.columns_at(all_values[None], places)[0]

    def processed_space(self, preprocessor: Preprocessor) -> Space[Any]:
        """Return a float32 Box: filtered values get the clip bounds, and other values keep their
        own bounds.

        If no leaf is filtered, models see the same as without a filter.
        """
        if not self._filters_any:
            encoded_space: Space[Any] = preprocessor.observation_space
            return encoded_space
        low, high = preprocessor.bounds()
        low = low.astype(np.float32)
        high = high.astype(np.float32)
        limit = np.float32(np.inf)
        if self.statistics.clip is not None:
            limit = np.float32(self.statistics.clip)
        low[self._is_filtered] = -limit
        high[self._is_filtered] = limit
        return preprocessor.processed_space(low, high)  # type: ignore[no-any-return]

    def get_state(self) -> dict[str, Array]:
        """Return `n`, `mean` and `m2` for the filtered values, and which values are filtered
        (`filtered`, `[size]`).
        """
        return {**self.statistics.running_stats.to_state(), "filtered": self._is_filtered.copy()}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Restore statistics that `get_state` returned; the buffer is emptied.

        Raises:
            SavedPolicyError: The statistics are damaged, or they belong to different values of the
                observation.
        """
        is_filtered = state.get("filtered")
        if is_filtered is None:
            raise self._other_values("no 'filtered'")
        if not np.array_equal(is_filtered, self._is_filtered):
            raise self._other_values(f"{int(np.sum(is_filtered))} of {np.size(is_filtered)}")
        saved = RunningStat.from_state(state)
        expected_shape = self.statistics.running_stats.shape
        if saved.shape != expected_shape:
            raise SavedPolicyError(
                f"expected filter statistics of shape {expected_shape}, found {saved.shape}."
            )
        self.statistics.running_stats.moments = saved.moments
        self.statistics.reset_buffer()

    def take_statistics(self, source: Any, source_columns: Array, columns: Array) -> None:
        """Replace the statistics of some values by those of another policy's filter; see
        `rlcatalog.Filter.take_statistics`.

        Raises:
            ConfigError: The filters change different values, or have different limits.
            NotServedError: This filter also changes other values, and has seen a different number
                of them.
        """
        is_moved = self._is_filtered[columns]
        if not np.array_equal(is_moved, source._is_filtered[source_columns]):
            raise ConfigError(
                "the filter changes different values of the observation there: set filter_include"
                " and filter_exclude alike."
            )
        clip = source.statistics.clip
        if self.statistics.clip != clip:
            raise ConfigError(
                f"filter_clip: {self.statistics.clip} here, but {clip} there. Set it to {clip}."
            )
        moments = self.statistics.running_stats.moments
        source_moments = source.statistics.running_stats.moments
        has_other_values = int(is_moved.sum()) < int(self._is_filtered.sum())
        if has_other_values and moments.n != source_moments.n:
            raise NotServedError(
                f"the filter has statistics of {moments.n} observations here and of"
                f" {source_moments.n} there. It counts them for all values together, and here it"
                f" also changes others: {_paths(self.leaves)}."
            )
        # The statistics have a place for each filtered value alone.
        places = _places_of(self._is_filtered)[columns[is_moved]]
        source_places = _places_of(source._is_filtered)[source_columns[is_moved]]
        mean = moments.mean.copy()
        m2 = moments.m2.copy()
        mean[places] = source_moments.mean[source_places]
        m2[places] = source_moments.m2[source_places]
        self.statistics.running_stats.moments = Moments(source_moments.n, mean, m2)
        self.statistics.reset_buffer()

    def _other_values(self, found: str) -> SavedPolicyError:
        """Return the error for statistics of values that this filter does not filter."""
        leaves = _paths(self.leaves)
        return SavedPolicyError(
            "these filter statistics are for different values of the observation: expected"
            f" {self._is_filtered.sum()} of {self._is_filtered.size}"
            f" ({leaves}), found {found}."
        )

    def _learn(self, values: Array) -> None:
        """Update the statistics with the filtered values of a batch.

        Raises:
            ObservationError: A value is not finite.
        """
        try:
            self.statistics.observe(values)
        except ObservationError as error:
            raise self._not_finite(values) from error

    def _not_finite(self, values: Array) -> ObservationError:
        """Return the error that says where a batch has a value that is not finite."""
        row, column = worst_place(values)
        # The filtered column's index in the whole encoded vector.
        place = int(np.flatnonzero(self._is_filtered)[column])
        leaf = next(leaf for leaf in self.leaves if leaf.start <= place < leaf.stop)
        index = np.unravel_index(place - leaf.start, leaf.shape)
        where = ""
        if leaf.shape:
            where = f" at {list(map(int, index))}"
        return ObservationError(
            f"{leaf.path}: expected finite values to filter; found {values[row, column]}"
            f"{where} in row {row} of the batch. The filter has"
            " not learned from this batch. Keep such values out of the observations, or add"
            " the leaf to filter_exclude."
        )

    def _compute_scaling(self) -> _Scaling:
        """Return the scaling of the whole vector, which leaves unfiltered values exactly equal."""
        stats = self.statistics
        offset, factor = scaling(stats.running_stats, stats.demean, stats.destd)
        low: float | Array | None = None
        high: float | Array | None = None
        if stats.clip is not None:
            low = -stats.clip
            high = stats.clip
        if self._filters_all:
            return _Scaling(offset, factor, low, high)
        offset = self._spread(offset, elsewhere=0.0)
        factor = self._spread(factor, elsewhere=1.0)
        if low is not None and high is not None:
            low = self._spread(low, elsewhere=-np.inf)
            high = self._spread(high, elsewhere=np.inf)
        return _Scaling(offset, factor, low, high)

    def _spread(self, values: Array | float, elsewhere: float) -> Array:
        """Return an array for the whole vector: `values` where it is filtered, and `elsewhere` in
        the other places.
        """
        spread = np.full(self.preprocessor.size, elsewhere)
        spread[self._is_filtered] = values
        return spread


def _places_of(is_filtered: Array) -> Array:
    """Return the place of each encoded value among the filtered ones."""
    return np.cumsum(is_filtered) - 1


def _as_it_is(x: Tensor, ops: TensorOps) -> Any:  # noqa: ARG001  (a lowered filter gets both)
    return x


# --- which leaves ---------------------------------------------------------------------------------


def _images_and_flags(preprocessor: Preprocessor, image_layout: str | None) -> list[str]:
    """Return the paths of images, and of integers between 0 and 1."""
    infos = [codec.info for codec in preprocessor.codecs()]
    return [info.path for info in infos if is_image(info, image_layout) or _is_flags(info)]


def _is_flags(info: SpaceInfo) -> bool:
    return info.is_integer_box and bool((info.low >= 0).all() and (info.high <= 1).all())


def leaves_to_filter(
    leaves: Sequence[Leaf],
    config: FiltersConfig,
    action_mask_key: str | None,
    left_alone: Sequence[str] = (),
    hidden_paths: Sequence[str] = (),
) -> list[Leaf]:
    """Return the leaves that contain quantities, or the leaves that the config names; never an
    action mask.

    Args:
        leaves: The leaves of a preprocessor's plan.
        config: The model config, which names leaves to include and exclude.
        action_mask_key: Key of the action mask in Dict observations, at any depth; or a path; or
            None.
        left_alone: Paths of leaves that only `filter_include` can add: images, flags, and what a
            head reads itself, which describes actions.
        hidden_paths: Paths of leaves that the config may name although they are not in the plan.

    Raises:
        ConfigError: A path in the config does not match any leaf, has several meanings, or matches
            only an action mask.
    """
    masks = _mask_leaves(leaves, action_mask_key)
    if config.filter_include is None:
        selection = []
        for leaf in leaves:
            if leaf.numeric and not _is_in_any(left_alone, leaf):
                selection.append(leaf)
    else:
        selection = _matching(leaves, config.filter_include, "filter_include", hidden_paths)
        for path in config.filter_include:
            named_leaves = _matching(leaves, [path], "filter_include", hidden_paths)
            if named_leaves and all(leaf in masks for leaf in named_leaves):
                raise ConfigError(
                    f"filter_include: {path!r} is the action mask"
                    f" (action_mask_key={action_mask_key!r}), which is never filtered. If it is"
                    " not a mask, set action_mask_key to a different key."
                )
    excluded_leaves = _matching(leaves, config.filter_exclude, "filter_exclude", hidden_paths)
    left_out = masks + excluded_leaves
    return [leaf for leaf in selection if leaf not in left_out]


def _mask_leaves(leaves: Sequence[Leaf], action_mask_key: str | None) -> list[Leaf]:
    """Return the leaves of the action mask: a key of Dict observations at any depth, or a path."""
    if action_mask_key is None:
        return []
    masks = matching_paths(action_mask_key, parts_above(leaf.path for leaf in leaves))
    key = write_path([action_mask_key], root="")
    path = write_path(action_mask_key.split("."), root="")
    mask_leaves = []
    for leaf in leaves:
        # Leaves that are called like the mask are left alone at any depth.
        if _is_in_any(masks, leaf) or _passes(key, leaf.path) or _passes(path, leaf.path):
            mask_leaves.append(leaf)
    return mask_leaves


def _matching(
    leaves: Sequence[Leaf], paths: Sequence[str], key: str, hidden_paths: Sequence[str]
) -> list[Leaf]:
    """Return the leaves in any of the parts that a config key names.

    Args:
        leaves: The leaves.
        paths: The paths of parts in the config.
        key: The config key.
        hidden_paths: Paths of other leaves that the config may name.

    Raises:
        ConfigError: A path does not match any leaf, or has several meanings.
    """
    parts = parts_above([*(leaf.path for leaf in leaves), *hidden_paths])
    named_parts = [find_path(path, parts, key) for path in paths]
    return [leaf for leaf in leaves if _is_in_any(named_parts, leaf)]


def _paths(leaves: Sequence[Leaf]) -> str:
    """Return the leaves' paths, for messages."""
    return ", ".join(leaf.path for leaf in leaves) or "none"


def _is_in_any(parts: Sequence[str], leaf: Leaf) -> bool:
    return any(is_in_part(leaf.path, part) for part in parts)


def _passes(steps: str, leaf_path: str) -> bool:
    """Return whether a leaf's path goes through steps such as `['mask']`."""
    before, separator, _ = leaf_path.partition(steps)
    contains_steps = bool(separator)
    return contains_steps and is_in_part(leaf_path, before + steps)
