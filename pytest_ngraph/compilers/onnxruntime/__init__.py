"""The adapter of ONNX Runtime and its execution providers."""
