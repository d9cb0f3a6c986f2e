from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.market.common import write_images


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("mnist"))


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    import torch  # slow to import, and the quick tests do without

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
