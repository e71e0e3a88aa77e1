"""Finding workloads: a file, or the name of one that ships."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from musebench.core.errors import InputError, UsageError
from musebench.core.options import nearest
from musebench.workload.workload import Workload
from musebench.workload.yamlfile import read_yaml

SUFFIXES = (".yaml", ".yml")
SHARE = "share/musebench/workloads"
"""Where an installed package keeps the files, below the environment's data folder."""


def load_workload(name_or_path: str | Path) -> Workload:
    """Open a workload and check all that can be checked without a model.

    A text with a folder or an ending in it, and any file that is there, is a path: YAML by its ending,
    otherwise a trace, with every setting at its default. Any other text is a name: `NAME.yaml` in
    ./workloads, then among those that ship.

    Raises:
        UsageError: no workload of that name.
        InputError: the file cannot be read, or is not what the schema says; names the file and the key.
    """
    path = Path(name_or_path)
    text = str(name_or_path)
    if path.suffix in SUFFIXES or path.parent != Path() or _is_file(path):
        if path.suffix in SUFFIXES:
            return _open(path, text)
        return Workload({"trace": text}, text, Path(), path.stem)
    shipped = shipped_workloads()
    if text not in shipped:
        raise UsageError(f"there is no workload {text!r}; {nearest(text, shipped)}")
    return _open(shipped[text], f"workload {text!r}")


def shipped_workloads() -> dict[str, Path]:
    """Name -> file of the workloads that can be chosen by name; an earlier folder wins over a later one."""
    found: dict[str, Path] = {}
    for folder in workload_folders():
        try:
            files = sorted(folder.glob("*.yaml"))
        except OSError:
            continue
        for path in files:
            found.setdefault(path.stem, path)
    return found


def workload_folders() -> list[Path]:
    """Where names are looked up: ./workloads, the source checkout's, and what the package installed."""
    package = Path(__file__).resolve().parents[1]
    folders = [Path("workloads")]
    if (package.parent / "pyproject.toml").is_file():  # a checkout, not site-packages
        folders.append(package.parent / "workloads")
    # pip --target puts shared files beside the package, and lists them elsewhere
    folders.extend(
        folder for folder in (_listed_folder(), package.parent / SHARE) if folder and folder.is_dir()
    )
    return folders


def _listed_folder() -> Path | None:
    """The folder of the installed files, by the package's own list of them, for any kind of install."""
    try:
        files = metadata.files("musebench") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.suffix == ".yaml" and SHARE in file.as_posix():
            return Path(str(file.locate())).resolve().parent
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _open(path: Path, label: str) -> Workload:
    values = read_yaml(path)
    if not isinstance(values, dict):
        found = "empty" if values is None else f"a {type(values).__name__}"
        raise InputError(
            f"{path} is {found}; a mapping of keys to values is wanted (see workloads/README.md)"
        )
    made = Workload(values, label, path.parent, path.stem)
    made.spec  # noqa: B018 - checked at once
    return made
