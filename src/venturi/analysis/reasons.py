"""Reasons of failed transfers as sentences. Events that a tool prints as JSON are reduced to their message."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["readable_reason"]

_TEXT_KEYS = ("reason", "message", "error", "detail")
_FIELD = re.compile(r'"(expected|found|advice|reason|message|error)"\s*:\s*"((?:[^"\\]|\\.)*)')
_JSON_START = re.compile(r'\{\s*"')


def readable_reason(text: str) -> str:
    """Return the reason of a failure without raw JSON.

    An event with ``expected``, ``found`` and ``advice`` becomes a sentence. From other output, the last line that is
    not JSON remains.

    Examples
    --------
    >>> readable_reason('{"event":"error","path":"a","expected":"a file","found":"none","advice":"check the path"}')
    'a: expected a file, found none; check the path'
    >>> readable_reason('connection reset\\n{"event":"end","outcome":"failed"}')
    'connection reset'
    >>> readable_reason("No space left on device")
    'No space left on device'
    """
    if not _JSON_START.search(text):
        return text
    messages, plain = [], []
    for line in text.splitlines():
        start = _JSON_START.search(line)
        if start is None:
            plain.append(line.strip())
            continue
        before = line[: start.start()].strip(" :")
        message = _message(_event(line[start.start() :]))
        if message:
            messages.append(message)
        elif before:
            plain.append(before)
    lines = [line for line in plain if line]
    if messages:
        return messages[0]
    return lines[-1] if lines else "the tool printed events, but no error"


def _event(text: str) -> Mapping[str, Any]:
    """Return the fields of a JSON object. A truncated object gives its readable text fields."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return {key: value.replace('\\"', '"') for key, value in _FIELD.findall(text)}
    return value if isinstance(value, dict) else {}


def _message(event: Mapping[str, Any]) -> str:
    found = {key: str(event[key]).strip() for key in ("expected", "found", "advice") if event.get(key)}
    where = f"{event['path']}: " if event.get("path") else ""
    if found:
        parts = [f"{key} {found[key]}" for key in ("expected", "found") if key in found]
        return "; ".join(text for text in (where + ", ".join(parts), found.get("advice", "")) if text)
    nested = event.get("error")
    if isinstance(nested, Mapping):
        return _message(nested)
    return next((where + str(event[key]) for key in _TEXT_KEYS if isinstance(event.get(key), str) and event[key]), "")
