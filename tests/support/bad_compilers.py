"""Adapters from out of tree that misbehave; each kind of trouble is an option of ``bad``."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable, Option
from pytest_ngraph.compilers.onnxruntime.adapter import OnnxRuntimeCompiler
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

# What the worker had set up when its first adapter was imported.
AT_IMPORT = {
    "threads": {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")},
    "bind": os.environ.get("TVM_BIND_THREADS"),
    "malloc": {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")},
    "cpus": sorted(os.sched_getaffinity(0)),
    "runtimes": sorted({"torch", "onnxruntime", "openvino", "numpy"} & set(sys.modules)),
}
_LONG_NS = 100_000_000


def segfault() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


def hang() -> None:
    time.sleep(3600)


def garbage() -> None:
    """Write what is no answer where answers go."""
    os.write(int(sys.argv[2]), b"\xff not json {\n")


def mute() -> None:
    """Close the descriptor of answers and live on."""
    os.close(int(sys.argv[2]))
    time.sleep(3600)


def memory_error() -> None:
    raise MemoryError


def limited() -> None:
    """Ask numpy for more than the process may have."""
    import numpy as np

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    np.ones(1 << 30)


def bad_alloc() -> None:
    """Say what C++ says when an exception for memory is not caught."""
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    os.abort()


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exception() -> None:
    raise RuntimeError("the runtime has no such operator\nand more lines")


def tirade() -> None:
    """Fail with 50 MB of colours."""
    raise RuntimeError(
        "\x1b[31mthe graph\x1b[0m is bad\x07\n" + "\n".join(f"\x1b[1mnode {n}\x1b[0m" for n in range(2_500_000))
    )


def one_long_line() -> None:
    raise CompileFailed("\x1b]0;owned\x07" + "x" * (80 << 20))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def unspeakable() -> None:
    raise Unspeakable


def chatty() -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.write(1, b'{"id": 1, "ok": true}\n')
    os.write(2, b"garbage\n")


def flood() -> None:
    print("\n".join(f"line {number}" for number in range(4000)), flush=True)
    segfault()


def child() -> None:
    """Die with a child that holds the pipes open."""
    if os.fork() == 0:
        time.sleep(3600)
    segfault()


def unsupported() -> None:
    raise Unsupported("not on this device")


def failed() -> None:
    raise CompileFailed("cannot fold this node")


TROUBLES = {
    trouble.__name__: trouble
    for trouble in (
        segfault, leave, hang, garbage, mute, memory_error, limited, bad_alloc, killed, exception, chatty, flood, child,
        unsupported, failed, tirade, one_long_line, unspeakable,
    )
}  # fmt: skip


def workers_of(parent: int) -> dict[int, str]:
    """Return the workers among the children of a process, with the letters of their states."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        state, above = stat.rpartition(")")[2].split()[:2]
        # A zombie has no command line any more.
        if int(above) == parent and (b"pytest_ngraph.worker.worker" in command or state == "Z"):
            found[int(folder.name)] = state
    return found


