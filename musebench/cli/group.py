"""The main command group: finds commands in the registry, and ends as musebench.cli.ends says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from musebench import __version__
from musebench.cli.ends import end, prepare
from musebench.cli.plugins import registry_of
from musebench.core.blame import place_of
from musebench.core.errors import MusebenchError
from musebench.plugin.component import Component
from musebench.plugin.failing import naming


class CommandGroup(click.Group):
    """Commands are components of the kind `command`, loaded when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [component.name for component in registry_of(ctx).components("command")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            return _command(registry_of(ctx).get("command", cmd_name))
        except MusebenchError:
            if ctx.resilient_parsing:  # a shell completes a half-typed line: not the time for errors
                return None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        components = registry_of(ctx).components("command")
        rows = [(component.name, _summary(component)) for component in components]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a plugin that fails meanwhile is named. How a plugin's own command exits is its
        own business."""
        try:
            return super().invoke(ctx)
        except (MusebenchError, click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except (Exception, SystemExit) as error:
            own_way = isinstance(error, SystemExit | OSError) and place_of(error) is not None
            if own_way and not registry_of(ctx).get("command", str(ctx.invoked_subcommand)).built_in:
                raise
            with naming():
                raise

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit: 0, what the command says, 2 for a mistake, 130 for an interrupt.

        A `MusebenchError`, a mistake in the arguments and what the system refuses are one line on standard
        error. Without `standalone_mode` all of them are raised, as click does.
        """
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except (MusebenchError, click.ClickException, click.Abort, OSError) as error:
            end(error)
        sys.exit(result if isinstance(result, int) else 0)


def _command(component: Component) -> click.Command:
    command = component.load()
    if not isinstance(command, click.Command):
        raise click.ClickException(f"{component.where} of {component.origin} is no click command")
    return command


def _summary(component: Component) -> str:
    factory = component.factory
    if not component.summary and isinstance(factory, click.Command):
        return factory.get_short_help_str()
    return component.summary


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="'musebench COMMAND --help' has examples for each command.",
)
@click.version_option(__version__, prog_name="musebench")
@click.pass_context
def root(context: click.Context) -> None:
    """Simulate and benchmark batched LLM inference.

    musebench runs a workload through an executor, a KV pool policy and a scheduler, on a CPU or a GPU, checks
    the tokens, and reports time, memory and energy. Each of these parts is a component that a plugin package
    can add.

    \b
    Examples:
      musebench list scheduler
      musebench doctor
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """The entry point of the `musebench` script."""
    prepare()
    root.main(prog_name="musebench")
