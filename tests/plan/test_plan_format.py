"""Plans are written and read back, and compared with the schema and with the examples of the engine's tests."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import venturi.plan
from venturi.errors import PlanError
from venturi.plan import (
    Acquire,
    ActorLine,
    Arrivals,
    At,
    BurstyLoss,
    Call,
    Compute,
    Dataset,
    Draw,
    DropCaches,
    Header,
    Host,
    IndependentLoss,
    Interface,
    LabHost,
    LinkChange,
    Measure,
    Network,
    Parallel,
    Pause,
    Plan,
    PlanLink,
    PlanService,
    Prepare,
    ReadStep,
    Release,
    Repeat,
    Signal,
    SizeGroup,
    Storage,
    StorageSpec,
    Totals,
    TransferStep,
    Trial,
    Wait,
    actor_lines,
    emit_header,
    emit_line,
    plan_lines,
    read_header,
    read_plan,
    trials,
    write_plan,
)  # fmt: skip

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "tests" / "data" / "plans").glob("*.jsonl"))
REJECTED = sorted((ROOT / "tests" / "data" / "plans" / "refused").glob("*.jsonl"))
# Plans from before services and networks existed.
OLDER = [path for path in EXAMPLES if path.stem in ("before-the-lab", "minimal")]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "plan.schema.json").read_text())

names = st.text("abcxyz-é", min_size=1, max_size=6)
whole = st.integers(0, 2**53)
size_groups = st.lists(st.builds(SizeGroup, st.integers(1, 2**53), whole), max_size=3).map(tuple)
times = st.floats(0, 1e9) | names.map(Draw)
endpoints = st.sampled_from(["null:", "zero:"]) | st.tuples(names, names).map(":".join)
scalars = st.none() | st.booleans() | names | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9)
slots = st.integers(0, 10_000)
vias = st.none() | st.tuples(names, names).map("/".join)
leaves = st.one_of(
    st.builds(
        TransferStep, names, slots, endpoints | names.map(Draw), endpoints, whole, whole | names.map(Draw), st.booleans(),
        st.dictionaries(names, scalars, max_size=2), vias, vias,
    ),
    st.builds(At, times),
    st.builds(Compute, times),
    st.builds(Pause, times),
    st.builds(ReadStep, names, slots, endpoints, whole | names.map(Draw), whole, vias),
    st.builds(Signal, names, whole),
    st.builds(Wait, names, whole),
    st.builds(Acquire, names, slots),
    st.builds(Release, names, slots),
    st.builds(Prepare, names, whole, whole, st.sampled_from(["as_is", "warm"])),
    st.builds(DropCaches, names, whole, whole),
)  # fmt: skip


def _nest(inner):
    steps = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Parallel, st.lists(steps, max_size=2).map(tuple)),
        st.builds(Repeat, steps, count=slots),
        st.builds(
            Arrivals, st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), max_size=3).map(tuple), times, steps,
            st.none() | times,
        ),
        st.builds(Repeat, steps, until_s=st.floats(0, 1e6)),
        st.builds(Repeat, steps, for_s=st.floats(0, 1e6)),
        st.builds(
            Trial, st.integers(0, 10**8).map("t{:07d}".format), slots, slots, slots,
            st.dictionaries(names, scalars, max_size=3), steps, st.none() | st.floats(0, 1e6),
            st.dictionaries(names, whole, max_size=2),
        ),
    )  # fmt: skip


lines = st.builds(ActorLine, names, names, st.lists(st.recursive(leaves, _nest, max_leaves=6), max_size=3).map(tuple))
rates = st.floats(0, 1e12)
fractions = st.floats(0, 1)
words = st.dictionaries(names, names, max_size=2)
some_names = st.lists(names, max_size=2).map(tuple)
lab_hosts = st.builds(
    LabHost, st.none() | names, st.none() | st.lists(slots, max_size=2).map(tuple), st.none() | st.floats(0.1, 8),
    st.none() | whole, names, words, some_names, words, st.none() | names,
)  # fmt: skip
port_ranges = st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(lambda ports: tuple(sorted(ports)))
hosts = st.builds(
    Host, st.none() | names, st.none() | whole, st.none() | lab_hosts, st.none() | some_names, st.none() | names,
    st.none() | port_ranges, st.none() | names, words,
)  # fmt: skip
storages = st.builds(
    StorageSpec,
    st.sampled_from(["directory", "tmpfs", "disk"]),
    st.none() | whole,
    st.none() | rates,
    st.none() | rates,
)
services = st.builds(
    PlanService, names, st.none() | names, st.none() | names, some_names, st.dictionaries(names, scalars, max_size=2), some_names,
    st.lists(st.integers(0, 65535), max_size=2).map(tuple), words,
)  # fmt: skip
losses = st.none() | st.builds(IndependentLoss, fractions) | st.builds(BurstyLoss, fractions, fractions, fractions)
settings_of_links = st.fixed_dictionaries(
    {},
    optional={
        "rate_bit_per_s": rates, "delay_s": fractions, "jitter_s": fractions, "queue_bytes": whole, "loss": losses,
        "reorder_probability": fractions, "up": st.booleans(),
    },
)  # fmt: skip
networks = st.builds(
    Network,
    st.dictionaries(
        names, st.builds(Interface, names, names, st.ip_addresses(v=4).map(str), slots, st.booleans()), max_size=2
    ),
    st.dictionaries(
        names,
        st.builds(
            PlanLink, names, names, rates, fractions, whole, fractions, losses, fractions, slots, st.booleans()
        ),
        max_size=2,
    ),
    some_names,
    st.dictionaries(names, words, max_size=2),
    st.lists(st.builds(LinkChange, fractions, names, settings_of_links), max_size=2).map(tuple),
)
headers = st.builds(
    Header,
    name=names,
    seed=whole,
    scale=st.floats(1e-6, 10),
    scenario=st.dictionaries(names, scalars, max_size=2),
    hosts=st.dictionaries(names, hosts, max_size=2),
    storages=st.dictionaries(names, st.builds(Storage, st.none() | names, names, st.none() | storages), max_size=2),
    services=st.dictionaries(names, services, max_size=2),
    network=st.none() | networks,
    datasets=st.dictionaries(names, st.builds(Dataset, names, names, whole, whole, whole, size_groups), max_size=2),
    calls=st.dictionaries(
        names,
        st.builds(
            Call, names, st.dictionaries(names, scalars, max_size=2),
            st.lists(names | st.lists(names, max_size=2).map(tuple), max_size=3).map(tuple),
            st.lists(names, max_size=2).map(tuple), st.floats(0.1, 1e5), st.booleans(),
            st.sampled_from(["destination", "nothing"]), names, st.dictionaries(names, st.just("squid/http-proxy"), max_size=1),
        ),
        max_size=2,
    ),
    measure=st.builds(Measure, st.none() | st.floats(0.01, 10), st.lists(st.sampled_from(["cpu", "tcp"])).map(tuple)),
    totals=st.builds(Totals, whole, st.none() | whole, st.none() | whole, st.dictionaries(names, whole, max_size=2)),
    draws=st.dictionaries(names, st.builds(lambda mean: {"kind": "exponential", "mean": mean}, st.floats(0.1, 9))),
    pools=st.dictionaries(names, slots, max_size=2),
)  # fmt: skip


@given(headers, st.lists(lines, max_size=3))
@settings(deadline=None)
def test_a_written_plan_is_read_back_equal_and_writes_the_same_bytes(tmp_path_factory, header, given_lines):
    path = tmp_path_factory.mktemp("plan") / "plan.jsonl"
    write_plan(Plan(header, given_lines), path)
    again = read_plan(path)
    assert again.header == header
    assert list(again.lines) == given_lines
    assert "\n".join(plan_lines(again)) + "\n" == path.read_text()


@given(headers, st.lists(lines, max_size=3))
@settings(deadline=None)
def test_every_written_line_matches_the_schema(header, given_lines):
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for line in plan_lines(Plan(header, given_lines)):
        validator.validate(json.loads(line))


def test_examples_exist():
    assert EXAMPLES
    assert REJECTED


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_unchanged_after_reading_and_writing(path):
    validator = jsonschema.Draft202012Validator(SCHEMA)
    written = [json.loads(line) for line in plan_lines(read_plan(path))]
    for line in written:
        validator.validate(line)
    given = [json.loads(line) for line in path.read_text().splitlines()]
    if path not in OLDER:
        assert written == given
    assert written[1:] == given[1:]


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_an_older_plan_is_read_with_later_fields_empty(path):
    header = read_header(path)
    assert {host.lab for host in header.hosts.values()} == {None}
    assert {storage.spec for storage in header.storages.values()} <= {None}
    assert {call.local for call in header.calls.values()} <= {"{path}"}
    assert (header.services, header.network) == ({}, None)
    given = json.loads(path.read_text().splitlines()[0])
    written = json.loads(emit_header(header))
    assert given.keys() < written.keys()
    assert {key: written[key] for key in ("services", "network")} == {"services": {}, "network": None}


@pytest.mark.parametrize("path", REJECTED, ids=lambda path: path.stem)
def test_a_plan_that_the_engine_rejects_is_rejected_with_its_line(path):
    with pytest.raises(PlanError, match=r": line [12]: ") as caught:
        list(plan_lines(read_plan(path)))
    assert "expected" in str(caught.value)
    assert "found" in str(caught.value)


MESSAGES = {
    '{"actor": "a", "host": "h"}': "steps: expected a value, found nothing",
    '{"actor": "a", "host": "h", "steps": [{"step": "pause"}]}': "steps[0].duration_s: expected a value, found nothing",
    '{"actor": "a", "host": "h", "steps": [{"step": "puase", "duration_s": 1}]}': (
        "steps[0].step: expected one of trial, transfer, parallel, repeat, arrivals, at, compute, read, pause, signal, wait, "
        'acquire, release, prepare, drop_caches, found "puase"'
    ),
    '{"actor": "a", "host": "h", "steps": [{"step": "pause", "duration": 1}]}': (
        'steps[0]: expected only the keys duration_s, found "duration"; did you mean duration_s?'
    ),
    '{"actor": "a", "host": "h", "steps": [{"step": "parallel", "children": [[{"step": "at", "time_s": "1 s"}]]}]}': (
        'steps[0].children[0][0].time_s: expected a finite number, found "1 s"'
    ),
    '{"actor": "a", "host": "h", "steps": [{"step": "at", "time_s": NaN}]}': (
        "expected JSON, found other text (NaN is not valid in JSON)"
    ),
    "[1]": "expected a JSON object, found [1]",
    '{"actor": "a"': "expected JSON, found other text (Expecting ',' delimiter: line 2 column 1 (char 14))",
}


@pytest.mark.parametrize("line", MESSAGES)
def test_reports_malformed_line_with_number_and_location(line, tmp_path):
    path = tmp_path / "plan.jsonl"
    path.write_text(EXAMPLES[0].read_text().splitlines()[0] + "\n" + line + "\n")
    with pytest.raises(PlanError) as caught:
        list(actor_lines(path))
    assert str(caught.value).startswith(f"{path}: line 2: {MESSAGES[line]}")


def test_rejects_newer_version(tmp_path):
    path = tmp_path / "plan.jsonl"
    path.write_text('{"format": "venturi-plan", "version": 3, "colour": "red"}\n')
    with pytest.raises(PlanError) as caught:
        read_header(path)
    assert str(caught.value).startswith(f"{path}: line 1: version: expected 2, found 3; ")


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"{}\n", b"[]\n", b"x\n", b"\x00" * 9, b"[" * 100_000])
def test_arbitrary_content_is_rejected_with_a_plan_error(content, tmp_path):
    path = tmp_path / "plan.jsonl"
    path.write_bytes(content)
    with pytest.raises(PlanError):
        list(read_plan(path).lines)
    with pytest.raises(PlanError):
        read_plan(tmp_path / "gone.jsonl")


def test_too_deeply_nested_steps_are_rejected(tmp_path):
    path = tmp_path / "plan.jsonl"
    steps = '{"step":"repeat","count":1,"steps":[' * 200 + "]}" * 200
    path.write_text(EXAMPLES[0].read_text().splitlines()[0] + f'\n{{"actor":"a","host":"h","steps":[{steps}]}}\n')
    with pytest.raises(PlanError, match="expected at most 50 levels of steps"):
        list(actor_lines(path))


HEADER_MESSAGES = {
    '"services":{"s":{"kind":"x","host":"h","service_ports":{"http":1}}}': "services.s.service_ports.http: expected a text, found 1",
    '"services":{"s":{"kind":"x","host":"h","ports":[65536]}}': (
        "services.s.ports[0]: expected a port, 0 to 65535, found 65536"
    ),
    '"services":{"s":{"kind":"x","host":1}}': "services.s.host: expected a text, found 1",
    '"network":{"interfaces":{"i":{"host":"h","device":"e","address":"10.0.0.256"}},"links":{}}': (
        'network.interfaces.i.address: expected an IPv4 address such as "10.77.0.1", found "10.0.0.256"'
    ),
    '"network":{"interfaces":{},"links":{},"changes":[{"time_s":1,"link":"l","set":{"rate":1}}]}': (
        "network.changes[0].set: expected only the keys rate_bit_per_s, delay_s, jitter_s, queue_bytes, loss, "
        'reorder_probability, up, found "rate"'
    ),
    '"network":{"interfaces":{},"links":{"l":{"from":"a","to":"b","rate_bit_per_s":1,"delay_s":0,"queue_bytes":1,'
    '"loss":{"kind":"rare"}}}}': 'network.links.l.loss.kind: expected one of independent, bursty, found "rare"',
}


@pytest.mark.parametrize("keys", HEADER_MESSAGES)
def test_reports_malformed_header_with_location(keys, tmp_path):
    path = tmp_path / "plan.jsonl"
    first = (ROOT / "tests" / "data" / "plans" / "before-the-lab.jsonl").read_text().splitlines()[0]
    path.write_text(f"{first[:-1]},{keys}}}\n")
    with pytest.raises(PlanError) as caught:
        read_header(path)
    assert str(caught.value) == f"{path}: line 1: {HEADER_MESSAGES[keys]}"


def test_the_trials_of_a_plan_are_listed_with_their_files_and_bytes(tmp_path):
    transfer = TransferStep("cp", 0, "a:x", "a:y", 1, 100)
    drawn = TransferStep("cp", 0, "a:x", "a:y", 1, Draw("size"))
    inner = (
        Trial("t0000000", 0, 0, 0, {"files": 2}, (Parallel(((transfer,), (transfer,))),)),
        Trial("t0000001", 1, 2, 3, {}, (Repeat((transfer, drawn), count=5),)),
        Trial("t0000002", 1, 0, 0, {}, (Repeat((transfer,), until_s=3.0), Pause(1))),
        Trial("t0000003", 1, 0, 0, {}, (Pause(1), Repeat((Pause(1),), until_s=3.0))),
    )
    header = read_header(EXAMPLES[0])
    path = tmp_path / "plan.jsonl"
    plan_lines_given = [
        ActorLine("one", "h", (Pause(1), inner[0])),
        ActorLine("two", "h", (Repeat(inner[1:], count=1),)),
    ]
    write_plan(Plan(header, plan_lines_given), path)
    rows = list(trials(path))
    assert [(row.trial, row.actor, row.transfers, row.bytes) for row in rows] == [
        ("t0000000", "one", 2, 200), ("t0000001", "two", 10, None), ("t0000002", "two", None, None), ("t0000003", "two", 0, 0),
    ]  # fmt: skip
    assert (rows[1].point, rows[1].repetition, rows[1].block, rows[0].factors) == (1, 2, 3, {"files": 2})


def test_listing_trials_reports_a_malformed_line_too(tmp_path):
    path = tmp_path / "plan.jsonl"
    path.write_text(
        EXAMPLES[0].read_text().splitlines()[0] + '\n{"actor":"a","host":"h","steps":[{"step":"trial"}]}\n'
    )
    with pytest.raises(PlanError, match=r"line 2: steps\[0\].id: expected a value, found nothing"):
        list(trials(path))


def test_the_bytes_of_a_plan_are_fixed():
    header = Header(
        "x", 1, 0.5, {}, {"h": Host()}, {"p": Storage("h", "é")}, {}, {}, Measure(None, ()), Totals(0, 0, 0, {})
    )
    assert emit_header(header) == (
        '{"format":"venturi-plan","version":2,"name":"x","seed":1,"scale":0.5,"scenario":{},'
        '"hosts":{"h":{"ssh":null,"memory_bytes":null,"lab":null}},"storages":{"p":{"host":"h","path":"é","spec":null}},'
        '"services":{},"network":null,"datasets":{},"calls":{},'
        '"draws":{},"pools":{},"measure":{"interval_s":null,"counters":[]},'
        '"totals":{"trials":0,"transfers":0,"bytes":0,"disk_bytes":{}}}'
    )
    assert emit_line(
        ActorLine("a", "h", (TransferStep("cp", 1, "p:a", "null:", 1, 9, True, {"k": 1}), Pause(Draw("d"))))
    ) == (
        '{"actor":"a","host":"h","steps":[{"step":"transfer","call":"cp","slot":1,"source":"p:a","destination":"null:",'
        '"files":1,"bytes":9,"keep":true,"labels":{"k":1}},{"step":"pause","duration_s":{"draw":"d"}}]}'
    )
    vias = {"source_via": "s/http", "destination_via": "t/gsiftp"}
    assert emit_line(ActorLine("a", "h", (TransferStep("cp", 1, "p:a", "null:", 1, 9, **vias),))) == (
        '{"actor":"a","host":"h","steps":[{"step":"transfer","call":"cp","slot":1,"source":"p:a","source_via":"s/http",'
        '"destination":"null:","destination_via":"t/gsiftp","files":1,"bytes":9}]}'
    )


def test_the_package_exports_exactly_the_public_names():
    steps = {
        "Acquire", "Arrivals", "At", "Compute", "DropCaches", "Parallel", "Pause", "Prepare", "ReadStep", "Release", "Repeat", "Signal",
        "TransferStep", "Trial", "Wait",
    }  # fmt: skip
    header = {
        "Call", "Dataset", "Header", "Host", "LabHost", "Measure", "Storage", "SizeGroup", "PlanService", "StorageSpec", "Totals", "FORMAT",
        "VERSION",
    }  # fmt: skip
    network = {"BurstyLoss", "LinkChange", "IndependentLoss", "Interface", "PlanLink", "Loss", "Network"}
    functions = {
        "actor_lines", "check_fits", "emit_header", "emit_line", "estimate", "plan_lines", "read_header", "read_plan",
        "trials", "write_plan",
    }  # fmt: skip
    assert set(venturi.plan.__all__) == steps | header | network | functions | {
        "ActorLine", "Draw", "PlanEstimate", "Plan", "Step", "TrialRow",
    }  # fmt: skip
