"""Command lines of etcd and the control plane, for the whole cluster and for an API server alone."""

from pathlib import Path

from . import network
from .paths import tool
from .pki import MASTERS, Certificate
from .shell import Argument

ADMIN = Certificate("admin", "vlm-cluster-admin", MASTERS)
SERVICE_NAMES = (
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
    "IP:127.0.0.1",
)
API_PORT = 6443


def certificates() -> list[Certificate]:
    addresses = (*SERVICE_NAMES, f"IP:{network.NODE_IP}", f"IP:{network.API_SERVICE_IP}")
    return [
        Certificate("kube-apiserver", "kube-apiserver", addresses=addresses),
        Certificate("apiserver-kubelet", "apiserver-kubelet", MASTERS),
        Certificate("front-proxy", "front-proxy"),
        Certificate("kube-controller-manager", "system:kube-controller-manager"),
        Certificate("kube-scheduler", "system:kube-scheduler"),
        ADMIN,
    ]


def etcd(data: Path, client: str, peer: str) -> list[Argument]:
    """`client` and `peer` are URLs. Nothing here has to survive a power cut, so etcd need not wait for the disk."""
    return [
        tool("etcd"),
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(pki: Path, etcd_url: str, *, address: str, bind: str, port: int) -> list[Argument]:
    """What every API server here has in common."""
    return [
        tool("kube-apiserver"),
        f"--etcd-servers={etcd_url}",
        f"--bind-address={bind}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={network.SERVICES}",
        f"--tls-cert-file={pki}/kube-apiserver.crt",
        f"--tls-private-key-file={pki}/kube-apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.key",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--profiling=false",
    ]


def cluster_apiserver(pki: Path, etcd_url: str) -> list[Argument]:
    """The API server of the whole cluster: it also reaches the kubelet, and lets extension API servers trust it."""
    return [
        *apiserver(pki, etcd_url, address=network.NODE_IP, bind="0.0.0.0", port=API_PORT),
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={pki}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy.crt",
        f"--proxy-client-key-file={pki}/front-proxy.key",
    ]


def client_flags(kubeconfig: Path) -> list[Argument]:
    """One replica needs no leader; the usual limit of 20 requests a second would slow hundreds of simulated pods."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        "--profiling=false",
    ]


def controller_manager(pki: Path, kubeconfig: Path) -> list[Argument]:
    return [
        tool("kube-controller-manager"),
        *client_flags(kubeconfig),
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--use-service-account-credentials",
        # Tests of autoscaling wait for several of its rounds. Kubernetes' own period is 15 s.
        "--horizontal-pod-autoscaler-sync-period=5s",
    ]


def scheduler(kubeconfig: Path) -> list[Argument]:
    return [tool("kube-scheduler"), *client_flags(kubeconfig)]
