"""The workflow that runs the gates on GitHub: install, measure, show."""

from __future__ import annotations

from pathlib import Path

WORKFLOW = ".github/workflows/ngraph.yml"
WHEELS = "wheels"
SUMMARY = ".ngraph/summary.md"
_TEXT = """\
name: ngraph
on:
  pull_request:
  push:
    branches: [main]
permissions:
  contents: read
  pull-requests: write  # the comment
concurrency:
  group: ngraph-${{ github.ref }}
  cancel-in-progress: true
jobs:
  gates:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    env:
      # The CPU build of PyTorch; the default index would bring CUDA along.
      PIP_EXTRA_INDEX_URL: https://download.pytorch.org/whl/cpu
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0  # with the history, in which a change has its merge base
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
          cache: pip
          cache-dependency-path: .github/workflows/ngraph.yml
      - name: Install
        run: |
INSTALL
      - name: Measure
        env:
          # In a pull request every cell is measured beside itself as it is at the merge base, and held to it.
          AGAINST: ${{ github.base_ref && '--ngraph-against=merge-base --ngraph-gate-changes' || '' }}
        # 20 minutes are the most that it measures; what is undecided by then says so.
        run: pytest gates $AGAINST --ngraph-run-budget=20min --junitxml=.ngraph/gates.xml
      - name: Comment
        # A pull request from a fork may not comment; the job's summary has the same.
        if: >-
          always() && github.event_name == 'pull_request'
          && github.event.pull_request.head.repo.full_name == github.repository
        env:
          GH_TOKEN: ${{ github.token }}
          COMMENTS: repos/${{ github.repository }}/issues/${{ github.event.number }}/comments
          COMMENT: repos/${{ github.repository }}/issues/comments
        run: |
          test -f SUMMARY || exit 0
          export MARK="$(tail -n 1 SUMMARY)"
          id="$(gh api --paginate "$COMMENTS" --jq '.[] | select(.body | contains(env.MARK)) | .id' | head -n 1)"
          if [ -n "$id" ]; then
            gh api --silent --method PATCH "$COMMENT/$id" -F body=@SUMMARY
          else
            gh api --silent --method POST "$COMMENTS" -F body=@SUMMARY
          fi
      - name: Keep the results
        if: always()
        uses: actions/upload-artifact@v4
        with:
          name: ngraph
          path: .ngraph
          include-hidden-files: true
          if-no-files-found: ignore
"""


def workflow(root: Path) -> str:
    """Return the workflow of a project. It installs what the project's own files ask for, and the plugin's wheel."""
    install = [f'pip install "$(ls {WHEELS}/pytest_ngraph-*.whl)[cpu]"']
    if (root / "requirements.txt").is_file():
        install.append("pip install -r requirements.txt")
    if _is_package(root):
        install.append("pip install -e .")
    lines = "\n".join(f"          {line}" for line in install)
    return _TEXT.replace("INSTALL", lines).replace("SUMMARY", SUMMARY)


def _is_package(root: Path) -> bool:
    if (root / "setup.py").is_file():
        return True
    project = root / "pyproject.toml"
    return project.is_file() and "[project]" in project.read_text(encoding="utf-8", errors="replace")
