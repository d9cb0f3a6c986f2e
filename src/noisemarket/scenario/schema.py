"""The scenario: one frozen, validated object that defines a whole run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from noisemarket.errors import BadInput
from noisemarket.federated.data_files import named_records
from noisemarket.game.environment import Change, Environment, phases
from noisemarket.game.levels import MOST_CELLS, Levels
from noisemarket.game.population import FIELDS, Distribution, Population, make_distribution
from noisemarket.game.sides import Behaviour, Payoff
from noisemarket.pricing.rule import Settings
from noisemarket.scenario.population_file import read_owners
from noisemarket.scenario.surface_file import find_surface

LARGEST = 1e30
"""The upper bound of numbers that have no other one; it is not worth a word."""


def _reject_bool(value: object) -> object:
    """Python takes true for 1."""
    if isinstance(value, bool):
        raise ValueError("give a number, not true or false")
    return value


_NO_BOOL = BeforeValidator(_reject_bool)
Number = Annotated[float, _NO_BOOL]
Whole = Annotated[int, _NO_BOOL]

NotNegative = Annotated[float, Field(ge=0, le=LARGEST), _NO_BOOL]
Positive = Annotated[float, Field(gt=0, le=LARGEST), _NO_BOOL]
Auto = Literal["auto"]
"""Chosen by the model and by public figures."""


class Section(BaseModel):
    """A part of a scenario: read only. Unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _ledger_url(value: str) -> str:
    if not value:
        return value
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    remedy = "give a URL that begins with postgresql:// or sqlite:///, or leave it empty."
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        shown = "the URL" if "@" in value else value
        raise BadInput("market.ledger", shown, remedy) from None
    if url.password or {"password", "sslpassword"} & url.query.keys():
        remedy = "the run folder would store it: use ~/.pgpass, PGPASSFILE or PGPASSWORD instead."
        raise BadInput("market.ledger", "a URL with a password", remedy)
    if url.drivername.partition("+")[0] != "postgresql" and not (
        url.drivername == "sqlite" and url.database and not url.query
    ):
        raise BadInput("market.ledger", value, remedy)
    return value


def _word(value: str) -> str:
    if not 0 < len(value) <= 20 or not value.isprintable() or value != value.strip():
        raise BadInput("market.currency", value, "give a word such as EUR, of at most 20 letters.")
    return value


def _protection(value: str) -> str:
    from noisemarket.federated.protections import PROTECTIONS

    if value != "auto":
        PROTECTIONS.find(value, load=True)
    return value


def _weighting(value: str) -> str:
    from noisemarket.federated.aggregation import WEIGHTINGS

    WEIGHTINGS.find(value, load=True)
    return value


WeightingName = Annotated[str, AfterValidator(_weighting)]
ProtectionName = Annotated[str, AfterValidator(_protection)]
Width = Annotated[int, Field(ge=1, le=10_000), _NO_BOOL]
ShardSize = Annotated[int, Field(ge=1, le=10**6), _NO_BOOL]
Currency = Annotated[str, AfterValidator(_word)]
LedgerUrl = Annotated[str, AfterValidator(_ledger_url)]
Spread = Number | dict[str, Any]


SURFACE_OF = {"features": "features-mnist", "cnn": "sharded-mnist"}
"""The shipped surface that was measured with each model."""

_COSTS: Spread = {"distribution": "uniform", "low": 0.5, "high": 4.0}


SYMBOLS: dict[str, str] = {
    "N": "owners",
    "J": "saving_levels",
    "K": "payment_levels",
    "p_max": "payment_max",
    "varpi": "quality_weight",
    "lambda_s": "quality_value",
    "lambda_r": "payment_value",
    "mu": "payment_cost",
    "nu": "privacy_weight",
    "phi": "discount",
    "eta": "learning_rate",
    "c": "privacy_cost",
}
"""The paper's symbols, understood wherever a setting is named."""


