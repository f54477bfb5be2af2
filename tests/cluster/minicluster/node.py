"""The node: a mount namespace of its own, containerd, the kubelet, kube-proxy and the cluster's DNS."""

import json
from collections.abc import Sequence
from pathlib import Path

from . import cgroups, network
from .archive import PAUSE
from .kube import Manifest, apply
from .paths import BIN, CNI, CONTAINERD, tool
from .pki import MASTERS, Certificate
from .processes import Daemons
from .shell import Argument, attempt, run

NAME = "vlm-node"
SOCKET = "/run/containerd/containerd.sock"
HOLDER = "node-mounts"


def certificates() -> list[Certificate]:
    user, group = f"system:node:{NAME}", "system:nodes"
    return [
        Certificate("kubelet", user, group),
        Certificate("kubelet-server", user, group, (f"DNS:{NAME}", f"IP:{network.NODE_IP}", "IP:127.0.0.1")),
        Certificate("kube-proxy", "system:kube-proxy"),
        Certificate("coredns", "coredns", MASTERS),
    ]


def private_folders(run_folder: Path) -> dict[str, Path]:
    """Folders whose paths kubelet, containerd and its shims have built in, and where ours lie instead."""
    node = run_folder / "node"
    return {
        "/var/lib/kubelet": node / "kubelet",
        "/var/lib/cni": node / "cni",
        "/var/lib/containerd": CONTAINERD,
        "/var/log/pods": node / "pod-logs",
        "/var/log/containers": node / "container-logs",
        "/run/containerd": node / "containerd",
    }


def hold_mounts(daemons: Daemons) -> None:
    """Starts the process that keeps the node's mount namespace: nothing the node mounts shows on the machine."""
    ready = daemons.folder / "node" / "mounted"
    script = ["mount --make-rshared /"]
    for inside, outside in private_folders(daemons.folder).items():
        outside.mkdir(parents=True, exist_ok=True)
        script.append(f"mkdir -p {inside} && mount --bind '{outside}' {inside}")
    script += [f"touch '{ready}'", "exec sleep infinity"]
    shell: list[Argument] = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(script)]
    daemons.start(HOLDER, network.inside(shell))
    daemons.wait_for("the node's mounts", ready.exists, daemon=HOLDER, seconds=10)


def inside(daemons: Daemons, argv: Sequence[Argument]) -> list[Argument]:
    """The command, run in the node's network and mounts."""
    return ["nsenter", "--target", str(daemons.pid(HOLDER) or "gone"), "--net", "--mount", *argv]


def start_containerd(daemons: Daemons) -> None:
    folder = daemons.folder / "node"
    cni = folder / "cni-config"
    cni.mkdir(parents=True, exist_ok=True)
    (cni / "10-vlm.conflist").write_text(json.dumps(pod_network(), indent=1))
    config = folder / "containerd.toml"
    config.write_text(containerd_config(cni))
    path = f"PATH={BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # its shim, and Debian's runc
    daemons.start("containerd", inside(daemons, ["env", path, tool("containerd"), "--config", config]))

    def answers() -> bool:
        return attempt(ctr(daemons, "version")).returncode == 0

    daemons.wait_for("containerd answers", answers, daemon="containerd", seconds=30)


def ctr(daemons: Daemons, *arguments: Argument) -> list[Argument]:
    """ctr in the namespace that the kubelet uses."""
    return inside(daemons, [tool("ctr"), "--address", SOCKET, "--namespace", "k8s.io", *arguments])


def import_image(daemons: Daemons, archive: Path) -> None:
    run(ctr(daemons, "images", "import", archive))


def pod_network() -> Manifest:
    bridge = {
        "type": "bridge",
        "bridge": "vlmc0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": network.PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    port_mapping = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "vlm", "plugins": [bridge, port_mapping]}


def containerd_config(cni: Path) -> str:
    """overlayfs cannot lie on overlayfs, as it would in most containers; plain copies work there, and cost time."""
    file_system = run(["stat", "--file-system", "--format=%T", CONTAINERD]).strip()
    snapshotter = "native" if file_system == "overlayfs" else "overlayfs"
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
address = "{SOCKET}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "{snapshotter}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE, scores below our own are refused.
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
netns_mounts_under_state_dir = true
disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{CNI}"]
conf_dir = "{cni}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def start_kubelet(daemons: Daemons, pki: Path, kubeconfig: Path) -> None:
    config = daemons.folder / "node" / "kubelet.yaml"
    config.write_text(json.dumps(kubelet_config(pki), indent=1))
    command: list[Argument] = [tool("kubelet"), f"--config={config}", f"--kubeconfig={kubeconfig}", "--v=2"]
    command += [f"--hostname-override={NAME}", f"--node-ip={network.NODE_IP}"]
    daemons.start("kubelet", inside(daemons, command))


def kubelet_config(pki: Path) -> Manifest:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet-server.key",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.NAME}",
        "failSwapOn": False,
        "clusterDNS": [network.DNS_SERVICE_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": "/etc/resolv.conf",
        # Images come from files and cannot be pulled again: no clean-up, and no eviction before the disk is full.
        "imageGCHighThresholdPercent": 99,
        "imageGCLowThresholdPercent": 98,
        "imageMinimumGCAge": "240h",
        "evictionHard": {
            "memory.available": "200Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
    }


def start_proxy(daemons: Daemons, kubeconfig: Path) -> None:
    config = daemons.folder / "node" / "kube-proxy.yaml"
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": network.PODS,
        "hostnameOverride": NAME,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "conntrack": {"maxPerCore": 0, "min": 0},  # the machine's connection table is not ours to size
    }
    config.write_text(json.dumps(settings, indent=1))
    daemons.start("kube-proxy", network.inside([tool("kube-proxy"), f"--config={config}"]))


def start_dns(daemons: Daemons, kubeconfig: Path) -> None:
    """CoreDNS as a process on the node, behind the usual Service `kube-dns`. It knows the cluster's names only."""
    config = daemons.folder / "node" / "Corefile"
    config.write_text(f"""\
.:53 {{
    bind {network.NODE_IP}
    ready {network.NODE_IP}:8181
    errors
    cache 2
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        ttl 2
    }}
}}
""")
    daemons.start("coredns", network.inside([tool("coredns"), "-conf", config]))
    metadata = {"name": "kube-dns", "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "kube-dns"}}
    ports = [{"name": "dns", "protocol": "UDP", "port": 53}, {"name": "dns-tcp", "protocol": "TCP", "port": 53}]
    service = {"clusterIP": network.DNS_SERVICE_IP, "ports": ports}
    endpoints = [{"addresses": [network.NODE_IP], "conditions": {"ready": True}}]
    slices = {"addressType": "IPv4", "endpoints": endpoints, "ports": ports}
    apply(
        [
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, **slices},
        ]
    )
