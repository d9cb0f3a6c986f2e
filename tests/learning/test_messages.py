"""The game by messages: fair, resumable, the same deals on both sides."""

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.learning.batch import first_values
from noisemarket.learning.draws import Stream
from noisemarket.learning.messages import (
    CuratorPlayer,
    OfferBatch,
    OwnerPlayer,
    QuoteBatch,
    RecentDeals,
    message_lengths,
)
from noisemarket.learning.rules import RULES, find_rule
from noisemarket.negotiation import run_options
from noisemarket.scenario import Scenario

ITERATIONS = 600


def players(name: str, preset: str = "market", index: int = 0) -> tuple[OwnerPlayer, CuratorPlayer]:
    scenario = Scenario.from_preset(preset, owners=4, iterations=ITERATIONS)
    environment, config = scenario.environment(), run_options(scenario).play
    games, kind = environment.games(), find_rule(name)
    own, theirs = first_values(kind, games, config)
    owner, curator = environment.owner_side(), environment.curator_side()
    key, sees = int(environment.population.key[index]), games.sees_offer
    common = {"sees_offer": sees, "window": 200}
    worth = (owner.gains(), curator.gains()) if sees else (owner.payoffs(), curator.payoffs())
    signs = (owner.signs(), curator.signs())
    if not sees:
        signs = (np.ones_like(signs[0]), np.ones_like(signs[1]))
    return (
        OwnerPlayer(
            kind(own[index], config.settings),
            worth[0][index], signs[0][index], Stream(1, key), **common,  # type: ignore[arg-type]
        ),
        CuratorPlayer(
            kind(theirs[index], config.settings),
            worth[1][index], signs[1][index], Stream(2, key), **common,  # type: ignore[arg-type]
        ),
    )  # fmt: skip


def play(owner: OwnerPlayer, curator: CuratorPlayer, per_message: int, until: int) -> None:
    while curator.played < until:
        count = min(per_message, until - curator.played)
        curator.take(owner.answer(curator.draw_quotes(count)))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("preset", ["market", "paper"])
def test_both_sides_agree_on_what_was_dealt(name: str, preset: str) -> None:
    owner, curator = players(name, preset)
    play(owner, curator, 100, ITERATIONS)
    assert owner.played == curator.played == ITERATIONS
    assert np.array_equal(owner.deals.offers, curator.deals.offers)
    assert np.array_equal(owner.deals.quotes, curator.deals.quotes)
    assert np.array_equal(owner.deals.signed, curator.deals.signed)
    assert owner.deals.usual() == curator.deals.usual()


@pytest.mark.parametrize("name", RULES)
def test_the_same_moves_when_the_owner_is_put_aside_between_messages(name: str) -> None:
    owner, curator = players(name)
    play(owner, curator, 50, ITERATIONS)
    again, other = players(name)
    while other.played < ITERATIONS:
        fresh, _ = players(name)
        fresh.restore({n: np.array(v) for n, v in again.state().items()})
        play(fresh, other, 50, other.played + 50)
        again = fresh
    assert np.array_equal(again.deals.offers, owner.deals.offers)
    assert np.array_equal(other.deals.quotes, curator.deals.quotes)
    for name_, value in owner.state().items():
        assert np.array_equal(value, again.state()[name_]), name_


@pytest.mark.parametrize("name", RULES)
def test_acting_everywhere_is_acting_in_each_state(name: str) -> None:
    owner, curator = players(name)
    play(owner, curator, 50, 200)
    player = curator._rule
    uniforms = np.random.default_rng(3).random(40)
    expected = [[player.act(s, float(u)) for s in range(len(player.values))] for u in uniforms]
    assert np.array_equal(player.act_everywhere(uniforms), expected)


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
    for offers in (np.full(10, 99), np.full(10, -1), np.full(10, 0.5)):
        with pytest.raises(BadInput, match="do not fit"):
            curator.take(OfferBatch(0, offers, np.ones(10, bool)))
    with pytest.raises(BadInput, match="do not answer"):
        curator.take(OfferBatch(0, np.zeros(3, np.int64), np.ones(3, bool)))
    assert all(np.array_equal(value, before[name]) for name, value in owner.state().items())


def test_an_owner_cannot_claim_a_signature_that_the_curator_did_not_offer() -> None:
    _, curator = players("wolf_phc")
    batch = curator.draw_quotes(50)
    never = ~batch.signs
    offers = np.array([int(np.flatnonzero(row)[0]) if row.any() else 0 for row in never])
    curator.take(OfferBatch(0, offers, np.ones(50, bool)))
    assert np.array_equal(curator.deals.signed, batch.signs[np.arange(50), offers])
    assert not curator.deals.signed.all()


def test_usual_needs_half() -> None:
    def deals(signed: list[bool]) -> RecentDeals:
        length = len(signed)
        return RecentDeals(np.full(length, 2), np.full(length, 3), np.array(signed))

    assert deals([True, False]).usual() == (2, 3)
    assert deals([True, False, False]).usual() == (0, 0)
    assert RecentDeals.none().usual() == (0, 0)


def test_message_lengths_add_up() -> None:
    assert list(message_lengths(10, 4)) == [4, 4, 2]
    assert list(message_lengths(8, 4)) == [4, 4]
