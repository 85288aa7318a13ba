"""The command of a nuttcp client that a busy server does not reject."""

_ATTEMPTS = 6
_SCRIPT = 'for data in PORTS; do nuttcp -fparse "-p$data" "$@" && exit; done; exit 1'


def nuttcp_command(address, port, data_port, *arguments, step=1):
    """Return the command of a client that tries six data ports in turn.

    A client waits only 20 ms for the data port of a server. If it is late, the server continues to wait on this port.
    """
    ports = " ".join(str(data_port + step * number) for number in range(_ATTEMPTS))
    return ["sh", "-c", _SCRIPT.replace("PORTS", ports), "sh", f"-P{port}", *arguments, address]
