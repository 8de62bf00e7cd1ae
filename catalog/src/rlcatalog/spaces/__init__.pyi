from .action_codecs import (
    action_codecs as action_codecs,
    add_action_codec as add_action_codec,
    codec_class as codec_class,
    forget_action_codec as forget_action_codec,
)
from .as_json import (
    MOST_ENTRIES as MOST_ENTRIES,
    same_space as same_space,
    space_from_json as space_from_json,
    space_to_json as space_to_json,
)
from .extra import Repeated as Repeated, Simplex as Simplex
from .info import SpaceInfo as SpaceInfo
from .structures import TupleActions as TupleActions, one_hot as one_hot, parts_of as parts_of
from .values import (
    OneOfValues as OneOfValues,
    RepeatedValues as RepeatedValues,
    Structure as Structure,
    first_tensor as first_tensor,
    map_tensors as map_tensors,
)
