"""Downloads from a server of this test's own: whole, continued where they stopped, and refused when they are something else."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sbmcl.data.download import fetch

DATA = bytes(range(256)) * 40
MD5 = hashlib.md5(DATA).hexdigest()


class Server(BaseHTTPRequestHandler):
    """Knows ranges, unless the path says otherwise; `/short` closes the connection half way."""

    asked: list[str]

    def do_GET(self) -> None:
        span = self.headers.get("Range")
        Server.asked.append(f"{self.path} {span}")
        start = int(span.split("=")[1].rstrip("-")) if span and self.path != "/plain" else 0
        if self.path == "/missing":
            self.send_error(404)
        elif start >= len(DATA):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(DATA)}")
            self.end_headers()
        else:
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(DATA) - start))
            self.end_headers()
            stop = 5_000 if self.path == "/short" and not start else len(DATA)
            self.wfile.write(DATA[start:stop])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Server.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_file_is_fetched_once(url: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    for _ in range(2):
        assert fetch(f"{url}/file", path, md5=MD5).read_bytes() == DATA
    assert Server.asked == ["/file None"]
    assert list(path.parent.iterdir()) == [path]


def test_an_interrupted_download_goes_on_where_it_stopped(url: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(OSError, match="run the same command again to go on"):
        fetch(f"{url}/short", path)
    assert not path.exists()
    assert (tmp_path / "file.part").stat().st_size == 5_000
    assert fetch(f"{url}/short", path, md5=MD5).read_bytes() == DATA
    assert Server.asked == ["/short None", "/short bytes=5000-"]


def test_a_server_without_ranges_sends_everything_again(url: str, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(DATA[:100])
    assert fetch(f"{url}/plain", tmp_path / "file", md5=MD5).read_bytes() == DATA


def test_what_was_there_already_only_has_to_be_renamed(url: str, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(DATA)
    assert fetch(f"{url}/file", tmp_path / "file", md5=MD5).read_bytes() == DATA


def test_another_file_is_refused_and_deleted(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the file it should be"):
        fetch(f"{url}/file", tmp_path / "file", md5="0" * 32)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["/missing", ":1/refused"])
def test_what_cannot_be_reached_says_what_to_do(url: str, tmp_path: Path, address: str) -> None:
    target = f"{url}{address}" if address == "/missing" else "http://127.0.0.1:1/refused"
    with pytest.raises(OSError, match=r"cannot be fetched.*--from"):
        fetch(target, tmp_path / "file")
