"""The owner's side. Who it is, its records, its terms and its journal come from its own folder,
which the SuperNode's config names: ``owner`` and ``owner-folder``."""

from noisemarket.flower.owner_app import owner_app

app = owner_app()
