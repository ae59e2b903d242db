"""Local storage: whole or not at all, confined, and readable to the end once opened."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from api.core import confined
from api.core.errors import Invalid, NotFound, Unavailable
from api.core.storage import LocalStorage

UNSAFE = [
    "",
    "/",
    "..",
    "../x",
    "a/../../x",
    "a//b",
    "//etc/passwd",
    "/etc/passwd",
    "a/",
    "a/./b",
    "a\\b",
    "..\\x",
    "a\x00b",
    "a\nb",
    "\ud83d",
    ".partial/x",
    "a/" + "n" * 256,
    "/".join(["abcdefgh"] * 200),
]


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "storage")


def made(tmp_path: Path, content: bytes, name: str = "source") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def everything_in(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_put_links_where_it_can_and_reads_back(storage: LocalStorage, tmp_path: Path) -> None:
    source = made(tmp_path, b"0123456789")
    storage.put("jobs/j/a.bin", source)
    assert b"".join(storage.open("jobs/j/a.bin")) == b"0123456789"
    assert b"".join(storage.open("jobs/j/a.bin", 2, 5)) == b"234"
    assert (storage.size("jobs/j/a.bin"), storage.exists("jobs/j/a.bin")) == (10, True)
    local = storage.local_path("jobs/j/a.bin")
    assert local is not None
    assert os.path.samefile(local, source)
    assert everything_in(storage.root) == {"jobs/j/a.bin"}


def test_put_without_link_keeps_the_bytes_of_now(storage: LocalStorage, tmp_path: Path) -> None:
    source = made(tmp_path, b"line 1\n")
    storage.put("log", source, link=False)
    with source.open("ab") as file:
        file.write(b"line 2\n")
    assert b"".join(storage.open("log")) == b"line 1\n"


def test_put_across_file_systems_copies(storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    source = made(tmp_path, os.urandom(3 * 1024 * 1024 + 1))
    storage.put("a/b", source)
    local = storage.local_path("a/b")
    assert local is not None
    assert local.read_bytes() == source.read_bytes()
    assert not os.path.samefile(local, source)


def test_put_again_replaces_and_the_same_file_twice_leaves_nothing_behind(
    storage: LocalStorage, tmp_path: Path
) -> None:
    source = made(tmp_path, b"one")
    storage.put("a", source)
    storage.put("a", source)
    storage.put("a", made(tmp_path, b"two", "other"))
    assert b"".join(storage.open("a")) == b"two"
    assert everything_in(storage.root) == {"a"}


def test_a_full_disk_is_told_and_leaves_nothing(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(_source: object, target: object, _length: int) -> None:
        target.write(b"half")  # type: ignore[attr-defined]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(confined.shutil, "copyfileobj", half)
    with pytest.raises(Unavailable) as told:
        storage.put("a/b", made(tmp_path, b"whole"), link=False)
    assert told.value.code == "disk_full"
    assert everything_in(storage.root) == set()


@pytest.mark.parametrize("key", UNSAFE)
def test_an_unsafe_key_is_never_written_nor_found(storage: LocalStorage, tmp_path: Path, key: str) -> None:
    with pytest.raises(Invalid):
        storage.put(key, made(tmp_path, b"x"))
    for look in (storage.pin, storage.size, storage.open):
        with pytest.raises(NotFound, match=r"^no such file$"):
            look(key)
    assert not storage.exists(key)
    assert storage.local_path(key) is None
    assert list(storage.list(key)) == []


def test_symlinks_inside_are_never_followed(storage: LocalStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = made(outside, b"secret", "secret")
    (storage.root / "job").mkdir()
    (storage.root / "job" / "file").symlink_to(secret)
    (storage.root / "job" / "folder").symlink_to(outside)
    os.mkfifo(storage.root / "job" / "pipe")
    for key in ("job/file", "job/folder/secret", "job/pipe", "job"):
        with pytest.raises(NotFound):
            storage.pin(key)
    assert storage.local_path("job/file") is None
    assert storage.local_path("job/folder/secret") is None
    assert list(storage.list("job")) == []
    with pytest.raises(NotFound):
        storage.put("job/folder/new", made(tmp_path, b"x"))
    storage.delete_prefix("job")
    assert secret.read_bytes() == b"secret"
    assert everything_in(outside) == {"secret"}


def test_only_a_regular_file_is_stored(storage: LocalStorage, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/etc/hostname")
    with pytest.raises(NotFound):
        storage.put("a", link)
    with pytest.raises(Invalid):
        storage.put("a", tmp_path)
    assert everything_in(storage.root) == set()


def test_list_and_delete_prefix(storage: LocalStorage, tmp_path: Path) -> None:
    for key in ("j/c/2/b", "j/c/2/a/x", "j/c/1/a", "j2/a"):
        storage.put(key, made(tmp_path, b"x"))
    assert list(storage.list("j")) == ["j/c/1/a", "j/c/2/a/x", "j/c/2/b"]
    storage.delete_prefix("j/c/2")
    storage.delete_prefix("j/c/absent")
    assert list(storage.list("j")) == ["j/c/1/a"]
    assert everything_in(storage.root) == {"j/c/1/a", "j2/a"}
    storage.delete_prefix("j2/a")
    assert not storage.exists("j2/a")


def test_what_is_pinned_outlives_its_deletion(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put("c/weights", made(tmp_path, b"w" * 3_000_000))
    with storage.pin("c/weights") as pinned:
        storage.delete_prefix("c")
        assert len(b"".join(pinned.read())) == 3_000_000


def test_a_file_cut_short_is_an_error_and_not_a_short_answer(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put("a", made(tmp_path, b"w" * 100))
    with storage.pin("a") as pinned:
        os.truncate(storage.root / "a", 10)
        with pytest.raises(Unavailable):
            b"".join(pinned.read())


def test_a_file_rewritten_in_place_ends_a_read(storage: LocalStorage, tmp_path: Path) -> None:
    source = made(tmp_path, b"w" * 3_000_000)
    storage.put("a", source)
    with storage.pin("a") as pinned:
        chunks = pinned.read()
        next(chunks)
        with source.open("r+b") as file:
            file.write(b"W")
        os.utime(source, ns=(1, 1))  # the clock of a file system is too coarse for a test
        with pytest.raises(Unavailable):
            next(chunks)


def test_readers_see_the_old_or_the_new_content_never_a_mixture(storage: LocalStorage, tmp_path: Path) -> None:
    contents = [bytes([65 + n]) * 200_000 for n in range(2)]
    sources = [made(tmp_path, content, str(n)) for n, content in enumerate(contents)]
    storage.put("a", sources[0], link=False)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for source in sources:
                storage.put("a", source, link=False)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = {b"".join(storage.open("a")) for _ in range(100)}
    finally:
        stop.set()
        writer.join()
    assert seen <= set(contents)


def test_sweep_takes_what_a_killed_process_left_and_nothing_younger(storage: LocalStorage) -> None:
    (storage.root / ".partial").mkdir()
    (storage.root / ".partial" / "dead").write_bytes(b"half")
    (storage.root / ".trash" / "grave" / "inner").mkdir(parents=True)
    storage.sweep(older_than_s=3600)
    assert everything_in(storage.root) == {".partial/dead"}
    storage.sweep(older_than_s=0)
    assert not list((storage.root / ".partial").iterdir())
    assert not list((storage.root / ".trash").iterdir())
