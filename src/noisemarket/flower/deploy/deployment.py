"""A Flower deployment on this machine: one SuperLink, and SuperNodes, on loopback, or simulated.

With TLS and SuperNode authentication, as over real hosts: the SuperLink has a certificate made for
it, each SuperNode a key that was registered under its name. Without (``secure=False``) nodes
register themselves, and anyone on this machine can.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import private_folder, write_atomic
from noisemarket.flower.deploy.certificates import NodeKey, make_node_key
from noisemarket.flower.deploy.processes import HOST, ShortFolder
from noisemarket.flower.deploy.superlink import CONNECTION, SUPERLINK, SuperLink, Value
from noisemarket.flower.deploy.warm_apps import OWNER, WarmApps
from noisemarket.flower.host_files import NODES, node_file
from noisemarket.machine import available_cores

POLL = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
"""Flower's variable: how often, in seconds, a SuperNode looks whether there is an app to start."""

WARM = "warm starts"
"""The name of the process that others are copied from; no node can have it."""

_RETRY = 5.0  # seconds between two tries to start a node: each takes seconds of processor time
_PATIENCE, _PATIENCE_PER_NODE = 120.0, 6.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


def poll_interval(nodes: int, cores: int) -> float:
    """How often the SuperNodes of one machine look for work, in seconds.

    A message takes a node more than a second of processor time, so that a round lasts more than
    ``nodes / cores`` seconds. A tenth of that is lost by waiting; to look more often costs more, in
    nodes that look for nothing.
    """
    return min(3.0, max(0.1, 0.1 * nodes / cores))


@dataclass(frozen=True)
class NodeSetup:
    """A SuperNode: its name, and the node config that its ClientApp will see."""

    name: str
    config: Mapping[str, Value] = field(default_factory=dict)


