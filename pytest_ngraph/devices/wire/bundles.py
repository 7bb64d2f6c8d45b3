"""What somebody is given by the lab's CA: a tar to unpack in their ``~/.config/ngraph``."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Mapping


def packed(folder: str, files: Mapping[str, bytes]) -> bytes:
    """Pack files of one folder, all of them readable by their owner only."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        parts = folder.split("/")
        for depth in range(1, len(parts) + 1):
            entry = tarfile.TarInfo("/".join(parts[:depth]))
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o700, int(time.time())
            tar.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
