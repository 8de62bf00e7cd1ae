from .action_plan import NamedDistributions as NamedDistributions, plan_actions as plan_actions
from .env_wrappers import check_wrapped as check_wrapped, wrap as wrap
from .faults import (
    is_repeated as is_repeated,
    say_when_found as say_when_found,
    without_faulty as without_faulty,
)
from .in_process import (
    in_process_dist as in_process_dist,
    in_process_filter as in_process_filter,
    in_process_model as in_process_model,
    in_process_preprocessor as in_process_preprocessor,
    path_of as path_of,
)
from .pins import Pins as Pins
from .resolution import Explanation as Explanation, Resolution as Resolution, model_stages as model_stages
from .selection import Verdict as Verdict
from .slots import MODEL_SLOTS as MODEL_SLOTS, Slots as Slots
from .summary import Layer as Layer, Summary as Summary
from .unread import noting_found as noting_found
