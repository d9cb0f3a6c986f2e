"""The document, its one form, its rule of payment, and money."""

import contextlib
import copy
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.ledger.common import changed, contract

from noisemarket.errors import BadInput
from noisemarket.ledger.contract import Contract, canonical, parse
from noisemarket.ledger.entries import Head, _hashed
from noisemarket.ledger.money import MICRO, MOST, checked_amount, format_micro, to_micro
from noisemarket.ledger.receipts import Receipt

PRINTABLE = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
TEXT = st.text(PRINTABLE, min_size=1, max_size=20)
AMOUNT = st.integers(0, MOST)
NUMBER = st.floats(0, allow_nan=False, allow_infinity=False)
MAY_BE_INFINITE = st.floats(0, allow_nan=False)
WHOLE = st.integers(-(2**53) + 1, 2**53 - 1)
SCALAR = st.none() | st.booleans() | WHOLE | TEXT
SCALAR |= st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    return contract(
        owner=draw(TEXT),
        job=draw(TEXT),
        nonce=draw(TEXT),
        protects=draw(TEXT),
        saving=draw(NUMBER),
        sigma=draw(NUMBER),
        payment=draw(AMOUNT),
        rounds=draw(st.integers(1, 1000)),
        rho_per_round=draw(MAY_BE_INFINITE),
        rho_cap=draw(MAY_BE_INFINITE),
        epsilon=draw(MAY_BE_INFINITE),
        delta=draw(st.floats(0, 1, exclude_min=True, exclude_max=True)),
        clip=draw(st.none() | NUMBER),
        shards=draw(st.none() | st.integers(1, 1000)),
        settings=draw(st.dictionaries(TEXT, SCALAR | st.lists(SCALAR, max_size=3), max_size=4)),
        whole_owner=draw(st.booleans()),
    )


@given(contracts())
def test_a_contract_comes_back_from_its_bytes(one: Contract) -> None:
    again = Contract.from_bytes(one.bytes())
    assert again == one
    assert (again.bytes(), again.id, hash(again)) == (one.bytes(), one.id, hash(one))


JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | st.text(st.characters(exclude_categories=["Cs"]))
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_canonical_json_comes_back(document: Any) -> None:
    text = canonical(document)
    assert parse(text) == parse(text.encode()) == document
    assert canonical(parse(text)) == text


@given(st.lists(st.none() | WHOLE | st.text(st.characters(exclude_categories=["Cs"]))))
def test_the_hash_of_an_entry_is_of_canonical_json(fields: list[Any]) -> None:
    assert _hashed(fields) == canonical(fields)


@given(st.dictionaries(TEXT, WHOLE, min_size=2))
def test_the_order_of_keys_does_not_matter(document: dict[str, int]) -> None:
    assert canonical(dict(reversed(list(document.items())))) == canonical(document)


@pytest.mark.parametrize(
    "text",
    ['{"a": 1}', '{"b":1,"a":1}', '{"a":1,"a":1}', "1.0e0", "NaN", "Infinity", "1e999", '"\\u0041"',
     " 1", "", "{", "[" * 100_000, b"\xff"],
)  # fmt: skip
def test_what_is_not_canonical_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse(text)


def test_json_of_any_depth_is_read_or_refused() -> None:
    for depth in range(850, 1000):  # around what Python allows: it writes less deep than it reads
        with contextlib.suppress(ValueError):
            parse("[" * depth + "]" * depth)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse("[" * 100_000 + "]" * 100_000)


def test_canonical_json_has_no_nan() -> None:
    for value in (math.nan, math.inf, {"a": -math.inf}):
        with pytest.raises(ValueError, match="JCS"):
            canonical(value)


