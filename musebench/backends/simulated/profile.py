"""Profiles: what a device and its host can do, and where each number comes from.

A measured profile is a JSON file that `musebench profile` writes; `h200` ships. A datasheet profile is a row
of `profiles/datasheets.json` under the efficiencies of `profiles/defaults.json`, which were measured on other
devices: its kind, "datasheet", is shown wherever the profile is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from musebench.backends.simulated.kernels import (
    AllReduce,
    AttentionRates,
    ProductCurve,
    ProductPoint,
    Reductions,
    SmallKernels,
)
from musebench.core.errors import InputError, UsageError
from musebench.core.options import nearest

FOLDER = Path(__file__).parent / "profiles"
SCHEMA = 1
KINDS = ("measured", "datasheet")
UNFINISHED = "unfinished"
"""Instead of a kind, while a device is measured."""

GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class HostCosts:
    """Host work of a step: `step_seconds` + `sequence_seconds` a sequence + `token_seconds` a token."""

    step_seconds: float
    sequence_seconds: float
    token_seconds: float


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """Host seconds to launch one operation of a model that runs eagerly, and of a compiled one; to replay a
    graph (`replay_seconds`, and `replay_operation_seconds` for each operation in it); and beside its warm-up
    launches to capture one (`capture_launches` forwards run eagerly for it)."""

    eager_seconds: float
    compiled_seconds: float
    replay_seconds: float
    replay_operation_seconds: float
    capture_seconds: float
    capture_launches: int


@dataclass(frozen=True)
class Profile:
    """One device and its host. Rates are operations per second by dtype, bandwidths bytes per second.

    `bandwidth` and `rates` are what was measured, or what the datasheet says: `products`, `attention` and
    `small` say how much of them is reached. `copy_seconds` are spent on each growth beside its copy, and
    `copy_share` is the share of `bandwidth` that the copy reaches, reads and writes counted.
    `workspace_bytes` are what libraries take for themselves. `reductions` are a compiled step's products of
    one token, None where they cost what the library's do. `sources` names the origin of each group of
    numbers.
    """

    name: str
    kind: str
    device: str
    memory_bytes: int
    bandwidth: float
    rates: Mapping[str, float]
    products: ProductCurve
    attention: tuple[AttentionRates, ...]
    small: SmallKernels
    host: HostCosts
    launch: LaunchCosts
    copy_seconds: float
    copy_share: float
    workspace_bytes: int
    all_reduce: AllReduce | None
    reductions: Reductions | None
    sources: Mapping[str, str]

    @property
    def label(self) -> str:
        """As it is shown: the name and the kind, as in "h100 (datasheet)"."""
        return f"{self.name} ({self.kind})"

    def attention_for(self, head_dim: int) -> AttentionRates:
        """The rates of the nearest head size."""
        return min(self.attention, key=lambda rates: (abs(rates.head_dim - head_dim), rates.head_dim))


def profile_names() -> list[str]:
    """The profiles that ship, in order."""
    return sorted({*_measured_files(), *_datasheets()})


def open_profile(text: str) -> Profile:
    """The profile of a name (in any case) or of a JSON file.

    Raises:
        UsageError: no profile has the name; names the nearest.
        InputError: the file cannot be read as a profile; names the file and the key.
    """
    name = text.lower()
    if name in (files := _measured_files()):
        return _from_file(files[name])
    if name in _datasheets():
        return _from_datasheet(name)
    path = Path(text)
    if path.is_file() or path.suffix == ".json":
        return _from_file(path)
    raise UsageError(
        f"there is no profile {text!r}; {nearest(name, profile_names())}; a profile's file does too"
    )


def profile_of(tree: Mapping[str, Any]) -> Profile:
    """The profile of a tree as a file has it.

    Raises:
        InputError: it cannot be read as a profile; names the key.
    """
    return _made(tree, Path("profile"))


def _measured_files() -> dict[str, Path]:
    return {path.stem: path for path in FOLDER.glob("*.json") if path.stem not in ("datasheets", "defaults")}


@cache
def _datasheets() -> dict[str, dict[str, Any]]:
    devices: dict[str, dict[str, Any]] = _read(FOLDER / "datasheets.json")["devices"]
    return devices


def _from_datasheet(name: str) -> Profile:
    """The device's facts, and `defaults.json` for everything that no datasheet says."""
    facts, defaults = _datasheets()[name], _read(FOLDER / "defaults.json")
    bandwidth = facts["bandwidth_gbs"] * GIGA
    links = defaults["all_reduce"]
    one_way = facts.get("link_bidirectional_gbs") or facts.get("pcie_one_way_gbs", 0) * 2
    tree = {
        **defaults,
        "schema": SCHEMA,
        "name": name,
        "kind": "datasheet",
        "device": facts["device"],
        # Sheets print powers of two as GB: an H200's "141 GB" is 139.8 GiB.
        "memory_bytes": int(facts["memory_gb"] * 2**30),
        "bandwidth": bandwidth,
        "rates": {dtype: rate * TERA for dtype, rate in facts["dense_tflops"].items()},
        "all_reduce": {**links, "bandwidth": one_way / 2 * GIGA} if one_way else None,
        "sources": {**defaults["sources"], "device": facts["source"]},
    }
    for rates in tree["attention"]:
        rates["decode_bandwidth"] = rates.pop("decode_share") * bandwidth
        rates["prefill_rate"] = rates.pop("prefill_share") * max(
            tree["rates"].get("bfloat16", 0.0), tree["rates"].get("float16", 0.0)
        )
    tree["small"] = {
        "seconds": defaults["small"]["seconds"],
        "bandwidth": defaults["small"]["share"] * bandwidth,
    }
    return _made(tree, FOLDER / "datasheets.json")


