"""Int8 copies of ONNX files: what they are calibrated on, by which quantiser and method, and how much is quantised."""