def test_whole_numbers_that_a_reader_would_round_are_refused() -> None:
    for value in (2**53, -(2**53)):
        with pytest.raises(ValueError, match="exceeds"):
            canonical([value])
    for text in (str(2**53 + 1), "1" + "0" * 25, "9" * 5000):
        with pytest.raises(ValueError):  # noqa: PT011
            parse(text)
    assert parse("9007199254740992") == 2.0**53  # a float that happens to be whole


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"), (-0.0, "0"), (0.1, "0.1"), (1e-6, "0.000001"), (1e-7, "1e-7"),
        (5e-324, "5e-324"), (1e20, "100000000000000000000"), (1e21, "1e+21"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (333333333.33333329, "333333333.3333333"),
        ("\u20ac$\u000f\nA'B\"\\\"/", '"\u20ac$\\u000f\\nA\'B\\"\\\\\\"/"'),
        ({"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7},
         '{"\\r":2,"1":4,"\u0080":6,"\u00f6":7,"\u20ac":1,"\U0001f600":5,"\ufb33":3}'),
    ],
)  # fmt: skip
def test_the_form_is_that_of_rfc_8785(value: Any, text: str) -> None:
    """The examples of the RFC: numbers of its Appendix B, strings and the order of keys of 3.2."""
    assert canonical(value) == text
    assert parse(text) == value


@pytest.mark.parametrize(
    "change",
    [
        lambda values: {**values, "extra": 1},
        lambda values: {name: value for name, value in values.items() if name != "sigma"},
        lambda values: {**values, "version": 2},
        lambda values: {**values, "epsilon": "inf"},
        lambda values: {**values, "epsilon": True},
        lambda values: {**values, "sigma": None},
        lambda values: {**values, "payment": 1.5},
        lambda values: {**values, "settings": {"deep": {"er": 1}}},
        lambda values: [values],
    ],
)
def test_bytes_that_are_no_contract_are_refused(change: Any) -> None:
    values = json.loads(contract().bytes())
    with pytest.raises(BadInput):
        Contract.from_bytes(canonical(change(values)).encode())


def test_bytes_with_another_form_are_refused() -> None:
    text = contract().bytes().decode()
    for other in (text.replace(":", ": ", 1), text + "\n", text.replace('"0"', '"\\u0030"')):
        with pytest.raises(BadInput):
            Contract.from_bytes(other.encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("payment", -1), ("payment", MOST + 1), ("payment", 2**64), ("payment", 1.0),
        ("payment", True), ("payment", None), ("payment", "1"),
        ("rounds", 0), ("rounds", -1), ("rounds", 1.0), ("rounds", True), ("rounds", 10**7),
        ("sigma", -0.1), ("sigma", math.nan), ("sigma", math.inf), ("sigma", "0.1"),
        ("sigma", 10**400), ("saving", -1e-9), ("rho_per_round", math.nan), ("rho_cap", -1.0),
        ("delta", 0.0), ("delta", 1.0), ("clip", math.inf), ("shards", 0),
        ("false_alarm", -0.1), ("owner", ""), ("owner", "a\nb"),
        ("owner", "\ud800"), ("owner", 3), ("owner", "x" * 1001), ("job", "\x00"),
        ("owner_key", "00"), ("owner_key", "G" * 64), ("curator_key", "A" * 64),
        ("offered_at", "today"), ("offered_at", "2030-01-01"),
        ("offered_at", "2030-01-01T00:00:00+02:00"), ("expires_at", "2029-01-01T00:00:00+00:00"),
        ("expires_at", 5), ("whole_owner", 1), ("simulated", "no"), ("version", 2),
        ("version", True),
        ("settings", {"a": math.nan}), ("settings", {"a": object()}), ("settings", [1]),
        ("settings", {1: 2}), ("settings", {"a": 2**60}), ("settings", {"a": {"b": 1}}),
    ],
)  # fmt: skip
def test_what_no_contract_may_say(field: str, value: Any) -> None:
    with pytest.raises(BadInput):
        contract(**{field: value})


def test_a_contract_cannot_be_changed() -> None:
    one = contract()
    with pytest.raises(ValidationError):
        one.payment = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        one.settings["steps"] = 3  # type: ignore[index]
    given_settings = {"steps": 2}
    kept = contract(settings=given_settings)
    given_settings["steps"] = 99
    assert kept.settings["steps"] == 2


