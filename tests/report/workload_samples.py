"""Small scenarios, one for each kind of workload, for the simulator."""

_MACHINE = """
[testbed.host.NAME]
site = "NAME"
[testbed.router.r-NAME]
[testbed.link.NAME]
between = ["r-NAME", "core"]
rate = "100 Mb/s"
delay = "2 ms"
[testbed.link.in-NAME]
between = ["NAME", "r-NAME"]
rate = "1 Gb/s"
[testbed.storage.NAME]
host = "NAME"
path = "disk"
[testbed.service.NAME]
kind = "gridftp"
host = "NAME"
storage = ["NAME"]
options = { auth = "none" }
[testbed.service.x-NAME]
kind = "xrootd"
host = "NAME"
storage = ["NAME"]
"""
_TOP = """
venturi = 1
name = "sample"
seed = 1
[testbed.router.core]
""" + "".join(_MACHINE.replace("NAME", name) for name in ("one", "two", "three"))
_SWEEP = """
[workload]
kind = "sweep"
mover = "globus-url-copy"
source = "one"
destination = "two"
destination_service = "two"
repeat = REPEAT
[workload.factors]
"""
_INJECT = """
[workload]
kind = "inject"
mover = "xrdcp"
[workload.flow.export]
source = "one"
destination = ["two", "three"]
rate = "20 Mb/s"
end = "10 s"
size = "2 MB"
"""
_CLIENTS = """
venturi = 1
name = "sample"
seed = 1
testbed.host = { c1 = {}, c2 = {}, s = {}, origin = {} }
testbed.router.core = {}
testbed.link.c1 = { between = ["c1", "core"], rate = "100 Mb/s", delay = "20 ms" }
testbed.link.c2 = { between = ["c2", "core"], rate = "100 Mb/s", delay = "20 ms" }
testbed.link.s0 = { between = ["s", "core"], rate = "100 Mb/s", delay = "10 ms" }
testbed.link.origin = { between = ["origin", "core"], rate = "100 Mb/s" }
testbed.storage.web = { host = "origin", path = "web" }
testbed.service.http = { kind = "nginx", host = "origin", storage = ["web"] }
testbed.service.squid = { kind = "squid", host = "s", options = { instances = 2, all_interfaces = true } }
[workload]
kind = "clients"
source = "web"
size = "50 kB"
clients = 8
duration = "3 s"
ramp = "1 s"
repeat = 2
factors = { mover = ["wget", "http-load"] }
group.both = { services = ["squid"], clients = ["c1", "c2"] }
"""

SAMPLES = {
    "sweep": _TOP + _SWEEP.replace("REPEAT", "4") + 'size = ["1 MB", "10 MB", "50 MB"]\nstreams = [1, 4]\n',
    "one point": _TOP + _SWEEP.replace("REPEAT", "1") + 'size = ["10 MB"]\n',
    "empty files": _TOP + _SWEEP.replace("REPEAT", "3") + 'size = ["0 B"]\nfiles = [1, 2]\n',
    "many points": _TOP + _SWEEP.replace("REPEAT", "3") + 'size = ["1 MB", "2 MB", "5 MB"]\nfiles = [1, 2, 4, 8]\n',
    "dataset": _TOP + """
[workload]
kind = "dataset"
mover = "globus-url-copy"
client = "three"
source = "one"
source_service = "one"
destination = "two"
destination_service = "two"
repeat = 3
[workload.factors]
set = ["small", "large"]
[workload.sets.small]
sizes = ["10 kB", "20 kB"]
files = 10
[workload.sets.large]
sizes = ["5 MB"]
files = 2
""",
    "clients": _CLIENTS,
    "jobs": _TOP + """
[workload]
kind = "jobs"
jobs = [1, 4]
workers = ["two", "three"]
slots = 4
repeat = 2
interval = "0.2 s"
[workload.configuration.near]
storage = ["one"]
service = ["x-one"]
[workload.application.bytes]
mover = "xrdcp"
size = "1 MB"
""",
    "tiers": _TOP + """
[workload]
kind = "tiers"
mover = "globus-url-copy"
events = 24
event_size = "100 kB"
threshold = 0.5
[workload.site]
one = { tier = 1, share = 0.5, link = "one" }
two = { tier = 2, share = 0.5, link = "two" }
three = { link = "three" }
[workload.production]
batch = 12
[workload.jobs]
count = 2
upload = "1 kB"
download = "2 kB"
wait_tier1 = "50 ms"
wait_tier2 = "50 ms"
""",
    "peers": _TOP + """
[workload]
kind = "peers"
mover = "globus-url-copy"
sizes = ["50 kB", "100 kB"]
pause = "50 ms"
duration = "5 s"
[workload.site]
one = { link = "one" }
two = { link = "two" }
three = { link = "three" }
""",
    "inject": _TOP + _INJECT,
    "inject by route": _TOP + _INJECT.replace('mover = "xrdcp"', 'mover = "xrdcp"\nform = "arrivals"') + '[measure]\ntransfers = "routes"\n',
    "replay": _TOP + """
[workload]
kind = "replay"
mover = "xrdcp"
trace = "TRACE"
""",
}  # fmt: skip
"""Kind of workload → scenario."""

TRACE = "start_s,source,destination,size_bytes\n0.0,one,two,2000000\n0.1,one,three,4000000\n0.3,one,two,2000000\n"
"""Trace of the replay."""
