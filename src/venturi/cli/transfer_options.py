"""Parse job options with units into the settings of a job."""

from __future__ import annotations

from collections.abc import Iterable

from venturi.cli.options import option_quantity
from venturi.errors import UnitError
from venturi.messages import quote_value, suggestion
from venturi.mover import Option, OptionError, movers, resolve_options
from venturi.plan.header import OptionValue
from venturi.transfer_jobs import JobOptions
from venturi.transfer_jobs.options import JobOptionsError
from venturi.units import parse_duration

__all__ = ["job_options"]


def job_options(
    *,
    mover: str | None,
    option_texts: Iterable[str],
    concurrency: int,
    per_host: int | None,
    files_per_call: int,
    retries: int,
    backoff: str,
    backoff_limit: str,
    verify: str,
    timeout: str,
    deadline: str | None,
    now_unix_s: float,
) -> JobOptions:
    """Return the settings of a job.

    Raises
    ------
    JobOptionsError
        With the option, the expected value and the value found.
    """
    return JobOptions(
        mover, _mover_options(mover, option_texts), concurrency, per_host, files_per_call, retries,
        option_quantity("--backoff", backoff, parse_duration), option_quantity("--backoff-limit", backoff_limit, parse_duration), verify, option_quantity("--timeout", timeout, parse_duration),
        None if deadline is None else now_unix_s + option_quantity("--deadline", deadline, parse_duration),
    )  # fmt: skip


def _mover_options(name: str | None, option_texts: Iterable[str]) -> dict[str, OptionValue]:
    """Return the options of a mover by name, in base units."""
    pairs = [text.partition("=") for text in option_texts]
    if not pairs:
        return {}
    if name is None:
        raise JobOptionsError("--option: expected --mover, found none; name the mover of the option")
    if name not in movers():
        raise JobOptionsError(
            f"--mover: expected one of {', '.join(movers())}, found {quote_value(name)}{suggestion(name, movers())}"
        )
    mover = movers()[name]
    known = {option.name: option for option in mover.options}
    values: dict[str, OptionValue] = {}
    for key, equals, value in pairs:
        if key not in known or not equals:
            names = ", ".join(known) or "which has none"
            raise JobOptionsError(
                f"--option: expected NAME=VALUE with an option of {name} ({names}), found {quote_value(key)}{suggestion(key, known)}"
            )
        try:
            values[key] = known[key].parse(_value(known[key], value))
        except UnitError as error:
            raise JobOptionsError(f"--option {key}: {error}") from error
    try:
        mover.call(resolve_options(mover, values))
    except OptionError as error:
        raise JobOptionsError(f"--option: {error}") from error
    return values


def _value(option: Option, text: str) -> object:
    """Return an integer or boolean for options of these kinds, else the text."""
    if option.kind == "integer" and text.lstrip("-").isdigit():
        return int(text)
    if option.kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text
