"""Reducing: the smallest part of a model's ONNX graph that still fails as a test's cell does, fit to be shared."""
