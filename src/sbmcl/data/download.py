"""Downloads that go on where they stopped, show how far they are, and are whole or not there."""

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

BLOCK = 1 << 20


def fetch(url: str, path: Path, *, md5: str | None = None) -> Path:
    """The file at `url`, downloaded once. An interrupted download lies beside it as `.part` and is continued."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        _download(url, part)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise OSError(
            f"{url} cannot be fetched: {error}. What has arrived is kept; run the same command again to go on, or download "
            f"the file by other means and name its folder with --from."
        ) from error
    if md5 is not None and (found := _md5(part)) != md5:
        part.unlink()
        raise ValueError(f"{url} is not the file it should be (MD5 {found}, expected {md5}); it was deleted, try again")
    return part.replace(path)


def _download(url: str, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if have and error.code == 416 and error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return  # all of it was there already
        raise
    with answer, part.open("ab" if answer.status == 206 else "wb") as file:
        have = have if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        columns = (TextColumn(part.stem), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=total, completed=have)
            while block := answer.read(BLOCK):
                file.write(block)
                bar.advance(task, len(block))
    if total is not None and part.stat().st_size != total:
        raise ConnectionError(f"the connection ended after {part.stat().st_size:,} of {total:,} bytes")


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
