"""Real hosts for tests: three lab hosts, each with its own mount namespace, sshd, home, /tmp and ordinary user.

Venturi runs on host ``c`` and reaches ``a`` and ``b`` by ssh, as it does outside of a lab. The lab's network emulator
sets round-trip time, rate and loss, and cuts links.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labkit import header_of

from venturi.testbed.lab import Lab

USER, UID = "alice", 2001
SSHD = "/usr/sbin/sshd"
OPERATOR = "c"
VENTURI = Path(sys.executable).parent / "venturi"
CHECKOUT = Path(__file__).parents[2]

_SSHD_CONFIG = f"""\
Port 22
HostKey /home/.sshd/host_key
PidFile /home/.sshd/pid
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes yes
MaxStartups 100
AllowUsers {USER}
Subsystem sftp internal-sftp
"""

# Creates the private directories of one host: $1. All hosts share $2 as /srv. The ordinary user cannot enter the
# directories $3: empty ones replace them. The other arguments, the directories of Python and of this checkout, keep their
# paths below replaced directories.
_ENTER = """\
umask 022
private=$1 shared=$2 closed=$3
shift 3
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /mnt
for kept; do
  mkdir -p "/mnt/$kept"
  mount --bind "$kept" "/mnt/$kept"
done
mount --bind "$private/passwd" /etc/passwd
mount --bind "$private/shadow" /etc/shadow
mount --bind "$private/group" /etc/group
mount --bind "$private/home" /home
mount --bind "$shared" /srv
for directory in $closed; do
  mkdir -p "$directory"
  mount -t tmpfs -o mode=755 tmpfs "$directory"
done
mount --bind "$private/tmp" /tmp
for kept; do
  mkdir -p "$kept"
  mount --bind "/mnt/$kept" "$kept"
done
umount --lazy /mnt
install -d -m 755 /run/sshd
exec {sshd} -D -e -f /home/.sshd/config
"""


# All hosts of a lab share one PID namespace. The processes of a host are those in its network namespace.
_PROCESSES = f"""
own=$(readlink /proc/self/ns/net)
for pid in $(ps -o pid= -u {UID}); do
  [ "$(readlink /proc/$pid/ns/net)" = "$own" ] && tr '\\0' ' ' </proc/$pid/cmdline && echo
