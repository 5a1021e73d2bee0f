"""The one place that knows 1024, 10^9 and how people write quantities.

Inside the project every quantity is in base units: seconds, bytes, FLOP, FLOP/s, bytes/s.
GB is 10^9 bytes and GiB is 2^30 bytes; network rates may be written in bits (``400Gb/s``).
"""

import re

from costmodel.errors import InputError

GIB = 1 << 30
MIB = 1 << 20
KIB = 1 << 10
MB = 10**6
GB = 10**9
NS_PER_S = 10**9

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_NUMBER = r"(?P<number>[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_BYTES = re.compile(rf"^{_NUMBER}\s*(?P<prefix>Ki|Mi|Gi|Ti|[kKMGTP])?B$")
_RATE = re.compile(rf"^{_NUMBER}\s*(?P<prefix>Ki|Mi|Gi|Ti|[kKMGTP])?(?P<unit>B|b|bit)(?:/s|ps)$")
_TIME = re.compile(rf"^{_NUMBER}\s*(?P<unit>ns|us|ms|s|min|h|d)$")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_number(value: object, key: str) -> float:
    """Read a finite number; text such as ``1e9``, which YAML leaves as text, is accepted.

    Raises:
        InputError: If the value is no finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError("must be a number", key=key, value=value)
    try:
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise InputError("must be a number", key=key, value=value) from error
    if number != number or abs(number) == float("inf"):
        raise InputError("must be a finite number", key=key, value=value)
    return number


def parse_bytes(value: object, key: str) -> int:
    """Read a memory size: ``80GB``, ``76GiB``, or a bare number of bytes.

    Raises:
        InputError: If the text has no known unit or the size is not positive.
    """
    if isinstance(value, str) and (match := _BYTES.match(value.strip())):
        size = float(match["number"].replace("_", "")) * _scale(match["prefix"])
    elif isinstance(value, str) and not _is_plain_number(value):
        raise InputError(
            "must be a size with a unit", key=key, value=value, nearest=("80GB", "76GiB")
        )
    else:
        size = parse_number(value, key)
    return round(_positive(size, key, value))


def parse_rate(value: object, key: str) -> float:
    """Read a bandwidth in bytes/s: ``450GB/s``, ``400Gb/s``, or a bare number of bytes/s.

    Raises:
        InputError: If the text has no known unit or the rate is not positive.
    """
    if isinstance(value, str) and (match := _RATE.match(value.strip())):
        bits = 1 if match["unit"] == "B" else 8
        rate = float(match["number"].replace("_", "")) * _scale(match["prefix"]) / bits
    elif isinstance(value, str) and not _is_plain_number(value):
        raise InputError(
            "must be a rate with a unit", key=key, value=value, nearest=("450GB/s", "400Gb/s")
        )
    else:
        rate = parse_number(value, key)
    return _positive(rate, key, value)


def parse_seconds(value: object, key: str) -> float:
    """Read a duration: ``10us``, ``2h``, or a bare number of seconds.

    Raises:
        InputError: If the text has no known unit or the duration is not positive.
    """
    if isinstance(value, str) and (match := _TIME.match(value.strip())):
        return _positive(float(match["number"]) * _SECONDS[match["unit"]], key, value)
    if isinstance(value, str) and not _is_plain_number(value):
        raise InputError("must be a duration", key=key, value=value, nearest=("10us", "2h"))
    return _positive(parse_number(value, key), key, value)


def format_bytes(size: float) -> str:
    """Write a size for people in GiB, or in MiB below one tenth of a GiB."""
    return f"{size / GIB:.1f} GiB" if abs(size) >= GIB / 10 else f"{size / MIB:.0f} MiB"


def format_seconds(seconds: float) -> str:
    """Write a duration for people with three or four significant digits."""
    for limit, scale, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3f} s" if seconds < 100 else f"{seconds:.1f} s"


def format_rate(bytes_per_s: float) -> str:
    """Write a bandwidth for people in GB/s."""
    return f"{bytes_per_s / GB:.4g} GB/s"


def format_count(count: float) -> str:
    """Write a large count for people: 70.6B, 8.0M, 512."""
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count >= limit:
            return f"{count / limit:.4g}{unit}"
    return f"{count:,.0f}"


def _scale(prefix: str | None) -> int:
    return _BINARY[prefix] if prefix in _BINARY else _DECIMAL[prefix or ""]


def _is_plain_number(text: str) -> bool:
    return re.fullmatch(_NUMBER, text.strip()) is not None


def _positive(number: float, key: str, value: object) -> float:
    if not 0 < number < 1e24:
        raise InputError("must be positive and finite", key=key, value=value)
    return number
