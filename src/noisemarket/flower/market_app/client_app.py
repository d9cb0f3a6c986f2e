"""An owner."""

from noisemarket.flower.owner_app import owner_app

app = owner_app()
