from .agreement import (
    OutputFunction as OutputFunction,
    PolicyOutputs as PolicyOutputs,
    check_same_outputs as check_same_outputs,
    outputs_of as outputs_of,
)
from .plugins import PluginEntryPoint as PluginEntryPoint, isolated_catalog as isolated_catalog
