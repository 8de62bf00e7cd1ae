"""Framework-independent distribution for Tuple and Dict spaces."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import rlcatalog
from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, entropy_of, same_kind, unbind
from rlcatalog.errors import ActionMaskError, ModelContractError, NoClosedFormError
from rlcatalog.frameworks import TensorOps
from rlcatalog_multi_action.members import Children, Member, layout_of, values_of


class CompositeDistribution(ActionDistribution):
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
    #: Tells the catalog to choose the children's distributions one by one, and to add their sizes.
    composite: ClassVar[bool] = True
    framework_of_class: ClassVar[str]
    #: The framework's tensor operations.
    ops: ClassVar[TensorOps]

    # The last draw, by leaf and by group.
    _drawn: tuple[Sequence[Any], Sequence[Any]] = ((), ())

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        *,
        child_distributions: Sequence[Any],
        input_lens: Sequence[int],
        action_space: Any = None,
    ) -> None:
        self.inputs = inputs = self.ops.tensor(inputs)
        self.model = model
        self.layout = layout = layout_of(child_distributions, input_lens, action_space)
        if inputs.shape[-1] != layout.inputs.total:
            sizes = ", ".join(f"{part.info.path}: {part.size}" for part in layout.parts)
            raise ModelContractError(
                f"{layout.info.path}: expected {layout.inputs.total} model outputs ({sizes}),"
                f" found inputs of shape {tuple(inputs.shape)}."
            )
        self.groups = []
        for group, piece in zip(
            layout.groups, self.ops.cut(inputs, layout.group_inputs), strict=True
        ):
            dist = group.dist(piece, model)
            self.groups.append(dist)
            if getattr(dist, "entropy_kind", "exact") != "exact":
                self.entropy_kind = "estimate"

    @cached_property
    def flat_child_distributions(self) -> list[Any]:
        """The parts' distributions, depth first and in the space's order.

        They are created on first use.
        """
        own = {
            group.places: dist for group, dist in zip(self.layout.groups, self.groups, strict=True)
        }
        pieces = zip(self.layout.parts, self.ops.cut(self.inputs, self.layout.inputs), strict=True)
        return [own.get(part.places) or part.dist(piece, self.model) for part, piece in pieces]

    @classmethod
    def required_model_output_shape(
        cls, action_space: Any, model_config: Mapping[str, Any] | None = None
    ) -> int:
        """Return the total number of inputs for the distributions that the default catalog chooses
        for the parts.
        """
        catalog, config = rlcatalog.default_catalog(), dict(model_config or {})
        custom = config.get("custom_action_dist")
        if isinstance(custom, str):
            custom = catalog.registry.get("action_dist", custom).declaration
        if getattr(custom, "composite", False):  # it may be the class whose size is being computed
            config["custom_action_dist"] = None
        return int(catalog.action_dist(action_space, config, framework=cls.framework_of_class)[1])

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        dists, sizes = (
            Children(dist for dist, _ in children),
            tuple(int(size) for _, size in children),
        )
        dists.layout = layout_of(tuple(dists), sizes, action)
        return {
            "child_distributions": dists,
            "input_lens": sizes,
            "action_space": action if action.space is None else action.space,
        }

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Return `inputs` with the mask applied to each part's columns.

        Raises:
            ActionMaskError: The mask has the wrong number of columns.
        """
        ops, layout = cls.ops, layout_of(**options)
        inputs, mask = ops.tensor(inputs), ops.tensor(mask)
        if mask.shape[-1] != layout.run_masks.total:
            widths = ", ".join(f"{part.info.path}: {part.mask_width}" for part in layout.parts)
            raise ActionMaskError(
                f"{layout.info.path}: expected a mask of {layout.run_masks.total} columns"
                f" ({widths}), found shape {tuple(mask.shape)}."
            )
        pieces = zip(
            layout.runs,
            ops.cut(inputs, layout.run_inputs),
            ops.cut(mask, layout.run_masks),
            strict=True,
        )
        return ops.side_by_side([run[0].masked(piece, allowed) for run, piece, allowed in pieces])

    @classmethod
    def parts(
        cls, action: SpaceInfo, size: int, options: Mapping[str, Any]
    ) -> list[tuple[SpaceInfo, Any, int]]:
        found: list[tuple[SpaceInfo, Any, int]] = []
        for part in layout_of(**options).parts:
            own, bound = unbind(part.dist)
            split = own.parts(part.info, part.size, bound) if hasattr(own, "parts") else None
            found += split or [(part.info, part.dist, part.size)]
        return found

    # --- drawing ----------------------------------------------------------------------------------

    def sample(self) -> Any:
        """Sample all leaves in the space's structure, without gradients."""
        self.last_sample = sample = self._structure([dist.sample() for dist in self.groups])
        return sample

    def rsample(self) -> Any:
        """Sample all leaves in the space's structure; samples have gradients if their distributions
        support them.
        """
        return self._structure([dist.rsample() for dist in self.groups])

    def deterministic_sample(self) -> Any:
        """Return the leaves' most likely actions in the space's structure."""
        self.last_sample = sample = self._structure(
            [dist.deterministic_sample() for dist in self.groups]
        )
        return sample

    def _structure(self, drawn: list[Any]) -> Any:
        """Arrange the groups' samples in the space's structure, and store both."""
        values: list[Any] = [None] * len(self.layout.leaves)
        for group, value in zip(self.layout.groups, drawn, strict=True):
            if group.is_leaf:
                values[group.places[0]] = value
                continue
            for place, part in zip(group.places, self._by_leaf(group, value), strict=True):
                values[place] = part
        self._drawn = values, drawn
        return self.layout.structure(values)

    def _by_leaf(self, group: Member, value: Any) -> list[Any]:
        if not self.ops.is_array(value):  # a composite that is not split samples a structure
            return values_of(group.info, value)
        pieces = zip(group.leaves, self.ops.cut(value, group.by_leaf), strict=True)
        return [piece[:, 0] if leaf.single else piece for leaf, piece in pieces]

    # --- the flat form ----------------------------------------------------------------------------

    def join(self, actions: Any) -> Any:
        """Flatten a structure of actions into one tensor `[B, width]`, in the leaves' order;
        `split` is the inverse.

        If all values are integers, the result is int64. If some values are half-precision floats,
        the result is float32, which represents them exactly.
        """
        values = self.layout.values(actions)
        return self._join(values, rows_of=self.ops.tensor(values[0]))

    def split(self, flat: Any) -> Any:
        """Split flat actions `[B, width]`, a tensor or an array, into the space's structure, as
        samples have it.
        """
        flat = self.ops.tensor(flat)
        self._check_flat(flat, None)
        ops, pieces, values = self.ops, self.ops.cut(flat, self.layout.actions), []
        for leaf, piece in zip(self.layout.leaves, pieces, strict=True):
            value = ops.whole(piece) if leaf.whole else piece
            values.append(value[:, 0] if leaf.single else value)
        return self.layout.structure(values)

    def _join(self, values: Sequence[Any], rows_of: Any) -> Any:
        pieces = []
        for leaf, value in zip(self.layout.leaves, values, strict=True):
            if (piece := self.ops.in_rows(value, rows_of, leaf.width)) is None:
                raise ModelContractError(
                    f"{leaf.path}: expected {leaf.width} raw value{'s' * (leaf.width != 1)} for"
                    f" each of {rows_of.shape[0]} rows, found shape"
                    f" {tuple(self.ops.tensor(value).shape)}."
                )
            pieces.append(piece)
        return self.ops.side_by_side(pieces)

    def _check_flat(self, flat: Any, rows: int | None) -> None:
        shape, width = flat.shape, self.layout.actions.total
        if (
            len(shape) == 2
            and shape[1] in (width, None)
            and (rows is None or shape[0] in (rows, None))
        ):
            return
        widths = ", ".join(f"{leaf.path}: {leaf.width}" for leaf in self.layout.leaves)
        raise ModelContractError(
            f"{self.layout.info.path}: expected actions of shape {(rows, width)} ({widths}), found"
            f" {tuple(shape)}."
        )

    # --- densities --------------------------------------------------------------------------------

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]`, summed over the leaves.

        Args:
            actions: Raw actions in the space's structure (dicts in any order), a flat list of the
                leaves' raw actions, or one flat tensor or array `[B, width]`.

        Raises:
            ModelContractError: The actions do not have the space's structure.
        """
        ops, layout = self.ops, self.layout
        if not ops.is_array(actions):
            values, (drawn, by_group) = layout.values(actions), self._drawn
            # Just sampled: none is forbidden.
            if len(values) == len(drawn) and all(map(operator.is_, values, drawn)):
                return ops.total(
                    [dist.logp(value) for dist, value in zip(self.groups, by_group, strict=True)]
                )
            actions = self._join(values, rows_of=self.inputs)
        flat = ops.tensor(actions, self.inputs)
        self._check_flat(flat, self.inputs.shape[0])
        logps = []
        for group, dist, piece in zip(
            layout.groups, self.groups, ops.cut(flat, layout.group_actions), strict=True
        ):
            value = ops.whole(piece) if group.whole else piece
            logps.append(
                dist.logp(value[:, 0] if group.is_leaf and group.leaves[0].single else value)
            )
        # The sum of two forbidden values' log probabilities exceeds the dtype's range.
        return ops.finite(ops.total(logps)) if layout.several_masked else ops.total(logps)

    def entropy(self) -> Any:
        """Return the entropy `[B]`, summed over the leaves.

        Raises:
            NoClosedFormError: A part's entropy has no closed form; see `entropy_estimate`.
        """
        if self.entropy_kind != "exact":
            exact = [getattr(dist, "entropy_kind", "exact") == "exact" for dist in self.groups]
            info = self.layout.groups[exact.index(False)].info
            raise NoClosedFormError(
                f"{info.path}: the entropy of {info.kind} has no closed form here; use"
                " entropy_estimate()."
            )
        return self.ops.total([dist.entropy() for dist in self.groups])

    def entropy_estimate(self) -> Any:
        """Return an estimate `[B]` of the entropy: exact for parts with a closed form, estimated
        for the others.

        The result is unbiased, as each estimate is, and varies less than an estimate from samples
        of all leaves.
        """
        return self.ops.total([entropy_of(dist, lambda sample: sample)[0] for dist in self.groups])

    def multi_entropy(self) -> Any:
        """Return the entropy for each child of the space, `[B, children]`."""
        return self._per_child([dist.entropy() for dist in self.flat_child_distributions])

    def kl(self, other: Any) -> Any:
        """Return the KL divergence `[B]`, summed over the leaves."""
        total = self.ops.total(self._kls(other, "groups"))
        return self.ops.finite(total) if self.layout.several_masked else total

    def multi_kl(self, other: Any) -> Any:
        """Return the KL divergence for each child of the space, `[B, children]`."""
        return self._per_child(self._kls(other, "flat_child_distributions"))

    def _kls(self, other: Any, which: str) -> list[Any]:
        if type(other) is not type(self):
            same_kind(self, other)
        if other.layout is not self.layout:
            which = "flat_child_distributions"  # the groups may differ
            here, there = list(self.layout.inputs.widths), list(other.layout.inputs.widths)
            if here != there:
                raise ModelContractError(
                    f"{self.layout.info.path}: kl() needs a distribution with the same parts, but"
                    f" its parts take {here} model outputs here and {there} in the other"
                    " distribution."
                )
        return [
            dist.kl(its)
            for dist, its in zip(getattr(self, which), getattr(other, which), strict=True)
        ]

    def _per_child(self, values: list[Any]) -> Any:
        rest = iter(values)
        return self.ops.columns(
            [self.ops.total([next(rest) for _ in range(count)]) for count in self.layout.counts]
        )
