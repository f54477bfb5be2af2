"""Certificates and kubeconfig files, made with the openssl program (the standard library makes none)."""

import base64
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .shell import Argument, run

DAYS = "3650"
MASTERS = "system:masters"


@dataclass(frozen=True)
class Certificate:
    """One leaf certificate. Kubernetes reads the user from the common name and the group from the organisation."""

    name: str
    common_name: str
    organisation: str = ""
    addresses: tuple[str, ...] = ()  # subject alternative names as openssl writes them: DNS:NAME, IP:ADDRESS

    @property
    def subject(self) -> str:
        return (f"/O={self.organisation}" if self.organisation else "") + f"/CN={self.common_name}"


def issue(folder: Path, certificates: list[Certificate]) -> None:
    """Makes ca, sa (the key for service account tokens) and the certificates in `folder`, unless they are there.

    A change of the list makes everything anew, so that an old certificate never meets a new program.
    """
    wanted = json.dumps([[c.name, c.subject, *c.addresses] for c in certificates])
    stamp = folder / "issued.json"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    authority = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign,digitalSignature"
    request(folder, "ca", "/CN=vlm-cluster-ca", authority)
    for certificate in certificates:
        extensions = "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth"
        if certificate.addresses:
            extensions += f"\nsubjectAltName={','.join(certificate.addresses)}"
        request(folder, certificate.name, certificate.subject, extensions, signed=True)
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "sa.key"])
    stamp.write_text(wanted)


def request(folder: Path, name: str, subject: str, extensions: str, *, signed: bool = False) -> None:
    """One key and its certificate in one call; a configuration of our own keeps the system's openssl.cnf out."""
    config = folder / f"{name}.cnf"
    config.write_text(f"[req]\ndistinguished_name=subject\nx509_extensions=use\n[subject]\n[use]\n{extensions}\n")
    command: list[Argument] = ["openssl", "req", "-x509", "-config", config, "-days", DAYS, "-subj", subject]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / f"{name}.key"]
    if signed:
        command += ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key"]
    run([*command, "-out", folder / f"{name}.crt"])


def write_kubeconfig(path: Path, folder: Path, user: str, server: str) -> None:
    """A kubeconfig with the certificates inside, so that the file can be copied anywhere. JSON is YAML as well."""

    def data(file: str) -> str:
        return base64.b64encode((folder / file).read_bytes()).decode()

    name = "vlm-cluster"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": data("ca.crt")}}],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": data(f"{user}.crt"), "client-key-data": data(f"{user}.key")},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1) + "\n")
    if owner := os.environ.get("SUDO_UID"):  # the cluster needs root, the people who use it do not
        os.chown(path, int(owner), int(os.environ.get("SUDO_GID", "-1")))
