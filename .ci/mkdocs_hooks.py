"""What the site shows otherwise than the repository: fences without the word for tests/test_documents.py, names instead
of links that leave docs/, and pages that are generated at every build: all figures, the papers' figures, testpoints and
units.

Its search works from disk by site/iframe-worker.js (MIT licence), which the theme would load from a network.
"""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# mkdocs runs hooks by their path alone.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import page, readings
from tests.mutants.evidence import evidence
from verif import testpoints, units

SHIM, LOADED = Path(__file__).parent / "site" / "iframe-worker.js", "https://unpkg.com/iframe-worker/shim"


def _all_figures() -> str:
    return page.everything(page.recorded(page.RESULTS).values(), page.sections(page.LINES.read_text("utf-8")))


def _papers_figures() -> str:
    text = page.PAPER_LINES.read_text("utf-8")
    return readings.figures(page.recorded(page.RESULTS).values(), readings.papers(text), readings.about(text))


#: The pages that are not in docs/, by what makes their text.
GENERATED: dict[str, Callable[[], str]] = {
    "all-figures.md": _all_figures, "papers-figures.md": _papers_figures,
    "testpoints.md": lambda: testpoints.page(testpoints.collect()),
    "units.md": lambda: units.page(units.collect(), evidence())}


def on_files(files: Any, config: Any, **_: Any) -> Any:
    from mkdocs.structure.files import File

    for name, text in GENERATED.items():
        files.append(File.generated(config, name, content=text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    markdown = re.sub(r"^( *```\w+) [^\n]*$", r"\1", markdown, flags=re.M)
    return re.sub(r"\[([^\]]*)\]\((?:\.\./)+(?!(?:\w+/)*[\w-]+\.md)[^)]*\)|\[([^\]]*)\]\((?:\.\./)+README\.md[^)]*\)",
                  lambda match: match[1] or match[2], markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    return output.replace(LOADED, "../" * page.url.count("/") + SHIM.name)


def on_post_template(output_content: str, **_: Any) -> str:
    return output_content.replace(LOADED, SHIM.name)


def on_post_build(config: Any, **_: Any) -> None:
    shutil.copy(SHIM, config["site_dir"])
