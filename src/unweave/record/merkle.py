"""A Merkle tree over the samples of a request, in the form of RFC 6962.

The root commits to all samples. The holder of one sample can check with a short proof that it is in the tree, and
learns nothing about the others. Leaves and inner nodes are hashed with different prefixes, so an inner node cannot pass
for a leaf.

>>> leaves = [leaf(bytes([number]) * 32, b"content") for number in range(5)]
>>> proof = path(leaves, 3)
>>> len(proof), proves(leaves[3], 3, 5, proof, root(leaves)), proves(leaves[2], 3, 5, proof, root(leaves))
(3, True, False)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def leaf(salt: bytes, content: bytes) -> bytes:
    """Return the leaf of a sample. The salt keeps others from guessing the content."""
    return hashlib.sha256(b"\x00" + salt + content).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the levels of the tree, from the leaves up. A node without a sibling moves up unchanged."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [below[place : place + 2] for place in range(0, len(below), 2)]
        levels.append([_node(*pair) if len(pair) == 2 else pair[0] for pair in pairs])
    return levels


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of the tree over these leaves."""
    return _levels(leaves)[-1][0] if leaves else hashlib.sha256(b"").digest()


def path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the siblings on the path from a leaf to the root, from the leaf up."""
    found = []
    for level in _levels(leaves)[:-1]:
        if index ^ 1 < len(level):
            found.append(level[index ^ 1])
        index //= 2
    return found


def proves(mine: bytes, index: int, count: int, proof: Sequence[bytes], wanted: bytes) -> bool:
    """Tell whether the proof shows that the leaf is at ``index`` of ``count`` under the root ``wanted``."""
    if not 0 <= index < count:
        return False
    last, found = count - 1, mine
    for sibling in proof:
        if last == 0:
            return False
        if index % 2 or index == last:
            found = _node(sibling, found)
            while index % 2 == 0 and index:  # moved up without a sibling
                index, last = index // 2, last // 2
        else:
            found = _node(found, sibling)
        index, last = index // 2, last // 2
    return last == 0 and found == wanted
