from . import hookspecs as hookspecs, public_index as public_index
from .calling import blamed as blamed, call_target as call_target, named as named
from .class_names import part_class as part_class, part_classes as part_classes
from .component import Component as Component
from .declarations import (
    ActionDistSpec as ActionDistSpec,
    CheckSpec as CheckSpec,
    CommandSpec as CommandSpec,
    Declaration as Declaration,
    EnvWrapperSpec as EnvWrapperSpec,
    ExporterSpec as ExporterSpec,
    FilterSpec as FilterSpec,
    Match as Match,
    ModelSpec as ModelSpec,
    NoMatch as NoMatch,
    PreprocessorSpec as PreprocessorSpec,
    Rank as Rank,
    Stage as Stage,
)
from .discovery import (
    GROUP as GROUP,
    incompatible_reason as incompatible_reason,
    normalize as normalize,
    scan as scan,
)
from .hookspecs import hookimpl as hookimpl
from .loading import (
    HOOK_RETURNS as HOOK_RETURNS,
    is_strict as is_strict,
    load_indexed as load_indexed,
    load_plugins as load_plugins,
    refuse_while_loading as refuse_while_loading,
)
from .process_wide import ActionCodecSpec as ActionCodecSpec, FrameworkSpec as FrameworkSpec
from .record import PluginRecord as PluginRecord
from .registry import Registry as Registry
from .reporting import tell as tell, tell_once as tell_once
from .request import Request as Request
