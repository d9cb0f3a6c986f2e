"""Flower's own simulation runtime on this machine: a SuperLink, and a node for each owner.

Flower keeps a few workers of Ray busy with the nodes' messages, each in a process that has imported
everything before. So one machine holds a thousand owners. A node is known by its number alone: its
config is the file of that number in a folder that an environment variable names, as Ray's workers
inherit it. Where ``RAY_ADDRESS`` names a cluster, Ray uses that; all its machines must then see the
folder, and the owners' folders.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import tomli_w

from noisemarket.cores import available_cores
from noisemarket.errors import BadInput
from noisemarket.files import private_folder, write_atomic
from noisemarket.flower.deploy.deployment import POLL, NodeSetup
from noisemarket.flower.deploy.short_folder import ShortFolder
from noisemarket.flower.deploy.superlink import SuperLink
from noisemarket.flower.host_files import NODES, node_file

_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


class Simulation(SuperLink):
    """A SuperLink that simulates nodes as long as the ``with`` block.

    Only the configs of ``nodes`` count. ``workers`` messages are worked on at a time, by default
    one for each core. All else as ``SuperLink``.
    """

    more_options = ("--simulation",)

    def __init__(
        self,
        nodes: Sequence[NodeSetup],
        folder: Path | None = None,
        *,
        secure: bool = True,
        workers: int | None = None,
        patience: float = 120.0,
        curator: Path | None = None,
    ) -> None:
        if not nodes:
            raise BadInput("nodes", 0, "give at least one node.")
        # Sockets lie in it, whose paths may not be long: the folder may be anywhere.
        self._ray = ShortFolder("ray")
        more = {POLL: "0.1", "RAY_TMPDIR": str(self._ray.path), **_RAY}
        super().__init__(
            folder, secure=secure, patience=patience, curator=curator, environment=more
        )
        self._own[NODES] = str(self.folder.resolve() / "nodes")
        self._nodes = list(nodes)
        settings = [f"num-supernodes={len(nodes)}", "client-resources-num-cpus=1"]
        if "RAY_ADDRESS" not in os.environ:
            settings.append(f"init-args-num-cpus={workers or available_cores()}")
        self.run_options = ["--federation-config", " ".join(settings)]

    def close(self) -> None:
        """Stop everything, Ray included."""
        super().close()
        self._ray.close()

    def _open(self, ports: Sequence[str] = ()) -> None:
        place = private_folder(self.folder / "nodes")
        for number, node in enumerate(self._nodes):
            write_atomic(node_file(place, number), tomli_w.dumps(node.config), private=True)
        super()._open(ports)
