"""What goes to a device: the project's own files, whole and unchanged, and on the device never outside its folder."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import stat
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.devices.agent import tasks
from pytest_ngraph.devices.wire import shipping
from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.upkeep import caches
from pytest_ngraph.workloads import folders
from pytest_ngraph.workloads.kinds import kind_of, parse_model
from tests.conftest import skip_without

MODEL = "def net():\n    return None\n"


def project(folder: Path, *, git: bool = True) -> Path:
    """Make a project: tracked files, one that was changed, one that is new, some that git ignores."""
    files = {
        "models/net.py": MODEL,
        "models/sizes.txt": "3 4",
        "conftest.py": "",
        ".gitignore": "build/\n.venv/\nsecret.py\n",
        "secret.py": "KEY = 'x'\n",
        "build/made.py": "",
        ".venv/lib/site.py": "",
    }
    write(folder, files)
    if git:
        commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]
        for words in (["init", "-q"], ["add", "-A"], commit):
            subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
        (folder / "models/net.py").write_text(MODEL + "# changed\n")
        write(folder, {"models/new.py": "", "notes.txt": "untracked, no Python"})
    return folder.resolve()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def names_in(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


# Packing


def test_tracked_files_go_as_they_are_now_and_new_python_files_but_nothing_that_git_ignores(tmp_path: Path) -> None:
    packed = shipping.pack(project(tmp_path))
    assert names_in(packed.data) == [".gitignore", "conftest.py", "models/net.py", "models/new.py", "models/sizes.txt"]
    assert zipfile.ZipFile(io.BytesIO(packed.data)).read("models/net.py").decode().endswith("# changed\n")


def test_an_environment_that_git_was_not_told_to_ignore_stays_here(tmp_path: Path) -> None:
    root = project(tmp_path)
    before = names_in(shipping.pack(root).data)
    write(
        root, {"env/pyvenv.cfg": "", "env/lib/python3.11/site-packages/numpy/a.py": "", "models/__pycache__/b.py": ""}
    )
    assert names_in(shipping.pack(root).data) == before


def test_without_git_all_python_files_go_but_those_of_environments(tmp_path: Path) -> None:
    root = project(tmp_path, git=False)
    write(root, {"env/pyvenv.cfg": "", "env/lib/a.py": "", "models/__pycache__/b.py": ""})
    assert names_in(shipping.pack(root).data) == ["build/made.py", "conftest.py", "models/net.py", "secret.py"]


def refusing(folder: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """Put a program first on the path that is called git and does this."""
    folder.mkdir(parents=True)
    (folder / "git").write_text(f"#!/bin/sh\n{does}\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("below", ["", "models"])
def test_a_repository_that_git_refuses_to_read_is_an_error_with_what_git_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    root = project(tmp_path / "home")
    refusing(tmp_path / "bin", monkeypatch, 'echo "fatal: detected dubious ownership in repository" >&2; exit 128')
    with pytest.raises(
        SpecError, match=r"cannot be listed: fatal: detected dubious ownership in repository; make"
    ) as no:
        shipping.pack(root / below)
    assert f"the files that git tracks in {root}, and" in str(no.value)
    # Where there is no repository there is nothing to refuse.
    loose = project(tmp_path / "loose", git=False)
    assert "models/net.py" in names_in(shipping.pack(loose).data)


def test_a_repository_without_git_or_with_one_that_hangs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(tmp_path / "home")
    monkeypatch.setattr(shipping, "_GIT_SECONDS", 0.2)
    with monkeypatch.context() as patched:
        refusing(tmp_path / "bin", patched, "exec sleep 60")
        with pytest.raises(
            SpecError, match=r"cannot be listed: git did not answer within 0\.2 s; make 'git ls-files' work"
        ):
            shipping.pack(root)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(SpecError, match=r"cannot be listed: git cannot be started: No such file or directory; make"):
        shipping.pack(root)


def test_a_rootdir_below_the_repository_sends_what_is_below_it(tmp_path: Path) -> None:
    assert names_in(shipping.pack(project(tmp_path) / "models").data) == ["net.py", "new.py", "sizes.txt"]


def test_the_same_files_have_the_same_name_whenever_they_were_written(tmp_path: Path) -> None:
    first = shipping.pack(project(tmp_path / "one"))
    second = project(tmp_path / "two")
    for path in second.rglob("*"):
        if path.is_file():
            os.utime(path, (5, 5))
            path.chmod(0o600)
    again = shipping.pack(second)
    assert (again.sha256, again.data) == (first.sha256, first.data)
    assert first.sha256 == hashlib.sha256(first.data).hexdigest()
    (second / "conftest.py").write_text("# other")
    assert shipping.pack(second).sha256 != first.sha256


def test_links_go_as_what_they_lead_to_and_never_out_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("SECRET = 1\n")
    root = tmp_path / "project"
    write(root, {"a.py": "A = 1\n"})
    (root / "b.py").symlink_to("a.py")
    (root / "c.py").symlink_to(tmp_path / "outside.py")
    (root / "d.py").symlink_to("nowhere.py")
    packed = shipping.pack(root)
    assert names_in(packed.data) == ["a.py", "b.py"]
    kinds = {stat.S_IFMT(each.external_attr >> 16) for each in zipfile.ZipFile(io.BytesIO(packed.data)).infolist()}
    assert kinds == {stat.S_IFREG}


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 3), ("MOST_BYTES", 40)])
def test_a_project_that_is_too_large_is_refused_with_its_largest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(shipping, limit, value)
    with pytest.raises(SpecError, match=r"is too large .* files with .*; the largest: .*/.* MiB\); .*--rootdir"):
        shipping.pack(project(tmp_path))


# References


def reference(root: Path, text: str) -> ModelRef:
    return shipping.pack(root).reference(parse_model(text, (root,)))


def test_a_model_of_the_project_is_found_in_what_was_unpacked(tmp_path: Path) -> None:
    root = project(tmp_path / "home")
    shipped = reference(root, "models/net.py:net")
    assert shipped.text == "models/net.py:net"
    assert str(root) not in shipped.locator
    placed = shipping.located(shipped, tmp_path / "there", {})
    assert placed == ModelRef("models/net.py:net", "file", f"{tmp_path}/there/models/net.py:net")


def test_models_without_files_are_the_same_everywhere(tmp_path: Path) -> None:
    root = project(tmp_path)
    for text in ("timm:resnet18", "block:conv", "pkg.module:factory"):
        model = parse_model(text)
        assert reference(root, text) == model == shipping.located(model, None, {})


def test_a_model_outside_the_rootdir_is_refused_with_what_to_do(tmp_path: Path) -> None:
    root = project(tmp_path / "home")
    (tmp_path / "other.py").write_text(MODEL)
    with pytest.raises(SpecError, match=r"other\.py is outside the rootdir .*; move it below the rootdir, or"):
        reference(root, f"{tmp_path}/other.py:net")


def test_a_model_that_git_ignores_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"build/made\.py does not go to a remote device, as git ignores it"):
        reference(project(tmp_path), "build/made.py:net")


def test_the_import_path_is_that_of_the_client_as_far_as_it_is_the_projects(tmp_path: Path) -> None:
    root = project(tmp_path / "home")
    packed = shipping.pack(root)
    path = [str(tmp_path), str(root / "models"), "/usr/lib/python3", str(root / ".venv/lib"), str(root), str(root)]
    assert packed.path_of(path) == ["models", "."]


@pytest.mark.parametrize("locator", ["project/../../etc/passwd:x", "/etc/passwd:x", "elsewhere/a.py:x"])
def test_a_reference_that_leaves_what_was_unpacked_is_refused(tmp_path: Path, locator: str) -> None:
    with pytest.raises(DeviceUnusable, match=r"leaves the folder|nothing that was shipped"):
        shipping.located(ModelRef("a.py:x", "file", locator), tmp_path, {})


# Unpacking


def archive(folder: Path, entries: list[tuple[zipfile.ZipInfo | str, bytes]]) -> Path:
    path = folder / ("a" * 64)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in entries:
            packed.writestr(name, data)
    return path


def test_what_was_packed_is_unpacked_once(tmp_path: Path) -> None:
    root = project(tmp_path / "home")
    packed = shipping.pack(root)
    file = tmp_path / packed.sha256
    file.write_bytes(packed.data)
    there = shipping.unpack(file, tmp_path / "projects")
    assert there == tmp_path / "projects" / packed.sha256
    assert {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()} == packed.names
    assert (there / "models/net.py").read_text() == (root / "models/net.py").read_text()
    (there / "models/net.py").write_text("kept")
    os.utime(there, (5, 5))
    assert shipping.unpack(file, tmp_path / "projects") == there
    assert (there / "models/net.py").read_text() == "kept"
    # It was used just now.
    assert time.time() - there.stat().st_mtime < 60


def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Return what is brought to the disk from now on, and what gets its name, in order."""
    done: list[tuple[str, Path]] = []
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", path))
        return rename(path, target)

    monkeypatch.setattr(shipping, "sync", lambda path: done.append(("sync", path)))
    monkeypatch.setattr(Path, "rename", renamed)
    return done


