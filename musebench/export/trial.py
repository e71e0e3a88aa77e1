"""A package is loaded once by a process of its own: a library that a compiler made can end the process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from musebench.core.errors import InputError, UnsupportedError


def unknown_names(path: Path, device: str) -> list[str]:
    """What the methods of the package ask for and the package does not hold.

    Raises:
        UnsupportedError: it cannot be loaded on `device`; says how that ended.
    """
    done = subprocess.run(
        [sys.executable, "-m", "musebench.export.trial", str(path), device],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        names: list[str] = json.loads(done.stdout.splitlines()[-1])
        return names
    if done.returncode < 0:
        raise UnsupportedError(
            "the package that was made ends the process that loads it "
            f"({signal.Signals(-done.returncode).name}): a library of its C++ compiler does not fit torch's; "
            "name another compiler in CXX, one that links libstdc++ dynamically"
        )
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise UnsupportedError(f"the package that was made cannot be loaded here: {reason}")


def main(path: str, device: str) -> int:
    """Print the names as JSON; 1, with the reason on standard error, when it cannot be loaded."""
    import torch

    from musebench.backends.exported_call import ExportedCall
    from musebench.backends.exported_weights import missing_names
    from musebench.programs.package import read_facts

    package = Path(path)
    try:
        names = missing_names(ExportedCall(package, read_facts(package), torch.device(device)))
    except InputError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(names))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
