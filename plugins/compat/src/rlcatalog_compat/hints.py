"""Names of types that RLlib's signatures use; they are for readers and say nothing to type checkers."""

from __future__ import annotations

from typing import Any, TypeVar

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
