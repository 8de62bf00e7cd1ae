"""Plugin declaration: TensorFlow."""

from __future__ import annotations

from rlcatalog import FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            name="tf",
            targets={
                # Called before anything imports TensorFlow.
                "before": "rlcatalog_tf.load_order:before_tensorflow",
                "backend": "rlcatalog_tf.backend:TFBackend",
                "ops": "rlcatalog_tf.ops:OPS",
                "host": "rlcatalog_tf.model:TFHost",
                "separate_value": "rlcatalog_tf.model:TFSeparateValue",
                "separate_critic": "rlcatalog_tf.model:TFSeparateCritic",
                "layers_after_memory": "rlcatalog_tf.model:TFLayersAfterMemory",
                "add_time_dimension": "rlcatalog_tf.sequences:add_time_dimension",
                "learner": "rlcatalog_tf.learner:TFLearner",
                "bookkeeping": "rlcatalog_tf.bookkeeping:TFBookkeeping",
                "kit": "rlcatalog_tf.check_support:TFKit",
                "policy_module": "rlcatalog_tf.policy_module:PolicyModule",
            },
            summary="TensorFlow 2 with Keras 3",
            module="tensorflow",
            aliases=("tf2",),
            packages=("keras", "tf_keras"),
        )
    ]
