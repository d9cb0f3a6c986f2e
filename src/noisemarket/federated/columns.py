"""The public description of a record: which columns it has, and how they become features.

A description is a ``columns.toml``, agreed with the contract::

    [label]
    column = "outcome"
    classes = ["died", "recovered"]

    [columns.age]
    kind = "number"
    low = 0
    high = 100
    bins = 10

    [columns.ward]
    kind = "category"
    values = ["surgery", "internal medicine", "other"]

    [columns.patient]
    kind = "ignore"

A record becomes features by a fixed function of itself alone, which costs no privacy. A column of k
values or bins gives k indicators, each less its public share: those in ``shares``, else 1/k. A
linear number gives one value from -1 to 1. The whole is scaled to length 1. With ``intercept``, a
length below 1, one more feature is the same in all records: give it where ``shares`` leave the
mean of each feature near zero. A number outside of its range is clipped to it. A text that is not
listed counts as "other"; if "other" is not listed either, or a number is missing, the column says
nothing about this record and gives zeros.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import tomli_w
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from noisemarket.errors import BadInput
from noisemarket.federated.features import TINY, Floats
from noisemarket.files import read_text, toml_in
from noisemarket.machine import available_cores

COLUMNS = "columns.toml"
OTHER = "other"
MOST_VALUES = 10_000
"""Values of a column, and features of a record."""

_CHUNK = 512  # records worked on at a time, to stay in the processor's cache


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def _text(value: object) -> object:
    """Numbers and truth values as a CSV file has them."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    value, times = Counter(values).most_common(1)[0]
    if times > 1:
        raise ValueError(f'"{value}" is listed twice')
    return values


def _bare(text: str) -> str:
    if text != text.strip():
        raise ValueError("leave out spaces before and after a text")
    return text


def _rising(bins: int | tuple[float, ...]) -> int | tuple[float, ...]:
    if isinstance(bins, tuple) and any(b <= a for a, b in pairwise(bins)):
        raise ValueError("list the borders in rising order")
    return bins


Word = Annotated[str, BeforeValidator(_text), AfterValidator(_bare)]
Words = Annotated[
    tuple[Word, ...], Field(min_length=2, max_length=MOST_VALUES), AfterValidator(_distinct)
]
Count = Annotated[int, Field(ge=2, le=MOST_VALUES)]
Shares = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(max_length=MOST_VALUES)]
Borders = Annotated[tuple[float, ...], Field(min_length=1, max_length=MOST_VALUES - 1)]


class _Indicators(_Part):
    """A column of which some indicator is 1."""

    shares: Shares | None = None

    @property
    def width(self) -> int:
        raise NotImplementedError

    @model_validator(mode="after")
    def _one_share_each(self) -> Self:
        if self.shares is not None and len(self.shares) != self.width:
            raise ValueError(f"give {self.width} shares, one for each value or bin, or none")
        return self

    @cached_property
    def centre(self) -> NDArray[np.float64]:
        """What each indicator is less by."""
        return (
            np.full(self.width, 1.0 / self.width) if self.shares is None else np.array(self.shares)
        )

    @cached_property
    def squares(self) -> NDArray[np.float64]:
        """The squared length of the column's features by its code; 0 where it says nothing."""
        whole = float((self.centre**2).sum())
        return np.append(whole + 1.0 - 2.0 * self.centre, 0.0)


