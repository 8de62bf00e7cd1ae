"""Declarations: the format ONNX, and what freezes policies of PyTorch."""

from __future__ import annotations

from rlcatalog import ExporterSpec, FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_exporters() -> list[ExporterSpec]:
    return [
        ExporterSpec(
            "onnx",
            {
                "torch": "rlcatalog_onnx.torch:write_onnx",
                "tf": "rlcatalog_onnx.tf:write_onnx",
                "runner": "rlcatalog_onnx.running:OnnxRunner",
            },
            "one ONNX file; acts with onnxruntime alone",
            suffix=".onnx",
        )
    ]


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            "torch",
            {"freeze": "rlcatalog_onnx.frozen.torch:FrozenTorch"},
            "acts from a recorded graph, with onnxruntime",
            extends="rlcatalog-torch/torch",
        )
    ]
