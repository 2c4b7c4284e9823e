"""A CPU that stands for a GPU with idle cores: `auto` chooses code there, and another process may compile."""

from __future__ import annotations

from unweave.engine.compiling import background, forwards

FREE = {"never compiled": 1e9, "compiled by another process": 0.0, "in the background": 0.0, "only folded": 0.0}


def altered(graph, examples):
    """A compiler whose code gives other results than plain passes, by more than rounding."""
    return lambda *given: tuple(1.01 * found for found in graph.forward(*given))


def act(monkeypatch, folder, *, backend="eager", seconds=FREE):
    """Set the stage; whatever runs long enough is then compiled in the background."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    monkeypatch.setattr(forwards, "may_choose", lambda mode, device: mode == "auto")
    monkeypatch.setattr(forwards, "WARM_UP_SECONDS", seconds)
    monkeypatch.setattr(forwards, "BACKEND", backend)
    monkeypatch.setattr(forwards, "_WARM", set())
    monkeypatch.setattr(background, "can_compile_beside", lambda device: True)
    monkeypatch.setattr(background.Background, "is_ready", lambda self: True)


def forget_code(folder):
    """Let this process, and those after it, have compiled nothing."""
    forwards._WARM.clear()
    for file in (folder / "unweave").glob("*"):
        file.unlink()
