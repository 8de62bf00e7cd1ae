"""Declarations of the kernel itself: the frameworks, the action codecs and the formats it brings."""

from __future__ import annotations

from rlcatalog.plugins import ActionCodecSpec, ExporterSpec, FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            "torch",
            {
                "engine": "rlcatalog_torch.engine:TorchEngine",
                "ops": "rlcatalog_torch.ops:OPS",
                "host": "rlcatalog_torch.interface_host:TorchHost",
                "separate_value": "rlcatalog_torch.separate_value:TorchSeparateValue",
            },
            "PyTorch",
            module="torch",
        ),
        FrameworkSpec(
            "tf",
            {
                "before": "rlcatalog.frameworks.load_order:before_tensorflow",
                "engine": "rlcatalog_tf.engine:TFEngine",
                "ops": "rlcatalog_tf.ops:OPS",
                "host": "rlcatalog_tf.interface_host:TFHost",
                "separate_value": "rlcatalog_tf.separate_value:TFSeparateValue",
            },
            "TensorFlow 2 with Keras 3",
            module="tensorflow",
            aliases=("tf2",),
        ),
    ]


def _codec(name: str, target: str, summary: str, kinds: tuple[str, ...] = ()) -> ActionCodecSpec:
    return ActionCodecSpec(name, {"numpy": f"rlcatalog.actions.{target}"}, summary, kinds=kinds or (name,))


@hookimpl
def rlcatalog_action_codecs() -> list[ActionCodecSpec]:
    return [
        _codec("discrete", "kinds:DiscreteCodec", "one of n values"),
        _codec("multi_discrete", "kinds:MultiDiscreteCodec", "several choices at once"),
        _codec("multi_binary", "kinds:MultiBinaryCodec", "bits"),
        _codec("box", "kinds:BoxCodec", "numbers, or whole numbers, between bounds"),
        _codec("simplex", "kinds:SimplexCodec", "probability vectors"),
        _codec("composite", "composites:CompositeCodec", "the codecs of a Tuple's or Dict's parts", ("tuple", "dict")),
    ]


@hookimpl
def rlcatalog_exporters() -> list[ExporterSpec]:
    return [
        ExporterSpec(
            "torch",
            {
                "torch": "rlcatalog_torch.exporting:write_program",
                "runner": "rlcatalog_torch.exporting:ProgramRunner",
            },
            "a program of torch.export; acts with PyTorch",
            suffix=".pt2",
        ),
        ExporterSpec(
            "savedmodel",
            {
                "tf": "rlcatalog_tf.exporting:write_saved_model",
                "runner": "rlcatalog_tf.exporting:SavedModelRunner",
            },
            "a SavedModel of TensorFlow's, a folder; acts with TensorFlow",
        ),
    ]
