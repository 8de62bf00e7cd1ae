"""`ActionDistribution`: the framework-neutral base class of action distributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rlcatalog.errors import ModelContractError, NoClosedFormError, NotServedError, StaleOutputError
from rlcatalog.frameworks.ops import Tensor, TensorOps, TensorTree, ops_of
from rlcatalog.spaces.info import Space, SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.models import ModelV2


class ActionDistribution:
    """Distribution over a batch of raw actions.

    `inputs` contains everything except weights, including action masks, so that a distribution can
    be rebuilt from stored inputs. `sample` returns raw actions, and `logp` is their true density.

    Args:
        inputs: Model output `[B, size]`.
        model: The model that computed `inputs`, or None.
    """

    #: Whether the class joins distributions that the catalog chooses for an action's parts: the
    #: children of a Tuple or Dict, or the choice and the children of a OneOf.
    composite: ClassVar[bool] = False
    #: Whether the class wraps the distribution that the catalog would otherwise choose.
    wraps_default: ClassVar[bool] = False
    #: How the action codec reads raw actions: `"values"` (offsets are added, floats mapped into
    #: their bounds), `"bounded"` (floats that are already within their bounds), `"onehot"`
    #: (one-hots, relaxed or not, of a Discrete).
    raw_kind: ClassVar[str] = "values"
    #: `"exact"` if `entropy` returns the entropy; `"estimate"` if engines must call
    #: `entropy_estimate`. `kl` is exact or not defined.
    entropy_kind: ClassVar[str] = "exact"
    #: Whether `logp` distinguishes actions, which policy gradients need; a point mass has no
    #: density.
    has_density: ClassVar[bool] = True
    #: Whether a mask can forbid values; False for distributions over numbers.
    maskable: ClassVar[bool] = True
    #: The tensor operations of the class's framework; None means those of each tensor.
    ops: ClassVar[TensorOps | None] = None
    #: The last result of `sample` or `deterministic_sample`.
    last_sample: Any = None

    def __init__(self, inputs: Tensor, model: ModelV2 | None = None) -> None:
        self.inputs: Any = inputs
        self.model = model

    # --- to implement -----------------------------------------------------------------------------

    def sample(self) -> Any:
        """Draw new raw actions without gradient: `[B]` for a single Discrete, otherwise
        `[B, width]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement sample().")

    def rsample(self) -> Any:
        """Draw reparameterised raw actions, with gradients to the inputs; here the same as
        `sample`.
        """
        return self.sample()

    def deterministic_sample(self) -> Any:
        """Return raw actions without randomness.

        For discrete actions, this is the most likely action. For numbers, it is the mode, the mean
        or the median: `SquashedGaussian`, `Beta` and `Dirichlet` do not return the most likely
        value.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement deterministic_sample().")

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]` of raw actions."""
        raise NotImplementedError(f"{type(self).__name__} must implement logp(actions).")

    def entropy(self) -> Any:
        """Return the entropy `[B]` in nats."""
        raise NoClosedFormError(
            f"{type(self).__name__} has no closed form for its entropy; use entropy_estimate(), as"
            " engines do if the class sets entropy_kind = 'estimate'."
        )

    def kl(self, other: ActionDistribution) -> Any:
        """Return the exact Kullback-Leibler divergence `KL(self || other)` in nats, `[B]`."""
        raise NoClosedFormError(
            f"{type(self).__name__} has no closed form for its kl. Switch off the term that needs"
            " it, as with kl_coeff=0 or use_kl_loss=False; or average self.logp(x) -"
            " other.logp(x) over samples x from self."
        )

    @staticmethod
    def required_model_output_shape(
        action_space: Space, model_config: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the number of model outputs that the distribution needs."""
        raise NotImplementedError(
            "required_model_output_shape(action_space, model_config) must be implemented."
        )

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,  # noqa: ARG003  (for overrides)
        config: Mapping[str, Any],  # noqa: ARG003  (for overrides)
    ) -> dict[str, Any]:
        """Return keyword arguments for the constructor that depend on the action space, such as
        bounds.

        A composite also takes `children`: the distribution class and size for each part of the
        action, in order. A class that wraps another distribution takes the class and size of that
        distribution.

        Args:
            action: The action space.
            config: The model config.
        """
        return {}

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> Any:  # noqa: ARG003  (for overrides)
        """Return a key shared by the distributions that `side_by_side` can join into one; None if
        there are none.

        A composite joins parts with equal keys, so that the number of tensor operations does not
        grow with the number of parts.

        Args:
            options: The result of `options_for`.
        """
        return None

    @classmethod
    def side_by_side(
        cls, members: Sequence[tuple[Mapping[str, Any], int]]
    ) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return one distribution class for several members of a family, and the order of their
        inputs.

        Its raw actions are the concatenated raw actions of the members.

        Args:
            members: Options and number of inputs for each member.

        Returns:
            The class, or a `BoundDistribution`, and the slices of the inputs, each a tuple of
            member index, first column and end column.
        """
        raise NotImplementedError(
            f"{cls.__name__} has a family and must implement side_by_side(members)."
        )

    @classmethod
    def masked(
        cls,
        inputs: Any,
        mask: Any,
        **options: Any,  # noqa: ARG003  (for overrides)
    ) -> Any:
        """Return `inputs` with an action mask applied.

        Args:
            inputs: Model output `[B, size]`.
            mask: Boolean tensor `[B, m]`, True for allowed values, with the columns of
                `ActionMasks`; a Box has none. This method accepts a mask with no columns, or with
                one per input. A forbidden input gets the dtype's lowest finite value.
            **options: The result of `options_for`.

        Raises:
            NotServedError: The class is not `maskable`; or the mask does not have one column per
                input, and the class does not override this method.
        """
        columns = mask.shape[-1]
        if not columns:
            return inputs
        if not cls.maskable:
            raise NotServedError(
                f"{cls.__name__} does not support action masks, but got a mask with"
                f" {columns} columns."
            )
        if columns != inputs.shape[-1]:
            raise NotServedError(
                f"{cls.__name__} has {inputs.shape[-1]} inputs, but got a mask with"
                f" {columns} columns; to use it, the class must define masked(inputs, mask)."
            )
        ops = ops_of(inputs) if cls.ops is None else cls.ops
        return ops.fill_forbidden(inputs, mask)

    @classmethod
    def draw(cls, inputs: Any, model: ModelV2 | None = None, **options: Any) -> Any:
        """Draw like `sample`, without creating a distribution object for further calls.

        Override it to save time.

        Args:
            inputs: Model output `[B, size]`.
            model: The model that computed `inputs`, or None.
            **options: The result of `options_for`.
        """
        return cls(inputs, model, **options).sample()

    def params_given(self, actions: TensorTree) -> Any:
        """Return the parameters `[B, n]` that score `actions`, which engines store with the
        actions.

        These are `inputs`, unless the parts of an action depend on one another: then they are the
        parameters of each part given the earlier parts of `actions`. `stored` rebuilds a
        distribution from them.
        """
        return self.inputs

    @classmethod
    def stored(cls, options: Mapping[str, Any]) -> Any:  # noqa: ARG003  (for overrides)
        """Return the class that rebuilds a distribution from `params_given`; None means this class.

        Args:
            options: The result of `options_for`.
        """
        return None

    @classmethod
    def parts(
        cls, action: SpaceInfo, size: int, options: Mapping[str, Any]
    ) -> list[tuple[SpaceInfo, Any, int]]:
        """Return the independent parts whose product this distribution is, in the order of inputs
        and raw actions.

        Args:
            action: The action space.
            size: Number of inputs.
            options: The result of `options_for`.

        Returns:
            The parts. Each entry consists of a node of the action space, a callable
            `(inputs, model)` that creates its distribution, and the number of inputs. The node for
            one choice of a MultiDiscrete is a Discrete.
        """
        make_dist = BoundDistribution(cls, options) if options else cls
        return [(action, make_dist, size)]

    # --- to call ----------------------------------------------------------------------------------

    def sampled_action_logp(self) -> Any:
        """Return the log density `[B]` of the last sample.

        Raises:
            StaleOutputError: Nothing has been sampled yet.
        """
        if self.last_sample is None:
            raise StaleOutputError(
                f"{type(self).__name__}: call sample() before sampled_action_logp()."
            )
        return self.logp(self.last_sample)

    def entropy_estimate(self) -> Any:
        """Return an unbiased estimate `[B]` of the entropy: minus the log density of a new
        (reparameterised) sample.
        """
        return -self.logp(self.rsample())

    def multi_kl(self, other: ActionDistribution) -> Any:
        """Return the divergence per component; the same as `kl` for a distribution with one
        component.
        """
        return self.kl(other)

    def multi_entropy(self) -> Any:
        """Return the entropy per component; the same as `entropy` for a distribution with one
        component.
        """
        return self.entropy()


class BoundDistribution(partial[Any]):
    """Distribution class with its options for an action space; call it like the class.

    Args:
        dist: The class.
        options: Keyword arguments for its constructor; `partial` restores them itself when
            unpickling.
    """

    @property
    def cls(self) -> Any:
        """The distribution class."""
        return self.func

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments for its constructor."""
        return self.keywords

    def __new__(
        cls, dist: Callable[..., Any], options: Mapping[str, Any] = {}
    ) -> BoundDistribution:
        return super().__new__(cls, dist, **options)

    def masked(self, inputs: Tensor, mask: Tensor) -> Any:
        """Return `inputs` with an action mask applied."""
        return self.func.masked(inputs, mask, **self.keywords)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cls, name)

    def __repr__(self) -> str:
        return f"BoundDistribution({self.cls.__name__}, {self.options})"