def _from_file(path: Path) -> Profile:
    tree = _read(path)
    if tree.get("schema") != SCHEMA:
        raise InputError(
            f"{path}: 'schema' is {tree.get('schema')!r}; a profile of schema {SCHEMA} is wanted"
        )
    if tree.get("kind") == UNFINISHED:
        raise InputError(f"{path}: its measurement did not end; run musebench profile again")
    if tree.get("kind") not in KINDS:
        raise InputError(f"{path}: 'kind' is {tree.get('kind')!r}; {nearest(str(tree.get('kind')), KINDS)}")
    return _made(tree, path)


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; a profile's file is wanted") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}; JSON is wanted, as musebench profile writes it") from error
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a JSON object is wanted, as musebench profile writes it")
    return tree


def _made(tree: Mapping[str, Any], path: Path) -> Profile:
    try:
        links = tree["all_reduce"]
        products = dict(tree["products"])
        points = tuple(ProductPoint(*point) for point in products.pop("points", ()))
        sharpness = products.pop("sharpness")
        return Profile(
            name=tree["name"],
            kind=tree["kind"],
            device=tree["device"],
            memory_bytes=int(tree["memory_bytes"]),
            bandwidth=_positive(tree, "bandwidth", path),
            rates={dtype: float(rate) for dtype, rate in tree["rates"].items()},
            products=ProductCurve(sharpness=float(sharpness), points=points, **products),
            attention=tuple(AttentionRates(**rates) for rates in tree["attention"]),
            small=SmallKernels(**tree["small"]),
            host=HostCosts(**tree["host"]),
            launch=LaunchCosts(**tree["launch"]),
            copy_seconds=float(tree["copy_seconds"]),
            copy_share=_positive(tree, "copy_share", path),
            workspace_bytes=int(tree["workspace_bytes"]),
            all_reduce=links
            and AllReduce(
                float(links["bandwidth"]),
                {int(count): tuple(values) for count, values in links["by_devices"].items()},
            ),
            reductions=Reductions(**tree["reductions"]) if tree.get("reductions") else None,
            sources=dict(tree["sources"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path}: {what}; a profile as musebench profile writes it is wanted") from error


def _positive(tree: Mapping[str, Any], key: str, path: Path) -> float:
    value = float(tree[key])
    if not value > 0.0:
        raise InputError(f"{path}: {key!r} is {value}; a number above 0 is wanted")
    return value
