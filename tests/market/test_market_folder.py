"""The key of the noise stays with whoever runs the owners."""

import stat
import sys
from pathlib import Path

import pytest

from noisemarket.errors import BadInput
from noisemarket.market.run_folder import NOISE_KEY, MarketFolder

pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX"),
]


@pytest.fixture
def folder(tmp_path: Path) -> MarketFolder:
    made = MarketFolder(tmp_path)
    made.prepare()
    return made


def test_the_key_is_private_and_stays_the_same(folder: MarketFolder) -> None:
    key = folder.noise_key()
    assert folder.noise_key() == key
    assert stat.S_IMODE((folder.owners / NOISE_KEY).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_key_that_others_may_read_is_refused(folder: MarketFolder, mode: int) -> None:
    folder.noise_key()
    (folder.owners / NOISE_KEY).chmod(mode)
    with pytest.raises(BadInput, match=r"noise key is .*others may read it: .*chmod 600"):
        folder.noise_key()


@pytest.mark.parametrize("before", [True, False])
def test_a_folder_that_others_may_enter_is_refused(folder: MarketFolder, before: bool) -> None:
    if not before:
        folder.noise_key()
    folder.owners.chmod(0o755)
    with pytest.raises(BadInput, match=r"noise key is .*others may read it: .*chmod 700"):
        folder.noise_key()
    assert (folder.owners / NOISE_KEY).exists() == (not before)


def test_no_link_to_a_key_is_followed(folder: MarketFolder, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(bytes(32))
    (folder.owners / NOISE_KEY).symlink_to(tmp_path / "mine")
    with pytest.raises(BadInput, match="cannot be read"):
        folder.noise_key()
