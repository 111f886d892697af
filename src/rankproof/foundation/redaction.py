"""One redaction: what is secret stays out of every message, manifest, store, log and report.

A secret becomes known where it is read: a key or connection string from the environment
(`config.secret`), the user, password and query string of an address in a configuration
(`config.Settings`). From then on

    without_secrets(value)   the known ones are gone: whole, cut short, starred, in JSON, in HTML,
                             percent-encoded, in base64 (of `user:password` too), in hex
    redact(value)            and so is what looks like one in an address, known or not
    published(value)         and so are the folders of whoever made it

each for a text, or for every text in lists and dicts. The mark that stays is `…`.
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
_WHOLE = 8  # characters from which on a secret is found inside other words
_LEAST = 4  # below it a secret is a word like any other: only its place in an address gives it away
_PIECE = 8  # characters of a secret, a digit and a letter among them, that are shown nowhere
_WORDS = 12  # the same without: a key may hold words that others use too

_AUTHORITY = re.compile(r"(?<![\w+.-])([A-Za-z][\w+.-]{0,30}://)[^\s/?#\"'<>]*@")
_TELLS = "key|token|secret|passw|pwd|pass|auth|sig|cred|code|session|access"
_SECRET = rf"(?=[\w.-]*(?:{_TELLS}))[\w.-]++"  # each letter read twice, however often one tells
_NAMED = re.compile(
    rf"([?&;]{_SECRET}=|\bpassw(?:or)?d\s*=\s*)('[^']*'|[^\s&;#\"'<>)\]}}|]+)", re.IGNORECASE
)
_KEY = re.compile(
    r"(?:^|[_-])(?:passw(?:or)?d|pwd|secrets?|token|credentials?|apikey)$|"
    r"(?:api|access|secret|private|auth)[_-]?(?:key|token)$",
    re.IGNORECASE,
)
_QUERY = re.compile(r"([?&;][^=?&;#\s]*=)([^&;#\s]+)")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w+/.~=-]{4,}", re.IGNORECASE)
_MASK = re.compile(r"[*•●…]+|\.{2,}|[xX]{3,}")
_VERSION = re.compile(r"v?[\d.]{1,12}|\d{4}-\d\d-\d\d(-preview)?")
_PASSWORD = re.compile(r"\bpassword\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))", re.IGNORECASE)

_known: dict[str, tuple[str, ...]] = {}  # secret → how else it may be written, longest first


def register_secret(secret: str | None) -> None:
    """Make a secret known; of an address or a connection string, the secrets in it."""
    text = (secret or "").strip()
    if "://" in text:
        register_address(text)
    elif passwords := _PASSWORD.findall(text):
        for quoted, plain in passwords:
            _learn(re.sub(r"\\(.)", r"\1", quoted) or plain)
    else:
        _learn(text)


def register_address(url: str, public: frozenset[str] = frozenset()) -> None:
    """Make the secrets of an address known: user and password, and after `?` what is named as one
    or looks random.

    Versions are none, nor is what the configuration also says elsewhere (`public`).
    """
    for part in _credentials(url):
        if part not in public and not _VERSION.fullmatch(part):
            _learn(part)


def register_settings(keys: Any, name: str = "") -> None:
    """Make known what the keys of a user's own class hold: addresses, and what a key names so."""
    if isinstance(keys, dict):
        for key, inner in keys.items():
            register_settings(inner, str(key))
    elif isinstance(keys, list | tuple):
        for inner in keys:
            register_settings(inner, name)
    elif isinstance(keys, str) and "://" in keys:
        register_address(keys)
    elif isinstance(keys, str) and _KEY.search(name) and not name.endswith("_env"):
        _learn(keys.strip())


def remove_secrets(value: Any) -> Any:
    """A text without the secrets that are known; or a JSON value, all its texts so."""
    return _each(value, _scrub)


def redact(value: Any) -> Any:
    """The same, and without what an address may hold: a user, a password, a key after `?`."""
    return _each(value, lambda text: _addresses(_scrub(text)))


def redact_for_publication(value: Any) -> Any:
    """The same, and of every path the last part alone: where files lie is nobody's business."""
    return _each(value, lambda text: _last(_addresses(_scrub(text))), paths=True)


# ------------------------------------------------------------------------------ what is known


def _credentials(url: str) -> Iterator[str]:
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
    elif user:  # a token may stand where a user does
        yield user
        yield unquote(user)
    for pair in re.split(r"[&;]", parts.query):
        name, equals, value = pair.partition("=")
        value = value if equals else name
        random = len(value) >= _WORDS and re.search(r"\d", value) and re.search(r"[^\W\d_]", value)
        if random or re.fullmatch(_SECRET, name, re.IGNORECASE):
            yield value
            yield unquote(value.replace("+", " "))


