"""URLs of stores: their parts, and the form that may be shown. No other code shows a URL or a part of one.

A password may be written unescaped, with `@`, `/` and `?` in it; then it ends at the last `@`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_QUERY = re.compile(r"[^=&?/]+=[^&]*(&[^=&]+=[^&]*)*")
_SHOWN_OPTIONS = ("host", "hostaddr", "port", "user", "sslmode", "application_name", "service", "target_session_attrs")
"""Options of a URL that hold no secret. All others are left out."""
_ASSIGNED = re.compile(r"(?i)((?:password|passwd|passphrase|secret|token)\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]*)")
_NO_PATH = re.compile(r"(?i)\s*(postgres\w*:|(host|hostaddr|port|dbname|user|password|service|ssl\w+)\s*=)")
"""A URL without its slashes, or the `host=... password=...` of libpq."""
_LEAST = 3
"""Letters of a secret that is searched in a message: a shorter one is in many words."""


def is_path(text: str) -> bool:
    """Return whether a text without `://` names a file, rather than a database in another notation."""
    return not _NO_PATH.match(text)


def is_ambiguous(url: str) -> bool:
    """Return whether the password may end at more than one `@`."""
    _, password, place = _split(url.partition("://")[2])
    return password is not None and ("@" in place or re.search(r"\?.*=", password) is not None)


def redacted(text: str) -> str:
    """Return the URL of a store, or what somebody wrote in its place, without any secret."""
    scheme = _SCHEME.match(text)
    if scheme is None and not is_path(text):
        return HIDDEN
    if scheme is None or scheme[1] == "sqlite":
        return text
    user, password, place = _split(text[scheme.end() :])
    if is_ambiguous(text):
        return f"{scheme[0]}{user}:{HIDDEN}@{HIDDEN}"
    body, mark, query = place.partition("?")
    shown = [option for option in query.split("&") if option.partition("=")[0] in _SHOWN_OPTIONS]
    who = "" if user is None else f"{user}@" if password is None else f"{user}:{HIDDEN}@"
    return f"{scheme[0]}{who}{body}{mark if shown else ''}{'&'.join(shown)}"


def escaped(rest: str) -> str:
    """Return what follows `://` with its password and options escaped, so that every parser splits it as we do."""
    user, password, place = _split(rest)
    body, mark, query = place.partition("?")
    place = f"{body}{mark}{query.replace('@', '%40')}"
    if user is None:
        return place
    return f"{user}@{place}" if password is None else f"{user}:{quote(unquote(password), safe='')}@{place}"


def without_secrets(message: str, *, password: str | None, options: Mapping[str, str | Sequence[str]]) -> str:
    """Return a message about a store without the password and the secret options of its URL."""
    values = [password or "", *(str(value) for name, value in options.items() if name not in _SHOWN_OPTIONS)]
    # An error may quote a part of a password that somebody took for something else.
    parts = [part for value in values for part in (value, *re.split(r"[@/?#:&]", value))]
    forms = {write(part) for part in parts for write in (str, quote, quote_plus, partial(quote, safe=" +"))}
    for form in sorted(forms, key=len, reverse=True):
        message = message.replace(form, HIDDEN) if len(form) >= _LEAST else message
    return _ASSIGNED.sub(rf"\1{HIDDEN}", message)


def _split(rest: str) -> tuple[str | None, str | None, str]:
    """Return user, password and place of what follows `://`; None for a part that is missing."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    end = authority.rfind("@")
    later = rest[len(authority) :]
    _, mark, query = later.partition("?")
    in_query = later.count("@") == query.count("@") and (not mark or bool(_QUERY.fullmatch(query)))
    is_whole = end >= 0 or authority.rpartition(":")[2].isdecimal()
    if ":" in authority and "@" in later and not (is_whole and in_query):
        end = rest.rfind("@")
    if end < 0:
        return None, None, rest
    user, colon, password = rest[:end].partition(":")
    return user, password if colon else None, rest[end + 1 :]
