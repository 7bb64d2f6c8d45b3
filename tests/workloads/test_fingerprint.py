"""The sums by which weights are known are those of f64, whatever the weights are."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.conftest import skip_without

pytestmark = pytest.mark.real


def weights() -> dict[str, Any]:
    import torch

    draw = torch.Generator().manual_seed(1)
    return {
        "usual": 0.02 * torch.randn(512, 257, 3, 3, generator=draw),
        "as_many_as_rows": torch.rand(8192, generator=draw),
        "few": torch.tensor([3.0, -4.0]),
        "none": torch.zeros(0),
        "one": torch.tensor(5.0),
        "turned": torch.randn(300, 200, generator=draw).t(),
        # Rows of it are all rounded to the same side.
        "constant": torch.full((9_000_000,), 1.1),
        "vast": torch.full((5000,), 1e30),
        "tiny": torch.full((5000,), 1e-30),
        "half": torch.full((70_000,), 6e4).half(),
        "double": torch.rand(5000, generator=draw).double(),
        "counts": torch.arange(100_000),
        "truths": torch.ones(5, dtype=torch.bool),
    }


NAMES = "usual, as_many_as_rows, few, none, one, turned, constant, vast, tiny, half, double, counts, truths"


@pytest.mark.parametrize("name", NAMES.split(", "))
def test_sum_and_norm_are_those_of_a_copy_in_f64(name: str) -> None:
    skip_without("torch")
    import torch

    from pytest_ngraph.workloads.modules.fingerprint import fingerprint, is_same

    tensor = weights()[name]
    holder = torch.nn.Module()
    holder.register_buffer("held", tensor)
    copied = tensor.double()
    expected = [[float(copied.sum()), float(copied.norm())]]

    found = fingerprint(holder)

    assert is_same(found, expected)
    # Far within what counts as the same, so that sums kept by other versions are those of this one.
    (total, norm), (expected_total, expected_norm) = found[0], expected[0]
    assert abs(total - expected_total) <= 1e-6 * expected_norm
    assert math.isclose(norm, expected_norm, rel_tol=1e-6)


def test_one_thread_adds_up_and_as_many_as_before_compute_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do so side by side: several threads each take several times the CPU time."""
    skip_without("torch")
    import torch

    from pytest_ngraph.workloads.modules.fingerprint import fingerprint

    norm, before, seen = torch.linalg.vector_norm, torch.get_num_threads(), []

    def counted(*given: Any, **named: Any) -> Any:
        seen.append(torch.get_num_threads())
        return norm(*given, **named)

    monkeypatch.setattr(torch.linalg, "vector_norm", counted)
    torch.set_num_threads(2)
    try:
        fingerprint(torch.nn.Linear(64, 64))
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
        with pytest.raises(RuntimeError):
            fingerprint(torch.nn.Linear(4, 4, device="meta"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
