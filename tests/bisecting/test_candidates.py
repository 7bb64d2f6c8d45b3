"""What is searched: commits of real repositories, and releases as an index names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ngraph.bisecting.candidates import commits_between, releases_between
from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides.packages import read_releases
from tests.support.git_repository import commit, git

KNOWN = ["1.31.1", "1.24.0", "1.9.0", "1.25.1", "1.30.0", "2.0"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A line of five commits, c0 to c4, with a branch side from c1 that c3 merges."""
    git(tmp_path, "init", "-q", "-b", "main")
    for name in ("c0", "c1"):
        grow(tmp_path, name)
    git(tmp_path, "checkout", "-q", "-b", "side")
    grow(tmp_path, "s0")
    git(tmp_path, "checkout", "-q", "main")
    grow(tmp_path, "c2")
    git(tmp_path, "merge", "-q", "--no-ff", "-m", "c3", "side")
    git(tmp_path, "tag", "c3")
    grow(tmp_path, "c4")
    return tmp_path


def grow(folder: Path, name: str) -> None:
    commit(folder, {f"{name}.txt": name}, name)
    git(folder, "tag", name)


def names(folder: Path, good: str, bad: str) -> list[str]:
    return [each.words.partition(";")[0] for each in commits_between(good, bad, folder).candidates]


def test_candidates_are_the_first_parents_in_order(repository: Path) -> None:
    assert names(repository, "c0", "c4") == ["c1", "c2", "c3", "c4"]
    assert names(repository, "c3", "main") == ["c4"]
    line = commits_between("c0", "c4", repository)
    assert line.good.side == git(repository, "rev-parse", "c0")
    assert "; Ann, 20" in line.candidates[0].words
    assert not line.note


def test_from_a_commit_that_was_merged_nothing_before_the_merge_is_searched(repository: Path) -> None:
    assert names(repository, "s0", "c4") == ["c3", "c4"]
    assert "came into this line by" in commits_between("s0", "c4", repository).note


def test_nothing_of_the_repository_is_written(repository: Path) -> None:
    before = git(repository, "status", "--porcelain"), git(repository, "for-each-ref"), git(repository, "reflog")
    commits_between("c0", "c4", repository)
    assert before == (
        git(repository, "status", "--porcelain"), git(repository, "for-each-ref"), git(repository, "reflog")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("c2", "s0", "is no ancestor of BAD s0 .* such as [0-9a-f]{7}, where the two part"),
        ("c4", "c0", "the other way round"),
        ("c1", "c1", "are the same commit"),
        ("nowhere", "c4", "revision 'nowhere': .* has no such commit"),
        ("c0", "--upload-pack=x", "has no such commit"),
    ],
)
def test_revisions_with_nothing_between_them_are_refused(repository: Path, good: str, bad: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        commits_between(good, bad, repository)


def test_a_shallow_clone_says_how_to_deepen_it(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    clone = tmp_path_factory.mktemp("clone") / "it"
    git(repository, "clone", "-q", "--depth=1", f"file://{repository}", str(clone))
    with pytest.raises(SpecError, match="shallow clone: git fetch"):
        commits_between("c0", "main", clone)


def test_releases_are_those_of_the_index_in_order_of_version() -> None:
    line = releases_between("onnxruntime==1.9.0..1.31.1", KNOWN)
    assert [each.side for each in (line.good, *line.candidates)] == [
        f"onnxruntime=={version}" for version in ("1.9.0", "1.24.0", "1.25.1", "1.30.0", "1.31.1")
    ]


def test_an_end_that_the_index_has_not_is_said() -> None:
    line = releases_between("onnxruntime==1.24.0..1.31.0", KNOWN)
    assert [line.good.name, line.candidates[-1].name] == ["onnxruntime==1.24.0", "onnxruntime==1.30.0"]
    assert line.note == "the index has no onnxruntime 1.31.0 for this Python: 1.24.0 to 1.30.0 are searched"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("onnxruntime==1.24.0", "expected NAME==FIRST..LAST"),
        ("onnxruntime==1.24.0..", "expected NAME==FIRST..LAST"),
        ("==1.0..2.0", "expected NAME==FIRST..LAST"),
        ("one==1..2,two==1..2", "expected NAME==FIRST..LAST"),
        ("onnxruntime==x..y", "Invalid version"),
        ("onnxruntime==2.0..1.24.0", "2.0 does not come before 1.24.0"),
        ("onnxruntime==1.24.0..1.24.0", "does not come before"),
        ("onnxruntime==1.24.0..1.25.0", "has not two releases from 1.24.0 to 1.25.0 .*there: 1.24.0"),
    ],
)
def test_a_range_that_names_no_releases_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        releases_between(text, KNOWN)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "onnxruntime (1.31.1)\nAvailable versions: 1.31.1, 1.9.0, 1.24.0\n  INSTALLED: 1.2\n",
            ("1.9.0", "1.24.0", "1.31.1"),
        ),
        ("Available versions: 2.0rc1, 1.0.dev3, 2.0, 1.0.post1, 2.0", ("1.0.post1", "2.0")),
        ("Available versions: ,x, 2004d, 1.0", ("1.0",)),
        ("", ()),
        ("ERROR: nothing", ()),
    ],
)
def test_what_pip_prints_is_read_without_pre_releases(output: str, expected: tuple[str, ...]) -> None:
    assert read_releases(output) == expected
