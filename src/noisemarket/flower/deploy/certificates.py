"""Certificates for a SuperLink and keys for SuperNodes, made for one deployment.

A SuperNode proves who it is with a private key of a NIST curve in OpenSSH format; the curator puts
the public key on the SuperLink's list (``flwr supernode register``). Private files are readable by
their owner alone. A deployment over real hosts brings certificates of its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from noisemarket.files import private_folder, write_atomic

_DAYS = 30


@dataclass(frozen=True)
class Certificates:
    """Files of a server: the authority that vouches for it, its certificate and its key."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class NodeKey:
    """Files of a SuperNode's key pair."""

    private: Path
    public: Path


def make_certificates(
    folder: Path, hosts: Sequence[str] = ("127.0.0.1", "localhost")
) -> Certificates:
    """A new authority and a certificate for a server under these names; the authority's own key
    is thrown away, so that it can vouch for nothing else."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority_name = _named("noisemarket authority of this deployment")
    start = datetime.now(UTC) - timedelta(minutes=5)
    end = start + timedelta(days=_DAYS)

    def signed(subject: x509.Name, key: ec.EllipticCurvePublicKey, *, issues: bool) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority_name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=issues, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
                critical=False,
            )
        )
        if issues:
            usage = x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
        else:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(authority_key, hashes.SHA384()).public_bytes(Encoding.PEM)

    private_folder(folder)
    files = Certificates(folder / "ca.crt", folder / "server.pem", folder / "server.key")
    write_atomic(files.authority, signed(authority_name, authority_key.public_key(), issues=True))
    own = signed(_named(hosts[0]), server_key.public_key(), issues=False)
    write_atomic(files.certificate, own)
    key = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_atomic(files.key, key, private=True)
    return files


def make_node_key(folder: Path, name: str = "node") -> NodeKey:
    """A new key pair for a SuperNode."""
    private_folder(folder)
    key = ec.generate_private_key(ec.SECP384R1())
    files = NodeKey(folder / name, folder / f"{name}.pub")
    text = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_atomic(files.private, text, private=True)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_atomic(files.public, public)
    return files


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
