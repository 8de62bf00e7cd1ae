from . import distributional_q_model as distributional_q_model
from . import distributional_q_tf_model as distributional_q_tf_model
from . import dqn_torch_model as dqn_torch_model
