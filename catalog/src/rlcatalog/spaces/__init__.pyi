from .as_json import same_space as same_space, space_to_json as space_to_json
from .extra import Repeated as Repeated, Simplex as Simplex
from .info import SpaceInfo as SpaceInfo
from .structures import TupleActions as TupleActions, one_hot as one_hot, parts_of as parts_of
from .values import (
    OneOfValues as OneOfValues,
    RepeatedValues as RepeatedValues,
    Structure as Structure,
    map_tensors as map_tensors,
)
