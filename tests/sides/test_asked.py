"""What the option's text may be: its parts, and what is refused by its name."""

from __future__ import annotations

import re

import pytest

from pytest_ngraph import sides
from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides.asked import Asked, Package

ORT = Package("onnxruntime", "1.27.0")


@pytest.mark.parametrize(
    ("text", "revision", "packages", "python", "always"),
    [
        ("main", "main", (), "", False),
        (" main ", "main", (), "", False),
        ("HEAD~3", "HEAD~3", (), "", False),
        ("v1.2.0^", "v1.2.0^", (), "", False),
        ("feature/deeper@{1}", "feature/deeper@{1}", (), "", False),
        ("release-1.0", "release-1.0", (), "", False),
        ("größer", "größer", (), "", False),
        ("merge-base", "merge-base", (), "", False),
        ("onnxruntime==1.27.0", "", (ORT,), "", False),
        ("ONNXRuntime == 1.27.0", "", (ORT,), "", False),
        ("torch==2.6.0+cpu", "", (Package("torch", "2.6.0+cpu"),), "", False),
        ("Py_Thing[b,A]==1.0rc1", "", (Package("py-thing", "1.0rc1", ("a", "b")),), "", False),
        ("python:/opt/env", "", (), "/opt/env", False),
        ("python: ../env ", "", (), "../env", False),
        ("main,always", "main", (), "", True),
        ("always, main", "main", (), "", True),
        (
            "openvino==2026.1.0,main,onnxruntime==1.27.0,python:.venv-old",
            "main",
            (ORT, Package("openvino", "2026.1.0")),
            ".venv-old",
            False,
        ),
    ],
)
def test_what_is_read(text: str, revision: str, packages: tuple[Package, ...], python: str, always: bool) -> None:
    assert sides.read(text) == Asked(text.strip(), revision, packages, python, always)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("main,", "a part is empty"),
        (",main", "a part is empty"),
        ("main,,always", "a part is empty"),
        ("always", "always by itself names no side"),
        ("main,v2", "main and v2 are two revisions"),
        ("main,merge-base", "two revisions"),
        ("python:a,python:b", "two interpreters"),
        ("a==1,A==2", "a is in it twice"),
        ("a-b==1,a_b==1", "a-b is in it twice"),
        ("python:", "names no interpreter"),
        ("python:-c", "names no interpreter"),
        ("-upload-pack=touch", "no revision of git that is one commit"),
        ("--output=/tmp/x", "no revision of git that is one commit"),
        ("^main", "no revision of git that is one commit"),
        ("main..feature", "no revision of git that is one commit"),
        ("main:model.py", "no revision of git that is one commit"),
        (":/fix", "no revision of git that is one commit"),
        ("main feature", "no revision of git that is one commit"),
        ("m[ai]n", "no revision of git that is one commit"),
        ("m*", "no revision of git that is one commit"),
        ("main\x1b[31m", "it has"),
        ("main\n--all", "it has"),
        ("ma\u202ein", "it has"),
        ("main\x00", "it has"),
        ("a>=1", "'a>=1' is not one version of a package: NAME==VERSION is"),
        ("a~=1.0", "not one version"),
        ("a!=1", "not one version"),
        ("a<2", "not one version"),
        ("a=1", "not one version"),
        ("a===1", "not one version"),
        ("a==1.*", "not one version"),
        ("a==", "not one version"),
        ("a==one", "not one version"),
        ("a==1; python_version>'3'", "not one version"),
        ("a[b]==1 --index-url=x", "not one version"),
        ("pytest_ngraph==0.1.0", "the code that measures is that of here on both sides"),
        ("git+https://host.lab/a.git", "is an address"),
        ("a @ git+ssh://host.lab/a", "is an address"),
        ("https://host.lab/a.whl", "is an address"),
        ("./models", "is a path"),
        ("../other", "is a path"),
        ("/srv/project", "is a path"),
        ("~/project", "is a path"),
        ("src/", "is a path"),
        (".", "is a path"),
        ("dist/a-1.0.tar.gz", "is a path"),
        ("dist/a.whl", "'dist/a.whl' is no name of a wheel"),
        ("./a-one-py3-none-any.whl", "is no name of a wheel"),
        ("a==1,dist/A-2-py3-none-any.whl", "a is in it twice"),
        ("dist/pytest_ngraph-0.3.0-py3-none-any.whl", "the code that measures is that of here on both sides"),
        ("a @ https://host.lab/a-1-py3-none-any.whl", "is an address"),
    ],
)
def test_what_is_refused_says_what_was_given_and_what_is_allowed(text: str, why: str) -> None:
    with pytest.raises(SpecError, match=re.escape(why)) as error:
        sides.read(text)
    assert str(error.value).isprintable()
    assert "against " in str(error.value)
    assert (
        "a git revision such as main or merge-base, packages such as onnxruntime==1.27.0 or "
        "dist/built-1.0-py3-none-any.whl, python:PATH, always" in str(error.value)
    )


@pytest.mark.parametrize(
    "path",
    [
        "dist/Py_Thing-1.0+mine-cp311-cp311-linux_x86_64.whl",
        "/srv/Py_Thing-1.0+mine-py3-none-any.whl",
        "~/py_thing-1.0+mine-py3-none-any.whl",
    ],
)
def test_a_wheel_is_read_by_its_name_and_not_looked_at(path: str) -> None:
    asked = sides.read(f"main, {path}")
    assert asked == Asked(f"main, {path}", "main", (Package("py-thing", "1.0+mine", wheel=path),))
    assert asked.runtimes == path
