"""Invalid testbeds as replaced values of the valid one below (``GONE``: removed), with the expected messages."""

from __future__ import annotations

import copy
from typing import Any

from venturi.testbed.services.table import SERVICES

GONE = object()
KINDS = ", ".join(SERVICES)

GOOD: dict[str, Any] = {
    "venturi": 1,
    "name": "good",
    "testbed": {
        "host": {"a": {}, "b": {}, "c": {}, "island": {}},
        "router": {"core": {}},
        "link": {
            "a-core": {"between": ["a", "core"], "rate": "10 Gb/s", "delay": "5 ms"},
            "b-core": {"between": ["b", "core"], "rate": "10 Gb/s", "rtt": "10 ms", "queue": "1 BDP"},
            "c-core": {"between": ["c", "core"], "rate": ["28 Mb/s", "16 Mb/s"], "loss": 0.0001},
        },
        "storage": {
            "disk": {"host": "a", "path": "data", "kind": "disk", "size": "4 GB", "read_rate": "500 MB/s"},
            "far": {"host": "b", "path": "data"},
            "cut": {"host": "island", "path": "data"},
        },
        "service": {
            "ftp-a": {"kind": "gridftp", "host": "a", "storage": ["disk"]},
            "ftp-b": {"kind": "gridftp", "host": "b", "storage": ["far"]},
        },
    },
    "workload": {
        "kind": "sweep",
        "mover": "globus-url-copy",
        "source": "disk",
        "destination": "far",
        "factors": {"files": [1, 2], "size": ["10 MB", "100 MB"]},
    },
}

