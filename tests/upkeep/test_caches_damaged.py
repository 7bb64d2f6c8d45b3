"""A cached model, input or reference with a flipped bit is not measured with: it is removed, built again and named."""

from __future__ import annotations

import pytest

from pytest_ngraph.workloads import folders
from tests.conftest import BRIEFLY, Suite, skip_without

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
    suite.bare(*REAL, plugins=BRIEFLY).assert_outcomes(passed=1)
    cache = suite.path / ".ngraph"
    files = [next(cache.glob(f"*/*/{name}")) for name in ("onnx-*.onnx", "inputs.npz", "timed.npz")]
    for file in files:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 4
        file.write_bytes(content)

    result = suite.bare(*REAL, "--ngraph-fresh", plugins=BRIEFLY)

    result.assert_outcomes(passed=1)
    for file in files:
        assert f"{file} is damaged: removed, and made again" in result.stdout.str()
        assert folders.damage(folders.owner_of(file)) == ""
    suite.bare(*REAL, "--ngraph-fresh", plugins=BRIEFLY).stdout.no_fnmatch_line("*is damaged*")


@pytest.mark.real
def test_weights_that_two_batches_share_are_made_again_once(suite: Suite) -> None:
    skip_without("torch", "onnx", "onnxruntime")
    suite.write("""
@pytest.mark.ngraph(model="block:mha", batch=[1, 4])
def test_faster(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1e-3)
""")
    suite.bare(*REAL, plugins=BRIEFLY).assert_outcomes(passed=2)
    cache = suite.path / ".ngraph" / "artifacts"
    exports = {folder / "meta.json" for folder in cache.glob("onnx-*")}
    before = {marker: marker.stat().st_ino for marker in exports}
    assert len(exports) == 2
    file = max(cache.glob("weights/*.bin"), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[len(changed) // 2] ^= 4
    file.write_bytes(changed)

    result = suite.bare(*REAL, "--ngraph-fresh", plugins=BRIEFLY)

    result.assert_outcomes(passed=2)
    assert result.stdout.str().count(f"{file} is damaged: removed, and made again") == 1
    assert file.read_bytes() == whole
    assert [folders.damage(marker.parent) for marker in exports] == ["", ""]
    # The other export is whole again with the weights of this one.
    assert sum(marker.stat().st_ino != before[marker] for marker in exports) == 1
