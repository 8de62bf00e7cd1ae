from .algorithms import (
    A2C as A2C,
    PG as PG,
    PPO as PPO,
    A2CTrainer as A2CTrainer,
    A3CTrainer as A3CTrainer,
    PGTrainer as PGTrainer,
    PPOTrainer as PPOTrainer,
)
from .custom_loss import loss_inputs as loss_inputs, loss_terms as loss_terms
from .optimizer import (
    LearnerOptimizer as LearnerOptimizer,
    no_gradient_error as no_gradient_error,
    not_finite_error as not_finite_error,
)
from .update import (
    PPO_OBJECTIVE as PPO_OBJECTIVE,
    Losses as Losses,
    MinibatchOptimizer as MinibatchOptimizer,
    Objective as Objective,
    StepMetrics as StepMetrics,
    UpdateHyperparameters as UpdateHyperparameters,
)
