"""Owners' own records: tables, their description, what cannot be read, and who holds what."""

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from noisemarket.errors import BadInput, MissingExtra
from noisemarket.federated.columns import Description, TableFeatures
from noisemarket.federated.data_files import load_data, named_records
from noisemarket.federated.describe import describe
from noisemarket.federated.owner_tables import check_tables
from noisemarket.federated.partition import own_partition
from noisemarket.federated.table_files import read_table

pytest.importorskip("pyarrow")  # the extra "tables"

DESCRIPTION = """\
[label]
column = "outcome"
classes = ["died", "recovered"]

[columns.age]
kind = "number"
low = 0
high = 100
bins = 4

[columns.ward]
kind = "category"
values = ["surgery", "internal"]

[columns.patient]
kind = "ignore"
"""

HEAD = "patient,age,ward,outcome\n"
NORTH = HEAD + "1,30,surgery,died\n2,80,internal,recovered\n"
SOUTH = HEAD + "3,99,internal,died\n4,1,surgery,recovered\n5,50,internal,died\n"
TEST = HEAD + "6,20,internal,recovered\n7,70,surgery,died\n"


def described(text: str = DESCRIPTION) -> Description:
    return Description.parse(text)


def written(folder: Path, **files: str | bytes) -> Path:
    """A folder with these files, named without their ending, and a description."""
    folder.mkdir(exist_ok=True)
    given = {"columns": DESCRIPTION, "north": NORTH, "south": SOUTH, "test": TEST} | files
    for name, text in given.items():
        path = folder / (f"{name}.toml" if name == "columns" else f"{name}.csv")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def refused(folder: Path, **files: str | bytes) -> str:
    with pytest.raises(BadInput) as problem:
        load_data(str(written(folder, **files)))
    said = str(problem.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said.replace(str(folder), "FOLDER")


# What a record becomes


def test_features_are_centred_indicators_of_length_1(tmp_path: Path) -> None:
    data = load_data(str(written(tmp_path / "data")))
    assert data.features is not None
    assert data.features.dimension == 6
    record = data.train_inputs()[0]  # age 30 of 0 to 100 in four bins; surgery
    plain = np.array([-0.25, 0.75, -0.25, -0.25, 0.5, -0.5])
    np.testing.assert_allclose(record, plain / np.linalg.norm(plain), rtol=1e-6)


def test_record_has_the_same_bits_alone_and_in_any_batch() -> None:
    text = DESCRIPTION.replace("bins = 4", 'bins = "linear"')
    features = TableFeatures(described(text))
    rng = np.random.default_rng(1)
    records = np.column_stack([rng.uniform(-1, 1, 1300), rng.integers(0, 3, 1300)])
    records = records.astype(np.float32)
    whole = features.extract(records)
    for at in (0, 511, 512, 1299):
        np.testing.assert_array_equal(whole[at], features.extract(records[at : at + 1])[0])


def test_linear_number_runs_from_minus_1_to_1(tmp_path: Path) -> None:
    text = DESCRIPTION.replace("bins = 4", 'bins = "linear"')
    table = read_table(written(tmp_path) / "south.csv", described(text))
    np.testing.assert_allclose(table.records[:, 0], [0.98, -0.98, 0.0], atol=1e-6)


def test_values_outside_are_clipped_or_count_as_other(tmp_path: Path) -> None:
    odd = HEAD + "1,-5,surgery,died\n2,200,attic,recovered\n3,,,died\n4,100,internal,died\n"
    folder = written(tmp_path / "data", north=odd)
    (north,) = (one for one in check_tables(folder)[0] if one.owner == "north")
    assert north.outside == {"age": 2, "ward": 1}
    assert north.missing == {"age": 1, "ward": 1}
    inputs = load_data(str(folder)).train_inputs()
    assert inputs[0, 0] > 0  # below the range: the first bin
    assert inputs[1, 3] > 0  # above it: the last
    assert not inputs[1, 4:].any()  # "other" is not listed: nothing is said
    assert not inputs[2].any()
    listed = DESCRIPTION.replace('"internal"]', '"internal", "other"]')
    inputs = load_data(str(written(folder, north=odd, columns=listed))).train_inputs()
    assert inputs[1, 6] > 0


def test_bins_may_be_borders(tmp_path: Path) -> None:
    text = DESCRIPTION.replace("bins = 4", "bins = [18, 65]")
    table = read_table(written(tmp_path) / "south.csv", described(text))
    assert table.records[:, 0].tolist() == [2, 0, 1]


def test_description_is_named_by_what_it_says_not_how_it_is_written() -> None:
    spaced = DESCRIPTION.replace("\n\n", "\n\n# a remark\n")
    assert described().sha256 == described(spaced).sha256
    assert described().sha256 != described(DESCRIPTION.replace("bins = 4", "bins = 5")).sha256
    assert Description.parse(described().text).text == described().text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "number"', 'kind = "figure"', "cannot be used at columns age: give kind ="),
        ("low = 0\n", "", "lacks columns age low: add it."),
        ("high = 100", "high = -1", "columns age: give a low below high."),
        ("bins = 4", "bins = [5, 5]", "columns age bins: list the borders in rising order."),
        ("bins = 4", "bins = 4\nwidth = 3", "has columns age width, which nothing reads"),
        ('"internal"]', '"surgery"]', '"surgery" is listed twice.'),
        ('column = "outcome"', 'column = "age"', '"age" is the label or the owner'),
        ("[label]", "[label", "not valid TOML"),
    ],
)
def test_bad_description_is_one_sentence(old: str, new: str, words: str) -> None:
    assert old in DESCRIPTION
    with pytest.raises(BadInput) as problem:
        described(DESCRIPTION.replace(old, new, 1))
    assert words in str(problem.value)


