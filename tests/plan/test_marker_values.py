"""What a keyword of the marker may be given: arrays, series and views as well as lists, and a clear no to all else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.plan.marker import read_marker
from tests.conftest import Suite, skip_without

NUMBERS = ("batch", "sequence", "depth", "width", "image_size", "batches", "sequences", "depths")
WORDS = {
    "precision": ("f32", "f16"), "scenario": ("latency", "throughput"), "compilers": ("null", "openvino"),
    "devices": ("local", "cuda"), "model": ("block:conv", "block:mha"), "models": ("block:conv", "block:mha"),
}  # fmt: skip


def read(**keywords: Any) -> Any:
    return read_marker([((), keywords)])


def values_of(keyword: str, value: Any) -> tuple[Any, ...]:
    marker = read(**{keyword: value})
    if keyword in ("compilers", "devices"):
        return tuple(map(str, getattr(marker, keyword)))
    (values,) = marker.axes.values()
    return tuple(values)


def arrays_of(values: Any) -> dict[str, Any]:
    """Return the same values in every kind of thing that people keep them in."""
    import numpy as np

    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    return {
        "a tuple": tuple(values), "a NumPy array": np.array(values), "an array of objects": np.array(values, object),
        "a list of NumPy scalars": list(np.array(values)), "a pandas series": pd.Series(values, index=[7, 3]),
        "a pandas index": pd.Index(values), "a polars series": pl.Series(values),
        "keys of a mapping": dict.fromkeys(values).keys(), "values of a mapping": dict(enumerate(values)).values(),
    }  # fmt: skip


@pytest.mark.parametrize("keyword", NUMBERS)
def test_numbers_may_come_in_anything_that_has_them_in_an_order(keyword: str) -> None:
    torch = pytest.importorskip("torch")
    for name, given in {**arrays_of((8, 2)), "a tensor": torch.tensor([8, 2]), "a range": range(8, 1, -6)}.items():
        values = values_of(keyword, given)

        assert values == (8, 2), name
        # They end in ids, in JSON and in the store.
        assert {type(one) for one in values} == {int}, name


@pytest.mark.parametrize("keyword", WORDS)
def test_names_may_come_in_anything_that_has_them_in_an_order(keyword: str) -> None:
    for name, given in arrays_of(WORDS[keyword]).items():
        values = values_of(keyword, given)

        assert values == WORDS[keyword], name
        assert {type(one) for one in values} == {str}, name


def test_a_scalar_of_an_array_is_one_value() -> None:
    import numpy as np

    torch = pytest.importorskip("torch")
    for given in (np.int64(8), np.array(8), torch.tensor(8)):
        assert values_of("batch", given) == (8,)
    terms = read(
        tolerance=np.float32(0.25), rebuild=np.bool_(True), budget=np.int16(5), compilers=np.str_("null"), model="a:b"
    )
    assert (terms.tolerance, terms.rebuild, terms.budget.launches) == (0.25, True, 5)
    assert type(terms.rebuild) is bool


def not_allowed() -> Iterator[tuple[str, Any, str]]:
    import numpy as np

    pd, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    for keyword in (*NUMBERS, *WORDS):
        for value, said in (
            ([], "=[] is empty (expected"),
            (np.array([]), "=array([], dtype=float64) is empty (expected"),
            (range(0), "=range(0, 0) is empty (expected"),
            (None, "=None: None is not allowed"),
            ([None], "=[None]: None is not allowed"),
            (True, "=True: True is not allowed"),
            (np.array([True, False]), "=array([ True, False]): True is not allowed"),
            ([[1, 2], [3]], "=[[1, 2], [3]]: [1, 2] is not allowed"),
            (np.ones((2, 2)), "it has 2 dimensions"),
            (pd.DataFrame({"timm:resnet18": [1]}), "it has 2 dimensions"),
            ((one for one in "ab"), "a generator can be read only once; write list(...) around it"),
            (map(int, "12"), "a map can be read only once"),
            (itertools.count(1), "a count can be read only once"),
            ({1, 8}, "a set has no order; write sorted(...) around it"),
            (frozenset("ab"), "a frozenset has no order"),
            ({1: 2}, "={1: 2}: a mapping is not allowed"),
            (range(1, 10**15), "it has more than 100000 values"),
            (b"f32", "=b'f32': b'f32' is not allowed"),
            (np.array([1.5, 2]), "1.5 is not allowed"),
            (torch.ones(2), "1.0 is not allowed"),
        ):
            yield keyword, value, said


def test_what_has_no_order_no_values_or_rows_is_refused_with_what_is_expected() -> None:
    for keyword, value, said in not_allowed():
        with pytest.raises(SpecError) as refused:
            read(**{keyword: value})

        text = str(refused.value)
        assert text.startswith(f"{keyword}=")
        assert said in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), ("8", "'8'"), (8.0, "8.0"), ([1, -1], "-1"), (float("nan"), "nan"), ([1, "2"], "'2'")],
)
def test_only_whole_numbers_from_one_on_are_numbers(value: Any, said: str) -> None:
    for keyword in NUMBERS:
        with pytest.raises(SpecError) as refused:
            read(**{keyword: value})

        assert f": {said} is not allowed (expected whole numbers >= 1)" in str(refused.value)


class Rude:
    """Has values, and a representation that fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_what_was_given_is_shown_in_a_line_whatever_it_is() -> None:
    import numpy as np

    for value in (Rude(), ["x" * 10**6], np.arange(-500, 500).reshape(-1), "a\nb" * 10**5):
        with pytest.raises(SpecError) as refused:
            read(batch=value)

        assert len(str(refused.value)) < 500
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [[1], "no", 1])
def test_a_term_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"rebuild=.* is not allowed"):
        read(rebuild=value)
    with pytest.raises(SpecError, match=r"tolerance=.* is not allowed"):
        read(tolerance=value)


