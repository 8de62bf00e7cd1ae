"""Framework-independent code for distributions over actions whose parts depend on each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, check_same_kind, entropy_of, unbind
from rlcatalog.catalog import catalog_of
from rlcatalog.errors import ActionMaskError, ModelContractError, NoClosedFormError
from rlcatalog.frameworks import Tensor, TensorOps, TensorTree
from rlcatalog.models import ModelV2, inner_model
from rlcatalog.spaces import parts_of
from rlcatalog_autoregressive.part_columns import ActionPart, PartColumns

if TYPE_CHECKING:
    from gymnasium import Space


class ConditionedParts(NamedTuple):
    """Distribution of all parts, each given the earlier parts of some actions.

    Attributes:
        actions: The actions, as `sample` returned or `logp` received them.
        dist: The distribution.
        has_gradient: Whether it can be differentiated.
    """

    actions: Any
    dist: Any
    has_gradient: bool


class JointDistribution(ActionDistribution):
    """Product P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁), with one distribution per factor.

    The inputs are the parameters that the parts would have if they were independent, followed by
    the context for the hidden layers; `model.conditionals` adds the effect of earlier parts.
    Scoring stored actions takes a single pass through these layers with masked weights (MADE:
    Germain et al. 2015). Sampling takes one cheap pass per part.

    Args:
        inputs: Model output `[B, params + context]`.
        model: The model that computed the inputs. The model itself, or a model inside it, has an
            attribute `conditionals`.
        layout: The parts.
    """

    wraps_default: ClassVar[bool] = True
    framework_of_class: ClassVar[str]
    #: The framework's tensor operations, and its `Run` through the parts.
    ops: ClassVar[TensorOps]
    run_class: ClassVar[Any]

    def __init__(
        self, inputs: Tensor, model: ModelV2 | None = None, *, layout: PartColumns
    ) -> None:
        self.inputs = inputs
        self.model = model
        self.layout = layout
        if inputs.shape[-1] != layout.size:
            raise ModelContractError(
                f"{type(self).__name__} for {layout.action.describe()} takes inputs [B,"
                f" {layout.size}], found shape {tuple(inputs.shape)}."
            )
        self.conditionals = _conditionals(model, type(self).__name__)
        self.entropy_kind = "exact" if layout.is_exact else "estimate"  # type: ignore[misc]
        self._independent_params = inputs[:, : layout.num_params]
        self._context = inputs[:, layout.num_params :]
        #: The result for the last sampled or scored actions: scoring them needs no second pass.
        self._last: ConditionedParts | None = None

    @classmethod
    def required_model_output_shape(
        cls, action_space: Space[Any], model_config: Mapping[str, Any] | None = None
    ) -> int:
        """Return the number of inputs if the config's catalog, or else the default catalog, chooses
        the parts' distributions.
        """
        config = {**(model_config or {}), "use_autoregressive": True}
        catalog = catalog_of(model_config)
        _, size = catalog.action_dist(action_space, config, framework=cls.framework_of_class)
        return int(size)

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        """Return the layout, built on the distribution of independent parts."""
        # The distribution that the catalog has chosen for the space, and its number of inputs.
        ((independent_dist, size),) = children
        return {"layout": PartColumns(action, config, independent_dist, size)}

    @classmethod
    def stored(cls, options: Mapping[str, Any]) -> Any:
        """Return the distribution of independent parts with parameters from `params_given`."""
        return options["layout"].independent_dist

    @classmethod
    def masked(cls, inputs: Tensor, mask: Tensor, **options: Any) -> Any:
        """Return `inputs` with a mask applied to the parameters of the independent parts."""
        layout = options["layout"]
        plain_class, plain_options = unbind(layout.independent_dist)
        params = plain_class.masked(inputs[:, : layout.num_params], mask, **plain_options)
        return cls.ops.side_by_side([params, inputs[:, layout.num_params :]])

    # --- for frameworks to implement --------------------------------------------------------------

    @staticmethod
    def no_gradient() -> AbstractContextManager[Any]:
        """Return a context manager for sampling actions."""
        raise NotImplementedError

    @staticmethod
    def differentiable() -> bool:
        """Return whether current results, unlike samples, may be differentiated later."""
        raise NotImplementedError

    @staticmethod
    def check_allowed(mask: Tensor, params: Tensor, part: ActionPart) -> None:
        """Raise an error if a row allows no value of a part, counting values that its parameters
        already forbid.

        Raises:
            ActionMaskError: A row allows no value; the message names the row.
        """
        raise NotImplementedError

    # --- drawing ----------------------------------------------------------------------------------

    def sample(self) -> Any:
        """Sample part by part, without gradients; samples have the same form as those of
        independent parts.
        """
        return self._draw(explore=True)

    def deterministic_sample(self) -> Any:
        """Return each part's most likely value given the earlier parts, which is not always the
        most likely action.
        """
        return self._draw(explore=False)

    def _draw(self, explore: bool) -> Any:
        """Draw part by part, each given the earlier parts; without `explore`, take the most likely
        values.
        """
        layout = self.layout
        ops = self.ops
        raw: dict[ActionPart, Any] = {}
        params: dict[ActionPart, Any] = {}
        # Without a mask function, only parameters in half precision need a correction.
        needs_masking = layout.mask is not None or ops.is_half(self.inputs)
        with self.no_gradient():
            run = self.run_class(self.conditionals, self._independent_params, self._context)
            for part in layout.parts:
                params_of_part = run.params(part)
                if needs_masking:
                    params_of_part = self._masked_params(part, params_of_part, raw, check=True)
                if explore:
                    value = part.draw(params_of_part, self.model)
                else:
                    value = part.dist(params_of_part, self.model).deterministic_sample()
                params[part] = params_of_part
                raw[part] = value
                is_last = part is layout.parts[-1]
                if not is_last:
                    run.add(part, value)  # so that later parts depend on it
            all_params = ops.side_by_side([params[part] for part in layout.in_space])
            actions = ops.columns([raw[part] for part in layout.in_space])
            dist = layout.independent_dist(all_params, self.model)
            # A user's distribution of the whole action has no parts to split into.
            if hasattr(dist, "split"):
                actions = dist.split(actions)
            self.last_sample = actions
            self._last = ConditionedParts(actions, dist, has_gradient=False)
        return self.last_sample

    def _masked_params(
        self, part: ActionPart, params: Tensor, raw: Mapping[ActionPart, Any], check: bool = False
    ) -> Any:
        """Return a part's parameters, masked by the user's function and finite in any precision.

        Args:
            part: The part.
            params: Its parameters `[B, n]`.
            raw: Raw values of the earlier parts.
            check: Whether to raise an error for a row without an allowed value, as in sampling.
                Scoring also covers earlier values with probability 0, after which no value may be
                allowed.
        """
        ops = self.ops
        if ops.is_half(params):
            # Values that a mask forbids have the lowest finite value; adding the effect of earlier
            # parts may have made them infinite.
            params = ops.finite(params)
        if self.layout.mask is None:
            return params
        earlier_parts = self.layout.parts[: part.rank]
        mask = self.layout.mask(
            part.path, {earlier.path: raw[earlier] for earlier in earlier_parts}
        )
        if mask is None:
            return params
        if not part.masks.size:
            raise ActionMaskError(
                f"autoregressive_mask({part.path!r}, …): values of this part cannot be forbidden;"
                " return None for it."
            )
        mask = ops.booleans(mask, params)
        width = part.masks.size
        if len(mask.shape) != 2 or mask.shape[1] not in (width, None):
            raise ActionMaskError(
                f"autoregressive_mask({part.path!r}, …): expected a mask [B, {width}], found shape"
                f" {tuple(mask.shape)}."
            )
        if check:
            self.check_allowed(mask, params, part)
        part_class, options = unbind(part.dist)
        return part_class.masked(params, mask, **options)

    # --- densities --------------------------------------------------------------------------------

    def params_given(self, actions: Any) -> Any:
        """Return the parameters `[B, params]` of all parts in one pass, each given the earlier
        parts of `actions`.

        Args:
            actions: Flat raw actions `[B, width]`, or the structure that `sample` returns.
        """
        return self._condition(actions).inputs

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]`: the sum over the parts, each given the earlier parts of
        `actions`.
        """
        return self._condition(actions).logp(actions)

    def _condition(self, actions: TensorTree) -> Any:
        """Return the distribution of all parts, each given the earlier ones of `actions`."""
        last = self._last
        needs_gradient = self.differentiable()
        if last is not None and actions is last.actions:
            # A result without gradients does not serve a caller who may need them.
            if last.has_gradient or not needs_gradient:
                return last.dist
        flat = self._flat_actions(actions)
        params = self._conditional_params(self._independent_params, self._context, flat)
        dist = self.layout.independent_dist(params, self.model)
        self._last = ConditionedParts(actions, dist, has_gradient=needs_gradient)
        return dist

    def _flat_actions(self, actions: Any) -> Any:
        """Return flat raw actions `[B, width]`."""
        ops = self.ops
        width = self.layout.raw_width
        if not ops.is_array(actions):
            independent = self.layout.independent_dist(self._independent_params, self.model)
            # A user's distribution of the whole action need not have `join`.
            if hasattr(independent, "join"):
                actions = independent.join(actions)
            else:
                parts = parts_of(actions) or []
                actions = ops.columns([ops.tensor(part) for part in parts])
        flat = ops.in_rows(actions, self.inputs, width)
        if flat is None:  # there are too many values, or too few
            raise ModelContractError(
                "AutoregressiveDistribution: expected actions of shape"
                f" {(self.inputs.shape[0], width)}, found {tuple(actions.shape)}."
            )
        return flat

    def _conditional_params(self, independent: Tensor, context: Tensor, flat: Tensor) -> Any:
        """Return the parameters `[B, params]` of all parts, each given the earlier parts of flat
        raw actions.
        """
        params = independent + self.conditionals.effects(context, flat)
        if self.layout.mask is None:
            if self.ops.is_half(params):
                # The sum may exceed the range of half precision.
                params = self.ops.finite(params)
            return params
        raw = self._split_by_part(flat)
        params_of_parts = []
        for part in self.layout.in_space:
            params_of_parts.append(self._masked_params(part, params[:, part.params], raw))
        return self.ops.side_by_side(params_of_parts)

    def _split_by_part(self, flat: Tensor) -> dict[ActionPart, Any]:
        """Split raw actions into parts, in the same form as the parts' samples."""
        values = {}
        for part in self.layout.parts:
            value = flat[:, part.raw]
            if part.counts:  # its values are choices
                value = self.ops.whole(value)
            if part.is_scalar:
                value = value[:, 0]
            values[part] = value
        return values

    def _dists_by_part(self, params: Tensor) -> dict[ActionPart, Any]:
        """Return each part's distribution, from the parameters of all parts."""
        return {part: part.dist(params[:, part.params], self.model) for part in self.layout.parts}

    # --- entropy and divergence -------------------------------------------------------------------

    def entropy(self) -> Any:
        """Return the exact entropy `[B]`: a sum over all combinations of values of all parts except
        the last.

        Raises:
            NoClosedFormError: There are more than `autoregressive_exact` combinations, or a part's
                entropy has no closed form.
        """
        if self.entropy_kind != "exact":
            raise NoClosedFormError(self._no_sum("entropy", "entropy_estimate()"))
        params, probabilities = self._over_prefixes()
        entropies = self.layout.independent_dist(params, self.model).entropy()
        return weighted(probabilities, entropies, self.ops)

    def kl(self, other: Any) -> Any:
        """Return the KL divergence `[B]`, summed over all combinations of values of all parts
        except the last.

        Raises:
            NoClosedFormError: See `entropy`.
        """
        check_same_kind(self, other)
        order = [part.path for part in self.layout.parts]
        order_of_other = [part.path for part in other.layout.parts]
        if order != order_of_other:
            raise ModelContractError(
                f"{self.layout.action.path}: kl() needs a distribution with the same parts in the"
                f" same order, found {', '.join(order)} here and {', '.join(order_of_other)} in"
                " the other."
            )
        if self.entropy_kind != "exact":
            estimate = "the mean of stored_dist(params).kl over drawn actions (see Policy.evaluate)"
            raise NoClosedFormError(self._no_sum("kl", estimate))
        params, probabilities = self._over_prefixes()
        params_of_other, _ = other._over_prefixes()
        dist = self.layout.independent_dist(params, self.model)
        other_dist = self.layout.independent_dist(params_of_other, other.model)
        return weighted(probabilities, dist.kl(other_dist), self.ops)

    def _no_sum(self, what: str, way: str) -> str:
        return (
            f"{self.layout.action.path}: {what} is summed over the combinations of earlier parts"
            " where these are choices, at most autoregressive_exact of them, and every part has"
            f" an entropy of closed form; use {way}."
        )

    def _over_prefixes(self) -> tuple[Any, Any]:
        """Return the parameters after each combination of values of all parts except the last,
        `[B * P, params]`, and the combination's probability, `[B, P]`.
        """
        ops = self.ops
        layout = self.layout
        assert layout.prefixes is not None, "entropy_kind is checked before"
        num_prefixes = len(layout.prefixes)
        # A row for each pair of a row of inputs and a combination.
        flat = ops.all_rows(ops.constant(layout.prefixes, self.inputs), self.inputs)
        independent = ops.each_row(self._independent_params, num_prefixes)
        context = ops.each_row(self._context, num_prefixes)
        params = self._conditional_params(independent, context, flat)
        dists = self._dists_by_part(params)
        values = self._split_by_part(flat)
        logp = ops.total([dists[part].logp(values[part]) for part in layout.parts[:-1]])
        return params, ops.exp(ops.rows(logp, (num_prefixes,)))

    def entropy_estimate(self) -> Any:
        """Return an unbiased estimate `[B]` of the entropy: the sum of the parts' entropies along a
        new sample.

        The gradient of the estimate is unbiased too. Choices cannot be reparameterised, so a
        score-function term with value 0 accounts for the effect of a draw on the later parts'
        entropies.
        """
        ops = self.ops
        layout = self.layout
        # `sample` replaces the last sample, but the caller may still score the one before with
        # `sampled_action_logp`.
        last = self._last
        last_sample = self.last_sample
        sample = ops.without_gradient(self._flat_actions(self.sample()))
        self._last = last
        self.last_sample = last_sample
        params = self._conditional_params(self._independent_params, self._context, sample)
        dists = self._dists_by_part(params)
        values = self._split_by_part(sample)
        entropies = []
        for part in layout.parts:
            # A part's sample is in the form that its `logp` accepts: nothing to convert.
            entropy, _ = entropy_of(dists[part], to_stored_form=lambda sample: sample)
            entropies.append(entropy)
        estimate = ops.total(entropies)
        for i, part in enumerate(layout.parts[:-1]):
            later_entropies = ops.without_gradient(ops.total(entropies[i + 1 :]))
            logp = dists[part].logp(values[part])
            score = logp - ops.without_gradient(logp)  # 0, with the gradient of logp
            estimate = estimate + later_entropies * score
        return estimate


def weighted(weights: Tensor, values: Tensor, ops: TensorOps) -> Any:
    """Return the sum over columns of values `[B * P]` weighted by `[B, P]`; values with weight 0
    are ignored.
    """
    columns = ops.rows(values, (weights.shape[1],))
    return ops.sum(ops.only(weights > 0, weights * columns), axis=1)


def _conditionals(model: ModelV2 | None, who: str) -> Any:
    """Return the conditionals of a model, or of a model inside it."""
    outer = model
    while model is not None:
        # Interfaces and users' models wrap the head, which has this attribute.
        if hasattr(model, "conditionals"):
            return model.conditionals
        model = inner_model(model)
    raise ModelContractError(
        f"{who} needs the model that computed its inputs, with layers that connect the parts"
        f" (`conditionals`), found {type(outer).__name__}. Build the model with the same config"
        " (use_autoregressive=True); for parameters from `params_given`, use"
        " `policy.stored_dist`."
    )


def nothing_left(row: int | str, path: str) -> str:
    """Return the message for a row that forbids every value of a part."""
    return (
        f"autoregressive_mask: row {row} allows no value of {path} together with the action mask;"
        " each row must allow one value."
    )
