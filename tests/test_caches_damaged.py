"""A cached model, input or reference with a flipped bit is not measured with: it is removed, built again and named."""

from __future__ import annotations

import pytest

from pytest_ngraph.workloads import folders
from tests.conftest import Suite, skip_without

REAL = ("--ngraph-compiler=onnxruntime", "--ngraph-baseline=identity", "--ngraph-protocol=quick")
CLAIM = """
@pytest.mark.ngraph(model="block:conv", width=16, image_size=16, batch=1)
def test_faster(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1e-3)
"""


@pytest.mark.real
def test_every_file_of_the_cache_with_a_flipped_bit_is_made_again(suite: Suite) -> None:
    skip_without("torch", "onnx", "onnxruntime")
    suite.write(CLAIM)
    suite.bare(*REAL).assert_outcomes(passed=1)
    cache = suite.path / ".ngraph"
    files = [next(cache.glob(f"*/*/{name}")) for name in ("model.onnx", "inputs.npz", "timed.npz")]
    for file in files:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 4
        file.write_bytes(content)

    result = suite.bare(*REAL, "--ngraph-fresh")

    result.assert_outcomes(passed=1)
    for file in files:
        assert f"{file} is damaged: removed, and made again" in result.stdout.str()
        assert folders.damage(file.parent) == ""
    suite.bare(*REAL, "--ngraph-fresh").stdout.no_fnmatch_line("*is damaged*")
