"""``venturi transfer``: submit, run and inspect jobs of many transfers."""

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
from venturi.cli.options import JsonFlag
from venturi.cli.outcome import Exit, print_data, print_json, print_status
from venturi.cli.transfer_format import counted, summary, table
from venturi.cli.transfer_options import job_options
from venturi.cli.transfer_progress import transfer_view
from venturi.errors import RunError
from venturi.transfer_jobs import JobStatus, TransferQueue, TransferWorker, job_status, read_list
from venturi.transfer_jobs.choice import choose_all
from venturi.transfer_jobs.listing import COMMAND_LINE, TransferRequest, read_pair
from venturi.transfer_jobs.local_paths import check_local_ends
from venturi.transfer_jobs.status import failed_transfers

__all__ = ["app"]

QUEUE_ENV = "VENTURI_QUEUE"

app = typer.Typer(
    no_args_is_help=True,
    help="Transfer lists of files reliably: submit, run, status, cancel, list.",
)

QueueOption = Annotated[
    Path,
    typer.Option("--queue", help="Directory of the queue.", envvar=QUEUE_ENV, file_okay=False, show_envvar=True),
]
JobNumber = Annotated[
    int | None, typer.Argument(help="Number of the job. Default: the newest job.", show_default=False)
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress.")]
Detach = Annotated[
    bool,
    typer.Option("--detach", help="Run in the background; `venturi transfer status` shows the progress."),
]
QUEUE = Path("transfers")


@app.command()
def submit(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="LIST | SOURCE DESTINATION",
            help="List file (`-`: standard input), or source and destination of one transfer.",
        ),
    ],
    queue: QueueOption = QUEUE,
    name: Annotated[str | None, typer.Option(help="Name of the job. Default: the name of the list.")] = None,
    mover: Annotated[
        str | None,
        typer.Option(
            help="Mover, see docs/reference/movers.md. Default: chosen from the protocols.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of the mover: `--option streams=4`. Repeatable."),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Maximum concurrent mover calls.")] = 4,
    per_host: Annotated[
        int | None,
        typer.Option(help="Maximum concurrent calls per host, over all jobs in the queue.", show_default=False),
    ] = None,
    files_per_call: Annotated[
        int, typer.Option(help="Maximum files per call, for movers that accept pairs (globus-url-copy).")
    ] = 1,
    retries: Annotated[int, typer.Option(help="Maximum retries after a transient failure.")] = 5,
    backoff: Annotated[
        str, typer.Option(help="Wait before the first retry; doubled for each further retry.")
    ] = "2 s",
    backoff_limit: Annotated[str, typer.Option(help="Maximum wait before a retry.")] = "5 min",
    verify: Annotated[
        str, typer.Option(help="Checksum that compares source and destination: adler32, md5, sha256 or none.")
    ] = "adler32",
    timeout: Annotated[str, typer.Option(help="Time limit of an attempt.")] = "1 h",
    deadline: Annotated[
        str | None,
        typer.Option(
            help="Time limit of the job, from now; unfinished transfers fail. Default: none.", show_default=False
        ),
    ] = None,
    run_it: Annotated[
        bool, typer.Option("--run", help="Run the job immediately, as `venturi transfer run` does.")
    ] = False,
    detach: Detach = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit a list of transfers to the queue and print the number of the job.

    A line of the list is `SOURCE DESTINATION`, optionally followed by a size (`10MB`) and a checksum (`adler32:03da0195`).
    `#` starts a comment; quote names with spaces. Sources and destinations are local paths or URLs. With two URLs, movers
    that support it make a third-party transfer. If lines are invalid, or if local files do not exist, Venturi reports all
    of them and submits no job.

    Examples: `venturi transfer submit files.txt --concurrency 8`, `venturi transfer submit data.root gsiftp://dtn.example.org/data.root --run`
    """
    now_unix_s = time.time()
    options = job_options(
        mover=mover, option_texts=option or (), concurrency=concurrency, per_host=per_host, files_per_call=files_per_call, retries=retries,
        backoff=backoff, backoff_limit=backoff_limit, verify=verify, timeout=timeout, deadline=deadline, now_unix_s=now_unix_s,
    )  # fmt: skip
    source, requests = _read_requests(sources)
    if run_it or detach:
        find_engine()
    # Report errors before the queue exists: a directory without jobs would be useless.
    choose_all(requests, options.mover, source)
    check_local_ends(requests, source)
    with TransferQueue(queue, create=True) as opened:
        title = Path(sources[0]).name if sources[0] != "-" else source
        job = opened.submit(name or title, requests, options, now_unix_s, source)
        submitted = f"job {job}: {counted(len(requests), 'transfer')}"
        if run_it or detach:
            if not as_json:
                print_status(submitted)
            _execute(opened, (job,), detach=detach, quiet=quiet, as_json=as_json)
        elif as_json:
            print_json({"job": job, "transfers": len(requests), "queue": str(opened.directory)})
        else:
            print_data(submitted)
            if not quiet:
                print_status(f"next: venturi transfer run{_queue_option(queue)}")


def _read_requests(arguments: Sequence[str]) -> tuple[str, list[TransferRequest]]:
    """Return the name of the list and its transfers."""
    directory = str(Path.cwd())
    if len(arguments) == 2:
        return COMMAND_LINE, [read_pair(arguments[0], arguments[1], directory)]
    if len(arguments) != 1:
        raise typer.BadParameter(f"expected a list, or SOURCE and DESTINATION, found {len(arguments)} words")
    if arguments[0] == "-":
        return "standard input", read_list(sys.stdin, directory, "standard input")
    try:
        with Path(arguments[0]).open(encoding="utf-8") as lines:
            return arguments[0], read_list(lines, directory, arguments[0])
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RunError(
            f"{arguments[0]}: cannot read the list of transfers: {reason}; name a readable file, or - for standard input"
        ) from error


@app.command()
def run(
    jobs: Annotated[
        list[int] | None, typer.Argument(help="Numbers of jobs. Default: all jobs.", show_default=False)
    ] = None,
    queue: QueueOption = QUEUE,
    detach: Detach = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Run the jobs of the queue until all transfers are finished.

    Ctrl-C stops the movers and returns active transfers to the queue. `run` resumes them, also after a kill or a power
    failure. Several `run` commands can use the same queue; each transfer runs only once. Exit code 3 if transfers failed
    permanently.

    Example: `venturi transfer run 3 --queue /data/transfers`
    """
    with TransferQueue(queue) as opened:
        if not jobs:
            opened.jobs()  # raises if the queue has no job
        for job in jobs or ():
            opened.options(job)
        _execute(opened, tuple(jobs or ()), detach=detach, quiet=quiet, as_json=as_json)


def _execute(queue: TransferQueue, jobs: tuple[int, ...], *, detach: bool, quiet: bool, as_json: bool) -> None:
    if detach:
        _detach(queue, jobs, as_json=as_json)
        return
    start_up_s = _process_age_s()
    before = set(jobs) or {
        row["job"] for row in queue.rows("SELECT DISTINCT job FROM transfer WHERE state IN ('queued', 'active')")
    }
    with transfer_view(queue, before, quiet=quiet or as_json) as view:
        tally = TransferWorker(queue, jobs=jobs, on_progress=view.show).execute()
    statuses = [job_status(queue, job, time.time()) for job in sorted(before)]
    if as_json:
        record = {"worker": tally.worker, "stopped": tally.stopped, "start_up_s": start_up_s}
        print_json({**record, "jobs": [_as_json(status) for status in statuses]})
    elif not statuses:
        print_status("no unfinished transfers")
    for status in statuses if not as_json else ():
        print_status(summary(status))
    if tally.stopped:
        print_status(f"interrupted; resume with: venturi transfer run{_queue_option(queue.directory)}")
        raise typer.Exit(Exit.STOPPED)
    if any(status.transfers.get("failed") for status in statuses):
        if not as_json:
            print_status(f"reasons: venturi transfer status --failed{_queue_option(queue.directory)}")
        raise typer.Exit(Exit.FAILED_TRANSFERS)


def _detach(queue: TransferQueue, jobs: Iterable[int], *, as_json: bool) -> None:
    log = queue.directory / f"worker-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.log"
    arguments = ["transfer", "run", "--queue", str(queue.directory), *map(str, jobs)]
    program = [sys.executable, "-c", "from venturi.cli import main; main()", *arguments]
    with log.open("ab") as output:
        # A new session, so that neither Ctrl-C nor closing the terminal stops the worker.
        worker = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    if as_json:
        print_json({"pid": worker.pid, "log": str(log), "jobs": list(jobs)})
    else:
        print_status(
            f"running in the background as PID {worker.pid}, log {log}; progress: venturi transfer status{_queue_option(queue.directory)}"
        )


@app.command()
def status(
    job: JobNumber = None,
    queue: QueueOption = QUEUE,
    failed: Annotated[bool, typer.Option("--failed", help="Also list failed transfers with their reasons.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the progress of a job, whether or not a worker is running.

    Example: `venturi transfer status 3 --failed`
    """
    with TransferQueue(queue) as opened:
        number = opened.jobs()[-1] if job is None else job
        report = job_status(opened, number, time.time())
        failures = [dict(row) for row in failed_transfers(opened, number)] if failed else []
    if as_json:
        print_json({**_as_json(report), **({"failed": failures} if failed else {})})
        return
    print_data(table(report))
    for row in failures:
        endpoints, attempts = f"{row['source']} -> {row['destination']}", counted(row["attempts"], "attempt")
        print_data(f"line {row['line']}: {endpoints}: {row['cause']} after {attempts}: {row['error']}")


@app.command()
def cancel(
    job: Annotated[int, typer.Argument(help="Number of the job.")],
    line: Annotated[int | None, typer.Option(help="Cancel only this line of the list.", show_default=False)] = None,
    queue: QueueOption = QUEUE,
    as_json: JsonFlag = False,
) -> None:
    """Cancel the unfinished transfers of a job.

    Finished transfers stay. Active transfers stop within a second.

    Example: `venturi transfer cancel 3 --line 17`
    """
    with TransferQueue(queue) as opened:
        cancelled, stopping = opened.cancel(job, time.time(), line)
    if as_json:
        print_json({"job": job, "cancelled": cancelled, "stopping": stopping})
    else:
        print_data(f"job {job}: {cancelled} cancelled{f', {stopping} being stopped' if stopping else ''}")


@app.command(name="list")
def list_(queue: QueueOption = QUEUE, as_json: JsonFlag = False) -> None:
    """List the jobs of a queue.

    Example: `venturi transfer list --json`
    """
    with TransferQueue(queue) as opened:
        found = [job_status(opened, job, time.time()) for job in opened.jobs()]
    if as_json:
        print_json([_as_json(status) for status in found])
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
    print_data(rows)


def _as_json(status: JobStatus) -> dict[str, Any]:
    return {**asdict(status), "total": status.total}


def _queue_option(directory: Path) -> str:
    default = Path(os.environ.get(QUEUE_ENV) or QUEUE).absolute()
    return "" if directory.absolute() == default else f" --queue {directory}"


def _process_age_s() -> float:
    """Return the age of this process in seconds (proc(5): field 22 of stat), its start-up time."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
