"""Encoder: encodes and filters observations, and reads action masks, before observations reach a
model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np

from rlcatalog.actions import NOT_GIVEN, ActionCodec, ActionMasks, Mask, NotGiven
from rlcatalog.catalog import Catalog
from rlcatalog.choice import Resolution
from rlcatalog.errors import ActionMaskError, ObservationError
from rlcatalog.frameworks import Tensor, ops_of
from rlcatalog.internals import make_filter
from rlcatalog.observations import Array, Filter, Preprocessor
from rlcatalog_policy.non_finite import check_observations
from rlcatalog_policy.policy_encoder import PolicyEncoder

#: Observations, actions or masks of several environments: a batch, in the form that a vector
#: environment uses for the space, or a list of single ones.
Batch: TypeAlias = Tensor | Mapping[str, Any] | Sequence[Any]

#: The argument `mask` of `Policy.act`: masks in Gymnasium's format, None to allow every action, or
#: `NOT_GIVEN` for those in the observations.
Masks: TypeAlias = "Mask | NotGiven"


def with_batch_hint(
    error: ObservationError | ActionMaskError, preprocessor: Preprocessor, obs: Batch
) -> ObservationError | ActionMaskError:
    """Return the error for a batch that cannot be read, with a hint if it is a single
    observation.
    """
    try:
        preprocessor.check(obs)
    except (Exception, SystemExit):  # a codec may raise anything on unknown input
        return error
    error.args = (f"{error} This is a single observation: pass a batch of one, [obs].",)
    return error


def check_encoded(given: Sequence[int], shape: Sequence[int], name: str, place: str = "") -> None:
    """Raise an error unless a batch has the shape of encoded observations.

    Args:
        given: The shape of the batch.
        shape: The shape of a single encoded observation.
        name: The caller's name for the batch.
        place: Beginning of the message.

    Raises:
        ObservationError: The shape differs.
    """
    batch_shape = tuple(given)
    single_shape = tuple(shape)
    if batch_shape and batch_shape[1:] == single_shape:
        return
    expected_axes = ", ".join(["B", *map(str, shape)])
    message = (
        f"{place}expected encoded observations of shape [{expected_axes}], as Policy.preprocess"
        f" returns them, found shape {batch_shape}."
    )
    if batch_shape == single_shape:
        message += f" This is a single observation: add an axis, {name}[None]."
    raise ObservationError(message)


def check_columns(masks: ActionMasks, mask: Tensor, rows: int, name: str) -> None:
    """Raise an error unless an array or tensor has the format of action masks from
    `Policy.action_mask`, `[rows, m]`.

    Args:
        masks: Reader for the action space's masks.
        mask: The array or tensor.
        rows: Number of rows.
        name: The caller's name for the array.

    Raises:
        ActionMaskError: The shape is wrong, a number is neither 0 nor 1, or a row allows no action.
    """
    # If nothing can be masked, so that the size is 0, `matrix` below says so.
    if masks.size and tuple(mask.shape) != (rows, masks.size):
        raise ActionMaskError(
            f"{name}: expected shape ({rows}, {masks.size}), as Policy.action_mask returns it,"
            f" found shape {tuple(mask.shape)}."
        )
    values = host_values(mask)
    if values is not None:
        masks.matrix(values, len(values))  # raises the error for wrong numbers


def host_values(value: Tensor | None) -> Any:
    """Return an array, or a tensor in CPU memory, as an array; return None for other tensors and
    while tracing.
    """
    if is_on_other_device(value):
        return None
    return to_array(value)


def is_on_other_device(value: Any) -> bool:
    """Return whether a tensor, or what stands for one, lies on a device other than the CPU."""
    # Frameworks name the CPU in their own ways: "cpu", "/device:CPU:0". Arrays name it since
    # NumPy 2.
    device = str(getattr(value, "device", "")).lower()
    return bool(device) and "cpu" not in device


def to_array(value: Tensor | None) -> Any:
    """Return a tensor on any device as an array; return None for None."""
    if value is None or isinstance(value, np.ndarray):
        return value
    return ops_of(value).array(value)


class EncodedBatch(NamedTuple):
    """A batch of encoded observations with its action masks.

    Attributes:
        obs: The observations, encoded and filtered, `[B, ...]`.
        mask: Their action masks `[B, m]`, or None without masks.
        policy_only: Whether the observations lack entries that only a critic sees. They have zeros
            in place of these, from which no value can be computed.
    """

    obs: Array
    mask: Array | None
    policy_only: bool


class Encoder:
    """Encoder for an environment's observations, which also reads their action masks.

    Args:
        catalog: Catalog in which to look up preprocessors.
        resolution: The lookup's choice.
        codec: The codec of the action space, if it already exists.
        filters: Whether to also create the filter that the lookup chose.

    Attributes:
        preprocessor: Encodes observations, omitting their masks if the model does not see them.
        masks: Reads action masks.
        removes_mask: Whether the mask is removed before the preprocessor runs.
        filter: The filter after the preprocessor, or None.
        space: The space of encoded and filtered observations.
        policy_encoder: Encodes observations without the entries that only a critic sees; None if
            the policy sees the whole observation.
    """

    def __init__(
        self,
        catalog: Catalog,
        resolution: Resolution,
        codec: ActionCodec | None = None,
        *,
        filters: bool = False,
    ) -> None:
        config = resolution.config
        self.preprocessor = catalog.preprocessor_for(
            resolution.request.obs,
            config,
            pins=resolution.pins,
            chosen=dict(resolution.preprocessor.parts()),  # path → part
        )
        self.masks = ActionMasks(
            resolution.action,
            resolution.mask_key,
            resolution.mask_key_path,
            codec,
            info_key=config["action_mask_key"],
        )
        self.policy_encoder: PolicyEncoder | None = None
        if resolution.visible is not None:
            self.policy_encoder = PolicyEncoder(
                catalog, resolution, resolution.visible, self.preprocessor
            )
        self.removes_mask = resolution.mask_key is not None and not resolution.shows_mask
        self.filter: Filter | None = None
        self.space: gymnasium.Space[Any] = self.preprocessor.observation_space
        if filters:
            part = resolution.choices["filter"].part
            self.filter = make_filter(
                part, self.preprocessor, config, resolution.unclaimed, resolution.hidden_paths
            )
        if self.filter is not None:
            self.space = self.filter.processed_space(self.preprocessor)

    def preprocessor_input(self, obs: Batch) -> Any:
        """Return the preprocessor's input from an observation or a batch: all of it, or all but the
        action mask.
        """
        if self.removes_mask:
            return self.masks.without(obs)
        return obs

    def encode(self, obs: Any) -> Array:
        """Encode one observation into a fresh array of the preprocessor's shape.

        Raises:
            ObservationError: The observation is not in the space.
            NonFiniteError: The observation contains a number that is NaN or infinite.
        """
        encoded = self.preprocessor.transform(self.preprocessor_input(obs))
        check_observations(encoded[None], self.preprocessor)
        return encoded

    def lacks_critic_entries(self, obs: Batch) -> bool:
        """Return whether a batch lacks an entry that only a critic sees, so that the policy can act
        on it, but has no value.
        """
        return self.policy_encoder is not None and self.policy_encoder.lacks_entries(obs)

    def encode_batch(self, obs: Batch, mask: Masks = NOT_GIVEN) -> EncodedBatch:
        """Return a batch of observations, encoded and filtered, with its action masks.

        Entries that only a critic sees may be missing.

        Args:
            obs: The batch.
            mask: Masks that replace those in the observations; None allows every action.

        Raises:
            ObservationError: An observation is not in the space.
            ActionMaskError: A mask has the wrong format, or a row allows no action.
            NonFiniteError: There is a filter, and an observation contains a number that is NaN or
                infinite.
        """
        mask_in_obs = None
        try:
            if self.masks.key is not None:
                if mask is NOT_GIVEN:
                    mask_in_obs = self.masks.of(obs)
                if self.removes_mask:
                    obs = self.masks.without(obs)
            policy_only = False
            policy_encoder = self.policy_encoder
            if policy_encoder is not None and policy_encoder.lacks_entries(obs):
                policy_only = True
                encoded = policy_encoder.encode_batch(obs)
            else:
                encoded = self.preprocessor.encode_batch(obs)
        except (ActionMaskError, ObservationError) as error:
            visible_obs = self.preprocessor_input(obs)
            # The same error with a longer message, so its cause stays.
            raise with_batch_hint(error, self.preprocessor, visible_obs) from error.__cause__
        if self.filter is not None:
            # Before the filter, which may clip infinite numbers to its bounds.
            check_observations(encoded, self.preprocessor)
            encoded = self.filter.filtered(encoded)

        if mask is not NOT_GIVEN:
            mask_rows = None
            if mask is not None:
                mask_rows = self.masks.matrix(mask, len(encoded))
            return EncodedBatch(encoded, mask_rows, policy_only)
        if mask_in_obs is not None and len(mask_in_obs) != len(encoded):
            # The numbers of masks and observations differ: this call raises the error.
            mask_in_obs = self.masks.matrix(mask_in_obs, len(encoded))
        # `masks.of` has checked it.
        return EncodedBatch(encoded, mask_in_obs, policy_only)

    def resolve_mask(self, encoded: Array | Tensor, mask: Any = NOT_GIVEN) -> Any:
        """Return the action masks `[B, m]` of encoded observations.

        Masks are in Gymnasium's format, or a tensor `[B, m]`, which stays a tensor.

        Raises:
            ObservationError: The observations have the wrong shape.
            ActionMaskError: The observation space has a mask, but none is given; or the mask has
                the wrong shape, or a row allows no action.
        """
        check_encoded(encoded.shape, self.preprocessor.shape, "encoded")
        if mask is None:
            return None
        if mask is NOT_GIVEN:
            if self.masks.key is None:
                return None
            raise ActionMaskError(
                f"mask: the observation space has an action mask under {self.masks.key!r}, which is"
                " not read from encoded observations, and none is given. Pass"
                " mask=policy.action_mask(observations), or mask=None to allow every action."
            )
        rows = encoded.shape[0]
        if isinstance(mask, np.ndarray) or ops_of(mask).framework == "numpy":
            return self.masks.matrix(mask, rows)
        check_columns(self.masks, mask, rows, "mask")
        return mask

    def transform_batch(self, obs: Batch) -> Array:
        """Encode a batch of observations.

        Raises:
            ObservationError: An observation is not in the space.
            NonFiniteError: An observation contains a number that is NaN or infinite.
        """
        visible_obs = self.preprocessor_input(obs)
        try:
            encoded = self.preprocessor.transform_batch(visible_obs)
        except ObservationError as error:
            # The same error with a longer message, so its cause stays.
            raise with_batch_hint(error, self.preprocessor, visible_obs) from error.__cause__
        check_observations(encoded, self.preprocessor)
        return encoded

    def filter_batch(self, encoded: Array, update: bool | Array) -> Array:
        """Filter a batch of encoded observations; the filter first learns from the rows that
        `update` selects.
        """
        assert self.filter is not None
        rows_to_learn = np.asarray(update)
        if rows_to_learn.ndim == 0:
            return self.filter.filtered(encoded, update=bool(update))
        if rows_to_learn.any():
            # For its side effect: the filter learns from these rows.
            self.filter.filtered(encoded[rows_to_learn], update=True)
        return self.filter.filtered(encoded)

    def mask_of(self, obs: Any, mask: Any = None, *, over: bool = False) -> Array:
        """Return the action mask of one observation, boolean `[m]`.

        Args:
            obs: The observation.
            mask: The observation's mask in Gymnasium's format, if the observation does not contain
                it.
            over: Whether the episode is over. No action follows then, so a mask that allows nothing
                is read as one that allows everything.

        Raises:
            ActionMaskError: The mask has the wrong format, or allows no action in an episode that
                continues.
        """
        try:
            if self.masks.key is not None:
                mask_rows = self.masks.of([obs])
            else:
                mask_rows = self.masks.matrix([mask], 1)
        except ActionMaskError:
            if not over:
                raise
            return np.ones(self.masks.size, np.bool_)
        return np.asarray(mask_rows)[0]  # type: ignore[no-any-return]
