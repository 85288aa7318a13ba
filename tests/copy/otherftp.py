"""An FTP server other than ours and Globus: pyftpdlib, run as a program, without some commands.

A session runs one transfer at a time, as the standard requires: a PASV during a transfer closes its connection.
Arguments: directory, port, the address that the server reports, and commands that it lacks. It prints each command to
standard output. Arguments with ``=`` select other behaviour:

- ``HOLD``: the first transfer nearly stops after this many bytes.
- ``BREAK``: each of the first ``BREAKS`` transfers fails after this many bytes.
- ``REST=deaf``: the server reports a restart, but sends the file from the start.
- ``REST=read``: it restarts only downloads, and does not overwrite files, like ProFTPD.
- ``MDTM=set``: MDTM with two arguments sets a time, as in vsftpd.
"""

import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler, ThrottledDTPHandler
from pyftpdlib.servers import FTPServer


def main(directory, port, address, *words):
    """Serve until killed."""
    lacking = [word for word in words if "=" not in word]
    manners = {"HOLD": 1 << 60, "BREAK": 1 << 60, "BREAKS": 1} | dict(
        word.split("=") for word in words if "=" in word
    )

    class Handler(FTPHandler):
        def pre_process_command(self, line, cmd, arg):
            sys.stdout.write(f"{cmd} {arg}\n")
            sys.stdout.flush()
            time, _, path = arg.partition(" ")
            if cmd == "MDTM" and manners.get("MDTM") == "set" and len(time) == 14 and time.isdecimal():
                self.ftp_MFMT(self.fs.ftp2fs(path), time)
            else:
                super().pre_process_command(line, cmd, arg)

        def ftp_REST(self, line):
            super().ftp_REST(line)
            if manners.get("REST") == "deaf":
                self._restart_position = 0

        def ftp_STOR(self, file, mode="w"):
            if manners.get("REST") == "read":
                if self._restart_position:
                    self._restart_position = 0
                    self.respond("451 Append/Restart not permitted, try again")
                    return None
                if self.fs.lexists(file):
                    self.respond("550 Overwrite permission denied")
                    return None
            return super().ftp_STOR(file, mode)

    class Held(ThrottledDTPHandler):
        started, number = 0, 0

        def __init__(self, *args):
            super().__init__(*args)
            self.number = Held.started
            Held.started += 1

        def limit(self):
            held = self.number == 0 and self.get_transmitted_bytes() > int(manners["HOLD"])
            return 1 if held else 0

        def break_off(self):
            if self.number < int(manners["BREAKS"]) and self.get_transmitted_bytes() > int(manners["BREAK"]):
                self._resp = ("426 Transfer aborted.", self.log)
                self.close()

        def send(self, data):
            sent = super().send(data)
            self.break_off()
            return sent

        def handle_read(self):
            super().handle_read()
            self.break_off()

        handle_read_event = handle_read

        read_limit = write_limit = property(limit)

    Handler.dtp_handler = Held

    Handler.proto_cmds = {name: what for name, what in FTPHandler.proto_cmds.items() if name not in lacking}
    Handler.masquerade_address = address
    Handler.authorizer = DummyAuthorizer()
    Handler.authorizer.add_user("user", "sesame", directory, perm="elradfmwMT")
    FTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
