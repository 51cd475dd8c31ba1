"""The report's word on the images; pictures and the numbers of each scan stand on pages of their own."""

from __future__ import annotations

from bolt.config import Config
from bolt.config.layout import Layout
from bolt.io.files import read_table
from bolt.report.html import Block, Table, Text
from bolt.report.tables import readable


def quality_section(config: Config, layout: Layout) -> list[Block]:
    """The measures over all scans, and where to see more; nothing where scans were not judged."""
    if not layout.quality.is_file():
        return []
    cutoffs = {name: (bound, value) for bound, name, value in config.quality.cutoffs()}
    shown = readable.quality(read_table(layout.quality, text=("scan_id", "subject", "anatomy")), cutoffs)
    if shown.empty:
        return []
    blocks: list[Block] = [Table(shown, "Quality of the scans, over all that were preprocessed.", layout.quality)]
    if layout.quality_page.is_file():
        text = "Every scan by every measure, and the pictures of each subject, are on the page of quality:"
        blocks.insert(0, Text(text, link=layout.quality_page.name))
        if list(layout.derivatives.glob("*.html")):
            text = (
                "Its pictures stay where they were drawn, in derivatives/: send that folder's pages, figures and "
                "*_crash.txt along."
            )
            blocks.append(Text(text))
    return blocks
