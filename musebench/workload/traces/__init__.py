"""Recorded traces: one reader a file, found by a file's content."""

from musebench.workload.traces.row import RowOptions, TraceFormat, TraceRow
from musebench.workload.traces.trace import READERS, Trace, builtin_formats, read_trace, recognise

__all__ = [
    "READERS",
    "RowOptions",
    "Trace",
    "TraceFormat",
    "TraceRow",
    "builtin_formats",
    "read_trace",
    "recognise",
]
