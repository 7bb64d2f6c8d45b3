"""From marker and options to items: their ids, what is deselected, and what is refused before anything runs."""

from __future__ import annotations

import pytest

from pytest_ngraph.front.fixtures import GRID_FIXTURES, TARGET_FIXTURES
from tests.conftest import Suite

CELL = """
@pytest.mark.ngraph({marker})
def test_it(ngraph_cell):
    pass
"""


def test_an_id_names_device_compiler_model_and_each_axis(suite: Suite) -> None:
    suite.write(CELL.format(marker="model='block:conv', width=[64, 96], batch=[1, 8], depth=2, image_size=64"))

    assert suite.ids("--ngraph-compiler=null[sample_us=20]") == [
        f"test_it[local-null[sample_us=20]-block:conv-width{width}-size64-depth2-batch{batch}]"
        for width in (64, 96)
        for batch in (1, 8)
    ]


def test_a_sweep_is_one_item_per_target_and_model(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model=["timm:resnet18", "timm:resnet50"], batches=[1, 8])
def test_batching_scales(ngraph_batches): pass
""")

    assert suite.ids("--ngraph-compiler=null,openvino") == [
        f"test_batching_scales[local-{compiler}-timm:{model}]"
        for model in ("resnet18", "resnet50")
        for compiler in ("null", "openvino")
    ]


FOLDERS = """
import pytest
from pytest_ngraph.front.run import STATE

@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    session.config.rootpath.joinpath("folders.txt").write_text("\\n".join(session.config.stash[STATE].folders))
"""


def test_workers_search_the_folders_of_conftests_in_the_order_in_which_pytest_met_them(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(FOLDERS)
    folders = [suite.path]
    for name in ("f", "b", "e", "a", "d", "c"):
        folders.append(folders[-1] / name)
        folders[-1].mkdir()
        (folders[-1] / "conftest.py").write_text("")
    suite.write(CELL.format(marker="model='block:conv'"), "f/b/e/a/d/c/test_deep.py")

    assert len(suite.ids("--ngraph-compiler=null")) == 1

    assert (suite.path / "folders.txt").read_text().splitlines() == [str(folder) for folder in folders]


def test_models_are_swept_in_one_item(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(models=["timm:resnet18", "block:conv"], batch=[1, 8])
def test_order(ngraph_models): pass
""")

    assert suite.ids("--ngraph-compiler=null") == ["test_order[local-null-batch1]", "test_order[local-null-batch8]"]


def test_other_parameters_stand_beside_the_grid(suite: Suite) -> None:
    suite.write("""
@pytest.mark.parametrize("quantile", [50, 99])
@pytest.mark.ngraph(model="block:conv")
def test_it(ngraph_cell, quantile): pass
""")

    assert suite.ids("--ngraph-compiler=null") == [
        "test_it[local-null-block:conv-50]",
        "test_it[local-null-block:conv-99]",
    ]


def test_a_test_that_only_asks_for_its_target_is_parametrised_too(suite: Suite) -> None:
    suite.write("def test_plain(): pass\ndef test_target(ngraph_target): pass\n")

    assert suite.ids("--ngraph-compiler=null,openvino") == [
        "test_plain",
        "test_target[local-null]",
        "test_target[local-openvino]",
    ]


def test_a_fixture_of_the_suite_may_stand_between(suite: Suite) -> None:
    suite.write("""
@pytest.fixture
def fast(ngraph_cell): return ngraph_cell
@pytest.mark.ngraph(model="block:conv")
def test_it(fast): pass
""")

    assert suite.ids("--ngraph-compiler=null") == ["test_it[local-null-block:conv]"]


def test_the_marker_of_a_class_is_nearer_than_those_of_the_classes_it_inherits_from(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=[1, 8])
class TestBase:
    def test_it(self, ngraph_cell): pass

@pytest.mark.ngraph(model="block:mha")
class TestDerived(TestBase):
    pass
