"""Whether our gate protocol finds the times that each runtime's own way finds, on the very same ONNX file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.pairs import Pair, Spread, alternate, finish, median_interval, options, print_table, run_child, say
from pytest_ngraph.devices.local import artifacts_folder
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model

_SUITE = """
import pytest

@pytest.mark.ngraph(model={model!r}, batch={batch})
def test_time(ngraph_cell):
    pass
"""
OTHERS = {"openvino": "benchmark_app", "onnxruntime": "a bare loop"}
ATTEMPTS = 5
_MEDIAN_MS = re.compile(r"Median:\s+([\d.]+) ms")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two ways of measuring one cell said, pair by pair."""

    model: str
    batch: int
    compiler: str
    ratio: Spread
    pairs: list[Pair]


@dataclass(frozen=True, slots=True)
class Bench:
    """A model at one batch in a folder with a suite and a store, the threads, and how long others measure."""

    folder: Path
    model: str
    batch: int
    threads: int
    seconds: int

    @property
    def store(self) -> Path:
        return self.folder / ".ngraph" / "results.sqlite"

    def write_suite(self) -> None:
        (self.folder / "pytest.ini").write_text("[pytest]\n")
        (self.folder / "test_time.py").write_text(_SUITE.format(model=self.model, batch=self.batch))

    def measure(self, compiler: str, protocol: str = "gate") -> list[dict[str, Any]]:
        """Return the exported rows of a first look at the cell, started anew.

        The baseline ``null`` costs next to nothing and is parked while the compiler is timed.
        """
        table = self.folder / "table.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-pno:cacheprovider",
            "--ngraph-fresh",
            "--ngraph-baseline=null",
        ]
        command += [
            f"--ngraph-compiler={compiler}",
            f"--ngraph-protocol={protocol}",
            f"--ngraph-threads={self.threads}",
        ]
        run_child([*command, f"--ngraph-store={self.store}", f"--ngraph-export={table}", "test_time.py"], self.folder)
        return list(json.loads(table.read_text()))

    def ours(self, compiler: str) -> float:
        """Return the latency in seconds by our gate protocol, as a user would read it in the export.

        A run without a usable visit is repeated: what is rejected is what had to wait for a CPU, whatever its time.
        """
        for _ in range(ATTEMPTS):
            for row in self.measure(compiler):
                if (row["compiler"], row["metric"]) == (compiler, "latency"):
                    return float(row["value"])
            say(f"{compiler}: no visit was usable, measuring again")
        raise SystemExit(f"{compiler}: no usable visit in {ATTEMPTS} runs; end what else runs here (top)")

    def artifact(self) -> artifacts.Artifact:
        """Return the ONNX file and the inputs that our workers read."""
        workload = Workload(parse_model(self.model, (self.folder,)), batch=self.batch)
        found = artifacts.find(workload, 0, artifacts_folder(self.store), want_onnx=True)
        if found is None or found.onnx is None:
            raise SystemExit(f"{self.model}: no ONNX file was made of it")
        return found

    def benchmark_app(self) -> float:
        """Return the median latency in seconds by OpenVINO's own tool, on the same file with the same settings."""
        # The tool refuses -nthreads beside -hint; a configuration file is its way to say both.
        settings = self.folder / "settings.json"
        settings.write_text(json.dumps({"CPU": {"INFERENCE_NUM_THREADS": self.threads, "ENABLE_CPU_PINNING": False}}))
        command = [Path(sys.executable).with_name("benchmark_app"), "-m", self.artifact().onnx, "-d", "CPU"]
        command += ["-hint", "latency", "-api", "sync", "-nireq", "1", "-infer_precision", "f32", "-ip", "f32"]
        said = self._ask([*command, "-t", self.seconds, "-load_config", settings])
        median = _MEDIAN_MS.search(said)
        if median is None:
            raise SystemExit(f"benchmark_app printed no median:\n{said[-2000:]}")
        return float(median[1]) / 1e3

    def bare_loop(self) -> float:
        """Return the median latency in seconds of ONNX Runtime in a bare loop, on the same file and inputs."""
        artifact = self.artifact()
        script = Path(__file__).with_name("bare_loop.py")
        inputs = artifact.directory / "inputs.npz"
        return float(self._ask([sys.executable, script, artifact.onnx, inputs, self.threads, self.seconds]))

    def _ask(self, command: list[Any]) -> str:
        done = subprocess.run([str(part) for part in command], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{command[0]}: exit status {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
        return done.stdout


def compare(bench: Bench, compiler: str, turns: int) -> Comparison:
    """Let both sides measure in turn."""
    # Makes the ONNX file and warms the disk cache for both sides.
    bench.measure(compiler, "quick")
    theirs = {"openvino": bench.benchmark_app, "onnxruntime": bench.bare_loop}[compiler]
    pairs = alternate(lambda: bench.ours(compiler), theirs, turns)
    return Comparison(bench.model, bench.batch, compiler, median_interval(pair.ratio for pair in pairs), pairs)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--model", nargs="+", default=["timm:resnet18"], metavar="REF", help="models to compare on")
    parser.add_argument("--batch", type=int, default=1, help="batch size")
    parser.add_argument("--threads", type=int, default=1, help="threads of every side")
    parser.add_argument("--turns", type=int, default=4, help="times that each side measures")
    parser.add_argument("--seconds", type=int, default=10, help="how long the other side measures in a turn")
    parser.add_argument("--openvino-goal", type=float, default=0.05, help="share that OpenVINO's tool may differ by")
    parser.add_argument("--onnxruntime-goal", type=float, default=0.03, help="share that the bare loop may differ by")
    given = parser.parse_args()
    goals = {"openvino": given.openvino_goal, "onnxruntime": given.onnxruntime_goal}
    comparisons = []
    for model in given.model:
        with TemporaryDirectory() as place:
            bench = Bench(Path(place), model, given.batch, given.threads, given.seconds)
            bench.write_suite()
            comparisons += [compare(bench, compiler, given.turns) for compiler in goals]
    rows, missed = [], []
    for one in comparisons:
        name, goal, off = f"{one.compiler} on {one.model}", goals[one.compiler], one.ratio.median - 1
        rows.append((f"{name}, batch {one.batch}", OTHERS[one.compiler], one.ratio.text(digits=3), f"1 +- {goal:g}"))
        if abs(off) > goal:
            missed.append(f"{name}: {100 * off:+.1f} % (goal: within {100 * goal:g} %)")
    print_table(("measured", "compared with", "our time / its time", "goal"), rows)
    finish(missed, given.json, {"comparisons": comparisons})


if __name__ == "__main__":
    main()
