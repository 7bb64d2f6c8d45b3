"""Choices: what to deploy, when nothing, what is undecided, and what ``ngraph choose`` says to people and scripts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.choosing.choice import Answer, Choice, choose
from pytest_ngraph.choosing.deciding import no_test_of
from pytest_ngraph.choosing.deciding import test_of_choice as written_test
from pytest_ngraph.choosing.objectives import limit, objective
from pytest_ngraph.choosing.written import choice_json, choice_lines
from pytest_ngraph.cli import main
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import PROTOCOLS, CompileRecord, Outcome, digest
from pytest_ngraph.spec.evaluations import AGREEMENT, Agreed
from pytest_ngraph.store.sqlite import Store
from tests.support.front_stores import Config, fronts, write
from tests.support.simulator import exceeds

ONE, NONE, UNDECIDED = Answer.ONE, Answer.NONE, Answer.UNDECIDED


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def choice(store: Path, configs: dict[str, Config], limits: dict[str, str], by: str = "latency") -> Choice:
    write(store, configs)
    given = [limit(name, text) for name, text in limits.items()]
    (front,) = fronts(store, list(dict.fromkeys([by, *limits])))
    return choose(front, given, objective(by, "--minimise"))


def said(one: Choice) -> str:
    return " ".join(" ".join(choice_lines(one)).split())


def test_the_best_that_keeps_to_all_limits_is_deployed(store: Path) -> None:
    configs = {"fast": Config(5, 400 << 20), "good": Config(10), "slow": Config(15)}
    one = choice(store, configs, {"latency": "20ms", "memory": "200MiB"})

    assert (one.answer, one.best and one.best.candidate.name) == (ONE, "good batch1")
    text = said(one)
    assert "asked: latency at most 20.0 ms, memory at most 200 MiB; then the lowest latency" in text
    assert "deploy this: good batch1" in text
    assert "- fast batch1: memory at most 200 MiB: broken, 400 MiB" in text
    assert "- slow batch1: good batch1 is as good or better, latency 1.5" in text


def test_none_is_said_only_where_each_is_shown_to_break_a_limit(store: Path) -> None:
    assert choice(store, {"a": Config(10), "b": Config(30)}, {"latency": "5ms"}).answer is NONE


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        # At its limit, and too noisy for it.
        (Config(10), {"latency": "10ms"}),
        (Config(9, scatter=0.2), {"latency": "10ms"}),
        # Never measured, and too seldom.
        (Config(10, None), {"latency": "20ms", "memory": "1GiB"}),
        (Config(10, launches=2), {"latency": "1s"}),
        (Config(10, passes=1), {"memory": "1GiB"}),
    ],
)
def test_what_is_not_shown_is_undecided_and_never_deployed(store: Path, config: Config, limits: dict[str, str]) -> None:
    one = choice(store, {"a": config}, limits)
    assert one.answer is UNDECIDED
    assert "undecided: a batch1 leads" in said(one)
    assert choice_json(one)["deploy"] is None


def test_a_rival_that_may_keep_to_the_limit_and_is_better_leaves_it_undecided(store: Path) -> None:
    one = choice(store, {"a": Config(10), "b": Config(5, None)}, {"memory": "200MiB"})
    assert one.answer is UNDECIDED
    assert [option.candidate.name for option, _ in one.open] == ["b batch1"]
    assert "? b batch1: memory at most 200 MiB: not measured" in said(one)


def test_a_rival_that_is_no_better_does_not(store: Path) -> None:
    assert choice(store, {"a": Config(10), "b": Config(50, None)}, {"memory": "200MiB"}).answer is ONE


def test_of_two_that_are_as_fast_the_one_on_the_front_is_taken(store: Path) -> None:
    one = choice(store, {"big": Config(9.9, 400 << 20), "small": Config(10)}, {"memory": "1GiB"})
    assert (one.answer, one.best and one.best.candidate.name) == (ONE, "small batch1")


def test_one_that_failed_is_never_deployed(store: Path) -> None:
    configs = {"wrong": Config(1, outcome=Outcome.MISMATCH), "right": Config(10)}
    one = choice(store, configs, {"latency": "20ms"})
    assert one.best is not None
    assert one.best.candidate.name == "right batch1"
    assert "x wrong batch1: mismatch" in said(one)
    alone = store.with_name("alone.sqlite")
    assert choice(alone, {"wrong": configs["wrong"]}, {"latency": "20ms"}).answer is NONE


def test_accuracy_is_a_limit_with_the_interval_of_its_samples(store: Path) -> None:
    configs = {"dense": Config(20, wrong=40), "int8": Config(10, wrong=95), "broken": Config(1, wrong=996)}
    one = choice(store, configs, {"accuracy": "90%"})
    # 0.905 of 1000 samples is not shown to be 0.9, and 0.004 is shown not to be.
    assert one.answer is UNDECIDED
    assert [str(each.checked[0].kept) for each in one.options] == ["kept", "undecided", "broken"]
    assert choice(store.with_name("b.sqlite"), configs, {"accuracy": "0.85"}).answer is ONE
    # The evaluation of each is kept: asked again it shows the same samples.
    assert "accuracy at least 0.9: undecided, 0.905 [" in said(one)
    assert "(more samples would show it)" in said(one)
    with pytest.raises(SpecError, match="no test would decide it: accuracy needs more samples in the model's evaluate"):
        written_test(one)
    assert choice(store.with_name("c.sqlite"), configs, {"accuracy": "0.99"}).answer is NONE


def test_an_objective_that_is_not_compared_is_refused(store: Path) -> None:
    write(store, {"a": Config()})
    with pytest.raises(SpecError, match=r"size is not compared \(the front is over latency, memory\)"):
        choose(fronts(store)[0], [], objective("size", "--minimise"))


def test_answers_are_wrong_in_so_many_stores_at_most(tmp_path: Path) -> None:
    """The fast one is at its limit of memory, so that to deploy it and to leave it out are both words too many."""
    wrong, stores = 0, 60
    for seed in range(stores):
        path = tmp_path / f"{seed}.sqlite"
        write(path, {"fast": Config(5, scatter=0.02), "slow": Config(9, 50 << 20, scatter=0.02)}, seed=seed)
        given = [limit("memory", "100MiB")]
        (front,) = fronts(path, ["latency", "memory"], rate=0.1)
        wrong += choose(front, given, objective("latency", "--minimise")).answer is not UNDECIDED
    assert not exceeds(wrong, stores, 0.1)


# The commands

ARGUMENTS = ["--latency", "20ms", "--memory", "200MiB"]


@pytest.mark.parametrize(
    ("configs", "status"),
    [
        ({"a": Config(10), "b": Config(15)}, 0),
        ({"a": Config(100), "b": Config(150)}, 1),
        ({"a": Config(20), "b": Config(150)}, 3),
    ],
)
def test_scripts_know_the_answer_by_the_exit_status(
    store: Path, configs: dict[str, Config], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, configs)
    assert main(["choose", *ARGUMENTS, "--store", str(store), "--json"]) == status
    data = json.loads(capsys.readouterr().out)
    assert data["answer"] == {0: "one", 1: "none", 3: "undecided"}[status]
    assert (data["deploy"] is not None) == (status == 0)
    assert len(data["would_decide"]) == (3 if status == 3 else 0)


def test_what_would_decide_it_is_commands_and_a_test_that_is_python(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, {"a": Config(20, precision="f16"), "b": Config(19.9, None, batch=8)})
    assert main(["choose", *ARGUMENTS, "--store", str(store)]) == 3
    out = capsys.readouterr().out
    assert "what would decide it:\n  ngraph choose --device=xeon --model=timm:resnet18 " in out
    assert "\n  pytest test_choice.py --ngraph-budget=" in out
    file = tmp_path / "test_choice.py"
    again = [*ARGUMENTS, "--store", str(store), "--write", str(file)]
    assert main(["choose", *again]) == 0
    text = file.read_text()
    ast.parse(text)
    for part in ('model="timm:resnet18"', '{"compiler": "a", "batch": 1, "precision": "f16"',
                 '{"compiler": "b", "batch": 8, "precision": "f32"', "assert_memory(known[",
                 "assert_latency(known[", "at_most=0.02, tolerance=0)",
                 "at_most=209715200, tolerance=0)"):  # fmt: skip
        assert part in text
    capsys.readouterr()
    assert main(["choose", *again]) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_test_measures_the_configurations_that_there_are_and_not_all_that_they_combine_to(store: Path) -> None:
    """Of three compilers, each at a batch and a precision of its own, a product would measure 27 cells."""
    precisions = ("f32", "f16", "int8")
    configs = {name: Config(20, batch=2**place, precision=precisions[place]) for place, name in enumerate("abc")}
    text = written_test(choice(store, configs, {"latency": "20ms"}))

    assert text.count('{"compiler": ') == 3
    for place, name in enumerate("abc"):
        assert text.count(f'{{"compiler": "{name}", "batch": {2**place}, "precision": "{precisions[place]}"') == 1


def test_the_first_red_claim_of_a_test_hides_no_other(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written_test(
        choice(store, {"a": Config(20, None), "b": Config(20, None)}, {"latency": "20ms", "memory": "1MiB"})
    )
    made: list[str] = []

    def refused(helper: str) -> Callable[..., None]:
        def claim(cell: str, **_: object) -> None:
            made.append(f"{helper} {cell}")
            raise AssertionError(f"{helper} of {cell} is red")

        return claim

    names = {name: refused(name) for name in ("assert_latency", "assert_memory", "assert_pareto") if name in text}
    for name, claim in names.items():
        monkeypatch.setattr("pytest_ngraph." + name, claim)
    space: dict[str, Any] = {}
    exec(compile(text, "test_choice.py", "exec"), space)

    class Measures:
        def measure(self, points: list[dict[str, object]], **_: object) -> list[Any]:
            labels = [f"xeon:{one['compiler']} timm:resnet18 batch1" for one in points]
            return [SimpleNamespace(cell=SimpleNamespace(label=label)) for label in labels]

    with pytest.raises(AssertionError) as failed:
        space["test_choice"](Measures())
    assert len(made) == text.count("lambda: ") == 2
    assert all(name in str(failed.value) for name in names)


def test_a_test_of_a_hostile_name_is_still_only_a_test(store: Path) -> None:
    model = 'timm:x"""\nimport os\n'
    one = choice(store, {"a": Config(10, model=model)}, {"latency": "10ms"})
    names = {node.names[0].name for node in ast.walk(ast.parse(written_test(one))) if isinstance(node, ast.Import)}
    assert names == {"pytest"}


def test_pareto_prints_fronts_of_all_tasks_within_eighty_columns(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, {"a": Config(10), "b": Config(20), "c": Config(10, model="timm:vgg16")})
    assert main(["pareto", "--store", str(store)]) == 0
    out = capsys.readouterr().out
    assert "xeon: timm:resnet18\n" in out
    assert "xeon: timm:vgg16\n" in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["pareto", "--store", str(store), "--model", "timm:vgg16", "--json"]) == 0
    assert [one["model"] for one in json.loads(capsys.readouterr().out)["fronts"]] == ["timm:vgg16"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pareto", "--over", "speed"], "--over: unknown objective 'speed'"),
        (["pareto", "--model", "timm:resnet1"], "did you mean 'timm:resnet18'?"),
        (["pareto", "--error-rate", "2"], "--error-rate"),
        (["pareto", "--compiler", "zzz"], "--compiler: 'zzz' is not in run 1"),
        (["choose", "--latency", "20ms"], "the run has 2 tasks"),
        (["choose", "--latency", "20"], "--latency: '20' (expected 20ms; units: ns, us"),
        (["choose", "--accuracy", "90"], "expected a share of samples up to 1"),
        (["choose", "--maximise", "latency"], "latency is better where it is lower (expected --minimise latency)"),
        (["choose", "--minimise", "throughput"], "expected --maximise throughput"),
        (["choose", "--maximise", ""], "--maximise: unknown objective ''"),
        (["choose", "--model", "timm:vgg16", "--write", "choice.py"], "--write"),
    ],
)
def test_what_cannot_be_asked_says_what_can(
    store: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, {"a": Config(10), "c": Config(10, model="timm:vgg16")})
    assert main([*arguments, "--store", str(store)]) == 2
    assert message in capsys.readouterr().err


