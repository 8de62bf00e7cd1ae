"""Plugin declarations: export formats with their writers, and freezing."""

from __future__ import annotations

from rlcatalog import ExporterSpec, FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_exporters() -> list[ExporterSpec]:
    return [
        ExporterSpec(
            "onnx",
            {"runner": "rlcatalog_export.onnx:OnnxRunner"},
            "ONNX file; needs only onnxruntime to act",
            suffix=".onnx",
        ),
        ExporterSpec(
            "torch",
            {"runner": "rlcatalog_export.torch.program:ProgramRunner"},
            "torch.export program; needs PyTorch to act",
            suffix=".pt2",
        ),
        ExporterSpec(
            "savedmodel",
            {"runner": "rlcatalog_export.tf.saved_model:SavedModelRunner"},
            "TensorFlow SavedModel folder; needs TensorFlow to act",
        ),
    ]


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            "torch",
            {
                "export": "rlcatalog_export.exporter:export",
                "export-onnx": "rlcatalog_export.torch.onnx:write_onnx",
                "export-torch": "rlcatalog_export.torch.program:write_program",
                "freeze": "rlcatalog_export.torch.freeze_policy:FrozenTorch",
            },
            "exports policies to files, and runs a recorded graph with onnxruntime to act",
            extends="rlcatalog-torch/torch",
        ),
        FrameworkSpec(
            "tf",
            {
                "export": "rlcatalog_export.exporter:export",
                "export-onnx": "rlcatalog_export.tf.onnx:write_onnx",
                "export-savedmodel": "rlcatalog_export.tf.saved_model:write_saved_model",
            },
            "writes exported policies",
            extends="rlcatalog-tf/tf",
        ),
    ]
