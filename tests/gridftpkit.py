"""Complete logs of GridFTP servers for tests."""

from io import StringIO

from venturi.testbed.gridftp_log import Session, numbered, read_control, read_transfers


def messages(log):
    """Return the messages of a control log."""
    return list(read_control(StringIO(log)))


def sessions(log):
    """Return the control connections of a control log, by start time."""
    found = []
    for number, client, event in numbered(messages(log)):
        if number == len(found):
            found.append((event.pid, client, []))
        found[number][2].append(event)
    return [Session(pid, client, tuple(own)) for pid, client, own in found]


def logins(found):
    """Return the successful logins of sessions."""
    return [session.authentication for session in found if session.authentication is not None]


def records(log):
    """Return the records of a transfer log."""
    return list(read_transfers(StringIO(log)))
