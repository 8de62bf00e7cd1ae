"""What the distribution of Tuple and Dict spaces does in both frameworks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import rlcatalog
from rlcatalog import SpaceInfo
from rlcatalog.distribution import ActionDistribution, entropy_of, same_kind
from rlcatalog.errors import ActionMaskError, ModelContractError, NoClosedFormError
from rlcatalog_multi_action.fusing import Group
from rlcatalog_multi_action.layout import Dicts, Layout, Leaf, layout_of, masking


class CompositeDistribution(ActionDistribution):
    """Independent distributions of a Tuple's or Dict's parts; the frameworks' classes add the tensor operations.

    Attributes:
        layout: The leaves of the space and how they lie in flat tensors.
        groups: The distributions of its leaves; leaves of one kind may share one.
    """

    #: `"exact"` when every leaf's is.
    entropy_kind: str = "exact"  # type: ignore[misc]  # a class variable elsewhere
    #: For the catalog: its children are chosen one by one, and their sizes added.
    composite: ClassVar[bool] = True
    framework_of_class: ClassVar[str] = ""

    # What was drawn last: by group, and the dicts that were made of it.
    _drawn: Sequence[Any] = ()
    _drawn_dicts: Sequence[tuple[dict[str, Any], list[Any]]] = ()

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        *,
        child_distributions: Sequence[Any],
        input_lens: Sequence[int],
        action_space: Any = None,
    ) -> None:
        super().__init__(self._tensor(inputs), model)
        self.layout = layout = layout_of(child_distributions, input_lens, action_space)
        if self.inputs.shape[-1] != layout.size:
            sizes = ", ".join(f"{leaf.path}: {leaf.size}" for leaf in layout.leaves)
            raise ModelContractError(
                f"{layout.root.path}: expected {layout.size} model outputs ({sizes}), found inputs of shape"
                f" {tuple(self.inputs.shape)}."
            )
        inputs = self.inputs
        if layout.makers:
            #: The distributions that the leaves are joined into (see `fusing`).
            self.groups = [make(inputs, model) for make in layout.makers]
        else:
            layout.makers.extend(map(self._maker, layout.groups))
            self.groups = [make(inputs, model) for make in layout.makers]
            kinds = [getattr(dist, "entropy_kind", "exact") for dist in self.groups]
            layout.inexact.extend(i for i, kind in enumerate(kinds) if kind != "exact")
        if layout.inexact:
            self.entropy_kind = "estimate"

    @cached_property
    def flat_child_distributions(self) -> list[Any]:
        """The leaves' distributions, depth first and in the space's order; made when first asked for."""
        found: list[Any] = [None] * len(self.layout.leaves)
        for group, dist in zip(self.layout.groups, self.groups, strict=True):
            if len(group.leaves) == 1:
                found[group.leaves[0]] = dist
        parts = self._cut(self.inputs, self.layout.sizes)
        for i, (leaf, part) in enumerate(zip(self.layout.leaves, parts, strict=True)):
            if found[i] is None:
                found[i] = leaf.dist(part, self.model)
        return found

    @classmethod
    def required_model_output_shape(cls, action_space: Any, model_config: Mapping[str, Any] | None = None) -> int:
        """Return the sum of the sizes of the distributions that the default catalog chooses for the parts."""
        catalog, config = rlcatalog.default_catalog(), dict(model_config or {})
        custom = config.get("custom_action_dist")
        if isinstance(custom, str):
            custom = catalog.registry.get("action_dist", custom).declaration
        if getattr(custom, "composite", False):  # perhaps the very class whose size is asked for
            config["custom_action_dist"] = None
        return int(catalog.action_dist(action_space, config, framework=cls.framework_of_class)[1])

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        return {
            "child_distributions": tuple(dist for dist, _ in children),
            "input_lens": tuple(int(size) for _, size in children),
            "action_space": action if action.space is None else action.space,
        }

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Return `inputs` with each leaf's part of the mask baked in.

        Args:
            inputs: Model output `[B, size]`.
            mask: Booleans `[B, m]`, True = allowed: the leaves' columns side by side (n for Discrete, the sum of
                `nvec` for MultiDiscrete, two per bit for MultiBinary, none for the rest).
            **options: What `options_for` returned.

        Raises:
            ActionMaskError: The mask has another number of columns.
        """
        layout = layout_of(**options)
        inputs, mask = cls._tensor(inputs), cls._tensor(mask)
        if mask.shape[-1] != layout.mask_width:
            widths = ", ".join(f"{leaf.path}: {leaf.mask_width}" for leaf in layout.leaves)
            raise ActionMaskError(
                f"{layout.root.path}: expected a mask of {layout.mask_width} columns ({widths}), found shape"
                f" {tuple(mask.shape)}."
            )
        if layout.mask_columns is not None:
            return super().masked(inputs, cls._widened(mask, layout.mask_columns))
        pairs = zip(layout.leaves, cls._cut(inputs, layout.sizes), cls._cut(mask, layout.mask_widths), strict=True)
        return cls._side_by_side(
            [masking(leaf.dist)(part, allowed) if leaf.mask_width else part for leaf, part, allowed in pairs]
        )

    # --- drawing ---------------------------------------------------------------------------------------------------

    def sample(self) -> Any:
        """Draw the space's structure of the leaves' samples, without gradient."""
        return self._remembered([dist.sample() for dist in self.groups])

    def rsample(self) -> Any:
        """Draw the space's structure of the leaves' samples, with gradient where they have one."""
        return self.layout.structure(self._parted([dist.rsample() for dist in self.groups]))

    def deterministic_sample(self) -> Any:
        """Return the space's structure of the leaves' most likely actions."""
        return self._remembered([dist.deterministic_sample() for dist in self.groups])

    def _remembered(self, drawn: list[Any]) -> Any:
        dicts: Dicts = []
        self._drawn, self._drawn_dicts = drawn, dicts
        self.last_sample = self.layout.grow(self._parted(drawn), dicts)
        return self.last_sample

    def _parted(self, drawn: list[Any]) -> list[Any]:
        """Return the leaves' actions out of the groups'."""
        parts: list[Any] = [None] * len(self.layout.leaves)
        for cuts, value in zip(self.layout.cuts, drawn, strict=True):
            if isinstance(cuts, int):
                parts[cuts] = value
                continue
            for i, start, width in cuts:
                parts[i] = self._columns(value, start, width) if width >= 0 else self._column(value, start)
        return parts

    # --- the flat form ---------------------------------------------------------------------------------------------

    def join(self, actions: Any) -> Any:
        """Return a structure of actions as one flat tensor `[B, width]`; see `split`."""
        return self._joined(self.layout, self.layout.parts(actions))

    def split(self, flat: Any) -> Any:
        """Return flat actions `[B, width]` as the space's structure, in the form of samples."""
        return self._apart(self.layout, flat)

    # --- densities -------------------------------------------------------------------------------------------------

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]`, the sum over the leaves.

        Args:
            actions: The space's structure of raw actions (a dict in any order), a flat list of the leaves' or one flat
                tensor or array `[B, width]`.

        Raises:
            ModelContractError: They are not of the space's form.
        """
        layout = self.layout
        if actions is self.last_sample and actions is not None and self._unchanged():
            # The groups know them, and none of them is forbidden.
            return self._total([dist.logp(x) for dist, x in zip(self.groups, self._drawn, strict=True)])
        parts = self._of_flat(actions) if self._is_array(actions) else self._of_structure(layout.parts(actions))
        total = self._total([dist.logp(part) for dist, part in zip(self.groups, parts, strict=True)])
        return self._finite(total) if layout.several_masked else total  # two forbidden values may leave the dtype

    def _unchanged(self) -> bool:
        """Whether the last sample still holds what was drawn: its dicts are the caller's to change."""
        for made, values in self._drawn_dicts:
            if len(made) != len(values) or not all(map(operator.is_, made.values(), values)):
                return False
        return True

    def _of_structure(self, parts: list[Any]) -> list[Any]:
        """Return the groups' actions out of the leaves'."""
        found = []
        for group in self.layout.groups:
            mine = [self._part(self.layout.leaves[i], parts[i]) for i in group.leaves]
            if len(mine) > 1:
                widths = [self.layout.widths[i] for i in group.leaves]
                mine = [self._side_by_side([self._rows(x, n) for x, n in zip(mine, widths, strict=True)])]
            found.append(mine[0])
        return found

    def entropy(self) -> Any:
        """Return the entropy `[B]`, the sum over the leaves.

        Raises:
            NoClosedFormError: A leaf's has no closed form; see `entropy_estimate`.
        """
        if self.entropy_kind != "exact":
            leaf = self.layout.leaves[self.layout.groups[self.layout.inexact[0]].leaves[0]]
            raise NoClosedFormError(
                f"{leaf.path}: {leaf.kind} has no closed form for its entropy here; use entropy_estimate()."
            )
        return self._total([dist.entropy() for dist in self.groups])

    def entropy_estimate(self) -> Any:
        """Return an estimate `[B]` of the entropy: exact for the leaves where it can be, estimated for the others.

        It is unbiased, as each estimate is, and varies less than one made from a draw of all leaves.
        """
        return self._total([entropy_of(dist, _itself)[0] for dist in self.groups])

    def multi_entropy(self) -> Any:
        """Return the entropy of each of the space's children, `[B, children]`."""
        return self._per_child([dist.entropy() for dist in self.flat_child_distributions])

    def kl(self, other: Any) -> Any:
        """Return the divergence `[B]`, the sum over the leaves."""
        total = self._total(self._kls(other, "groups"))
        return self._finite(total) if self.layout.several_masked else total

    def multi_kl(self, other: Any) -> Any:
        """Return the divergence of each of the space's children, `[B, children]`."""
        return self._per_child(self._kls(other, "flat_child_distributions"))

    def _kls(self, other: Any, which: str) -> list[Any]:
        if type(other) is not type(self):
            same_kind(self, other)
        if other.layout is not self.layout:
            if other.layout.sizes != self.layout.sizes:
                raise ModelContractError(
                    f"{self.layout.root.path}: kl() takes a distribution of the same parts; they take"
                    f" {list(self.layout.sizes)} model outputs here and {list(other.layout.sizes)} in the other."
                )
            which = "flat_child_distributions"
        return [dist.kl(its) for dist, its in zip(getattr(self, which), getattr(other, which), strict=True)]

    def _per_child(self, values: list[Any]) -> Any:
        found, start = [], 0
        for count in self.layout.counts:
            found.append(self._total(values[start : start + count]))
            start += count
        return self._stack(found)

    # --- what the frameworks add -----------------------------------------------------------------------------------

    @staticmethod
    def _tensor(value: Any) -> Any:
        """Return an array or tensor as a tensor."""
        raise NotImplementedError

    @staticmethod
    def _is_array(value: Any) -> bool:
        """Whether a value is one tensor or array, not a structure."""
        raise NotImplementedError

    @staticmethod
    def _cut(tensor: Any, widths: Sequence[int]) -> Sequence[Any]:
        """Cut the columns of `[B, sum(widths)]`."""
        raise NotImplementedError

    @staticmethod
    def _side_by_side(parts: list[Any]) -> Any:
        """Return `[B, w]` tensors as one."""
        raise NotImplementedError

    @staticmethod
    def _stack(columns: list[Any]) -> Any:
        """Return `[B]` tensors as one, `[B, n]`."""
        raise NotImplementedError

    @staticmethod
    def _joined(layout: Layout, parts: list[Any]) -> Any:
        """Return the leaves' actions as one flat tensor."""
        raise NotImplementedError

    @staticmethod
    def _apart(layout: Layout, flat: Any) -> Any:
        """Return flat actions as a structure."""
        raise NotImplementedError

    @staticmethod
    def _maker(group: Group) -> Callable[[Any, Any], Any]:
        """Return the function `(all inputs, model)` that makes a group's distribution."""
        raise NotImplementedError

    @staticmethod
    def _column(tensor: Any, column: int) -> Any:
        """Return one column of `[B, n]`, `[B]`."""
        raise NotImplementedError

    @staticmethod
    def _columns(tensor: Any, start: int, width: int) -> Any:
        """Return a run of the columns of `[B, n]`, `[B, width]`."""
        raise NotImplementedError

    @staticmethod
    def _gathered(tensor: Any, runs: tuple[tuple[int, int], ...]) -> Any:
        """Return runs of the columns of `[B, n]` side by side."""
        raise NotImplementedError

    @staticmethod
    def _widened(mask: Any, columns: tuple[int, ...]) -> Any:
        """Return columns of a mask `[B, m]` side by side; column m is True."""
        raise NotImplementedError

    def _rows(self, value: Any, width: int) -> Any:
        """Return a tensor as `[B, width]`."""
        raise NotImplementedError

    @staticmethod
    def _total(values: list[Any]) -> Any:
        """Return the sum of tensors `[B]`, in the widest of their types."""
        raise NotImplementedError

    @staticmethod
    def _finite(value: Any) -> Any:
        """Return a tensor with the finite number of its type that is nearest."""
        raise NotImplementedError

    def _of_flat(self, flat: Any) -> list[Any]:
        """Return the groups' columns of flat actions, whole numbers as int64."""
        raise NotImplementedError

    def _part(self, leaf: Leaf, value: Any) -> Any:
        """Return a leaf's actions as a tensor, whole numbers as int64."""
        raise NotImplementedError


def _itself(sample: Any) -> Any:
    return sample
