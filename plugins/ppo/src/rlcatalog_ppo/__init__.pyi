from .algorithms import (
    A2C as A2C,
    PG as PG,
    PPO as PPO,
    A2CTrainer as A2CTrainer,
    A3CTrainer as A3CTrainer,
    PGTrainer as PGTrainer,
    PPOTrainer as PPOTrainer,
)
from .loss import (
    PPO_OBJECTIVE as PPO_OBJECTIVE,
    Losses as Losses,
    Objective as Objective,
    UpdateHyperparameters as UpdateHyperparameters,
    loss_inputs as loss_inputs,
    loss_terms as loss_terms,
    no_gradient_error as no_gradient_error,
)
from .optimizer import (
    LearnerOptimizer as LearnerOptimizer,
    MinibatchOptimizer as MinibatchOptimizer,
    StepMetrics as StepMetrics,
    not_finite_error as not_finite_error,
)
