from .attributes import read_attribute as read_attribute
from .embeddings import Embeddings as Embeddings, embedding_size as embedding_size
from .extra import Repeated as Repeated, Simplex as Simplex
from .images import (
    ImageLayout as ImageLayout,
    env_layout as env_layout,
    is_image as is_image,
    read_layout as read_layout,
)
from .info import SpaceInfo as SpaceInfo
from .paths import (
    find_path as find_path,
    is_in_part as is_in_part,
    matching_paths as matching_paths,
    parts_above as parts_above,
    write_path as write_path,
)
from .values import (
    OneOfValues as OneOfValues,
    RepeatedValues as RepeatedValues,
    TupleActions as TupleActions,
    map_tensors as map_tensors,
    one_hot as one_hot,
    parts_of as parts_of,
)
