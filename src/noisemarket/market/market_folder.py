"""Where a market keeps its things: what is the curator's, what is an owner's, what is for all.

scenario.toml    the scenario, to repeat the experiment
market.json      the job: its name, when it was opened, where its ledger is
outcome.json     what the job came to, once it is settled
ledger.sqlite    the ledger, unless it is elsewhere
curator/         the curator's key, events, trace, checkpoint, metrics and model, the ledger's head,
                 and receipts
owners/          the accountant's journal and, until all is settled, the key of the noise
owners/owner-X/  an owner's key, its secrets, its contract and its privacy statement
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.rounds import RoundResult
from noisemarket.files import private_folder, read_private, refuse_open, write_atomic
from noisemarket.ledger.database import LEDGER_FILE
from noisemarket.market.run_folder import RunFolder
from noisemarket.privacy.noise import KEY_BYTES, KeyedNoise

VALID_HOURS = 24.0
"""How long an offer may be signed."""

JOB = "market.json"
SCENARIO = "scenario.toml"
JOURNAL = "privacy.journal"
CHECKPOINT = "checkpoint.npz"
METRICS = "metrics.jsonl"
MODEL = "model.npz"
TRACE = "trace.csv"
NOISE_KEY = "noise.key"
HEAD = "head.json"
"""The ledger's head, as the curator noted it last."""


@dataclass(frozen=True)
class JobManifest:
    """What is fixed when a job is opened, and must be the same when it is resumed."""

    job: str
    opened_at: str
    expires_at: str
    ledger: str


class MarketFolder:
    """A run folder as the market uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.curator, self.owners = path / "curator", path / "owners"

    def manifest(self, ledger: str = "") -> JobManifest:
        """The job's manifest, written on the first call."""
        path = self.path / JOB
        if path.exists():
            try:
                return JobManifest(**json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError):
                raise BadInput("resume", str(path), "cannot be read: start anew.") from None
        now = datetime.now(UTC)
        until = now + timedelta(hours=VALID_HOURS)
        opened, expires = (when.isoformat(timespec="milliseconds") for when in (now, until))
        manifest = JobManifest(secrets.token_hex(16), opened, expires, ledger)
        RunFolder(self.path).write_json(JOB, asdict(manifest))
        return manifest

    def ledger(self, manifest: JobManifest) -> str:
        """Where the job's ledger is: a URL, or a file in the folder."""
        return manifest.ledger or str(self.path / LEDGER_FILE)

    def prepare(self) -> None:
        """Make the folders that only their owners may enter."""
        for path in (self.curator, self.owners):
            private_folder(path)

    def write_metrics(self, results: Sequence[RoundResult]) -> None:
        """Add rounds to the metrics; from the first round on, or from none, they begin anew."""
        folder = RunFolder(self.curator)
        lines = "".join(json.dumps(result.to_dict()) + "\n" for result in results)
        if not results or results[0].number == 1:
            folder.write_text(METRICS, lines)
        else:
            folder.append(METRICS, lines)

    def noise_key(self) -> bytes:
        """The secret key of the owners' noise, drawn on the first call.

        With it, a round that was cut off is made again bit by bit and costs nothing more. One key
        stands for all owners here, because one process plays them all.
        """
        path = self.owners / NOISE_KEY
        if not path.exists():
            refuse_open(path.parent, "noise key", "start anew")
            write_atomic(path, KeyedNoise.new_key(), private=True)
        key = read_private(path, "noise key", "start anew")
        if len(key) != KEY_BYTES:
            raise BadInput("noise key", str(path), "is damaged: the job cannot be resumed.")
        return key

    def forget_noise_key(self) -> None:
        """Delete the key of the noise: with it and the uploads the noise could be removed."""
        path = self.owners / NOISE_KEY
        try:
            path.unlink(missing_ok=True)
        except OSError as problem:
            why = problem.strerror or problem
            raise NoisemarketError(f"{path} cannot be deleted: {why}.") from None
