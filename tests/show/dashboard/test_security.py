"""Who may talk to the server, and what it never shows."""

from __future__ import annotations

import json
import stat
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from tests.commands import PATIENCE
from tests.show.dashboard.asgi import Client

from noisemarket.cli import main
from noisemarket.cli.dashboard import dashboard
from noisemarket.errors import BadInput
from noisemarket.ledger.store import Ledger
from noisemarket.show.dashboard import run_store
from noisemarket.show.dashboard.run_store import RunStore, UnknownRun, is_name
from noisemarket.show.dashboard.security import is_loopback, new_token
from noisemarket.show.dashboard.serving import listen, opening
from noisemarket.show.dashboard.web_app import web_app

HERE = "http://127.0.0.1:8050"
STATUS = json.dumps({"state": "complete", "started": "2026-01-01T00:00:00+00:00"})


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A folder of one run, beside a secret, with symlinks that lead there."""
    root, secret = tmp_path / "runs", tmp_path / "secret"
    (root / "one").mkdir(parents=True)
    (root / "one" / "status.json").write_text(STATUS)
    secret.mkdir()
    for name in ("status.json", "contracts.csv", "summary.json", "scenario.toml"):
        (secret / name).write_text(STATUS if name == "status.json" else "owner\nsecret-owner\n")
    (root / "linked").symlink_to(secret)
    (root / "one" / "contracts.csv").symlink_to(secret / "contracts.csv")
    (root / "one" / "curator").symlink_to(secret)
    return RunStore(root)


@pytest.fixture
def client(store: RunStore) -> Client:
    return Client(web_app(store))


@pytest.mark.parametrize(
    "path",
    [
        *("..", "../secret", "..%2Fsecret", "%2e%2e%2fsecret", "linked", "one%2F..%2F..%2Fsecret"),
        *("/etc", "%2Fetc", "one/../../secret", ".dashboard", "one%00", "..\\secret", "C:\\"),
    ],
)
def test_nothing_outside_of_the_runs_folder_is_served(client: Client, path: str) -> None:
    for part in ("", "/contracts", "/contracts.csv", "/curves", "/ledger", "/owner?name=x"):
        answer = client.get(f"/api/runs/{path}{part}")
        assert "secret-owner" not in answer.text
        assert answer.status_code in (404, 422) or answer.json() == client.get("/api/runs").json()


def test_a_symlink_inside_of_a_run_leads_nowhere(client: Client, store: RunStore) -> None:
    assert store.file("one", "contracts.csv") is None
    assert store.file("one", "curator/summary.json") is None
    assert client.get("/api/runs/one/contracts").json()["rows"] == []
    assert store.names() == ["one"]
    with pytest.raises(UnknownRun):
        store.path("linked")


def test_static_files_are_the_packages_own(client: Client) -> None:
    for path in ("/static/../web_app.py", "/static/..%2Fweb_app.py", "/static//etc/passwd"):
        assert client.get(path).status_code == 404
    assert client.get("/").status_code == 200


def test_a_scenario_that_names_a_file_elsewhere_is_not_read(
    store: RunStore, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text("owner,privacy_cost\nsecret-owner,1\n")
    (store.root / "one" / "scenario.toml").write_text(
        f'[population]\nfile = "{tmp_path / "people.csv"}"\nowners = 1\n'
    )
    answer = Client(web_app(store)).get("/api/runs/one/curves")
    assert answer.status_code == 422
    assert "is not in this run folder" in answer.json()["problem"]
    assert "secret-owner" not in answer.text


def test_a_ledger_file_elsewhere_is_not_read(store: RunStore, tmp_path: Path) -> None:
    where = str(tmp_path / "secret" / "ledger.sqlite")
    for ledger in (where, f"sqlite:///{where}"):
        document = {"job": "j", "opened_at": "", "expires_at": "", "ledger": ledger}
        (store.root / "one" / "market.json").write_text(json.dumps(document))
        answer = Client(web_app(store)).get("/api/runs/one/ledger")
        assert answer.status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8050", "", "[::1"])
def test_another_host_is_refused(client: Client, host: str) -> None:
    assert client.get("/api/runs", headers={"host": host}).status_code == 403


@pytest.mark.parametrize(
    "host", ["localhost:8050", "127.0.0.1", "[::1]:8050", "LOCALHOST", "127.0.0.2:8050"]
)
def test_this_machine_is_answered(client: Client, host: str) -> None:
    assert client.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-length": "99999999"}, 413),
        ({"origin": HERE}, 404),
        ({}, 404),
    ],
)
def test_only_its_own_pages_change_something(
    client: Client, headers: dict[str, str], status: int
) -> None:
    given = {"content-type": "application/json", **headers}
    assert client.post("/api/runs/none/stop", content=b"{}", headers=given).status_code == status


def test_a_body_of_unknown_length_is_refused(client: Client) -> None:
    assert client.post("/api/runs", said_length=False).status_code == 411


@pytest.mark.parametrize("place", ["postgresql://db.example/market", "http://10.0.0.1/x"])
def test_no_server_is_connected_to_because_a_folder_says_so(
    store: RunStore, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    @contextmanager
    def reading(where: str) -> Iterator[Ledger]:
        asked.append(where)
        raise BadInput("ledger", where, "is a test's.")
        yield

    monkeypatch.setattr(run_store, "reading", reading)
    document = {"job": "j", "opened_at": "", "expires_at": "", "ledger": place}
    (store.root / "one" / "market.json").write_text(json.dumps(document))
    client = Client(web_app(store))
    answer = client.get("/api/runs/one/ledger")
    assert answer.status_code == 404
    assert "--ledger URL" in answer.json()["problem"]
    assert client.get("/api/runs/one").json()["ledger"] is True  # there is one, not to be read
    for part in ("contracts", "contracts.csv", "owner?name=x"):
        client.get(f"/api/runs/one/{part}")
    client.get("/api/compare?run=one")
    assert asked == []
    for own in ("postgresql://db.example/other", "postgresql://else.example/market"):
        Client(web_app(RunStore(store.root, [own]))).get("/api/runs/one/contracts")
        assert asked == []
    allowed = place.replace("://", "://reader:secret@")
    Client(web_app(RunStore(store.root, [allowed]))).get("/api/runs/one/contracts")
    assert asked == [allowed]  # the user's own address of it, never the folder's


def test_a_ledger_whose_journal_leads_elsewhere_is_not_read(store: RunStore) -> None:
    folder = store.root / "one"
    document = {"job": "j", "opened_at": "", "expires_at": "", "ledger": ""}
    (folder / "market.json").write_text(json.dumps(document))
    (folder / "ledger.sqlite").write_bytes(b"")
    assert run_store.ledger_of(store, "one") is not None
    (folder / "ledger.sqlite-journal").symlink_to(store.root.parent / "secret" / "summary.json")
    assert run_store.ledger_of(store, "one") is None


def test_each_port_has_a_cookie_of_its_own(store: RunStore) -> None:
    cookies = set()
    for host in ("127.0.0.1:8050", "127.0.0.1:8051", "127.0.0.1"):
        token = new_token()
        answer = Client(web_app(store, token=token), host).get(f"/?token={token}")
        cookies.add(answer.headers["set-cookie"].partition("=")[0])
    assert cookies == {"noisemarket-8050", "noisemarket-8051", "noisemarket-80"}


def test_who_has_no_token_is_asked_for_it(store: RunStore) -> None:
    client = Client(web_app(store, token=new_token()))
    for path in ("/", "/?token=wrong"):
        answer = client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 401
        assert 'name="token"' in answer.text
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_token_is_needed(store: RunStore) -> None:
    token = new_token()
    client = Client(web_app(store, token=token), "box.example:8050")
    for path in ("/", "/api/runs", "/static/app.js", "/?token=wrong", "/?token="):
        assert client.get(path).status_code == 401, path
    bearer = {"authorization": f"Bearer {token}"}
    assert client.get("/api/runs", headers=bearer).status_code == 200
    answer = client.get(f"/?token={token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=Lax" in answer.headers["set-cookie"]
    for path in ("/api/runs", "/", "/?token="):
        assert client.get(path).status_code == 200, "by the cookie"
    forged = {"origin": "http://evil.example", "content-type": "application/json"}
    assert client.post("/api/runs", content=b"{}", headers=forged).status_code == 403


def test_pages_may_load_nothing_from_elsewhere(client: Client) -> None:
    headers = client.get("/").headers
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/api/runs").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("name", "good"),
    [("demo", True), ("a b.c-d", True), ("Übung", True), ("", False), ("..", False),
     (".hidden", False), ("a/b", False), ("a\\b", False), ("-o", False), ("a\0", False),
     ("x" * 101, False), (" x", False)],
)  # fmt: skip
def test_names_of_runs(name: str, good: bool) -> None:
    assert is_name(name) is good


def test_a_run_folder_is_not_a_folder_of_runs(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a run folder"):
        RunStore(store.root / "one")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be used"):
        RunStore(tmp_path / "file")


def test_where_a_server_listens(store: RunStore) -> None:
    assert all(map(is_loopback, ("127.0.0.1", "::1", "localhost", "127.9.9.9")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "example.org", "")))
    given: dict[str, Any] = {"host": "0.0.0.0", "port": 0, "show": False}
    with pytest.raises(BadInput, match="leave out --no-token"):
        dashboard(str(store.root), token=False, **given)
    with pytest.raises(BadInput, match="URL of a ledger"):
        dashboard(str(store.root), ledger=["/etc"], **given)
    with listen("127.0.0.1", 0) as one, pytest.raises(BadInput, match="give another"):
        listen("127.0.0.1", one.getsockname()[1])


def test_a_used_port_names_its_option(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as used:
        port = str(used.getsockname()[1])
        with pytest.raises(SystemExit) as end:
            main(["dashboard", str(store.root), "--port", port, "--no-open"])
    assert end.value.code == 2
    assert f"--port {port} cannot be used on 127.0.0.1" in capsys.readouterr().err


def test_a_browser_is_not_started_with_the_token(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of a machine can read the arguments of its programs."""
    given: list[str] = []
    opened = Event()
    monkeypatch.setattr(webbrowser, "open", lambda url: (given.append(url), opened.set()))
    with opening("http://127.0.0.1:8050/?token=secret", store.private()):
        assert opened.wait(PATIENCE)
        (url,) = given
        assert "secret" not in url
        page = Path(unquote(urlsplit(url).path))
        assert "url=http://127.0.0.1:8050/?token=secret" in page.read_text()
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    assert not page.exists()
    assert store.names() == ["one"]
