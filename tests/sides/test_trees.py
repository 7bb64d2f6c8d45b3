"""The files of a commit: all of them, as they are in it, and nothing of the repository is changed by reading it."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ngraph import sides
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.sides import Side
from tests.support import git_repository as repositories
from tests.support.git_repository import git


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return repositories.make(tmp_path / "project")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def resolve(project: Path, tmp_path: Path, said: list[str]) -> Callable[..., Side]:
    def resolve(text: str, rootdir: Path | None = None) -> Side:
        cache = tmp_path / "kept" / "sides"
        return sides.resolve(sides.read(text), rootdir=rootdir or project, cache=cache, progress=said.append)

    return resolve


def files(folder: str | Path) -> dict[str, str]:
    found = sorted(path for path in Path(folder).rglob("*") if not path.is_dir() or path.is_symlink())
    return {
        path.relative_to(folder).as_posix(): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in found
    }


def state(project: Path) -> dict[str, bytes]:
    """Return every file of a repository, and what git says of it."""
    held = {str(path): path.read_bytes() for path in sorted(project.rglob("*")) if path.is_file()}
    return {**held, "refs": git(project, "for-each-ref").encode(), "status": git(project, "status", "--short").encode()}


def test_a_revision_is_its_files_and_its_name(project: Path, resolve: Callable[..., Side]) -> None:
    first = git(project, "rev-parse", "HEAD")
    repositories.commit(project, {"model.py": "DEPTH = 2\n", "pkg/layers.py": "", "notes.txt": "new"})

    side = resolve("HEAD~1")

    assert side.label == f"HEAD~1@{first[:7]}"
    assert files(side.tree) == {"model.py": "DEPTH = 1\n"}
    assert (side.root, side.packages, side.versions, side.python, side.content) == (str(project), (), (), "", "")
    assert Path(side.moved(str(project / "model.py"))).read_text() == "DEPTH = 1\n"
    assert resolve(first[:9]).label == first[:7]
    assert resolve("main").label == f"main@{git(project, 'rev-parse', '--short=7', 'HEAD')}"


def test_a_rootdir_below_the_top_has_all_files_and_the_top_as_it_is_written(
    project: Path, tmp_path: Path, resolve: Callable[..., Side]
) -> None:
    repositories.commit(project, {"services/a/test_a.py": "", "common.py": ""})
    link = tmp_path / "by-link"
    link.symlink_to(project)

    assert resolve("main", project / "services" / "a").root == str(project)
    side = resolve("main", link / "services" / "a")

    assert side.root == str(link)
    assert Path(side.moved(str(link / "common.py"))).is_file()


def test_nothing_of_the_repository_is_written_and_nothing_of_it_runs(
    project: Path, tmp_path: Path, resolve: Callable[..., Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho x >> {mark}\n")
    program.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        shutil.copy(program, hooks / name)
    repositories.commit(project, {"staged.py": "1", ".gitattributes": "*.py filter=evil diff=evil\n"})
    for key in ("core.fsmonitor", "core.pager", "core.sshCommand", "diff.evil.textconv", "filter.evil.smudge"):
        git(project, "config", key, str(program))
    git(project, "config", "core.hooksPath", str(hooks))
    mark.unlink(missing_ok=True)
    (project / "model.py").write_text("DEPTH = 3  # not committed\n")
    (project / "untracked.py").write_text("")
    # What git status itself would write is written before; its own use of the monitor is not ours.
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "false")
    state(project)
    before = state(project)
    mark.unlink(missing_ok=True)
    monkeypatch.delenv("GIT_CONFIG_COUNT")
    monkeypatch.setenv("GIT_PAGER", str(program))

    side = resolve("HEAD~1")
    resolve("merge-base")

    assert not mark.exists()
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    assert state(project) == before
    assert files(side.tree) == {"model.py": "DEPTH = 1\n"}


def test_attributes_neither_leave_out_nor_change_files(project: Path, resolve: Callable[..., Side]) -> None:
    held = {
        ".gitattributes": "tests/** export-ignore\nversion.py export-subst\n*.py text eol=crlf ident\n",
        "tests/net.py": "kept\n",
        "version.py": "V = '$Format:%H$'  # $Id$\n",
    }
    repositories.commit(project, held)

    assert files(resolve("HEAD").tree) == {"model.py": "DEPTH = 1\n", **held}


def test_modes_names_and_folders_are_those_of_the_commit(project: Path, resolve: Callable[..., Side]) -> None:
    strange = "strange \n\t\"'\\ ü.txt"
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / os.fsdecode(b"not-utf8-\xff.txt")).write_text("bytes")
    repositories.commit(project, {strange: "strange", "a/b/c/d.txt": "deep", "empty": ""})

    tree = Path(resolve("HEAD").tree)

    assert (tree / "run.sh").stat().st_mode & stat.S_IXUSR
    assert not (tree / "empty").stat().st_mode & stat.S_IXUSR
    assert (tree / strange).read_text() == "strange"
    assert (tree / os.fsdecode(b"not-utf8-\xff.txt")).read_text() == "bytes"
    assert (tree / "a/b/c/d.txt").read_text() == "deep"


def test_links_stay_as_far_as_they_stay_inside(project: Path, resolve: Callable[..., Side], said: list[str]) -> None:
    folder = project / "one" / "two"
    folder.mkdir(parents=True)
    (folder / "file").write_text("inside")
    for name, to in {
        "by-folder": "one/two",
        "by-file": "one/two/file",
        "nowhere": "one/not-there",
        "absolute": "/etc/passwd",
        "outside": "../secret",
        # Inside as it is written, and outside where it leads.
        "one/two/up": "../..",
        "one/two/further": "up/../secret",
        "loop": "loop",
    }.items():
        (project / name).symlink_to(to)
    (project.parent / "secret").write_text("secret")
    repositories.commit(project, {})

    side = resolve("HEAD")

    kept = {name: text for name, text in files(side.tree).items() if text.startswith("-> ")}
    assert kept == {
        "by-folder": "-> one/two",
        "by-file": "-> one/two/file",
        "nowhere": "-> one/not-there",
        "one/two/up": "-> ../..",
        "loop": "-> loop",
    }
    assert (Path(side.tree) / "by-folder" / "file").read_text() == "inside"
    why = "a link that leaves the repository"
    assert sides.unusable(side.tree) == {"absolute": why, "outside": why, "one/two/further": why}
    assert f"not on the other side: outside: {why}" in said


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", "."])
def test_names_that_no_checkout_would_write_are_refused(
    project: Path, resolve: Callable[..., Side], tmp_path: Path, name: str
) -> None:
    blob = repositories.blob(project, b"evil")
    # As git mktree refuses some of them: the bytes of a tree, mode and name and hash.
    data = b"100644 evil\0" + bytes.fromhex(blob)
    inner = git(project, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", given=data)
    data = b"40000 " + name.encode() + b"\0" + bytes.fromhex(inner)
    outer = git(project, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", given=data)
    made = git(project, "commit-tree", outer, "-m", "evil")

    with pytest.raises(SpecError, match=r"the commit has a file \".*/evil\", which no checkout would write"):
        resolve(made)

    assert list(tmp_path.rglob("evil")) == []


def test_no_file_is_written_through_a_link(project: Path, resolve: Callable[..., Side], tmp_path: Path) -> None:
    blob, link = repositories.blob(project, b"evil"), repositories.blob(project, str(tmp_path).encode())
    inner = git(project, "mktree", given=f"100644 blob {blob}\tevil\n".encode())
    data = b"120000 a\0" + bytes.fromhex(link) + b"40000 a\0" + bytes.fromhex(inner)
    outer = git(project, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", given=data)
    made = git(project, "commit-tree", outer, "-m", "evil")

    try:
        resolve(made)
    except SpecError as error:
        assert "cannot be kept" in str(error)  # noqa: PT017 - either is right
    assert not (tmp_path / "evil").exists()


def test_large_files_that_are_here_are_whole_and_others_are_named(
    project: Path, resolve: Callable[..., Side], said: list[str]
) -> None:
    content = b"weights" * 1000
    name = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {len(content)}\n"
    repositories.commit(project, {"model.bin": pointer, "how.md": "version https://git-lfs\n"})

    side = resolve("HEAD")

    assert files(side.tree)["model.bin"] == pointer
    assert list(sides.unusable(side.tree)) == ["model.bin"]
    assert "git lfs fetch" in sides.unusable(side.tree)["model.bin"]
    assert any(line.startswith("not on the other side: model.bin: a pointer of git-lfs") for line in said)

    # It has been fetched since, first damaged, then whole.
    place = project / ".git" / "lfs" / "objects" / name[:2] / name[2:4] / name
    place.parent.mkdir(parents=True)
    place.write_bytes(b"other")
    assert list(sides.unusable(resolve("HEAD").tree)) == ["model.bin"]
    assert files(side.tree)["model.bin"] == pointer
    place.write_bytes(content)
    side = resolve("HEAD")
    assert (Path(side.tree) / "model.bin").read_bytes() == content
    assert sides.unusable(side.tree) == {}


def test_what_was_fetched_since_leaves_alone_what_another_run_measures_from(
    project: Path, resolve: Callable[..., Side], said: list[str]
) -> None:
    name = hashlib.sha256(b"weights").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize 7\n"
    repositories.commit(project, {"model.bin": pointer})
    first = resolve("HEAD")
    before = files(first.tree)
    place = project / ".git" / "lfs" / "objects" / name[:2] / name[2:4] / name
    place.parent.mkdir(parents=True)
    place.write_bytes(b"weights")

    second = resolve("HEAD")

    assert files(second.tree) == {**before, "model.bin": "weights"}
    assert files(first.tree) == before
    said.clear()
    assert resolve("HEAD") == second
    assert said == []


@pytest.mark.parametrize("name", ["model.onnx", "net.py"])
def test_a_large_file_that_is_surely_needed_is_refused_by_its_name(
    project: Path, resolve: Callable[..., Side], name: str
) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 7\n"
    repositories.commit(project, {f"models/{name}": pointer})
    with pytest.raises(SpecError, match=rf"models/{name} of the other side: a pointer of git-lfs .*git lfs fetch"):
        resolve("HEAD")


def add_submodule(project: Path, tmp_path: Path) -> str:
    inner = repositories.make(tmp_path / "inner", {"layers.py": "INNER = 1\n"})
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "third/inner")
    repositories.commit(project, {})
    return git(inner, "rev-parse", "HEAD")


def test_a_large_file_of_a_submodule_is_there_once_it_was_fetched_there(
    project: Path, resolve: Callable[..., Side], tmp_path: Path
) -> None:
    """A submodule has large files of its own: in the other repository nobody puts it."""
    name = hashlib.sha256(b"weights").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize 7\n"
    inner = repositories.make(tmp_path / "inner", {"model.bin": pointer})
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "third/inner")
    repositories.commit(project, {})
    (why,) = sides.unusable(resolve("HEAD").tree).values()
    assert "git -C third/inner lfs fetch --all origin brings it" in why
    place = Path("lfs") / "objects" / name[:2] / name[2:4] / name
    for folder, there in ((project / ".git", False), (project / ".git" / "modules" / "third" / "inner", True)):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).write_bytes(b"weights")
        side = resolve("HEAD")
        assert (sides.unusable(side.tree) == {}) == there
        assert (files(side.tree)["third/inner/model.bin"] == "weights") == there


def test_a_submodule_that_is_here_is_part_of_the_tree(
    project: Path, tmp_path: Path, resolve: Callable[..., Side]
) -> None:
    add_submodule(project, tmp_path)
    repositories.commit(project / "third" / "inner", {"layers.py": "INNER = 2\n"})

    side = resolve("HEAD")

    assert files(side.tree)["third/inner/layers.py"] == "INNER = 1\n"
    assert sides.unusable(side.tree) == {}


def test_a_submodule_that_is_not_here_is_named_and_refused_on_the_import_path(
    project: Path, tmp_path: Path, resolve: Callable[..., Side], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = add_submodule(project, tmp_path)
    away = shutil.move(project / "third" / "inner", tmp_path / "away")
    (project / "third" / "inner").mkdir()

    side = resolve("HEAD")

    assert [*sides.unusable(side.tree)] == ["third/inner"]
    assert any(f"third/inner: a submodule whose commit {commit[:7]} is not here" in line for line in said)
    monkeypatch.syspath_prepend(str(project / "third" / "inner"))
    with pytest.raises(SpecError, match="third/inner of the other side: a submodule whose commit"):
        resolve("HEAD")
    (project / "third" / "inner").rmdir()
    shutil.move(away, project / "third" / "inner")
    assert files(resolve("HEAD").tree)["third/inner/layers.py"] == "INNER = 1\n"


# What is kept


def test_what_is_kept_is_read_once_and_by_its_content(
    project: Path, resolve: Callable[..., Side], said: list[str]
) -> None:
    first = resolve("HEAD")
    repositories.commit(project, {}, "nothing changed")
    said.clear()

    assert resolve("HEAD").tree == first.tree
    assert said == []
    kept = Path(first.tree).parents[1]
    assert (kept / ".gitignore").read_text() == "*\n"
    assert (kept.parent / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("damage", ["changed", "gone", "marker", "link"])
def test_what_is_damaged_is_made_again(
    project: Path, resolve: Callable[..., Side], said: list[str], damage: str
) -> None:
    (project / "link").symlink_to("pkg/layers.py")
    repositories.commit(project, {"pkg/layers.py": "WIDTH = 8\n"})
    tree = Path(resolve("HEAD").tree)
    whole = files(tree)
    said.clear()
    file = tree / "pkg" / "layers.py"
    if damage == "changed":
        file.write_text("WIDTH = 9\n")
    elif damage == "gone":
        file.unlink()
    elif damage == "marker":
        (tree.parent / "meta.json").write_text("{}")
    else:
        (tree / "link").unlink()
        (tree / "link").symlink_to("model.py")

    assert files(resolve("HEAD").tree) == whole
    assert any("is damaged: removed, and made again" in line for line in said)


def test_what_python_writes_beside_the_sources_is_no_damage(
    project: Path, resolve: Callable[..., Side], said: list[str]
) -> None:
    tree = Path(resolve("HEAD").tree)
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"code")
    said.clear()
    resolve("HEAD")
    assert said == []


def test_a_crash_on_the_way_leaves_nothing_that_counts(
    project: Path, resolve: Callable[..., Side], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repositories.commit(project, {"a.py": "a", "b.py": "b", "c.py": "c"})
    opened = Path.open

    def full(self: Path, *args: object, **named: object) -> object:
        if self.name == "b.py" and "x" in str(args[:1]):
            raise OSError(28, "No space left on device")
        return opened(self, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(SpecError, match=r"against 'HEAD': it cannot be kept in .*: No space left on device"):
        resolve("HEAD")
    kept = tmp_path / "kept" / "sides"
    assert [path.name for path in kept.iterdir() if path.name not in (".gitignore", ".lock")] == []
    monkeypatch.undo()
    assert set(files(resolve("HEAD").tree)) == {"a.py", "b.py", "c.py", "model.py"}


def test_two_at_once_keep_it_once(project: Path, tmp_path: Path) -> None:
    repositories.commit(project, {f"f{number}.py": str(number) for number in range(50)})
    found, cache = [], tmp_path / "sides"

    def one() -> None:
        found.append(sides.resolve(sides.read("HEAD"), rootdir=project, cache=cache, progress=lambda line: None))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 4
    assert len(set(found)) == 1
    assert len(files(found[0].tree)) == 51
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_pytest_collects_nothing_of_what_is_kept(project: Path, resolve: Callable[..., Side]) -> None:
    repositories.commit(project, {"tests/test_it.py": "def test_it(): pass\n"})
    tree = Path(resolve("HEAD").tree)
    # norecursedirs of pytest has ".*"
    assert any(part.startswith(".") for part in tree.relative_to(tree.parents[1]).parts)


def test_a_folder_that_cannot_be_made_is_an_error_in_words(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"against 'HEAD': it cannot be kept in .*file/sides: Not a directory"):
        sides.resolve(
            sides.read("HEAD"), rootdir=project, cache=tmp_path / "file" / "sides", progress=lambda line: None
        )


# What cannot be read


def test_without_a_repository_and_without_the_commit_it_says_so(
    project: Path, tmp_path: Path, resolve: Callable[..., Side]
) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(SpecError, match=r"plain is in no working tree of git .*not a git repository"):
        resolve("main", tmp_path / "plain")
    with pytest.raises(SpecError, match=r"revision 'nowhere': .*project has no such commit \(a package is named"):
        resolve("nowhere")
    git(project, "remote", "add", "origin", str(tmp_path))
    with pytest.raises(SpecError, match="no such commit; git fetch origin may bring it"):
        resolve("nowhere")


def test_a_repository_that_git_refuses_says_what_git_said(
    resolve: Callable[..., Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(SpecError, match=r"dubious ownership.*safe\.directory"):
        resolve("main")


def test_the_repository_is_that_of_the_rootdir_whatever_a_hook_sets(
    project: Path, tmp_path: Path, resolve: Callable[..., Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repositories.make(tmp_path / "other", {"other.py": ""})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    assert set(files(resolve("main").tree)) == {"model.py"}


def test_a_commit_is_what_its_hash_says_whatever_replaces_it(project: Path, resolve: Callable[..., Side]) -> None:
    first = git(project, "rev-parse", "HEAD")
    second = repositories.commit(project, {"model.py": "DEPTH = 2\n"})
    git(project, "replace", first, second)
    assert files(resolve(first).tree) == {"model.py": "DEPTH = 1\n"}


@pytest.mark.parametrize("name", ["old", "v1", "", "feature"])
def test_a_shallow_clone_says_which_fetch_brings_the_revision_and_it_does(
    project: Path, tmp_path: Path, resolve: Callable[..., Side], name: str
) -> None:
    first = git(project, "rev-parse", "HEAD")
    git(project, "branch", "old")
    git(project, "branch", "feature")
    repositories.commit(project, {"model.py": "DEPTH = 2\n"})
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", project.as_uri(), str(clone))
    asked = {"v1": "HEAD~1", "": first}.get(name, name)

    with pytest.raises(SpecError, match=r"it is a shallow clone: (git fetch .*) brings it") as error:
        resolve(asked, clone)

    command = str(error.value).partition("shallow clone: ")[2].partition(" brings it")[0]
    git(clone, *command.split()[1:])
    side = resolve(asked, clone)
    assert files(side.tree) == {"model.py": "DEPTH = 1\n"}
    assert side.label.endswith(first[:7])


def test_what_a_partial_clone_lacks_is_not_fetched_but_named(
    project: Path, tmp_path: Path, resolve: Callable[..., Side]
) -> None:
    repositories.commit(project, {"model.py": "DEPTH = 2\n"})
    git(project, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--filter=blob:none", project.as_uri(), str(clone))
    held = sorted((clone / ".git" / "objects").rglob("*"))

    with pytest.raises(SpecError, match=r"is not here, as in a partial clone.*(git fetch [^,]*) brings") as error:
        resolve("HEAD~1", clone)

    assert sorted((clone / ".git" / "objects").rglob("*")) == held
    command = str(error.value).partition("there is a remote, ")[2].partition(" brings")[0]
    git(clone, *command.split()[1:])
    assert files(resolve("HEAD~1", clone).tree) == {"model.py": "DEPTH = 1\n"}


def test_a_branch_that_only_the_remote_has_is_taken_from_there(
    project: Path, tmp_path: Path, resolve: Callable[..., Side], said: list[str]
) -> None:
    git(project, "branch", "stable")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(project), str(clone))
    side = resolve("stable", clone)
    assert side.label.startswith("stable@")
    assert "stable is origin/stable: there is no branch of that name here" in said
