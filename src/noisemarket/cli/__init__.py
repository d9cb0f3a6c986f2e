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
        _say(getattr(problem, "format_message", problem.__str__)())
        code = 2
    except (typer.Abort, KeyboardInterrupt):
        _say("Interrupted.")
        code = 130
    except typer.Exit as done:
        code = done.exit_code
    except (BadInput, MissingExtra) as problem:
        _say(str(problem))
        code = 2
    except Interrupted as problem:
        _say(str(problem))
        code = 130
    except NoisemarketError as problem:
        _say(str(problem))
        code = 1
    except MemoryError:
        _say("not enough memory: take fewer owners or levels, or trace fewer points.")
        code = 1
    except OSError as problem:
        _say(f"{problem.filename or 'a file'} cannot be used: {problem.strerror or problem}.")
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def _say(sentence: str) -> None:
    print(f"noisemarket: {sentence}", file=sys.stderr)
