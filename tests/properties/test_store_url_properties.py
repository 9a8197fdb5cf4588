"""No secret of a store's URL is in anything that is shown or written."""

from __future__ import annotations

import json
import string
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from store_contract import a_run
from wattune.cli.main import run
from wattune.core.errors import StoreError
from wattune.store.engine import parse, place_of, store_error
from wattune.store.fallback import FILE_NAME, write_run
from wattune.store.url import redacted

MARK = "Zq7"
"""Letters that nothing else has: a part of a secret is found by them."""
pieces = st.text(string.ascii_letters + string.digits + "@:/?#&=%+ $!*'()[]\"\\\N{SNOWMAN}", max_size=6)
secrets = st.lists(pieces, min_size=1, max_size=4).map(lambda found: MARK + MARK.join(found) + MARK)
names = st.text(string.ascii_lowercase, min_size=1, max_size=6)
schemes = st.sampled_from(["postgresql", "postgres", "postgresql+psycopg", "mysql"])
hosts = st.sampled_from(["host", "host:5432", "[::1]:5432", "a,b", ""])
options = st.sampled_from(["password", "sslpassword", "passfile", "options", "channel"])


@st.composite
def urls(draw: st.DrawFn) -> str:
    """A URL with a secret as its password, an option, or both; escaped or not."""
    write = draw(st.sampled_from([lambda text: quote(text, safe=""), str]))
    login = draw(names)
    where = draw(st.sampled_from(["login", "option", "both"]))
    if where != "option":
        login += ":" + write(draw(secrets))
    url = f"{draw(schemes)}://{login}@{draw(hosts)}/{draw(names)}"
    if where == "login":
        return url + draw(st.sampled_from(["", "?sslmode=require", "?application_name=me"]))
    # An option always has its & and # escaped: unescaped they begin another part.
    return f"{url}?sslmode=require&{draw(options)}={quote(draw(secrets), safe='@:/? ')}"


def answer(url: str) -> str:
    """The place of a store, or why there is none."""
    try:
        return place_of(parse(url))
    except StoreError as error:
        return f"{error.message} {error.hint}"


@given(urls())
def test_no_form_of_a_url_shows_a_secret(url: str) -> None:
    assert MARK not in redacted(url)
    assert MARK not in answer(url)
    with tempfile.TemporaryDirectory() as folder:
        write_run(a_run("a"), answer(url), [Path(folder) / "state"])
        assert MARK.encode() not in (Path(folder) / "state" / FILE_NAME).read_bytes()


@given(urls(), st.data())
def test_no_error_of_the_driver_shows_a_secret(url: str, data: st.DataObject) -> None:
    try:
        target = parse(url)
    except StoreError:
        return
    told = [
        target.password or "",
        str(target.host),
        target.render_as_string(hide_password=False),
        *target.query.values(),
    ]
    quoted = data.draw(st.sampled_from([str(part) for part in told]))
    error = store_error(OperationalError("SELECT", {}, Exception(f"could not resolve {quoted!s}")), target)
    assert MARK not in f"{error.message} {error.hint}"


@given(names, secrets, names)
def test_a_password_is_understood_escaped_or_not(user: str, password: str, database: str) -> None:
    target = parse(f"postgresql://{user}:{quote(password, safe='')}@host/{database}")
    assert (target.username, target.password, target.host, target.database) == (user, password, "host", database)
    if "%" not in password and "?" not in password:
        assert parse(f"postgresql://{user}:{password}@host/{database}").password == password


@pytest.mark.parametrize("text", ["postgresql:me:secret@host/db", "host=h password='a secret' user=me"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_other_notations_are_refused_and_not_shown(
    text: str, form: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("WATTUNE_STORE", text)
    assert run(["config", *form]) == 0
    out = capsys.readouterr().out
    assert "secret" not in out
    assert not form or json.loads(out)
    with pytest.raises(StoreError, match="cannot be read"):
        parse(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:se@cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:s/e?c@ret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db?sslpassword=x&sslmode=require", "postgresql://me@host/db?sslmode=require"),
        ("postgresql://me:pw@host/db?application_name=a@b", "postgresql://me:***@***"),
        ("postgresql://host:5432/db?application_name=a@b", "postgresql://host:5432/db?application_name=a@b"),
        ("postgresql://me@corp:pw@host/db", "postgresql://me@corp:***@host/db"),
        ("sqlite:////data/a:b@c?password=1.db", "sqlite:////data/a:b@c?password=1.db"),
        ("/data/password=1.db", "/data/password=1.db"),
    ],
)
def test_what_is_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown
