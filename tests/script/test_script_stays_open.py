"""A session that stays open while files change, cells fail and are mended, and time goes by: a notebook's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_ngraph.plan.groups import Group
from pytest_ngraph.session.run_budget import RunBudget
from tests.conftest import ADAPTERS, Suite, skip_without
from tests.support.scripts import printed

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, {width})
    def forward(self, x):
        return self.layer(x)
    def example_inputs(self, batch):
        return torch.randn(batch, 64)
"""
SESSION = """
import json
from pathlib import Path
from pytest_ngraph.store.sqlite import Store
FILE = Path("models.py")
GIVEN = dict(model="models.py:Net", compiler="torchscript", baseline="null")


def launched():
    with Store.open(Path(".ngraph/results.sqlite"), read_only=True) as store:
        return sum(len(store.run_launches(run.id)) for run in store.runs())


def row(shown):
    return [line for line in repr(shown).splitlines() if "torchscript" in line]


def row(shown):
    return [line for line in repr(shown).splitlines() if "torchscript" in line]


"""


@pytest.mark.real
def test_a_model_that_was_edited_is_measured_again_and_what_was_measured_stays_what_it_was(suite: Suite) -> None:
    skip_without("torch")
    narrow, wide = (MODEL.format(width=width) for width in (8, 2048))
    (suite.path / "models.py").write_text(narrow)
    out = printed(suite.path, f"""{SESSION}
if __name__ == "__main__":
    with measure.session(protocol="quick") as s:
        first = s.measure(**GIVEN)
        small, shown = first.model_bytes, row(first)
        assert s.measure(**GIVEN).model_bytes == small and launched() == 1
        FILE.write_text({wide!r})
        second = s.measure(**GIVEN)
        assert launched() == 2, launched()
        assert second.model_bytes.value > 10 * small.value
        assert first.model_bytes == small and row(first) == shown != row(second)
        # As it was before: nothing has to be measured for it, and the page is of what it is now.
        FILE.write_text({narrow!r})
        assert s.measure(**GIVEN).model_bytes == small and launched() == 2
        assert row(s.measure(**GIVEN, batch=[1])) == shown
        s.export("now.csv"), s.benchmark_json("now.json")
    (bench,) = [one for one in json.load(open("now.json"))["benchmarks"] if "torchscript" in one["fullname"]]
    assert abs(bench["stats"]["mean"] / first.latency.value - 1) < 1e-9
    values = [line for line in open("now.csv") if "torchscript" in line and ",model_bytes," in line]
    assert len(values) == 1 and str(int(small.value)) in values[0], values
print("all of it")
""")  # fmt: skip
    assert "all of it" in out


@pytest.mark.real
def test_what_failed_is_tried_again_where_it_is_asked_for_again(suite: Suite) -> None:
    skip_without("torch")
    (suite.path / "models.py").write_text("import nothing_of_this_name\n" + MODEL.format(width=8))
    out = printed(suite.path, f"""{SESSION}
if __name__ == "__main__":
    with measure.session(protocol="quick") as s:
        broken = s.measure(**GIVEN)
        assert str(broken.outcome) == "failed", broken
        FILE.write_text({MODEL.format(width=8)!r})
        mended = s.measure(**GIVEN)
        assert mended.latency.value > 0
        # The one before says what became of it then.
        try:
            broken.latency
        except Exception as error:
            print(error)
        print(repr(broken))
""")  # fmt: skip
    assert out.count("nothing_of_this_name") == 2


def test_a_compiler_that_failed_is_tried_once_for_each_time_that_it_is_asked_for(suite: Suite) -> None:
    (suite.path / "adapters.py").write_text(ADAPTERS)
    out = printed(suite.path, """
import os
from pathlib import Path
from pytest_ngraph.store.sqlite import Store
if __name__ == "__main__":
    added = {"crashing": "adapters:CRASHING"}
    with measure.session(protocol="quick", baseline="null", add_compilers=added) as s:
        for _ in range(3):
            print("outcome", s.measure(model="block:conv", compiler="crashing").outcome)
            print("open", len(os.listdir("/proc/self/fd")))
    with Store.open(Path(".ngraph/results.sqlite"), read_only=True) as store:
        print("tried", sum(len(store.run_launches(run.id)) for run in store.runs()))
""")  # fmt: skip
    *lines, tried = out.splitlines()
    outcomes, files = lines[::2], lines[1::2]
    assert (outcomes, tried) == (["outcome crash"] * 3, "tried 3")
    # However often that is, it is one run of one store.
    assert files == [files[0]] * 3


def test_an_adapter_that_was_edited_is_measured_as_it_is_now(suite: Suite) -> None:
    """Also of a cell that is new: it would be kept under the evidence of the adapter that was there before."""
    (suite.path / "adapters.py").write_text(ADAPTERS)
    slower = ADAPTERS.replace("1000 * microseconds", "20000 * microseconds")
    assert slower != ADAPTERS
    out = printed(suite.path, f"""
from pathlib import Path
if __name__ == "__main__":
    added = {{"mine": "adapters:MINE"}}
    with measure.session(protocol="quick", baseline="null", add_compilers=added) as s:
        first = s.measure(model="block:conv", compiler="mine")
        quick = first.latency.value
        Path("adapters.py").write_text({slower!r})
        other = s.measure(model="block:conv", compiler="mine", batch=2)
        again = s.measure(model="block:conv", compiler="mine")
        print(other.latency.value > 10 * quick, again.latency.value > 10 * quick, first.latency.value == quick)
    with measure.session(protocol="quick", baseline="null", add_compilers=added, offline=True) as s:
        print(s.measure(model="block:conv", compiler="mine", batch=2).latency.value > 10 * quick)
""")  # fmt: skip
    assert out.split() == ["True"] * 4


@pytest.mark.real
def test_nothing_more_is_measured_of_what_has_changed_since(suite: Suite) -> None:
    """It would be kept as what it was."""
    skip_without("torch")
    (suite.path / "models.py").write_text(MODEL.format(width=8))
    out = printed(suite.path, f"""{SESSION}
if __name__ == "__main__":
    with measure.session(protocol="quick") as s:
        first, alike = s.measure(**GIVEN), s.measure(model="block:conv", compiler="null", baseline="null[fixed_us=20]")
        speed = first.latency.value
        FILE.write_text({MODEL.format(width=2048)!r})
        second, known = s.measure(**GIVEN), launched()
        try:
            first.peak_memory_bytes
        except Exception as error:
            print(error)
        assert first.latency.value == speed and launched() == known
        # Of what is as it was more is measured, and of what it is now.
        print(alike.peak_memory_bytes.value > 0, second.peak_memory_bytes.value > 0)
""")  # fmt: skip
    said, measured = out.splitlines()
    assert said.endswith("its files have changed since; measure() measures it as it is now")
    assert measured == "True True"


@pytest.mark.real
def test_what_cannot_be_built_any_more_is_shown_as_that(suite: Suite) -> None:
    skip_without("torch")
    (suite.path / "models.py").write_text(MODEL.format(width=8))
    broken = "import nothing_of_this_name\n" + MODEL.format(width=8)
    out = printed(suite.path, f"""{SESSION}
if __name__ == "__main__":
    with measure.session(protocol="quick") as s:
        s.measure(**GIVEN)
        FILE.write_text({broken!r})
        s.measure(**GIVEN)
        print(s)
        s.export("now.csv")
    (line,) = [line for line in open("now.csv") if "torchscript" in line]
    print(line)
""")  # fmt: skip
    assert "nothing_of_this_name" in out
    assert ",null,failed,," in out


def test_time_is_not_kept_for_calls_that_nobody_knows_of(suite: Suite) -> None:
    """Of tests that are over nothing is kept, and a script's calls are over when it makes the next one."""
    clock = 0.0

    def budget(is_over: Callable[[Group], bool]) -> tuple[RunBudget, list[Group]]:
        one = RunBudget(1800.0, is_over, lambda: clock)
        groups = [Group(f"call {number}", ()) for number in range(20)]
        for group in groups:
            one.expect(group, 60.0)
            one.reach(group)
        return one, groups

    kept, groups = budget(lambda group: False)
    free, others = budget(lambda group: True)
    clock = 1300.0
    assert "is kept for tests to come" in kept.why(groups[-1])
    assert free.allows(others[-1])
    out = printed(suite.path, """
with measure.session(**NULL, run_budget="10min") as s:
    one, other = s.measure(model="block:conv"), s.measure(model="block:mha")
    budget = s._on("local", [])._budget
    print([budget._kept(group, 60.0) for group, _ in budget._groups], len(budget._groups))
""")  # fmt: skip
    assert out.split("\n")[0] == "[0.0, 0.0] 2"
