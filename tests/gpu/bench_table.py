"""Runs the rows of `bench_plan.py` and writes their reports: `make bench-gpu`.

    python -m tests.gpu.bench_table FOLDER [PREFIX ...] [--seconds S] [--commit HASH] [--plan]
    python -m tests.gpu.bench_table FOLDER --device cpu --tiny

All rows run in one process, so that a start, kernels and compilations are paid once. A report that is there
is kept, and so are exported programs in the folder that MUSEBENCH_PROGRAMS names; a row that failed leaves
NAME.failed with the reason, and is left alone until that file is removed. With PREFIX only rows whose names
start with one are run. SmolLM2's weights are the GGUF file that MUSEBENCH_SMOLLM2 names; without it, its rows
are left out. Pools and peers of packages that are not installed fail in one line.

`musebench matrix` does not run them: its runs are processes of their own, its cells one cross product.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from musebench.core.errors import MusebenchError
from musebench.export.bounds import Bounds
from musebench.export.exporter import ExportOptions, export
from musebench.measure.ceilings import measure_ceilings, store_ceilings
from musebench.peers import run_peer
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.report.schema import Report
from musebench.run import run
from tests.gpu import kept_model
from tests.gpu.bench_plan import LARGE, SMALL, SMOLLM2, Row, plan
from tests.gpu.kept_model import kept, kept_path

EXPORT_BOUNDS = Bounds(most=1024, most_sequences=256)
EXPORT_CONTEXT = 2048
TINY = "random:smollm2-135m@context=32768,layers="
GRACE_SECONDS = 90.0
"""After the end of the time, for the row that is under way; then the process ends, whatever hangs."""


class Bench:
    """Runs into one folder; exported programs, which are as large as their models, go elsewhere."""

    def __init__(self, folder: Path, device: str, tiny: bool, commit: str | None) -> None:
        self.folder, self.device, self.tiny, self.commit = folder, device, tiny, commit
        self._temporary = tempfile.TemporaryDirectory(prefix="musebench-programs-")
        self.programs = Path(os.environ.get("MUSEBENCH_PROGRAMS", self._temporary.name))
        self.registry = Registry.installed()
        self.registry.add(kept_model, "tests", "0")
        folder.mkdir(parents=True, exist_ok=True)

    def report_file(self, row: Row) -> Path:
        return self.folder / f"{row.name}.json.gz"

    def failed_file(self, row: Row) -> Path:
        return self.folder / f"{row.name}.failed"

    def missing(self, rows: list[Row]) -> list[Row]:
        return [
            row for row in rows if not self.report_file(row).exists() and not self.failed_file(row).exists()
        ]

    def run(self, row: Row) -> None:
        """Make the row's report, or say in its `.failed` why there is none."""
        began = time.monotonic()
        try:
            made = self._made(row)
            trouble = made.message if made.status != "complete" else None
        except MusebenchError as error:
            trouble = str(error)
        except Exception as error:  # a row that fails must not cost those behind it
            trouble = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        if trouble is None:
            files.write(made, self.report_file(row))
        else:
            self.failed_file(row).write_text(trouble + "\n")
        taken = time.monotonic() - began
        print(
            f"{row.name}: {taken:.1f} s of {row.seconds:.0f}{'' if trouble is None else f'; {trouble}'}",
            flush=True,
        )
        made = None
        self._tidy()

    def _made(self, row: Row) -> Report:
        options = row.options
        if row.exported is not None:
            options = replace(options, model=str(self._program(row.exported, options.model)))
            row = replace(row, options=options)
        sys.argv = ["musebench", *map(_named, row.arguments)]
        made = (
            run(options, self.registry)
            if row.engine is None
            else run_peer(row.engine, options, self.registry)
        )
        conditions = made.conditions
        conditions = replace(
            conditions, model=replace(conditions.model, source=_named(conditions.model.source))
        )
        if self.commit is not None and conditions.commit is None:
            conditions = replace(conditions, commit=self.commit, dirty=False)
        return replace(made, conditions=conditions)

    def _program(self, shape: str, model: str) -> Path:
        """The shape's program, exported once in a process."""
        package = self.programs / f"{shape}.pt2"
        if not package.exists():
            bounds = Bounds(most=64, most_sequences=4) if self.tiny else EXPORT_BOUNDS
            began = time.monotonic()
            dtype = "bfloat16" if self.device.startswith("cuda") else "float32"
            chosen = ExportOptions(package, model, self.device, dtype, bounds, max_context=EXPORT_CONTEXT)
            export(chosen, self.registry)
            print(f"export of {shape}: {time.monotonic() - began:.1f} s", flush=True)
        return package

    def _tidy(self) -> None:
        gc.collect()
        if self.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()
            torch.cuda.synchronize()  # raises where the device is broken for good: nothing more can run


def _named(text: str) -> str:
    """A file without its folder: where weights lay says nothing to a reader."""
    path = kept_path(text)
    return path.name if path.is_absolute() else text


def models(tiny: bool) -> dict[str, str]:
    """`--model` by shape."""
    found = {SMALL: f"random:{SMALL}", LARGE: f"random:{LARGE}"}
    if tiny:
        found = {SMALL: f"{TINY}2", LARGE: f"{TINY}3"}
    if weights := os.environ.get("MUSEBENCH_SMOLLM2"):
        found[SMOLLM2] = kept(Path(weights).absolute())
    elif tiny:
        found[SMOLLM2] = "bundled"
    return found


def show(rows: list[Row], missing: list[Row]) -> None:
    """The rows in order with estimated seconds, each and summed over those that are missing."""
    total = 0.0
    for row in rows:
        there = row not in missing
        total += 0.0 if there else row.seconds
        print(f"{row.seconds:6.0f} s  {'there' if there else f'{total:5.0f}'}  {row.name}")
    print(f"{len(missing)} of {len(rows)} rows are missing, about {total:,.0f} s")


def measure(device: str, dtype: str) -> None:
    """The device's ceilings, which every report of the folder carries."""
    from musebench.backends.torch_device import open_device

    name = str(open_device(device).conditions()["device"])
    found = measure_ceilings(device, dtype)
    store_ceilings(name, found)
    print(f"{name}: {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("prefixes", nargs="*", metavar="PREFIX")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes and little work, to try the script")
    parser.add_argument("--seconds", type=float, default=1500.0, help="start nothing that would end later")
    parser.add_argument("--commit", help="what reports name where git says nothing")
    parser.add_argument("--plan", action="store_true", help="print the rows and stop")
    given = parser.parse_intermixed_args()
    ends = time.monotonic() + given.seconds
    rows = plan(given.device, models(given.tiny), given.tiny)
    if given.prefixes:
        rows = [row for row in rows if row.name.startswith(tuple(given.prefixes))]
    bench = Bench(given.folder, given.device, given.tiny, given.commit)
    missing = bench.missing(rows)
    if given.plan:
        show(rows, missing)
        return
    if given.device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            print("skipped: torch finds no CUDA device")
            return
    faulthandler.dump_traceback_later(given.seconds + GRACE_SECONDS, exit=True)
    measure(given.device, "bfloat16" if given.device.startswith("cuda") else "float32")
    for row in missing:
        if time.monotonic() + row.seconds > ends:
            print(f"{row.name}: left out, {row.seconds:.0f} s are more than what is left", flush=True)
            continue
        bench.run(row)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
