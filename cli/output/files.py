"""The one way a file is written: whole or not at all; and who may write it now.

A file is written beside its place under a random name, flushed, and renamed. What a killed process left
there is cleared when the same file is written again: a temporary file is locked for as long as it is written,
so one that can be locked belongs to nobody.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ... import InfercostError, InputError
from ...sheets import descriptor_of

MOST_LISTED = 10_000
"""Names of a folder that are looked through for what was left behind."""
_PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | _PLAIN


class BusyError(InfercostError):
    """Another process is writing there."""

    exit_code = 1


@contextmanager
def replacing(path: Path, sweep_up: bool = True) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` at the end: through links, keeping its mode.

    Devices, pipes and descriptors (`/dev/stdout`) that were named are written in place. With `sweep_up`, what
    killed writers of `path` left is cleared first. Raises InputError where the place cannot be written.
    """
    try:
        with _in_place(path) or _temporary(path, sweep_up) as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    except ValueError as error:  # a name that no file system takes
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot write {path}: {error}") from None


def write_file(path: Path, content: str | bytes) -> None:
    """Write whole or not at all; text as UTF-8. Raises InputError as `replacing` does."""
    with replacing(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def writable(path: Path) -> os.stat_result | None:
    """What stands at `path`, links followed, None for nothing. Raises InputError where that is to stay."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"cannot write {path}: {error}") from None
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"cannot write {path}: it is a folder")
    if not os.access(path, os.W_OK):
        raise InputError(f"cannot write {path}: it is read-only")
    if stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode) or stat.S_ISREG(found.st_mode):
        return found
    raise InputError(f"cannot write {path}: it is neither a file nor a pipe")


def _in_place(path: Path) -> Any:
    """What `path` names, opened, where that is no file: a descriptor of ours, a character device, a pipe."""
    number = descriptor_of(path)
    if number is not None:
        if number == 1 and sys.stdout is not None:
            sys.stdout.flush()
        return os.fdopen(os.dup(number), "wb")
    found = writable(path)
    if found is None or stat.S_ISREG(found.st_mode):
        return None
    # A pipe that no one reads is an error, in place of being waited for.
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | _PLAIN)
    try:
        now = os.fstat(handle)
        if stat.S_ISREG(now.st_mode):
            raise InputError(f"cannot write {path}: it was another file a moment ago")
        if hasattr(os, "set_blocking"):
            os.set_blocking(handle, True)
        return os.fdopen(handle, "wb")
    except BaseException:
        os.close(handle)
        raise


@contextmanager
def _temporary(path: Path, sweep_up: bool) -> Iterator[BinaryIO]:
    target = Path(os.path.realpath(path))
    found = writable(target)
    prefix = _prefix(target)
    if sweep_up:
        _clear(target.parent, prefix)
    handle, name = _created(target, prefix, 0o666 if found is None else 0o600)
    done = False
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)  # the rename may outlive a power failure that the content did not
            if found is not None:
                os.chmod(name, found.st_mode & 0o7777)
            if os.name != "nt":  # while the lock is held: nobody takes the file for one left behind
                os.replace(name, target)
                done = True
        if not done:  # Windows renames no open file
            os.replace(name, target)
            done = True
    finally:
        if not done:
            with suppress(OSError):
                os.unlink(name)


def _prefix(target: Path) -> str:
    """What the names of temporary files for `target` begin with: on this machine, so that no other's are."""
    machine = os.uname().nodename if hasattr(os, "uname") else ""
    return f".infercost.{zlib.crc32(os.fsencode(f'{machine}/{target.name}')):08x}."


def _created(target: Path, prefix: str, mode: int) -> tuple[int, str]:
    """A new file beside `target`, locked, and its name."""
    while True:
        name = os.path.join(target.parent, prefix + os.urandom(8).hex())
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, mode)
        if _lock(handle) is not False and os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # taken for one left behind, between the two lines above


def _clear(folder: Path, prefix: str) -> None:
    """Remove the temporary files of ours that no one holds; where that cannot be known, they stay."""
    if not hasattr(os, "geteuid"):
        return
    with suppress(OSError), os.scandir(folder) as names:
        for _, entry in zip(range(MOST_LISTED), names, strict=False):
            if not entry.name.startswith(prefix):
                continue
            with suppress(OSError):
                handle = os.open(entry.path, os.O_RDWR | getattr(os, "O_NONBLOCK", 0) | _NO_LINK)
                try:
                    found = os.fstat(handle)
                    mine = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
                    if mine and _lock(handle):
                        os.unlink(entry.path)
                finally:
                    os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock an open file: whether that worked, None where this system or its file system has no locks."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def lock_of(path: Path) -> Path:
    """The file that is locked by who writes `path`."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.infercost-lock")


@contextmanager
def only_writer(path: Path, what: str, wait: float = 0.0) -> Iterator[None]:
    """Be the only process that writes `path` and what belongs to it, for as long as this lasts.

    By a locked file beside it, which ends with the process however it ends. Raises BusyError where another
    process is there and does not leave within `wait` seconds.
    """
    until = time.monotonic() + wait
    try:
        place = str(lock_of(path))
        while (held := _held(place)) is None:
            if time.monotonic() >= until:
                raise BusyError(f"{what} is writing {path} now: wait for it, or write elsewhere")
            time.sleep(0.02)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"cannot write {path}: {error}") from None
    handle, name = held
    try:
        yield
    finally:
        if os.name == "nt":  # which removes no open file
            os.close(handle)
        with suppress(OSError):
            os.unlink(name)
        if os.name != "nt":
            os.close(handle)


def _held(place: str) -> tuple[int, str] | None:
    """The lock's descriptor and file, or None where another process has it."""
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | _NO_LINK, 0o600)
        got = _lock(handle)
        # The one before may have removed the file that was opened: the lock counts on the one that is there.
        with suppress(FileNotFoundError):
            if got and os.path.samestat(os.fstat(handle), os.lstat(place)):
                return handle, place
        os.close(handle)
        if got is False:
            return None
        if got is None:
            with suppress(OSError):
                os.unlink(place)
            return _held_without_locks(place + "-pid")


def _held_without_locks(place: str) -> tuple[int, str] | None:
    """As `_held`, by a file that only one process can create and that names it."""
    me = f"{os.getpid()} {os.uname().nodename if hasattr(os, 'uname') else ''}"
    for _ in range(2):
        try:
            handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600)
        except FileExistsError:
            with suppress(OSError):
                if _left_behind(place, me):
                    os.unlink(place)
            continue
        os.write(handle, me.encode())
        return handle, place
    return None


def _left_behind(place: str, me: str) -> bool:
    """Whether the process that made a lock is gone: known on its own machine alone. Windows removes no file
    that is open, so there it need not be known."""
    if os.name == "nt":
        return True
    with open(place, encoding="utf-8", errors="replace") as file:
        number, _, machine = file.read(300).partition(" ")
    if machine != me.partition(" ")[2] or not (number.isascii() and number.isdigit()):
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False
