"""The game by messages: fair, resumable, the same deals on both sides."""

import numpy as np
import pytest
from tests.conformance.rule_suite import MessageConformance, players

from noisemarket.errors import BadInput
from noisemarket.pricing.messages import ProposalBatch, QuoteBatch, usual_deal
from noisemarket.pricing.rule import RULES

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("rule", RULES)
class TestEveryRule(MessageConformance):
    """Every rule of the package."""


def test_a_batch_stands_until_it_is_answered() -> None:
    owner, curator = players("wolf_phc")
    first = curator.draw_quotes(10)
    assert curator.draw_quotes(10) is first
    curator.take(owner.answer(first))
    assert curator.draw_quotes(10) is not first


def test_a_replayed_batch_and_a_replayed_reply_are_refused() -> None:
    owner, curator = players("wolf_phc")
    batch = curator.draw_quotes(10)
    reply = owner.answer(batch)
    with pytest.raises(BadInput, match="next interaction is 10"):
        owner.answer(batch)
    curator.take(reply)
    with pytest.raises(BadInput, match="do not answer"):
        curator.take(reply)
    curator.draw_quotes(10)
    with pytest.raises(BadInput, match="do not answer"):
        curator.take(reply)


def test_what_does_not_fit_the_game_is_refused_and_changes_nothing() -> None:
    owner, curator = players("wolf_phc")
    batch = curator.draw_quotes(10)
    before = owner.state()
    for quotes in (batch.quotes[:, :-1], batch.quotes + 1000, batch.quotes - 1000):
        with pytest.raises(BadInput, match="do not fit"):
            owner.answer(QuoteBatch(0, quotes, batch.signs))
    for proposals in (np.full(10, 99), np.full(10, -1), np.full(10, 0.5)):
        with pytest.raises(BadInput, match="do not fit"):
            curator.take(ProposalBatch(0, proposals, np.ones(10, bool)))
    with pytest.raises(BadInput, match="do not answer"):
        curator.take(ProposalBatch(0, np.zeros(3, np.int64), np.ones(3, bool)))
    assert all(np.array_equal(value, before[name]) for name, value in owner.state().items())


def test_an_owner_cannot_claim_a_signature_that_the_curator_did_not_give() -> None:
    _, curator = players("wolf_phc")
    batch = curator.draw_quotes(50)
    never = ~batch.signs
    proposals = np.array([int(np.flatnonzero(row)[0]) if row.any() else 0 for row in never])
    curator.take(ProposalBatch(0, proposals, np.ones(50, bool)))
    signed = curator.moves[:, 2]
    assert np.array_equal(signed, batch.signs[np.arange(50), proposals])
    assert not signed.all()


def test_usual_needs_half() -> None:
    assert usual_deal(np.array([[2, 3, 1], [2, 3, 0]])) == (2, 3)
    assert usual_deal(np.array([[2, 3, 1], [2, 3, 0], [2, 3, 0]])) == (0, 0)
    assert usual_deal(np.array([[2, 3, 1], [1, 4, 1], [1, 4, 1], [2, 3, 1]])) == (1, 4)
    assert usual_deal(np.array([[0, 0, 1], [0, 0, 1]])) == (0, 0)
    assert usual_deal(np.zeros((0, 3), np.int64)) == (0, 0)
