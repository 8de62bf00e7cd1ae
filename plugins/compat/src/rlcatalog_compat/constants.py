"""Numbers of RLlib's, and names of types in its signatures, which say nothing to type checkers."""

from __future__ import annotations

from typing import Any, TypeVar

FLOAT_MIN, FLOAT_MAX = -3.4e38, 3.4e38
SMALL_NUMBER = 1e-6
LARGE_INTEGER = 100_000_000
MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT = -5, 2
DEFAULT_POLICY_ID = "default_policy"
LEARNER_INFO, LEARNER_STATS_KEY = "learner", "learner_stats"
ATARI_OBS_SHAPE, ATARI_RAM_OBS_SHAPE = (210, 160, 3), (128,)


T = TypeVar("T")

TensorType = TensorStructType = TensorShape = Any
ModelConfigDict = TrainerConfigDict = PartialTrainerConfigDict = dict[str, Any]
AlgorithmConfigDict = PartialAlgorithmConfigDict = EnvConfigDict = EnvInfoDict = dict[str, Any]
ModelInputDict = ResultDict = GradInfoDict = LearnerStatsDict = PolicyState = dict[str, Any]
MultiAgentDict = MultiEnvDict = MultiAgentPolicyConfigDict = StateDict = dict[Any, Any]
ViewRequirementsDict = ParamDict = dict[str, Any]
ModelWeights = ModelGradients = FromConfigSpec = SampleBatchType = SpaceStruct = Any
EnvID = EnvType = EnvCreator = EnvObsType = EnvActionType = FileType = Any
AgentID = PolicyID = ModuleID = EpisodeID = UnrollID = EpisodeType = Any
LocalOptimizer = Optimizer = Param = ParamRef = NetworkType = DeviceType = Any
LearningRateOrSchedule = ConvFilterSpec = Any