# Whose records


def test_owners_are_the_files_and_keep_their_own_records(tmp_path: Path) -> None:
    data = load_data(str(written(tmp_path / "data")))
    assert data.owners == ("north", "south")
    assert data.records_of == {"north": 2, "south": 3}
    assert data.train_labels.tolist() == [0, 1, 0, 1, 0]
    assert data.holders is not None
    assert data.holders.tolist() == [0, 0, 1, 1, 1]
    part = own_partition(data.holders, [1, 0])
    assert [own.tolist() for own in part.indices] == [[2, 3, 4], [0, 1]]
    assert data.test_labels.tolist() == [1, 0]


def test_moving_a_record_to_another_owner_changes_the_digest(tmp_path: Path) -> None:
    before = load_data(str(written(tmp_path / "data"))).sha256
    rows = SOUTH.splitlines(keepends=True)
    moved = written(tmp_path / "data", north=NORTH + rows[1], south=HEAD + "".join(rows[2:]))
    assert load_data(str(moved)).sha256 != before


def test_one_file_names_owners_in_a_column(tmp_path: Path) -> None:
    described = 'owner_column = "clinic"\n' + DESCRIPTION
    head = "clinic," + HEAD
    rows = [
        f"{'west' if number % 3 else 'east'},{number},{number},surgery,died\n"
        for number in range(12)
    ]
    rows[0] = "east,0,0,surgery,recovered\n"
    (tmp_path / "columns.toml").write_text(described)
    (tmp_path / "all.csv").write_text(head + "".join(rows))
    data = load_data(str(tmp_path / "all.csv"))
    assert data.records_of == {"east": 4, "west": 7}  # of the 8 in the west the fifth is held back
    assert len(data.test_labels) == 1
    (tmp_path / "test.csv").write_text(TEST)
    data = load_data(str(tmp_path / "all.csv"))
    assert data.records_of == {"east": 4, "west": 8}
    assert len(data.test_labels) == 2
    found = {one.owner: one.records for one in check_tables(tmp_path / "all.csv")[0]}
    assert found == {"east": 4, "west": 8, "test.csv": 2}


def test_owner_column_must_be_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "data")
    with pytest.raises(BadInput, match="must name its owner_column"):
        load_data(str(folder / "north.csv"))
    with pytest.raises(BadInput, match="printable characters"):
        load_data(str(written(folder, **{" ": NORTH})))


def test_folder_of_one_file_of_all_owners_is_not_one_owner(tmp_path: Path) -> None:
    folder = written(tmp_path / "data", columns=f'owner_column = "clinic"\n{DESCRIPTION}')
    for act in (load_data, check_tables):
        with pytest.raises(BadInput, match=r"owner_column clinic: name the one file instead"):
            act(str(folder) if act is load_data else folder)  # type: ignore[operator]


