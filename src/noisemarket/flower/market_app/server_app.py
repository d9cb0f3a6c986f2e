"""The curator."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from noisemarket.flower.curator_app import market_over_flower

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the market that the run config names."""
    market_over_flower(grid, context.run_config)
