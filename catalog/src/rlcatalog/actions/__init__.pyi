from .adapter import (
    ActionAdapter as ActionAdapter,
    action_shape as action_shape,
    integer_span as integer_span,
    is_integer_box as is_integer_box,
    raw_width as raw_width,
)
from .bounds import Interval as Interval, frozen as frozen, interval as interval, read_bounds as read_bounds
from .distribution import (
    ActionDistribution as ActionDistribution,
    BoundDistribution as BoundDistribution,
    DistPart as DistPart,
    bind as bind,
    entropy_of as entropy_of,
    params_given as params_given,
    same_kind as same_kind,
    stored_class as stored_class,
    unbound as unbound,
)
from .inputs import ActionForm as ActionForm, action_input_width as action_input_width
from .masks import ActionMasks as ActionMasks, groups as groups, mask_key as mask_key