def test_parquet_has_the_same_bits_as_csv(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    first = load_data(str(written(tmp_path / "data")))
    table = csv.read_csv(io.BytesIO(SOUTH.encode()))
    table = table.set_column(1, "age", table["age"].cast(arrow.float32()))
    parquet.write_table(table, tmp_path / "data" / "south.parquet")
    (tmp_path / "data" / "south.csv").unlink()
    second = load_data(str(tmp_path / "data"))
    assert second.sha256 == first.sha256
    bad = table.set_column(3, "outcome", arrow.array(["died", "died", "lost"]))
    parquet.write_table(bad, tmp_path / "data" / "south.parquet")
    with pytest.raises(BadInput, match=r"outcome in row 3 of .*south.parquet is lost"):
        load_data(str(tmp_path / "data"))


def test_changed_file_is_read_anew(tmp_path: Path) -> None:
    folder = written(tmp_path / "data")
    assert load_data(str(folder)) is load_data(str(folder))
    assert load_data(str(written(folder, north=NORTH + "9,9,surgery,died\n"))).records_of == {
        "north": 3, "south": 3,
    }  # fmt: skip


def test_owners_of_arrays_are_named_in_owners_npy(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name, count in (("train", 6), ("test", 2)):
        np.save(tmp_path / f"{name}-features.npy", rng.random((count, 3), np.float32))
        np.save(tmp_path / f"{name}-labels.npy", np.arange(count) % 2)
    assert load_data(str(tmp_path)).owners == ()
    assert named_records(str(tmp_path)) == {}
    (tmp_path / "people.csv").write_text("owner,privacy_cost\n")  # no records
    assert load_data(str(tmp_path)).owners == ()
    np.save(tmp_path / "owners.npy", np.array(["b", "a", "b", "b", "a", "b"]))
    assert named_records(str(tmp_path)) == {"a": 2, "b": 4}
    np.save(tmp_path / "owners.npy", np.array(["b", "a"]))
    with pytest.raises(BadInput, match="for each of the 6 training records"):
        load_data(str(tmp_path))


# What cannot be read


def test_missing_columns_are_all_named(tmp_path: Path) -> None:
    said = refused(tmp_path / "data", north="patient,outcome\n1,died\n")
    assert "FOLDER/north.csv lacks age, ward in line 1" in said


def test_label_outside_the_classes_has_its_line(tmp_path: Path) -> None:
    said = refused(tmp_path / "data", north=NORTH + "3,4,surgery,lost\n")
    assert said == "outcome in line 4 of FOLDER/north.csv is lost: give one of: died, recovered."


def test_line_is_counted_over_line_breaks_in_fields(tmp_path: Path) -> None:
    broken = HEAD + '1,30,"surgery\nor so",died\n2,8,"a ""b"", c",died\n3,4,surgery,\n'
    said = refused(tmp_path / "data", north=broken)
    assert "outcome in line 5 of FOLDER/north.csv is nothing" in said


def test_quotes_and_line_breaks_in_fields_are_read(tmp_path: Path) -> None:
    text = HEAD + '1,30,"surgery",died\n2,8,"a ""b"",\nc",recovered\n'
    table = read_table(written(tmp_path, north=text) / "north.csv", described())
    assert table.records[:, 1].tolist() == [0, 2]


@pytest.mark.parametrize("content", ["", HEAD, HEAD.rstrip("\n"), HEAD + "\n\n"])
def test_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    said = refused(tmp_path / "data", north=content)
    assert "FOLDER/north.csv" in said
    assert "is empty" in said or "has no record" in said
    assert "parse" not in said, "no words of the reader"


def test_two_files_of_one_owner_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "data")
    (folder / "North.csv").write_text(NORTH)
    with pytest.raises(BadInput, match=r"two files of one owner, North.csv and north.csv"):
        load_data(str(folder))


def test_byte_that_is_not_utf_8_has_its_line(tmp_path: Path) -> None:
    said = refused(tmp_path / "data", north=NORTH.encode() + b"3,4,caf\xe9,died\n")
    assert said == "data FOLDER/north.csv has the byte 0xe9 in line 4: save it as UTF-8."


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    plain = load_data(str(written(tmp_path / "data"))).sha256
    marked = written(tmp_path / "data", north=b"\xef\xbb\xbf" + NORTH.encode())
    assert load_data(str(marked)).sha256 == plain


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_are_named(tmp_path: Path, mark: str, word: str) -> None:
    said = refused(tmp_path / "data", north=NORTH.replace(",", mark))
    assert f"has {word} between its columns in line 1: separate them with commas." in said


@pytest.mark.parametrize("number", ['"1.234,5"', "abc", "1_0", "0x10", "١٢"])
def test_text_that_is_no_number_has_its_line(tmp_path: Path, number: str) -> None:
    said = refused(tmp_path / "data", north=NORTH + f"3,{number},surgery,died\n")
    shown = number.strip('"')
    assert said.startswith(f"age in line 4 of FOLDER/north.csv is {shown}: give a number")


def test_what_was_read_as_a_number_is_not_blamed_for_another_fault(tmp_path: Path) -> None:
    for number in ("+5", "-nan", "1E+2", "-inf", "9" * 400):
        odd = HEAD + f"3,{number},{'x' * 200_000},died\n4,1,surgery,lost\n"
        said = refused(tmp_path / "data", north=odd)
        assert said.startswith("outcome in line 3 of FOLDER/north.csv is lost"), number


def test_row_of_another_length_has_its_line(tmp_path: Path) -> None:
    said = refused(tmp_path / "data", north=NORTH + "3,1,5,surgery,died\n")
    assert "has 5 values in line 4, where line 1 has 4 columns" in said
    said = refused(tmp_path / "data", north=NORTH + "3,1\n")
    assert "has 2 values in line 4" in said
    assert "quotation" not in said
    said = refused(tmp_path / "data", north=NORTH + '3,1,"surgery,died\n4,1,surgery,died\n')
    assert "in line 4" in said
    assert "close them" in said


def test_test_records_that_owners_have_are_remarked(tmp_path: Path) -> None:
    assert load_data(str(written(tmp_path / "data"))).remarks == ()
    (said,) = load_data(
        str(written(tmp_path / "data", test=TEST + '\n7,1,"a\nb",died\n9,80,internal,recovered\n'))
    ).remarks
    assert said.startswith(
        "1 of 4 records in test.csv equal records of owners, the first in line 7"
    )


def test_records_that_are_often_equal_are_no_overlap(tmp_path: Path) -> None:
    same = HEAD + "1,30,surgery,died\n" * 5 + "2,80,internal,recovered\n" * 5
    folder = written(tmp_path / "data", north=same, south=same, test=same)
    assert load_data(str(folder)).remarks == ()
    rng = np.random.default_rng(1)
    ages = rng.integers(0, 100, (3, 60))  # of which one in three is also another's by chance
    north, south, test = (
        HEAD + "".join(f"1,{age},surgery,died\n" for age in some) + "2,1,surgery,recovered\n"
        for some in ages
    )
    folder = written(tmp_path / "data", north=north, south=south, test=test)
    assert load_data(str(folder)).remarks == ()
    folder = written(tmp_path / "data", north=north, south=south, test=north)
    assert load_data(str(folder)).remarks


def test_what_is_no_file_of_records_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "data")
    for name in ("pipe.csv", "pipe.parquet"):
        os.mkfifo(folder / name)
        with pytest.raises(BadInput, match="is not a regular file"):
            load_data(str(folder))
        with pytest.raises(BadInput, match="is not a regular file"):
            describe(folder / name)
        (folder / name).unlink()
    (folder / "more.csv").mkdir()
    with pytest.raises(BadInput, match="Is a directory"):
        load_data(str(folder))
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "columns.toml").write_text(DESCRIPTION)
    with pytest.raises(BadInput, match="holds no CSV or Parquet file"):
        check_tables(tmp_path / "none")


