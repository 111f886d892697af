"""Keep secrets and private paths out of everything that is shown or written.

A secret becomes known where it is read: a key or connection string from the environment
(`config.read_secret`), or the user, password and query string of an address in a configuration
(`config.Settings`). From then on three functions clean a text, or every text in lists and dicts:

    remove_secrets(value)            removes known secrets in every spelling: whole, cut short,
                                     starred, in JSON, HTML, percent-encoding, base64 and hex
    redact(value)                    also what looks like a secret in an address, known or not
    redact_for_publication(value)    also the folders of paths

A removed part is replaced by `…`.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

MARK = "…"
_LONG = 8  # characters from which a secret is also searched for inside other words
_SHORTEST = 4  # below it a secret cannot be told from a word; only its place in an address hides it
_PIECE = 8  # characters of a secret, with a digit and a letter, that must not be shown
_WORDY_PIECE = 12  # the same without a digit: a key may contain ordinary words

_AUTHORITY = re.compile(r"(?<![\w+.-])([A-Za-z][\w+.-]{0,30}://)[^\s/?#\"'<>]*@")
_SECRET_WORDS = "key|token|secret|passw|pwd|pass|auth|sig|cred|code|session|access"
_SECRET_NAME = rf"(?=[\w.-]*(?:{_SECRET_WORDS}))[\w.-]++"  # linear: possessive after one lookahead
_NAMED_SECRET = re.compile(
    rf"([?&;]{_SECRET_NAME}=|\bpassw(?:or)?d\s*=\s*)('[^']*'|[^\s&;#\"'<>)\]}}|]+)", re.IGNORECASE
)
_SECRET_KEY = re.compile(
    r"(?:^|[_-])(?:passw(?:or)?d|pwd|secrets?|token|credentials?|apikey)$|"
    r"(?:api|access|secret|private|auth)[_-]?(?:key|token)$",
    re.IGNORECASE,
)
_QUERY_VALUE = re.compile(r"([?&;][^=?&;#\s]*=)([^&;#\s]+)")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w+/.~=-]{4,}", re.IGNORECASE)
_STARS = re.compile(r"[*•●…]+|\.{2,}|[xX]{3,}")
_VERSION = re.compile(r"v?[\d.]{1,12}|\d{4}-\d\d-\d\d(-preview)?")
_PASSWORD = re.compile(r"\bpassword\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))", re.IGNORECASE)

_spellings: dict[str, tuple[str, ...]] = {}  # known secret → how it may be written, longest first


# -------------------------------------------------------------------------- registering secrets


def register_secret(secret: str | None) -> None:
    """Remember a secret, or the secrets in an address or a connection string."""
    text = (secret or "").strip()
    if "://" in text:
        register_address(text)
    elif passwords := _PASSWORD.findall(text):
        for quoted, plain in passwords:
            _register(re.sub(r"\\(.)", r"\1", quoted) or plain)
    else:
        _register(text)


def register_address(url: str, public: frozenset[str] = frozenset()) -> None:
    """Remember the secrets of an address: user, password, and suspicious values after `?`.

    Versions are no secrets, nor are the texts in `public` (said elsewhere in the configuration).
    """
    for part in _credentials(url):
        if part not in public and not _VERSION.fullmatch(part):
            _register(part)


def register_settings(value: Any, name: str = "") -> None:
    """Remember the secrets in the settings of a user's own class: addresses, and values of keys
    whose names say that they are secret."""
    if isinstance(value, dict):
        for key, inner in value.items():
            register_settings(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            register_settings(inner, name)
    elif isinstance(value, str) and "://" in value:
        register_address(value)
    elif isinstance(value, str) and _SECRET_KEY.search(name) and not name.endswith("_env"):
        _register(value.strip())


def is_variable(name: str) -> bool:
    """True if a text looks like the name of an environment variable rather than a secret."""
    is_identifier = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None
    looks_random = len(name) >= 24 or re.search(r"\d{3}", name) is not None
    return is_identifier and (name.isupper() or not looks_random)


def _credentials(url: str) -> Iterator[str]:
    """Yield the parts of an address that may be secret, as written and percent-decoded."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    if colon:
        yield password
        yield unquote(password)
        yield f"{user}:{password}"
        yield f"{unquote(user)}:{unquote(password)}"
    elif user:  # a token can take the place of a user
        yield user
        yield unquote(user)
    for pair in re.split(r"[&;]", parts.query):
        name, equals, value = pair.partition("=")
        value = value if equals else name
        is_long = len(value) >= _WORDY_PIECE
        is_random = is_long and re.search(r"\d", value) and re.search(r"[^\W\d_]", value)
        if is_random or re.fullmatch(_SECRET_NAME, name, re.IGNORECASE):
            yield value
            yield unquote(value.replace("+", " "))


def _register(secret: str) -> None:
    if len(secret) >= _SHORTEST and secret not in _spellings:
        spellings = {text for text in _encodings(secret) if len(text) >= _LONG}
        _spellings[secret] = tuple(sorted(spellings, key=len, reverse=True))


