"""Submit files for Slurm and HTCondor. A new batch system needs a function, a line in :data:`SYSTEMS` and a test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from venturi.plan import Plan
from venturi.submit.commands import CommandBatch, SubmitError, list_batches, prepare_commands, quote_command

__all__ = ["SYSTEMS", "write_submit_files"]

_JOB = """\
#!/bin/bash
# Runs one job: line number $2 + 1 of the file $1, a command. The exit code is that of the command.
set -eu
command=$(sed -n "$(($2 + 1))p" "$1")
[ -n "$command" ] || { echo "$1: expected a job number $2, found none; check the submit files" >&2; exit 2; }
eval "exec $command"
"""

_SLURM = """\
#!/bin/bash
# {title}
#SBATCH --job-name={job}
#SBATCH --array=0-{last}%{at_a_time}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --time={minutes}
#SBATCH --output={name}.%a.out
#SBATCH --error={name}.%a.err
cd "$SLURM_SUBMIT_DIR"
exec bash ./job.sh {name}.jobs "$SLURM_ARRAY_TASK_ID"
"""

_HTCONDOR = """\
# {title}
universe = vanilla
batch_name = {job}
executable = /bin/bash
transfer_executable = false
arguments = job.sh {name}.jobs $(Process)
should_transfer_files = IF_NEEDED
transfer_input_files = job.sh, {name}.jobs
request_cpus = 1
max_materialize = {at_a_time}
periodic_remove = JobStatus == 2 && time() - EnteredCurrentStatus > {timeout_s}
output = {name}.$(Process).out
error = {name}.$(Process).err
log = {name}.log
queue {jobs}
"""

_SUBMIT = """\
#!/bin/bash
# {batches} of {name}; each starts after the end of the previous one{cold}.
set -eu
cd "$(dirname "$0")"
{lines}
"""

_PREPARE = """\
#!/bin/bash
# Creates the input files of the jobs. Run it once, on a host with access to the storages.
set -eu
{lines}
"""


def write_submit_files(plan: Plan, system: str, directory: Path, *, scratch: Path) -> tuple[Path, ...]:
    """Write the submit files of a plan, and return their paths: ``submit.sh``, then ``prepare.sh`` if the jobs need files.

    Parameters
    ----------
    system
        A name of :data:`SYSTEMS`.
    directory
        Created if necessary. With Slurm, workers need it under the same path; HTCondor copies the files.
    scratch
        Base directory of relative storages.

    Raises
    ------
    SubmitError
        If the system is unknown, or the plan has no batches of jobs.
    OSError
        If a file cannot be written.
    """
    if system not in SYSTEMS:
        raise SubmitError(
            f'--submit: expected one of the batch systems {", ".join(SYSTEMS)}, found "{system}"; use one of them'
        )
    ending, format_batch, format_submit = SYSTEMS[system]
    batches = list_batches(plan, scratch)
    directory.mkdir(parents=True, exist_ok=True)
    texts = {"job.sh": _JOB}
    names = [f"batch-{number:04d}" for number in range(1, len(batches) + 1)]
    for name, batch in zip(names, batches, strict=True):
        texts[f"{name}.jobs"] = "".join(quote_command(argv) + "\n" for argv in batch.argv)
        texts[f"{name}.{ending}"] = format_batch(f"{plan.header.name}-{name}", name, batch)
    cold = "; unlike the plan, caches are not dropped" if any(batch.cold for batch in batches) else ""
    counted = f"{len(batches)} batch" + ("es" if len(batches) != 1 else "")
    texts["submit.sh"] = _SUBMIT.format(batches=counted, name=plan.header.name, cold=cold, lines=format_submit(names))
    if prepare_lines := prepare_commands(plan, scratch):
        texts["prepare.sh"] = _PREPARE.format(lines="\n".join(prepare_lines))
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8")
    first = [directory / file for file in ("submit.sh", "prepare.sh") if file in texts]
    return (*first, *(directory / file for file in texts if directory / file not in first))


def _slurm(job: str, name: str, batch: CommandBatch) -> str:
    return _SLURM.format(title=batch.title, job=job, name=name, last=len(batch.argv) - 1, at_a_time=batch.at_a_time,
                         minutes=math.ceil(batch.timeout_s / 60))  # fmt: skip


def _slurm_lines(names: Sequence[str]) -> str:
    lines, after = [], ""
    for name in names:
        lines.append(f"after=$(sbatch --parsable{after} {name}.slurm)")
        lines.append(f'echo "{name}: job $after"')
        after = ' --dependency="afterany:$after"'
    return "\n".join(lines)


def _htcondor(job: str, name: str, batch: CommandBatch) -> str:
    return _HTCONDOR.format(title=batch.title, job=job, name=name, jobs=len(batch.argv), at_a_time=batch.at_a_time,
                            timeout_s=batch.timeout_s)  # fmt: skip


def _htcondor_lines(names: Sequence[str]) -> str:
    return "\n".join(f"condor_submit {name}.sub\ncondor_wait {name}.log" for name in names)


SYSTEMS: dict[str, tuple[str, Callable[[str, str, CommandBatch], str], Callable[[Sequence[str]], str]]] = {
    "slurm": ("slurm", _slurm, _slurm_lines),
    "htcondor": ("sub", _htcondor, _htcondor_lines),
}
"""For each system: file extension, format of a batch, and the lines of ``submit.sh``."""
