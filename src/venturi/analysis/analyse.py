"""Analysis of a run: calls all parts in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

import numpy as np

import venturi
from venturi.advice import advise
from venturi.analysis import (
    byte_counts,
    checks,
    claims,
    control,
    fixed_cost,
    links,
    network,
    published,
    series,
    sockets,
    storage,
)
from venturi.analysis.curves import MIN_FIT_TRIALS, axes, best_families, curves, family_table, surfaces
from venturi.analysis.format import format_sentences
from venturi.analysis.headline import MAX_WORDS, headline
from venturi.analysis.link_rates import change_times, link_rates
from venturi.analysis.next_step import next_step
from venturi.analysis.options import AnalyseOptions, Criterion
from venturi.analysis.points import point_rows, throughputs, trial_columns
from venturi.analysis.requested_load import requested_load
from venturi.analysis.result import About, Analysis, Counts, LoadCurve, PointResult, Trials
from venturi.analysis.result_lab import TestbedResult
from venturi.analysis.run_columns import DELIVERED_BYTES, RunColumns, load_run_columns
from venturi.analysis.sections import sections
from venturi.analysis.sections.verdict import verdict_section
from venturi.analysis.summary import caveat, summary_sentence, testbed_sentence
from venturi.analysis.totals import COMMON_FILES, load_curves, totals
from venturi.errors import ScenarioError
from venturi.run import Run
from venturi.study import Published, Study, study

__all__ = ["analyse"]


def analyse(run: Run, options: AnalyseOptions | None = None) -> Analysis:
    """Return the analysis of a run.

    It accepts any run, including unfinished runs and runs without a successful transfer. Missing results are absent,
    and the sentence mentions them.

    Parameters
    ----------
    run
        The run. Its tables are queried with SQL, so a million transfers take seconds.
    options
        Options that override the scenario of the run.

    Raises
    ------
    RunError
        If the tables cannot be read.
    FitError
        If a requested family does not exist.

    Examples
    --------
    >>> analysis = analyse(Run.open("cp-on-one-node"))  # doctest: +SKIP
    >>> analysis.conclusion  # doctest: +SKIP
    'With files of 5 GB, one cp at a time moves 1.4 GB/s (1.31–1.52) and 45 in parallel …'
    """
    options = options or AnalyseOptions()
    about = _about(run, options)
    settings = _section(about.scenario, "analyse")
    measured = load_run_columns(run)
    columns = throughputs(measured)
    trials = trial_columns(measured, columns)
    points = point_rows(
        measured, columns, trials, planned=_whole(_section(about.scenario, "workload").get("repeat")), level=about.confidence,
    )  # fmt: skip
    traces = series.host_series(run, trials)
    counts = _counts(run, trials, points, about)
    against = options.against or _names(settings.get("against"), ("files", "size"))
    families = options.families or _names(settings.get("families"), ("all",))
    criterion = cast(Criterion, about.criterion)
    found = curves(
        points, axes(against, measured.factors), families, criterion, level=about.confidence, fits=options.fits,
        min_trials=1 if about.backend == "sim" else MIN_FIT_TRIALS,
    )  # fmt: skip
    table = family_table(found)
    best = best_families(found, table, criterion)
    rates = storage.storage_rates(run, points, trials, level=about.confidence)
    costs = fixed_cost.fixed_costs(run, measured)
    counters = links.link_counters(run) if run.header.get("network") else {}
    testbed_result = network.testbed(run, about, counters)
    planned_rates = {link.name: link.rate_bit_per_s for link in testbed_result.links} if testbed_result else {}
    used = links.link_use(run, links.busiest(counters), link_rates(run), points, trials)
    byte_counts_found = byte_counts.count_bytes(run, testbed_result, counts)
    loads = load_curves(points, measured.factors, level=about.confidence)
    devices = series.device_bytes(run) if traces else {}
    byte_conservation = checks.conservation(run, devices)
    failures = checks.failures(run)
    drift = checks.trend(trials, points, about.confidence, change_times(run))
    load = requested_load(run, about)
    findings = checks.all_findings(
        run,
        checks.Evidence(
            about=about, counts=counts, points=points, conservation=byte_conservation, failures=failures, trend=drift, curves=found,
            caches=_caches(run), cpu_s=series.cpu_seconds(run) if traces else None,
            mover_s=_used_seconds(run, testbed_result, bool(traces)), accounts=byte_counts_found, testbed=testbed_result,
            memory_sources=storage.memory_sources(run, about), limited_destination=storage.limited_destination(run, rates),
            load=load,
        ),
    )  # fmt: skip
    where = testbed_sentence(testbed_result) if counts.transfers_ok else ""
    advice = advise(run)
    report_sections = sections(run, about, advice, load)
    phrases = advice.run.limit_phrases if advice.run.groups and advice.run.cause else ("",)
    limits = next((phrase for phrase in phrases if len(phrase.split()) <= MAX_WORDS), phrases[-1])
    result_text = summary_sentence(counts, points, measured.factors, loads, best, about.mover, found, limits)
    if report_sections and counts.transfers_ok and not about.sweep:
        # Points and curves do not describe this workload.
        own = [section for section in report_sections if section.name not in ("bottlenecks", "gridftp")]
        own = [section for section in own if section.headline] or own
        result_text = _end_sentence(own[0].sentence) if own else format_sentences([limits])
    top = headline(counts, points, trials, measured.factors, report_sections, advice, sweep=about.sweep, mover=about.mover,
                      complete=about.state == "complete")  # fmt: skip
    verdict_text = advice.run.sentence if counts.transfers_ok and advice.run.cause is not None else ""
    caveat_text = caveat(counts, findings)
    known_study = _study(about)
    publications = known_study.published if known_study else Published()
    scale = testbed_result.rates_scale if testbed_result else 1.0
    claim_context = claims.ClaimContext(
        {point.point: point for point in points}, rates, used, _slowest(testbed_result), about.scale, scale, report_sections,
        (*publications.tables, *publications.evidence), claims.study_conditions(about, known_study),
    )  # fmt: skip
    whole, common = totals(points, measured.factors), totals(points, measured.factors, COMMON_FILES)
    return Analysis(
        about=about,
        counts=counts,
        headline=top,
        sentence=" ".join(text for text in dict.fromkeys((top.text, result_text, where, caveat_text)) if text),
        next_step=next_step(about, counts, advice),
        bottleneck=verdict_text,
        verdict=verdict_section(advice),
        point_limits={one.point: one.resource for one in advice.points if one.point is not None and one.cause},
        conclusion=result_text,
        setting=where,
        caveat=caveat_text,
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
        fixed_cost_ratios=fixed_cost.fixed_cost_ratios(costs, measured, run.header, level=about.confidence),
        testbed=testbed_result,
        accounts=byte_counts_found,
        sockets=sockets.socket_summaries(run, points, measured),
        link_use=used,
        sessions=control.session_summaries(run, points),
        links=links.link_series(run, links.busiest(counters), planned_rates),
        conservation=byte_conservation,
        trend=drift,
        failures=failures,
        sections=report_sections,
        findings=findings,
        claims=claims.check_claims(publications.claims, found, about.confidence, claim_context),
        published_fits=published.published_fits(publications, table, found),
        published_totals=published.published_totals(
            publications, lambda files: totals(points, measured.factors, files), scale
        ),
        published_rates=published.published_rates(publications, points, rates, scale),
        published_tables=published.published_tables(publications, points, rates, scale),
        errata=known_study.errata if known_study else (),
        series=traces,
        not_tested=_not_tested(about, measured, points, loads, testbed_result, bool(traces)),
        trials=trials,
    )


def _about(run: Run, options: AnalyseOptions) -> About:
    header = run.header
    scenario = header.get("scenario") or {}
    settings = _section(scenario, "analyse")
    criterion = options.criterion or str(settings.get("criterion", "aicc"))
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
        confidence=options.confidence or float(settings.get("confidence") or 0.95),
        criterion=criterion,
    )


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _counts(run: Run, trials: Trials, points: tuple[PointResult, ...], about: About) -> Counts:
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
    """Return outcome → number of the transfers that are counted by route, and their bytes."""
    rows = run.query(
        """SELECT outcome, sum((outcomes->>outcome)::BIGINT)::BIGINT AS n
           FROM (SELECT outcomes, unnest(json_keys(outcomes)) AS outcome FROM routes) GROUP BY 1"""
    )
    moved = run.query("SELECT coalesce(sum(coalesce(received_bytes, requested_bytes)), 0)::DOUBLE AS b FROM routes")
    return dict(zip(map(str, rows["outcome"]), map(int, rows["n"]), strict=True)), int(moved["b"][0])


def _caches(run: Run) -> tuple[tuple[str, int, float | None], ...]:
    rows = run.query(
        """SELECT cache_state AS state, count(*) AS n, avg(cache_resident_ratio) AS ratio FROM trials
           WHERE cache_state IS NOT NULL GROUP BY 1 ORDER BY 1"""
    )
    return tuple((str(rows["state"][i]), int(rows["n"][i]), _number(rows["ratio"][i])) for i in range(len(rows["n"])))


def _used_seconds(run: Run, testbed_result: TestbedResult | None, sampled: bool) -> float | None:
    """Return the CPU seconds of the tested components: hosts and network of a lab, or the movers."""
    if testbed_result is not None:
        return series.lab_seconds(run) if sampled else None
    return _number(run.query("SELECT sum(user_s + system_s) AS s FROM transfers")["s"][0])


def _slowest(testbed_result: TestbedResult | None) -> float | None:
    """Return the rate of the slowest link on any used path, in bytes/s."""
    rates = [path.rate_bit_per_s for path in testbed_result.paths if path.rate_bit_per_s] if testbed_result else []
    return min(rates) / 8 if rates else None


def _study(about: About) -> Study | None:
    if not about.study:
        return None
    try:
        return study(str(about.study))
    except ScenarioError:
        return None  # a study of a newer Venturi: the run is still readable


def _not_tested(
    about: About,
    measured: RunColumns,
    points: tuple[PointResult, ...],
    loads: tuple[LoadCurve, ...],
    testbed_result: TestbedResult | None,
    sampled: bool,
) -> tuple[str, ...]:
    """Return the conclusions that this run does not support."""
    texts = []
    simulated = about.backend == "sim"
    fixed = [factor for factor in measured.factors if not factor.varied]
    for factor in fixed:
        if factor.name in ("files", "size_bytes") and factor.values:
            word = "numbers of parallel files" if factor.name == "files" else "file sizes"
            texts.append(
                f"other {word} than {factor.values[0]:,}" + (" bytes" if factor.name == "size_bytes" else "")
            )
    if (testbed_result is None and len(about.environment) <= 1) or (
        testbed_result is not None and not testbed_result.paths
    ):
        texts.append("any network: source and destination are on one host")
    elif testbed_result is not None:
        texts.append(
            "real hosts, servers and links: all of them were simulated"
            if simulated
            else "a real network: links, queues and losses were emulated, on the machine that also ran the servers"
        )
    cache = _section(about.scenario, "workload").get("cache", "as_is")
    if cache == "as_is" and not simulated:
        texts.append("a known state of the page cache: trials did not change it before they started")
    if any(load.saturation is not None and load.saturation.outcome == "not reached" for load in loads):
        texts.append("more files in parallel: for some sizes the total rate still rose at the highest number")
    if not sampled and not simulated:
        texts.append("CPU, disk and network of the hosts: no counters were sampled")
    if points and all((point.trials or 0) < 2 for point in points):
        texts.append("the scatter between repetitions: every point has one trial")
    texts.append(
        "other seeds and other costs: intervals cover repetitions within this run only"
        if simulated
        else "other machines, days and loads: intervals cover repetitions within this run only"
    )
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
