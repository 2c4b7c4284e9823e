"""The leaderboard: one row for each method, benchmark and goal, from published numbers that say where they come from.

A row can be computed again from the numbers beside it. A study without complete provenance is rejected.
"""

from unweave.lab.leaderboard.board import read_board, submit
from unweave.lab.leaderboard.board_tables import as_markdown
from unweave.lab.leaderboard.evidence import require_provenance
from unweave.lab.leaderboard.standing_rows import BoardRow, rows_of

__all__ = ["BoardRow", "as_markdown", "read_board", "require_provenance", "rows_of", "submit"]
