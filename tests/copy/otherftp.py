"""A server of FTP that is neither ours nor of the Globus toolkit: pyftpdlib, started as a program, with commands taken away as others lack them.

Its session is one at a time, as the standard has it: a PASV while a transfer is under way closes the connection of that. Words: directory, port, the
address that it tells of itself, commands that it does not know. It tells each command on standard output.
"""

import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer


def main(folder, port, address, *lacking):
    """Serve until killed."""

    class Handler(FTPHandler):
        def pre_process_command(self, line, cmd, arg):
            sys.stdout.write(f"{cmd} {arg}\n")
            sys.stdout.flush()
            super().pre_process_command(line, cmd, arg)

    Handler.proto_cmds = {name: what for name, what in FTPHandler.proto_cmds.items() if name not in lacking}
    Handler.masquerade_address = address
    Handler.authorizer = DummyAuthorizer()
    Handler.authorizer.add_user("user", "sesame", folder, perm="elradfmwMT")
    FTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
