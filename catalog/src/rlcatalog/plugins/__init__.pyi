from .class_names import part_class as part_class, part_classes as part_classes
from .declarations import (
    OUTPUT_KEYS as OUTPUT_KEYS,
    ActionDistSpec as ActionDistSpec,
    CheckSpec as CheckSpec,
    CommandSpec as CommandSpec,
    EngineSpec as EngineSpec,
    EnvWrapperSpec as EnvWrapperSpec,
    FilterSpec as FilterSpec,
    Match as Match,
    ModelSpec as ModelSpec,
    PreprocessorSpec as PreprocessorSpec,
    Rank as Rank,
    Stage as Stage,
)
from .hookspecs import hookimpl as hookimpl
from .install_hints import install_hint as install_hint
from .part import Part as Part
from .process_wide import ActionCodecSpec as ActionCodecSpec, FrameworkSpec as FrameworkSpec
from .request import Request as Request
