"""The hosts of the kit are as separate as real ones."""

from hostkit import UID

from testkit import needs_root

pytestmark = needs_root


def test_each_host_has_its_own_home_and_tmp_and_an_ordinary_user(real_hosts):
    real_hosts.sh("a", "touch /tmp/only-a ~/only-a")
    assert "only-a" not in real_hosts.sh("b", "ls /tmp ~")
    assert int(real_hosts.sh("b", "id -u")) == UID
    assert "only-a" in real_hosts.sh("a", "ls /tmp ~")
    real_hosts.sh("a", "rm /tmp/only-a ~/only-a")


def test_the_operator_and_the_hosts_reach_each_other_by_ssh(real_hosts):
    ssh = ["ssh", "-F", str(real_hosts.work / "ssh_config"), "-o", "BatchMode=yes"]
    done = real_hosts.lab.shell("c").run([*ssh, "a", "id -un; echo $HOME"], timeout_s=20)
    assert done.stdout.split() == ["alice", "/home/alice"], done.stderr
    address = real_hosts.address("b")
    assert real_hosts.sh("a", f"ssh -o BatchMode=yes {address} id -un").strip() == "alice"


def test_new_hosts_have_no_leftovers(real_hosts):
    assert real_hosts.leftovers("a") == {"processes": [], "ports": [], "sessions": []}
