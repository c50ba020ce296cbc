"""Loading: the file, the layers over it, validation, checks; every fault at once."""

import os
from collections.abc import Mapping
from pathlib import Path

from grid.config.checks import findings
from grid.config.document import MAX_BYTES, read_document, too_large
from grid.config.layers import Layers
from grid.config.root import Config
from grid.config.structure import shape_of
from grid.config.validation import Places, validate
from grid.model.errors import ConfigError, ConfigProblem
from grid.model.reasons import Reason


def load(
    path: str | Path, *, environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> Config:
    """The configuration in the file at ``path``: defaults < file < environment < ``overrides``.

    ``environ`` None is the environment of this process; {} is none. ``overrides`` are ``{"daemon.listen": value}`` with
    values as a file would have them; None values count as not given. Relative file names start at the file's directory.
    Raises ConfigError with every problem found, in the order of the file.
    """
    file = Path(path)
    name = str(file)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        problem = ConfigProblem(
            Reason.CONFIG_UNREADABLE,
            "",
            f"cannot be read: {error.strerror or error}",
            hint=Reason.CONFIG_UNREADABLE.hint,
        )
        raise _refusal(name, [problem]) from None
    if len(data) > MAX_BYTES:
        raise _refusal(name, [too_large()])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = ConfigProblem(Reason.CONFIG_SYNTAX, "", "is not UTF-8 text", line, "save the file as UTF-8")
        raise _refusal(name, [problem]) from None
    return _parse(text, name, os.environ if environ is None else environ, overrides or {}, file.absolute().parent)


def parse(
    text: str,
    *,
    name: str = "<text>",
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """The configuration in ``text``, as :func:`load` reads it.

    ``environ`` None is no environment at all, and relative file names stay as they are. ``name`` stands in errors.
    """
    return _parse(text, name, environ or {}, overrides or {}, None)


def _parse(
    text: str, name: str, environ: Mapping[str, str], overrides: Mapping[str, object], base: Path | None
) -> Config:
    document = read_document(text)
    if document.problems and not document.tree:
        raise _refusal(name, document.problems)
    layers = Layers(document.tree, shape_of(Config))
    layers.environment(environ)
    layers.overrides(overrides)
    places = Places(document, layers)
    validated = validate(document.tree, places, base)
    problems = [*document.problems, *layers.problems, *validated.problems]
    problems += [
        places.problem(finding.reason, finding.path, finding.detail, finding.hint)
        for finding in findings(validated.config, document.tree, validated.damaged)
    ]
    if problems:
        raise _refusal(name, problems)
    return validated.config


def _refusal(name: str, problems: list[ConfigProblem]) -> ConfigError:
    ordered = sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0))
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    return ConfigError(f"{name}: {ordered[0]}{more}", ordered)
