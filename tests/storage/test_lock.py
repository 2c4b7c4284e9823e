"""One process at a time, whatever happens to processes and to the lock's file."""

from __future__ import annotations

import errno
import os
import signal
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from unweave import UsageError
from unweave.storage import Lock, lock

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def fork(work):
    """Run a function in a process of its own, and return the process's number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where there are threads
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


@contextmanager
def killed_at_the_end(child):
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def is_free(path):
    with Lock.claim(path) as claim:
        return claim is not None


def test_one_at_a_time_and_nothing_stays_behind(tmp_path):
    path = tmp_path / "lock"
    first = Lock(path)
    with pytest.raises(UsageError, match=r"Another process is working in .* Wait for it, or choose another --out\."):
        Lock(path)
    assert not is_free(path)
    assert path.exists()
    first.release()
    assert list(tmp_path.iterdir()) == []
    with Lock(path, wait=True), Lock.claim(path) as claim:
        assert claim is None
    assert is_free(path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_not_made(tmp_path):
    for take in (Lock, is_free, lambda path: Lock(path, wait=True)):
        with pytest.raises(FileNotFoundError):
            take(tmp_path / "renamed" / "lock")
    assert list(tmp_path.iterdir()) == []


# Links


@pytest.mark.parametrize("known", [True, False], ids=["known", "made just now"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_refused(tmp_path, monkeypatch, exists, known):
    path, elsewhere = tmp_path / "lock", tmp_path / "elsewhere"
    if exists:
        elsewhere.write_text("mine")
    path.symlink_to(elsewhere)
    if not known:
        monkeypatch.setattr(Path, "is_symlink", lambda path: False)
    for take in (Lock, is_free, lambda path: Lock(path, wait=True)):
        with pytest.raises(UsageError if known else OSError, match="is a symbolic link" if known else "symbolic links"):
            take(path)
    assert elsewhere.exists() == exists
    assert not exists or (is_free(elsewhere) and not elsewhere.exists())


def test_a_note_is_never_written_through_a_link(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "cell.begun").symlink_to(elsewhere)
    with Lock(tmp_path / "cell.lock") as held, pytest.raises(UsageError, match=r"cell\.begun is a symbolic link"):
        held.working().__enter__()
    assert elsewhere.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have names")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(UsageError, match="not a regular file"):
        Lock(tmp_path / "lock")


# Notes of processes that died


@needs_fork
def test_the_note_of_a_dead_process_is_read(tmp_path):
    path, begun = tmp_path / "cell.lock", time.time()

    def die():
        with Lock(path) as held, held.working():
            os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(fork(die), 0)
    with Lock.claim(path) as claim:
        assert claim.died_since(begun)
        assert not claim.died_since(time.time())
        with claim.working():
            assert claim.died_since(begun)
        assert not claim.died_since(begun)
    assert list(tmp_path.iterdir()) == []


def test_work_that_ends_by_an_error_leaves_no_note(tmp_path):
    with Lock(tmp_path / "cell.lock") as held:
        with pytest.raises(KeyboardInterrupt), held.working():
            raise KeyboardInterrupt
        assert not held.died_since(0)


@pytest.mark.parametrize("text", ["", "17", "what is this?"])
def test_a_note_that_was_cut_short_says_nothing(tmp_path, text):
    (tmp_path / "cell.begun").write_text(text)
    with Lock(tmp_path / "cell.lock") as held:
        assert not held.died_since(time.time() - 60)


# Two processes never hold the same lock on different files


def test_a_file_that_its_holder_removed_is_no_lock(tmp_path, monkeypatch):
    path, real = tmp_path / "lock", lock.lock_descriptor
    first = Lock(path)

    def late(descriptor, **how):
        first.release()  # the file that is open here has no name any more
        return real(descriptor, **how)

    monkeypatch.setattr(lock, "lock_descriptor", late)
    with pytest.raises(UsageError, match="Another process"):
        Lock(path)
    with Lock(path) as second:
        assert os.path.samestat(path.stat(), os.fstat(second._file.fileno()))
        with pytest.raises(UsageError, match="Another process"):
            Lock(path)


def test_who_waits_takes_the_file_that_is_there_now(tmp_path, monkeypatch):
    path, real, opened = tmp_path / "lock", lock.lock_descriptor, []
    first = Lock(path)

    def late(descriptor, **how):
        opened.append(descriptor)
        if len(opened) == 1:
            first.release()
        return real(descriptor, **how)

    monkeypatch.setattr(lock, "lock_descriptor", late)
    with Lock(path, wait=True):
        assert len(opened) == 2
        assert not is_free(path)


def test_release_leaves_a_file_of_another_process(tmp_path):
    path = tmp_path / "run" / "lock"
    path.parent.mkdir()
    first = Lock(path)
    path.unlink()  # with the whole folder, which another process makes again
    with Lock(path):
        first.release()
        first.release()
        assert path.exists()
        assert not is_free(path)
    assert not path.exists()


@needs_fork
def test_many_processes_take_turns(tmp_path):
    path, turns = tmp_path / "lock", 40

    def work():
        for turn in range(turns):
            while True:
                with suppress(UsageError), Lock(path, wait=turn % 2 == 0):
                    (tmp_path / "inside").mkdir()  # fails if another process is inside
                    (tmp_path / f"{os.getpid()}.{turn}").touch()
                    (tmp_path / "inside").rmdir()
                    break

    children = [fork(work) for _ in range(4)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert len(list(tmp_path.iterdir())) == 4 * turns


# Processes that fork and die


@needs_fork
def test_a_fork_does_not_keep_the_lock(tmp_path):
    path, told = tmp_path / "lock", tmp_path / "loader"

    def run():
        held = Lock(path)
        loader = fork(lambda: (held.release(), time.sleep(60)))  # in a fork, release does nothing
        (tmp_path / "partial").write_text(str(loader))
        (tmp_path / "partial").rename(told)
        time.sleep(60)

    child = fork(run)
    with killed_at_the_end(child):
        wait_until(told.exists)
        assert not is_free(path)
    loader = int(told.read_text())
    try:
        wait_until(lambda: is_free(path))
        os.kill(loader, 0)  # it is alive
    finally:
        os.kill(loader, signal.SIGKILL)


@needs_fork
def test_a_fork_made_while_another_thread_locks_does_not_keep_the_lock(tmp_path, monkeypatch):
    path, real, loaders = tmp_path / "lock", lock.lock_descriptor, []

    def forked_just_before(descriptor, **how):
        loaders.append(fork(lambda: time.sleep(60)))
        return real(descriptor, **how)

    with monkeypatch.context() as patch:
        patch.setattr(lock, "lock_descriptor", forked_just_before)
        held = Lock(path)
    with killed_at_the_end(loaders[0]):
        held._file.close()  # as when the process is killed
        wait_until(lambda: is_free(path))


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_gives_the_lock_to_everybody(tmp_path, monkeypatch, number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock, "lock_descriptor", refuse)
    monkeypatch.setattr(lock, "unlock_descriptor", refuse)
    with Lock(tmp_path / "lock"), Lock(tmp_path / "lock"), Lock(tmp_path / "lock", wait=True):
        assert is_free(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []
