"""Copies of a program's files, with and without a patch, so that the user's files stay unchanged.

If the script is in a git work tree, the files that git tracks or could add are copied. Otherwise
all files in the script's directory are copied. Large files, and directories that git ignores, are
linked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from dasfprof.errors import TrialError
from dasfprof.handles.trial.process import Program
from dasfprof.handles.trial.results import SKIPPED, files_below
from dasfprof.text import clean, excerpt

#: Maximum size in bytes of a file that is copied.
_LARGEST = 16 * 2**20
#: Maximum number of files in a copy.
_MOST = 20_000
#: Parts of git's error messages that are about the patch itself and not about file names.
_TELLING = ("patch failed", "corrupt", "No valid patches")


def with_patch(program: Program, patch: Path, work: Path) -> tuple[Program, Program]:
    """Return a program that runs in a copy of its files, and one that runs in a patched copy.

    Parameters
    ----------
    program
        A script or a module.
    patch
        The file of a unified diff.
    work
        A directory in which the copies are created.

    Raises
    ------
    TrialError
        If the patch does not apply, or there are too many files to copy.
    """
    target, *arguments = program.command
    script = Path(os.path.realpath(target))
    here, start = Path.cwd().resolve(), script.parent
    if program.as_module:
        script = start = here
    root, names = _files_of(start, script)
    if len(names) > _MOST:
        raise TrialError(
            f"{clean(root)} has more than {_MOST:,} files, so it was not copied. Put the script "
            "into a git repository or a separate directory, or use --with."
        )
    places = [start]
    if here.is_relative_to(root):
        arguments = [_from_here(argument, root) for argument in arguments]
        places.append(here)
    copies = []
    for copy in (work.resolve() / "as-it-is", work.resolve() / "changed"):
        _copy(root, names, copy)
        for place in places:
            (copy / place.relative_to(root)).mkdir(parents=True, exist_ok=True)
        if not program.as_module:
            target = str(copy / script.relative_to(root))
        directory = str(copy / here.relative_to(root)) if here in places else ""
        moved = replace(program, directory=directory, moved=(str(root), str(copy)))
        copies.append(replace(moved, command=(target, *arguments)))
    before = files_below(copy)
    _apply(patch.resolve(), [copy, *(copy / place.relative_to(root) for place in places)])
    patched = (name for name, status in files_below(copy).items() if before.get(name) != status)
    return copies[0], replace(copies[1], patched=tuple(patched))


def _from_here(argument: str, root: Path) -> str:
    """Return a program's argument, as an absolute path if it names a file outside of `root`."""
    path = Path(argument)
    if path.exists() and not path.resolve().is_relative_to(root):
        # Files outside of `root` are not copied.
        return str(path.absolute())
    return argument


def _files_of(start: Path, script: Path) -> tuple[Path, list[str]]:
    """Return the directory to copy, and the paths of the files and linked directories in it.

    The directory is the git work tree that contains `start`. If there is none, or if git ignores
    `script`, the directory is `start`.
    """
    top = _git(start, "rev-parse", "--show-toplevel")
    if top and _git(start, "check-ignore", str(script)) is None:
        root = Path(top.rstrip("\n")).resolve()
        listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        ignored = "-z", "--others", "--ignored", "--exclude-standard", "--directory"
        listed = f"{listed or ''}{_git(root, 'ls-files', *ignored) or ''}"
        names = dict.fromkeys(name.rstrip("/") for name in listed.split("\0") if name)
        return root, [name for name in names if Path(name).name not in SKIPPED]
    paths: list[str] = []
    for place, directories, files in os.walk(start):
        links = [name for name in directories if Path(place, name).is_symlink()]
        paths += (os.path.relpath(os.path.join(place, name), start) for name in [*files, *links])
        directories[:] = [
            name
            for name in directories
            if name not in (*SKIPPED, ".git") and not Path(place, name, "pyvenv.cfg").exists()
        ]
        if len(paths) > _MOST:
            break
    return start, paths


def _git(directory: Path, *arguments: str) -> str | None:
    """Return the output of a git command, or None if the command fails or git is missing."""
    if shutil.which("git") is None:
        return None
    command = ["git", "-C", str(directory), *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def _copy(root: Path, names: Sequence[str], copy: Path) -> None:
    for name in names:
        source, target = root / name, copy / name
        if not source.exists():  # git also lists tracked files that were deleted.
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        place = source.resolve()
        if source.is_symlink() and place.is_relative_to(root):
            target.symlink_to(copy / place.relative_to(root))
        elif source.is_symlink() or not source.is_file() or source.stat().st_size > _LARGEST:
            target.symlink_to(place)
        else:
            shutil.copy2(source, target)


def _apply(patch: Path, directories: Sequence[Path]) -> None:
    """Apply a patch. Its file names may be relative to any of the directories."""
    if shutil.which("git") is None:
        raise TrialError("Patches require git. Install it, or use --with.")
    # The copy may be inside another repository, which git must not use.
    ceiling = os.pathsep.join(str(directory.parent) for directory in directories)
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": ceiling}
    complaints = []
    for directory, strip in product(dict.fromkeys(directories), ("-p1", "-p0")):
        # If a part of the patch does not apply, git changes no file.
        done = subprocess.run(
            ["git", "apply", "--recount", "--whitespace=nowarn", strip, str(patch)],
            cwd=directory,
            env=environment,
            capture_output=True,
            check=False,
        )
        if not done.returncode:
            return
        complaints.append(os.fsdecode(done.stderr or done.stdout).strip())
    telling = [text for text in complaints if any(words in text for words in _TELLING)]
    reason = (telling or complaints)[0].removeprefix("error: ").partition("\n")[0]
    raise TrialError(f"The patch does not apply: {excerpt(clean(reason))}")
