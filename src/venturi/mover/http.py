"""What the movers of HTTP have in common: the options that mean the same to each of them."""

from __future__ import annotations

from venturi.mover.base import Option

__all__ = ["CERTIFICATE", "PROXY", "THIRD_PARTY"]

PROXY = Option(
    "proxy",
    "text",
    None,
    "Through this proxy, such as `http://squid.lab.test:3128`; otherwise through none, whatever the environment says.",
)

CERTIFICATE = Option(
    "certificate",
    "boolean",
    False,
    "Log in with the proxy certificate in $X509_USER_PROXY, and trust the authorities in $X509_CERT_DIR. "
    "Servers with TLS in a lab need it: nobody else knows their authority.",
)

THIRD_PARTY = Option(
    "third_party",
    "choice",
    "pull",
    "Between two servers: the destination gets it (`pull`), or the source sends it (`push`).",
    choices=("pull", "push"),
)
"""Of a tool that can ask one server to move a file from or to another."""