def _learn(secret: str) -> None:
    if len(secret) >= _LEAST and secret not in _known:
        forms = {form for form in _forms(secret) if len(form) >= _WHOLE}
        _known[secret] = tuple(sorted(forms, key=len, reverse=True))


def _forms(secret: str) -> Iterator[str]:
    yield secret
    for made in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield made
        yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), made)
    for escaped in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        yield escaped[1:-1]
        yield escaped[1:-1].replace("/", "\\/")
    yield html.escape(secret)
    raw = secret.encode("utf-8", "replace")
    yield raw.hex()
    yield raw.hex().upper()
    for before in range(3):  # as it stands inside a longer text that was encoded as a whole
        encoded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        inner = encoded[(before * 8 + 5) // 6 :]
        certain = inner if (before + len(raw)) % 3 == 0 else inner[:-1]
        yield certain
        yield certain.translate(str.maketrans("+/", "-_"))


# ------------------------------------------------------------------------- taking it out again


def _each(value: Any, change: Callable[[str], str], paths: bool = False) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            _each(name, change): _variable(inner)
            if isinstance(name, str) and name.endswith("_env")
            else _each(inner, change, paths)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        if set(map(type, value)) <= {int, float}:  # a vector: nothing to read
            return value
        made = [_each(inner, change, paths) for inner in value]
        return made if isinstance(value, list) else tuple(made)
    return change(str(value)) if paths and isinstance(value, PurePath) else value


def _variable(value: Any) -> Any:
    """The name of a variable; a secret that was written in its place stays out."""
    return value if not isinstance(value, str) or is_variable(value) else MARK


def is_variable(name: str) -> bool:
    """Whether a text reads as the name of an environment variable, and not as a secret."""
    plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None
    return plain and (name.isupper() or (len(name) < 24 and not re.search(r"\d{3}", name)))


def _scrub(text: str) -> str:
    for secret, forms in tuple(_known.items()):
        for form in forms:
            text = text.replace(form, MARK)
        if len(secret) < _WHOLE:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MARK, text)
            continue
        text = _without_pieces(text, secret)
        text = _without_ends(text, secret)
    return text


def _without_pieces(text: str, secret: str) -> str:
    """A server, or a line that is too long, may show a part of it."""
    for at in range(len(secret) - _PIECE + 1):
        piece = secret[at : at + _PIECE]
        if not (re.search(r"\d", piece) and re.search(r"[^\W\d_]", piece)):
            piece = secret[at : at + _WORDS]
            if len(piece) < _WORDS:
                continue
        while piece in text:  # again where the mark is part of a secret and made another of it
            made, done = [], 0
            while (found := text.find(piece, done)) >= 0:
                end = len(piece)
                while secret[at + end : at + end + 1] == text[found + end : found + end + 1] != "":
                    end += 1
                made += [text[done:found], MARK]
                done = found + end
            text = "".join([*made, text[done:]])
    return text


def _without_ends(text: str, secret: str) -> str:
    """`sk-a****wxyz` shows both ends of a key. Looked for from the stars on: a word may be long."""
    made, at = [], 0
    for found in _MASK.finditer(text):
        start, end = found.span()
        if start < at:
            continue
        sizes = range(len(secret), 2, -1)
        before = next((n for n in sizes if text.endswith(secret[:n], at, start)), 0)
        sizes = range(len(secret), 0 if before else 2, -1)
        after = next((n for n in sizes if text.startswith(secret[-n:], end)), 0)
        if before or after:
            made += [text[at : start - before], MARK]
            at = end + after
    return "".join([*made, text[at:]])


def _addresses(text: str) -> str:
    if re.match(r"[A-Za-z][\w+.-]*://\S*$", text):  # a setting: any value after `?` may be one
        text = _QUERY.sub(
            lambda found: found[0] if _VERSION.fullmatch(found[2]) else f"{found[1]}{MARK}", text
        )
    if "://" in text:
        text = _AUTHORITY.sub(rf"\1{MARK}@", text)
    if "=" in text:
        text = _NAMED.sub(rf"\1{MARK}", text)
    return _BEARER.sub(rf"\1 {MARK}", text)


def _last(text: str) -> str:
    if "://" in text:  # of an address what follows `?` may be anybody's secret
        return re.split(r"[?#]", text, maxsplit=1)[0].replace(f"{MARK}@", "")
    if re.match(r"[/~\\]|\.\.[/\\]|[A-Za-z]:[/\\]", text) and "\n" not in text:
        return re.split(r"[/\\]", text.rstrip("/\\"))[-1] or text
    return text