def test_infinite_costs_can_be_said() -> None:
    one = contract(protection="paper", rho_per_round=math.inf, rho_cap=math.inf, epsilon=math.inf)
    assert json.loads(one.bytes())["epsilon"] is None
    assert Contract.from_bytes(one.bytes()).epsilon == math.inf


def test_every_field_is_in_the_id() -> None:
    one = contract()
    assert len({changed(one, **{name: value}).id for name, value in (
        ("job", "x"), ("owner", "x"), ("sigma", 0.25), ("payment", 1), ("rounds", 4),
        ("rho_cap", math.inf), ("settings", {}), ("nonce", "x"),
        ("expires_at", "2030-02-02T00:00:00+00:00"), ("simulated", True), ("clip", None),
    )} | {one.id}) == 12  # fmt: skip


def test_a_contract_goes_through_pickle() -> None:
    assert pickle.loads(pickle.dumps(contract())) == contract()


@given(AMOUNT, st.integers(1, 1000), st.data())
def test_pro_rata_is_rounded_down_and_never_above_the_payment(
    payment: int, rounds: int, data: st.DataObject
) -> None:
    delivered = data.draw(st.integers(0, rounds))
    one = contract(payment=payment, rounds=rounds)
    paid = one.owed(delivered)
    assert Fraction(payment * delivered, rounds) - 1 < paid <= Fraction(payment * delivered, rounds)
    assert one.owed(rounds) == payment
    for wrong in (-1, rounds + 1):
        with pytest.raises(BadInput):
            one.owed(wrong)


@pytest.mark.parametrize(
    ("field", "wrong", "sentence"),
    [
        ("owner_key", "A" * 64, "64 small hexadecimal digits"),
        ("saving", -1.0, r"saving is -1\.0: it should be greater than or equal to 0\."),
        ("owner", "a" * 1001, "it should have at most 1000 characters"),
    ],
)
def test_a_wrong_value_is_named_in_plain_words(field: str, wrong: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        contract(**{field: wrong})


def test_a_receipt_with_a_wrong_head_says_what_a_head_is() -> None:
    head = str(Head(1, "a" * 64))
    of = contract()
    keys = {"curator_key": of.curator_key, "owner_key": of.owner_key}
    named = {"job": of.job, "owner": of.owner, "contract": of.id, **keys}
    one = Receipt(**named, stage="signed", paid=None, head=head).to_dict()
    with pytest.raises(BadInput, match=r"head is here: give count:hash"):
        Receipt.from_dict(one | {"head": "here"})


def test_a_copy_is_the_same_contract() -> None:
    one = contract(settings={"steps": [1, 2]})
    assert copy.deepcopy([one]) == [one]


@pytest.mark.parametrize(
    ("given", "micro"),
    [("12.54", 12_540_000), (0.1, 100_000), (3, 3_000_000), (Decimal("0.0000005"), 0),
     ("0.0000015", 2), ("1e-6", 1), (0, 0), ("9007199254.740991", MOST), (-0.0, 0)],
)  # fmt: skip
def test_money_in_units(given: Any, micro: int) -> None:
    assert to_micro(given) == micro


@pytest.mark.parametrize(
    "wrong",
    ["", "ten", None, True, math.nan, math.inf, "-0.000001", -1, "9007199254.740992", 1e300,
     "1e999999", "0." + "1" * 2000, Decimal("sNaN")],
)  # fmt: skip
def test_money_that_is_none(wrong: Any) -> None:
    with pytest.raises(BadInput):
        to_micro(wrong)


@given(AMOUNT)
def test_money_comes_back_from_its_text(amount: int) -> None:
    assert to_micro(format_micro(amount)) == amount


def test_money_as_text() -> None:
    assert [format_micro(value) for value in (0, 1, 12_540_000, 10 * MICRO, -1_500_000)] == [
        "0.00", "0.000001", "12.54", "10.00", "-1.50",
    ]  # fmt: skip
    for wrong in (-1, MOST + 1, 1.0, True, "1"):
        with pytest.raises(BadInput):
            checked_amount(wrong)