def assert_safe(done: list[tuple[str, Path]], there: Path) -> None:
    """All that a folder holds was brought to the disk before it got its name, and then that name."""
    [scratch] = [path for what, path in done if what == "rename"]
    before = [path for what, path in done[: done.index(("rename", scratch))]]
    assert {path.relative_to(scratch) for path in before} == {
        path.relative_to(there) for path in (there, *there.rglob("*"))
    }
    # A folder after what it holds: its names are on disk with what they name.
    assert before[-1] == scratch
    assert done[-1] == ("sync", there.parent)


def test_what_is_unpacked_or_laid_out_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = shipping.pack(project(tmp_path / "home"))
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (blobs / packed.sha256).write_bytes(packed.data)
    with monkeypatch.context() as patched:
        done = steps(patched)
        there = shipping.unpack(blobs / packed.sha256, tmp_path / "projects")
    assert_safe(done, there)
    assert len(done) == len(packed.names) + len(["models", ".", "the name", "projects"])
    with monkeypatch.context() as patched:
        done = steps(patched)
        there = shipping.lay_out(blobs, "x", {"a.onnx": packed.sha256, "b.bin": packed.sha256}, tmp_path / "onnx")
    assert_safe(done, there)


def link(name: str) -> zipfile.ZipInfo:
    facts = zipfile.ZipInfo(name)
    facts.external_attr = (stat.S_IFLNK | 0o777) << 16
    return facts


@pytest.mark.parametrize(
    "name", ["../evil.py", "a/../../evil.py", "/etc/evil.py", "..", "a\\..\\evil.py", "", "/", "folder/"]
)
def test_no_entry_leaves_the_folder(tmp_path: Path, name: str) -> None:
    facts = zipfile.ZipInfo("x")
    facts.filename = name
    with pytest.raises(DeviceUnusable, match=r"not a plain file inside of it|cannot be unpacked"):
        shipping.unpack(archive(tmp_path, [("good.py", b""), (facts, b"evil")]), tmp_path / "projects")
    assert {path.name for path in tmp_path.rglob("*")} == {"a" * 64, "projects"}


def test_no_links_are_unpacked(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnusable, match="'link', which is not a plain file"):
        shipping.unpack(archive(tmp_path, [(link("link"), b"/etc/passwd")]), tmp_path / "projects")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["a.py", "a.py/b.py"])
def test_a_name_that_comes_twice_is_refused(tmp_path: Path, second: str) -> None:
    with pytest.raises(DeviceUnusable, match="cannot be unpacked"):
        shipping.unpack(archive(tmp_path, [("a.py", b"1"), (second, b"2")]), tmp_path / "projects")
    assert list((tmp_path / "projects").iterdir()) == []


def test_too_many_files_and_too_many_bytes_are_refused_before_any_is_written(tmp_path: Path) -> None:
    bomb = archive(tmp_path, [(f"{number}.py", b"\0" * 100_000) for number in range(20)])
    assert bomb.stat().st_size < 10_000
    for limits in ({"most_files": 19}, {"most_bytes": 1_999_999}):
        with pytest.raises(DeviceUnusable, match="larger than"):
            shipping.unpack(bomb, tmp_path / "projects", **limits)
    assert list((tmp_path / "projects").iterdir()) == []
    assert len(list(shipping.unpack(bomb, tmp_path / "projects", most_files=20, most_bytes=2_000_000).iterdir())) == 20


