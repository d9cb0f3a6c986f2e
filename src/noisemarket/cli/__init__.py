"""The command line. Commands live one a file and import what they need when they run."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import sys
import warnings

OPTIONS = {"setting": "--set"} | {
    name: f"--{name}"
    for name in ("budgets", "mechanisms", "mixed", "out", "port", "records", "resume", "seeds")
}
"""The options by the arguments that they set: messages of the library name arguments."""

PLAIN = {
    r"Invalid value for '(.+?)': '(.*)' is not a valid int[a-z ]*\.":
        r"\1 is \2: give a whole number.",
    r"Invalid value for '(.+?)': '(.*)' is not a valid float[a-z ]*\.":
        r"\1 is \2: give a number.",
    r"Invalid value for '(.+?)': (\S+) is not in the range x>=(\S+)\.":
        r"\1 is \2: give a number of at least \3.",
    r"Invalid value for '(.+?)': (\S+) is not in the range (\S+)<=x<=(\S+)\.":
        r"\1 is \2: give a number from \3 to \4.",
}  # fmt: skip
"""What the parser of options says, in plain words."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: one clear sentence and exit code 2 for bad input, never a traceback."""
    if arguments is None:  # called as a command, not by a program
        gc.set_threshold(100_000)  # imports make many objects and no garbage
        # Products here are small: a second thread would mostly wait for them, busily.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        _quiet()
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    import typer

    from noisemarket.cli.app import app
    from noisemarket.errors import BadInput, Interrupted, MissingExtra, NoisemarketError

    # Older typer builds on click, newer carries its own: this is UsageError in both.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        typed = sys.argv[1:] if arguments is None else arguments
        code = app(args=typed, standalone_mode=False, obj=typed)
        sys.stdout.flush()
        if code == 130:  # newer typer returns it on Ctrl-C, and says nothing
            raise KeyboardInterrupt
    except usage_error as problem:
        said = getattr(problem, "format_message", problem.__str__)()
        # Typer and click may both add a hint; and where help was shown there is nothing to add.
        said = re.sub(r"( Did you mean [^?]*\?)(\1| \(Did you mean [^)]*\))", r"\1", said)
        for pattern, words in PLAIN.items():
            said = re.sub(pattern, words, said)
        context = getattr(problem, "ctx", None)
        if said.startswith("No such command") and "Did you mean" not in said and context:
            said += f" Choose one of: {', '.join(context.command.list_commands(context))}."
        elif said.startswith("Missing ") and context:
            said += f" See: {context.command_path} --help"
        code = 2
        if said.startswith("Usage: "):
            print(said)
        elif said:
            _failed(code, said)
    except (typer.Abort, KeyboardInterrupt):
        code = _failed(130, "Interrupted.")
    except typer.Exit as done:
        code = done.exit_code
    except NoisemarketError as problem:
        if type(problem) is BadInput and problem.field in OPTIONS:
            problem = BadInput(OPTIONS[problem.field], problem.value, problem.remedy)
        wrong = isinstance(problem, BadInput | MissingExtra)
        code = _failed(2 if wrong else 130 if isinstance(problem, Interrupted) else 1, problem)
    except MemoryError:
        code = _failed(1, "not enough memory: take fewer owners or levels, or trace fewer points.")
    except OSError as problem:
        code = _failed(1, _cannot(problem))
    sys.exit(code if isinstance(code, int) else 0)


def _quiet() -> None:
    """Keep warnings of libraries, here and in worker processes, from users who cannot act on them.

    Python's own ``-W`` and ``PYTHONWARNINGS`` bring them back.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
        logging.getLogger("matplotlib").setLevel(logging.ERROR)


def _cannot(problem: OSError) -> str:
    """What cannot be used, and why. Files are named by the error; what is left is the output."""
    why = problem.strerror or problem
    if problem.filename is not None:
        return f"{problem.filename} cannot be used: {why}."
    try:  # what failed before may be gone from the buffer: only new output tells
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        return f"standard output cannot be written: {why}."
    return f"a file cannot be used: {why}."


def _failed(code: int, sentence: object) -> int:
    from noisemarket.errors import printable

    lines = (printable(line) for line in str(sentence).split("\n"))
    print("noisemarket: " + "\n".join(lines), file=sys.stderr)
    return code
