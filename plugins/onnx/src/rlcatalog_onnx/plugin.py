"""Declaration: the format ONNX."""

from __future__ import annotations

from rlcatalog import ExporterSpec, hookimpl


@hookimpl
def rlcatalog_exporters() -> list[ExporterSpec]:
    return [
        ExporterSpec(
            "onnx",
            {
                "torch": "rlcatalog_onnx.torch:write_onnx",
                "tf": "rlcatalog_onnx.tf:write_onnx",
                "runner": "rlcatalog_onnx.running:OnnxRunner",
                "frozen-torch": "rlcatalog_onnx.frozen.torch:FrozenTorch",
            },
            "one ONNX file; acts with onnxruntime alone",
            suffix=".onnx",
        )
    ]
