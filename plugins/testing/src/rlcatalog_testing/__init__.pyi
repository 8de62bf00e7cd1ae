from .engines import (
    OutputFunction as OutputFunction,
    PolicyOutputs as PolicyOutputs,
    check_same_outputs as check_same_outputs,
    ExampleEnv as ExampleEnv,
    every_weight_moved as every_weight_moved,
    refusing as refusing,
    trained_weights as trained_weights,
    update_example as update_example,
)
from .contract import (
    Check as Check,
    NotApplicable as NotApplicable,
    Subject as Subject,
    check as check,
    require as require,
)
from .examples import Example as Example, observations_of as observations_of
from .runner import (
    BlockedError as BlockedError,
    Case as Case,
    ConformanceError as ConformanceError,
    Outcome as Outcome,
    cases as cases,
    check_plugin as check_plugin,
    outcome_of as outcome_of,
    outcomes as outcomes,
    parametrize_with_checks as parametrize_with_checks,
)
from .plugins import (
    PluginEntryPoint as PluginEntryPoint,
    isolated_catalog as isolated_catalog,
    plugin_of as plugin_of,
)
from .passes import Kit as Kit