EDITS: dict[str, dict[str, Any]] = {
    "a link to an unknown host": {"testbed.link.a-core.between": ["d", "core"]},
    "a link with one end": {"testbed.link.a-core.between": ["core"]},
    "a link to itself": {"testbed.link.a-core.between": ["a", "a.eth1"]},
    "a link to a device of no known form": {"testbed.link.a-core.between": ["a.lan0", "core"]},
    "an interface with two links": {
        "testbed.link.a-core.between": ["a.eth0", "core"],
        "testbed.link.more": {"between": ["a.eth0", "core"], "rate": "1 Gb/s"},
    },
    "a router with the name of a host": {"testbed.router.a": {}},
    "a link without a rate": {"testbed.link.a-core.rate": GONE},
    "a rate without a unit": {"testbed.link.a-core.rate": 10},
    "three rates": {"testbed.link.a-core.rate": ["1 Gb/s", "2 Gb/s", "3 Gb/s"]},
    "a rate back without a unit": {"testbed.link.a-core.rate": ["1 Gb/s", 2]},
    "a rate of nothing": {"testbed.link.a-core.rate": "0 b/s"},
    "a delay as a number": {"testbed.link.a-core.delay": 5},
    "a delay of hours": {"testbed.link.a-core.delay": "2 h"},
    "a delay and a round-trip time": {"testbed.link.a-core.rtt": "10 ms"},
    "a queue as a number": {"testbed.link.a-core.queue": 100},
    "a queue in seconds": {"testbed.link.a-core.queue": "10 ms"},
    "a queue of no product": {"testbed.link.a-core.queue": "0 BDP"},
    "a loss above one": {"testbed.link.a-core.loss": 1.5},
    "a loss in per cent": {"testbed.link.a-core.loss": "1 %"},
    "bursts without an end": {"testbed.link.a-core.loss": {"enter": 0.1}},
    "bursts of an unknown key": {"testbed.link.a-core.loss": {"enter": 0.1, "exit": 0.1}},
    "bursts that lose twice": {"testbed.link.a-core.loss": {"enter": 0.1, "leave": 0.1, "probability": 2}},
    "reordering as a text": {"testbed.link.a-core.reorder": "some"},
    "an MTU too small": {"testbed.link.a-core.mtu": 100},
    "an MTU between routers": {
        "testbed.router.edge": {},
        "testbed.link.up": {"between": ["core", "edge"], "rate": "1 Gb/s", "mtu": 9000},
    },
    "a private end that is elsewhere": {"testbed.link.a-core.private": ["b"]},
    "private and public in one network": {"testbed.link.a-core.private": ["a"]},
    "an unknown key of a link": {"testbed.link.a-core.latency": "5 ms"},
    "a change of an unknown link": {"testbed.change": [{"at": "1 s", "link": "a-cor", "up": False}]},
    "a change of nothing": {"testbed.change": [{"at": "1 s", "link": "a-core"}]},
    "a change without a time": {"testbed.change": [{"link": "a-core", "up": False}]},
    "a change with an unknown key": {"testbed.change": [{"at": "1 s", "link": "a-core", "rat": "1 Gb/s"}]},
    "two rates for one direction": {"testbed.change": [{"at": "1 s", "link": "a>core", "rate": ["1 Gb/s", "2 Gb/s"]}]},
    "changes that are a table": {"testbed.change": {"at": "1 s"}},
    "a host reached in two ways": {"testbed.host.a.ssh": "user@a", "testbed.host.a.connect": ["srun"]},
    "an empty ssh destination": {"testbed.host.a.ssh": ""},
    "an ssh destination that is an option": {"testbed.host.a.ssh": "-oProxyCommand=id"},
    "a connection as one text": {"testbed.host.a.connect": "podman exec -i dtn"},
    "a connection without words": {"testbed.host.a.connect": []},
    "an address with a port": {"testbed.host.a.address": "a.example.org:22"},
    "a URL as an address": {"testbed.host.a.address": "ftp://a"},
    "open ports as a number": {"testbed.host.a.open_ports": 50000},
    "open ports in the wrong order": {"testbed.host.a.open_ports": "50100-50000"},
    "a cache below the home directory": {"testbed.host.a.cache": "~/cache"},
    "a secret in a variable": {"testbed.host.a.environment": {"BEARER_TOKEN": "eyJhbGciOi"}},
    "a variable with a space": {"testbed.host.a.environment": {"MY VAR": "1"}},
    "a variable that is a number": {"testbed.host.a.environment": {"N": 1}},
    "a server without a host": {"testbed.service.more": {"kind": "iperf3"}},
    "an existing server on a host": {"testbed.service.more": {"kind": "iperf3", "host": "a", "url": "tcp://p.org:5201"}},
    "an existing server with ports": {"testbed.service.more": {"kind": "iperf3", "ports": 2, "url": "tcp://p.org:5201"}},
    "a server URL without a scheme": {"testbed.service.more": {"kind": "iperf3", "url": "p.org:5201"}},
    "a server URL with a password": {
        "testbed.service.more": {"kind": "gridftp", "url": "ftp://me:secret@p.org/d", "storage": ["far"]},
    },
    "a server URL of another protocol": {"testbed.service.more": {"kind": "iperf3", "url": "gopher://p.org"}},
    "an existing file server without storages": {"testbed.service.more": {"kind": "nginx", "url": "https://p.org/d"}},
    "a service that needs an existing server": {
        "testbed.service.far-door": {"kind": "gridftp", "url": "gsiftp://p.org/d", "storage": ["disk"]},
        "testbed.service.more": {"kind": "srm", "host": "a", "storage": ["disk"], "options": {"doors": "far-door"}},
    },
    "a host name with capitals": {"testbed.host.A": {}},
    "a host name like that of an interface": {"testbed.host.a-eth1": {}},
    "cores that are no list": {"testbed.host.a.cpus": 2},
    "a core below the first": {"testbed.host.a.cpus": [-1]},
    "no cores at all": {"testbed.host.a.cpu_limit": 0},
    "a memory limit without a unit": {"testbed.host.a.memory_limit": 2},
    "an unknown TCP profile": {"testbed.host.a.tcp": "wam"},
    "a TCP profile that there is": {"testbed.tcp.wan": {"net.ipv4.tcp_sack": 0}},
    "a setting of the whole machine": {"testbed.tcp.mine": {"net": {"core": {"rmem_max": 1}}}},
    "a setting of no network": {"testbed.tcp.mine": {"vm.swappiness": 1}},
    "congestion control as a setting": {"testbed.tcp.mine": {"net.ipv4.tcp_congestion_control": "reno"}},
    "a setting that is a list": {"testbed.tcp.mine": {"net.ipv4.tcp_rmem": [4096, 1, 2]}},
    "NAT towards an unknown router": {"testbed.host.a.nat": ["cor"]},
    "NAT for nobody": {"testbed.host.a.nat": ["core"]},
    "NAT within one network": {
        "testbed.host.a.nat": ["a-core"],
        "testbed.link.again": {"between": ["a", "core"], "rate": "1 Gb/s"},
    },
    "an unknown kind of storage": {"testbed.storage.disk.kind": "floppy"},
    "a disk without a size": {"testbed.storage.disk.size": GONE},
    "a throttled directory": {"testbed.storage.disk.kind": "directory"},
    "a disk with a path of its own": {"testbed.storage.disk.path": "/data"},
    "a storage shared with nobody": {"testbed.storage.disk.shared": ["d"]},
    "an unknown kind of service": {"testbed.service.ftp-a.kind": "gridfpt"},
    "a service on an unknown host": {"testbed.service.ftp-a.host": "d"},
    "a service of an unknown storage": {"testbed.service.ftp-a.storage": ["disc"]},
    "a service of a storage elsewhere": {"testbed.service.ftp-a.storage": ["far"]},
    "a service on an unknown interface": {"testbed.service.ftp-a.interface": "eth1"},
    "a service after an unknown one": {"testbed.service.ftp-a.after": ["kdc"]},
    "an unknown option of a service": {"testbed.service.ftp-a.options": {"auht": "gsi"}},
    "an option of a service that is no choice": {"testbed.service.ftp-a.options": {"auth": "GSI"}},
    "an option of a service without a unit": {"testbed.service.ftp-a.options": {"block": 4096}},
    "a service that needs an unknown one": {"testbed.service.ftp-a.options": {"data_nodes": "node1"}},
    "a data node that is none": {"testbed.service.ftp-a.options": {"data_nodes": "ftp-b"}},
    "a server with nothing to serve": {"testbed.service.more": {"kind": "nginx", "host": "a"}},
    "Kerberos without a centre": {
        "testbed.service.more": {"kind": "xrootd", "host": "a", "storage": ["disk"], "options": {"auth": "krb5"}},
    },
    "Kerberos of a server of files": {
        "testbed.service.more": {
            "kind": "xrootd", "host": "a", "storage": ["disk"], "options": {"auth": "krb5", "kdc": "ftp-b"},
        },
    },
    "a proxy without an origin": {"testbed.service.more": {"kind": "xrootd-proxy", "host": "a", "storage": ["disk"]}},
    "a redirector that is none": {
        "testbed.service.more": {"kind": "xrootd", "host": "a", "storage": ["disk"], "options": {"redirector": "ftp-b"}},
    },
    "cores by name": {"testbed.service.more": {"kind": "squid", "host": "a", "options": {"cpus": "first"}}},
    "chunks without a master": {
        "testbed.service.more": {"kind": "moosefs-chunkserver", "host": "a", "storage": ["disk"]},
    },
    "a door that does not serve the storage": {
        "testbed.service.more": {"kind": "srm", "host": "a", "storage": ["disk"], "options": {"doors": "ftp-b"}},
    },
    "storage without a door": {"testbed.service.more": {"kind": "srm", "host": "a", "storage": ["disk"]}},
    "services that wait for each other": {"testbed.service.ftp-a.after": ["ftp-b"], "testbed.service.ftp-b.after": ["ftp-a"]},
    "no ports": {"testbed.service.ftp-a.ports": 0},
    "a port twice": {"testbed.service.ftp-a.ports": [2811, 2811]},
    "two services on one port": {
        "testbed.service.ftp-a.ports": [2811],
        "testbed.service.more": {"kind": "gridftp", "host": "a", "ports": [2811]},
    },
    "an unknown client": {"workload.client": "d"},
    "an unknown service at the source": {"workload.source_service": "ftp"},
    "a service that serves another storage": {"workload.source_service": "ftp-b"},
    "an unknown direction": {"workload.direction": "both"},
    "no file a call": {"workload.files_per_call": 0},
    "many files for a tool that takes one": {"workload.mover": "curl", "workload.files_per_call": 10},
    "a tool that stays on its host": {"workload.mover": "cp"},
    "a service for a tool that speaks to none": {"workload.mover": "cp", "workload.destination_service": "ftp-b"},
    "a tool that speaks another protocol": {"workload.mover": "xrdcp"},
    "a service that speaks another protocol": {"workload.mover": "xrdcp", "workload.destination_service": "ftp-b"},
    "two services for one storage": {
        "testbed.service.more": {"kind": "gridftp", "host": "b", "storage": ["far"]},
    },
    "hosts without a way between": {"workload.client": "island"},
    "services without a way between": {
        "testbed.service.ftp-c": {"kind": "gridftp", "host": "island", "storage": ["cut"]},
        "workload.destination": "cut",
    },
    "a test of the network from nowhere": {"workload.mover": "iperf3", "workload.source": GONE, "workload.destination": GONE},
    "a test of the network with nobody": {
        "workload.mover": "iperf3", "workload.source": GONE, "workload.destination": GONE, "workload.client": "a",
    },
    "two ways into nothing": {"workload.direction": "two ways", "workload.destination": "null"},
    "zeros without end": {"workload.source": "zero", "workload.client": "a"},
    "clients that do not matter": {
        "workload.mover": "cp", "workload.destination": "disk", "workload.factors.client": ["a", "b"],
    },
    "several mistakes of a testbed at once": {
        "testbed.link.a-core.rate": "fast",
        "testbed.link.b-core.between": ["b", "cor"],
        "testbed.host.c.tcp": "wam",
        "testbed.service.ftp-b.options": {"auht": "gsi"},
        "workload.client": "d",
    },
}  # fmt: skip