def shape_method(size: Callable[[SpaceInfo, Mapping[str, Any]], int]) -> Callable[..., int]:
    """Return a `required_model_output_shape` method for a class whose declaration has
    this `size`.
    """

    def required_model_output_shape(
        action_space: Space, model_config: Mapping[str, Any] | None = None
    ) -> int:
        return size(SpaceInfo.read(action_space, "action"), model_config or {})

    return required_model_output_shape


def bind(
    cls: Any, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
) -> Any:
    """Return a class for an action space: the class itself if it needs no options, otherwise a
    `BoundDistribution`.

    Args:
        cls: The distribution class.
        action: The action space.
        config: The model config.
        children: For a composite, the distribution class and size of each child.
    """
    # A class from elsewhere, such as RLlib's, need not have the method.
    options_for = getattr(cls, "options_for", None)
    if options_for is None:
        return cls
    # Only a composite's method takes the children.
    if children:
        options = options_for(action, config, children)
    else:
        options = options_for(action, config)
    if not options:
        return cls
    return BoundDistribution(cls, options)


def unbind(dist_class: Callable[..., Any]) -> tuple[Any, Mapping[str, Any]]:
    """Return a distribution's class and the options bound to it."""
    if isinstance(dist_class, partial):
        return dist_class.func, dist_class.keywords
    return dist_class, {}


