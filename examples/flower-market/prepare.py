"""A market ready to be started by hand: owners' folders, certificates, keys, configuration.

    python prepare.py --owners 3 --rounds 3

A simulation in that one machine deals MNIST and the owners' secrets. It prints the commands that
start a SuperLink and SuperNodes and run the app, each on loopback.
"""

import argparse
from pathlib import Path

import tomli_w

from noisemarket.flower.deploy.certificates import make_certificates, make_node_key
from noisemarket.flower.deploy.deployment import NodeSetup
from noisemarket.flower.deploy.processes import fleet_apart
from noisemarket.flower.deploy.single_machine import deal_out
from noisemarket.ledger.keys import KeyPair
from noisemarket.market.preparation import prepare
from noisemarket.scenario import dump_scenario, load_scenario

COMMANDS = """\
# The curator's SuperLink, in a terminal of its own
export NOISEMARKET_CURATOR={folder}
FLWR_HOME={folder}/homes/superlink flower-superlink --host 127.0.0.1 --port {port} \\
    --database {folder}/superlink.db --enable-supernode-auth \\
    --ssl-certfile {folder}/certificates/server.pem \\
    --ssl-keyfile {folder}/certificates/server.key \\
    --ssl-ca-certfile {folder}/certificates/ca.crt --disable-runtime-dependency-installation{more}

# The curator lets the owners in, each under its name
export FLWR_HOME={folder}/flwr
for owner in {names}; do
    flwr supernode register {folder}/keys/$owner.pub market --name $owner
done

# Every owner's SuperNode, each in a terminal of its own, or all in one
port={port}
for owner in {names}; do
    port=$((port + 1))
    FLWR_HOME={folder}/homes/$owner flower-supernode --superlink 127.0.0.1:{fleet} \\
        --port $port --root-certificates {folder}/certificates/ca.crt \\
        --auth-supernode-private-key {folder}/keys/$owner \\
        --node-config {folder}/nodes/$owner.toml &
done

# The curator runs the app, and reads the ledger
flwr run {here} market --stream --run-config {folder}/run.toml
noisemarket ledger ls {folder}

# The owners stop their SuperNodes; the curator stops the SuperLink with Ctrl-C
kill $(jobs -p)
"""


def make_job(folder: Path, owners: int, rounds: int) -> list[NodeSetup]:
    """Write a scenario and, for every owner, a folder; gives the set-ups of their SuperNodes."""
    folder.mkdir(parents=True)
    scenario = load_scenario(preset="market", settings={"owners": owners, "rounds": rounds})
    (folder / "scenario.toml").write_text(dump_scenario(scenario), encoding="utf-8")
    key = KeyPair.create(folder / "curator").public_hex
    return deal_out(prepare(scenario), folder / "owners", key)


def main() -> None:
    """Write everything, and say what to do with it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--owners", type=int, default=3)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--port", type=int, default=8000)
    options.add_argument("--folder", type=Path, default=Path("runs/flower-market"))
    given = options.parse_args()

    folder = given.folder.resolve()
    if folder.exists():
        options.error(f"{given.folder} exists already: name another with --folder.")
    nodes = make_job(folder, given.owners, given.rounds)
    certificates = make_certificates(folder / "certificates")
    for name in ("nodes", "flwr"):
        (folder / name).mkdir(mode=0o700)
    for node in nodes:
        make_node_key(folder / "keys", node.name)
        text = tomli_w.dumps(node.config)
        (folder / "nodes" / f"{node.name}.toml").write_text(text, encoding="utf-8")
    connection = {
        "address": f"127.0.0.1:{given.port}",
        "root-certificates": str(certificates.authority),
    }
    text = '[superlink]\ndefault = "market"\n\n[superlink.market]\n' + tomli_w.dumps(connection)
    (folder / "flwr" / "config.toml").write_text(text, encoding="utf-8")
    names_inside = {"scenario": "scenario.toml", "folder": "."}
    (folder / "run.toml").write_text(tomli_w.dumps(names_inside), encoding="utf-8")
    names = " ".join(node.name for node in nodes)
    here = Path(__file__).resolve().parent
    fleet, more = given.port, ""
    if fleet_apart():
        fleet = given.port + 1000
        more = f" \\\n    --fleet-api-address 127.0.0.1:{fleet}"
    words = {"folder": folder, "here": here, "names": names, "port": given.port}
    print(COMMANDS.format(**words, fleet=fleet, more=more), end="")


if __name__ == "__main__":
    main()
