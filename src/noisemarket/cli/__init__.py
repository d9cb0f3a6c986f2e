"""The command line. Commands live one a file and import what they need when they run."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> None:
    """Entry point: one clear sentence and exit code 2 for bad input, never a traceback."""
    import typer

    from noisemarket.cli.app import app
    from noisemarket.errors import BadInput, Interrupted, MissingExtra, NoisemarketError

    # Older typer builds on click, newer carries its own: this is UsageError in both.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        code = app(args=arguments, standalone_mode=False)
    except usage_error as problem:
        code = _failed(2, getattr(problem, "format_message", problem.__str__)())
    except (typer.Abort, KeyboardInterrupt):
        code = _failed(130, "Interrupted.")
    except typer.Exit as done:
        code = done.exit_code
    except (BadInput, MissingExtra) as problem:
        code = _failed(2, problem)
    except Interrupted as problem:
        code = _failed(130, problem)
    except NoisemarketError as problem:
        code = _failed(1, problem)
    except MemoryError:
        code = _failed(1, "not enough memory: take fewer owners or levels, or trace fewer points.")
    except OSError as problem:
        what, why = problem.filename or "a file", problem.strerror or problem
        code = _failed(1, f"{what} cannot be used: {why}.")
    sys.exit(code if isinstance(code, int) else 0)


def _failed(code: int, sentence: object) -> int:
    print(f"noisemarket: {sentence}", file=sys.stderr)
    return code
