"""Compiled kernels on disk: what is kept, what is noticed, and what is removed."""

import os
import time

import pytest

from minigrad_kernels.toolchain import cache
from tests.kernels.toolchain.test_cpu import COUNT, TWO, USE, kernel, python  # noqa: F401

# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)


def kept(folder):
    return [file for file in (folder / "cache" / "kernels").rglob("double-*") if file.is_file()]


@pytest.mark.parametrize("damage", [b"", b"\0\0\0\0", b"nothing that was kept"])
def test_damaged_files_are_compiled_again(kernel, damage):
    assert python(f"{USE}\n{COUNT}", kernel) == ["0", "1"]
    (file,) = kept(kernel)
    whole = file.read_bytes()
    file.write_bytes(damage)
    assert python(f"{USE}\n{COUNT}", kernel) == ["0", "1"]
    file.write_bytes(whole[: len(whole) // 2])
    assert python(f"{USE}\n{COUNT}", kernel) == ["0", "1"]
    assert python(f"{USE}\n{COUNT}", kernel) == ["1", "0"]


def test_each_edit_of_a_file_of_the_user_is_noticed(kernel):
    python(USE, kernel)
    source = kernel / "kernel.py"
    source.write_text(source.read_text().replace("return x + x", "return 3 * x"))
    assert python(f"{USE.replace('2 * x', '3 * x')}\n{COUNT}", kernel) == ["0", "1"]


def test_types_are_kept_apart(kernel):
    python(USE, kernel)
    assert python(f"{USE.replace('5.0)', '5)')}\n{COUNT}", kernel) == ["0", "1"]
    assert len(kept(kernel)) == 2


def test_what_cannot_be_kept_is_no_error(kernel):
    code = f"""
import os, pathlib
from minigrad_kernels.toolchain.cache import cache_folder
folder = cache_folder()
folder.rmdir()
folder.write_text("another program took the name")
{USE}
{COUNT}"""
    assert python(code, kernel) == ["0", "1"]


def test_folders_unused_for_a_month_are_removed(tmp_path):
    now = time.time()
    for name, age in {"new": 0, "old": 31, "month": 29, "own": 31}.items():
        (tmp_path / name / "inside").mkdir(parents=True)
        (tmp_path / name / "file").write_text("")
        os.utime(tmp_path / name, (now, now - age * cache.DAY))
    cache.prune(tmp_path, tmp_path / "own")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["month", "new", "own"]


def test_a_folder_that_another_process_removes_meanwhile_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()

    def gone(self):
        raise FileNotFoundError(self)

    monkeypatch.setattr(type(tmp_path), "stat", gone)
    cache.prune(tmp_path, kept=0)
    monkeypatch.undo()
    assert (tmp_path / "old").is_dir()


def test_a_process_marks_the_folder_that_it_uses_and_removes_others(kernel):
    python(USE, kernel)
    (file,) = kept(kernel)
    other = file.parent.with_name("f00d")
    other.mkdir()
    old = time.time() - 40 * cache.DAY
    for folder in (other, file.parent):
        os.utime(folder, (old, old))
    python(USE, kernel)  # loads, so it has no reason to look around
    assert time.time() - file.parent.stat().st_mtime < cache.DAY and other.is_dir()
    python(f"{TWO}{USE.replace('5.0)', '5)')}", kernel)
    assert not other.exists() and file.exists()


def test_a_cache_folder_that_cannot_be_found_is_no_error(tmp_path):
    code = "import pathlib\npathlib.Path.home = lambda: (_ for _ in ()).throw(RuntimeError('no home'))\n"
    code += "import os\nos.environ.pop('MINIGRAD_CACHE'); os.environ.pop('XDG_CACHE_HOME', None)\n"
    code += "from minigrad_kernels.toolchain.cache import cache_folder; print(cache_folder())"
    assert python(code, tmp_path, LOCALAPPDATA="") == ["None"]
