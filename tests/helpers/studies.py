"""What tests read from a study's folder."""

from __future__ import annotations

import pandas as pd


def table(folder):
    """The table without what depends on the clock and on the machine's memory."""
    frame = pd.read_parquet(folder / "results.parquet")
    return frame[~frame.metric.isin(["seconds", "peak_memory_bytes", "process_memory_bytes"])].reset_index(drop=True)
