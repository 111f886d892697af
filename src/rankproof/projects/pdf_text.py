"""Extract the text of a PDF in a process of its own: `python pdf_text.py BYTES < FILE`.

PDFium does not limit how far a stream expands: 14 kB of nested compression fill 9 GB of memory.
Here such a file ends this process only, as does one that crashes the parser. The answer is JSON on
standard output: {"title", "pages", "unreadable"} or {"problem"}. Nothing else of rankproof is
imported, so that the process starts fast.
"""

import json
import signal
import sys
from contextlib import suppress
from typing import Any

import pypdfium2
import pypdfium2.raw

_EVERYWHERE = 1e30  # beyond any page: what overflows its crop box is read as well
_HYPHEN = "\x02"  # what PDFium writes for a hyphen at the end of a line, without the line break
_PROBLEMS = {
    pypdfium2.raw.FPDF_ERR_PASSWORD: "is encrypted; save it without a password",
    pypdfium2.raw.FPDF_ERR_SECURITY: "is encrypted in an unknown way; save it without a password",
}


def read_pdf(data: bytes) -> dict[str, Any]:
    """Return the title and the text of every page; pages that cannot be read are empty."""
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError:
        error = pypdfium2.raw.FPDF_GetLastError()
        return {"problem": _PROBLEMS.get(error, "is not a readable PDF")}
    pages, unreadable = [], []
    for index in range(len(document)):
        try:
            page = document[index]
            pages.append(_page_text(page))
            page.close()
        except pypdfium2.PdfiumError:
            pages.append("")
            unreadable.append(index + 1)
    title = ""
    with suppress(UnicodeDecodeError):  # half of a surrogate pair
        title = document.get_metadata_value("Title")
    return {"title": title, "pages": pages, "unreadable": unreadable}


def _page_text(page: Any) -> str:
    """Return a page's text with the words joined that a line break separates at a hyphen."""
    everywhere = (-_EVERYWHERE, -_EVERYWHERE, _EVERYWHERE, _EVERYWHERE)
    text: str = page.get_textpage().get_text_bounded(*everywhere)
    return text.replace(_HYPHEN, "").replace("\r\n", "\n")


def limit_memory(size: int) -> None:
    """Limit this process to a number of bytes, and write no core file where it exceeds them."""
    with suppress(ImportError, OSError, ValueError):  # not every system has these limits
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for the text decides
    limit_memory(int(sys.argv[1]))
    json.dump(read_pdf(sys.stdin.buffer.read()), sys.stdout)
