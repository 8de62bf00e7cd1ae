from . import public_index as public_index
from ._version import __version__ as __version__
from .actions.masks import mask_key_path as mask_key_path
from .actions.tensor_actions import exported_dtype as exported_dtype
from .actions.tensor_forms import lowered_actions as lowered_actions, reads_masks as reads_masks
from .catalog.model_building import build_chosen_model as build_chosen_model
from .choice.critic import shared_keys as shared_keys
from .choice.dist_plan import DistPlan as DistPlan
from .choice.environments import (
    AnyEnv as AnyEnv,
    ask_wrapper as ask_wrapper,
    look_here as look_here,
)
from .choice.explanation import (
    Line as Line,
    Section as Section,
    explanation_sheet as explanation_sheet,
    outline as outline,
)
from .choice.resolution import CRITIC_PREFIX as CRITIC_PREFIX
from .choice.sheet import Role as Role, Sheet as Sheet, SheetLine as SheetLine
from .config.kernel_keys import NOT_IN_CRITIC as NOT_IN_CRITIC
from .config.key_table import Key as Key
from .frameworks.ops import NUMBER_KINDS as NUMBER_KINDS, NUMPY_OPS as NUMPY_OPS
from .models.construction import signature_if_refused as signature_if_refused
from .models.model import name_method as name_method
from .models.views import ViewRequirement as ViewRequirement
from .models.weights_by_part import (
    ModelParts as ModelParts,
    PartWeights as PartWeights,
    set_frozen_parts as set_frozen_parts,
)
from .observations.batches import is_unchanged as is_unchanged
from .observations.filter import make_filter as make_filter
from .observations.tensor_encoding import (
    ObservationInput as ObservationInput,
    encode_inputs as encode_inputs,
    observation_inputs as observation_inputs,
)
from .observations.visible_observation import (
    VisibleObservation as VisibleObservation,
    without_entries as without_entries,
)
from .observations.watch import check_bounds as check_bounds
from .plugins.declarations import PLAIN_KEYS as PLAIN_KEYS
from .plugins.discovery import (
    PluginRecord as PluginRecord,
    disabled_reason as disabled_reason,
    find_plugins as find_plugins,
    installed_version as installed_version,
    normalize as normalize,
    scan as scan,
)
from .plugins.install_hints import (
    RELEASED as RELEASED,
    how_to_start as how_to_start,
    missing_distributions as missing_distributions,
)
from .plugins.names import may_claim as may_claim
from .plugins.part import blame_part as blame_part
from .plugins.registry import Registry as Registry
from .spaces.action_codecs import codec_class as codec_class, codec_of_class as codec_of_class
from .spaces.info import KINDS as KINDS
from .spaces.overrides import is_up_to_date as is_up_to_date
