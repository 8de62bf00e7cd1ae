"""Framework-independent distribution for Tuple and Dict spaces, and what it shares with that of a
OneOf.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from gymnasium import Space

from rlcatalog import ModelV2, SpaceInfo, TupleActions
from rlcatalog.actions import ActionDistribution, check_same_kind, entropy_of, unbind
from rlcatalog.catalog import catalog_of
from rlcatalog.errors import ActionMaskError, ModelContractError, NoClosedFormError
from rlcatalog.frameworks import Tensor, TensorOps, TensorTree
from rlcatalog_multi_action.members import Children, Factory, Member, layout_of, values_of


class PartsDistribution(ActionDistribution):
    """Distribution that joins those of an action's parts, which the catalog chooses one by one."""

    #: Tells the catalog to choose the parts' distributions, and to add their sizes.
    composite: ClassVar[bool] = True
    framework_of_class: ClassVar[str]
    #: The framework's tensor operations.
    ops: ClassVar[TensorOps]

    @classmethod
    def required_model_output_shape(
        cls, action_space: Space[Any], model_config: Mapping[str, Any] | None = None
    ) -> int:
        """Return the total number of inputs for the distributions of the parts, which the config's
        catalog, or else the default catalog, chooses.
        """
        catalog = catalog_of(model_config)
        config = dict(model_config or {})
        custom = config.get("custom_action_dist")
        # A composite may be this class: asking it for its size would not end.
        if isinstance(custom, Mapping):
            others = {}
            for path, dist in custom.items():
                if not _is_joint(dist, model_config):
                    others[path] = dist
            config["custom_action_dist"] = others
        elif _is_joint(custom, model_config):
            config["custom_action_dist"] = None
        _, size = catalog.action_dist(action_space, config, framework=cls.framework_of_class)
        return int(size)


