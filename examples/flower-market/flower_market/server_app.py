"""The curator's side: a whole market with the owners' SuperNodes."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from noisemarket.flower.curator_app import market_over_flower

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Negotiate, sign, train, verify and pay; what happens is printed and kept in ``folder``."""
    market_over_flower(grid, context.run_config)
