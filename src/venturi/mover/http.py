"""Common options of the HTTP movers."""

from __future__ import annotations

from venturi.mover.base import Option

__all__ = ["BEARER", "CERTIFICATE", "PROXY", "READ_TOKEN", "THIRD_PARTY"]

PROXY = Option(
    "proxy",
    "text",
    None,
    "Proxy, such as `http://squid.lab.test:3128`. Default: no proxy, also with a proxy in the environment.",
)

CERTIFICATE = Option(
    "certificate",
    "boolean",
    False,
    "Log in with the proxy certificate in $X509_USER_PROXY, and trust the CAs in $X509_CERT_DIR. "
    "TLS servers of a lab need it, because only $X509_CERT_DIR contains their CA.",
)

BEARER = Option(
    "bearer",
    "boolean",
    None,
    "Send the bearer token of the user. Default: to existing servers, if `environment` of the host names one.",
)
"""Option of tools that can read a token from somewhere other than their command line."""

READ_TOKEN = """\
token=$BEARER_TOKEN file=$BEARER_TOKEN_FILE
if test -z "$token$file"; then
  file=${XDG_RUNTIME_DIR:-/tmp}/bt_u$(id -u)
  test -e "$file" || file=/tmp/${file##*/}
  test -O "$file" || file=
fi
if test -z "$token" && test -r "$file"; then read -r token <"$file"; fi
case $token in
''|*[!A-Za-z0-9._~+/=-]*)
  echo "expected a bearer token in BEARER_TOKEN or BEARER_TOKEN_FILE, found none; get one (oidc-token, htgettoken)" >&2
  exit 1;;
esac
"""
"""Script that sets ``token``, by the rules of the WLCG for its location."""

THIRD_PARTY = Option(
    "third_party",
    "choice",
    "pull",
    "Between two servers: the destination pulls (`pull`), or the source pushes (`push`).",
    choices=("pull", "push"),
)
"""Option of tools with third-party copies."""
