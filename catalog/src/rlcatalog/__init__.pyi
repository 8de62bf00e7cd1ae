import typing

from ._version import __version__ as __version__
from .actions import ActionDistribution as ActionDistribution
from .catalog import (
    Catalog as Catalog,
    ModelCatalog as ModelCatalog,
    build as build,
    default_catalog as default_catalog,
    explain as explain,
    load as load,
    refresh as refresh,
    register_action_dist as register_action_dist,
    register_filter as register_filter,
    register_model as register_model,
    register_preprocessor as register_preprocessor,
    wrap_env as wrap_env,
)
from .export import Actor as Actor
from .models import ModelV2 as ModelV2, ViewRequirement as ViewRequirement
from .observations import (
    Filter as Filter,
    Preprocessor as Preprocessor,
    restore_original_dimensions as restore_original_dimensions,
)
from .plugins import (
    ActionCodecSpec as ActionCodecSpec,
    ActionDistSpec as ActionDistSpec,
    CheckSpec as CheckSpec,
    CommandSpec as CommandSpec,
    EnvWrapperSpec as EnvWrapperSpec,
    ExporterSpec as ExporterSpec,
    FilterSpec as FilterSpec,
    FrameworkSpec as FrameworkSpec,
    Match as Match,
    ModelSpec as ModelSpec,
    NoMatch as NoMatch,
    PreprocessorSpec as PreprocessorSpec,
    Rank as Rank,
    Request as Request,
    Stage as Stage,
    hookimpl as hookimpl,
)
from .policy import Policy as Policy, Step as Step
from .spaces import SpaceInfo as SpaceInfo, TupleActions as TupleActions, one_hot as one_hot

MODEL_DEFAULTS: dict[str, typing.Any]