ARRAYS = """
import numpy as np
sizes = np.array([1, 8])
@pytest.mark.ngraph(model=np.array(["block:conv", "block:mha"]), batch=sizes, width=np.int64(64), depth=range(1, 2))
def test_cells(ngraph_cell): pass
@pytest.mark.ngraph(model="block:conv", batches=sizes)
def test_sweep(ngraph_batches): pass
"""


def test_items_are_named_as_if_lists_had_been_written(suite: Suite) -> None:
    suite.write(ARRAYS)

    assert suite.ids("--ngraph-compiler=null") == [
        *(
            f"test_cells[local-null-block:{block}-width64-depth1-batch{batch}]"
            for block in ("conv", "mha")
            for batch in (1, 8)
        ),
        "test_sweep[local-null-block:conv]",
    ]


def test_a_generator_over_a_module_is_a_collection_error_of_its_first_test(suite: Suite) -> None:
    suite.write("""
pytestmark = pytest.mark.ngraph(model="block:conv", batch=(2 ** n for n in range(4)))
def test_one(ngraph_cell): pass
""")

    result = suite.collect()

    result.stdout.fnmatch_lines(
        ["*test_suite.py::test_one: @pytest.mark.ngraph: batch=<generator *: a generator can be read only once*"]
    )
    assert "Traceback" not in result.stdout.str()
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_arrays_are_measured_and_kept(suite: Suite) -> None:
    suite.write("""
import numpy as np
def test_list(ngraph):
    found = ngraph.measure(model="block:conv", batch=np.array([1, 4]))
    assert [one.workload.batch for one in found] == [1, 4]
    assert ngraph.measure(model="block:conv", batch=np.array(4)).workload.batch == 4
""")

    suite.run().assert_outcomes(passed=1)


MODEL = """
from torch import nn
class Net(nn.Module):
    class Inner(nn.Module): pass
def make(): return Net()
def wrapped():
    def inner(): pass
    return inner
"""


# What stands in the marker of a file: what is said of it.
REFERENCES = {
    "net.Net": 'write "net.py:Net"',
    "net.Net.Inner": 'write "net.py:Net.Inner"',
    "['timm:resnet18', net.make]": 'write "net.py:make"',
    "Here": 'write "{file}:Here"',
    "far.Far": 'write "models/far.py:Far"',
    "lambda: 1": 'define it at the top level of a file and write "{file}:NAME"',
    "net.wrapped()": 'define it at the top level of a file and write "net.py:NAME"',
    "net.Net()": 'write "path/file.py:NAME", the file and the name that it has there at the top level',
    "torch.nn.Linear": 'write "torch.nn.modules.linear:Linear"',
    "print": 'write "path/file.py:NAME"',
}


def test_a_class_or_function_is_answered_with_the_reference_to_write(suite: Suite) -> None:
    skip_without("torch")
    for path in ("net.py", "models/far.py"):
        (suite.path / path).parent.mkdir(exist_ok=True)
        (suite.path / path).write_text(MODEL.replace("Net", Path(path).stem.capitalize()))
    (suite.path / "models" / "__init__.py").touch()
    # In one run, which imports PyTorch once.
    files = {f"test_{number}.py": given for number, given in enumerate(REFERENCES)}
    for file, given in files.items():
        source = f"""
import torch, net, models.far as far
class Here(torch.nn.Module): pass
@pytest.mark.ngraph(model={given})
def test_it(ngraph_cell): pass
"""
        suite.write(source, file)

    result = suite.pytester.runpytest_subprocess("-p", "ngraph", "--collect-only", "-q", "-p", "no:cacheprovider")

    assert "Traceback" not in result.stdout.str()
    result.assert_outcomes(errors=len(files))
    for file, given in files.items():
        (line,) = (line for line in result.outlines if line.startswith(f"{file}::test_it: "))
        assert f"is not a text; {REFERENCES[given].format(file=file)}" in line


def test_the_reference_that_was_said_is_one_that_works(suite: Suite) -> None:
    skip_without("torch")
    (suite.path / "sub").mkdir()
    (suite.path / "sub" / "net.py").write_text(MODEL)
    suite.write(
        """
@pytest.mark.ngraph(model="net.py:Net.Inner", batch=1)
def test_it(ngraph_cell): pass
""",
        "sub/test_suite.py",
    )

    assert suite.ids("--ngraph-compiler=null") == ["test_it[local-null-net.py:Net.Inner-batch1]"]
