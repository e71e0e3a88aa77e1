"""What a run's numbers depend on."""

from __future__ import annotations

import json
import sys
from typing import Any

from musebench.core.answers import wrong
from musebench.measure import host
from musebench.measure.ceilings import stored_ceilings
from musebench.report.codec import encode
from musebench.report.schema import Conditions, ModelInfo, WorkloadInfo
from musebench.run.options import RunOptions
from musebench.run.parts import Parts


def machine_conditions() -> dict[str, Any]:
    """Those of `Conditions` that are the process's and its machine's, whatever it runs."""
    commit = host.commit()
    return {
        "versions": host.versions(),
        "commit": commit.commit,
        "dirty": commit.dirty,
        "command": host.command_line(sys.argv),
        "cpu": host.cpu_name(),
        "cores": host.cores(),
        "platform": host.platform_name(),
    }


def conditions_of(who: Any) -> dict[str, Any]:
    """What a backend or an engine says that its numbers depend on.

    Raises:
        PluginError: something else than JSON values by name.
    """
    made = who.conditions()
    try:
        json.dumps(encode(dict(made)), allow_nan=False)
    except (TypeError, ValueError):
        raise wrong(made, "a mapping of names to JSON values", who, "conditions") from None
    return dict(made)


def conditions(options: RunOptions, parts: Parts) -> Conditions:
    """Of the device and the machine, as they are now; a growing pool changes none of them."""
    backend = conditions_of(parts.backend)
    device = str(backend.pop("device", options.device))
    return Conditions(
        device=device,
        workload=WorkloadInfo(parts.workload.name, parts.workload.sha256, list(parts.built.notes)),
        model=ModelInfo(
            parts.model.facts.name, parts.model.source or options.model, parts.model.facts.dtype,
            parts.model.facts, parts.model.weights_sha256,
        ),
        seed=options.seed,
        clock="virtual" if parts.backend.name == "sim" else "host",
        warmup=options.warmup,
        repeats=options.repeat,
        driver=backend.pop("driver", None),
        backend=backend,
        ceilings=stored_ceilings(device, parts.model.facts.dtype),
        **machine_conditions(),
    )  # fmt: skip
