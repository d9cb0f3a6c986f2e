"""Messages are one line that a terminal only prints."""

import pytest

from noisemarket.errors import BadInput, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("north", "north"),
        ("é 東", "é 東"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb", "a\\u202eb"),
        ("\udcff", "\\udcff"),
        ("\x00\x07", "\\x00\\x07"),
    ],
)
def test_what_cannot_be_printed_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    said = str(BadInput(f"owner {text}", text, f"is not {text}."))
    assert said == f"owner {shown} {shown} is not {shown}."
    assert said.isprintable()
