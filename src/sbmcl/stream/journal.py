"""An append-only file of what was learned: a record is on the disk before learning it is acknowledged.

    record  =  magic, lengths of the two parts, checksum of the parts, checksum of these numbers;  JSON;  float64 numbers

Knows records, not what they mean. A kill can only leave a record that is not whole, at the end; it was never acknowledged,
and is cut off. Anything else that is not whole is damage, and refused.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAGIC = b"sbj1"
NUMBERS = struct.Struct("<4sIQI")
CHECK = struct.Struct("<I")
HEAD = NUMBERS.size + CHECK.size


@dataclass(frozen=True)
class Record:
    about: dict[str, Any]
    body: bytes
    end: int
    """Where in the file the next one begins."""


def packed(about: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(about).encode()
    numbers = NUMBERS.pack(MAGIC, len(text), len(body), zlib.crc32(body, zlib.crc32(text)))
    return numbers + CHECK.pack(zlib.crc32(numbers)) + text + body


def records(data: bytes) -> Iterator[Record]:
    """All whole records; a ValueError that says where, if what is not whole cannot come from a kill."""
    at = 0
    while at < len(data):
        head = data[at : at + HEAD]
        if len(head) < HEAD:
            return
        magic, length, more, check = NUMBERS.unpack(head[: NUMBERS.size])
        if magic != MAGIC or CHECK.unpack(head[NUMBERS.size :])[0] != zlib.crc32(head[: NUMBERS.size]):
            if not any(data[at + HEAD :]):  # room that a file system had made for a record that never came
                return
            raise ValueError(f"its journal is damaged at byte {at}: there is no record where one should begin")
        end = at + HEAD + length + more
        if end > len(data):
            return
        text, body = data[at + HEAD : end - more], data[end - more : end]
        if zlib.crc32(body, zlib.crc32(text)) != check:
            if not any(data[end:]):
                return
            raise ValueError(f"its journal is damaged between bytes {at} and {end}: a record is not what was written")
        try:
            about = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the record at byte {at} of its journal cannot be read: {error}") from error
        if not isinstance(about, dict):
            raise ValueError(f"the record at byte {at} of its journal is none of a learner's")
        yield Record(about, body, end)
        at = end


class Journal:
    """Open for appending. `end` is where the whole records end; whatever lies behind is cut off."""

    def __init__(self, path: Path, end: int):
        self.path, self.end = path, end
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._file, end)
        os.fsync(self._file)

    @classmethod
    def create(cls, path: Path, about: dict[str, Any]) -> "Journal":
        """With a first record that says whose journal it is."""
        data = packed(about)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return cls(path, len(data))

    def append(self, about: dict[str, Any], body: bytes) -> None:
        """Returns when the record is on the disk; if that fails, it is as if nothing had been written."""
        data = memoryview(packed(about, body))
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self.end)
            raise OSError(
                error.errno, f"nothing was learned, since {self.path} could not be written: {error.strerror}"
            ) from error
        self.end = os.lseek(self._file, 0, os.SEEK_END)

    def close(self) -> None:
        os.close(self._file)