def _encodings(secret: str) -> Iterator[str]:
    """Yield the ways in which other software may write a secret."""
    yield secret
    for percent_encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield percent_encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), percent_encoded)
    for escaped in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        yield escaped[1:-1]
        yield escaped[1:-1].replace("/", "\\/")
    yield html.escape(secret)
    raw = secret.encode("utf-8", "replace")
    yield raw.hex()
    yield raw.hex().upper()
    for shift in range(3):  # inside a longer text, base64 depends on the position modulo 3
        encoded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        inner = encoded[(shift * 8 + 5) // 6 :]
        whole = inner if (shift + len(raw)) % 3 == 0 else inner[:-1]
        yield whole
        yield whole.translate(str.maketrans("+/", "-_"))


# ---------------------------------------------------------------------------- removing secrets


def remove_secrets(value: Any) -> Any:
    """Return a text, or a JSON value with all its texts, without the known secrets."""
    return _map_texts(value, _without_known)


def redact(value: Any) -> Any:
    """`remove_secrets`, and remove what may be secret in an address: user, password, key."""
    return _map_texts(value, lambda text: _without_address_secrets(_without_known(text)))


def redact_for_publication(value: Any) -> Any:
    """`redact`, and shorten each path to its last part: folders are private."""

    def publish(text: str) -> str:
        return _last_part(_without_address_secrets(_without_known(text)))

    return _map_texts(value, publish, paths=True)


def _map_texts(value: Any, change: Callable[[str], str], paths: bool = False) -> Any:
    """Return a JSON value with `change` applied to its texts (with `paths`, to paths too)."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            _map_texts(name, change): _variable_name(inner)
            if isinstance(name, str) and name.endswith("_env")
            else _map_texts(inner, change, paths)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        if set(map(type, value)) <= {int, float}:  # a vector: skip it, it may be long
            return value
        items = [_map_texts(inner, change, paths) for inner in value]
        return items if isinstance(value, list) else tuple(items)
    return change(str(value)) if paths and isinstance(value, PurePath) else value


def _variable_name(value: Any) -> Any:
    """Return the name of an environment variable; a secret typed in its place is removed."""
    return value if not isinstance(value, str) or is_variable(value) else MARK


def _without_known(text: str) -> str:
    for secret, spellings in tuple(_spellings.items()):
        for spelling in spellings:
            text = text.replace(spelling, MARK)
        if len(secret) < _LONG:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MARK, text)
            continue
        text = _without_pieces(text, secret)
        text = _without_starred(text, secret)
    return text


def _without_pieces(text: str, secret: str) -> str:
    """Remove long pieces of a secret, as a server or a cut line may show them."""
    for start in range(len(secret) - _PIECE + 1):
        piece = secret[start : start + _PIECE]
        if not (re.search(r"\d", piece) and re.search(r"[^\W\d_]", piece)):
            piece = secret[start : start + _WORDY_PIECE]
            if len(piece) < _WORDY_PIECE:
                continue
        while piece in text:  # again, since a mark that is part of a secret can form it again
            text = _without_piece(text, secret, start, piece)
    return text


def _without_piece(text: str, secret: str, start: int, piece: str) -> str:
    """Remove a piece and the characters of the secret that follow it."""
    parts: list[str] = []
    copied_to = 0
    while (position := text.find(piece, copied_to)) >= 0:
        length = len(piece)
        while (
            secret[start + length : start + length + 1]
            == text[position + length : position + length + 1]
            != ""
        ):
            length += 1
        parts += [text[copied_to:position], MARK]
        copied_to = position + length
    return "".join([*parts, text[copied_to:]])


def _without_starred(text: str, secret: str) -> str:
    """Remove the two ends of a key that is shown as `sk-a****wxyz`.

    The search starts from the stars, because the words around them may be long.
    """
    parts: list[str] = []
    copied_to = 0
    for stars in _STARS.finditer(text):
        start, end = stars.span()
        if start < copied_to:
            continue
        lengths = range(len(secret), 2, -1)
        before = next((n for n in lengths if text.endswith(secret[:n], copied_to, start)), 0)
        lengths = range(len(secret), 0 if before else 2, -1)
        after = next((n for n in lengths if text.startswith(secret[-n:], end)), 0)
        if before or after:
            parts += [text[copied_to : start - before], MARK]
            copied_to = end + after
    return "".join([*parts, text[copied_to:]])


def _without_address_secrets(text: str) -> str:
    if re.match(r"[A-Za-z][\w+.-]*://\S*$", text):  # an address alone: any value may be secret
        text = _QUERY_VALUE.sub(
            lambda pair: pair[0] if _VERSION.fullmatch(pair[2]) else f"{pair[1]}{MARK}", text
        )
    if "://" in text:
        text = _AUTHORITY.sub(rf"\1{MARK}@", text)
    if "=" in text:
        text = _NAMED_SECRET.sub(rf"\1{MARK}", text)
    return _BEARER.sub(rf"\1 {MARK}", text)


def _last_part(text: str) -> str:
    """Return a path's last part; of an address everything before `?`, where keys may follow."""
    if "://" in text:
        return re.split(r"[?#]", text, maxsplit=1)[0].replace(f"{MARK}@", "")
    if re.match(r"[/~\\]|\.\.[/\\]|[A-Za-z]:[/\\]", text) and "\n" not in text:
        return re.split(r"[/\\]", text.rstrip("/\\"))[-1] or text
    return text
