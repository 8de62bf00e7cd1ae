"""Framework-independent distribution for OneOf spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from rlcatalog import ModelV2, SpaceInfo
from rlcatalog.actions import ActionDistribution, check_same_kind, entropy_of, open_parts
from rlcatalog.errors import ActionMaskError, ModelContractError, NoClosedFormError
from rlcatalog.frameworks import Tensor, TensorTree
from rlcatalog_multi_action.common import PartsDistribution
from rlcatalog_multi_action.members import Factory, Member, OneOfColumns, values_of


class OneOfBase(PartsDistribution):
    """Distribution over the actions of exactly one of several spaces, the parts of a OneOf.

    The choice is a distribution over the numbers of the parts, and each part has a distribution of
    its own. The density of an action is the probability of its part, times the density of the
    action within the part. If some parts have numbers and others have choices, the result is a
    density for the parts with numbers, and a probability for the parts with choices.

    Raw actions are tensors `[B, width]`: the number of the chosen part, and then the raw values of
    every part. Samples have 0 in the parts that are not chosen, and `logp` does not read these.

    Args:
        inputs: `[B, size]`: the inputs of the choice, and then those of each part.
        model: The model that computed the inputs, or None; it is passed to every distribution.
        layout: The choice, the parts and their columns.

    Attributes:
        choice: The distribution of the choice.
        part_distributions: The distributions of the parts.
    """

    #: `"exact"` if the entropies of the choice and of every part are exact.
    entropy_kind: str = "exact"  # type: ignore[misc]  # a class variable elsewhere

    # The last sample as the choice and the samples of all parts. `logp` recognises it by identity
    # of `last_sample`, and scores the parts' own samples.
    _last_choice: Any = None
    _last_values: Sequence[Any] = ()
    # The result of `_log_probs`.
    _cached_log_probs: list[Any] | None = None

    def __init__(
        self, inputs: Tensor, model: ModelV2 | None = None, *, layout: OneOfColumns
    ) -> None:
        self.inputs = self.ops.tensor(inputs)
        self.model = model
        self.layout = layout
        if self.inputs.shape[-1] != layout.inputs.total:
            members = (layout.choice, *layout.parts)
            sizes = ", ".join(f"{member.info.path}: {member.size}" for member in members)
            raise ModelContractError(
                f"{layout.info.path}: expected {layout.inputs.total} model outputs ({sizes}),"
                f" found inputs of shape {tuple(self.inputs.shape)}."
            )
        choice_inputs, *part_inputs = self.ops.cut(self.inputs, layout.inputs)
        self.choice = layout.choice.dist(choice_inputs, model)
        self.part_distributions: list[Any] = []
        for part, piece in zip(layout.parts, part_inputs, strict=True):
            self.part_distributions.append(part.dist(piece, model))
        for dist in (self.choice, *self.part_distributions):
            # The user's class may not derive from ActionDistribution.
            if getattr(dist, "entropy_kind", "exact") != "exact":
                self.entropy_kind = "estimate"

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,
        config: Mapping[str, Any],  # noqa: ARG003  (ActionDistribution's signature)
        children: Sequence[tuple[Factory, int]] = (),
    ) -> dict[str, Any]:
        """Return the layout, which holds the distributions of the choice and of the parts."""
        dists = [dist for dist, _ in children]
        sizes = [size for _, size in children]
        return {"layout": OneOfColumns(action, dists, sizes)}

    @classmethod
    def masked(cls, inputs: Tensor, mask: Tensor, **options: Any) -> Any:
        """Return `inputs` with the mask applied to the choice and to the parts.

        A part that allows no action is not chosen, and the mask of a part that cannot be chosen
        does not matter.

        Args:
            inputs: Model output `[B, size]`.
            mask: Boolean tensor `[B, m]`: a column for each part, and then the parts' columns.
            **options: The result of `options_for`.

        Raises:
            ActionMaskError: The mask has the wrong number of columns.
        """
        ops = cls.ops
        layout: OneOfColumns = options["layout"]
        inputs = ops.tensor(inputs)
        mask = ops.booleans(mask, inputs)
        if mask.shape[-1] != layout.masks.total:
            members = (layout.choice, *layout.parts)
            widths = ", ".join(f"{member.info.path}: {member.mask_width}" for member in members)
            raise ActionMaskError(
                f"{layout.info.path}: expected a mask of {layout.masks.total} columns ({widths}),"
                f" found shape {tuple(mask.shape)}."
            )
        choice_inputs, *part_inputs = ops.cut(inputs, layout.inputs)
        _, *part_masks = ops.cut(mask, layout.masks)
        open_rows = open_parts(layout.codecs, mask, ops)
        results = [layout.choice.masked(choice_inputs, ops.columns(open_rows))]
        for part, piece, allowed, is_open in zip(
            layout.parts, part_inputs, part_masks, open_rows, strict=True
        ):
            if part.mask_width:
                # A part that is not open may allow nothing, and then it would have no distribution.
                allowed = allowed | ~is_open[:, None]
            results.append(part.masked(piece, allowed))
        return ops.side_by_side(results)

    # --- drawing ----------------------------------------------------------------------------------

    def sample(self) -> Any:
        """Sample a part, and an action of this part, without gradients: `[B, width]`."""
        values = [dist.sample() for dist in self.part_distributions]
        return self._remember(self.choice.sample(), values)

    def rsample(self) -> Any:
        """Sample like `sample`; values of the chosen part have gradients if its distribution
        supports them, while the choice has none.
        """
        values = [dist.rsample() for dist in self.part_distributions]
        return self._join(self.choice.sample(), values)

    def deterministic_sample(self) -> Any:
        """Return the most likely action if all parts have choices only; otherwise the deterministic
        action of the most likely part, because densities and probabilities cannot be compared.
        """
        values = [dist.deterministic_sample() for dist in self.part_distributions]
        if not self.layout.is_discrete:
            return self._remember(self.choice.deterministic_sample(), values)
        scores = []
        for log_prob, dist, value in zip(
            self._log_probs(), self.part_distributions, values, strict=True
        ):
            scores.append(self.ops.total([log_prob, dist.logp(value)]))
        return self._remember(self.ops.argmax(self.ops.columns(scores)), values)

    def _remember(self, choice: Tensor, values: Sequence[TensorTree]) -> Any:
        """Return a sample in flat form, and store it for `logp`."""
        self._last_choice = choice
        self._last_values = values
        self.last_sample = self._join(choice, values)
        return self.last_sample

    def _join(self, choice: Any, values: Sequence[TensorTree]) -> Any:
        """Return the choice and the parts' samples side by side, with 0 in parts that are not
        chosen.
        """
        ops = self.ops
        columns = [ops.flat(choice)]
        for place, (part, value) in enumerate(zip(self.layout.parts, values, strict=True)):
            columns.append(ops.only(choice == place, self._flat(part, value)))
        return ops.side_by_side(columns)

    def _flat(self, part: Member, sample: TensorTree) -> Any:
        """Return a part's sample, which may be a structure, as columns `[B, n]`."""
        values: Sequence[Any] = [sample]
        widths = [part.columns_by_leaf.total]
        if not self.ops.is_array(sample):
            values = values_of(part.info, sample)
            widths = list(part.columns_by_leaf.widths)
        columns = []
        for value, width in zip(values, widths, strict=True):
            columns.append(self.ops.in_rows(value, self.inputs, width))
        return self.ops.side_by_side(columns)

    # --- densities --------------------------------------------------------------------------------

    def logp(self, actions: Tensor) -> Any:
        """Return the log density `[B]`: the log probability of the part, plus the log density of
        the action within the part.

        The parts that are not chosen have no gradient.

        Args:
            actions: Raw actions `[B, width]`, a tensor or an array.

        Raises:
            ModelContractError: The actions have another shape.
        """
        ops = self.ops
        # No value of the last sample is forbidden, so the sum is finite.
        if actions is self.last_sample:
            return ops.total(self._log_densities(self._last_choice, self._last_values))
        choice, values = self._split(actions)
        # The sum of two forbidden values' log probabilities exceeds the dtype's range.
        return ops.finite(ops.total(self._log_densities(choice, values)))

    def _log_densities(self, choice: Any, values: Sequence[Any]) -> list[Any]:
        """Return the log probabilities of the choice, and each part's log densities: 0 where the
        part is not chosen.
        """
        logps = [self.choice.logp(choice)]
        for place, (dist, value) in enumerate(zip(self.part_distributions, values, strict=True)):
            logps.append(self.ops.only(choice == place, dist.logp(value)))
        return logps

    def _split(self, actions: Tensor) -> tuple[Any, list[Any]]:
        """Return the choices `[B]` in raw actions, and for each part values that its distribution
        can score in every row.
        """
        ops = self.ops
        layout = self.layout
        flat = ops.in_rows(actions, self.inputs, layout.actions.total)
        if flat is None:  # there are too many values, or too few
            raise ModelContractError(
                f"{layout.info.path}: expected raw actions of shape"
                f" {(self.inputs.shape[0], layout.actions.total)}: the number of the chosen part,"
                f" and the raw values of every part; found shape {tuple(actions.shape)}."
            )
        choice_column, *pieces = ops.cut(flat, layout.actions)
        choice = ops.whole(choice_column)[:, 0]
        values = []
        for place, (part, dist, piece) in enumerate(
            zip(layout.parts, self.part_distributions, pieces, strict=True)
        ):
            values.append(self._scorable(part, dist, piece, is_chosen=choice == place))
        return choice, values

    def _scorable(self, part: Member, dist: Any, piece: Tensor, is_chosen: Any) -> Any:
        """Return a part's values where it is chosen, and elsewhere values with a finite density.

        There, raw actions may hold any numbers. An infinite density, as for a number outside the
        bounds of a Beta, would turn the gradient into NaN, even though it is multiplied by 0.
        """
        ops = self.ops
        kept = ops.only(is_chosen, piece)
        likely = ops.without_gradient(self._flat(part, dist.deterministic_sample()))
        if part.is_integer:
            kept = ops.whole(kept)
        elif not ops.is_float(kept):
            kept = ops.cast(kept, likely.dtype)
        value = kept + ops.only(~is_chosen, ops.cast(likely, kept.dtype))
        return value[:, 0] if part.is_scalar else value

    def _log_probs(self) -> list[Any]:
        """Return the log probability `[B]` of each part."""
        if self._cached_log_probs is None:
            ops = self.ops
            log_probs = []
            for place in range(len(self.layout.parts)):
                choices = ops.all_rows(ops.constant([[place]], self.inputs), self.inputs)
                log_probs.append(self.choice.logp(choices[:, 0]))
            self._cached_log_probs = log_probs
        return self._cached_log_probs

    # --- entropy and divergence -------------------------------------------------------------------

    def entropy(self) -> Any:
        """Return the entropy `[B]`: that of the choice, plus the parts' entropies, each multiplied
        by the probability of the part.

        Raises:
            NoClosedFormError: A part's entropy has no closed form; see `entropy_estimate`.
        """
        if self.entropy_kind != "exact":
            raise self._no_entropy()
        return self._expected(lambda dist: dist.entropy())

    def entropy_estimate(self) -> Any:
        """Return an unbiased estimate `[B]` of the entropy: exact for parts with a closed form, and
        for the probabilities of the parts.
        """
        return self._expected(_entropy_or_estimate)

    def _expected(self, entropy: Callable[[Any], Any]) -> Any:
        """Return a function of the choice's distribution, plus the expectation of the same function
        of the chosen part's distribution.
        """
        terms = [entropy(self.choice)]
        for log_prob, dist in zip(self._log_probs(), self.part_distributions, strict=True):
            terms.append(self._weighted(log_prob, entropy(dist)))
        return self.ops.total(terms)

    def _no_entropy(self) -> NoClosedFormError:
        """Return the error that names the first part whose entropy has no closed form."""
        members = (self.layout.choice, *self.layout.parts)
        inexact = []
        for member, dist in zip(members, (self.choice, *self.part_distributions), strict=True):
            # The user's class may not derive from ActionDistribution.
            if getattr(dist, "entropy_kind", "exact") != "exact":
                inexact.append(member.info)
        first = inexact[0]
        return NoClosedFormError(
            f"{first.path}: the entropy of {first.kind} has no closed form here; use"
            " entropy_estimate()."
        )

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence `[B]`: that of the choice, plus the parts' divergences, each
        multiplied by the probability of the part.
        """
        check_same_kind(self, other)
        here = list(self.layout.inputs.widths)
        there = list(other.layout.inputs.widths)
        if here != there:
            raise ModelContractError(
                f"{self.layout.info.path}: kl() needs a distribution with the same parts, but the"
                f" choice and the parts take {here} model outputs here and {there} in the other"
                " distribution."
            )
        terms = [self.choice.kl(other.choice)]
        for log_prob, dist, other_dist in zip(
            self._log_probs(), self.part_distributions, other.part_distributions, strict=True
        ):
            # An infinite divergence of a part with probability 0 would be NaN.
            divergence = self.ops.finite(dist.kl(other_dist))
            terms.append(self._weighted(log_prob, divergence))
        return self.ops.finite(self.ops.total(terms))

    def _weighted(self, log_prob: Tensor, values: Tensor) -> Any:
        """Return values of a part times its probability, in the values' precision, which may be
        higher than that of the choice.
        """
        return self.ops.cast(self.ops.exp(log_prob), values.dtype) * values


def _entropy_or_estimate(dist: ActionDistribution) -> Any:
    """Return a distribution's entropy, or its estimate if it has no closed form."""
    entropy, _ = entropy_of(dist, to_stored_form=lambda sample: sample)
    return entropy
