"""The two presets: how a scenario differs from the defaults."""

from __future__ import annotations

PRESETS: dict[str, dict[str, object]] = {
    # Contracts that bind payment to saving, and a privacy loss of the right sign: the defaults.
    "market": {},
    # As printed, for reproduction: both sides move at once, first Q-values of 0. The model is a
    # network of the widths that such papers use, and nothing helps it against the noise.
    "paper": {
        "mechanism": "dypp",
        "payoff": "printed",
        "surface": "printed",
        "protocol": "simultaneous",
        "optimism": 0.0,
        "protection": "paper",
        "model": "cnn",
        "weighting": "equal",
        "channels": (16, 32),
        "hidden": 128,
        "downsampling": "pool",
        "normalise": False,
        "server_rate": 1.0,
        "averaging": 0.0,
    },
}

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
