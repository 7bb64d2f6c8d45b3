"""What cannot be so in the third paper's Table 1, and what its prose and the table do not agree on: the arithmetic.

Each is computed from the printed numbers, so that anybody can check docs/findings.md; a test holds that page to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_ngraph.report.lvt.published import BERT, LATENCY, MIB, RESNET, THROUGHPUT, printed

# torchvision's ResNet-50 for 1000 classes and for CIFAR-10's ten, its running means and variances, and its
# multiply-accumulates of an image of 224 x 224; BERT-base with a head for two classes. test_lvt_paper.py counts them.
PARAMETERS, PARAMETERS_CIFAR, BUFFERS, MACS = 25_557_032, 23_528_522, 53_120, 4_089_184_256
PARAMETERS_BERT = 109_483_778
# An RTX 3060: 3584 cores of a multiply and an add a clock at 1.777 GHz.
PEAK_FLOPS = 3584 * 2 * 1.777e9
_BYTES = 4


@dataclass(frozen=True, slots=True)
class Oddity:
    """One of them: where it stands, what is printed, and what follows from it."""

    where: str
    says: str
    numbers: str


def batch_of(focus: str, model: str) -> float:
    """Return how many samples a printed time is of, if the printed throughput is of the same calls."""
    row = printed(focus, model)
    return row.value("throughput") * row.value("latency") / 1e3


def size_mib(parameters: int, buffers: int = 0) -> float:
    """Return the size of that many numbers in f32."""
    return (parameters + buffers) * _BYTES / MIB


def implied_flops(focus: str) -> tuple[float, float]:
    """Return what ResNet-50's throughput asks of the GPU at 224 x 224, and of the share of time in which it is used.

    In operations a second, two for each multiply-accumulate.
    """
    row = printed(focus, RESNET)
    needed = 2 * MACS * row.value("throughput")
    return needed, needed / (row.value("gpu_utilisation_percent") / 100)


def oddities() -> Iterator[Oddity]:
    """Yield what the table's numbers contradict, by what they are of."""
    memory = printed(LATENCY, RESNET).value("run_peak_memory_bytes")
    image, cifar, first = 3 * 224 * 224 * _BYTES / MIB, 3 * 32 * 32 * _BYTES / MIB, 64 * 112 * 112 * _BYTES / MIB
    yield Oddity(
        "Table 1, memory of ResNet-50",
        f"{memory:g} MB at its peak, in both configurations",
        f"one input of 224 x 224 is {image:.2f} MiB, what the first layer gives {first:.2f} MiB, and the weights are "
        f"{size_mib(PARAMETERS):.2f} MiB: it can be no peak of a process that runs the model (an image of 32 x 32 is "
        f"{cifar:.3f} MiB). BERT's {printed(LATENCY, BERT).texts['run_peak_memory_bytes']} MB are 2.3 % of its weights",
    )
    needed, used = implied_flops(THROUGHPUT)
    gpu = printed(THROUGHPUT, RESNET)
    busy = gpu.texts["gpu_utilisation_percent"]
    yield Oddity(
        "Table 1, GPU of ResNet-50",
        f"{busy} % busy at {gpu.texts['throughput']} inferences/s",
        f"at 224 x 224 that is {needed / 1e12:.2f} Tflop/s; done in {busy} % of the time, "
        f"{used / 1e12:.0f} Tflop/s, where the RTX 3060 has {PEAK_FLOPS / 1e12:.1f} in f32 and four times that in "
        "FP16, which section 3.3 has for BERT only. The images were far smaller, or the share is not that of its time",
    )
    batches = [batch_of(THROUGHPUT, model) for model in (RESNET, BERT)]
    yield Oddity(
        "Table 1, time and throughput",
        "sections 3.5 and 4.2: time at batch 1, throughput at larger batches",
        f"throughput x time is {batches[0]:.2f} and {batches[1]:.2f} in the throughput-focused rows and "
        f"{batch_of(LATENCY, RESNET):.2f} and {batch_of(LATENCY, BERT):.2f} in the others: both numbers of a row are "
        "of the same calls, of eight samples and of one. So batches of eight and of one are compared, and no row has "
        "TensorRT at batch 1",
    )
    times = [printed(focus, RESNET).value("latency") for focus in (LATENCY, THROUGHPUT)]
    slower = printed(THROUGHPUT, BERT).value("latency") / printed(LATENCY, BERT).value("latency")
    yield Oddity(
        "abstract, sections 4.2 and 7",
        "the Standard configuration has the lower inference time; BERT's increases slightly",
        f"eight images of ResNet-50 take {times[1]:g} ms and one takes {times[0]:g}; BERT's time is {slower:.2f} times "
        f"as long, for eight times as many inputs",
    )
    yield Oddity(
        "Table 1, model size",
        "97.76 and 417.65 MB, the same in both configurations",
        f"MB are MiB of f32: BERT-base for two classes has {PARAMETERS_BERT:,} parameters, "
        f"{size_mib(PARAMETERS_BERT):.2f} MiB, to the digit. ResNet-50's are {size_mib(PARAMETERS, BUFFERS):.2f} MiB "
        f"with ImageNet's 1000 classes, where CIFAR-10's ten (section 3.2) would be "
        f"{size_mib(PARAMETERS_CIFAR, BUFFERS):.2f}. An engine in FP16 has half: "
        "what is printed is the size of the ONNX file that it was made from",
    )
    gain = printed(THROUGHPUT, RESNET).value("throughput") / printed(LATENCY, RESNET).value("throughput")
    yield Oddity(
        "section 5.1", "the throughput of ResNet-50 improves by 8.25x, of FP16 among others",
        f"{gain:.2f}, of which eight are the batch; FP16 was for BERT only (section 3.3), and section 5.4 proposes it "
        "for ResNet-50",
    )  # fmt: skip
    standard, optimised = (printed(focus, BERT).texts["gpu_utilisation_percent"] for focus in (LATENCY, THROUGHPUT))
    yield Oddity(
        "section 5.2",
        '"TensorRT-Optimized configuration, it lowered the GPU utilization to 6.3% in BERT from 42%"',
        f"the table has it the other way round: {standard} % Standard, {optimised} % TensorRT-Optimized",
    )
    yield Oddity(
        "section 3.3 A",
        "Standard: without any configuration that is optimized for hardware acceleration",
        "its list of providers begins with TensorRT's, which ONNX Runtime takes first where it is installed: what the "
        "baseline ran on is not said",
    )
