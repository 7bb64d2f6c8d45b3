"""Wheels of a few lines, written as the archives that they are."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path


def write(folder: Path, name: str, version: str, code: str = "", requires: Sequence[str] = ()) -> Path:
    """Write the wheel of a package with one module, which has its version and some code, and a script."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{version}"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n{code}",
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": f"[console_scripts]\n{name}-says = {name}:print\n",
    }
    record = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{stem}.dist-info/RECORD"] = "\n".join([*record, f"{stem}.dist-info/RECORD,,", ""])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
