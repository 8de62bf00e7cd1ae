"""Framework-independent code for distributions over actions whose parts depend on each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import rlcatalog
from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, entropy_of, same_kind, unbind
from rlcatalog.errors import ActionMaskError, ModelContractError, NoClosedFormError
from rlcatalog.frameworks import TensorOps
from rlcatalog.models import inner_model
from rlcatalog.spaces import parts_of
from rlcatalog_autoregressive.part_columns import ActionPart, PartColumns


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

    def __init__(self, inputs: Any, model: Any = None, *, layout: PartColumns) -> None:
        self.inputs, self.model, self.layout = inputs, model, layout
        if inputs.shape[-1] != layout.size:
            raise ModelContractError(
                f"{type(self).__name__} for {layout.action.describe()} takes inputs [B,"
                f" {layout.size}], found shape {tuple(inputs.shape)}."
            )
        self.conditionals = _conditionals(model, type(self).__name__)
        self.entropy_kind = "exact" if layout.is_exact else "estimate"  # type: ignore[misc]
        self._independent, self._context = inputs[:, : layout.params], inputs[:, layout.params :]
        #: The last sampled or scored actions, the distribution of their parts given the earlier
        #: ones, and whether it can be differentiated.
        self._known: tuple[Any, Any, bool] = (None, None, False)

    @classmethod
    def required_model_output_shape(
        cls, action_space: Any, model_config: Mapping[str, Any] | None = None
    ) -> int:
        """Return the number of inputs if the default catalog chooses the parts' distributions."""
        config = {**(model_config or {}), "use_autoregressive": True}
        return int(
            rlcatalog.default_catalog().action_dist(
                action_space, config, framework=cls.framework_of_class
            )[1]
        )

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        """Return the layout, built on the distribution of independent parts."""
        ((plain, size),) = children  # the distribution that the catalog has chosen for the space
        return {"layout": PartColumns(action, config, plain, size)}

    @classmethod
    def stored(cls, options: Mapping[str, Any]) -> Any:
        """Return the distribution of independent parts with parameters from `params_given`."""
        return options["layout"].plain

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Return `inputs` with a mask applied to the parameters of the independent parts."""
        layout = options["layout"]
        own, bound = unbind(layout.plain)
        params = own.masked(inputs[:, : layout.params], mask, **bound)
        return cls.ops.side_by_side([params, inputs[:, layout.params :]])

    # --- for frameworks to implement
    # ------------------------------------------------------------------------------------

    @staticmethod
    def no_gradient() -> AbstractContextManager[Any]:
        """Return a context manager for sampling actions."""
        raise NotImplementedError

    @staticmethod
    def differentiable() -> bool:
        """Return whether current results, unlike samples, may be differentiated later."""
        raise NotImplementedError

    @staticmethod
    def check_allowed(mask: Any, params: Any, part: ActionPart) -> None:
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
        layout, ops = self.layout, self.ops
        with self.no_gradient():
            raw: dict[ActionPart, Any] = {}
            params: dict[ActionPart, Any] = {}
            run = self.run_class(self.conditionals, self._independent, self._context)
            as_they_are = layout.mask is None and not ops.is_half(self.inputs)
            for part in layout.parts:
                own = run.params(part)
                params[part] = own = (
                    own if as_they_are else self._allowed(part, own, raw, check=True)
                )
                if explore:
                    raw[part] = value = part.draw(own, self.model)
                else:
                    raw[part] = value = part.dist(own, self.model).deterministic_sample()
                if part is not layout.parts[-1]:
                    run.note(part, value)
            joined = ops.side_by_side([params[part] for part in layout.in_space])
            actions = ops.columns([raw[part] for part in layout.in_space])
            plain = layout.plain(joined, self.model)
            self.last_sample = plain.split(actions) if hasattr(plain, "split") else actions
            self._known = (self.last_sample, plain, False)
        return self.last_sample

    def _allowed(
        self, part: ActionPart, params: Any, raw: Mapping[ActionPart, Any], check: bool = False
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
        if ops.is_half(params):  # forbidden values, at the lowest finite value, may have changed
            params = ops.finite(params)
        if self.layout.mask is None:
            return params
        mask = self.layout.mask(
            part.path, {earlier.path: raw[earlier] for earlier in self.layout.parts[: part.rank]}
        )
        if mask is None:
            return params
        if not part.masks.size:
            raise ActionMaskError(
                f"autoregressive_mask({part.path!r}, …): values of this part cannot be forbidden;"
                " return None for it."
            )
        mask, width = ops.booleans(mask, params), part.masks.size
        if len(mask.shape) != 2 or mask.shape[1] not in (width, None):
            raise ActionMaskError(
                f"autoregressive_mask({part.path!r}, …): expected a mask [B, {width}], found shape"
                f" {tuple(mask.shape)}."
            )
        if check:
            self.check_allowed(mask, params, part)
        own, bound = unbind(part.dist)
        return own.masked(params, mask, **bound)

    # --- densities --------------------------------------------------------------------------------

    def params_given(self, actions: Any) -> Any:
        """Return the parameters `[B, params]` of all parts in one pass, each given the earlier
        parts of `actions`.

        Args:
            actions: Flat raw actions `[B, width]`, or the structure that `sample` returns.
        """
        return self._given(actions).inputs

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]`: the sum over the parts, each given the earlier parts of
        `actions`.
        """
        return self._given(actions).logp(actions)

    def _given(self, actions: Any) -> Any:
        """Return the distribution of all parts, each given the earlier ones of `actions`."""
        known, dist, differentiable = self._known
        if known is not None and actions is known and (differentiable or not self.differentiable()):
            return dist
        flat = self._flat(actions)
        dist = self.layout.plain(self._params(self._independent, self._context, flat), self.model)
        self._known = (actions, dist, self.differentiable())
        return dist

    def _flat(self, actions: Any) -> Any:
        ops, width = self.ops, self.layout.raw
        if not ops.is_array(actions):
            plain = self.layout.plain(self._independent, self.model)
            if hasattr(plain, "join"):
                actions = plain.join(actions)
            else:
                actions = ops.columns([ops.tensor(part) for part in parts_of(actions) or []])
        if (flat := ops.in_rows(actions, self.inputs, width)) is None:
            raise ModelContractError(
                "AutoregressiveDistribution: expected actions of shape"
                f" {(self.inputs.shape[0], width)}, found {tuple(actions.shape)}."
            )
        return flat

    def _params(self, independent: Any, context: Any, flat: Any) -> Any:
        params = independent + self.conditionals.given(context, flat)
        if self.layout.mask is None:
            return self.ops.finite(params) if self.ops.is_half(params) else params
        raw = self._values(flat)
        return self.ops.side_by_side(
            [self._allowed(p, params[:, p.params], raw) for p in self.layout.in_space]
        )

    def _values(self, flat: Any) -> dict[ActionPart, Any]:
        """Split raw actions into parts, in the same form as the parts' samples."""
        values = {part: flat[:, part.raw] for part in self.layout.parts}
        values |= {part: self.ops.whole(value) for part, value in values.items() if part.counts}
        return values | {part: value[:, 0] for part, value in values.items() if part.single}

    def _by_part(self, params: Any) -> dict[ActionPart, Any]:
        return {p: p.dist(params[:, p.params], self.model) for p in self.layout.parts}

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
        params, weights = self._over_prefixes()
        return weighted(weights, self.layout.plain(params, self.model).entropy(), self.ops)

    def kl(self, other: Any) -> Any:
        """Return the KL divergence `[B]`, summed over all combinations of values of all parts
        except the last.

        Raises:
            NoClosedFormError: See `entropy`.
        """
        same_kind(self, other)
        orders = [[part.path for part in dist.layout.parts] for dist in (self, other)]
        if orders[0] != orders[1]:
            raise ModelContractError(
                f"{self.layout.action.path}: kl() needs a distribution with the same parts in the"
                f" same order, found {', '.join(orders[0])} here and {', '.join(orders[1])} in the"
                " other."
            )
        if self.entropy_kind != "exact":
            way = "the mean of stored_dist(params).kl over drawn actions (see Policy.evaluate)"
            raise NoClosedFormError(self._no_sum("kl", way))
        params, weights = self._over_prefixes()
        theirs, _ = other._over_prefixes()
        plain = self.layout.plain
        return weighted(weights, plain(params, self.model).kl(plain(theirs, other.model)), self.ops)

    def _no_sum(self, what: str, way: str) -> str:
        return (
            f"{self.layout.action.path}: {what} is summed over the combinations of earlier parts"
            " where these are choices, at most autoregressive_exact of them, and every part has"
            f" an entropy of closed form; use {way}."
        )

    def _over_prefixes(self) -> tuple[Any, Any]:
        """Return each combination's parameters, `[B * P, params]`, and its
        probability, `[B, P]`.
        """
        ops, layout = self.ops, self.layout
        prefixes = ops.tensor(layout.prefixes, self.inputs)
        count = len(layout.prefixes)  # type: ignore[arg-type]
        independent, context = (
            ops.each_row(self._independent, count),
            ops.each_row(self._context, count),
        )
        flat = ops.all_rows(prefixes, self.inputs)
        params = self._params(independent, context, flat)
        dists, values = self._by_part(params), self._values(flat)
        logp = ops.total([dists[part].logp(values[part]) for part in layout.parts[:-1]])
        return params, ops.exp(ops.rows(logp, (count,)))

    def entropy_estimate(self) -> Any:
        """Return an unbiased estimate `[B]` of the entropy: the sum of the parts' entropies along a
        new sample.

        The gradient of the estimate is unbiased too. Choices cannot be reparameterised, so a
        score-function term with value 0 accounts for the effect of a draw on the later parts'
        entropies.
        """
        ops, layout = self.ops, self.layout
        kept = self._known, self.last_sample  # keep the last sample
        drawn = ops.without_gradient(self._flat(self.sample()))
        self._known, self.last_sample = kept
        params = self._params(self._independent, self._context, drawn)
        dists, values = self._by_part(params), self._values(drawn)
        entropies = [entropy_of(dists[part], lambda x: x)[0] for part in layout.parts]
        estimate = ops.total(entropies)
        for i, part in enumerate(layout.parts[:-1]):
            later, logp = (
                ops.without_gradient(ops.total(entropies[i + 1 :])),
                dists[part].logp(values[part]),
            )
            estimate = estimate + later * (logp - ops.without_gradient(logp))
        return estimate


def weighted(weights: Any, values: Any, ops: TensorOps) -> Any:
    """Return the sum over columns of values `[B * P]` weighted by `[B, P]`; values with weight 0
    are ignored.
    """
    return ops.sum(ops.only(weights > 0, weights * ops.rows(values, (weights.shape[1],))), axis=1)


def _conditionals(model: Any, who: str) -> Any:
    outer = model
    while model is not None:
        if hasattr(model, "conditionals"):
            return model.conditionals
        model = inner_model(model)
    raise ModelContractError(
        f"{who} needs the model that computed its inputs, with layers that connect the parts"
        f" (`conditionals`), found {type(outer).__name__}. Build the model with the same config"
        " (use_autoregressive=True); for parameters from `params_given`, use"
        " `policy.stored_dist`."
    )


def nothing_left(row: Any, path: str) -> str:
    """Return the message for a row that forbids every value of a part."""
    return (
        f"autoregressive_mask: row {row} allows no value of {path} together with the action mask;"
        " each row must allow one value."
    )
