"""Mathematics as MathML, written when the pages are built.

Browsers draw it without a script, a font or a request, so the pages work offline.
docutils, on which Sphinx rests, translates from LaTeX.
"""

from __future__ import annotations

from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

_log = logging.getLogger(__name__)


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer under the name "mathml"."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(page: Any, node: Any) -> None:
    page.body.append(_translated(node, block=False))
    raise SkipNode


def _block(page: Any, node: Any) -> None:
    page.body.append(f'<div class="math">{_translated(node, block=True)}</div>\n')
    raise SkipNode


def _translated(node: Any, block: bool) -> str:
    try:
        return str(tex2mathml(node.astext(), as_block=block))
    except MathError as error:
        # an error of the build, where warnings are errors
        _log.warning("mathematics not understood: %s", error, location=node)
        return ""