def test_an_entry_that_says_it_is_small_is_not_written_beyond_that(tmp_path: Path) -> None:
    path = archive(tmp_path, [("a.py", b"x" * 1_000_000)])
    data = path.read_bytes()
    # Its size, in the entry's own head and in the directory at the end.
    path.write_bytes(data.replace((1_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with pytest.raises(DeviceUnusable, match="cannot be unpacked"):
        shipping.unpack(path, tmp_path / "projects", most_bytes=1000)
    assert list((tmp_path / "projects").iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"PK", b"no archive at all", b"PK\x05\x06" + b"\xff" * 18])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / ("a" * 64)
    path.write_bytes(data)
    with pytest.raises(DeviceUnusable, match="cannot be unpacked"):
        shipping.unpack(path, tmp_path / "projects")


# Blobs


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "agent"
    monkeypatch.setenv(tasks.FOLDER_VARIABLE, str(folder))
    return folder


def put(content: str, size: int, offset: int = 0, data: bytes | None = None) -> dict[str, Any]:
    part = {} if data is None else {"offset": offset, "data": base64.b64encode(data).decode()}
    said = json.loads(tasks.put_blob(json.dumps({"sha256": content, "size": size, **part})))
    assert isinstance(said, dict)
    return said


def test_a_file_arrives_in_parts_and_goes_on_where_it_stopped(agent: Path) -> None:
    data = bytes(range(256)) * 40
    content = hashlib.sha256(data).hexdigest()
    assert put(content, len(data)) == {"ok": True, "have": False, "offset": 0}
    assert put(content, len(data), 0, data[:4000])["offset"] == 4000
    # Another client, or this one after a break, is told how far it is.
    assert put(content, len(data)) == {"ok": True, "have": False, "offset": 4000}
    assert put(content, len(data), 9000, data[9000:])["offset"] == 4000
    assert put(content, len(data), 2000, data[2000:6000])["offset"] == 6000
    assert not (agent / "blobs" / content).exists()
    assert put(content, len(data), 6000, data[6000:]) == {"ok": True, "have": True, "offset": len(data)}
    assert (agent / "blobs" / content).read_bytes() == data
    assert put(content, len(data))["have"]
    assert [path.name for path in (agent / "blobs").iterdir()] == [content]


def test_an_empty_file_arrives(agent: Path) -> None:
    content = hashlib.sha256(b"").hexdigest()
    assert put(content, 0) == {"ok": True, "have": False, "offset": 0}
    assert put(content, 0, 0, b"")["have"]


def test_a_damaged_file_is_refused_and_starts_anew(agent: Path) -> None:
    content = hashlib.sha256(b"right").hexdigest()
    said = put(content, 5, 0, b"wrong")
    assert (said["ok"], said["error"]) == (False, "DeviceUnusable")
    assert "arrived damaged" in said["reason"]
    assert put(content, 5)["offset"] == 0
    assert put(content, 5, 0, b"right and more")["ok"] is False
    assert put(content, 5, 0, b"right")["have"]


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "[]",
        "{}",
        '{"sha256": "../../evil", "size": 1}',
        '{"sha256": "' + "a" * 64 + '", "size": -1}',
        '{"sha256": "' + "a" * 64 + '", "size": 99999999999999}',
        '{"sha256": "' + "a" * 64 + '", "size": 1, "offset": 0, "data": "%%"}',
    ],
)
def test_a_broken_request_is_said_with_what_was_read(agent: Path, asked: str) -> None:
    said = json.loads(tasks.put_blob(asked))
    assert (said["ok"], said["error"]) == (False, "DeviceUnusable")
    assert repr(asked[:200]) in said["reason"]
    assert not agent.exists()