class Deployment(SuperLink):
    """A SuperLink and SuperNodes that run as long as the ``with`` block.

    ``register`` may leave nodes out: they then run with a key that is on no list. ``poll`` is how
    often they look for work, and ``patience`` how long they may take to start, by default what fits
    their number. ``preload`` is what apps import, done once for all of them (``warm_apps``); with
    nothing, every process starts from scratch. All else as ``SuperLink``.
    """

    def __init__(
        self,
        nodes: Sequence[NodeSetup],
        folder: Path | None = None,
        *,
        secure: bool = True,
        register: Sequence[str] | None = None,
        patience: float | None = None,
        poll: float | None = None,
        curator: Path | None = None,
        preload: Sequence[str] = OWNER,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        for name in self.nodes:
            if not _NAME.fullmatch(name) or name == SUPERLINK:
                raise BadInput("node", name, "give letters, digits, - _ . and at most 64 of them.")
        if len(self.nodes) != len(nodes) or not nodes:
            raise BadInput("nodes", len(nodes), "give at least one node, each a name of its own.")
        longest = max(_PATIENCE, _PATIENCE_PER_NODE * len(nodes)) if patience is None else patience
        every = poll_interval(len(nodes), available_cores()) if poll is None else poll
        more = {POLL: f"{every:g}"}
        super().__init__(folder, secure=secure, patience=longest, curator=curator, environment=more)
        self.more_options = ["--enable-supernode-auth"] if secure else []
        self._on_list = list(self.nodes) if register is None else list(register)
        self._preload = tuple(preload)
        self._warm: WarmApps | None = None
        self._keys: dict[str, NodeKey] = {}
        self.node_ids: dict[str, int] = {}
        """Flower's number of each node that was registered; it keeps it for good."""

    def online(self) -> list[str]:
        """The nodes that are online: by name, or by number where they registered themselves."""
        names = {str(number): name for name, number in self.node_ids.items()}

        def read(answer: Any) -> list[str]:
            return [str(one["node-id"]) for one in answer["nodes"] if one["status"] == "online"]

        online = self._flwr(["supernode", "list", CONNECTION], read)
        return [names.get(number, number) for number in online]

    @property
    def warm(self) -> bool:
        """Whether processes are copied from one that has imported what they need."""
        return self._warm is not None and self._warm.ready

    def wait_online(self, count: int) -> None:
        """Wait until this many nodes are online."""
        end = time.monotonic() + self.patience
        while len(online := self.online()) < count:
            if time.monotonic() > end:
                raise NoisemarketError(f"Only {len(online)} of {count} SuperNodes came online.")
            time.sleep(0.5)

    def start_node(self, name: str) -> None:
        """Start a node. One that was killed is let in again only when the SuperLink has missed its
        heartbeats, a minute later: until then this tries again."""
        config = private_folder(self.folder / "nodes") / f"{name}.toml"
        write_atomic(config, tomli_w.dumps(self.nodes[name].config), private=True)
        command = [
            self._command("flower-supernode"),
            "--superlink", self.fleet_address,
            "--host", HOST,
            "--port", str(self._ports[name]),
            "--node-config", str(config),
        ]  # fmt: skip
        if self._certificates is None:
            command.append("--insecure")
        else:
            command += [
                "--root-certificates", str(self._certificates.authority),
                "--auth-supernode-private-key", str(self._keys[name].private),
            ]  # fmt: skip
        more = {} if self._warm is None else {"PATH": self._warm.path}
        self.processes.start(name, command, self._home(name), more)

    def restart_node(self, name: str) -> None:
        """Start a node that was stopped or killed, and wait until it is in again."""
        end, next_try = time.monotonic() + self.patience, 0.0
        log = self.log(name)
        seen = log.stat().st_size if log.exists() else 0
        while time.monotonic() < end:
            if time.monotonic() >= next_try and not self.processes.alive(name):
                self.processes.stop(name)
                self.start_node(name)
                next_try = time.monotonic() + _RETRY
            if b"SuperNode ID" in log.read_bytes()[seen:]:
                return
            time.sleep(0.5)
        raise NoisemarketError(f"{name} did not come back: {self.processes.tail(name)}")

    def stop_node(self, name: str, *, kill: bool = False) -> None:
        """Stop a node and the ClientApp that it runs."""
        self.processes.stop(name, kill=kill)

    def close(self) -> None:
        """Stop everything and remove the temporary folder."""
        super().close()
        if self._warm is not None:
            self._warm.close()
            self._warm = None

    # Setting up

    def _open(self, ports: Sequence[str] = ()) -> None:
        if self.secure:
            self._keys = {n: make_node_key(self.folder / "keys", n) for n in self.nodes}
        super()._open([*ports, *self.nodes])
        if self._preload:
            environment = self.processes.environment(self._home(WARM))
            self._warm = WarmApps(self._preload, environment, self.log(WARM))
            self._warm.wait()
        if self.secure:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(self.register, self._on_list))
        for name in self.nodes:
            self.start_node(name)
        expected = [name for name in self.nodes if not self.secure or name in self._on_list]
        self.wait_online(len(expected))

    def _command(self, name: str) -> str:
        return super()._command(name) if self._warm is None else self._warm.command(name)

    def register(self, name: str) -> None:
        """Put a node's public key on the SuperLink's list, under the owner's name."""
        key = str(self._keys[name].public)
        words = ["supernode", "register", key, CONNECTION, "--name", name]
        self.node_ids[name] = self._flwr(words, lambda answer: int(answer["node-id"]))


class Simulation(SuperLink):
    """A SuperLink that simulates nodes, by Flower's own runtime, as long as the ``with`` block.

    Flower keeps a few workers of Ray busy with the nodes' messages, each in a process that has
    imported everything before. So one machine holds a thousand owners. A node is known by its
    number alone: its config is the file of that number in a folder that an environment variable
    names, as Ray's workers inherit it. Where ``RAY_ADDRESS`` names a cluster, Ray uses that; all
    its machines must then see the folder, and the owners' folders.

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
        more = {POLL: "0.5", "RAY_TMPDIR": str(self._ray.path), **_RAY}
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
        nodes = private_folder(self.folder / "nodes")
        for number, node in enumerate(self._nodes):
            write_atomic(node_file(nodes, number), tomli_w.dumps(node.config), private=True)
        super()._open(ports)
