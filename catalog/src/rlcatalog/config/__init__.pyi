from .deprecation import warn_caller as warn_caller, warn_deprecated as warn_deprecated
from .flat import FlatConfig as FlatConfig, ReadOnlyConfig as ReadOnlyConfig, read_config as read_config
from .kernel_keys import (
    IDLE_WITH_MEMORY as IDLE_WITH_MEMORY,
    READ_BESIDE as READ_BESIDE,
    READ_BY_KERNEL as READ_BY_KERNEL,
    READ_WITH_MEMORY as READ_WITH_MEMORY,
    KernelConfig as KernelConfig,
    NameOrCallable as NameOrCallable,
)
from .keys import convert as convert, default_of as default_of, keys_of as keys_of
from .names import (
    ACTIVATION_ALIASES as ACTIVATION_ALIASES,
    ACTIVATIONS as ACTIVATIONS,
    INITIALIZER_ALIASES as INITIALIZER_ALIASES,
    INITIALIZERS as INITIALIZERS,
    activation_name as activation_name,
    fan_in as fan_in,
    initializer_name as initializer_name,
    initializing as initializing,
)
from .rllib_keys import (
    ALIASES as ALIASES,
    IGNORED as IGNORED,
    REFUSED as REFUSED,
    RLLIB_DEFAULTS as RLLIB_DEFAULTS,
    SPLIT as SPLIT,
)
from .schema import ModelConfig as ModelConfig, Schema as Schema
from .values import plain as plain, plain_values as plain_values, same as same, snapshot as snapshot
