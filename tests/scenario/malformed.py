"""Invalid scenarios, each with its expected messages.

A case is the valid scenario below with some values replaced (``GONE``: removed), and the expected lines. Tests compare
the facts of a line, not its wording: see :func:`details`.
"""

from __future__ import annotations

import copy
import datetime
import re
from typing import Any

from venturi.mover.command import PLACEHOLDERS
from venturi.mover.table import movers
from venturi.scenario.families import FAMILY_NAMES

GONE = object()
MOVERS = ", ".join(movers())
STORAGES = ", ".join(PLACEHOLDERS)
KEYS_OF_HOST = "ssh, memory, site, cpus, cpu_limit, memory_limit, congestion_control, tcp, nat"

GOOD: dict[str, Any] = {
    "venturi": 1,
    "name": "good",
    "testbed": {
        "host": {"node1": {"memory": "16 GiB"}, "node2": {}},
        "storage": {
            "gpfs": {"host": "node1", "path": "data"},
            "tmp": {"host": "node1", "path": "/tmp"},
            "far": {"host": "node2", "path": "data"},
        },
    },
    "workload": {
        "kind": "sweep",
        "mover": "cp",
        "source": "gpfs",
        "destination": "gpfs",
        "repeat": 2,
        "factors": {"files": [1, 2], "size": ["10 MB", "100 MB"]},
    },
}

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no version": ({"venturi": GONE}, ["venturi: expected venturi = 1 (the version of this format), found nothing"]),
    "a newer version": (
        {"venturi": 2},
        ["venturi: expected 1, found 2; use the newer Venturi of this file"],
    ),
    "a version as text": ({"venturi": "1"}, ['venturi: expected 1, found "1"']),
    "no name": ({"name": GONE}, ["name: expected a value (names the run), found nothing"]),
    "an empty name": ({"name": ""}, ['name: expected a text that is not empty, found ""']),
    "a name that is a number": ({"name": 5}, ["name: expected a text, found 5"]),
    "a date as a name": ({"name": datetime.date(2026, 1, 2)}, ["name: expected a text, found 2026-01-02"]),
    "a negative seed": ({"seed": -1}, ["seed: expected 0 or more, found -1"]),
    "a seed that is no whole number": ({"seed": 1.5}, ["seed: expected a whole number, found 1.5"]),
    "a seed beyond what TOML carries": (
        {"seed": 2**63},
        ["seed: expected 9223372036854775807 or less, found 9223372036854775808"],
    ),
    "a scale of zero": ({"scale": 0}, ["scale: expected more than 0, found 0"]),
    "a negative scale": ({"scale": -0.5}, ["scale: expected more than 0, found -0.5"]),
    "a scale that is not a number": ({"scale": "small"}, ['scale: expected a number, found "small"']),
    "an infinite scale": ({"scale": float("inf")}, ["scale: expected a finite number, found inf"]),
    "a scale at which sizes become one": (
        {"scale": 1e-08},
        ["scale: expected a scale with distinct sizes, found 10 MB and 100 MB both scaled to 1 B"],
    ),
    "an unknown key at the top": (
        {"measures": {}},
        [
            "measures: expected one of the keys venturi, name, seed, scale, include, study, testbed, workload, mover, measure, analyse, found measures; did you mean measure?"
        ],
    ),
    "an unknown key of the workload": (
        {"workload.repet": 3},
        [
            "workload.repet: expected one of the keys kind, mover, source, destination, client, source_service, destination_service, direction, files_per_call, repeat, retries, order, cache, timeout, data_at_least, factors, options, sweep, found repet; did you mean repeat?"
        ],
    ),
    "an unknown key of a host": (
        {"testbed.host.node1.memroy": "1 GiB"},
        [f"testbed.host.node1.memroy: expected one of the keys {KEYS_OF_HOST}, found memroy; did you mean memory?"],
    ),
    "an unknown key far from any other": (
        {"workload.sweep": {"xyzzy": 1}},
        ["workload.sweep.xyzzy: expected one of the keys zip, filter, found xyzzy"],
    ),
    "no workload": (
        {"workload": GONE},
        ["workload: expected a value (the rule that yields transfers), found nothing"],
    ),
    "a workload that is not a table": ({"workload": "sweep"}, ['workload: expected a table, found "sweep"']),
    "a workload without a kind": (
        {"workload.kind": GONE},
        [
            "workload: expected a kind of workload (sweep, dataset, clients, peers, tiers, jobs, inject, replay), found nothing under kind"
        ],
    ),
    "an unknown kind": (
        {"workload.kind": "swep"},
        [
            'workload: expected one of the kinds of workload: sweep, dataset, clients, peers, tiers, jobs, inject, replay, found "swep"; did you mean sweep?'
        ],
    ),
    "a storage on an unknown host": (
        {"testbed.storage.gpfs.host": "node3"},
        ['testbed.storage.gpfs.host: expected one of the hosts: node1, node2, found "node3"; did you mean node2?'],
    ),
    "a storage without a path": (
        {"testbed.storage.gpfs.path": GONE},
        ["testbed.storage.gpfs.path: expected a value (a directory), found nothing"],
    ),
    "a host name with a dot": (
        {"testbed.host": {"node1": {}, "node2": {}, "a.b": {}}},
        ['testbed.host."a.b": expected a name of letters, digits, - and _ (and not null or zero), found "a.b"'],
    ),
    "a storage with a built-in name": (
        {"testbed.storage.null": {"host": "node1", "path": "x"}},
        ['testbed.storage.null: expected a name of letters, digits, - and _ (and not null or zero), found "null"'],
    ),
    "memory without a unit": (
        {"testbed.host.node1.memory": 16},
        ['testbed.host.node1.memory: expected a size such as "100 MB", found 16'],
    ),
    "memory in bits": (
        {"testbed.host.node1.memory": "16 Gb"},
        [
            'testbed.host.node1.memory: expected a size such as "100 MB" or "1 MiB", found "16 Gb"; write MB, not Mb (bits are not bytes)'
        ],
    ),
    "a rate without a time": (
        {"testbed.storage.gpfs.rate": "500 MB"},
        ['testbed.storage.gpfs.rate: expected a rate such as "10 Gb/s" or "100 MB/s", found "500 MB"'],
    ),
    "an unknown source": (
        {"workload.source": "gpsf"},
        ['workload.source: expected one of the storages: gpfs, tmp, far, found "gpsf"; did you mean gpfs?'],
    ),
    "no source": (
        {"workload.source": GONE},
        ["workload.source: expected the name of a storage (cp reads from it), found nothing"],
    ),
    "no destination": (
        {"workload.destination": GONE},
        ["workload.destination: expected the name of a storage (cp writes to it), found nothing"],
    ),
    "no mover": (
        {"workload.mover": GONE},
        [f"workload.mover: expected one of the movers {MOVERS}, found nothing"],
    ),
    "an unknown mover": (
        {"workload.mover": "rsynk"},
        [f'workload.mover: expected one of the movers: {MOVERS}, found "rsynk"; did you mean rsync?'],
    ),
    "an unknown mover beside a known one": (
        {"workload.mover": "read+wriet"},
        [f'workload.mover: expected one of the movers: {MOVERS}, found "wriet"; did you mean write?'],
    ),
    "a mover beside itself": (
        {"workload.mover": "cp+cp"},
        ['workload.mover: expected different movers beside each other, found "cp+cp"'],
    ),
    "repeat of zero": ({"workload.repeat": 0}, ["workload.repeat: expected 1 or more, found 0"]),
    "repeat as text": ({"workload.repeat": "20"}, ['workload.repeat: expected a whole number, found "20"']),
    "repeat as a fraction": ({"workload.repeat": 2.5}, ["workload.repeat: expected a whole number, found 2.5"]),
    "repeat as truth": ({"workload.repeat": True}, ["workload.repeat: expected a whole number, found true"]),
    "more trials than can be numbered": (
        {"workload.repeat": 10000000},
        [
            "workload.repeat: expected at most 10000000 trials in all, found 4 points × 10000000 repetitions = 40000000"
        ],
    ),
    "an unknown order": (
        {"workload.order": "shuffled"},
        ['workload.order: expected "random" or "given", found "shuffled"'],
    ),
    "an unknown cache state": (
        {"workload.cache": "cool"},
        ['workload.cache: expected "as_is", "cold" or "warm", found "cool"'],
    ),
    "a cache state for a mover that reads nothing": (
        {"workload.mover": "write", "workload.cache": "cold"},
        ['workload.cache: expected "as_is" (write reads no data set), found "cold"'],
    ),
    "a timeout without a unit": (
        {"workload.timeout": "10"},
        ['workload.timeout: expected a time such as "10 s", found "10" without a unit'],
    ),
    "a timeout of zero": (
        {"workload.timeout": "0 s"},
        ['workload.timeout: expected a time above 0 and below 10 years, found "0 s"'],
    ),
    "a size without a unit": (
        {"workload.factors.size": ["10 MB", "20 MB", 100]},
        ['workload.factors.size[2]: expected a size such as "100 MB", found 100'],
    ),
    "a size in bits": (
        {"workload.factors.size": ["10 Mb"]},
        [
            'workload.factors.size[0]: expected a size such as "100 MB" or "1 MiB", found "10 Mb"; write MB, not Mb (bits are not bytes)'
        ],
    ),
    "a size that is no whole number of bytes": (
        {"workload.factors.size": ["0.5 B"]},
        ['workload.factors.size[0]: expected a whole number of bytes, found "0.5 B" (0.5 B); round the size'],
    ),
    "a size that is truth": (
        {"workload.factors.size": [True]},
        ['workload.factors.size[0]: expected a size such as "100 MB", found true'],
    ),
    "a size that is a list": (
        {"workload.factors.size": [["1 MB"]]},
        ['workload.factors.size[0]: expected a size such as "100 MB", found ["1 MB"]'],
    ),
    "no sizes": (
        {"workload.factors": {"files": [1]}},
        ['workload.factors.size: expected a list of sizes such as ["100 MB"], found nothing'],
    ),
    "an empty list": (
        {"workload.factors.files": []},
        ["workload.factors.files: expected a list with a value or more, found an empty list"],
    ),
    "a value in place of a list": (
        {"workload.factors.files": 4},
        ["workload.factors.files: expected a list such as [4], found 4"],
    ),
    "zero files": (
        {"workload.factors.files": [0, 1]},
        ["workload.factors.files[0]: expected a whole number from 1 to 10000, found 0"],
    ),
    "a number of files as text": (
        {"workload.factors.files": ["1"]},
        ['workload.factors.files[0]: expected a whole number from 1 to 10000, found "1"'],
    ),
    "too many files": (
        {"workload.factors.files": [1, 1000000]},
        ["workload.factors.files[1]: expected a whole number from 1 to 10000, found 1000000"],
    ),
    "a value that stands twice": (
        {"workload.factors.files": [1, 2, 1]},
        ["workload.factors.files[2]: expected distinct values, found 1 a second time (first at [0])"],
    ),
    "one size written in two ways": (
        {"workload.factors.size": ["100 MB", "0.1 GB"]},
        ['workload.factors.size[1]: expected distinct values, found "0.1 GB" a second time (first at [0])'],
    ),
    "an unknown factor": (
        {"workload.factors.fiels": [1]},
        [
            'workload.factors.fiels: expected one of the factors: files, size, mover, source, destination, cache, client, source_service, destination_service, direction, files_per_call, fsync, reflink, found "fiels"; did you mean files?'
        ],
    ),
    "factors that are no table": ({"workload.factors": [1, 2]}, ["workload.factors: expected a table, found [1, 2]"]),
    "an unknown mover among the factors": (
        {"workload.mover": GONE, "workload.factors.mover": ["cp", "xcp"]},
        [f'workload.factors.mover[1]: expected one of the movers: {MOVERS}, found "xcp"; did you mean cp?'],
    ),
    "an unknown storage among the factors": (
        {"workload.source": GONE, "workload.factors.source": ["gpfs", "temp"]},
        ['workload.factors.source[1]: expected one of the storages: gpfs, tmp, far, found "temp"; did you mean tmp?'],
    ),
    "an unknown option": (
        {"workload.options": {"fsyn": True}},
        [
            'workload.options.fsyn: expected one of the options of cp: fsync, reflink, found "fsyn"; did you mean fsync?'
        ],
    ),
    "an option of the wrong type": (
        {"workload.options": {"fsync": "yes"}},
        ['workload.options.fsync: expected true or false, found "yes"'],
    ),
    "an option that is not of its choices": (
        {"workload.options": {"reflink": "always"}},
        ['workload.options.reflink: expected "auto" or "never", found "always"'],
    ),
    "an option without its unit": (
        {"workload.mover": "read", "workload.options": {"block": 4096}},
        ['workload.options.block: expected a size such as "100 MB", found 4096'],
    ),
    "a block of nothing": (
        {"workload.mover": "read", "workload.options": {"block": "0 B"}},
        ['workload.options.block: expected a size of at least "1 B", found "0 B"'],
    ),
    "an option as a factor with a wrong value": (
        {"workload.factors.fsync": [True, 1]},
        ["workload.factors.fsync[1]: expected true or false, found 1"],
    ),
    "an option that one of the movers does not have": (
        {"workload.mover": GONE, "workload.factors.mover": ["cp", "read"], "workload.factors.fsync": [True, False]},
        [
            "workload.factors.fsync: expected a factor that every mover uses, found read with equal calls for true and false; exclude one with workload.sweep.filter"
        ],
    ),
    "a zip of unequal lengths": (
        {"workload.factors.files": [1, 2, 3], "workload.sweep": {"zip": [["files", "size"]]}},
        ["workload.sweep.zip[0]: expected lists of one length, found files with 3, size with 2"],
    ),
    "a zip of an unknown factor": (
        {"workload.sweep": {"zip": [["files", "sizes"]]}},
        ['workload.sweep.zip[0]: expected one of the factors: files, size, found "sizes"; did you mean size?'],
    ),
    "a zip of none": (
        {"workload.sweep": {"zip": [[]]}},
        ["workload.sweep.zip[0]: expected two factors or more, found 0"],
    ),
    "a zip of one": (
        {"workload.sweep": {"zip": [["files"]]}},
        ["workload.sweep.zip[0]: expected two factors or more, found 1"],
    ),
    "a factor in two zips": (
        {
            "workload.factors.cache": ["cold", "warm"],
            "workload.sweep": {"zip": [["files", "size"], ["files", "cache"]]},
        },
        ["workload.sweep.zip[1]: expected each factor in one group once, found files again"],
    ),
    "a filter that is no expression": (
        {"workload.sweep": {"filter": ["files *"]}},
        ['workload.sweep.filter[0]: expected a comparison such as "files * size <= \'20 GB\'", found "files *"'],
    ),
    "a filter with an unknown name": (
        {"workload.sweep": {"filter": ["fils > 1"]}},
        ['workload.sweep.filter[0]: expected one of the factors: files, size, found "fils"; did you mean files?'],
    ),
    "a filter that is a number": (
        {"workload.sweep": {"filter": ["files + 1"]}},
        ['workload.sweep.filter[0]: expected a comparison, true or false, found a bare number (2): "files + 1"'],
    ),
    "a filter that calls a function": (
        {"workload.sweep": {"filter": ["__import__('os')"]}},
        [
            "workload.sweep.filter[0]: expected factors, numbers, quoted quantities, + - * /, comparisons, and, or, not, found \"__import__('os')\""
        ],
    ),
    "a filter that compares a size with a number": (
        {"workload.sweep": {"filter": ["size < 100"]}},
        ["workload.sweep.filter[0]: expected two quantities of one kind, found a size and a bare number"],
    ),
    "a filter that compares a size with a time": (
        {"workload.sweep": {"filter": ["size < '10 s'"]}},
        ["workload.sweep.filter[0]: expected two quantities of one kind, found a size and a time"],
    ),
    "a filter that compares a word with a number": (
        {"workload.sweep": {"filter": ["files == 'one'"]}},
        [
            'workload.sweep.filter[0]: expected two values that can be compared, found a bare number (1) and the word "one"'
        ],
    ),
    "a filter that divides by zero": (
        {"workload.sweep": {"filter": ["1 / (files - 1) > 0"]}},
        [
            'workload.sweep.filter[0]: expected an expression that can be computed, found a division by 0 in "1 / (files - 1) > 0"'
        ],
    ),
    "a filter that leaves nothing": (
        {"workload.sweep": {"filter": ["files > 10"]}},
        ["workload.sweep.filter: expected at least one point that passes all filters, found none"],
    ),
    "filters that are one text": (
        {"workload.sweep": {"filter": "files > 1"}},
        [
            'workload.sweep.filter: expected a list, found "files > 1"; write a list in brackets, such as ["files > 1"]'
        ],
    ),
    "data by memory on a host without": (
        {"workload.source": "far", "workload.destination": "far", "workload.data_at_least": "2 x memory"},
        [
            'testbed.host.node2.memory: expected its memory, such as "16 GiB" (workload.data_at_least asks for it), found nothing'
        ],
    ),
    "data by a word": (
        {"workload.data_at_least": "much"},
        ['workload.data_at_least: expected a size such as "100 GB", or "2 x memory", found "much"'],
    ),
    "data of too many files": (
        {"workload.repeat": 1000000, "workload.factors.size": ["1 kB"], "workload.data_at_least": "2 x memory"},
        ["workload.data_at_least: expected at most 1000000 files a data set, found 3000000 files of 1 kB"],
    ),
    "a destination on another host": (
        {"workload.destination": "far"},
        [
            "workload.destination: expected a storage on node1, where gpfs is (cp moves files within one host), found far on node2"
        ],
    ),
    "a mover that would replace the null device": (
        {"workload.mover": "rsync", "workload.destination": "null"},
        ['workload.destination: expected a storage (rsync might replace /dev/null itself), found "null"'],
    ),
    "a sampling interval that is a number": (
        {"measure": {"interval": 0.1}},
        ['measure.interval: expected a time such as "100 ms", or "off", found 0.1'],
    ),
    "a sampling interval of zero": (
        {"measure": {"interval": "0 s"}},
        ['measure.interval: expected a time above 0, or "off", found "0 s"'],
    ),
    "an unknown counter": (
        {"measure": {"counters": ["cpu", "gpu"]}},
        ['measure.counters[1]: expected "cpu", "disk", "memory", "nic", "pressure", "process" or "tcp", found "gpu"'],
    ),
    "a counter that stands twice": (
        {"measure": {"counters": ["cpu", "cpu"]}},
        ['measure.counters: expected distinct values, found "cpu" 2 times'],
    ),
    "a confidence of one": ({"analyse": {"confidence": 1}}, ["analyse.confidence: expected less than 1, found 1"]),
    "an analysis against an unknown factor": (
        {"analyse": {"against": ["files", "streams"]}},
        ['analyse.against[1]: expected one of the factors: files, size, found "streams"'],
    ),
    "families that are a number": (
        {"analyse": {"families": 3}},
        ['analyse.families: expected "all" or a list of names, found 3'],
    ),
    "a family that does not exist": (
        {"analyse": {"families": ["power", "lineer"]}},
        [
            f'analyse.families: expected one of the families: {", ".join(FAMILY_NAMES)}, found "lineer"; did you mean linear?'
        ],
    ),
    "a storage beside the scratch directory": (
        {"testbed.storage.gpfs.path": "data/../../elsewhere"},
        [
            'testbed.storage.gpfs.path: expected a path below the scratch directory, or one that begins with /, found "data/../../elsewhere"'
        ],
    ),
    "a storage that a shell would find": (
        {"testbed.storage.gpfs.path": "~/data"},
        ['testbed.storage.gpfs.path: expected a path written out, for no shell reads it, found "~/data"'],
    ),
    "an unknown criterion": (
        {"analyse": {"criterion": "bic"}},
        ['analyse.criterion: expected "aicc", "r2", "adjusted_r2" or "cross_validation", found "bic"'],
    ),
    "a tool with the name of a mover": (
        {"mover": {"cp": {"argv": ["cp", "{source}", "{destination}"]}}},
        ["mover.cp: expected a name that is free, found cp, a mover of Venturi"],
    ),
    "a tool without a command": (
        {"mover": {"tool": {"argv": []}}},
        ["mover.tool.argv: expected a command, found an empty list"],
    ),
    "a tool with an unknown placeholder": (
        {"mover": {"tool": {"argv": ["tool", "{sorce}"]}}},
        [f"mover.tool.argv[1]: expected one of the placeholders {STORAGES}, found sorce; did you mean source?"],
    ),
    "a tool that names a size without its unit": (
        {"mover": {"tool": {"argv": ["tool", ["-w", "{window}"], "{source}"], "options": {"window": "size"}}}},
        [
            f"mover.tool.argv[1]: expected one of the placeholders {STORAGES}, window_bytes, found window; did you mean window_bytes?"
        ],
    ),
    "a tool with an open brace": (
        {"mover": {"tool": {"argv": ["tool", "{source"]}}},
        ['mover.tool.argv[1]: expected placeholders such as "{source}" ({{ and }} are braces), found "{source"'],
    ),
    "a tool with a number in its command": (
        {"mover": {"tool": {"argv": ["tool", 3]}}},
        ["mover.tool.argv[1]: expected a text or a list of texts, found 3"],
    ),
    "a tool with an option of no kind": (
        {"mover": {"tool": {"argv": ["tool"], "options": {"streams": "int"}}}},
        [
            'mover.tool.options.streams: expected "boolean", "integer", "rate", "size", "text", "time" or a list of texts to choose from, found "int"'
        ],
    ),
    "a tool with an option named as a factor": (
        {"mover": {"tool": {"argv": ["tool"], "options": {"size": "size"}}}},
        [
            "mover.tool.options.size: expected a name other than files, size, mover, cache, source, destination, client, source_service, destination_service, direction, files_per_call and the placeholders, found size"
        ],
    ),
    "an unknown mover with an option that it may have": (
        {"workload.mover": "xcp", "workload.options": {"power": 3}, "workload.factors.beam": [1]},
        [f'workload.mover: expected one of the movers: {MOVERS}, found "xcp"; did you mean cp?'],
    ),
    "a scale beyond all measure": ({"scale": 1e300}, ["scale: expected 1000 or less, found 1e+300"]),
    "more bytes than can be counted": (
        {"workload.factors.size": ["5 EB"]},
        ['workload.factors.size[0]: expected a size such as "100 MB" or "1 MiB", found "5 EB"'],
    ),
    "more bytes in all than can be counted": (
        {"workload.factors.size": ["5000 PB"]},
        ["workload.factors.size: expected at most 8 EiB moved in all, found 3e+04 PB"],
    ),
    "several mistakes at once": (
        {
            "workload.repeat": 0,
            "workload.factors.size": ["10 MB", 5],
            "testbed.storage.gpfs.host": "nod1",
            "workload.sweep": {"filter": ["size < 5"]},
            "analyse": {"confidence": 2},
        },
        [
            "workload.repeat: expected 1 or more, found 0",
            "analyse.confidence: expected less than 1, found 2",
            'testbed.storage.gpfs.host: expected one of the hosts: node1, node2, found "nod1"; did you mean node1?',
            'workload.factors.size[1]: expected a size such as "100 MB", found 5',
        ],
    ),
}


def document(edits: dict[str, Any]) -> dict[str, Any]:
    """Return the valid scenario with the values at dotted paths replaced."""
    result = copy.deepcopy(GOOD)
    for path, value in edits.items():
        *tables, last = path.split(".")
        table = result
        for key in tables:
            table = table.setdefault(key, {})
        if value is GONE:
            del table[last]
        else:
            table[last] = value
    return result


def details(line: str) -> tuple[object, ...]:
    """Return the facts of a message: location, quoted texts and numbers of the expected value, found value, suggestion."""
    where, _, message = line.partition("expected ")
    expected, _, found = message.rpartition(", found ")
    suggested = re.search(r"did you mean ([^?]+)\?", line)
    return where, set(re.findall(r'"[^"]*"|\d[\w.]*', expected)), found.partition("; ")[0], suggested and suggested[1]