""")

    assert suite.ids("--ngraph-compiler=null") == [
        f"{where}::test_it[local-null-{model}-batch{batch}]"
        for where, model in (("TestBase", "block:conv"), ("TestDerived", "block:mha"))
        for batch in (1, 8)
    ]


def test_markers_of_module_class_and_function_merge_and_the_nearest_wins(suite: Suite) -> None:
    suite.write("""
pytestmark = pytest.mark.ngraph(model="block:conv", batch=[1, 2], depth=1)
@pytest.mark.ngraph(batch=4)
class TestClass:
    @pytest.mark.ngraph(depth=[3, 5])
    def test_near(self, ngraph_cell): pass
    @pytest.mark.ngraph(batches=[1, 16])
    def test_swept(self, ngraph_batches): pass
    def test_without(self): pass
def test_far(ngraph_cell): pass
""")

    assert suite.ids("--ngraph-compiler=null") == [
        "TestClass::test_near[local-null-block:conv-depth3-batch4]",
        "TestClass::test_near[local-null-block:conv-depth5-batch4]",
        "TestClass::test_swept[local-null-block:conv-depth1]",
        "TestClass::test_without",
        "test_far[local-null-block:conv-depth1-batch1]",
        "test_far[local-null-block:conv-depth1-batch2]",
    ]


def test_a_keyword_expression_selects_by_compiler_model_and_axis(suite: Suite) -> None:
    suite.write(CELL.format(marker="model=['timm:resnet18', 'block:conv'], batch=[1, 8]"))

    assert suite.ids("--ngraph-compiler=null,openvino", "-k", "openvino and resnet18 and batch8") == [
        "test_it[local-openvino-timm:resnet18-batch8]"
    ]


def test_an_item_is_found_by_its_id(suite: Suite) -> None:
    suite.write(CELL.format(marker="model='block:conv', batch=[1, 8]"))
    name = "test_it[local-null[sample_us=20]-block:conv-batch8]"

    assert suite.ids("--ngraph-compiler=null[sample_us=20]", f"test_suite.py::{name}") == [name]


def test_options_narrow_the_axes_they_name_and_no_others(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=[1, 8, 16])
def test_batch(ngraph_cell): pass
@pytest.mark.ngraph(model="block:conv", depth=[1, 2])
def test_depth(ngraph_cell): pass
@pytest.mark.ngraph(model="timm:resnet18", batches=[1, 16])
def test_sweep(ngraph_batches): pass
""")

    assert suite.ids("--ngraph-compiler=null", "--ngraph-batch=8,16", "--ngraph-batch=2") == [
        "test_batch[local-null-block:conv-batch8]",
        "test_batch[local-null-block:conv-batch16]",
        "test_depth[local-null-block:conv-depth1]",
        "test_depth[local-null-block:conv-depth2]",
        "test_sweep[local-null-timm:resnet18]",
    ]


@pytest.mark.parametrize(
    "option",
    ["--ngraph-batch=3", "--ngraph-model=timm:resnet50", "--ngraph-compiler=openvino"],
)
def test_what_options_empty_is_deselected(suite: Suite, option: str) -> None:
    suite.write(CELL.format(marker="model='block:conv', batch=[1, 8], compilers='null'"))

    result = suite.collect(option)

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["*1 deselected*"])


def test_compilers_of_the_marker_narrow_what_the_command_line_selected(suite: Suite) -> None:
    suite.write(CELL.format(marker="model='block:conv', compilers=['null', 'onnxruntime[graph=basic]']"))

    chosen = "--ngraph-compiler=null[sample_us=1],openvino,onnxruntime,onnxruntime[graph=basic]"
    assert suite.ids(chosen) == [
        "test_it[local-null[sample_us=1]-block:conv]",
        "test_it[local-onnxruntime[graph=basic]-block:conv]",
    ]
    assert suite.ids() == ["test_it[local-null-block:conv]", "test_it[local-onnxruntime[graph=basic]-block:conv]"]


