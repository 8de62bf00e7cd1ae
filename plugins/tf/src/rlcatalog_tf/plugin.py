"""Declarations: TensorFlow, and the format SavedModel."""

from __future__ import annotations

from rlcatalog import ExporterSpec, FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            "tf",
            {
                "before": "rlcatalog_tf.load_order:before_tensorflow",
                "backend": "rlcatalog_tf.backend:TFBackend",
                "ops": "rlcatalog_tf.ops:OPS",
                "host": "rlcatalog_tf.interface_host:TFHost",
                "separate_value": "rlcatalog_tf.separate_value:TFSeparateValue",
                "add_time_dimension": "rlcatalog_tf.sequences:add_time_dimension",
                "learner": "rlcatalog_tf.learner:TFLearner",
                "kit": "rlcatalog_tf.kit:TFKit",
            },
            "TensorFlow 2 with Keras 3",
            module="tensorflow",
            aliases=("tf2",),
        ),
        FrameworkSpec(
            "tf",
            {"export-savedmodel": "rlcatalog_tf.exporting:write_saved_model"},
            "writes policies in the format savedmodel",
            extends="rlcatalog-tf/tf",
        ),
    ]


@hookimpl
def rlcatalog_exporters() -> list[ExporterSpec]:
    return [
        ExporterSpec(
            "savedmodel",
            {"runner": "rlcatalog_tf.exporting:SavedModelRunner"},
            "a SavedModel of TensorFlow's, a folder; acts with TensorFlow",
        )
    ]
