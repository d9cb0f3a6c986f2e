"""Figures are written whole, and the same every time."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from noisemarket.errors import NoisemarketError
from noisemarket.show.style import figure, save


def line() -> Figure:
    canvas, axes = figure(1)
    axes[0][0].plot([0, 1], [0, 1])
    assert isinstance(canvas, Figure)
    return canvas


def test_a_figure_that_breaks_off_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = save(line(), tmp_path, "drawn")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == sorted(paths)
    assert [path.suffix for path in paths] == [".png", ".svg"]

    def broken(_canvas: Figure, target: Any, **_options: object) -> None:
        file = target.open("wb") if isinstance(target, Path) else target
        file.write(b"half a fig")
        file.flush()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Figure, "savefig", broken)
        with pytest.raises(KeyboardInterrupt):
            save(line(), tmp_path, "drawn")
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    save(line(), tmp_path, "drawn")
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("")
    with pytest.raises(NoisemarketError, match=r"figures cannot be written: File exists\."):
        save(line(), tmp_path / "figures", "drawn")
