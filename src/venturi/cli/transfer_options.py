"""What users say of a job, as text with units, made into its settings."""

from __future__ import annotations

from collections.abc import Iterable

from venturi.errors import UnitError
from venturi.managed import JobOptions
from venturi.managed.options import JobOptionsError
from venturi.mover import Option, OptionError, movers, resolve_options
from venturi.plan.header import OptionValue
from venturi.plan.words import shown, suggestion
from venturi.units import parse_duration

__all__ = ["job_options"]


def job_options(
    *,
    mover: str | None,
    given: Iterable[str],
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
        Naming the option, what was expected and what was found.
    """
    return JobOptions(
        mover, _mover_options(mover, given), concurrency, per_host, files_per_call, retries,
        _duration("backoff", backoff), _duration("backoff-limit", backoff_limit), verify, _duration("timeout", timeout),
        None if deadline is None else now_unix_s + _duration("deadline", deadline),
    )  # fmt: skip


def _duration(name: str, text: str) -> float:
    try:
        return parse_duration(text)
    except UnitError as error:
        raise JobOptionsError(f"--{name}: {error}") from error


def _mover_options(name: str | None, given: Iterable[str]) -> dict[str, OptionValue]:
    """Return what is set of a mover, by name, in base units."""
    told = [text.partition("=") for text in given]
    if not told:
        return {}
    if name is None:
        raise JobOptionsError("--option: expected --mover beside it, found none; options are those of one mover")
    if name not in movers():
        raise JobOptionsError(
            f"--mover: expected one of {', '.join(movers())}, found {shown(name)}{suggestion(name, movers())}"
        )
    mover = movers()[name]
    known = {option.name: option for option in mover.options}
    values: dict[str, OptionValue] = {}
    for key, equals, value in told:
        if key not in known or not equals:
            names = ", ".join(known) or "(it has none)"
            raise JobOptionsError(
                f"--option: expected NAME=VALUE with an option of {name}, {names}, found {shown(key)}{suggestion(key, known)}"
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
    """Return a value as a scenario would have it, where text is not what it has."""
    if option.kind == "integer" and text.lstrip("-").isdigit():
        return int(text)
    if option.kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text
