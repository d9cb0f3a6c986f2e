"""Persons in fatal crashes in the USA: the 50 states and the capital own their own records.

``SOURCE.txt`` says where the records come from and what was left out. Of each state's records every
fifth, in the order of the source, is a test record.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from noisemarket.federated.columns import COLUMNS, Description
from noisemarket.federated.data import Dataset
from noisemarket.federated.owner_tables import held_back, named_dataset

HERE = Path(__file__).parent
RECORDS, OWNERS = "records.npz", "owners.txt"


@lru_cache(maxsize=1)
def load_fars() -> Dataset:
    """The records of all states."""
    names = tuple((HERE / OWNERS).read_text(encoding="utf-8").splitlines())
    with np.load(HERE / RECORDS, allow_pickle=False) as kept:
        records, labels = kept["records"].astype(np.float32), kept["labels"].astype(np.int64)
        holders = kept["owners"].astype(np.int64)
    description, test = Description.read(HERE / COLUMNS), held_back(holders)
    own, curators = (records[~test], labels[~test]), (records[test], labels[test])
    return named_dataset(
        description, names, holders[~test], own, curators, name="FARS", source="package"
    )
