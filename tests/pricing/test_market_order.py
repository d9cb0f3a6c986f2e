"""What the mechanisms make of the default market, and of the same owners in another order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.conformance.mechanism_suite import negotiated

from noisemarket.errors import BadInput
from noisemarket.market.negotiation import negotiate
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.pricing.dypp import Learned
from noisemarket.pricing.rule import RULES, Greedy
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled

LEARNED = [name for name, one in MECHANISMS.items() if isinstance(one, Learned)]


class TestTheMarket:
    """The order of the mechanisms on the default market, on the paper's curve."""

    def test_who_gains_what(self) -> None:
        gain = {name: negotiated("market", name).learned.curator_gain for name in MECHANISMS}
        assert gain["first_best"] >= gain["equilibrium"] > gain["dypp"] > 0.5
        assert gain["dypp"] > gain["greedy"] == gain["uniform"] == 0.0
        assert gain["first_best"] > gain["pain_fl"] > 0.5
        assert gain["no_dp"] > gain["first_best"]  # the upper bound that nobody agreed to

    def test_uniform_dp_leaves_everything_as_it_is(self) -> None:
        figures = negotiated("market", "uniform").learned
        assert (figures.mean_saving, figures.mean_payment, figures.signed_share) == (0, 0, 0)
        assert figures.mean_owner_payoff == 0.0
        assert figures.mean_quality == pytest.approx(62.25, abs=0.005)

    def test_no_dp_takes_all_the_noise_for_nothing(self) -> None:
        figures = negotiated("market", "no_dp").learned
        assert figures.mean_saving == pytest.approx(0.6)
        assert (figures.mean_payment, figures.signed_share) == (0, 0)
        assert figures.mean_owner_payoff < -1.0
        assert figures.mean_quality == pytest.approx(96.83, abs=0.005)

    def test_everybody_trades_in_equilibrium(self) -> None:
        # The oracle's values are tested on their own; here, that the mechanism hands them through.
        scenario = Scenario.from_preset("market", surface="printed", owners=1, privacy_cost=1.0)
        contracts = negotiate(scenario, mechanism="equilibrium").agreement.contracts
        assert (contracts.saving[0], contracts.payment[0]) == (7, 27)  # 0.35 for 13.5
        assert contracts.signed[0]

    def test_greedy_in_the_papers_game_gives_all_for_nothing(self) -> None:
        contracts = negotiated("paper", "greedy").agreement.contracts
        assert (contracts.saving == 12).all()
        assert (contracts.payment == 0).all()

    def test_dypp_is_wolf_phc_and_every_other_rule_has_its_own_name(self) -> None:
        assert set(LEARNED) == {"dypp"} | set(RULES) - {"wolf_phc"}
        assert {MECHANISMS[name].rule for name in LEARNED} == set(RULES)  # type: ignore[attr-defined]

    def test_an_unknown_mechanism_is_refused(self) -> None:
        with pytest.raises(
            BadInput, match=r"mechanism is auction: .*hoose one of: dypp, .*first_best"
        ):
            find_mechanism("auction")
        with pytest.raises(BadInput, match="auction"):
            negotiate(Scenario.from_preset("market", owners=1), mechanism="auction")

    def test_a_class_of_rule_and_an_instance_are_mechanisms_too(self) -> None:
        scenario = negotiated("market", "greedy").scenario
        by_name = negotiated("market", "greedy").agreement.contracts
        for own in (Greedy, Learned(Greedy), Learned("greedy")):
            result = negotiate(scenario, mechanism=own)
            np.testing.assert_array_equal(result.agreement.contracts.saving, by_name.saving)
            assert result.scenario.mechanism.lower() == "greedy"
        with pytest.raises(BadInput, match=r"mechanism is .*: give a name, an instance"):
            find_mechanism(Scenario)  # type: ignore[arg-type]

    def test_each_says_what_it_must_know(self) -> None:
        assert MECHANISMS["dypp"].knows == "nothing private"
        assert MECHANISMS["first_best"].knows == "everything"
        for one in MECHANISMS.values():
            assert one.knows


OWNERS = """owner,privacy_cost,data_size,beta,markup
anna,0.5,600,1,0.2
bert,0.9,600,5,0.0
carl,1.7,600,0.1,0.2
dora,3.1,600,20,0.4
7,0.7,600,1,0.1
0,2.2,600,2,0.2
"""


class TestRelabelling:
    @staticmethod
    def of_rows(folder: Path, rows: list[str]) -> Scenario:
        file = folder / f"{len(list(folder.iterdir()))}.csv"
        file.write_text("\n".join([OWNERS.splitlines()[0], *rows]) + "\n")
        return Scenario.from_preset("market", file=str(file), iterations=800)

    @pytest.mark.parametrize("name", MECHANISMS)
    def test_owners_in_another_order_get_the_same_contracts(
        self, name: str, tmp_path: Path
    ) -> None:
        rows, order = OWNERS.splitlines()[1:], [3, 5, 0, 4, 2, 1]
        one = negotiate(self.of_rows(tmp_path, rows), mechanism=name).agreement
        other = self.of_rows(tmp_path, [rows[i] for i in order])
        moved = negotiate(other, mechanism=name).agreement
        for part in ("saving", "payment", "signed"):
            expected = getattr(one.contracts, part)[order]
            np.testing.assert_array_equal(getattr(moved.contracts, part), expected)
        if name in LEARNED:
            np.testing.assert_array_equal(moved.owner_policies, one.owner_policies[order])
            np.testing.assert_array_equal(
                moved.owner_exploitability, one.owner_exploitability[order]
            )

    @pytest.mark.parametrize("name", [*LEARNED, "equilibrium", "first_best"])
    def test_newcomers_do_not_disturb_the_others(self, name: str) -> None:
        few, many = (
            negotiate(Scenario.from_preset("market", owners=n, iterations=500), mechanism=name)
            for n in (5, 60)
        )
        for part in ("saving", "payment", "signed"):
            np.testing.assert_array_equal(
                getattr(many.agreement.contracts, part)[:5], getattr(few.agreement.contracts, part)
            )