def test_parquet_file_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = written(tmp_path / "data") / "east.parquet"
    table = {"ward": ["surgery"] * 9, "outcome": ["died"] * 8 + ["recovered"]}
    parquet.write_table(arrow.table({"age": [[1]] * 9} | table), path)
    for odd in (lambda: describe(path), lambda: load_data(str(path.parent))):
        with pytest.raises(BadInput, match="is list"):
            odd()
    parquet.write_table(arrow.table({"age": [float(2**63)] * 9} | table), path)
    assert load_data(str(path.parent)).records_of["east"] == 9
    whole = path.read_bytes()
    for content in (b"junk", whole[:8] + bytes(200) + whole[208:]):
        path.write_bytes(content)
        for odd in (lambda: describe(path), lambda: load_data(str(path.parent))):
            with pytest.raises(BadInput, match="not a whole Parquet file"):
                odd()


def test_lacking_files_are_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "data")
    (folder / "test.csv").unlink()
    with pytest.raises(BadInput, match=r"does not hold test\.csv"):
        load_data(str(folder))
    (folder / "columns.toml").unlink()
    with pytest.raises(BadInput, match=r"does not hold columns\.toml"):
        load_data(str(folder))


def test_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "data")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"noisemarket\[tables\]"):
        load_data(str(folder))


def test_check_names_every_owner_whatever_is_wrong_with_one(tmp_path: Path) -> None:
    folder = written(tmp_path / "data", north=NORTH + "3,4,surgery,lost\n")
    found = {one.owner: one for one in check_tables(folder)[0]}
    assert list(found) == ["north", "south", "test.csv"]
    assert "line 4" in found["north"].problem
    assert found["south"].labels == {"died": 2, "recovered": 1}


