"""What an owner sets up before it starts a SuperNode, and how it is checked."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from noisemarket.cli.app import app
from noisemarket.errors import BadInput
from noisemarket.flower.host_files import check_node
from noisemarket.owner.folder import OwnerFolder

KEY = "0" * 64


def words(folder: Path, records: Path, *more: str) -> list[str]:
    given = ["--name", "north", "--privacy-cost", "1.5", "--rho-cap", "20", "--curator-key", KEY]
    return ["owner", "init", str(folder), "--records", str(records), *given, *more]


def test_an_owner_is_set_up_by_one_command(tmp_path: Path) -> None:
    folder, records = tmp_path / "north", tmp_path / "records.npz"
    np.savez(records, images=np.ones((3, 4)), labels=[0, 1, 2])
    done = CliRunner().invoke(app, words(folder, records))
    assert done.exit_code == 0, done.output
    assert f"--node-config {folder / 'node.toml'}" in done.output
    assert tomllib.loads((folder / "node.toml").read_text()) == {
        "owner": "north", "curator-key": KEY, "rho-cap": 20.0, "owner-folder": str(folder),
    }  # fmt: skip
    owner = OwnerFolder("north", folder)
    assert owner.private()["privacy_cost"] == 1.5
    images, labels = owner.records()
    assert (images.dtype, labels.dtype, len(labels)) == (np.float32, np.int64, 3)
    assert (folder / "node-key.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    modes = {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.iterdir()]}
    assert modes.pop("node-key.pub") & 0o022 == 0
    assert modes.pop("north") == 0o700
    assert set(modes.values()) == {0o600}
    checked = CliRunner().invoke(app, ["flower", "check", str(folder / "node.toml")])
    assert checked.output == "north can take part.\n"
    again = CliRunner().invoke(app, words(folder, records))
    assert isinstance(again.exception, BadInput)
    assert "exists already" in str(again.exception)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"images": [[1.0]]}, "is not an .npz file with images and labels"),
        ({"images": [[1.0]], "labels": [1, 2]}, "give one label for each image"),
        (None, "cannot be read"),
    ],
)
def test_records_that_cannot_be_used_are_refused(
    arrays: dict[str, list[float]] | None, problem: str, tmp_path: Path
) -> None:
    records = tmp_path / "records.npz"
    if arrays is not None:
        np.savez(records, **{name: np.array(values) for name, values in arrays.items()})
    done = CliRunner().invoke(app, words(tmp_path / "north", records))
    assert isinstance(done.exception, BadInput)
    assert problem in str(done.exception)
    assert not (tmp_path / "north").exists()


def test_a_config_that_cannot_serve_is_refused(tmp_path: Path) -> None:
    file, folder = tmp_path / "node.toml", tmp_path / "north"
    for text, problem in (
        (None, "node.toml"),
        ("a = [", "is not TOML"),
        ('owner = "north"', "names no owner"),
        (f'owner = "north"\nowner-folder = "{folder}"', "is not there"),
    ):
        if text is not None:
            file.write_text(text)
        with pytest.raises(BadInput, match=problem):
            check_node(file)
    folder.mkdir(mode=0o700)
    with pytest.raises(BadInput, match="no rho-cap"):
        check_node(file)
    file.write_text(f'owner = "north"\nowner-folder = "{folder}"\nrho-cap = 2.0')
    assert check_node(file) == ["north"]
    folder.chmod(0o755)
    with pytest.raises(BadInput, match="chmod 700"):
        check_node(file)


def test_a_table_is_kept_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")  # the extra "tables"
    folder, records = tmp_path / "north", tmp_path / "north.csv"
    records.write_text("age,outcome\n3,died\n4,died\n")
    done = CliRunner().invoke(app, words(folder, records))
    assert done.exit_code == 0, done.output
    assert (folder / "records.csv").read_bytes() == records.read_bytes()
    assert (folder / "records.csv").stat().st_mode & 0o777 == 0o600
    assert OwnerFolder("north", folder).record_count() == 2
    for content in (None, "", "age,outcome\n", "age;outcome\n3;died\n", "age,outcome\n3\n"):
        if content is not None:
            records.write_text(content)
        file = tmp_path / "south.csv" if content is None else records
        done = CliRunner().invoke(app, words(tmp_path / "south", file))
        assert isinstance(done.exception, BadInput), content
        assert not (tmp_path / "south").exists()
