"""Declarations: the format ONNX, what writes it, and what freezes policies of PyTorch."""

from __future__ import annotations

from rlcatalog import ExporterSpec, FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_exporters() -> list[ExporterSpec]:
    return [
        ExporterSpec(
            "onnx",
            {"runner": "rlcatalog_onnx.running:OnnxRunner"},
            "one ONNX file; acts with onnxruntime alone",
            suffix=".onnx",
        )
    ]


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            "torch",
            {"export-onnx": "rlcatalog_onnx.torch:write_onnx", "freeze": "rlcatalog_onnx.frozen.torch:FrozenTorch"},
            "writes ONNX, and acts from a recorded graph with onnxruntime",
            extends="rlcatalog-torch/torch",
        ),
        FrameworkSpec("tf", {"export-onnx": "rlcatalog_onnx.tf:write_onnx"}, "writes ONNX", extends="rlcatalog-tf/tf"),
    ]
