"""``venturi transfer``: lists of transfers handed over, carried out whatever happens, and looked at at any time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from venturi.backend import find_engine
from venturi.cli.options import As
from venturi.cli.outcome import Exit, data, data_json, talk
from venturi.cli.transfer_options import job_options
from venturi.cli.transfer_progress import transfer_view
from venturi.cli.transfer_words import counted, summary, table
from venturi.errors import RunError
from venturi.managed import JobStatus, Queue, Worker, job_status, read_list
from venturi.managed.choice import choose_all
from venturi.managed.listing import COMMAND_LINE, Wanted, read_pair
from venturi.managed.presence import check_local_ends
from venturi.managed.status import failed_transfers

__all__ = ["app"]

QUEUE_VARIABLE = "VENTURI_QUEUE"

app = typer.Typer(
    no_args_is_help=True,
    help="Transfers of many files, carried out whatever happens: submit, run, status, cancel, list.",
)

QueueAt = Annotated[
    Path,
    typer.Option("--queue", help="Directory of the queue.", envvar=QUEUE_VARIABLE, file_okay=False, show_envvar=True),
]
Job = Annotated[int | None, typer.Argument(help="Number of the job; by default the newest.", show_default=False)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
Detach = Annotated[
    bool,
    typer.Option("--detach", help="Carry it out in the background; `venturi transfer status` tells how far it is."),
]
QUEUE = Path("transfers")


@app.command()
def submit(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="LIST | SOURCE DESTINATION", help="A list (`-`: standard input), or the two ends of one transfer."
        ),
    ],
    queue: QueueAt = QUEUE,
    name: Annotated[str | None, typer.Option(help="Name of the job; by default that of the list.")] = None,
    mover: Annotated[
        str | None,
        typer.Option(
            help="Which tool moves, of docs/reference/movers.md; by default the one of the protocols.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of the mover: `--option streams=4`. Repeatable."),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Calls of the mover at a time.")] = 4,
    per_host: Annotated[
        int | None,
        typer.Option(help="Of these at most so many with one host, of all jobs of the queue.", show_default=False),
    ] = None,
    files_per_call: Annotated[
        int, typer.Option(help="Files one call may move, where the mover takes pairs (globus-url-copy).")
    ] = 1,
    retries: Annotated[int, typer.Option(help="Further tries of a transfer that failed in passing.")] = 5,
    backoff: Annotated[
        str, typer.Option(help="Wait before the first further try; doubled for each next one.")
    ] = "2 s",
    backoff_limit: Annotated[str, typer.Option(help="But no longer than this.")] = "5 min",
    verify: Annotated[str, typer.Option(help="Compare both ends by adler32, md5 or sha256; or none.")] = "adler32",
    timeout: Annotated[str, typer.Option(help="End a try after this.")] = "1 h",
    deadline: Annotated[
        str | None,
        typer.Option(help="From now; what is not done then has failed. Default: none.", show_default=False),
    ] = None,
    run_it: Annotated[
        bool, typer.Option("--run", help="Carry it out at once, as `venturi transfer run` does.")
    ] = False,
    detach: Detach = False,
    quiet: Quiet = False,
    as_json: As = False,
) -> None:
    """Hand over a list of transfers. Prints the number of the job.

    A line of the list is `SOURCE DESTINATION`, then if known a size (`10MB`) and a checksum (`adler32:03da0195`); `#` begins a comment,
    words with blanks stand in quotes. Ends are paths of this host or URLs; two URLs make a third-party transfer where the mover can. If
    lines are wrong, or name files of this host that are not there, all are told, and nothing is submitted.

    Examples: `venturi transfer submit files.txt --concurrency 8`, `venturi transfer submit data.root gsiftp://dtn.example.org/data.root --run`
    """
    now_unix_s = time.time()
    options = job_options(
        mover=mover, given=option or (), concurrency=concurrency, per_host=per_host, files_per_call=files_per_call, retries=retries,
        backoff=backoff, backoff_limit=backoff_limit, verify=verify, timeout=timeout, deadline=deadline, now_unix_s=now_unix_s,
    )  # fmt: skip
    source, wanted = _wanted(what)
    if run_it or detach:
        find_engine()
    # What is wrong is told before there is a queue: a folder that holds no job would only be in the way.
    choose_all(wanted, options.mover, source)
    check_local_ends(wanted, source)
    with Queue(queue, create=True) as opened:
        title = Path(what[0]).name if what[0] != "-" else source
        job = opened.submit(name or title, wanted, options, now_unix_s, source)
        handed_over = f"job {job}: {counted(len(wanted), 'transfer')}"
        if run_it or detach:
            if not as_json:
                talk(handed_over)
            _carry_out(opened, (job,), detach=detach, quiet=quiet, as_json=as_json)
        elif as_json:
            data_json({"job": job, "transfers": len(wanted), "queue": str(opened.folder)})
        else:
            data(handed_over)
            if not quiet:
                talk(f"carry it out with: venturi transfer run{_where(queue)}")


def _wanted(what: Sequence[str]) -> tuple[str, list[Wanted]]:
    """Return the name of the list, and what stands in it."""
    folder = str(Path.cwd())
    if len(what) == 2:
        return COMMAND_LINE, [read_pair(what[0], what[1], folder)]
    if len(what) != 1:
        raise typer.BadParameter(f"expected a list, or SOURCE and DESTINATION, found {len(what)} words")
    if what[0] == "-":
        return "standard input", read_list(sys.stdin, folder, "standard input")
    try:
        with Path(what[0]).open(encoding="utf-8") as lines:
            return what[0], read_list(lines, folder, what[0])
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise RunError(
            f"{what[0]}: expected a list of transfers that can be read: {reason}; give its path, or - for standard input"
        ) from error


@app.command()
def run(
    jobs: Annotated[
        list[int] | None, typer.Argument(help="Numbers of jobs; by default all.", show_default=False)
    ] = None,
    queue: QueueAt = QUEUE,
    detach: Detach = False,
    quiet: Quiet = False,
    as_json: As = False,
) -> None:
    """Carry out what is in the queue, until nothing is left.

    Ctrl-C ends the movers and puts back what was under way; `run` goes on with it, after a kill or a power cut too. Several may work
    on one queue: none takes what another has. Exit code 3 if transfers have failed for good.

    Example: `venturi transfer run 3 --queue /data/transfers`
    """
    with Queue(queue) as opened:
        if not jobs:
            opened.jobs()  # there is one at least
        for job in jobs or ():
            opened.options(job)
        _carry_out(opened, tuple(jobs or ()), detach=detach, quiet=quiet, as_json=as_json)


def _carry_out(queue: Queue, jobs: tuple[int, ...], *, detach: bool, quiet: bool, as_json: bool) -> None:
    if detach:
        _detach(queue, jobs, as_json=as_json)
        return
    start_up_s = _age_s()
    before = set(jobs) or {
        row["job"] for row in queue.rows("SELECT DISTINCT job FROM transfer WHERE state IN ('queued', 'active')")
    }
    with transfer_view(queue, before, quiet=quiet or as_json) as view:
        tally = Worker(queue, jobs=jobs, on_progress=view.show).carry_out()
    statuses = [job_status(queue, job, time.time()) for job in sorted(before)]
    if as_json:
        told = {"worker": tally.worker, "stopped": tally.stopped, "start_up_s": start_up_s}
        data_json({**told, "jobs": [_as_json(status) for status in statuses]})
    elif not statuses:
        talk("nothing is left to do")
    for status in statuses if not as_json else ():
        talk(summary(status))
    if tally.stopped:
        talk(f"stopped; go on with: venturi transfer run{_where(queue.folder)}")
        raise typer.Exit(Exit.STOPPED)
    if any(status.transfers.get("failed") for status in statuses):
        if not as_json:
            talk(f"why: venturi transfer status --failed{_where(queue.folder)}")
        raise typer.Exit(Exit.FAILED_TRANSFERS)


def _detach(queue: Queue, jobs: Iterable[int], *, as_json: bool) -> None:
    log = queue.folder / f"worker-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.log"
    words = ["transfer", "run", "--queue", str(queue.folder), *map(str, jobs)]
    program = [sys.executable, "-c", "from venturi.cli import main; main()", *words]
    with log.open("ab") as output:
        # A session of its own: neither Ctrl-C nor the end of the terminal reaches it.
        worker = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    if as_json:
        data_json({"pid": worker.pid, "log": str(log), "jobs": list(jobs)})
    else:
        talk(
            f"carried out in the background by PID {worker.pid}; it writes to {log}; look: venturi transfer status{_where(queue.folder)}"
        )


@app.command()
def status(
    job: Job = None,
    queue: QueueAt = QUEUE,
    failed: Annotated[bool, typer.Option("--failed", help="Also each transfer that has failed, and why.")] = False,
    as_json: As = False,
) -> None:
    """Tell how far a job is, at any time, whether or not anybody is at work.

    Example: `venturi transfer status 3 --failed`
    """
    with Queue(queue) as opened:
        number = opened.jobs()[-1] if job is None else job
        told = job_status(opened, number, time.time())
        lost = [dict(row) for row in failed_transfers(opened, number)] if failed else []
    if as_json:
        data_json({**_as_json(told), **({"failed": lost} if failed else {})})
        return
    data(table(told))
    for row in lost:
        ends, tries = f"{row['source']} -> {row['destination']}", counted(row["attempts"], "try", "tries")
        data(f"line {row['line']}: {ends}: {row['cause']} after {tries}: {row['error']}")


@app.command()
def cancel(
    job: Annotated[int, typer.Argument(help="Number of the job.")],
    line: Annotated[int | None, typer.Option(help="Only this line of its list.", show_default=False)] = None,
    queue: QueueAt = QUEUE,
    as_json: As = False,
) -> None:
    """Cancel what is left of a job. What is done stays done; what is under way is stopped within a second.

    Example: `venturi transfer cancel 3 --line 17`
    """
    with Queue(queue) as opened:
        ended, stopping = opened.cancel(job, time.time(), line)
    if as_json:
        data_json({"job": job, "cancelled": ended, "stopping": stopping})
    else:
        data(f"job {job}: {ended} cancelled{f', {stopping} being stopped' if stopping else ''}")


@app.command(name="list")
def list_(queue: QueueAt = QUEUE, as_json: As = False) -> None:
    """List the jobs of a queue.

    Example: `venturi transfer list --json`
    """
    with Queue(queue) as opened:
        found = [job_status(opened, job, time.time()) for job in opened.jobs()]
    if as_json:
        data_json([_as_json(status) for status in found])
        return
    rows = Table(box=None, pad_edge=False)
    for column in ("job", "name", "state", "done", "failed", "of"):
        rows.add_column(column, justify="left" if column in ("name", "state") else "right")
    for one in found:
        counts = one.transfers
        rows.add_row(
            str(one.job),
            one.name,
            one.state,
            str(counts.get("done", 0)),
            str(counts.get("failed", 0)),
            str(one.total),
        )
    data(rows)


def _as_json(status: JobStatus) -> dict[str, Any]:
    return {**asdict(status), "total": status.total}


def _where(folder: Path) -> str:
    usual = Path(os.environ.get(QUEUE_VARIABLE) or QUEUE).absolute()
    return "" if folder.absolute() == usual else f" --queue {folder}"


def _age_s() -> float:
    """Return for how long this process has lived (proc(5): field 22 of stat), which is what starting it took."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