class CompositeDistribution(PartsDistribution):
    """Independent distributions for a Tuple's or Dict's parts, nested to any depth.

    Args:
        inputs: `[B, size]`: the concatenated inputs of the parts, in the space's order.
        model: The model that computed the inputs, or None; it is passed to every part.
        child_distributions: Factories for the parts' distributions, called with `(inputs, model)`:
            one for each child of the space, or one for each leaf, depth first.
        input_lens: Number of inputs that each distribution takes.
        action_space: The Tuple or Dict space.

    Attributes:
        layout: The parts of the space and their columns in flat tensors.
        groups: The distributions that are evaluated; parts of the same family may share one.
    """

    #: `"exact"` if the entropy of every part is exact.
    entropy_kind: str = "exact"  # type: ignore[misc]  # a class variable elsewhere

    # The last sample, by leaf and by group. `logp` recognises it by the leaves' values, and scores
    # the groups' values without joining the leaves again.
    _sample_by_leaf: Sequence[Any] = ()
    _sample_by_group: Sequence[Any] = ()

    def __init__(
        self,
        inputs: Tensor,
        model: ModelV2 | None = None,
        *,
        child_distributions: Sequence[Factory],
        input_lens: Sequence[int],
        action_space: Space[Any] | SpaceInfo | None = None,
    ) -> None:
        self.inputs = self.ops.tensor(inputs)
        self.model = model
        layout = layout_of(child_distributions, input_lens, action_space)
        self.layout = layout
        if self.inputs.shape[-1] != layout.inputs.total:
            sizes = ", ".join(f"{part.info.path}: {part.size}" for part in layout.parts)
            raise ModelContractError(
                f"{layout.info.path}: expected {layout.inputs.total} model outputs ({sizes}),"
                f" found inputs of shape {tuple(self.inputs.shape)}."
            )
        self.groups: list[Any] = []
        pieces = self.ops.cut(self.inputs, layout.group_inputs)
        for group, piece in zip(layout.groups, pieces, strict=True):
            dist = group.dist(piece, model)
            self.groups.append(dist)
            # The user's class may not derive from ActionDistribution.
            if getattr(dist, "entropy_kind", "exact") != "exact":
                self.entropy_kind = "estimate"

    @cached_property
    def flat_child_distributions(self) -> list[Any]:
        """The parts' distributions, depth first and in the space's order.

        They are created on first use.
        """
        dists_by_places = {}
        for group, dist in zip(self.layout.groups, self.groups, strict=True):
            dists_by_places[group.leaf_places] = dist
        dists = []
        pieces = self.ops.cut(self.inputs, self.layout.inputs)
        for part, piece in zip(self.layout.parts, pieces, strict=True):
            # A part that was not joined with others is a group, whose distribution exists already.
            dist = dists_by_places.get(part.leaf_places)
            if dist is None:
                dist = part.dist(piece, self.model)
            dists.append(dist)
        return dists

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,
        config: Mapping[str, Any],  # noqa: ARG003  (ActionDistribution's signature)
        children: Sequence[tuple[Factory, int]] = (),
    ) -> dict[str, Any]:
        """Return the children's distributions and sizes, and the space.

        The distributions hold the layout, so that it is computed once and not for each batch.
        """
        dists: list[Factory] = []
        sizes: list[int] = []
        for dist, size in children:
            dists.append(dist)
            sizes.append(int(size))
        with_layout = Children(dists)
        with_layout.layout = layout_of(dists, sizes, action)
        return {
            "child_distributions": with_layout,
            "input_lens": tuple(sizes),
            "action_space": action if action.space is None else action.space,
        }

    @classmethod
    def masked(cls, inputs: Tensor, mask: Tensor, **options: Any) -> Any:
        """Return `inputs` with the mask applied to each part's columns.

        Raises:
            ActionMaskError: The mask has the wrong number of columns.
        """
        ops = cls.ops
        layout = layout_of(**options)
        inputs = ops.tensor(inputs)
        mask = ops.tensor(mask)
        if mask.shape[-1] != layout.run_masks.total:
            widths = ", ".join(f"{part.info.path}: {part.mask_width}" for part in layout.parts)
            raise ActionMaskError(
                f"{layout.info.path}: expected a mask of {layout.run_masks.total} columns"
                f" ({widths}), found shape {tuple(mask.shape)}."
            )
        input_pieces = ops.cut(inputs, layout.run_inputs)
        mask_pieces = ops.cut(mask, layout.run_masks)
        results = []
        for run, piece, allowed in zip(layout.runs, input_pieces, mask_pieces, strict=True):
            # All parts of a run are masked in the same way, so that any one masks all columns.
            any_part = run[0]
            results.append(any_part.masked(piece, allowed))
        return ops.side_by_side(results)

    @classmethod
    def parts(
        cls,
        action: SpaceInfo,  # noqa: ARG003  (ActionDistribution's signature)
        size: int,  # noqa: ARG003  (ActionDistribution's signature)
        options: Mapping[str, Any],
    ) -> list[tuple[SpaceInfo, Any, int]]:
        """Return the parts of all members, such as the choices of a MultiDiscrete."""
        parts: list[tuple[SpaceInfo, Any, int]] = []
        for member in layout_of(**options).parts:
            dist_class, own_options = unbind(member.dist)
            own_parts = None
            # The user's class or function may not derive from ActionDistribution.
            if hasattr(dist_class, "parts"):
                own_parts = dist_class.parts(member.info, member.size, own_options)
            if own_parts:
                parts += own_parts
            else:
                parts.append((member.info, member.dist, member.size))
        return parts

    # --- drawing ----------------------------------------------------------------------------------

    def sample(self) -> Any:
        """Sample all leaves in the space's structure, without gradients."""
        self.last_sample = self._structure([dist.sample() for dist in self.groups])
        return self.last_sample

    def rsample(self) -> Any:
        """Sample all leaves in the space's structure; samples have gradients if their distributions
        support them.
        """
        return self._structure([dist.rsample() for dist in self.groups])

    def deterministic_sample(self) -> Any:
        """Return the leaves' deterministic actions in the space's structure."""
        self.last_sample = self._structure([dist.deterministic_sample() for dist in self.groups])
        return self.last_sample

    def _structure(self, samples: list[Any]) -> Any:
        """Arrange the groups' samples in the space's structure, and store both for `logp`."""
        values: list[Any] = [None] * len(self.layout.leaves)
        for group, sample in zip(self.layout.groups, samples, strict=True):
            if group.is_leaf:
                (place,) = group.leaf_places
                values[place] = sample
                continue
            for place, value in zip(group.leaf_places, self._by_leaf(group, sample), strict=True):
                values[place] = value
        self._sample_by_leaf = values
        self._sample_by_group = samples
        return self.layout.structure(values)

    def _by_leaf(self, group: Member, sample: TensorTree) -> list[Any]:
        """Split a group's sample into its leaves' raw actions."""
        if not self.ops.is_array(sample):  # a composite that is not split samples a structure
            return values_of(group.info, sample)
        values = []
        pieces = self.ops.cut(sample, group.columns_by_leaf)
        for leaf, piece in zip(group.leaves, pieces, strict=True):
            values.append(piece[:, 0] if leaf.is_scalar else piece)
        return values

    # --- the flat form ----------------------------------------------------------------------------

    def join(self, actions: TensorTree | TupleActions) -> Any:
        """Flatten a structure of actions into one tensor `[B, width]`, in the leaves' order;
        `split` is the inverse.

        If all values are integers, the result is int64. If some values are half-precision floats,
        the result is float32, which represents them exactly.
        """
        values = self.layout.values(actions)
        return self._join(values, rows_of=self.ops.tensor(values[0]))

    def split(self, flat: Tensor) -> Any:
        """Split flat actions `[B, width]`, a tensor or an array, into the space's structure, as
        samples have it.
        """
        ops = self.ops
        flat = ops.tensor(flat)
        self._check_flat(flat, rows=None)
        values = []
        pieces = ops.cut(flat, self.layout.actions)
        for leaf, piece in zip(self.layout.leaves, pieces, strict=True):
            value = ops.whole(piece) if leaf.is_integer else piece
            values.append(value[:, 0] if leaf.is_scalar else value)
        return self.layout.structure(values)

    def _join(self, values: Sequence[Tensor], rows_of: Tensor) -> Any:
        """Join the leaves' raw actions along their columns, in as many rows as `rows_of` has.

        Raises:
            ModelContractError: A leaf does not have `width` values for each row.
        """
        pieces = []
        for leaf, value in zip(self.layout.leaves, values, strict=True):
            piece = self.ops.in_rows(value, rows_of, leaf.width)
            if piece is None:  # there are too many values, or too few
                expected = "1 raw value" if leaf.width == 1 else f"{leaf.width} raw values"
                raise ModelContractError(
                    f"{leaf.path}: expected {expected} for"
                    f" each of {rows_of.shape[0]} rows, found shape"
                    f" {tuple(self.ops.tensor(value).shape)}."
                )
            pieces.append(piece)
        return self.ops.side_by_side(pieces)

    def _check_flat(self, flat: Tensor, rows: int | None) -> None:
        """Raise an error unless flat actions have the right shape.

        Args:
            flat: The actions; a length of None is unknown.
            rows: Expected number of rows; None for any number.

        Raises:
            ModelContractError: The shape is wrong.
        """
        shape = flat.shape
        width = self.layout.actions.total
        if len(shape) == 2:
            has_rows = rows is None or shape[0] is None or shape[0] == rows
            has_width = shape[1] is None or shape[1] == width
            if has_rows and has_width:
                return
        widths = ", ".join(f"{leaf.path}: {leaf.width}" for leaf in self.layout.leaves)
        raise ModelContractError(
            f"{self.layout.info.path}: expected actions of shape {(rows, width)} ({widths}), found"
            f" {tuple(shape)}."
        )

    # --- densities --------------------------------------------------------------------------------

    def logp(self, actions: TensorTree | TupleActions) -> Any:
        """Return the log density `[B]`, summed over the leaves.

        Args:
            actions: Raw actions in the space's structure (dicts in any order), a flat list of the
                leaves' raw actions, or one flat tensor or array `[B, width]`.

        Raises:
            ModelContractError: The actions do not have the space's structure.
        """
        ops = self.ops
        layout = self.layout
        flat: Any = actions
        if not ops.is_array(actions):
            values = layout.values(actions)
            last_values = self._sample_by_leaf
            is_last_sample = len(values) == len(last_values) and all(
                map(operator.is_, values, last_values)
            )
            if is_last_sample:
                # No value of the last sample is forbidden, so the sum is finite.
                pairs = zip(self.groups, self._sample_by_group, strict=True)
                return ops.total([dist.logp(sample) for dist, sample in pairs])
            flat = self._join(values, rows_of=self.inputs)
        flat = ops.tensor(flat, self.inputs)
        self._check_flat(flat, rows=self.inputs.shape[0])
        logps = []
        pieces = ops.cut(flat, layout.group_actions)
        for group, dist, piece in zip(layout.groups, self.groups, pieces, strict=True):
            value = ops.whole(piece) if group.is_integer else piece
            logps.append(dist.logp(value[:, 0] if group.is_scalar else value))
        total = ops.total(logps)
        # The sum of two forbidden values' log probabilities exceeds the dtype's range.
        if layout.has_several_masks:
            return ops.finite(total)
        return total

    def entropy(self) -> Any:
        """Return the entropy `[B]`, summed over the leaves.

        Raises:
            NoClosedFormError: A part's entropy has no closed form; see `entropy_estimate`.
        """
        if self.entropy_kind != "exact":
            raise self._no_entropy()
        return self.ops.total([dist.entropy() for dist in self.groups])

    def _no_entropy(self) -> NoClosedFormError:
        """Return the error that names the first group whose entropy has no closed form."""
        inexact = []
        for group, dist in zip(self.layout.groups, self.groups, strict=True):
            # The user's class may not derive from ActionDistribution.
            if getattr(dist, "entropy_kind", "exact") != "exact":
                inexact.append(group.info)
        first = inexact[0]
        return NoClosedFormError(
            f"{first.path}: the entropy of {first.kind} has no closed form here; use"
            " entropy_estimate()."
        )

    def entropy_estimate(self) -> Any:
        """Return an estimate `[B]` of the entropy: exact for parts with a closed form, estimated
        for the others.

        The result is unbiased, as each estimate is, and varies less than an estimate from samples
        of all leaves.
        """
        entropies = []
        for dist in self.groups:
            entropy, _ = entropy_of(dist, to_stored_form=lambda sample: sample)
            entropies.append(entropy)
        return self.ops.total(entropies)

    def multi_entropy(self) -> Any:
        """Return the entropy for each child of the space, `[B, children]`."""
        return self._per_child([dist.entropy() for dist in self.flat_child_distributions])

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence `[B]`, summed over the leaves."""
        self._check_same(other)
        if other.layout is self.layout:
            pairs = zip(self.groups, other.groups, strict=True)
        else:
            # The same parts may be grouped in another way.
            pairs = zip(self.flat_child_distributions, other.flat_child_distributions, strict=True)
        total = self.ops.total([dist.kl(other_dist) for dist, other_dist in pairs])
        # The sum of two forbidden values' divergences exceeds the dtype's range.
        if self.layout.has_several_masks:
            return self.ops.finite(total)
        return total

    def multi_kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence for each child of the space, `[B, children]`."""
        self._check_same(other)
        pairs = zip(self.flat_child_distributions, other.flat_child_distributions, strict=True)
        return self._per_child([dist.kl(its) for dist, its in pairs])

    def _check_same(self, other: Self) -> None:
        """Raise an error unless another distribution has the same parts.

        Raises:
            ModelContractError: It is of a different kind, or its parts have different sizes.
        """
        # In the usual case, the types are equal; `check_same_kind` also accepts a subclass.
        if type(other) is not type(self):
            check_same_kind(self, other)
        if other.layout is self.layout:
            return
        here = list(self.layout.inputs.widths)
        there = list(other.layout.inputs.widths)
        if here != there:
            raise ModelContractError(
                f"{self.layout.info.path}: kl() needs a distribution with the same parts, but"
                f" its parts take {here} model outputs here and {there} in the other"
                " distribution."
            )

    def _per_child(self, values: list[Any]) -> Any:
        """Add the parts' values `[B]` for each child of the space, `[B, children]`."""
        totals = []
        start = 0
        for count in self.layout.parts_per_child:
            totals.append(self.ops.total(values[start : start + count]))
            start += count
        return self.ops.columns(totals)


def _is_joint(dist: str | type | None, config: Mapping[str, Any] | None) -> bool:
    """Return whether a config's value for a distribution is one that joins others."""
    declaration: Any = dist
    if isinstance(dist, str):
        declaration = catalog_of(config).registry.get("action_dist", dist).declaration
    # The user's class may not derive from ActionDistribution.
    return bool(getattr(declaration, "composite", False))