class GameSection(Section):
    """The pricing game; every default is the paper's, but for the loss surface.

    The paper's curve (``printed``) is one of training without any guarantee. The default is the
    shipped surface that was measured with the scenario's model under the default protection.
    """

    payoff: Payoff = Field(
        "privacy_loss",
        description="owner's payoff: privacy_loss is lambda_r p - nu c saving; epsilon_loss has "
        "the epsilon sold in place of the saving; printed is lambda_r p - nu c (sigma_max - "
        "saving)",
    )
    protocol: Literal["signed", "simultaneous"] = Field(
        "signed",
        description="one interaction: signed (proposal, quote, signatures) or simultaneous moves",
    )
    surface: str = Field(
        "auto",
        description="loss surface: auto (measured for this job), printed (the paper's), a name, or "
        "the path of a surface file",
    )
    sigma_max: Positive = Field(0.6, description="noise scale if nothing is traded")
    saving_levels: Whole = Field(12, ge=1, le=10_000, description="J: steps of the saving grid")
    payment_max: Positive = Field(16.0, description="p_max: highest payment")
    payment_levels: Whole = Field(32, ge=1, le=10_000, description="K: steps of the payment grid")
    quality_weight: Number = Field(
        0.6, ge=0, le=1, description="varpi: weight of quality against money"
    )
    quality_value: NotNegative = Field(0.2, description="lambda_s: curator's value of quality")
    payment_cost: NotNegative = Field(0.13, description="mu: curator's cost of a payment")
    payment_value: NotNegative = Field(0.08, description="lambda_r: owner's value of a payment")
    privacy_weight: NotNegative = Field(2.5, description="nu: owner's weight of privacy loss")


class PopulationSection(Section):
    """The owners: drawn from distributions, or read from a file."""

    owners: Whole = Field(100, ge=1, le=10**8, description="N: number of data owners")
    privacy_cost: Spread = Field(_COSTS, description="unit privacy cost, the owner's secret")
    data_size: Spread = Field(
        600.0,
        description="an owner's share of the training records, relative to the others': all are "
        "dealt out in this proportion; not part of the payoffs",
    )
    beta: Spread = Field(1.0, description="non-IID degree of an owner's data; small: uneven")
    markup: Spread = Field(
        0.2, description="what an owner adds to its cost, as a share; its secret"
    )
    floor: Spread = Field(
        0.0, description="least noise that an owner keeps, whatever it is paid; its secret"
    )
    file: str = Field(
        "",
        description="CSV file of owners; columns that it lacks are drawn as for others",
    )

    def distributions(self) -> dict[str, Distribution]:
        if isinstance(self.data_size, float) and self.data_size < 1:
            raise BadInput("population.data_size", self.data_size, "give at least 1.")
        return {
            name: make_distribution(f"population.{name}", getattr(self, name)) for name in FIELDS
        }


class BehaviourSection(Section):
    """How owners answer: by default exactly by what pays for them."""

    temperature: NotNegative = Field(
        0.0, description="scale of the logistic error with which owners judge a contract, in payoff"
    )
    answer_rate: Number = Field(
        1.0, ge=0, le=1, description="share of the questions that owners answer"
    )


class LearningSection(Section):
    """How both sides learn."""

    iterations: Whole = Field(5000, ge=1, le=10**9, description="interactions of each pair")
    discount: Number = Field(0.8, ge=0, lt=1, description="phi: weight of the future")
    learning_rate: Number = Field(0.5, gt=0, le=1, description="eta: step of the Q-values")
    exploration: Number = Field(0.1, ge=0, le=1, description="share of random moves of Q-learning")
    optimism: NotNegative = Field(
        1.0, description="first Q-value of both sides, in their best conceivable payoffs"
    )
    window: Whole = Field(
        500, ge=1, le=10**9, description="last iterations that a contract is read from"
    )
    interactions_per_message: Whole = Field(
        1, ge=1, le=10**6, description="interactions in one message; 1: no messages"
    )
    reopen: bool = Field(True, description="whether DyPP starts anew when preferences have changed")
    carry_over: bool = Field(
        False,
        description="in a season: whether learners go on from the jobs before, which are played "
        "again; over Flower with the owners' floors of today",
    )

    def settings(self) -> Settings:
        return Settings(
            discount=self.discount,
            learning_rate=self.learning_rate,
            exploration=self.exploration,
            reopen=self.reopen,
        )


class TrainingSection(Section):
    """Federated training; rounds and batches are the paper's.

    Noise acts on every weight, so few weights lose little: a linear model on fixed features loses
    least. The paper's model is a CNN of widths that it does not give; by default a narrow one.
    """

    model: Literal["features", "cnn"] = Field(
        "features",
        description="what is trained: features (a linear model on fixed features), or cnn",
    )
    rounds: Whole = Field(30, ge=1, le=100_000, description="I: communication rounds")
    batch: Whole = Field(64, ge=1, le=10**7, description="X: records in a batch")
    widths: tuple[Width, Width, Width] = Field(
        (8, 16, 32), description="cnn: widths of two convolutions and a fully connected layer"
    )
    network: Literal["normalised", "plain"] = Field(
        "normalised",
        description="cnn: normalised (layers pass on values of mean 0 and deviation 1; strides "
        "halve an image) or plain (pooling halves it)",
    )
    weighting: WeightingName = Field(
        "noise",
        description="weights of the owners' updates: noise, data_size, equal, or "
        "package.module:Name",
    )
    weight_cap: Annotated[float, Field(gt=0, le=1), _NO_BOOL] | Auto = Field(
        "auto",
        description="largest share of one owner in the mean; auto: 0.1, or 2 / owners if more; 1: "
        "no limit",
    )
    server: Literal["auto", "plain"] = Field(
        "auto",
        description="how the mean update is used: auto (a factor by the noise in it, and an "
        "average of the global models) or plain (as it is)",
    )
    data: str = Field(
        "",
        description="mnist (or empty), fars, a folder with a table per owner, a CSV or Parquet "
        "file with an owner_column, or a folder of idx or .npy files",
    )


