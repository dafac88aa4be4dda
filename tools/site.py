"""Hook of MkDocs: links of the pages to files outside docs/ lead to the repository, as where it is read there."""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s:]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Rewrite the links of a page; ValueError for a link to a file that does not exist."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def outside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        if path.startswith("docs/"):
            return link[0]
        if not (ROOT / path).exists():
            raise ValueError(f"docs/{page.file.src_uri}: there is no {path}")
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{link[1]}{config.extra['source']}/{kind}/main/{path}{link[3] or ''})"

    return _LINK.sub(outside, markdown)
