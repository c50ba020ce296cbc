"""Folders that a command writes into: named, and found writable before any work is done."""

import tempfile
from pathlib import Path

import typer


def named(text: str | Path) -> Path:
    """The folder of that name; none is refused, which ``Path`` would take for the working directory.

    A default comes here as the path that it is.
    """
    if not str(text).strip():
        raise typer.BadParameter("needs the name of a folder, got an empty one")
    return Path(text)


def writable(folder: Path, option: str) -> None:
    """Make ``folder`` where it is missing, and try a file in it; says why that cannot be, as a usage error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder {folder}: {error.strerror}", param_hint=option) from error
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".grid-"):
            pass
    except OSError as error:
        raise typer.BadParameter(f"cannot write into {folder}: {error.strerror}", param_hint=option) from error
