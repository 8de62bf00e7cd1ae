import typing

import rlcatalog_export
import rlcatalog_policy

from ._version import __version__ as __version__
from .actions import ActionDistribution as ActionDistribution
from .catalog import Catalog as Catalog, default_catalog as default_catalog
from .catalog.default import (
    explain as explain,
    refresh as refresh,
    register_action_dist as register_action_dist,
    register_filter as register_filter,
    register_model as register_model,
    register_preprocessor as register_preprocessor,
    wrap_env as wrap_env,
)
from .catalog.model_catalog import ModelCatalog as ModelCatalog
from .frameworks import Step as Step
from .models import ModelV2 as ModelV2
from .models.views import ViewRequirement as ViewRequirement
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
    EngineSpec as EngineSpec,
    EnvAdapterSpec as EnvAdapterSpec,
    EnvWrapperSpec as EnvWrapperSpec,
    FilterSpec as FilterSpec,
    FrameworkSpec as FrameworkSpec,
    Match as Match,
    ModelSpec as ModelSpec,
    PreprocessorSpec as PreprocessorSpec,
    Rank as Rank,
    Request as Request,
    Stage as Stage,
    hookimpl as hookimpl,
)
from .plugins.declarations import ExporterSpec as ExporterSpec
from .spaces import SpaceInfo as SpaceInfo, TupleActions as TupleActions, one_hot as one_hot

Actor = rlcatalog_export.Actor
Policy = rlcatalog_policy.Policy
build = rlcatalog_policy.build
load = rlcatalog_policy.load
load_part = rlcatalog_policy.load_part

MODEL_DEFAULTS: dict[str, typing.Any]