class PrivacySection(Section):
    """How updates are protected and accounted for."""

    protection: ProtectionName = Field(
        "auto",
        description="what an owner does to its update: per_record, sharded, dp_sgd, paper, "
        "or package.module:Name; auto: per_record for features, sharded for the CNN",
    )
    settings: dict[str, Any] = Field(
        {}, description="settings of a protection of your own, by name"
    )
    clip: Positive = Field(
        1.0, le=2**20, description="norm to which an update or a gradient is clipped"
    )
    records_per_shard: ShardSize | Auto = Field(
        "auto",
        description="sharded: records that are clipped together; auto: 1 for features, 10 for the "
        "CNN; with at least as many as an owner has, its whole data is hidden",
    )
    shard_rate: Positive | Auto = Field(
        "auto",
        description="per_record, sharded: step size of a shard's SGD; auto: 8 for features, 0.4 "
        "for the CNN",
    )
    neighbours: Literal["replace_one", "zero_out"] = Field(
        "replace_one", description="what a record is replaced by: replace_one or zero_out"
    )
    delta: Number = Field(1e-5, gt=0, lt=1, description="delta of (epsilon, delta)")
    rho_cap: NotNegative = Field(
        0.0, description="most zCDP that an owner gives up in the whole job; 0: no cap"
    )
    epsilon_cap: NotNegative = Field(
        0.0, description="rho_cap as an epsilon at delta; 0: no cap; the stricter one holds"
    )
    rho_budget: NotNegative = Field(
        0.0, description="most zCDP that a lasting owner's records give up in all jobs; 0: no limit"
    )
    epsilon_budget: NotNegative = Field(
        0.0, description="the same as an epsilon at delta; 0: no limit; the stricter one holds"
    )
    noise: Literal["secure", "simulated"] = Field(
        "secure", description="secure, or simulated from the seed, which is not private"
    )


class MarketSection(Section):
    """What the contracts of a job say beyond the trade, and where they are stored."""

    budget: NotNegative | Literal["none"] = Field(
        "none", description="most that the curator pays in all, or none for no limit"
    )
    floor: NotNegative = Field(
        0.1,
        description="clock: noise that sellers keep, rounded to the nearest saving level that "
        "leaves some",
    )
    target_accuracy: Annotated[float, Field(ge=0, le=100), _NO_BOOL] | Literal["none"] = Field(
        "none", description="clock: accuracy to reach for the least money, in per cent, or none"
    )
    false_alarm: Number = Field(
        1e-3, gt=0, lt=1, description="chance that a job accuses any honest owner"
    )
    currency: Currency = Field("units", description="what money is called in every output")
    ledger: LedgerUrl = Field(
        "",
        description="URL of a ledger for many jobs, postgresql://... or sqlite:///FILE; empty: "
        "SQLite in the run folder, or in the owners' folder",
    )


class ChangeSection(Section):
    """Preferences that change during the game."""

    at: Whole = Field(ge=1, description="iteration from which it holds")
    share: Number = Field(1.0, gt=0, le=1, description="share of the owners that change")
    names: tuple[str, ...] = Field(
        (), description="names of the owners that change, instead of a share"
    )
    scale: dict[str, NotNegative] = Field({}, description="preference = factor: multiplies it")
    set: dict[str, NotNegative] = Field({}, description="preference = new value: replaces it")

    def change(self) -> Change:
        if not self.scale and not self.set:
            raise BadInput("changes.at", self.at, "give scale or set: what changes.")
        if self.names and self.share < 1.0:
            raise BadInput("changes.names", self.names[0], "give either names or a share.")
        scale, new = tuple(self.scale.items()), tuple(self.set.items())
        return Change(self.at, self.share, self.names, scale, new)


