"""What the site shows otherwise than the repository: fences without the word for tests/test_documents.py, and names
instead of links that leave docs/.

Its search works from disk by site/iframe-worker.js (MIT licence), which the theme would load from a network.
"""

import re
import shutil
from pathlib import Path
from typing import Any

SHIM, LOADED = Path(__file__).parent / "site" / "iframe-worker.js", "https://unpkg.com/iframe-worker/shim"


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
