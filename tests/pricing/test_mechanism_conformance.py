"""Every mechanism of the package, and one of a user's own, under the conformance suite."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conformance.mechanism_suite import (
    SCENARIOS,
    SIGNED,
    MechanismConformance,
    VoluntaryConformance,
    curator_gains,
    negotiated,
)

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.sides import SLACK
from noisemarket.game.value import JointValue
from noisemarket.market.negotiation import negotiate
from noisemarket.pricing import MECHANISMS
from noisemarket.pricing.mechanism import Direct, Mechanism, RunOptions
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled

IMPOSED = {"no_dp"}
JOINT = [name for name, one in MECHANISMS.items() if one.joint]
VOLUNTARY = [name for name in MECHANISMS if name not in {*IMPOSED, *JOINT, "pain_fl"}]
NO_MENU = {"worthless payments", "no privacy loss"}
"""Where a screening menu makes no sense, and is refused."""


class Half(Direct):
    """Half the noise of everybody, imposed."""

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return Contracts.same(len(environment), environment.levels.saving_levels // 2, 0)


@pytest.mark.parametrize("mechanism", VOLUNTARY)
@pytest.mark.parametrize("scenario", SCENARIOS)
class TestVoluntary(VoluntaryConformance):
    """All but the menu, which is refused in some markets, and no DP."""

    def test_the_curator_agrees_to_every_contract(self, mechanism: str, scenario: str) -> None:
        """Unlike a menu for the mean quality, which may lose on single owners."""
        result = negotiated(scenario, mechanism)
        if result.environment.protocol == "signed":
            assert curator_gains(result).min() >= -SLACK
            games, contracts = result.environment.games(), result.agreement.contracts
            at = np.arange(len(contracts)), contracts.saving, contracts.payment
            assert games.agreed[at].all()


@pytest.mark.parametrize("mechanism", JOINT)
@pytest.mark.parametrize("scenario", SCENARIOS)
class TestJoint(VoluntaryConformance):
    """Those that buy for one model: what single owners would bring a model each says nothing."""

    def test_nobody_signs_at_a_loss(self, mechanism: str | Mechanism, scenario: str) -> None:
        result = negotiated(scenario, mechanism)
        contracts, environment = result.agreement.contracts, result.environment
        at = np.arange(len(contracts)), contracts.saving, contracts.payment
        assert environment.owner_side().signs()[at].all()
        assert JointValue.of(environment).gain(contracts) >= -SLACK

    def test_is_bounded_by_first_best_and_no_dp(
        self, mechanism: str | Mechanism, scenario: str
    ) -> None:
        """Nobody buys better together than the best portfolio."""
        result = negotiated(scenario, mechanism)
        joint = JointValue.of(result.environment)
        best = joint.gain(negotiated(scenario, "best_portfolio").agreement.contracts)
        assert joint.gain(result.agreement.contracts) <= best + 1e-9


@pytest.mark.parametrize("mechanism", ["pain_fl"])
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in NO_MENU])
class TestMenu(VoluntaryConformance):
    """The screening menu, where there is one."""


@pytest.mark.parametrize("mechanism", [*IMPOSED, Half()])
@pytest.mark.parametrize("scenario", SCENARIOS)
class TestImposed(MechanismConformance):
    """No DP, and a mechanism that comes with this file."""

    def test_is_signed_by_nobody(self, mechanism: str | Half, scenario: str) -> None:
        assert not negotiated(scenario, mechanism).agreement.contracts.signed.any()


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("worthless payments", "payment_value is 0.0: "),
        ("no privacy loss", "privacy_weight is 0.0: "),
    ],
)
def test_a_menu_that_makes_no_sense_is_refused(scenario: str, message: str) -> None:
    preset, settings = SCENARIOS[scenario]
    with pytest.raises(BadInput, match=message):
        negotiate(Scenario.from_preset(preset, **settings), mechanism="pain_fl")


@pytest.mark.parametrize("scenario", SIGNED)
def test_first_best_equilibrium_and_no_trade_in_this_order(scenario: str) -> None:
    best, solved, none = (
        negotiated(scenario, name).learned.curator_gain
        for name in ("first_best", "equilibrium", "uniform")
    )
    assert best >= solved - 1e-9
    assert solved >= -1e-9
    assert none == 0.0
