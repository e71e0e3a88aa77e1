"""What tests of planted faults share: the arguments that plant one, and how its requests ended."""

from __future__ import annotations

from musebench.report.schema import Report


def sets(**values: object) -> list[str]:
    """`--set` arguments of an executor that fails."""
    return [
        "--executor", "faulty",
        *(part for name, value in values.items() for part in ("--set", f"executor.{name}={value}")),
    ]  # fmt: skip


def answers(report: Report) -> dict[str, tuple[str | None, int]]:
    requests = report.runs[0].requests
    return dict(
        zip(requests.id, zip(requests.finish_reason, requests.generated_tokens, strict=True), strict=True)
    )
