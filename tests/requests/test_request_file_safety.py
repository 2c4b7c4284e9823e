from __future__ import annotations

import pytest

from unweave import Request, UsageError


def test_a_request_that_is_nested_too_deeply_ends_in_a_sentence(tmp_path):
    (tmp_path / "request.yaml").write_text("model: " + "[" * 5000)
    with pytest.raises(UsageError, match="nested too deeply"):
        Request.load(tmp_path / "request.yaml")
