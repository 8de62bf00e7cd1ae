from .building import build as build, config_with_model as config_with_model
from .copies import copy_without_critic as copy_without_critic
from .encoder import Encoder as Encoder, with_batch_hint as with_batch_hint
from .env_masks import EnvMasks as EnvMasks
from .files import (
    MOST_JSON as MOST_JSON,
    TEMPORARY as TEMPORARY,
    RegularFile as RegularFile,
    check_files as check_files,
    lock_folder as lock_folder,
    read_file as read_file,
    read_json as read_json,
    sync_folder as sync_folder,
    write_file as write_file,
)
from .frozen_wrapper import Frozen as Frozen, FrozenBackend as FrozenBackend
from .history import History as History, check_reward as check_reward
from .loading import load as load, read_manifest as read_manifest
from .manifest import (
    UNSAVED_RULES as UNSAVED_RULES,
    Manifest as Manifest,
    checksum_of as checksum_of,
    config_from_plain as config_from_plain,
    plain_config as plain_config,
)
from .non_finite import (
    check_finite_step as check_finite_step,
    check_observations as check_observations,
)
from .part_loading import load_part as load_part
from .policy import Policy as Policy
from .saving import chosen_config as chosen_config, forget as forget
from .sequences import (
    chop_into_sequences as chop_into_sequences,
    pad_sequences as pad_sequences,
    sequence_mask as sequence_mask,
    unpad_sequences as unpad_sequences,
)
from .space_json import (
    action_space_to_json as action_space_to_json,
    observation_space_to_json as observation_space_to_json,
    same_space as same_space,
    space_from_json as space_from_json,
    space_to_json as space_to_json,
)
from .state import State as State
from .stepper import Stepper as Stepper, autoreset_of as autoreset_of, describe_env as describe_env
from .summary import Summary as Summary
from .tensor_encoder import are_tensors as are_tensors
from .tensors import TensorFile as TensorFile, to_bytes as to_bytes