class Scenario(Section):
    """All that defines a run: create one with ``from_preset`` or ``load_scenario``.

    It cannot be changed. ``noisemarket scenario --explain`` lists all fields.

    Example:
        >>> import noisemarket as nm
        >>> scenario = nm.Scenario.from_preset("market", owners=50, seed=7)
        >>> scenario.population.owners, scenario.learning.iterations
        (50, 5000)
    """

    preset: Literal["market", "paper", "fars"] = Field(
        "market", description="what the settings change: market, paper or fars"
    )
    mechanism: str = Field("dypp", description="how contracts are agreed")
    seed: Whole = Field(1, ge=0, lt=1 << 63, description="seed of all randomness")
    game: GameSection = GameSection()
    population: PopulationSection = PopulationSection()
    behaviour: BehaviourSection = BehaviourSection()
    learning: LearningSection = LearningSection()
    training: TrainingSection = TrainingSection()
    privacy: PrivacySection = PrivacySection()
    market: MarketSection = MarketSection()
    changes: tuple[ChangeSection, ...] = Field(
        (), description="preferences that change during the game, one [[changes]] table each"
    )
    jobs: tuple[dict[str, Any], ...] = Field(
        (),
        description="a season: jobs one after another with the same owners, one [[jobs]] table "
        "each with a name and the settings that it changes",
    )

    def environment(
        self, *, secrets: bool = True, records: Mapping[str, int] | None = None
    ) -> Environment:
        """The game that this scenario describes, with its population drawn or read.

        ``records`` is how many records each owner has, where the data names its owners; by default
        what the scenario's own data says.

        Without ``secrets``, a population file need not contain the owners' secrets: that is enough
        for a curator whose owners run on their own machines.
        """
        g = self.game
        cells = (g.saving_levels + 1) * (g.payment_levels + 1)
        if cells > MOST_CELLS:
            most = MOST_CELLS // (g.saving_levels + 1) - 1
            remedy = f"with {g.saving_levels} saving levels, give at most {most:,}."
            raise BadInput("game.payment_levels", g.payment_levels, remedy)
        draw_owners, draw_changes, _ = self.seeds()
        if records is None:
            records = named_records(self.training.data)
        owners = self.population.owners
        if records and owners != len(records):
            remedy = f"the data has the records of {len(records)} owners: leave it out."
            raise BadInput("population.owners", owners, remedy)
        file, given = self.population.file, self.population.distributions()
        listed = read_owners(file, secrets=secrets, records=records) if file else None
        if listed is not None and owners != len(listed):
            remedy = f"{file} has {len(listed)} owners: give only one of the two."
            raise BadInput("population.owners", owners, remedy)
        population = Population.draw(owners, given, draw_owners)
        if listed is not None:
            population = listed.population(population)
        elif records:
            columns = {name: getattr(population, name) for name in FIELDS}
            columns["data_size"] = np.array(list(records.values()), float)
            population = Population.of(tuple(records), columns)
        curator = (g.quality_weight, g.quality_value, g.payment_cost)
        for section in self.changes:
            if section.at >= self.learning.iterations:
                last = self.learning.iterations - 1
                raise BadInput("changes.at", section.at, f"give an iteration up to {last}.")
        changes = [section.change() for section in self.changes]
        levels = Levels(g.sigma_max, g.saving_levels, g.payment_max, g.payment_levels)
        errors = int(np.random.SeedSequence([self.seed, 4]).generate_state(1, np.uint64)[0])
        sold = None
        if g.payoff == "epsilon_loss":
            from noisemarket.scenario.account import sold_in  # protections load slowly

            sold = sold_in(self, levels, population)
        return Environment(
            levels=levels,
            surface=find_surface(self.surface_name()),
            payoff=g.payoff,
            protocol=g.protocol,
            payment_value=g.payment_value,
            privacy_weight=g.privacy_weight,
            population=population,
            phases=phases(population, curator, changes, draw_changes),
            sold=sold,
            behaviour=Behaviour(self.behaviour.temperature, self.behaviour.answer_rate, errors),
        )

    def surface_name(self) -> str:
        """The loss surface that is played on: a name or a path."""
        own = self.game.surface
        return SURFACE_OF[self.training.model] if own == "auto" else own

    def seeds(self) -> list[np.random.SeedSequence]:
        """Independent seeds: for the owners, for the changes, for the play."""
        return np.random.SeedSequence(self.seed).spawn(3)

    def play_seed(self) -> int:
        return int(self.seeds()[2].generate_state(1, np.uint64)[0])

    @classmethod
    def from_preset(cls, name: str = "market", **settings: object) -> Scenario:
        """The preset ``market``, ``paper`` or ``fars``, with settings by name.

        Example:
            >>> import noisemarket as nm
            >>> nm.Scenario.from_preset("paper", owners=50).game.protocol
            'simultaneous'
        """
        from noisemarket.scenario.load import build  # the loader needs this class

        return build(name, {}, settings)
