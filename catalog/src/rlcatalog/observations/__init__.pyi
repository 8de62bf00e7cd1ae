from .batches import batch_size as batch_size, rows as rows, stack as stack
from .embeddings import (
    EmbeddedLeaf as EmbeddedLeaf,
    EmbeddedVector as EmbeddedVector,
    embedded_vector as embedded_vector,
    vector_of as vector_of,
)
from .filter import Filter as Filter
from .limits import check_parts as check_parts, check_values as check_values
from .preprocessor import (
    ENCODING_ERRORS as ENCODING_ERRORS,
    Array as Array,
    Ids as Ids,
    Leaf as Leaf,
    Preprocessor as Preprocessor,
    Writer as Writer,
)
from .scaling import (
    Scaling as Scaling,
    describe_scalings as describe_scalings,
    largest_range as largest_range,
    scaling_of as scaling_of,
)
from .structure import (
    is_structure as is_structure,
    preprocessor_of as preprocessor_of,
    restore_original_dimensions as restore_original_dimensions,
)