def test_a_disk_without_room_is_said_before_anything_is_sent(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_SPARE_BYTES", 1 << 62)
    said = put("a" * 64, 5)
    assert said["ok"] is False
    assert "the disk is full" in said["reason"]


def test_what_was_longest_unused_goes_when_there_is_too_much_but_nothing_of_today(tmp_path: Path) -> None:
    blobs, projects = tmp_path / "blobs", tmp_path / "projects"
    write(blobs, {"one": "x" * 1000, "two": "x" * 1000, "three": "x" * 1000})
    write(projects, {"old/a.py": "x" * 1000, "young/a.py": "x" * 1000})
    days = {blobs / "one": 3, blobs / "two": 5, projects / "old": 4, projects / "young": 2}
    for path, age in days.items():
        os.utime(path, (time.time() - age * 24 * 3600,) * 2)
    shipping.tidy([blobs, projects, tmp_path / "absent"], 3500)
    assert {path.name for folder in (blobs, projects) for path in folder.iterdir()} == {"three", "young", "one"}
    shipping.tidy([blobs, projects], 0)
    assert {path.name for folder in (blobs, projects) for path in folder.iterdir()} == {"three"}


def test_what_was_built_on_a_board_goes_once_it_was_not_used_for_long(agent: Path) -> None:
    folders.publish(agent / "artifacts" / "sample-old", lambda folder: {"bytes": (folder / "a").write_bytes(b"old")})
    folders.publish(agent / "compiled" / "tvm-new", lambda folder: {"bytes": (folder / "a").write_bytes(b"new")})
    write(agent / "artifacts", {"inductor/fxgraph/a": "old", "triton/b/c": "old", "triton/b/d": "new"})
    long_ago = time.time() - tasks.MOST_UNUSED_SECONDS - 3600
    for path in (*(agent / "artifacts").rglob("*"),):
        if path.name != "d":
            os.utime(path, (long_ago, long_ago))
    content = hashlib.sha256(b"").hexdigest()

    assert put(content, 0, 0, b"")["have"]

    assert sorted(path.name for path in (agent / "artifacts").iterdir() if path.is_dir()) == ["triton"]
    assert (agent / "artifacts" / "triton" / "b" / "c").exists()
    assert (agent / "compiled" / "tvm-new" / "a").exists()


def test_a_cache_that_cannot_be_removed_refuses_no_file(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(caches, "drop_unused_in", refuse)
    assert put(hashlib.sha256(b"").hexdigest(), 0, 0, b"")["have"]


# ONNX


def onnx_model(folder: Path, *, location: str = "weights.bin") -> ModelRef:
    """Write a model whose weights lie in a file of their own."""
    skip_without("onnx", "onnxruntime", "numpy")
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    folder.mkdir(parents=True, exist_ok=True)
    weights = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [weights],
    )
    path = folder / "model.onnx"
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(made, path, save_as_external_data=True, location=location, size_threshold=0)
    return parse_model(f"onnx:{path}")


@pytest.mark.real
def test_an_onnx_model_goes_with_its_data_and_lies_side_by_side_again(tmp_path: Path) -> None:
    model = onnx_model(tmp_path / "home")
    bundle = shipping.bundle(model)
    assert [path.name for path, _ in bundle.files] == ["model.onnx", "weights.bin"]
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for path, content in bundle.files:
        (blobs / content).write_bytes(path.read_bytes())
    there = shipping.lay_out(blobs, bundle.name, bundle.contents, tmp_path / "onnx")
    placed = shipping.located(bundle.reference, None, {bundle.name: there})
    assert placed.text == model.text
    sent, arrived = (path for path, _ in bundle.files), kind_of(placed).files(placed)
    assert [path.read_bytes() for path in arrived] == [path.read_bytes() for path in sent]
    # The same model from elsewhere is the same there; one with other weights is not.
    assert shipping.bundle(onnx_model(tmp_path / "again")).name == bundle.name
    (tmp_path / "again" / "weights.bin").write_bytes(b"\1" * 64)
    assert shipping.bundle(parse_model(f"onnx:{tmp_path}/again/model.onnx")).name != bundle.name


@pytest.mark.real
def test_onnx_files_that_cannot_be_sent_are_refused_here(tmp_path: Path) -> None:
    model = onnx_model(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(SpecError, match=r"its data .*weights\.bin must be a file in the folder of the model"):
        shipping.bundle(model)
    (tmp_path / "model.onnx").write_bytes(b"garbage")
    with pytest.raises(SpecError, match="cannot be read as an ONNX file"):
        shipping.bundle(model)


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".."])
def test_blobs_are_laid_out_by_plain_names_only(tmp_path: Path, name: str) -> None:
    with pytest.raises(DeviceUnusable, match="is not the name of a file"):
        shipping.lay_out(tmp_path, "x", {name: "a" * 64}, tmp_path / "onnx")
    assert list((tmp_path / "onnx").iterdir()) == []


def test_a_name_that_is_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / ("a" * 64)
    for name, said in (
        (f"models/{'n' * 256}.py", "'nnnnnnnnnnnnnnnnnnnn'... in it has 259 bytes (at most 255)"),
        (f"{'é' * 128}.py", "in it has 259 bytes (at most 255)"),
        ("/".join(["d" * 200] * 20), "its path has 4019 bytes (at most 3000)"),
    ):
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("fine.py", "pass")
            opened.writestr(name, "pass")
        with pytest.raises(DeviceUnusable, match=r"the project holds '.*, which cannot be unpacked") as refused:
            shipping.unpack(archive, tmp_path / "there")
        assert said in str(refused.value)
        assert list((tmp_path / "there").iterdir()) == []
    with pytest.raises(DeviceUnusable, match=r"cannot be written: the name"):
        shipping.lay_out(tmp_path, "a", {"n" * 300: "b" * 64}, tmp_path / "onnx")
    # Where it comes from, on a system that has longer names: what is allowed is what is shorter here.
    monkeypatch.setattr(shipping, "MOST_NAME_BYTES", 20)
    project = tmp_path / "project"
    project.mkdir()
    (project / f"{'m' * 30}.py").write_text("pass")
    with pytest.raises(SpecError, match=r"project/m{30}\.py does not go to a remote device: .*give it a shorter name"):
        shipping.pack(project)
