"""URLs of ssh servers, for shell scripts of movers over ssh."""

from __future__ import annotations

from collections.abc import Mapping

from venturi.plan.header import Argument, OptionValue
from venturi.units import BITS_PER_BYTE

__all__ = ["SSH_CONFIGURATION", "SSH_PROTOCOLS", "SSH_URL", "rate_in_kbit", "two_servers_conflict"]

SSH_PROTOCOLS: tuple[str, ...] = ("ssh",)
"""Protocols of service ports."""

SSH_CONFIGURATION = '${VENTURI_SSH_CONFIG:+-F "$VENTURI_SSH_CONFIG"}'
"""Arguments of ssh and sftp with the configuration of the services; without it, the configuration of the user."""

SSH_URL = """\
split() {
  case $1 in ssh://*|scp://*|sftp://*) ;; *) return 1;; esac
  rest=${1#*://} user= port=
  host=${rest%%/*} path=/${rest#*/}
  path=/${path#"${path%%[!/]*}"}
  case $host in *@*) user=${host%@*} host=${host##*@};; esac
  case $host in
  "["*"]":*) port=${host##*:} host=${host%]:*}; host=${host#?};;
  "["*"]") host=${host#?} host=${host%?};;
  *:*) port=${host##*:} host=${host%:*};;
  esac
}
"""
"""Shell function: split a URL to ``user``, ``host`` (an IPv6 address without brackets), ``port`` and ``path``; fail for a local path."""


def rate_in_kbit(options: Mapping[str, OptionValue]) -> tuple[Argument, ...]:
    """Return the arguments ``-l`` of ``scp`` and ``sftp`` for the option ``rate``: whole kb/s, rounded down."""
    rate_bytes_per_s = options["rate_bytes_per_s"]
    if not isinstance(rate_bytes_per_s, int):
        return ()
    return (("-l", str(max(1, rate_bytes_per_s * BITS_PER_BYTE // 1000))),)


def two_servers_conflict(
    name: str, options: Mapping[str, OptionValue], source: str | None, destination: str | None
) -> tuple[str, str] | None:
    """Return the conflict of a mover that needs a local endpoint with two servers, for ``option_conflict``."""
    if source is None or destination is None:
        return None
    return "client", (
        f"expected the host of the source or of the destination ({name} needs a local file), found another host;"
        " change client, or use scp or venturi"
    )