def test_a_store_without_cells_has_nothing_to_compare(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store, {})
    assert main(["pareto", "--store", str(store)]) == 2
    assert "has nothing with cells to compare" in capsys.readouterr().err


def test_one_of_two_image_sizes_is_chosen_by_its_size(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store, {"a": Config(10, image_size=64), "b": Config(12, image_size=64), "c": Config(10, image_size=224)})
    given = ["choose", *ARGUMENTS, "--store", str(store)]
    assert main(given) == 2
    err = capsys.readouterr().err
    assert "2 tasks" in err
    assert err.rstrip().endswith("name one by --image-size")
    assert main([*given, "--image-size", "64"]) == 0
    assert "deploy this: a batch1" in capsys.readouterr().out
    assert main([*given, "--image-size", "32"]) == 2
    assert "--image-size: '32' is not in run 1 (known: 224, 64" in capsys.readouterr().err


def test_the_commands_for_an_undecided_front_name_its_image_size(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noisy = {name: Config(10, scatter=0.2, image_size=size) for name, size in (("a", 64), ("b", 64), ("c", 224))}
    write(store, {**noisy, "d": Config(11, scatter=0.2, image_size=224)})
    assert main(["pareto", "--over", "latency", "--store", str(store)]) == 0
    assert "--model=timm:resnet18 --image-size=64 " in capsys.readouterr().out
    given = ["pareto", "--over=latency", f"--store={store}", f"--write={tmp_path / 'test_front.py'}"]
    assert main(given) == 2
    assert "2 of 2 fronts are undecided" in capsys.readouterr().err
    assert main([*given, "--image-size=64"]) == 0
    assert "        image_size=64,\n" in (tmp_path / "test_front.py").read_text()


def test_no_test_is_proposed_that_would_decide_nothing(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing claims a bound on the bytes of a file that a compiler does not have."""
    write(store, {"a": Config(10, size=None)})
    given = ["choose", "--size", "10MiB", "--store", str(store)]
    assert main(given) == 3
    out = capsys.readouterr().out
    assert "no test would decide it: nothing that can be claimed decides size of a batch1" in " ".join(out.split())
    assert "what would decide it" not in out
    assert main([*given, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["would_decide"] == []
    assert main([*given, "--write", str(tmp_path / "test_choice.py")]) == 2
    assert not (tmp_path / "test_choice.py").exists()


def test_an_undecided_share_has_no_command_and_says_why(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store, {"a": Config(10, wrong=95), "b": Config(20, wrong=40)})
    given = ["choose", "--accuracy=90%", f"--store={store}"]
    assert main(given) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "no test would decide it: accuracy needs more samples in the model's evaluate(predict)" in out
    assert "what would decide it" not in out
    assert main([*given, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["would_decide"] == []
    assert main(["pareto", "--over=accuracy", f"--store={store}"]) == 0
    capsys.readouterr()
    # Whose times are open is measured, and of whom nobody asked is evaluated.
    write(store, {"a": Config(10, wrong=95), "b": Config(10, wrong=40, scatter=0.2), "c": Config(9)}, seed=2)
    assert main(given) == 3
    assert "what would decide it" in capsys.readouterr().out
    (front,) = fronts(store, ["latency", "accuracy"])
    text = written_test(choose(front, [limit("accuracy", "90%")], objective("latency", "--minimise")))
    assert re.findall(r'assert_accuracy\(known\["xeon:(.)', text) == ["c"]


def test_an_agreement_that_is_open_says_that_its_samples_are_fixed(store: Path) -> None:
    write(store, {"a": Config(10), "b": Config(20)})
    with Store.open(store) as opened:
        cell, kind = Config(10).cell("a"), PROTOCOLS["gate"]
        agreed = Agreed("xeon:identity timm:resnet18 batch1", 256, 256, 64 * "a", 0.9, matches=250, scored=256)
        place = opened.start_launch(
            1, group="a", number=0, seed=0, protocol=kind, kind=AGREEMENT, order=[], environment={}
        )
        opened.add_prepared(place, cell, digest(cell.to_json()), CompileRecord(Outcome.OK, agreed=agreed))
        opened.finish_launch(place, environment={})
    (front,) = fronts(store, ["latency", "agreement"])
    one = choose(front, [limit("agreement", "0.98")], objective("latency", "--minimise"))
    assert [str(each.checked[0].kept) for each in one.options] == ["undecided", "not measured"]
    said = "agreement is made of a fixed number of samples, 256 unless assert_agreement(samples=) asks for more"
    assert no_test_of(one).startswith(said)


def test_cells_of_another_side_are_not_measured_by_a_test_of_here(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, {"a": Config(10), "b": Config(20, side="main")})
    given = ["choose", "--latency=20ms", f"--store={store}"]
    assert main(given) == 2
    assert "name one by --side" in capsys.readouterr().err
    assert main([*given, "--side=here"]) == 0
    assert main([*given, "--side=main"]) == 3
    assert "no test would decide it: these are cells of another side, main" in capsys.readouterr().out


def test_another_score_than_top1_is_an_objective_by_its_name(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, {"a": Config(10, wrong=40, score="map"), "b": Config(5, wrong=500, score="map")})
    at = f"--store={store}"
    assert main(["pareto", at]) == 0
    assert "no top1 was evaluated; --over accuracy:map compares map" in " ".join(capsys.readouterr().out.split())
    assert main(["choose", "--accuracy=0.9", at]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert ": not measured (its evaluation gave map)" in said
    assert "not measured, not measured" not in said
    assert main(["choose", "--accuracy=map=0.9", at]) == 0
    assert "deploy this: a batch1" in capsys.readouterr().out
    assert main(["choose", "--maximise=accuracy:map", at]) == 0
    file = tmp_path / "test_choice.py"
    # 40 of 1000 are wrong, and would be if it were asked again.
    assert main(["choose", "--accuracy=map=0.96", at, f"--write={file}"]) == 2
    assert "accuracy:map needs more samples" in capsys.readouterr().err
    other = store.with_name("other.sqlite")
    write(other, {"a": Config(10, wrong=40, score="map"), "b": Config(5)})
    assert main(["choose", "--accuracy=map=0.9", f"--store={other}", f"--write={file}"]) == 0
    assert ', at_least=0.9, of="map")' in file.read_text()
    assert main(["pareto", "--over=accuracy,accuracy:top1", at]) == 2
    assert "accuracy is accuracy:top1" in capsys.readouterr().err
    assert main(["pareto", "--over=latency:top1", at]) == 2
    assert "unknown objective 'latency:top1'" in capsys.readouterr().err


def test_a_run_that_has_not_ended_says_so(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store, {"a": Config(10)})
    at = f"--store={store}"
    assert main(["pareto", at]) == 0
    assert "note: it is" not in capsys.readouterr().out
    with Store.open(store) as open_store:
        open_store.start_run(
            "another", command=["pytest"], seed=7, protocol=PROTOCOLS["gate"], environment={}, fresh=False,
            resumed=False, device="xeon",
        )  # fmt: skip
        cell = Config(10).cell("a")
        open_store.use_cells(2, {cell: digest(cell.to_json())})
    assert main(["choose", "--latency=20ms", at]) == 0
    assert "note: it is running: what it has not measured is missing\n" in capsys.readouterr().out
    assert main(["pareto", at, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "running"


def test_long_names_of_configurations_are_folded(store: Path) -> None:
    compiler = "onnxruntime[graph=all,provider=openvino,threads=8]"
    precision = "int8[by=nncf,calibrate=percentile,per_channel=on]"
    long = Config(10, compiler=compiler, precision=precision, model="timm:" + "a_long_name_" * 4)
    for limits in ({"latency": "20ms"}, {"latency": "10ms"}):
        lines = list(choice_lines(choice(store.with_name(f"{limits['latency']}.sqlite"), {"a": long}, limits)))
        assert max(map(len, lines)) <= 80
        assert compiler in "\n".join(lines)
