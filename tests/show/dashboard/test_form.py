"""The form that starts a run: what it asks, and what it says is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.show.dashboard.asgi import Client

from noisemarket.show.dashboard import form as forms
from noisemarket.show.dashboard.run_store import RunStore
from noisemarket.show.dashboard.web_app import web_app
from noisemarket.show.dashboard.whatif import answer_of

HOSPITALS = Path(__file__).resolve().parents[3] / "examples" / "hospitals"


def test_four_settings_come_first() -> None:
    first = forms.form("market")["groups"][0]["fields"]
    assert [one["name"] for one in first] == ["Owners", "Mechanism", "Budget", "Seed"]
    assert forms.form("fars")["named_owners"]
    assert not forms.form("market")["named_owners"]


def test_all_that_is_wrong_is_told_at_once_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    settings = {"population.owners": 0, "market.budget": "much", "mechanism": "dyp", "seed": 2,
                "population.markup": -1, "population.beta": 0}  # fmt: skip
    order = json.dumps({"name": "taken", "settings": settings}).encode()
    answer = Client(web_app(RunStore(tmp_path))).post("/api/runs", content=order)
    assert answer.status_code == 422
    fields = answer.json()["fields"]
    assert fields["population.owners"] == "Give a whole number from 1 to 100,000,000."
    assert fields["market.budget"] == "Give a number of at least 0 or none."
    assert fields["mechanism"].startswith("Did you mean dypp?")
    assert fields["name"] == "This exists already: choose another."
    assert fields["population.markup"].startswith("Give a finite number of at least 0")
    owners = {"population.owners", "population.markup", "population.beta"}
    assert set(fields) == {*owners, "market.budget", "mechanism", "name"}
    assert not list(tmp_path.glob("taken/*"))


def test_what_if_keeps_the_privacy_cap() -> None:
    free, capped = (
        answer_of("market", {"privacy.epsilon_cap": cap})["answers"] for cap in (0.0, 0.2)
    )
    assert free["clock"]["sellers"] > 0 == capped["clock"]["sellers"]  # they would keep 0.1
    assert free["equilibrium"]["paid"] > capped["equilibrium"]["paid"] > 0


def test_a_wrong_mechanism_names_no_folder(tmp_path: Path) -> None:
    order = json.dumps({"settings": {"mechanism": "x" * 300}}).encode()
    answer = Client(web_app(RunStore(tmp_path))).post("/api/runs", content=order)
    assert (answer.status_code, set(answer.json()["fields"])) == (422, {"mechanism"})


def test_folders_of_data_have_names_of_their_own(tmp_path: Path) -> None:
    for data in (["a/hospital", "b/hospital"], ["/"]):
        with pytest.raises(forms.BadInput, match="or none: rename it"):
            RunStore(tmp_path, data=data)


def test_a_run_may_be_started_on_data_that_the_dashboard_was_given(tmp_path: Path) -> None:
    client = Client(web_app(RunStore(tmp_path / "runs", data=[str(HOSPITALS)])))
    assert client.get("/api/form").json()["own_data"] == ["hospitals"]
    found = client.get("/api/form", params={"data": "hospitals"}).json()
    assert found["named_owners"]
    assert found["groups"][0]["fields"][0]["value"] == 12
    order = {"data": "hospitals", "settings": {"population.owners": 5, "seed": -1}}
    refused = client.post("/api/runs", content=json.dumps(order).encode())
    assert set(refused.json()["fields"]) == {"seed"}
    for name in ("else", str(HOSPITALS), "../hospitals"):
        assert client.get("/api/form", params={"data": name}).status_code == 422
        order = {"data": name}
        assert client.post("/api/runs", content=json.dumps(order).encode()).status_code == 422


def test_two_settings_that_contradict_each_other_are_told() -> None:
    low = "population.privacy_cost.low"
    assert forms.all_wrong("market", {low: 5, "population.privacy_cost.high": 8}) == {}
    assert set(forms.all_wrong("market", {low: 5})) == {low}


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("market.floor is 0.7: give less.", {"market.floor": "This is 0.7: give less."}),
        ("no room is left.", {"run": "No room is left."}),
    ],
)
def test_what_a_command_refused_stands_under_its_field(said: str, fields: dict[str, str]) -> None:
    assert forms.refused(forms.BadInput("run", "mine", said)).fields == fields
