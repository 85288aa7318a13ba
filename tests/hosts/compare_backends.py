"""Run a study on the hosts of the test kit, in the lab and simulated, and write docs/studies/STUDY/hosts.

    .venv/bin/python tests/hosts/compare_backends.py

It needs root and takes 15 minutes. Use a machine without other load. ``scripts/publish-study.py --comparison`` writes
the pages.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "lab"), str(Path(__file__).parents[1])]

from hostkit import RealHosts

from venturi.backend import find_engine

STUDY = "cnaf/gridftp-two-nodes"
HOSTS = {"node1": "a", "node2": "b"}
PART = (
    "scale=1", "workload.repeat=5", 'workload.factors.size=["0", "10 MB", "20 MB"]', "workload.factors.streams=[1]",
)  # fmt: skip
PUBLISH = Path(__file__).parents[2] / "scripts" / "publish-study.py"
VENTURI = Path(sys.executable).parent / "venturi"


def main():
    """Run the command line; exit with 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override more values")
    parser.add_argument("--into", type=Path, help="default: docs/studies")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"load before the runs: {load:.1f} of {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="venturi-compare-") as base:
        Path(base).chmod(0o755)
        Path(base, "labs").mkdir()
        with RealHosts(find_engine(), Path(base, "labs")) as hosts:
            runs = [_run(hosts, backend, options.set) for backend in ("hosts", "lab", "sim")]
            into = ["--into", options.into] if options.into else []
            note = f"load average of {load:.1f} before the runs, on {os.cpu_count()} cores"
            command = [sys.executable, PUBLISH, "--comparison", *runs, "--note", note, *into]
            subprocess.run(command, check=True)
    return 0


def _run(hosts, backend, more):
    directory = hosts.work / "compare" / backend
    words = ["study", "run", STUDY, "--quick", "--portable", "--on", backend, "--runs", directory, "--yes"]
    words += [word for one in (*PART, *more) for word in ("--set", one)]
    print(f"{backend} ...", flush=True)
    if backend == "hosts":
        file = hosts.work / "hosts.toml"
        lines = [f'{name} = {{ ssh = "{real}", path = "{hosts.shared}" }}\n' for name, real in HOSTS.items()]
        file.write_text("".join(lines))
        hosts.venturi(*words, "--hosts", file, timeout_s=7200)
    else:
        subprocess.run([VENTURI, *words], cwd=hosts.work, check=True, stdout=subprocess.DEVNULL)
    return next(directory.glob("*/run.json")).parent


if __name__ == "__main__":
    sys.exit(main())