def test_models_come_from_the_command_line_where_the_marker_has_none(suite: Suite) -> None:
    suite.write(CELL.format(marker="batch=2"))

    assert suite.ids("--ngraph-compiler=null", "--ngraph-model=block:conv,block:mha") == [
        "test_it[local-null-block:conv-batch2]",
        "test_it[local-null-block:mha-batch2]",
    ]


def test_the_baseline_makes_items_only_when_it_is_named(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(CELL.format(marker="model='block:conv'"))

    unnamed = suite.ids("--ngraph-baseline=mine")
    assert unnamed
    assert not any("mine" in name for name in unnamed)
    assert suite.ids("--ngraph-baseline=mine", "--ngraph-compiler=mine") == ["test_it[local-mine-block:conv]"]
    assert "test_it[local-mine-block:conv]" in suite.ids("--ngraph-baseline=broken")


def test_compilers_that_run_only_when_named_make_no_items_of_their_own(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(CELL.format(marker="model='block:conv'"))

    assert not any("null" in name for name in suite.ids())


def test_a_compiler_that_is_not_installed_makes_items_only_when_named(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(CELL.format(marker="model='block:conv'"))

    assert "test_it[local-absent-block:conv]" not in suite.ids()
    assert suite.ids("--ngraph-compiler=absent") == ["test_it[local-absent-block:conv]"]


@pytest.mark.parametrize("marker", ["model='{}'", "model='block:conv', neighbour='{}'"])
def test_two_models_of_one_name_are_refused_unless_one_is_written_from_the_root(suite: Suite, marker: str) -> None:
    for folder in ("a", "b"):
        suite.write(CELL.format(marker=marker.format("net.py:Net")), f"{folder}/test_{folder}.py")
        (suite.path / folder / "net.py").write_text("class Net: pass\n")

    result = suite.run("--collect-only")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: two models of this run are called 'net.py:Net': *a/net.py:Net and *b/net.py:Net; *"]
    )
    assert suite.run("--collect-only", "a").ret == pytest.ExitCode.OK
    suite.write(CELL.format(marker=marker.format("b/net.py:Net")), "b/test_b.py")
    assert suite.run("--collect-only").ret == pytest.ExitCode.OK


def test_paths_are_found_from_the_test_file_and_then_from_the_root(suite: Suite) -> None:
    (suite.path / "pytest.ini").write_text("[pytest]\n")
    for folder in ("", "near"):
        (suite.path / folder).mkdir(exist_ok=True)
        (suite.path / folder / "models.py").write_text("def far(): ...\ndef both(): ...\n")
    (suite.path / "near" / "models.py").write_text("def both(depth): ...\n")
    (suite.path / "root.py").write_text("def far(depth): ...\n")
    suite.write(CELL.format(marker="model=['models.py:both', 'root.py:far'], depth=2"), "near/test_near.py")

    assert suite.ids("--ngraph-compiler=null") == [
        "test_it[local-null-models.py:both-depth2]",
        "test_it[local-null-root.py:far-depth2]",
    ]


# Refusals. Every message names the test, what was given and what is allowed, and shows no traceback of ours.


def assert_refused(result: pytest.RunResult, *fragments: str) -> None:
    text = result.stdout.str() + result.stderr.str()
    assert result.ret in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR), text
    for fragment in fragments:
        assert fragment in text
    for trace in ("Traceback", "INTERNALERROR", "SpecError", "pytest_ngraph/", "During handling"):
        assert trace not in text, text


REFUSED = [
    ("model='block:conv', batch=[]", ["batch=[] is empty", "whole numbers >= 1"]),
    ("model='block:conv', batch=0", ["batch=0: 0 is not allowed", "whole numbers >= 1"]),
    ("model='block:conv', batch=-1", ["batch=-1", "whole numbers >= 1"]),
    ("model='block:conv', batch='eight'", ["batch='eight'", "whole numbers >= 1"]),
    ("model='block:conv', batch=True", ["batch=True", "whole numbers >= 1"]),
    ("model='block:conv', batch=[1, True]", ["True is not allowed", "whole numbers >= 1"]),
    ("model='block:conv', batch=1.5", ["batch=1.5", "whole numbers >= 1"]),
    ("model='block:conv', batch={1, 2}", ["batch={1, 2}", "whole numbers >= 1"]),
    ("model='block:conv', depth=range(0)", ["depth=range(0, 0) is empty"]),
    ("model='timm:resnet18', depth=[2, 3]", ["depth=2, 3", "'timm:resnet18'", "it takes: image_size"]),
    ("model='onnx:net.onnx'", ["'onnx:net.onnx'", "no file 'net.onnx' in "]),
    ("model='resnet18'", ["'resnet18'", "timm:NAME"]),
    ("model='block:lstm'", ["unknown block 'lstm'", "block:conv, block:mha"]),
    ("model=[]", ["model=[] is empty", "timm:resnet18"]),
    ("model=3", ["model=3", "timm:resnet18"]),
    ("batch=1", ["no model", "model=", "--ngraph-model"]),
    ("model='block:conv', precision='f8'", ["precision='f8'", "allowed: f32"]),
    ("model='block:conv', bach=8", ["unknown keyword 'bach'", "allowed: model", "batch", "tolerance"]),
    ("'block:conv'", ["positional argument 'block:conv'", "only keywords"]),
    ("model='block:conv', compilers='tensort'", ["compilers='tensort'", "unknown compiler", "known: ", "openvino"]),
    ("model='block:conv', compilers=[]", ["compilers=[] is empty"]),
    ("model='block:conv', compilers='null[fixed_us'", ["compilers='null[fixed_us'", "NAME[option=value,...]"]),
    ("model='block:conv', compilers='null[tea=1]'", ["unknown option 'tea'", "fixed_us, sample_us, layer_us"]),
    ("model='block:conv', compilers='null[fixed_us=-1]'", ["fixed_us='-1'", "a number >= 0"]),
    ("model='block:conv', baseline='idenity'", ["baseline='idenity'", "unknown compiler", "identity"]),
    ("model='block:conv', baseline=['null', 'identity']", ["baseline=", "expected one compiler"]),
    ("model='block:conv', devices='orin'", ["devices='orin'", "unknown device", "known: local"]),
    ("model='block:conv', budget=2", ["budget=2", ">= 3"]),
    ("model='block:conv', budget='soon'", ["budget='soon'", "10min"]),
    ("model='block:conv', tolerance=5", ["tolerance=5", "between 0 and 1"]),
    ("model='block:conv', tolerance=True", ["tolerance=True", "between 0 and 1"]),
    ("model='block:conv', batch=1, batches=[1, 2]", ["batches= and batch= together"]),
    ("model='block:conv', batches=[1, 2]", ["batches= goes with the fixture ngraph_batches, not with ngraph_cell"]),
    ("model='block:conv', depths=[1, 2], batches=[1, 2]", ["batches= and depths= together"]),
]


@pytest.mark.parametrize(("marker", "fragments"), REFUSED, ids=[marker for marker, _ in REFUSED])
def test_a_wrong_marker_is_a_collection_error(suite: Suite, marker: str, fragments: list[str]) -> None:
    suite.write(CELL.format(marker=marker))

    result = suite.collect()

    assert_refused(result, "test_suite.py::test_it: @pytest.mark.ngraph: ", *fragments)


@pytest.mark.parametrize("fixture", ["ngraph_cell", "tmp_path"])
def test_the_mark_of_a_parameter_is_refused_instead_of_ignored(suite: Suite, fixture: str) -> None:
    suite.write(f"""
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.ngraph(bach=8))])
def test_it({fixture}, x): pass
""")

    result = suite.collect("--ngraph-compiler=null", "--ngraph-model=block:conv")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stderr.str()
    assert "pytest.param(marks=pytest.mark.ngraph(...)): the mark of a parameter comes too late to make items" in said
    assert "write @pytest.mark.ngraph(...) over the function" in said


@pytest.mark.parametrize("fixture", ["ngraph_batches", "ngraph_depths", "ngraph_models"])
def test_a_fixture_of_a_sweep_needs_its_axis(suite: Suite, fixture: str) -> None:
    suite.write(f"@pytest.mark.ngraph(model='block:conv')\ndef test_it({fixture}): pass\n")

    axis = fixture.removeprefix("ngraph_")
    assert_refused(suite.collect(), "test_it", f"the fixture {fixture} needs {axis}= in the marker")


@pytest.mark.parametrize("fixture", ["ngraph_target", "ngraph"])
def test_axes_without_a_fixture_that_measures_them_are_refused(suite: Suite, fixture: str) -> None:
    suite.write(f"@pytest.mark.ngraph(model='block:conv', batches=[1, 2])\ndef test_it({fixture}): pass\n")

    assert_refused(suite.collect(), "test_it", "batches= goes with the fixture ngraph_batches")


def test_a_marked_test_without_any_of_our_fixtures_is_refused(suite: Suite) -> None:
    suite.write("@pytest.mark.ngraph(model='block:conv')\ndef test_it(tmp_path): pass\n")

    assert_refused(suite.collect(), "test_it", "none of the fixtures ngraph_cell", "ngraph_target")


def test_a_marked_method_that_takes_no_fixtures_is_refused(suite: Suite) -> None:
    suite.write("""
import unittest
class TestOld(unittest.TestCase):
    @pytest.mark.ngraph(model="block:conv")
    def test_it(self): pass
""")

    assert_refused(suite.collect(), "test_suite.py::TestOld::test_it: @pytest.mark.ngraph: ", "plain class")


def test_a_wrong_target_is_refused_in_a_test_that_asks_for_nothing_else(suite: Suite) -> None:
    suite.write("@pytest.mark.ngraph(baseline='idenity')\ndef test_it(ngraph_target): pass\n")

    assert_refused(suite.collect(), "test_it", "baseline='idenity'", "unknown compiler", "identity")


OPTIONS = [
    ("--ngraph-compiler=tensort", ["--ngraph-compiler: unknown compiler 'tensort' (known: executorch, "]),
    ("--ngraph-compiler=null[tea=1]", ["--ngraph-compiler: ", "unknown option 'tea'", "fixed_us"]),
    ("--ngraph-baseline=idenity", ["--ngraph-baseline: unknown compiler 'idenity'"]),
    ("--ngraph-device=orin", ["--ngraph-device: unknown device 'orin' (known: local, cuda, cuda:N)"]),
    ("--ngraph-batch=0", ["--ngraph-batch: '0' is not allowed", "whole numbers >= 1"]),
    ("--ngraph-protocol=fast", ["--ngraph-protocol: 'fast'", "gate, quick, paper"]),
    ("--ngraph-model=resnet18", ["--ngraph-model: 'resnet18'", "timm:resnet18"]),
    ("-ongraph_compiler=tensort", ["ini option ngraph_compiler: unknown compiler 'tensort'"]),
    ("-ongraph_batch=many", ["ini option ngraph_batch: 'many' is not allowed"]),
    ("-ongraph_device=orin", ["ini option ngraph_device: unknown device 'orin'"]),
]


@pytest.mark.parametrize(("option", "fragments"), OPTIONS, ids=[option for option, _ in OPTIONS])
def test_a_wrong_option_is_a_usage_error(suite: Suite, option: str, fragments: list[str]) -> None:
    suite.write(CELL.format(marker="model='block:conv'"))

    result = suite.collect(option)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert_refused(result, *fragments)


def test_compilers_of_a_conftest_in_a_subfolder_can_be_named(suite: Suite) -> None:
    suite.add_compilers("sub")
    suite.write(CELL.format(marker="model='block:conv', compilers='mine'"), "sub/test_sub.py")

    assert suite.ids("--ngraph-compiler=mine[us=50]") == ["test_it[local-mine[us=50]-block:conv]"]


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("'null', 'adapters:MINE'", "compiler 'null': already taken by pytest_ngraph.compilers.null:COMPILER"),
        ("'mine', 'adapters.py'", "compiler 'mine': adapter 'adapters.py' is not of the form"),
        ("'my compiler', 'adapters:MINE'", "compiler 'my compiler': expected a name of letters, digits"),
    ],
)
def test_a_hook_that_adds_wrongly_is_a_usage_error(suite: Suite, added: str, said: str) -> None:
    (suite.path / "conftest.py").write_text(f"def pytest_ngraph_compilers(catalogue): catalogue.add({added})\n")
    suite.write("def test_it(): pass\n")

    result = suite.bare("--collect-only")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert_refused(result, f"pytest_ngraph_compilers: {said}")


