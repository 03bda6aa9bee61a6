"""Numbers people type: token counts, lists of them, parameter counts."""

from __future__ import annotations

import math
import re

from .. import InputError
from ..costmodel.limits import MAX_TOKENS

_COUNT = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?\s*(?:(k|m)i?)?", re.IGNORECASE | re.ASCII)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20}
_UNITS = {"kib": 1 << 10, "gib": 1 << 30, "mib": 1 << 20, "gb": 10**9, "mb": 10**6, "b": 1, "": 1}
MAX_POINTS = 10_000


def tokens(text: str, option: str) -> int:
    """A positive count: `4096`, `32k` (= 32,768, also 32K and 32Ki), `1M` (= 1,048,576).

    Raises InputError naming the option, what was given and what is allowed.
    """
    match = _COUNT.fullmatch(text.strip().replace("_", ""))
    way_out = "give a positive count such as 4096, 32k (= 32,768) or 1M (= 1,048,576)"
    power = re.fullmatch(r"([1-9](?:\.[0-9]{1,2})?)e\+?([0-9])", text.strip().lower())
    if power:
        way_out = f"write {float(power[1]) * 10 ** int(power[2]):.0f}"
    elif re.fullmatch(r"[0-9]{1,3}(?:,[0-9]{3})+", text.strip()):
        way_out = f"write {text.strip().replace(',', '')}"
    elif text.strip().lower() in ("max", "full", "all", "auto"):
        way_out = "give a count such as 32k; `infercost fit` without --seq takes the model's whole context"
    if match is None:
        raise InputError(f"{option} '{text[:60]}' is not a token count; {way_out}")
    factor = _FACTORS[(match[3] or "").lower()]
    value = int(match[1]) * factor
    if match[2]:
        part = int(match[2]) * factor
        if part % 10 ** len(match[2]):
            raise InputError(f"{option} '{text}' is not a whole number of tokens; {way_out}")
        value += part // 10 ** len(match[2])
    if not 1 <= value <= MAX_TOKENS:
        raise InputError(f"{option} '{text[:60]}' must be between 1 and {MAX_TOKENS:,}; {way_out}")
    return value


def token_list(text: str, option: str, most: int = MAX_POINTS) -> list[int]:
    """One count or several between commas, `2k,8k,32k`; a range `1k..128k*2` or `1k..16k+1k` is the counts
    from the first to no more than the second, each so many times, or so much more than, the one before."""
    parts = words(text, option)
    whole = grouped(parts) if option in LENGTHS and ", " not in text else []
    if whole:
        raise InputError(
            f"{option} '{text[:60]}': without commas in a number it is {','.join(whole)[:60]}; "
            f"as a list it has a space after each comma, '{', '.join(parts)[:60]}'"
        )
    out: list[int] = []
    for part in parts:
        out += _range(part, option, most) if ".." in part else [tokens(part, option)]
        if len(out) > most:
            raise InputError(f"{option} has more than {most:,} values; ask for fewer")
    return out


LENGTHS = ("--seq", "--prompt")
"""Options of lengths, which people copy with commas in them; other counts are small (`--gen 100,200`)."""


def grouped(parts: list[str]) -> list[str]:
    """The numbers of a list that came apart at the commas before their thousands: 32768 of `32,768`, 4096 and
    8192 of `4,096,8,192`; none of a list that is one.

    Powers of two are lengths that people do ask about in lists: `128,256`.
    """
    if all(part.isdecimal() and int(part).bit_count() == 1 and part[0] != "0" for part in parts):
        return []
    out: list[str] = []
    rest, apart = list(parts), False
    while rest:
        number = rest.pop(0)
        if re.fullmatch(r"[0-9]{1,3}", number):
            if not rest or not re.fullmatch(r"[0-9]{3}", rest[0]):
                return []
            apart = True
            while rest and re.fullmatch(r"[0-9]{3}", rest[0]):
                number += rest.pop(0)
        out.append(number)
    return out if apart else []


def _range(text: str, option: str, most: int) -> list[int]:
    """The counts of `a..b*k` or `a..b+k`."""
    ends, sign, by = text, "", ""
    for each in "*+":
        if each in text:
            ends, sign, by = text.partition(each)
            break
    first, _, last = ends.partition("..")
    if not sign:
        raise InputError(
            f"{option} '{text[:60]}': a range says how it goes on, such as {first[:20]}..{last[:20]}*2 or +1k"
        )
    value, end, step = tokens(first, option), tokens(last, option), tokens(by, option)
    if end < value:
        raise InputError(f"{option} '{text[:60]}': a range goes up, from the smaller to the larger")
    if sign == "*" and step < 2:
        raise InputError(f"{option} '{text[:60]}': a range is multiplied by 2 or more")
    out: list[int] = []
    while value <= end and len(out) <= most:
        out.append(value)
        value = value * step if sign == "*" else value + step
    return out


def words(text: str, option: str) -> list[str]:
    """The parts between commas; empty ones are refused."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(f"{option} '{text[:60]}' has an empty part; separate values with single commas")
    if len(parts) > MAX_POINTS:
        raise InputError(f"{option} has {len(parts):,} values; at most {MAX_POINTS:,} fit in one table")
    return parts


def quantity(text: str, option: str, limit: float) -> float:
    """A positive number, `7e9`, `7B`, `70_000`: k, m, b and t are powers of a thousand here."""
    match = re.fullmatch(r"([0-9_]+(?:\.[0-9]+)?(?:e\+?[0-9]{1,3})?)\s*([kmbt]?)", text.strip().lower())
    value = math.nan
    if match is not None:
        value = float(match[1].replace("_", "") or "nan") * 1000.0 ** " kmbt".index(match[2] or " ")
    if not 0 < value <= limit:
        raise InputError(f"{option} '{text[:60]}' is not a number between 0 and {limit:g}, such as 7e9 or 7B")
    return value


def byte_size(text: str, option: str) -> int:
    """`18.9GB`, `17 GiB`, `20000MiB` or plain bytes."""
    plain = text.strip().lower()
    unit = next(each for each in _UNITS if plain.endswith(each))
    try:
        value = float(plain.removesuffix(unit).strip().replace(",", ""))
    except ValueError:
        value = -1.0
    if not 1 <= value * _UNITS[unit] < 1e18:
        raise InputError(
            f"{option} '{text[:40]}' is no size; give bytes, or a number with MB, MiB, GB or GiB"
        )
    return int(value * _UNITS[unit])


def share(text: str, option: str) -> float:
    """A part of one, `0.001` or `0.1%`."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e-[0-9]{1,2})?)\s*(%?)", text.strip().lower())
    value = math.nan if match is None else float(match[1]) / (100 if match[2] else 1)
    if not 0 <= value <= 1:
        raise InputError(f"{option} '{text[:40]}' is no share; give a part of one such as 0.001, or 0.1%")
    return value


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def duration(text: str, option: str) -> float:
    """Seconds of `0.5s`, `50ms` or `200us`: above 0, up to a day. A number alone could be either of them."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,12})?)\s*(s|ms|us|)", text.strip().lower(), re.ASCII)
    if match is not None and not match[2] and float(match[1]) > 0:
        number = float(match[1])
        either = f"{match[1]}ms or {number / 1000:.9g}s" if number >= 10 else f"{match[1]}s or {match[1]}ms"
        raise InputError(f"{option} {match[1]}: give a unit, {either}")
    value = math.nan if match is None or not match[2] else float(match[1]) * _SECONDS[match[2]]
    if not 0 < value <= 86_400:
        raise InputError(f"{option} '{text[:60]}' is not a time; give one above 0, such as 0.5s or 50ms")
    return value
