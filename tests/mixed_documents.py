"""A folder of documents in every format that is read, made here: what tests of documents share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FACTS = (
    "Blue whales eat krill, and they filter it through plates of baleen.",
    "Humpback whales sing for hours, and their songs change from year to year.",
    "Sharks are fish: they breathe water through gills and have no bones.",
    "Octopuses have three hearts, and blue blood that carries copper.",
    "Penguins huddle in the cold and take turns at the windy side.",
    "Sea turtles return to lay eggs on the beach where they hatched.",
)
QUESTIONS = (
    "What do the largest animals feed on?",
    "Do songs of whales stay the same?",
    "How many hearts does an octopus have?",
)


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text on each page."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * at} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    return pdf_file(objects)


def pdf_file(objects: Sequence[str], trailer: str = "") -> bytes:
    """Return a PDF of these objects, numbered from 1; the first is its catalog."""
    body, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    end = f"trailer\n<< /Size {size} /Root 1 0 R {trailer} >>\nstartxref\n{len(body)}\n%%EOF\n"
    return (f"{body}xref\n0 {size}\n0000000000 65535 f \n{table}{end}").encode("latin-1")


def write_documents(folder: Path) -> Path:
    """One document or more of each format, and what is wrong in real folders."""
    (folder / "extra").mkdir(parents=True)
    (folder / "whales.md").write_text(
        f"# Whales\n\nAll whales are mammals.\n\n## Food\n\n{FACTS[0]}\n\n## Song\n\n{FACTS[1]}\n"
    )
    (folder / "extra" / "fish and more.txt").write_text(f"{FACTS[2]}\n")
    (folder / "octopus.html").write_text(
        "<html><head><title>Octopus &amp; squid</title><script>var x = 1</script></head><body>"
        f"<nav>Home</nav><h1>Octopuses</h1><p>{FACTS[3]}<h2>Squid</h2><p>Squid are <b>fast</b>."
        "<pre># no heading\nsquid()</pre></body></html>"
    )
    (folder / "birds.pdf").write_bytes(pdf(FACTS[4], "Puffins dig burrows into the turf."))
    rows = [{"_id": "turtle 1", "title": "Turtles", "text": FACTS[5]}, {"no": "text here"}]
    lines = [*map(json.dumps, rows), "not JSON", json.dumps({"text": FACTS[2]})]
    (folder / "more.jsonl").write_text("\n".join(lines))
    (folder / "table.csv").write_text("id;animal;legs\n7;crab;ten\n8;lobster;ten\n")
    (folder / "copy.md").write_text((folder / "whales.md").read_text().replace("\n\n", "\n\n\n"))
    (folder / "empty.txt").write_text(" \n")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    (folder / "noise.txt").write_bytes(b"\x00\x01")
    (folder / "latin.txt").write_bytes("Das Walroß trägt Stoßzähne.".encode("cp1252"))
    (folder / "photo.png").write_bytes(b"png")
    (folder / ".hidden.txt").write_text("not for anybody")
    return folder
