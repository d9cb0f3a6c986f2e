"""The tables ``[training]`` and ``[privacy]`` of a scenario."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from noisemarket.scenario.section import Auto, NotNegative, Positive, Section, Share


def _protection(value: str) -> str:
    from noisemarket.federated.protections import PROTECTIONS

    PROTECTIONS.find(value, load=True)
    return value


def _weighting(value: str) -> str:
    from noisemarket.federated.aggregation import WEIGHTINGS

    WEIGHTINGS.find(value, load=True)
    return value


WeightingName = Annotated[str, AfterValidator(_weighting)]
ProtectionName = Annotated[str, AfterValidator(_protection)]
Width = Annotated[int, Field(ge=1, le=10_000)]
Steps = Annotated[int, Field(ge=1, le=10_000)]


class TrainingSection(Section):
    """Federated training; rounds and batches are the paper's.

    Noise acts on every weight, so few weights lose little: a linear model on fixed features loses
    least. The paper's model is a CNN of widths that it does not give; by default a narrow one.
    """

    model: Literal["features", "cnn"] = Field(
        "features",
        description="what is trained: features (a linear model on fixed features), or cnn",
    )
    rounds: int = Field(30, ge=1, le=100_000, description="I: communication rounds")
    batch: int = Field(64, ge=1, le=10**7, description="X: records in a batch")
    local_rate: Positive | Auto = Field(
        "auto", description="step size of the owners' SGD; auto: 0.5 for features, 0.05 for the CNN"
    )
    local_epochs: int = Field(
        1, ge=1, le=1000, description="passes of an owner over its data per round"
    )
    channels: tuple[Width, Width] = Field(
        (8, 16), description="cnn: widths of the two convolutions"
    )
    hidden: Width = Field(32, description="cnn: width of the first fully connected layer")
    downsampling: Literal["pool", "stride"] = Field(
        "stride",
        description="cnn: how convolutions halve an image: pool (largest of four) or stride",
    )
    normalise: bool = Field(
        True, description="cnn: whether hidden layers pass on values of mean 0 and deviation 1"
    )
    weighting: WeightingName = Field(
        "noise",
        description="weights of the owners' updates: noise, data_size, equal, or "
        "package.module:Name",
    )
    weight_cap: float = Field(
        1.0, gt=0, le=1, description="largest share of one owner in the mean; 1: no limit"
    )
    server_rate: Positive | Auto = Field(
        "auto", description="factor of the mean update; auto: by the noise in it"
    )
    averaging: Share | Auto = Field(
        "auto",
        description="weight of the past in an average of the global models; auto: 0.8 for "
        "features, 0.6 for the CNN",
    )
    data: str = Field(
        "", description="folder of idx files, or of features in .npy files; empty: MNIST"
    )


class PrivacySection(Section):
    """How updates are protected and accounted for."""

    protection: ProtectionName = Field(
        "sharded",
        description="what an owner does to its update: paper, sharded, dp_sgd, clipped, or "
        "package.module:Name",
    )
    settings: dict[str, Any] = Field(
        {}, description="settings of a protection of your own, by name"
    )
    clip: Positive = Field(1.0, description="norm to which an update or a gradient is clipped")
    shards: int = Field(
        64, ge=1, le=10**6, description="sharded: parts of an owner's data; 1 hides it all"
    )
    shard_steps: Steps | Auto = Field(
        "auto",
        description="sharded: steps of SGD of each shard; auto: 1 for features, 2 for the CNN",
    )
    shard_rate: Positive | Auto = Field(
        "auto",
        description="sharded: step size of a shard's SGD; auto: 60 for features, 0.4 for the CNN",
    )
    neighbours: Literal["replace_one", "zero_out"] = Field(
        "replace_one", description="what a record is replaced by: replace_one or zero_out"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of (epsilon, delta)")
    rho_cap: NotNegative = Field(
        0.0, description="most zCDP that an owner gives up in the whole job; 0: no cap"
    )
    epsilon_cap: NotNegative = Field(
        0.0, description="the same cap as an epsilon at delta; 0: no cap; the stricter one holds"
    )
    noise: Literal["secure", "simulated"] = Field(
        "secure", description="secure, or simulated from the seed, which is not private"
    )
