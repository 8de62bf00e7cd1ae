from .bounds import (
    Interval as Interval,
    hashable_bound as hashable_bound,
    interval as interval,
    is_scaled as is_scaled,
    read_bounds as read_bounds,
)
from .codec import (
    ActionCodec as ActionCodec,
    Actions as Actions,
    Mask as Mask,
    action_codec as action_codec,
    first_row as first_row,
)
from .distribution import (
    ActionDistribution as ActionDistribution,
    BoundDistribution as BoundDistribution,
    check_same_kind as check_same_kind,
    entropy_of as entropy_of,
    params_given as params_given,
    shape_method as shape_method,
    unbind as unbind,
)
from .masks import (
    NOT_GIVEN as NOT_GIVEN,
    ActionMasks as ActionMasks,
    NotGiven as NotGiven,
    info_mask as info_mask,
    mask_entry as mask_entry,
    mask_key as mask_key,
    mask_method as mask_method,
    open_parts as open_parts,
)
from .tensor_actions import LoweredActions as LoweredActions
