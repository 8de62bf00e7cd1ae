"""rlcatalog-onnx: policies as ONNX files, and acting from them with onnxruntime alone."""
