"""ONNX Runtime as anyone would time it: a session, a loop, the median; prints seconds per call.

Run as ``python bare_loop.py MODEL.onnx INPUTS.npz THREADS SECONDS``; the arrays are in the order of the inputs.
"""

from __future__ import annotations

import statistics
import sys
from time import perf_counter

import numpy
import onnxruntime


def main(model: str, inputs: str, threads: str, seconds: str) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = int(threads)
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    with numpy.load(inputs) as stored:
        arrays = [stored[name] for name in stored.files]
    feed = {each.name: array for each, array in zip(session.get_inputs(), arrays, strict=True)}
    times = []
    end = perf_counter() + float(seconds)
    while (began := perf_counter()) < end:
        session.run(None, feed)
        times.append(perf_counter() - began)
    print(statistics.median(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