def test_an_owner_checks_its_own_file_at_home(tmp_path: Path) -> None:
    folder = written(tmp_path / "data")
    (folder / "south.csv").unlink()
    (folder / "test.csv").unlink()
    found, remarks = check_tables(folder)
    assert [one.owner for one in found] == ["north"]
    assert "an owner at home needs none" in remarks[0]


def test_check_remarks_test_records_that_owners_have(tmp_path: Path) -> None:
    _, remarks = check_tables(written(tmp_path / "data", test=TEST + "9,80,internal,recovered\n"))
    assert len(remarks) == 1


# Drafts


def test_draft_describes_its_own_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        f"{number},{rng.normal(50, 9):.2f},{rng.lognormal(0, 2):.3f},"
        f"{rng.choice(['a', 'b', 'c'])},{rng.choice(['0', '1'])},{rng.choice(['yes', 'no'])}\n"
        for number in range(300)
    ]
    rows.append("300,50,1,seldom,0,yes\n")
    path = tmp_path / "test.csv"
    path.write_text("id,normal,skewed,letter,flag,answer\n" + "".join(rows))
    text = describe(path)
    found = Description.parse(text)
    assert found.label.column == "answer"
    assert found.label.classes == ("no", "yes")
    assert list(found.used) == ["normal", "skewed", "letter", "flag"]
    assert "an identifier?" in text
    assert getattr(found.used["normal"], "bins", None) == 7
    assert isinstance(getattr(found.used["skewed"], "bins", None), tuple)
    assert getattr(found.used["letter"], "values", None) == ("a", "b", "c", "other")
    assert getattr(found.used["flag"], "values", None) == ("0", "1")
    table = read_table(path, found)
    assert not (table.odd[:-1] > 0).any()
    with pytest.raises(BadInput, match="is no column of"):
        describe(path, "outcome")
    with pytest.raises(BadInput, match="has 301 different values"):
        describe(path, "id")


def test_draft_counts_a_text_with_and_without_spaces_as_one(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    path.write_text("x,y\n" + "u,1\n" * 3 + " u ,0\n" + "v,1\n" * 3)
    assert 'values = ["u", "v"]' in describe(path)


@pytest.mark.slow
def test_column_of_a_million_texts_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    with path.open("w") as file:
        file.write("name,x,y\n")
        file.writelines(f"n{number:x},{number % 50},{number % 2}\n" for number in range(1_000_000))
    text = describe(path)
    assert "# 1,000,000 different values" in text
    assert list(Description.parse(text).used) == ["x"]


def test_intercept_is_one_more_feature_of_its_length() -> None:
    text = '[label]\ncolumn = "y"\nclasses = ["a", "b"]\n'
    text += '[columns.x]\nkind = "category"\nvalues = ["u", "v"]\nshares = [0.75, 0.25]\n'
    without = Description.parse(text)
    description = Description.parse(f"intercept = 0.6\n{text}")
    assert (without.dimension, description.dimension) == (2, 3)
    assert "intercept" not in without.text
    assert Description.parse(description.text) == description
    codes = np.array([[0], [1], [2]], np.float32)  # the last says nothing
    plain, found = (TableFeatures(one).extract(codes) for one in (without, description))
    np.testing.assert_allclose(found[:, :2], 0.8 * plain, atol=1e-7)
    np.testing.assert_allclose(found[:, 2], 0.6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1.0, 1.0, 0.6], atol=1e-6)
    with pytest.raises(BadInput, match="intercept"):
        Description.parse(f"intercept = 1.0\n{text}")


# FARS


def test_fars_has_51_owners_with_their_own_records() -> None:
    data = load_data("fars")
    sizes = data.records_of
    assert len(sizes) == 51
    assert (sizes["District of Columbia"], sizes["California"]) == (149, 7990)
    assert min(sizes.values()) == 149
    assert max(sizes.values()) == 7990
    assert (len(data.train_labels), len(data.test_labels)) == (79_829, 19_930)
    assert data.classes == 5
    most = np.bincount(data.test_labels).max() / len(data.test_labels)
    assert round(100 * most, 1) == 42.2
    assert isinstance(data.features, TableFeatures)
    used = data.features.description.used
    assert len(used) == 26
    assert not {"CASE_STATE", "RACE", "HISPANIC_ORIGIN"} & set(used)
    np.testing.assert_allclose(np.linalg.norm(data.test_inputs, axis=1), 1.0, atol=1e-5)
