"""The site of the docs: Sphinx with MyST and Furo, of the repository's Markdown, and nothing fetched from the network.

The source folder is the repository, so that a link is the same in the site, in a checkout and in a code browser.
"""

from pathlib import Path

import tomllib

with Path(__file__).parents[1].joinpath("pyproject.toml").open("rb") as file:
    release = version = tomllib.load(file)["project"]["version"]

project = "pytest-ngraph"
project_copyright = "the pytest-ngraph authors"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "example_suites/paper/README.md",
    "example_suites/dlas/README.md",
    "example_suites/latency_vs_throughput/README.md",
]
exclude_patterns = [".*", "**/.*", "build", "dist", "site"]
# Anchors as code browsers make them, of every heading that is linked.
myst_heading_anchors = 4

# Docstrings say what is given and returned; the types of arguments stand in the signature.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
# What has no lexer is output, or a command.
highlight_language = "text"

html_theme = "furo"
html_title = f"pytest-ngraph {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# index.html leads to docs/index.html.
html_extra_path = ["_root"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
# They are fetched page by page, which a browser refuses where the site is opened as files.
html_show_search_summary = False
