"""Ed25519 signatures, with the package ``cryptography`` (``pip install unweave[record]``)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from unweave.errors import RunError, UsageError
from unweave.storage import require_plain, write_whole

KEY_BYTES = 2**16


def generate(path: Path) -> Path:
    """Write a new private key (mode 600) and the public key beside it. Return the public key's path."""
    ed25519, serialization = _cryptography()
    if not path.name:
        raise UsageError(f"{path} is not the name of a file. Name the file for the private key.")
    public = path.with_name(path.name + ".pub")
    for file in (path, public):
        if file.exists():
            raise UsageError(f"{file} already exists. A key is never overwritten. Choose another name.")
    key = ed25519.Ed25519PrivateKey.generate()
    none, pem = serialization.NoEncryption(), serialization.Encoding.PEM
    try:
        write_whole(path, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none), private=True)
        write_whole(public, key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    except OSError as error:
        raise RunError(f"The key cannot be written: {error}") from error
    return public


def load_private(path: Path) -> Any:
    """Read a private key from a PEM file. A file that others can open is refused, because they could sign too."""
    ed25519, serialization = _cryptography()
    key = _load(path, ed25519.Ed25519PrivateKey, lambda data: serialization.load_pem_private_key(data, password=None))
    if os.name == "posix" and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        raise UsageError(
            f"{path} is a private key, but others than its owner have access to it (mode {mode:03o}). Run "
            f"`chmod 600 {path}` or, if somebody may have copied it, make a new pair with `unweave record keygen`."
        )
    return key


def load_public(path: Path) -> bytes:
    """Read a public key from a PEM file and return its 32 bytes."""
    ed25519, serialization = _cryptography()
    return raw(_load(path, ed25519.Ed25519PublicKey, serialization.load_pem_public_key))


def _load(path: Path, kind: Any, load: Any) -> Any:
    try:
        if (size := require_plain(path)) > KEY_BYTES:
            raise UsageError(f"{path} has {size} bytes, which is too large for a key.")
        key = load(path.read_bytes())
    except UsageError:
        raise
    except Exception as error:  # cryptography raises many kinds
        raise UsageError(f"{path} cannot be read as a PEM key without password: {error}") from error
    if not isinstance(key, kind):
        raise UsageError(
            f"{path} holds a {type(key).__name__}, not the Ed25519 key needed. `unweave record keygen` makes a pair."
        )
    return key


def raw(public: Any) -> bytes:
    """Return the 32 bytes of a public key."""
    _, serialization = _cryptography()
    found: bytes = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return found


def sign(key: Any, content: bytes) -> dict[str, str]:
    """Return the signature of some bytes, with the public key to check it."""
    return {"algorithm": "Ed25519", "public_key": raw(key.public_key()).hex(), "value": key.sign(content).hex()}


def is_signed(content: bytes, signature: dict[str, Any]) -> bool:
    """Tell whether a signature of some bytes matches its own public key."""
    ed25519, _ = _cryptography()
    from cryptography.exceptions import InvalidSignature

    with contextlib.suppress(InvalidSignature, ValueError, TypeError, KeyError):
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
        key.verify(bytes.fromhex(signature["value"]), content)
        return bool(signature["algorithm"] == "Ed25519")
    return False


def name_of(public_key: str) -> str:
    """Return a short name for a public key, given in hexadecimal: the start of its digest.

    >>> name_of("00" * 32)
    '66687aad f862bd77'
    """
    digest = hashlib.sha256(bytes.fromhex(public_key)).hexdigest()
    return f"{digest[:8]} {digest[8:16]}"


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UsageError("Signatures need the package cryptography: pip install 'unweave[record]'.") from None
    return ed25519, serialization
