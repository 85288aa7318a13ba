"""An SRM v2.2 server: it gives out transfer URLs for the files of its places, and keeps what it promised in a database.

Clients speak SOAP over httpg with it: TLS with proxy certificates, one byte that asks for delegation or not, then HTTP. Nobody packages such a
server any more, so this is our own, for the lab: ``python -m venturi.srm SETTINGS.json``. It needs the standard library only, and the program ``openssl``
where a client delegates.

The core knows neither sockets nor clocks: :mod:`.http`, :mod:`.soap`, :mod:`.x509` turn bytes into requests and back, :mod:`.state` decides what becomes of a file
that was asked for, :mod:`.manager` answers requests. Around it: :mod:`.store` (SQLite), :mod:`.namespace` (the files), :mod:`.server` (connections), :mod:`.log`.

Left out on purpose: space reservation, srmCopy, tapes, permissions of its own, delegation of what it was delegated, revocation lists and signing
policies. All file operations are those of the account that runs it. The one type to read first: :class:`Manager`.
"""

from venturi.srm.manager import Caller, Manager, Reply
from venturi.srm.settings import Settings

__all__ = ["Caller", "Manager", "Reply", "Settings"]