def params_given(dist: ActionDistribution, actions: TensorTree) -> Any:
    """Return the parameters under which a distribution scores actions; see
    `ActionDistribution.params_given`.
    """
    default = ActionDistribution.params_given
    # A class from elsewhere need not have the method.
    if getattr(type(dist), "params_given", default) is default:
        return dist.inputs
    return dist.params_given(actions)


def check_same_kind(dist: ActionDistribution, other: ActionDistribution) -> None:
    """Check that `other` is a distribution of the same kind, as a divergence requires.

    Raises:
        ModelContractError: `other` is of a different kind.
    """
    if not isinstance(other, type(dist)):
        raise ModelContractError(
            f"{type(dist).__name__}.kl() expects another {type(dist).__name__}, found {other!r}."
        )


def entropy_of(
    dist: ActionDistribution, to_stored_form: Callable[[Any], Any], compute: bool = True
) -> tuple[Any, str]:
    """Return a distribution's entropy `[B]` and its kind, `"exact"` or `"estimate"`.

    Args:
        dist: The distribution. Its entropy is estimated if it has no closed form, or if its class
            does not define `entropy`.
        to_stored_form: A function that converts a sample into the stored form that `logp` accepts.
        compute: Whether to compute the entropy; otherwise it is None, and the kind is the
            `entropy_kind` of the class.
    """
    kind = getattr(dist, "entropy_kind", "exact")  # a class from elsewhere need not have it
    if not compute:
        return None, kind
    if kind == "exact":
        try:
            return dist.entropy(), "exact"
        except NoClosedFormError:
            pass  # estimate it, as below
    if type(dist).entropy_estimate is not ActionDistribution.entropy_estimate:
        return dist.entropy_estimate(), "estimate"
    # The inherited estimate would pass the sample to logp as it is.
    sample = to_stored_form(dist.rsample())
    return -dist.logp(sample), "estimate"