def test_a_hook_in_a_subfolder_that_adds_wrongly_is_a_collection_error_at_its_line(suite: Suite) -> None:
    suite.write("def test_it(): pass\n", "sub/test_it.py")
    (suite.path / "sub" / "conftest.py").write_text(
        "def pytest_ngraph_compilers(catalogue):\n    catalogue.add('mine', 'adapters.py')\n"
    )

    result = suite.bare("--collect-only")

    assert_refused(result, "sub/conftest.py:2", "pytest_ngraph_compilers: compiler 'mine': adapter 'adapters.py'")


def test_an_adapter_that_cannot_be_imported_is_named(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(
        "def pytest_ngraph_compilers(catalogue): catalogue.add('mine', 'nowhere:COMPILER')\n"
    )
    suite.write(CELL.format(marker="model='block:conv'"))

    assert_refused(suite.collect("--ngraph-compiler=mine"), "--ngraph-compiler: compiler 'mine'", "'nowhere:COMPILER'")


def test_collecting_measures_nothing(suite: Suite) -> None:
    suite.write(CELL.format(marker="model='block:conv'"))

    suite.ids("--ngraph-compiler=null")

    assert not suite.store.parent.exists()


def test_collecting_for_a_device_elsewhere_needs_no_certificate_and_asks_nobody(suite: Suite) -> None:
    (suite.path / "ngraph.toml").write_text(
        '[hub.lab]\naddress = "tls://127.0.0.1:9"\nca = "nowhere/ca.pem"\n[devices.orin]\nhub = "lab"\n'
    )
    suite.write(CELL.format(marker="model='block:conv'"))

    named = ("--ngraph-device=orin", "--ngraph-compiler=null")
    assert suite.ids(*named) == ["test_it[orin-null-block:conv]"]
    # Without names there are those that such a device may have.
    assert "test_it[orin-openvino-block:conv]" in suite.ids("--ngraph-device=orin")
    shown = suite.bare(*named, "--collect-only")
    shown.stdout.fnmatch_lines(["ngraph: device orin: not asked what it has, as nothing is measured"])

    result = suite.bare(*named)
    assert result.ret != pytest.ExitCode.OK
    assert "nowhere/ca.pem" in result.stdout.str() + result.stderr.str()


def test_help_shows_every_option_and_ini_twin(suite: Suite) -> None:
    text = suite.pytester.runpytest_inprocess("-p", "ngraph", "--help").stdout.str()

    for option in ("device", "compiler", "baseline", "model", "batch", "depth", "width", "image-size", "protocol"):
        assert f"--ngraph-{option}=" in text
        assert f"ngraph_{option.replace('-', '_')} (string" in text
    assert "--ngraph-strict " in text


def test_the_marker_is_documented(suite: Suite) -> None:
    result = suite.pytester.runpytest_inprocess("-p", "ngraph", "--markers")

    result.stdout.fnmatch_lines(["@pytest.mark.ngraph(model, batch, *): measure this grid of models*"])


def test_fixtures_are_found_and_documented_wherever_they_are_defined(suite: Suite) -> None:
    said = suite.pytester.runpytest_inprocess("-p", "ngraph", "--fixtures").stdout.str()

    for name in (*GRID_FIXTURES, *TARGET_FIXTURES):
        entry = said[said.index(f"\n{name} -- ") :].split("\n\n")[0].splitlines()
        assert len(entry) > 2, f"{name} has no documentation: {entry}"
    assert "no docstring available" not in said[said.index("\nngraph_target -- ") :].partition("fixtures defined")[0]