class BadExecutable(Executable):
    """Busy-waits, but for what is longer than a tenth of a second, and does its trouble at the calls it is told to."""

    def __init__(self, owner: BadCompiler, options: Mapping[str, Any], guilty: bool) -> None:
        self._options, self._guilty = options, guilty
        self._wait_ns = round(options["us"] * 1000)
        self._binds = self._calls = 0
        self._held = bytearray(b"x" * (options["megabytes"] << 20))
        self.placement = {
            "provider": "bad",
            "pid": os.getpid(),
            "import": json.dumps(AT_IMPORT),
            "compiled": owner.compiled,
            **({"boast": "\x1b[31mfast\r\n" * (options["boast"] << 17)} if options["boast"] else {}),
        }

        # Of the wrong types on purpose.
        wrong: dict[str, Any] = {"tuning_seconds": "x", "tuning_trials": -1, "model_bytes": float("nan")}
        for name in filter(None, [options["misstates"]]):
            if name in wrong:
                setattr(self, name, wrong[name])
            else:
                self.device_times = lambda name=name: {name: 1.0}  # type: ignore[method-assign, misc]

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Count the binds: one at preparation, then one for each visit."""
        self._binds += 1
        self._calls = 0
        self._do("bind")

    def run(self) -> None:
        self._calls += 1
        self._do("call")
        # The first visit's first call; the second visit, some way into it.
        self._do({(2, 1): "early", (3, 5): "visit"}.get((self._binds, self._calls), ""))
        if self._options["witness"] and self._binds > 1 and self._calls < 4:
            self._look()
        end = time.perf_counter_ns() + self._wait_ns
        if self._wait_ns > _LONG_NS:
            # As other tests want the CPU meanwhile.
            time.sleep((self._wait_ns - _LONG_NS) * 1e-9)
        while time.perf_counter_ns() < end:
            pass

    def outputs(self) -> Sequence[np.ndarray] | None:
        return None

    def close(self) -> None:
        self._do("close")

    def _do(self, when: str) -> None:
        if self._guilty and when == self._options["at"]:
            TROUBLES[self._options["do"]]()

    def _look(self) -> None:
        """Write down in which states the other workers are while this one is timed."""
        others = [state for pid, state in workers_of(os.getppid()).items() if pid != os.getpid()]
        with Path(self._options["witness"]).open("a", encoding="ascii") as file:
            file.write("".join(others) + "\n")


class BadCompiler(Compiler):
    """``bad[do=TROUBLE,at=compile|bind|call|early|visit|close,batch=N]``: trouble for one batch, or for all."""

    name = "bad"
    reads = "nothing"
    options = (
        Option("do", "chatty", "What it does", choices=tuple(TROUBLES)),
        Option("at", "never", "When", choices=("never", "compile", "bind", "call", "early", "visit", "close")),
        Option("batch", "0", "The batch that it does it with; 0 for every one", kind="int", minimum=0),
        Option("us", "100", "Microseconds of a call", kind="number", minimum=0),
        Option("megabytes", "0", "Memory that each cell holds", kind="int", minimum=0),
        Option("witness", "", "A file to which it writes the states of the other workers", kind="text"),
        Option("tag", "", "Makes another compiler of it", kind="text"),
        Option("misstates", "", "Something of its own that it gives wrongly", kind="text"),
        Option("boast", "0", "MiB of what it says of where it runs", kind="int", minimum=0),
    )
    compiled = 0

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        self.compiled += 1
        guilty = options["batch"] in (0, workload.spec.batch)
        if guilty and options["at"] == "compile":
            TROUBLES[options["do"]]()
        return BadExecutable(self, options, guilty)


class SlowToImport(BadCompiler):
    """Needs a runtime that takes its time to import."""

    name = "slow"
    requires = ("slow_runtime",)

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        import slow_runtime  # type: ignore[import-not-found, unused-ignore] # noqa: F401

        return super().compile(workload, device, options)


class SpyCompiler(OnnxRuntimeCompiler):
    """ONNX Runtime, whose worker writes down at its end which modules it had imported."""

    name = "spy"
    options = (*OnnxRuntimeCompiler.options, Option("witness", "", "", kind="text"))  # type: ignore[assignment]

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        executable = super().compile(workload, device, options)
        release = executable.close

        def close() -> None:
            Path(options["witness"]).write_text(json.dumps(sorted(sys.modules)), encoding="utf-8")
            release()

        executable.close = close  # type: ignore[method-assign]
        return executable


COMPILER = BadCompiler()
SPY = SpyCompiler()
SLOW = SlowToImport()

# In a worker only: the tests import this module too.
if sys.argv[0] == "pytest_ngraph.worker.worker" and "NGRAPH_TEST_AT_IMPORT" in os.environ:
    TROUBLES[os.environ["NGRAPH_TEST_AT_IMPORT"]]()
