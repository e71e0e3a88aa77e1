"""A plugin that fails while it is used, as one line that names its package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from musebench.core.blame import place_of, told
from musebench.core.errors import MusebenchError, PluginError
from musebench.plugin.component import Component
from musebench.plugin.registry import strict


@contextmanager
def naming(taking_part: Sequence[str] = ()) -> Iterator[None]:
    """Around what calls plugins.

    Raises:
        PluginError: a plugin raised; or something did while the plugins of `taking_part` ("pool 'mine' of
            my-package 1.0") answered, of which one is likely the cause. In strict mode: as it was raised.
    """
    try:
        yield
    except MusebenchError:
        raise
    except (Exception, SystemExit) as error:
        if strict() or not (taking_part or place_of(error)):
            raise
        raise PluginError(suspected(told(error), taking_part)) from error


def suspected(text: str, taking_part: Sequence[str]) -> str:
    """A failure's text, with those of `taking_part` where it names no plugin by itself."""
    if not taking_part or any(one.rpartition(" of ")[2] in text for one in taking_part):
        return text
    return (
        f"{text} ({', '.join(taking_part)} took part; `musebench conformance NAME` holds it to its contract)"
    )


def foreign(components: Iterable[Component]) -> tuple[str, ...]:
    """Those of plugin packages, as `naming` takes them."""
    return tuple(f"{one.where} of {one.origin}" for one in components if not one.built_in)
