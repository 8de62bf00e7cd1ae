from .class_names import part_class as part_class, part_classes as part_classes
from .declarations import (
    OUTPUT_KEYS as OUTPUT_KEYS,
    ActionCodecSpec as ActionCodecSpec,
    ActionDistSpec as ActionDistSpec,
    CheckSpec as CheckSpec,
    CommandSpec as CommandSpec,
    EngineSpec as EngineSpec,
    EnvAdapterSpec as EnvAdapterSpec,
    EnvWrapperSpec as EnvWrapperSpec,
    FilterSpec as FilterSpec,
    FrameworkSpec as FrameworkSpec,
    Match as Match,
    ModelSpec as ModelSpec,
    PreprocessorSpec as PreprocessorSpec,
    Rank as Rank,
    Stage as Stage,
)
from .hookspecs import hookimpl as hookimpl
from .install_hints import install_hint as install_hint
from .part import Part as Part
from .request import Request as Request
