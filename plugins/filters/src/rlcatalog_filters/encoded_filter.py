"""`MeanStdFilter` inside a policy, which normalises the quantities in encoded observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcatalog import Filter, SpaceInfo
from rlcatalog.config import read_config
from rlcatalog.errors import CatalogWarning, ConfigError, ObservationError, SavedPolicyError
from rlcatalog.frameworks import TensorOps
from rlcatalog.observations import Array, Leaf, Preprocessor
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import is_image
from rlcatalog_filters.config import FiltersConfig
from rlcatalog_filters.mean_std import MeanStdFilter, scale, scaling
from rlcatalog_filters.running_stat import RunningStat, worst_place


class EncodedMeanStdFilter(Filter):
    """Filter that normalises quantities in encoded observations.

    It leaves images, one-hot vectors and flags, masks, indices and padding alone, unless the config
    names them. Pixel by pixel, a camera's image would lose its contrasts, and a pixel that was dark
    at first would be amplified to the limit.

    The filter learns only when it is called with `update=True`, which `Policy.act` never does.

    Args:
        preprocessor: Preprocessor whose output is filtered.
        options: The model config; see `FiltersConfig`.

    Attributes:
        statistics: A `MeanStdFilter` over the leaves' concatenated values. Workers that collect
            experience separately use it to combine their statistics:
            `here.statistics.apply_changes(there.statistics)`.

    Raises:
        ConfigError: A path in the config does not match any leaf.
    """

    def __init__(self, preprocessor: Preprocessor, options: Mapping[str, Any]) -> None:
        super().__init__(preprocessor, options)
        config = read_config(options, FiltersConfig)
        plan = preprocessor.leaves()
        claimed = options.get("claimed", ())
        mask_key = options.get("action_mask_key", "action_mask")
        left_alone = [*claimed, *_images_and_flags(preprocessor, options.get("image_layout"))]
        self.leaves = leaves_to_filter(plan, config, mask_key, left_alone)
        if not self.leaves:
            warn_caller(
                "observation_filter='MeanStdFilter' has nothing to filter in the leaves "
                f"{', '.join(f'{leaf.path} ({leaf.kind})' for leaf in plan) or 'none'}. Set it to"
                " 'NoFilter', or name leaves in filter_include.",
                CatalogWarning,
            )
        self._filtered = np.zeros(preprocessor.size, np.bool_)
        for leaf in self.leaves:
            self._filtered[leaf.start : leaf.stop] = True
        self._any, self._all = bool(self._filtered.any()), bool(self._filtered.all())
        self.statistics = MeanStdFilter((int(self._filtered.sum()),), clip=config.filter_clip)
        self._known: tuple[Any, ...] = ()
        self._scaling: tuple[Array, Array, Any, Any]

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
        if not self._any:
            return encoded
        flat = encoded.reshape(len(encoded), self.preprocessor.size)
        if update:
            self._learn(flat if self._all else flat[:, self._filtered])
        stats = self.statistics
        known = (stats.running_stats.moments, stats.demean, stats.destd, stats.clip)
        if known != self._known:  # moments are equal only to themselves
            self._scaling, self._known = self._laid_out(), known
        return scale(flat, *self._scaling).reshape(encoded.shape)

    def lowered(self) -> Any:
        if not self._any:
            return lambda x, ops: x
        offset, factor, low, high = self._laid_out()
        size, shape = self.preprocessor.size, self.preprocessor.shape

        def filtered(x: Any, ops: TensorOps) -> Any:
            flat = ops.as_type(ops.flat(x), "float64")
            flat = (flat - ops.tensor(np.array(offset), flat)) * ops.tensor(np.array(factor), flat)
            if low is not None:
                bounds = (
                    ops.tensor(np.broadcast_to(bound, size).astype(np.float64), flat)
                    for bound in (low, high)
                )
                flat = ops.clip(flat, *bounds)
            return ops.rows(ops.as_type(flat, "float32"), shape)

        return filtered

    def processed_space(self, preprocessor: Preprocessor) -> Any:
        """Return a float32 Box: filtered values get the clip bounds, and other values keep their
        own bounds.

        If no leaf is filtered, models see the same as without a filter.
        """
        if not self._any:
            return preprocessor.observation_space
        low, high = (bound.astype(np.float32) for bound in preprocessor.bounds())
        clip = np.float32(np.inf if self.statistics.clip is None else self.statistics.clip)
        low[self._filtered], high[self._filtered] = -clip, clip
        return preprocessor.processed_space(low, high)

    def get_state(self) -> dict[str, Array]:
        """Return `n`, `mean` and `m2` for the filtered values, and which values are filtered
        (`filtered`, `[size]`).
        """
        return {**self.statistics.running_stats.to_state(), "filtered": self._filtered.copy()}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Restore statistics that `get_state` returned; the buffer is emptied.

        Raises:
            SavedPolicyError: The statistics are damaged, or they belong to different values of the
                observation.
        """
        filtered = state.get("filtered")
        if filtered is None or not np.array_equal(filtered, self._filtered):
            found = (
                "no 'filtered'"
                if filtered is None
                else f"{int(np.sum(filtered))} of {np.size(filtered)}"
            )
            raise SavedPolicyError(
                "these filter statistics are for different values of the observation: expected"
                f" {self._filtered.sum()} of {self._filtered.size}"
                f" ({', '.join(leaf.path for leaf in self.leaves) or 'none'}), found {found}."
            )
        restored = RunningStat.from_state(state)
        if restored.shape != self.statistics.running_stats.shape:
            raise SavedPolicyError(
                f"expected filter statistics of shape {self.statistics.running_stats.shape}, found"
                f" {restored.shape}."
            )
        self.statistics.running_stats.moments = restored.moments
        self.statistics.reset_buffer()

    def _learn(self, values: Array) -> None:
        try:
            self.statistics.observe(values)
        except ObservationError as error:
            row, column = worst_place(values)
            place = int(np.flatnonzero(self._filtered)[column])
            leaf = next(leaf for leaf in self.leaves if leaf.start <= place < leaf.stop)
            where = ", ".join(str(int(i)) for i in np.unravel_index(place - leaf.start, leaf.shape))
            raise ObservationError(
                f"{leaf.path}: expected finite values to filter; found {values[row, column]}"
                f"{f' at [{where}]' if where else ''} in row {row} of the batch. The filter has"
                " not learned from this batch. Keep such values out of the observations, or add"
                " the leaf to filter_exclude."
            ) from error

    def _laid_out(self) -> tuple[Array, Array, Any, Any]:
        """Return the arguments of `scaled` for the whole vector.

        Unfiltered values stay exactly equal.
        """
        stats, clip = self.statistics, self.statistics.clip
        offset, factor = scaling(stats.running_stats, stats.demean, stats.destd)
        offset, factor = self._spread(offset, 0.0), self._spread(factor, 1.0)
        if clip is None:
            return offset, factor, None, None
        return offset, factor, self._spread(-clip, -np.inf), self._spread(clip, np.inf)

    def _spread(self, values: Any, elsewhere: float) -> Any:
        if self._all:
            return values
        out = np.full(self.preprocessor.size, elsewhere)
        out[self._filtered] = values
        return out


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
) -> list[Leaf]:
    """Return the leaves that contain quantities, or the leaves that the config names; never an
    action mask.

    Args:
        leaves: The leaves of a preprocessor's plan.
        config: The model config, which names leaves to include and exclude.
        action_mask_key: Key of the action mask in Dict observations, at any depth; or a path such
            as `"a.b"`; or None.
        left_alone: Paths of leaves that only `filter_include` can add: images, flags, and what a
            head reads itself, which describes actions.

    Raises:
        ConfigError: A path in the config does not match any leaf, or matches only an action mask.
    """
    masks: list[Leaf] = []
    if action_mask_key is not None:
        path = "".join(f"[{step!r}]" for step in action_mask_key.split("."))
        masks = [
            leaf
            for leaf in leaves
            if _holds(f"[{action_mask_key!r}]", leaf.path) or _holds(path, leaf.path)
        ]
    if config.filter_include is None:
        chosen = [
            leaf
            for leaf in leaves
            if leaf.numeric and not any(_below(path, leaf.path) for path in left_alone)
        ]
    else:
        chosen = _matching(leaves, config.filter_include, "filter_include")
        for path in config.filter_include:
            if all(leaf in masks for leaf in leaves if _below(path, leaf.path)):
                raise ConfigError(
                    f"filter_include: {path!r} is the action mask"
                    f" (action_mask_key={action_mask_key!r}), which is never filtered. If it is"
                    " not a mask, set action_mask_key to a different key."
                )
    left_out = masks + _matching(leaves, config.filter_exclude, "filter_exclude")
    return [leaf for leaf in chosen if leaf not in left_out]


def _matching(leaves: Sequence[Leaf], paths: Sequence[str], key: str) -> list[Leaf]:
    for path in paths:
        if not any(_below(path, leaf.path) for leaf in leaves):
            raise ConfigError(
                f"{key}: the observation has no leaf at or below {path!r}; its leaves are "
                f"{', '.join(leaf.path for leaf in leaves) or 'none'}."
            )
    return [leaf for leaf in leaves if any(_below(path, leaf.path) for path in paths)]


def _below(path: str, leaf: str) -> bool:
    """Return whether a leaf is at a path or below it."""
    return leaf == path or leaf.startswith((f"{path}[", f"{path}."))


def _holds(step: str, leaf: str) -> bool:
    """Return whether a leaf's path goes through a step such as `['mask']`."""
    before, found, _ = leaf.partition(step)
    return bool(found) and _below(before + step, leaf)
