"""An SRM v2.2 server for the lab.

It returns transfer URLs for the files in its storages, and keeps its requests in a database. Clients use SOAP over
httpg: TLS with proxy certificates, one byte that requests delegation or not, then HTTP. No packaged server of this kind
is available any more, so this is our own: ``python -m venturi.srm SETTINGS.json``. It needs only the standard library,
and the program ``openssl`` if a client delegates.

The core has no sockets and no clock. ``http``, ``soap`` and ``x509`` convert between bytes and requests,
``state`` decides the state of a requested file, and ``manager`` handles requests. Around it are ``store``
(SQLite), ``namespace`` (the files), ``server`` (connections) and ``log``.

It has no space reservation, srmCopy, tapes, own permissions, use of delegated credentials, revocation lists or
signing policies. All file operations run as the account of the server. Read :class:`venturi.srm.manager.Manager` first.
"""
