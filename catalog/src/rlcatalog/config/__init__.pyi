from .flat import read_config as read_config
from .kernel_keys import (
    RULES as RULES,
    InitConfig as InitConfig,
    KernelConfig as KernelConfig,
    NameOrCallable as NameOrCallable,
)
from .key_table import convert as convert, keys_of as keys_of
from .layer_names import (
    ACTIVATIONS as ACTIVATIONS,
    INIT_RECIPES as INIT_RECIPES,
    INITIALIZERS as INITIALIZERS,
    Initializer as Initializer,
    InitRecipe as InitRecipe,
    activation_name as activation_name,
    fan_in as fan_in,
    initializer_name as initializer_name,
    initializing as initializing,
    read_initializers as read_initializers,
)
from .other_libraries import MODEL_WORDS as MODEL_WORDS
from .values import plain as plain, same as same
