"""Verify an exported ledger without noisemarket: every hash, signature, seal and payment.

    noisemarket ledger export FOLDER --json chain.json
    python examples/verify_ledger.py chain.json CURATOR_KEY

It needs only Python and the package cryptography. CURATOR_KEY is the curator's public key, which
you noted when the job began.
"""

import hashlib
import json
import pathlib
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NAMES = "seq", "job", "kind", "contract", "once", "body", "recorded_at", "previous"


def check(good, seq, what):
    """End with the first bad entry."""
    if not good:
        sys.exit(f"entry {seq}: {what}")


def signed(key, message, signature):
    """Whether an Ed25519 signature holds; all in hexadecimal digits but the message."""
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    try:
        return public.verify(bytes.fromhex(signature), message) is None
    except Exception:
        return False


def plain(values):
    """Canonical JSON (RFC 8785) of texts, whole numbers and null."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def owed(contract, delivered):
    """What a kept contract is paid for so many rounds, in micro-units."""
    return contract["payment"] * delivered // contract["rounds"]


exported, curator = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8")), sys.argv[2]
last, unsealed, contracts, delivered, kept, total = "0" * 64, set(), {}, {}, {}, 0
for number, entry in enumerate(exported["entries"], start=1):
    seq, job, kind, contract, once, body, at, previous = fields = [entry[name] for name in NAMES]
    check(seq == number and previous == last, seq, "is not in its place")
    last = hashlib.sha256(b"noisemarket entry v1\0" + plain(fields)).hexdigest()
    check(entry["hash"] == last, seq, "was changed")
    said = json.loads(body)
    if kind == "opened":
        check(said["curator_key"] == curator, seq, "is of another curator")
    elif kind == "offered":
        document = body.removeprefix('{"contract":').removesuffix("}").encode()
        check(hashlib.sha256(document).hexdigest() == contract, seq, "holds another contract")
        contracts[contract], delivered[contract] = (document, said["contract"]), 0
    elif kind == "signed":
        document, terms = contracts[contract]
        for role, key in (("owner", terms["owner_key"]), ("curator", curator)):
            message = b"noisemarket contract v1\0" + role.encode() + b"\0" + document
            check(
                signed(key, message, said[role + "_signature"]), seq, f"is not signed by the {role}"
            )
    elif kind == "delivered":
        delivered[contract] += 1
    elif kind == "verified":
        kept[contract] = said["kept"]
    elif kind == "paid":
        total += (due := kept[contract] and owed(contracts[contract][1], delivered[contract]))
        check(said["amount"] == due, seq, "pays what is not owed")
    elif kind == "sealed":
        message = b"noisemarket seal v1\0ledger\0" + plain([seq, job, at, previous])
        check(signed(curator, message, said["signature"]), seq, "is not the curator's seal")
    unsealed = unsealed - {job} if kind == "sealed" else unsealed | {job}
check(
    not unsealed and exported["head"] == f"{number}:{last}",
    "last",
    "is not sealed, or not the head",
)
print(f"Sound: {number} entries, {total / 1e6:.6f} paid. Head: {exported['head']}")
