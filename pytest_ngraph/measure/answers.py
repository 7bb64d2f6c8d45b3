"""What a worker's answers say, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_ngraph.spec import CompileRecord, Outcome


def refusal(answer: Mapping[str, Any]) -> str:
    """Return the reason in an answer that is not ok, with its traceback where there is one."""
    detail = str(answer.get("detail", "")).rstrip()
    return f"{answer['reason']}\n{detail}" if detail else str(answer["reason"])


def record_of(answer: Mapping[str, Any]) -> CompileRecord:
    """Return the record that an answer to ``prepare`` gives; of a mismatch no time is reported."""
    if not answer["ok"]:
        return CompileRecord(Outcome(answer["outcome"]), refusal(answer))
    placement = tuple((key, value) for key, value in answer["placement"])
    if "mismatch" in answer:
        return CompileRecord(Outcome.MISMATCH, answer["mismatch"], max_error=answer["max_error"], placement=placement)
    return CompileRecord(
        Outcome.OK,
        export_seconds=answer["export_seconds"],
        compile_seconds=answer["compile_seconds"],
        loaded=answer["loaded"],
        built_seconds=answer["built_seconds"],
        first_call_seconds=answer["first_call_seconds"],
        model_bytes=answer["model_bytes"],
        max_error=answer["max_error"],
        placement=placement,
        tuning_seconds=answer["tuning_seconds"],
        tuning_trials=answer["tuning_trials"],
        **answer["device_times"],
    )
