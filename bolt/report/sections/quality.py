"""Image quality over all scans; single scans and their images are on pages of their own."""

from __future__ import annotations

from bolt.config.study import Study
from bolt.io.files import read_table
from bolt.report.html import Block, Table, Text
from bolt.report.tables import readable


def quality_section(study: Study) -> list[Block]:
    """Summarise the quality measures and link to the quality page; [] if quality was not assessed."""
    layout = study.layout
    if not layout.quality.is_file():
        return []
    cutoffs = {name: (bound, value) for bound, name, value in study.config.quality.cutoffs()}
    shown = readable.quality(read_table(layout.quality, text=("scan_id", "subject", "anatomy")), cutoffs)
    if shown.empty:
        return []
    blocks: list[Block] = []
    if layout.quality_page.is_file():
        text = "All measures of every scan:"
        blocks.append(Text(text, link=layout.quality_page.name))
    return [*blocks, Table(shown, "Quality measures over all preprocessed scans.", layout.quality)]
