"""Every module and name of RLlib's that the mirror knows: what it stands for, or why it is not served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Module:
    """One module of RLlib's.

    Attributes:
        layouts: The first and last of the versions 0.8, 1.13, 2.9 and 2.60 that have it.
        names: Name → `"module:attribute"` it stands for.
        refused: Name → why it is not served.
    """

    layouts: str
    names: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)


def _served(layouts: str, *homes: str, refused: Mapping[str, str] | None = None) -> Module:
    """Return a module.

    Args:
        layouts: See `Module`.
        *homes: `"module → names that stand in it"`; `.module` is one of this package, and `old=new` a name that is
            called otherwise there.
        refused: Names → the reason that holds for them.
    """
    names = {}
    for home in homes:
        module, _, listed = home.partition(" → ")
        for name in listed.split():
            old, _, new = name.partition("=")
            names[old] = f"{'rlcatalog_compat' if module.startswith('.') else ''}{module}:{new or old}"
    reasons = {name: why for listed, why in (refused or {}).items() for name in listed.split()}
    return Module(layouts, names, reasons)


_HINTS = (
    "TensorType TensorStructType TensorShape ModelConfigDict TrainerConfigDict PartialTrainerConfigDict"
    " AlgorithmConfigDict PartialAlgorithmConfigDict EnvConfigDict EnvInfoDict ModelInputDict ResultDict GradInfoDict"
    " LearnerStatsDict PolicyState MultiAgentDict MultiEnvDict MultiAgentPolicyConfigDict StateDict"
    " ViewRequirementsDict ParamDict ModelWeights ModelGradients FromConfigSpec SampleBatchType SpaceStruct EnvID"
    " EnvType EnvCreator EnvObsType EnvActionType FileType AgentID PolicyID ModuleID EpisodeID UnrollID EpisodeType"
    " LocalOptimizer Optimizer Param ParamRef NetworkType DeviceType LearningRateOrSchedule ConvFilterSpec T"
)
_TYPING = "Any Callable Dict List Optional Sequence Set Tuple Type Union"
_IMPORTS = "try_import_tf try_import_tfp try_import_torch try_import_jax"
_ANNOTATIONS = "override PublicAPI DeveloperAPI"
_COLUMNS = "SampleBatch MultiAgentBatch"
_NUMBERS = "SMALL_NUMBER LARGE_INTEGER MIN_LOG_NN_OUTPUT MAX_LOG_NN_OUTPUT"
_ARRAYS = "sigmoid softmax relu fc huber_loss l2_loss one_hot_multidiscrete convert_to_numpy"
_LIMITS = "FLOAT_MIN FLOAT_MAX"
_TENSORS = (
    "one_hot explained_variance huber_loss l2_loss reduce_mean_ignore_inf flatten_inputs_to_1d_tensor symlog"
    " inverse_symlog"
)
_TORCH_TENSORS = (
    f"{_TENSORS} atanh convert_to_torch_tensor convert_to_non_torch_type copy_torch_tensors global_norm"
    " minimize_and_clip sequence_mask set_torch_seed softmax_cross_entropy_with_logits"
)
_DISTS = "Categorical MultiCategorical SlateMultiCategorical DiagGaussian SquashedGaussian Beta Deterministic Dirichlet"
_TORCH_DISTS = " ".join(f"Torch{name}={name}" for name in [*_DISTS.split(), "MultiActionDistribution"])
_UNITS = (
    "a layer inside rlcatalog-attention, whose weights lie otherwise; use GTrXLNet or use_attention as a whole, or"
    " PyTorch's and Keras' own attention layers"
)
_BY_NAME = "get_trainable_cls"
_BUILDER = ".builder → PPOConfig"
_NOISY = "noisy layers are not served; leave use_noisy out"
_GRAPH = "code for the graphs and sessions of TensorFlow 1; here models run eagerly or in a tf.function"
_KERAS = "Keras models as models of RLlib's; derive from TFModelV2 and hold the Keras model as an attribute"
_POLICY = (
    "the losses and learning steps of an algorithm's own; they stay with Ray, whose learners rlcatalog-rllib serves"
)
_AGENTS = "several agents are trained by RLlib over rlcatalog-rllib; rlcatalog's own PPO trains one"
_OLD_MODEL = "the first model interface, which RLlib itself has given up; derive from TorchModelV2 or TFModelV2"

#: Modules, `ray.` left out.
MODULES: dict[str, Module] = {
    "rllib": _served(
        "0.8–2.60",
        ".batches → SampleBatch",
        refused={"Policy TFPolicy TorchPolicy RolloutWorker": _POLICY, "MultiAgentEnv": _AGENTS},
    ),
    # --- models ---
    "rllib.models": _served(
        "0.8–2.60",
        "rlcatalog → ActionDistribution ModelCatalog ModelV2 Preprocessor MODEL_DEFAULTS",
        refused={"Model": _OLD_MODEL},
    ),
    "rllib.models.action_dist": _served("0.8–2.60", "rlcatalog → ActionDistribution"),
    "rllib.models.catalog": _served("0.8–2.60", "rlcatalog → ModelCatalog MODEL_DEFAULTS"),
    "rllib.models.extra_spaces": _served("0.8–0.8", "rlcatalog.spaces → Simplex"),
    "rllib.models.model": _served(
        "0.8–0.8", ".shapes → restore_original_dimensions flatten", refused={"Model": _OLD_MODEL}
    ),
    "rllib.models.modelv2": _served(
        "0.8–2.60",
        "rlcatalog → ModelV2",
        ".shapes → restore_original_dimensions flatten",
        ".helpers → NullContextManager",
    ),
    "rllib.models.preprocessors": _served(
        "0.8–2.60",
        "rlcatalog → Preprocessor",
        "rlcatalog.preprocessors → get_preprocessor GenericPixelPreprocessor AtariRamPreprocessor OneHotPreprocessor"
        " NoPreprocessor MultiBinaryPreprocessor TupleFlatteningPreprocessor DictFlatteningPreprocessor"
        " RepeatedValuesPreprocessor",
        ".constants → ATARI_OBS_SHAPE ATARI_RAM_OBS_SHAPE",
    ),
    "rllib.models.repeated_values": _served("0.8–2.60", "rlcatalog.spaces → RepeatedValues"),
    "rllib.models.utils": _served("1.13–2.60", ".frameworks → get_activation_fn get_filter_config get_initializer"),
    # --- models, PyTorch ---
    "rllib.models.torch": _served("0.8–2.60"),
    "rllib.models.torch.attention_net": _served(
        "0.8–2.60", "rlcatalog_torch → GTrXLNet AttentionWrapper", refused={"relative_position_embedding": _UNITS}
    ),
    "rllib.models.torch.complex_input_net": _served("1.13–2.60", "rlcatalog_torch → ComplexInputNetwork"),
    "rllib.models.torch.fcnet": _served("0.8–2.60", "rlcatalog_torch → FullyConnectedNetwork"),
    "rllib.models.torch.misc": _served(
        "0.8–2.60",
        "rlcatalog_torch → normc_initializer",
        ".torch → SlimFC SlimConv2d AppendBiasLayer Reshape",
        ".padding → same_padding valid_padding",
        ".frameworks → get_activation_fn",
    ),
    "rllib.models.torch.modules": _served(
        "0.8–2.60",
        ".torch → SkipConnection ConvTranspose2DStack",
        refused={"GRUGate MultiHeadAttention RelativeMultiHeadAttention": _UNITS, "NoisyLayer": _NOISY},
    ),
    "rllib.models.torch.modules.convtranspose2d_stack": _served("1.13–2.9", ".torch → ConvTranspose2DStack"),
    "rllib.models.torch.modules.skip_connection": _served("0.8–2.60", ".torch → SkipConnection"),
    "rllib.models.torch.recurrent_net": _served("0.8–2.60", "rlcatalog_torch → RecurrentNetwork LSTMWrapper"),
    "rllib.models.torch.torch_action_dist": _served(
        "0.8–2.60",
        "rlcatalog → ActionDistribution",
        ".torch → TorchDistributionWrapper get_torch_categorical_class_with_temperature",
        f"rlcatalog_torch → {_TORCH_DISTS}",
    ),
    "rllib.models.torch.torch_modelv2": _served("0.8–2.60", "rlcatalog_torch → TorchModelV2", "rlcatalog → ModelV2"),
    "rllib.models.torch.visionnet": _served("0.8–2.60", "rlcatalog_torch → VisionNetwork"),
    # --- models, TensorFlow ---
    "rllib.models.tf": _served(
        "0.8–2.60", "rlcatalog_tf → TFModelV2 RecurrentNetwork VisionNetwork", ".tf → FullyConnectedNetwork"
    ),
    "rllib.models.tf.attention_net": _served(
        "0.8–2.60",
        "rlcatalog_tf → GTrXLNet AttentionWrapper",
        refused={
            "TrXLNet PositionwiseFeedforward relative_position_embedding": _UNITS,
            "Keras_GTrXLNet Keras_AttentionWrapper": _KERAS,
        },
    ),
    "rllib.models.tf.complex_input_net": _served("1.13–2.60", "rlcatalog_tf → ComplexInputNetwork"),
    "rllib.models.tf.fcnet": _served(
        "0.8–2.60", ".tf → FullyConnectedNetwork", refused={"Keras_FullyConnectedNetwork": _KERAS}
    ),
    "rllib.models.tf.fcnet_v2": _served("0.8–0.8", ".tf → FullyConnectedNetwork"),
    "rllib.models.tf.layers": _served(
        "0.8–2.60",
        refused={
            "GRUGate MultiHeadAttention RelativeMultiHeadAttention PositionalEmbedding SkipConnection": _UNITS,
            "NoisyLayer": _NOISY,
        },
    ),
    "rllib.models.tf.misc": _served(
        "0.8–2.60",
        "rlcatalog_tf → normc_initializer",
        ".tensors.tf → flatten",
        ".frameworks → get_activation_fn",
        refused={"linear conv2d": _GRAPH},
    ),
    "rllib.models.tf.recurrent_net": _served(
        "0.8–2.60", "rlcatalog_tf → RecurrentNetwork LSTMWrapper", refused={"Keras_LSTMWrapper": _KERAS}
    ),
    "rllib.models.tf.recurrent_tf_modelv2": _served(
        "0.8–0.8", "rlcatalog_tf → RecurrentTFModelV2 RecurrentNetwork", ".shapes → add_time_dimension"
    ),
    "rllib.models.tf.recurrent_tf_model_v2": _served(
        "0.8–0.8", "rlcatalog_tf → RecurrentTFModelV2 RecurrentNetwork", ".shapes → add_time_dimension"
    ),
    "rllib.models.tf.tf_action_dist": _served(
        "0.8–2.60",
        "rlcatalog → ActionDistribution",
        ".tf → TFActionDistribution get_categorical_class_with_temperature",
        f"rlcatalog_tf → {_DISTS} MultiActionDistribution GumbelSoftmax",
    ),
    "rllib.models.tf.tf_modelv2": _served("0.8–2.60", "rlcatalog_tf → TFModelV2", "rlcatalog → ModelV2"),
    "rllib.models.tf.visionnet": _served(
        "0.8–2.60", "rlcatalog_tf → VisionNetwork", refused={"Keras_VisionNetwork": _KERAS}
    ),
    "rllib.models.tf.visionnet_v1": _served(
        "0.8–0.8", ".frameworks → _get_filter_config=get_filter_config", refused={"VisionNetwork": _OLD_MODEL}
    ),
    "rllib.models.tf.visionnet_v2": _served("0.8–0.8", "rlcatalog_tf → VisionNetwork"),
    # --- policy and evaluation: what models read ---
    "rllib.policy": _served("0.8–2.60"),
    "rllib.policy.rnn_sequencing": _served(
        "0.8–2.60",
        ".shapes → add_time_dimension",
        ".sequences → chop_into_sequences pad_batch_to_sequences_of_same_size",
    ),
    "rllib.policy.sample_batch": _served(
        "0.8–2.60",
        f".batches → {_COLUMNS} concat_samples convert_ma_batch_to_sample_batch",
        ".constants → DEFAULT_POLICY_ID",
    ),
    "rllib.policy.trajectory_view": _served("0.8–1.13", "rlcatalog → ViewRequirement"),
    "rllib.policy.view_requirement": _served("1.13–2.60", "rlcatalog → ViewRequirement"),
    "rllib.evaluation": _served("0.8–2.60", f".batches → {_COLUMNS}"),
    "rllib.evaluation.postprocessing": _served("0.8–2.60", ".arrays → discount=discount_cumsum discount_cumsum"),
    "rllib.evaluation.sample_batch": _served("0.8–0.8", f".batches → {_COLUMNS}"),
    # --- utils ---
    "rllib.utils": _served(
        "0.8–2.60",
        f".decorators → {_ANNOTATIONS}",
        f".frameworks → {_IMPORTS}",
        ".decorators → deprecation_warning",
        ".helpers → force_list force_tuple merge_dicts deep_update NullContextManager",
        f".constants → {_NUMBERS}",
        ".arrays → sigmoid softmax relu fc",
        "rlcatalog → one_hot Filter",
    ),
    "rllib.utils.annotations": _served(
        "0.8–2.60",
        f".decorators → {_ANNOTATIONS} ExperimentalAPI OldAPIStack OverrideToImplementCustomLogic"
        " OverrideToImplementCustomLogic_CallToSuperRecommended is_overridden",
        ".decorators → Deprecated",
    ),
    "rllib.utils.deprecation": _served("0.8–2.9", ".decorators → DEPRECATED_VALUE Deprecated deprecation_warning"),
    "rllib.utils.error": _served(
        "0.8–2.60", "rlcatalog.errors → UnsupportedSpaceException=UnsupportedSpaceError", ".helpers → EnvError"
    ),
    "rllib.utils.explained_variance": _served("0.8–0.8", ".tensors.tf → explained_variance"),
    "rllib.utils.filter": _served("0.8–2.60", "rlcatalog → Filter", "rlcatalog_filters → MeanStdFilter RunningStat"),
    "rllib.utils.framework": _served(
        "0.8–2.60",
        f".frameworks → {_IMPORTS} get_activation_fn get_variable tf_function",
        ".constants → TensorType TensorStructType TensorShape",
    ),
    "rllib.utils.from_config": _served("0.8–2.60", ".helpers → from_config"),
    "rllib.utils.numpy": _served("0.8–2.60", "rlcatalog → one_hot", f".arrays → {_ARRAYS}", f".constants → {_NUMBERS}"),
    "rllib.utils.sgd": _served("0.8–2.60", ".arrays → standardized"),
    "rllib.utils.spaces": _served("0.8–2.60"),
    "rllib.utils.spaces.flexdict": _served("0.8–2.60", ".spaces → FlexDict"),
    "rllib.utils.spaces.repeated": _served("0.8–2.60", "rlcatalog.spaces → Repeated"),
    "rllib.utils.spaces.simplex": _served("0.8–2.60", "rlcatalog.spaces → Simplex"),
    "rllib.utils.spaces.space_utils": _served(
        "0.8–2.60",
        ".spaces → batch convert_element_to_space_type flatten_space flatten_to_single_ndarray"
        " get_base_struct_from_space get_original_space unbatch",
    ),
    "rllib.utils.tf_ops": _served(
        "0.8–0.8", f".tensors.tf → {_TENSORS}", refused={"make_tf_callable scope_vars minimize_and_clip": _GRAPH}
    ),
    "rllib.utils.tf_utils": _served(
        "1.13–2.60",
        f".tensors.tf → {_TENSORS} zero_logps_from_actions",
        refused={"make_tf_callable scope_vars get_placeholder minimize_and_clip": _GRAPH},
    ),
    "rllib.utils.torch_ops": _served("0.8–1.13", f".tensors.torch → {_TORCH_TENSORS}", f".constants → {_LIMITS}"),
    "rllib.utils.torch_utils": _served(
        "1.13–2.60", f".tensors.torch → {_TORCH_TENSORS}", f".constants → {_LIMITS}", ".torch → Swish"
    ),
    "rllib.utils.tuple_actions": _served("0.8–0.8", "rlcatalog → TupleActions"),
    "rllib.utils.types": _served("0.8–0.8", f".constants → {_HINTS}", f"typing → {_TYPING}"),
    "rllib.utils.typing": _served("1.13–2.60", f".constants → {_HINTS}", f"typing → {_TYPING}"),
    # --- algorithms ---
    "rllib.agents": _served("0.8–1.13"),
    "rllib.agents.a3c": _served("0.8–1.13", ".algorithms → A2CTrainer A3CTrainer DEFAULT_CONFIG"),
    "rllib.agents.a3c.a2c": _served("0.8–1.13", ".algorithms → A2CTrainer"),
    "rllib.agents.dqn": _served("0.8–1.13"),
    "rllib.agents.dqn.distributional_q_model": _served("0.8–0.8", ".tf → DistributionalQModel=DistributionalQTFModel"),
    "rllib.agents.dqn.distributional_q_tf_model": _served("0.8–1.13", ".tf → DistributionalQTFModel"),
    "rllib.agents.dqn.dqn_torch_model": _served("0.8–1.13", ".torch → DQNTorchModel"),
    "rllib.agents.ppo": _served("0.8–1.13", ".algorithms → PPOTrainer DEFAULT_CONFIG", _BUILDER),
    "rllib.agents.ppo.ppo": _served("0.8–1.13", ".algorithms → PPOTrainer DEFAULT_CONFIG", _BUILDER),
    "rllib.agents.registry": _served(
        "0.8–1.13", f".algorithms → get_trainer_class={_BY_NAME} get_agent_class={_BY_NAME}"
    ),
    "rllib.algorithms": _served("2.9–2.60", ".algorithms → Algorithm"),
    "rllib.algorithms.algorithm": _served("2.9–2.60", ".algorithms → Algorithm"),
    "rllib.algorithms.a2c": _served("2.9–2.9", ".algorithms → A2C"),
    "rllib.algorithms.dqn": _served("2.9–2.60"),
    "rllib.algorithms.dqn.distributional_q_tf_model": _served("2.9–2.60", ".tf → DistributionalQTFModel"),
    "rllib.algorithms.dqn.dqn_torch_model": _served("2.9–2.60", ".torch → DQNTorchModel"),
    "rllib.algorithms.ppo": _served("2.9–2.60", ".algorithms → PPO", _BUILDER),
    "rllib.algorithms.ppo.ppo": _served("2.9–2.60", ".algorithms → PPO", _BUILDER),
    # --- environments ---
    "rllib.env": _served("0.8–2.60", ".helpers → EnvContext", refused={"MultiAgentEnv": _AGENTS}),
    "rllib.env.env_context": _served("0.8–2.60", ".helpers → EnvContext"),
    # --- recorded data ---
    "rllib.offline": _served("0.8–2.60", ".offline → JsonReader"),
    "rllib.offline.json_reader": _served("0.8–2.60", ".offline → JsonReader"),
    # --- the rest of Ray ---
    "tune": _served("0.8–2.60", ".algorithms → register_env"),
    "tune.logger": _served("0.8–2.60", ".helpers → pretty_print"),
    "tune.registry": _served("0.8–2.60", ".algorithms → register_env get_trainable_cls"),
    "tune.utils": _served("0.8–2.60", ".helpers → merge_dicts deep_update"),
    "util": _served("0.8–2.60", ".decorators → log_once"),
    "util.debug": _served("0.8–2.60", ".decorators → log_once"),
}

#: What everything under a path has in common that is not in the table; the longest path that fits counts.
REASONS: dict[str, str] = {
    "rllib.agents": _POLICY,
    "rllib.algorithms": _POLICY,
    "rllib.connectors": "connectors belong to Ray's runners; rlcatalog-rllib brings those its modules need",
    "rllib.contrib": _POLICY,
    "rllib.core": "RLlib's newer interface (RLModule), which rlcatalog-rllib serves; stay there for your own",
    "rllib.env": "environments are Gymnasium's here",
    "rllib.env.multi_agent_env": _AGENTS,
    "rllib.evaluation": "Ray's workers and what runs in them; rlcatalog-ppo collects for itself",
    "rllib.examples": "example code of RLlib's; copy what you need and port the copy",
    "rllib.execution": _POLICY,
    "rllib.models.jax": "JAX is no framework of rlcatalog's; it serves torch and tf",
    "rllib.models.tf.fcnet_v1": _OLD_MODEL,
    "rllib.models.tf.lstm_v1": _OLD_MODEL,
    "rllib.models.tf.modelv1_compat": _OLD_MODEL,
    "rllib.models.tf.visionnet_v1": _OLD_MODEL,
    "rllib.models.tf.layers": _UNITS,
    "rllib.models.torch.modules": _UNITS,
    "rllib.models.tf.layers.noisy_layer": _NOISY,
    "rllib.models.torch.modules.noisy_layer": _NOISY,
    "rllib.offline": "RLlib's writers and other readers; JsonReader reads plain JSON, and PPO(record=FOLDER) records",
    "rllib.policy": _POLICY,
    "rllib.utils.exploration": _POLICY,
    "rllib.utils.replay_buffers": _POLICY,
    "rllib.utils.schedules": _POLICY,
    "air": "Ray's experiments; call train() of PPO in a loop, or stay with Ray over rlcatalog-rllib",
    "train": "Ray's experiments; call train() of PPO in a loop, or stay with Ray over rlcatalog-rllib",
    "tune": "Ray's experiments; call train() of PPO in a loop, or stay with Ray over rlcatalog-rllib",
}


def reason_for(path: str) -> str | None:
    """Return why a module or name, `ray.` left out, is not served; None where nothing is known about it."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        if why := REASONS.get(".".join(parts[:end])):
            return why
        module = MODULES.get(".".join(parts[: end - 1]))
        if module is not None and end == len(parts) and parts[-1] in module.refused:
            return module.refused[parts[-1]]
    return None