class Number(_Indicators):
    """A number from ``low`` to ``high``: so many bins of equal width, bins between the given
    borders, or one linear feature."""

    kind: Literal["number"]
    low: float
    high: float
    bins: Annotated[Count | Borders | Literal["linear"], AfterValidator(_rising)] = 10

    @model_validator(mode="after")
    def _in_order(self) -> Number:
        if not self.low < self.high or math.isinf(self.high - self.low):
            raise ValueError("give a low below high")
        return self

    @property
    def width(self) -> int:
        if self.bins == "linear":
            return 0
        return self.bins if isinstance(self.bins, int) else len(self.bins) + 1

    @cached_property
    def _borders(self) -> NDArray[np.float64]:
        if isinstance(self.bins, int):
            return np.linspace(self.low, self.high, self.bins + 1)[1:-1]
        return np.array(self.bins, dtype=float)

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The bin of each value, or a linear value from -1 to 1; ``width``, or 0, if missing."""
        if self.bins == "linear":
            half = (self.high - self.low) / 2.0
            return np.nan_to_num((np.clip(values, self.low, self.high) - self.low) / half - 1.0)
        found = np.searchsorted(self._borders, values, side="right").astype(float)
        found[np.isnan(values)] = self.width
        return found


class Category(_Indicators):
    """One of the listed texts. Others count as "other", whether it is listed or not."""

    kind: Literal["category"]
    values: Words

    @property
    def width(self) -> int:
        return len(self.values)

    @cached_property
    def codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values)}

    @property
    def other(self) -> int:
        """The code of a text that is not listed."""
        return self.codes.get(OTHER, self.width)


class Ignored(_Part):
    """A column that is no part of a record."""

    kind: Literal["ignore"]


class Label(_Part):
    """The column that is to be predicted."""

    column: str
    classes: Annotated[Words, Field(max_length=1000)]

    @cached_property
    def codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.classes)}


class Description(_Part):
    """What one record is: its label and its columns; ``owner_column`` names the owner where one
    file has the records of all."""

    owner_column: str = ""
    intercept: Annotated[float, Field(ge=0, lt=1)] = 0.0
    label: Label
    columns: dict[str, Annotated[Number | Category | Ignored, Field(discriminator="kind")]]

    @model_validator(mode="after")
    def _fits(self) -> Description:
        for special in (self.label.column, self.owner_column):
            if special in self.columns and self.columns[special].kind != "ignore":
                raise ValueError(f'"{special}" is the label or the owner: drop its own table')
        if not self.used:
            raise ValueError("describe at least one column as a number or a category")
        if self.dimension > MOST_VALUES:
            raise ValueError(f"that is {self.dimension:,} features of at most {MOST_VALUES:,}")
        return self

    @cached_property
    def used(self) -> dict[str, Number | Category]:
        """The columns that become features, in the order of the description."""
        return {n: c for n, c in self.columns.items() if not isinstance(c, Ignored)}

    @cached_property
    def dimension(self) -> int:
        return sum(max(1, column.width) for column in self.used.values()) + (self.intercept > 0)

    @cached_property
    def text(self) -> str:
        """The description in its one canonical form, without comments and ignored columns."""
        used = {
            name: column.model_dump(mode="json", exclude_none=True)
            for name, column in self.used.items()
        }
        constant = {"intercept": self.intercept} if self.intercept else {}
        label = self.label.model_dump(mode="json")
        return tomli_w.dumps({**constant, "label": label, "columns": used})

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def parse(cls, text: str, file: str | Path = COLUMNS) -> Description:
        """The description that a TOML text gives, checked."""
        try:
            return cls.model_validate(toml_in("data", file, text))
        except ValidationError as problem:
            raise _sentence(problem, file) from None

    @classmethod
    def read(cls, file: Path) -> Description:
        return cls.parse(read_text("data", file), file)


@dataclass(frozen=True)
class TableFeatures:
    """Features of encoded records: of each column the code of its value, or a linear number."""

    description: Description

    @property
    def label(self) -> str:
        return f"table v1 {self.description.sha256}"

    @property
    def dimension(self) -> int:
        return self.description.dimension

    def check(self, records: NDArray[Any]) -> None:
        if records.ndim != 2 or records.shape[1] != len(self.description.used):
            shape = " x ".join(map(str, records.shape[1:]))
            remedy = f"give {len(self.description.used)} values, one for each column."
            raise BadInput("data", f"items of {shape}", remedy)

    def extract(self, records: NDArray[Any]) -> Floats:
        """Each record has the same bits alone and in any batch."""
        self.check(records)
        features = np.empty((len(records), self.dimension), np.float32)
        columns, constant = list(self.description.used.values()), self.description.intercept
        if constant:
            features[:, -1] = constant
        length = math.sqrt(1.0 - constant**2)

        def work(first: int) -> None:
            part = records[first : first + _CHUNK]
            squares = np.zeros(len(part))
            for values, column in zip(part.T, columns, strict=True):
                width = column.width
                squares += column.squares[values.astype(np.int64)] if width else values * values
            scale = length / np.maximum(np.sqrt(squares), TINY)
            at, rows = 0, np.arange(len(part))
            for values, column in zip(part.T, columns, strict=True):
                block = features[first : first + _CHUNK, at : at + max(1, column.width)]
                at += block.shape[1]
                if column.width == 0:
                    block[:, 0] = values * scale
                    continue
                said = values < column.width
                block[:] = np.where(said, -scale, 0.0)[:, None] * column.centre
                hot = values[said].astype(np.int64)
                block[rows[said], hot] = scale[said] * (1.0 - column.centre[hot])

        starts = range(0, len(records), _CHUNK)
        with ThreadPoolExecutor(min(available_cores(), max(1, len(starts)))) as pool:
            list(pool.map(work, starts))
        return features


def _sentence(problem: ValidationError, file: str | Path) -> BadInput:
    """The first problem of a description in plain words."""
    first = problem.errors()[0]
    kinds = ("number", "category", "ignore", "constrained-int", "int", "float")
    path = [str(one) for one in first["loc"] if one not in kinds and "[" not in str(one)]
    field, said = " ".join(dict.fromkeys(path)) or "it", first["msg"]
    match first["type"]:
        case "value_error":
            remedy = said.removeprefix("Value error, ")
        case "missing":
            return BadInput("data", str(file), f"lacks {field}: add it.")
        case "extra_forbidden":
            return BadInput("data", str(file), f"has {field}, which nothing reads: drop it.")
        case "union_tag_not_found" | "union_tag_invalid":
            remedy = 'give kind = "number", "category" or "ignore"'
        case _:
            remedy = said.replace("Input should be", "give").replace("Tuple should", "it must")
    return BadInput("data", str(file), f"cannot be used at {field}: {remedy}.")
