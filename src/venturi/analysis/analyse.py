"""From a run to its analysis: the order in which the parts are asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

import numpy as np

import venturi
from venturi.analysis import (
    accounts,
    checks,
    claims,
    control,
    fixed,
    links,
    network,
    published,
    series,
    sockets,
    storage,
)
from venturi.analysis.chapters import chapters
from venturi.analysis.curves import axes, best_families, curves, family_table, surfaces
from venturi.analysis.measured import DELIVERED_BYTES, Measured, measure
from venturi.analysis.options import AnalyseOptions, Criterion
from venturi.analysis.points import point_rows, throughputs, trial_columns
from venturi.analysis.result import About, Analysis, Counts, LoadCurve, Point, Trials
from venturi.analysis.result_lab import Testbed
from venturi.analysis.sentence import answer, caveat, headline, setting
from venturi.analysis.totals import COMMON_FILES, load_curves, totals
from venturi.errors import ScenarioError
from venturi.run import Run
from venturi.study import Published, Study, study

__all__ = ["analyse"]


def analyse(run: Run, options: AnalyseOptions | None = None) -> Analysis:
    """Return what a run says.

    Works on any run, finished or not, also on one in which nothing succeeded: what cannot be said is absent and the
    sentence says so.

    Parameters
    ----------
    run
        The run; its tables are asked in SQL, so a million transfers take seconds.
    options
        What to do otherwise than the scenario of the run says.

    Raises
    ------
    RunError
        If the tables cannot be read.
    FitError
        If a family is asked for that does not exist.

    Examples
    --------
    >>> analysis = analyse(Run.open("cp-on-one-node"))  # doctest: +SKIP
    >>> analysis.sentence  # doctest: +SKIP
    'One cp at a time moves 1.4 GB/s (1.31–1.52) and 45 in parallel …'
    """
    options = options or AnalyseOptions()
    about = _about(run, options)
    wanted = _section(about.scenario, "analyse")
    measured = measure(run)
    columns = throughputs(measured)
    trials = trial_columns(measured, columns)
    points = point_rows(
        measured, columns, trials, planned=_whole(_section(about.scenario, "workload").get("repeat")), level=about.confidence,
        rng=np.random.default_rng(options.seed),
    )  # fmt: skip
    traces = series.host_series(run, trials)
    counts = _counts(run, trials, points, about)
    against = options.against or _names(wanted.get("against"), ("files", "size"))
    families = options.families or _names(wanted.get("families"), ("all",))
    criterion = cast(Criterion, about.criterion)
    found = curves(
        points, axes(against, measured.factors), families, criterion, level=about.confidence, fits=options.fits
    )
    table = family_table(found)
    best = best_families(found, table, criterion)
    rates = storage.storage_rates(
        run, points, trials, level=about.confidence, rng=np.random.default_rng(options.seed + 1)
    )
    costs = fixed.fixed_costs(run, measured)
    counters = links.link_counters(run) if run.header.get("network") else {}
    bed = network.testbed(run, about, counters)
    link_rates = {link.name: link.rate_bit_per_s for link in bed.links} if bed else {}
    used = links.link_use(run, links.busiest(counters), link_rates, points, trials)
    account = accounts.byte_accounts(run, bed, counts)
    loads = load_curves(points, measured.factors, level=about.confidence)
    devices = series.device_bytes(run) if traces else {}
    kept = checks.conservation(run, devices)
    failures = checks.failures(run)
    drift = checks.trend(trials, points, about.confidence)
    notices = checks.notices(
        run,
        checks.Evidence(
            about=about, counts=counts, points=points, conservation=kept, failures=failures, trend=drift, curves=found,
            caches=_caches(run), processor_s=series.processor_seconds(run) if traces else None,
            mover_s=_used_seconds(run, bed, bool(traces)), accounts=account, testbed=bed,
        ),
    )  # fmt: skip
    where = setting(bed) if counts.transfers_ok else ""
    said_besides = chapters(run, about)
    said = answer(counts, points, measured.factors, loads, best, about.mover)
    if said_besides and counts.transfers_ok and _section(about.scenario, "workload").get("kind", "sweep") != "sweep":
        said = _as_sentence(said_besides[0].sentence)  # points and curves are not what such a run is about
    doubts = caveat(counts, notices)
    known = _study(about)
    told = known.published if known else Published()
    scale = bed.rates_scale if bed else 1.0
    facts = claims.Facts(
        {point.point: point for point in points}, rates, used, _slowest(bed), about.scale, scale, said_besides,
        (*told.tables, *told.evidence),
    )  # fmt: skip
    whole, common = totals(points, measured.factors), totals(points, measured.factors, COMMON_FILES)
    return Analysis(
        about=about,
        counts=counts,
        sentence=" ".join(text for text in (said, where, doubts) if text),
        answer=said,
        setting=where,
        caveat=doubts,
        headline=headline(points),
        factors=measured.factors,
        points=points,
        curves=found,
        families=table,
        best_families=best,
        surfaces=surfaces(points, measured.factors) if options.fits else (),
        totals=whole,
        common_totals=common if any(total.files_high > COMMON_FILES[1] for total in whole) else (),
        loads=loads,
        steady=series.steady_slices(run, trials, _number((run.header.get("measure") or {}).get("interval_s"))),
        storage_rates=rates,
        fixed_costs=costs,
        fixed_cost_ratios=fixed.fixed_cost_ratios(
            costs, measured, run.header, level=about.confidence, rng=np.random.default_rng(options.seed + 2)
        ),
        testbed=bed,
        accounts=account,
        sockets=sockets.socket_summaries(run, points, measured),
        link_use=used,
        sessions=control.session_summaries(run, points),
        links=links.link_series(run, links.busiest(counters), link_rates),
        conservation=kept,
        trend=drift,
        failures=failures,
        chapters=said_besides,
        notices=notices,
        claims=claims.judge_claims(told.claims, found, about.confidence, facts),
        published_fits=published.published_fits(told, table, found),
        published_totals=published.published_totals(
            told, lambda files: totals(points, measured.factors, files), scale
        ),
        published_rates=published.published_rates(told, points, rates, scale),
        published_tables=published.published_tables(told, points, rates, scale),
        errata=known.errata if known else (),
        series=traces,
        not_tested=_not_tested(about, measured, points, loads, bed, bool(traces)),
        trials=trials,
    )


def _about(run: Run, options: AnalyseOptions) -> About:
    header = run.header
    scenario = header.get("scenario") or {}
    wanted = _section(scenario, "analyse")
    criterion = options.criterion or str(wanted.get("criterion", "aicc"))
    if criterion not in get_args(Criterion):
        raise ScenarioError(
            [("analyse.criterion", f"expected one of {', '.join(get_args(Criterion))}, found {criterion!r}")],
            run.name,
        )
    movers = dict.fromkeys(str(call["mover"]) for call in (header.get("calls") or {}).values() if call.get("mover"))
    return About(
        name=run.name,
        path=str(run.path),
        state=run.state,
        backend=run.backend,
        created_unix_ns=run.created_unix_ns,
        plan_sha256=run.plan_sha256,
        seed=_whole(header.get("seed")),
        scale=float(header.get("scale") or 1.0),
        scenario=scenario,
        study=scenario.get("study"),
        mover=" and ".join(movers) or str(_section(scenario, "workload").get("mover") or "transfer"),
        environment=run.environment(),
        venturi_version=venturi.__version__,
        confidence=options.confidence or float(wanted.get("confidence") or 0.95),
        criterion=criterion,
    )


def _as_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _counts(run: Run, trials: Trials, points: tuple[Point, ...], about: About) -> Counts:
    rows = run.query(
        "SELECT outcome, count(*) AS n, count(*) FILTER (point IS NULL) AS alone FROM transfers GROUP BY 1 ORDER BY 1"
    )
    outcomes = {str(outcome): int(n) for outcome, n in zip(rows["outcome"], rows["n"], strict=True)}
    counted, counted_bytes = _counted_by_route(run)
    outcomes = {name: outcomes.get(name, 0) + counted.get(name, 0) for name in sorted({*outcomes, *counted})}
    done = run.query("SELECT count(*) AS n, count(*) FILTER (outcome IS DISTINCT FROM 'ok') AS failed FROM trials")
    received = run.query(f"SELECT sum({DELIVERED_BYTES})::DOUBLE AS b FROM transfers WHERE outcome = 'ok'")
    planned = _whole((run.header.get("totals") or {}).get("trials"))
    repeat = _whole(_section(about.scenario, "workload").get("repeat"))
    busy = series.merged(trials.start_s, trials.end_s, 0.0)
    ok = outcomes.get("ok", 0)
    return Counts(
        points_planned=planned // repeat if planned and repeat and planned % repeat == 0 else None,
        points=len(points),
        trials_planned=planned,
        trials=int(done["n"][0]),
        trials_failed=int(done["failed"][0]),
        transfers=sum(outcomes.values()),
        transfers_ok=ok,
        transfers_failed=sum(outcomes.values()) - ok,
        transfers_outside_trials=int(rows["alone"].sum()) if len(rows["alone"]) else 0,
        outcomes=outcomes,
        received_bytes=int(_number(received["b"][0]) or 0) + counted_bytes,
        span_s=float(trials.end_s.max() - trials.start_s.min()) if len(trials.start_s) else None,
        busy_s=sum(end - start for start, end in busy) if busy else None,
    )


def _counted_by_route(run: Run) -> tuple[dict[str, int], int]:
    """Return outcome → number of the transfers that are counted by route, and the bytes of these."""
    rows = run.query(
        """SELECT outcome, sum((outcomes->>outcome)::BIGINT)::BIGINT AS n
           FROM (SELECT outcomes, unnest(json_keys(outcomes)) AS outcome FROM routes) GROUP BY 1"""
    )
    moved = run.query("SELECT coalesce(sum(coalesce(received_bytes, asked_bytes)), 0)::DOUBLE AS b FROM routes")
    return dict(zip(map(str, rows["outcome"]), map(int, rows["n"]), strict=True)), int(moved["b"][0])


def _caches(run: Run) -> tuple[tuple[str, int, float | None], ...]:
    rows = run.query(
        """SELECT cache_state AS state, count(*) AS n, avg(cache_resident_ratio) AS ratio FROM trials
           WHERE cache_state IS NOT NULL GROUP BY 1 ORDER BY 1"""
    )
    return tuple((str(rows["state"][i]), int(rows["n"][i]), _number(rows["ratio"][i])) for i in range(len(rows["n"])))


def _used_seconds(run: Run, bed: Testbed | None, sampled: bool) -> float | None:
    """Return the processor seconds of those under test: of a lab its hosts and its network, else the movers."""
    if bed is not None:
        return series.lab_seconds(run) if sampled else None
    return _number(run.query("SELECT sum(user_s + system_s) AS s FROM transfers")["s"][0])


def _slowest(bed: Testbed | None) -> float | None:
    """Return the rate of the slowest link on any way that was taken, in bytes/s."""
    rates = [path.rate_bit_per_s for path in bed.paths if path.rate_bit_per_s] if bed else []
    return min(rates) / 8 if rates else None


def _study(about: About) -> Study | None:
    if not about.study:
        return None
    try:
        return study(str(about.study))
    except ScenarioError:
        return None  # a study of a newer Venturi: the run can be read all the same


def _not_tested(
    about: About,
    measured: Measured,
    points: tuple[Point, ...],
    loads: tuple[LoadCurve, ...],
    bed: Testbed | None,
    sampled: bool,
) -> tuple[str, ...]:
    """Return what the reader might take from this run and should not."""
    texts = []
    fixed = [factor for factor in measured.factors if not factor.varied]
    for factor in fixed:
        if factor.name in ("files", "size_bytes") and factor.values:
            word = "numbers of parallel files" if factor.name == "files" else "file sizes"
            texts.append(
                f"other {word} than {factor.values[0]:,}" + (" bytes" if factor.name == "size_bytes" else "")
            )
    if (bed is None and len(about.environment) <= 1) or (bed is not None and not bed.paths):
        texts.append("any network: source and destination are on one host")
    elif bed is not None:
        texts.append(
            "a real network: links, queues and losses were emulated, and the servers shared one machine with it"
        )
    cache = _section(about.scenario, "workload").get("cache", "as_is")
    if cache == "as_is":
        texts.append("a known state of the page cache: it was left as each trial found it")
    if any(load.saturation is not None and load.saturation.outcome == "not reached" for load in loads):
        texts.append("more files in parallel than were tried: the total rate was still rising there for some sizes")
    if not sampled:
        texts.append("processor, disk and network of the hosts: no counters were sampled")
    if points and all((point.trials or 0) < 2 for point in points):
        texts.append("the scatter between repetitions: every point was carried out once")
    texts.append("other machines, other days, other loads: intervals cover repetitions within this run only")
    return tuple(texts)


def _section(scenario: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = scenario.get(name)
    return section if isinstance(section, Mapping) else {}


def _names(value: object, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) and value else otherwise


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    number = None if value is None else float(value)  # type: ignore[arg-type]
    return None if number is None or np.isnan(number) else number
