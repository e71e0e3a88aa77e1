"""What `musebench run --engine` refuses: options about parts that a whole engine brings itself."""

from __future__ import annotations

import click
from click.core import ParameterSource

from musebench.core.errors import UsageError

OF_STEPS = (
    "executor", "pool", "scheduler", "overlap", "margins", "stepwise", "explain_step", "step_timeout",
    "on_oom", "journal", "bound", "profiled", "replicas", "router",
)  # fmt: skip
"""Parameters of `musebench run` that mean nothing to a whole engine."""


def refuse_step_options(context: click.Context, engine: str) -> None:
    """No option is ignored in silence.

    Raises:
        UsageError: one of `OF_STEPS` was given.
    """
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in OF_STEPS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{parameter.opts[0]}: engine {engine!r} brings its own executor, pool and scheduler, and "
                "tells no steps; leave it or --engine out"
            )