MESSAGES: dict[str, list[str]] = {
    "a link to an unknown host": [
        'testbed.link.a-core.between[0]: expected one of the hosts and routers: a, b, c, island, core, found "d"',
    ],
    "a link with one end": [
        'testbed.link.a-core.between: expected two names such as ["a", "core"], found ["core"]',
    ],
    "a link to itself": [
        "testbed.link.a-core.between: expected two different ends, found a at both",
    ],
    "a link to a device of no known form": [
        'testbed.link.a-core.between[0]: expected an interface such as a.eth0, found "a.lan0"',
    ],
    "an interface with two links": [
        "testbed.link.more.between[0]: expected an interface with one link, found a.eth0 in a-core, too",
    ],
    "a router with the name of a host": [
        "testbed.router.a: expected a name that no host uses, found a",
    ],
    "a link without a rate": [
        "testbed.link.a-core.rate: expected a value (of each direction), found nothing",
    ],
    "a rate without a unit": [
        'testbed.link.a-core.rate: expected a rate such as "10 Gb/s", found 10',
    ],
    "three rates": [
        'testbed.link.a-core.rate: expected a rate such as "10 Gb/s", or two of them (there, back), found ["1 Gb/s", "2 Gb/s", "3 Gb/s"]',
    ],
    "a rate back without a unit": [
        'testbed.link.a-core.rate: expected a rate such as "10 Gb/s", found 2',
    ],
    "a rate of nothing": [
        'testbed.link.a-core.rate: expected a rate above 0, found "0 b/s"',
    ],
    "a delay as a number": [
        'testbed.link.a-core.delay: expected a time such as "10 s", found 5',
    ],
    "a delay of hours": [
        'testbed.link.a-core.delay: expected a time of 1 h at most, found "2 h"',
    ],
    "a delay and a round-trip time": [
        "testbed.link.a-core.rtt: expected delay (one way) or rtt (both ways), found both",
    ],
    "a queue as a number": [
        'testbed.link.a-core.queue: expected a size such as "1 MB", or "1 BDP", found 100',
    ],
    "a queue in seconds": [
        'testbed.link.a-core.queue: expected a size such as "1 MB", or "1 BDP", found "10 ms"',
    ],
    "a queue of no product": [
        'testbed.link.a-core.queue: expected a size such as "1 MB", or "1 BDP", found "0 BDP"',
    ],
    "a loss above one": [
        "testbed.link.a-core.loss: expected a probability from 0 to 1, or a table with enter, leave and probability, found 1.5",
    ],
    "a loss in per cent": [
        'testbed.link.a-core.loss: expected a probability from 0 to 1, or a table with enter, leave and probability, found "1 %"',
    ],
    "bursts without an end": [
        "testbed.link.a-core.loss: expected a probability above 0 and up to 1 under leave, found nothing",
    ],
    "bursts of an unknown key": [
        'testbed.link.a-core.loss: expected the keys enter, leave and probability, found "exit"',
    ],
    "bursts that lose twice": [
        "testbed.link.a-core.loss: expected a probability from 0 to 1 under probability, found 2",
    ],
    "reordering as a text": [
        'testbed.link.a-core.reorder: expected a probability from 0 to 1, found "some"',
    ],
    "an MTU too small": [
        "testbed.link.a-core.mtu: expected 576 or more, found 100",
    ],
    "an MTU between routers": [
        "testbed.link.up.mtu: expected mtu only on links of a host (routers forward packets of any length), found 9000",
    ],
    "a private end that is elsewhere": [
        'testbed.link.a-core.private[0]: expected one of the hosts at its ends: a, found "b"',
    ],
    "private and public in one network": [
        "testbed.link.b-core.private: expected only private addresses in a network with any (a.eth0 is in the same one and private), found b.eth0 public; add b here, or connect the two networks by a host with nat",
        "testbed.link.c-core.private: expected only private addresses in a network with any (a.eth0 is in the same one and private), found c.eth0 public; add c here, or connect the two networks by a host with nat",
    ],
    "an unknown key of a link": [
        "testbed.link.a-core.latency: expected one of the keys between, rate, delay, rtt, jitter, queue, loss, reorder, mtu, overhead, offload, private, found latency",
    ],
    "a change of an unknown link": [
        'testbed.change[0].link: expected one of the links: a-core, b-core, c-core, a>core, core>a, b>core, core>b, c>core, core>c, found "a-cor"; did you mean a-core?',
    ],
    "a change of nothing": [
        "testbed.change[0]: expected at least one setting to change (rate, delay, jitter, queue, loss, reorder, up), found none",
    ],
    "a change without a time": [
        "testbed.change[0].at: expected a value (when, counted from the start of the run), found nothing",
    ],
    "a change with an unknown key": [
        "testbed.change[0].rat: expected one of the keys at, link, rate, delay, jitter, queue, loss, reorder, up, found rat; did you mean rate?",
    ],
    "two rates for one direction": [
        "testbed.change[0].rate: expected one value for one direction (a>core), found two",
    ],
    "changes that are a table": [
        "testbed.change: expected a list, found a table",
    ],
    "a host reached in two ways": [
        "testbed.host.a.connect: expected ssh or connect, found both",
    ],
    "an empty ssh destination": [
        'testbed.host.a.ssh: expected an ssh destination such as user@host, found ""',
    ],
    "an ssh destination that is an option": [
        'testbed.host.a.ssh: expected an ssh destination such as user@host, found "-oProxyCommand=id"',
    ],
    "a connection as one text": [
        'testbed.host.a.connect: expected the words of a command that starts a program on the host, such as ["podman", "exec", "-i", "dtn"], found "podman exec -i dtn"',
    ],
    "a connection without words": [
        'testbed.host.a.connect: expected the words of a command that starts a program on the host, such as ["podman", "exec", "-i", "dtn"], found []',
    ],
    "an address with a port": [
        'testbed.host.a.address: expected a host name or an IP address without port and scheme, found "a.example.org:22"',
    ],
    "a URL as an address": [
        'testbed.host.a.address: expected a host name or an IP address without port and scheme, found "ftp://a"',
    ],
    "open ports as a number": [
        'testbed.host.a.open_ports: expected a range of ports such as "50000-50100", found 50000',
    ],
    "open ports in the wrong order": [
        'testbed.host.a.open_ports: expected a range of ports such as "50000-50100", found "50100-50000"',
    ],
    "a cache below the home directory": [
        'testbed.host.a.cache: expected the full path of a directory of the host, found "~/cache"',
    ],
    "a secret in a variable": [
        "testbed.host.a.environment: expected no secret in BEARER_TOKEN (Venturi stores the scenario with the run), found a literal value",
    ],
    "a variable with a space": [
        'testbed.host.a.environment: expected names of letters, digits and _, found "MY VAR"',
    ],
    "a variable that is a number": [
        "testbed.host.a.environment.N: expected a text, found 1",
    ],
    "a server without a host": [
        "testbed.service.more.host: expected the host of the service, or the url of an existing server, found neither",
    ],
    "an existing server on a host": [
        "testbed.service.more.host: expected no host with url (Venturi does not start the server), found one",
    ],
    "an existing server with ports": [
        "testbed.service.more.ports: expected the port in url, found ports",
    ],
    "a server URL without a scheme": [
        'testbed.service.more.url: expected the URL of a server, such as "tcp://perf.example.org:5201", found "p.org:5201"',
    ],
    "a server URL with a password": [
        "testbed.service.more.url: expected a URL without password, query and fragment (Venturi stores the scenario with the run), found one",
    ],
    "a server URL of another protocol": [
        'testbed.service.more.url: expected a URL with one of the schemes tcp, davs, ftp, gsiftp, http, https, root, roots, sftp, ssh, xroot, xroots, found "gopher://p.org"',
    ],
    "an existing file server without storages": [
        "testbed.service.more.storage: expected the storages whose files this server serves, found none",
    ],
    "a service that needs an existing server": [
        "testbed.service.more.options: expected a service that Venturi starts, found far-door, an existing server",
    ],
    "a host name with capitals": [
        'testbed.host.A: expected a name of small letters, digits and - (it becomes a host name of the lab; NAME-eth1 is the name of an interface), found "A"',
    ],
    "a host name like that of an interface": [
        'testbed.host.a-eth1: expected a name of small letters, digits and - (it becomes a host name of the lab; NAME-eth1 is the name of an interface), found "a-eth1"',
    ],
    "cores that are no list": [
        "testbed.host.a.cpus: expected a list, found 2; write a list in brackets, such as [2]",
    ],
    "a core below the first": [
        "testbed.host.a.cpus[0]: expected 0 or more, found -1",
    ],
    "no cores at all": [
        "testbed.host.a.cpu_limit: expected more than 0, found 0",
    ],
    "a memory limit without a unit": [
        'testbed.host.a.memory_limit: expected a size such as "100 MB", found 2',
    ],
    "an unknown TCP profile": [
        'testbed.host.a.tcp: expected one of the profiles: default, wan, found "wam"; did you mean wan?',
    ],
    "a TCP profile that there is": [
        "testbed.tcp.wan: expected a new name, found wan, a built-in profile",
    ],
    "a setting of the whole machine": [
        "testbed.tcp.mine: expected a setting of a network namespace, found net.core.rmem_max, which applies to the whole machine",
    ],
    "a setting of no network": [
        "testbed.tcp.mine: expected a setting of a network namespace such as net.ipv4.tcp_rmem, found vm.swappiness",
    ],
    "congestion control as a setting": [
        "testbed.tcp.mine: expected the host key congestion_control instead of net.ipv4.tcp_congestion_control, found net.ipv4.tcp_congestion_control in a profile",
    ],
    "a setting that is a list": [
        'testbed.tcp.mine: expected a text or a whole number such as "4096 131072 33554432" under net.ipv4.tcp_rmem, found [4096, 1, 2]',
    ],
    "NAT towards an unknown router": [
        'testbed.host.a.nat[0]: expected one of the neighbours, links and devices of the host: core, a-core, eth0, found "cor"; did you mean core?',
    ],
    "NAT for nobody": [
        "testbed.host.a.nat: expected a host with a further interface, on a link to the hosts that it hides, found none",
    ],
    "NAT within one network": [
        "testbed.host.a.nat: expected a host between two networks, found a.eth0 and a.eth1 in one network: packets do not need to pass the host",
    ],
    "an unknown kind of storage": [
        'testbed.storage.disk.kind: expected "directory", "tmpfs" or "disk", found "floppy"',
    ],
    "a disk without a size": [
        'testbed.storage.disk.size: expected a size such as "4 GB" (of a disk), found nothing',
    ],
    "a throttled directory": [
        'testbed.storage.disk.kind: expected "tmpfs" or "disk" (because size is set), found "directory"',
        'testbed.storage.disk.kind: expected "disk" (because read_rate is set), found "directory"',
    ],
    "a disk with a path of its own": [
        'testbed.storage.disk.path: expected a relative path (a disk is mounted there), found "/data"',
    ],
    "a storage shared with nobody": [
        'testbed.storage.disk.shared[0]: expected one of the other hosts: b, c, island, found "d"',
    ],
    "an unknown kind of service": [
        f'testbed.service.ftp-a.kind: expected one of the kinds of service: {KINDS}, found "gridfpt"; did you mean gridftp?',
    ],
    "a service on an unknown host": [
        'testbed.service.ftp-a.host: expected one of the hosts: a, b, c, island, found "d"',
    ],
    "a service of an unknown storage": [
        'testbed.service.ftp-a.storage[0]: expected one of the storages: disk, far, cut, found "disc"; did you mean disk?',
    ],
    "a service of a storage elsewhere": [
        "testbed.service.ftp-a.storage[0]: expected a storage of a, found far of b; add a to its shared hosts if both hosts mount it",
    ],
    "a service on an unknown interface": [
        'testbed.service.ftp-a.interface: expected one of the interfaces of a: eth0, lo, found "eth1"; did you mean eth0?',
    ],
    "a service after an unknown one": [
        'testbed.service.ftp-a.after[0]: expected one of the services: ftp-a, ftp-b, found "kdc"',
    ],
    "an unknown option of a service": [
        'testbed.service.ftp-a.options.auht: expected one of the options of gridftp: auth, block, data_nodes, stripe_block, stripe_layout, connections, trace, found "auht"; did you mean auth?',
    ],
    "an option of a service that is no choice": [
        'testbed.service.ftp-a.options.auth: expected "none" or "gsi", found "GSI"',
    ],
    "an option of a service without a unit": [
        'testbed.service.ftp-a.options.block: expected a size such as "1 MiB", found 4096',
    ],
    "a service that needs an unknown one": [
        'testbed.service.ftp-a.options: expected one of the services: ftp-a, ftp-b, found "node1", which this service needs',
    ],
    "a data node that is none": [
        "testbed.service.ftp-a: expected data_nodes to name services of kind gridftp-node, found ftp-b of kind gridftp",
    ],
    "a server with nothing to serve": [
        "testbed.service.more: expected a storage to serve, found none; name one in `storage`",
    ],
    "Kerberos without a centre": [
        'testbed.service.more: expected the option kdc with auth = "krb5", found none; name a kdc service',
    ],
    "Kerberos of a server of files": [
        "testbed.service.more: expected ftp-b to be a service of kind kdc, found gridftp",
    ],
    "a proxy without an origin": [
        "testbed.service.more: expected the option origin, found none; name an xrootd service",
    ],
    "a redirector that is none": [
        "testbed.service.more: expected ftp-b to be a service of kind xrootd-redirector, found gridftp",
    ],
    "cores by name": [
        'testbed.service.more: expected cpus to be numbers of cores such as "0,1", found "first"',
    ],
    "chunks without a master": [
        "testbed.service.more: expected the option master to name a service of kind moosefs-master, found none",
    ],
    "a door that does not serve the storage": [
        "testbed.service.more: expected ftp-b in `doors` to serve disk, found no storage disk; add it to its `storage`",
    ],
    "storage without a door": [
        "testbed.service.more: expected `doors` to name services that transfer its files (gridftp, xrootd), found none",
    ],
    "services that wait for each other": [
        "testbed.service.ftp-a.after: expected services without cyclic dependencies, found ftp-a → ftp-b → ftp-a",
    ],
    "no ports": [
        "testbed.service.ftp-a.ports: expected how many ports (1 to 1000) or a list of distinct port numbers, found 0",
    ],
    "a port twice": [
        "testbed.service.ftp-a.ports: expected how many ports (1 to 1000) or a list of distinct port numbers, found [2811, 2811]",
    ],
    "two services on one port": [
        "testbed.service.more.ports: expected ports that no other service of a has, found 2811",
    ],
    "an unknown client": [
        'workload.client: expected one of the hosts: a, b, c, island, found "d"',
    ],
    "an unknown service at the source": [
        'workload.source_service: expected one of the services: ftp-a, ftp-b, found "ftp"; did you mean ftp-b?',
    ],
    "a service that serves another storage": [
        "workload.source_service: expected one of the services with disk: ftp-a, found ftp-b; storage of a service says what it serves",
    ],
    "an unknown direction": [
        'workload.direction: expected "one way" or "two ways", found "both"',
    ],
    "no file a call": [
        "workload.files_per_call: expected 1 or more, found 0",
    ],
    "many files for a tool that takes one": [
        "workload.files_per_call: expected 1 (curl takes one file a call), found 10",
        "workload.destination_service: expected a service that serves far by http or https (curl on a needs one), found none; add one under testbed.service, or run the mover where the storage is, with client",
    ],
    "a tool that stays on its host": [
        "workload.destination: expected a storage on a, where disk is (cp moves files within one host), found far on b",
    ],
    "a service for a tool that speaks to none": [
        "workload.destination_service: expected none (cp moves files of its own host), found ftp-b",
    ],
    "a tool that speaks another protocol": [
        "workload.destination_service: expected a service that serves far by root or roots (xrdcp on a needs one), found none; add one under testbed.service, or run the mover where the storage is, with client",
    ],
    "a service that speaks another protocol": [
        "workload.destination_service: expected a service that xrdcp can speak with (root, roots), found ftp-b with ftp",
    ],
    "two services for one storage": [
        "workload.destination_service: expected one service that serves far by gsiftp or ftp (globus-url-copy on a needs one), found ftp-b and more; say which",
    ],
    "hosts without a way between": [
        "workload.client: expected a way from island to a for globus-url-copy on island, found none",
    ],
    "services without a way between": [
        "workload.client: expected a way from a to island for globus-url-copy on a, found none (the service of island listens on its loopback interface)",
    ],
    "a test of the network from nowhere": [
        "workload.client: expected the host that iperf3 runs on, found nothing",
    ],
    "a test of the network with nobody": [
        "workload.destination_service: expected a service with iperf3 for iperf3, found none; add one under testbed.service",
    ],
    "two ways into nothing": [
        'workload.direction: expected "one way" (two ways need a mover that copies from storage to storage, and globus-url-copy at this point does not), found "two ways"',
    ],
    "zeros without end": [
        'workload.source: expected a storage, or the option length = true (globus-url-copy would read zeros without end), found "zero"',
    ],
    "clients that do not matter": [
        'workload.factors.client: expected a factor that every mover uses, found cp with equal calls for "a" and "b"; exclude one with workload.sweep.filter',
    ],
    "several mistakes of a testbed at once": [
        'testbed.link.a-core.rate: expected a rate such as "10 Gb/s", found "fast"',
        'testbed.host.c.tcp: expected one of the profiles: default, wan, found "wam"; did you mean wan?',
        'testbed.link.b-core.between[1]: expected one of the hosts and routers: a, b, c, island, core, found "cor"; did you mean core?',
        'testbed.service.ftp-b.options.auht: expected one of the options of gridftp: auth, block, data_nodes, stripe_block, stripe_layout, connections, trace, found "auht"; did you mean auth?',
        'workload.client: expected one of the hosts: a, b, c, island, found "d"',
    ],
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
