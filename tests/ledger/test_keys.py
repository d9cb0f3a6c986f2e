"""Keys that stay in their folder, and signatures that hold for one contract and one role."""

import os
import pickle
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ledger.common import changed, contract, key, sign

from noisemarket.errors import BadInput, BadSignature
from noisemarket.ledger.keys import CURATOR, KEY_FILE, OWNER, KeyPair, SignedContract, holds

posix = pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")


def test_a_key_comes_back_from_its_folder(tmp_path: Path) -> None:
    made = KeyPair.create(tmp_path / "owners" / "north")
    loaded = KeyPair.load(tmp_path / "owners" / "north")
    assert loaded.public_hex == made.public_hex
    one = contract(owner_key=made.public_hex)
    assert loaded.sign(OWNER, one) == made.sign(OWNER, one)
    assert KeyPair.obtain(tmp_path / "owners" / "north").public_hex == made.public_hex
    assert KeyPair.obtain(tmp_path / "other").public_hex != made.public_hex


@posix
def test_only_the_owner_may_read_the_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        KeyPair.create(tmp_path / "north")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "north").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "north" / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "north").iterdir()] == [KEY_FILE]


def test_what_a_killed_process_left_beside_its_key_is_removed(tmp_path: Path) -> None:
    """Killed after the key had its name, and before the file that it was written to was gone."""
    made = KeyPair.create(tmp_path / "north")
    key = tmp_path / "north" / KEY_FILE
    os.link(key, key.with_name(f".{KEY_FILE}.{'0' * 16}.new"))
    assert KeyPair.obtain(tmp_path / "north").public_hex == made.public_hex
    assert [path.name for path in (tmp_path / "north").iterdir()] == [KEY_FILE]


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_key_that_others_could_read_is_refused(tmp_path: Path, mode: int) -> None:
    KeyPair.create(tmp_path / "north")
    (tmp_path / "north" / KEY_FILE).chmod(mode)
    with pytest.raises(BadInput, match="others may read"):
        KeyPair.load(tmp_path / "north")


@posix
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    KeyPair.create(tmp_path / "north")
    (tmp_path / "north").chmod(0o755)
    with pytest.raises(BadInput, match="others may read"):
        KeyPair.load(tmp_path / "north")
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(BadInput, match="others may read"):
        KeyPair.create(tmp_path / "open")
    assert list((tmp_path / "open").iterdir()) == []


@posix
def test_a_link_to_a_key_is_refused(tmp_path: Path) -> None:
    KeyPair.create(tmp_path / "north")
    (tmp_path / "south").mkdir(mode=0o700)
    (tmp_path / "south" / KEY_FILE).symlink_to(tmp_path / "north" / KEY_FILE)
    with pytest.raises(BadInput, match="cannot be read"):
        KeyPair.load(tmp_path / "south")


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    made = KeyPair.create(tmp_path / "north")
    with pytest.raises(BadInput, match="exists already"):
        KeyPair.create(tmp_path / "north")
    assert KeyPair.load(tmp_path / "north").public_hex == made.public_hex
    assert [path.name for path in (tmp_path / "north").iterdir()] == [KEY_FILE]


@pytest.mark.parametrize("text", [b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\nxx\n"])
def test_a_file_that_is_no_key(tmp_path: Path, text: bytes) -> None:
    KeyPair.create(tmp_path / "north")
    (tmp_path / "north" / KEY_FILE).write_bytes(text)
    with pytest.raises(BadInput, match="not an Ed25519 key"):
        KeyPair.load(tmp_path / "north")


def test_no_key_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        KeyPair.load(tmp_path / "nobody")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        KeyPair.create(tmp_path / "file" / "inside")


def test_a_private_key_is_neither_printed_nor_pickled() -> None:
    pair = key("north")
    secret = pair._private.private_bytes_raw().hex()
    assert secret not in repr(pair) + str(vars(pair))
    with pytest.raises(TypeError):
        pickle.dumps(pair)


def test_both_signatures_hold() -> None:
    one = contract()
    sign(one).verify(one.owner_key, one.curator_key)


def test_a_wrong_key_is_found() -> None:
    one = sign(contract())
    owner, curator, other = (key(name).public_hex for name in ("north", "curator", "mallory"))
    for expected in ((other, curator), (owner, other), (curator, owner)):
        with pytest.raises(BadSignature, match="another key"):
            one.verify(*expected)
    with pytest.raises(BadSignature, match="not the owner's"):
        key("mallory").sign(OWNER, contract())
    with pytest.raises(BadInput, match="role"):
        key("north").sign("notary", contract())


def test_a_signature_is_good_for_one_contract_and_one_role() -> None:
    """Not even where one party holds both keys."""
    one = contract(owner_key=key("curator").public_hex)
    as_owner = key("curator").sign(OWNER, one)
    assert holds(OWNER, one, as_owner)
    assert not holds(CURATOR, one, as_owner)
    assert not holds(OWNER, changed(one, nonce="1"), as_owner)
    assert not holds(OWNER, changed(one, payment=one.payment + 1), as_owner)


@given(st.integers(0, 127), st.sampled_from("0123456789abcdef"))
def test_any_changed_digit_breaks_a_signature(place: int, digit: str) -> None:
    one = contract()
    good = key("north").sign(OWNER, one)
    changed = good[:place] + digit + good[place + 1 :]
    assert holds(OWNER, one, changed) == (changed == good)


@pytest.mark.parametrize("signature", ["", "00", "zz" * 64, "é" * 128, None, 5])
def test_what_is_no_signature(signature: str) -> None:
    one = contract()
    assert not holds(OWNER, one, signature)
    with pytest.raises(BadSignature, match="not signed by its owner"):
        SignedContract(one, signature, sign(one).curator_signature).verify(
            one.owner_key, one.curator_key
        )