done
true
"""


class RealHosts:
    """A lab of hosts that Venturi reaches like any other host.

    Parameters
    ----------
    engine
        Path of ``venturi-engine``, for the lab.
    parent
        Directory of labs; every user can enter it.
    rate, delay
        Rate and delay of the link of each host.
    """

    def __init__(self, engine, parent, *, hosts=("a", "b"), rate="1 Gb/s", delay="0.2 ms"):
        self.hosts = hosts
        self.base = Path(tempfile.mkdtemp(prefix="venturi-hosts-"))
        self.base.chmod(0o755)
        names = (*hosts, OPERATOR)
        links = "".join(
            f'[link.{name}-core]\nbetween = ["{name}", "core"]\nrate = "{rate}"\ndelay = "{delay}"\n'
            for name in names
        )
        testbed = "[router.core]\n" + "".join(f"[host.{name}]\n" for name in names) + links
        self.lab = Lab.up(header_of(testbed, name="real-hosts"), engine=engine, parent=parent, probe=False)
        self._sshd = {}
        try:
            self._create_keys()
            for name in hosts:
                self._start_host(name)
        except BaseException:
            self.close()
            raise

    @property
    def work(self):
        """The operator's directory with runs, scenarios and state."""
        return self.base / "operator"

    @property
    def shared(self):
        """Path of a directory of the ordinary user that all hosts share, like a parallel file system."""
        return "/srv/shared"

    def address(self, host):
        """Return the address of a host in the lab's network."""
        return self.lab.shell(host).address

    def venturi(self, *arguments, timeout_s=300, check=True, environment=None):
        """Run ``venturi`` on the operator's host and return the finished process."""
        done = self.lab.shell(OPERATOR).run(
            [str(VENTURI), *map(str, arguments)],
            timeout_s=timeout_s,
            environment=self.environment | (environment or {}),
            directory=self.work,
        )
        assert not check or done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done

    def start_venturi(self, *arguments, environment=None):
        """Start ``venturi`` on the operator's host in its own session, with piped output."""
        command = self.lab.shell(OPERATOR).command_line([str(VENTURI), *map(str, arguments)], directory=self.work)
        return subprocess.Popen(
            command,
            env=os.environ | self.environment | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def environment(self):
        """Environment variables of the operator."""
        return {
            "HOME": str(self.work),
            "XDG_STATE_HOME": str(self.work / "state"),
            "VENTURI_SSH": f"-F '{self.work / 'ssh_config'}'",
            "NO_COLOR": "1",
            "COLUMNS": "160",
        }

    def sh(self, host, script, *, user=True, timeout_s=60, check=True):
        """Run a script on a host as its ordinary user, or as root, and return its output."""
        become = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"] if user else []
        home = ["env", f"HOME=/home/{USER}", f"USER={USER}", "--chdir=/"]
        enter = ["nsenter", f"--target={self._sshd[host].pid}", "--mount", "--net", "--uts", "--pid", "--"]
        done = subprocess.run(
            [*enter, *become, *home, "sh", "-c", script],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{host}: {script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def cut(self, host):
        """Cut the link of a host, so that packets are dropped silently."""
        self.lab.change(f"{host}-core", {"up": False})

    def repair(self, host):
        """Restore the link of a host."""
        self.lab.change(f"{host}-core", {"up": True})

    def leftovers(self, host):
        """Return the remains of a finished run on a host: processes of the user, listening ports, and session files."""
        found = self.sh(host, _PROCESSES, user=False).splitlines()
        # The sshd of a host keeps the session of a cut connection until TCP times out.
        processes = [line for line in found if not line.startswith("sshd:")]
        ports = self.sh(host, "ss -Hltn | awk '{print $4}' | grep -v ':22$' || true", user=False).split()
        sessions = "ls -d /home/alice/.cache/venturi/sessions/* /tmp/venturi-*/sessions/* 2>/dev/null || true"
        return {"processes": processes, "ports": ports, "sessions": self.sh(host, sessions).split()}

    def wait_for_nothing_left(self, host, most_s=75.0):
        """Wait until a host has no remains of a run."""
        nothing = {"processes": [], "ports": [], "sessions": []}
        deadline_s = time.monotonic() + most_s
        while (found := self.leftovers(host)) != nothing:
            assert time.monotonic() < deadline_s, f"{host}: {json.dumps(found, indent=1)}"
            time.sleep(0.1)

    def close(self):
        """Stop the servers and remove everything."""
        self.lab.down()
        shutil.rmtree(self.base, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def _create_keys(self):
        self.work.mkdir()
        (self.base / "srv" / "shared").mkdir(parents=True)
        os.chown(self.base / "srv" / "shared", UID, UID)
        _create_key(self.work / "key")
        for name in self.hosts:
            private = self.base / name
            for directory in ("home/.sshd", f"home/{USER}/.ssh", "tmp"):
                (private / directory).mkdir(parents=True)
            (private / "tmp").chmod(0o1777)
            for path in (private, private / "home", private / "home" / ".sshd", private / "home" / USER):
                path.chmod(0o755)
            _create_key(private / "home" / ".sshd" / "host_key")
            _create_key(private / "home" / USER / ".ssh" / "id_ed25519")
            (private / "home" / ".sshd" / "config").write_text(_SSHD_CONFIG)
            for table, line in {
                "passwd": f"{USER}:x:{UID}:{UID}:{USER}:/home/{USER}:/bin/sh\n",
                "shadow": f"{USER}:*:19000:0:99999:7:::\n",
                "group": f"{USER}:x:{UID}:\n",
            }.items():
                (private / table).write_text(Path("/etc", table).read_text() + line)
        known = "".join(
            f"{self.address(name)},{name}.lab.test {(self.base / name / 'home/.sshd/host_key.pub').read_text()}"
            for name in self.hosts
        )
        (self.work / "known_hosts").write_text(known)
        (self.work / "ssh_config").write_text(
            "".join(
                f"Host {name}\n  HostName {self.address(name)}\n  User {USER}\n  IdentityFile {self.work / 'key'}\n"
                f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.work / 'known_hosts'}\n  LogLevel ERROR\n"
                for name in self.hosts
            )
        )
        accepted = (self.work / "key.pub").read_text() + "".join(
            (self.base / name / "home" / USER / ".ssh" / "id_ed25519.pub").read_text() for name in self.hosts
        )
        for name in self.hosts:
            ssh = self.base / name / "home" / USER / ".ssh"
            (ssh / "authorized_keys").write_text(accepted)
            (ssh / "known_hosts").write_text(known)
            for path in (ssh.parent, ssh, *ssh.iterdir()):
                os.chown(path, UID, UID)
            ssh.chmod(0o700)

    def _start_host(self, name):
        kept = (Path(sys.base_prefix), CHECKOUT)
        closed = {_outermost_closed(path) for path in kept} - {None}
        arguments = [self.base / name, self.base / "srv", " ".join(map(str, closed)), *kept]
        command = ["unshare", "--mount", "sh", "-ec", _ENTER.format(sshd=SSHD), "host", *map(str, arguments)]
        log = self.base / name / "sshd.log"
        process = self._sshd[name] = self.lab.shell(name).start(command, log=log)
        deadline_s = time.monotonic() + 30
        while "Server listening" not in log.read_text(errors="replace"):
            assert process.poll() is None and time.monotonic() < deadline_s, log.read_text(errors="replace")
            time.sleep(0.02)


def _outermost_closed(path):
    """Return the outermost directory above ``path`` that other users cannot enter, or None."""
    return next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001), None)


def _create_key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
