"""The methods that fit any data, and those that fit the tokens of answers."""

from __future__ import annotations

from unweave.methods import METHODS

ON_ANYTHING = {name: method for name, method in METHODS.items() if not method.needs_tokens}
ON_TOKENS = {name: method for name, method in METHODS.items() if method.needs_tokens}
