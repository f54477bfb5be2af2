"""The demo's story, from an empty machine to an answer about an image."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from demo import machine, monitoring, services
from demo.commands import LOG, STATE, Cluster, start_log
from demo.question import ask
from demo.screen import DemoError, Screen, clock

LOCAL_IMAGE = "vlmserve.local/operator:dev"
QUESTION = "What is in this picture?"
CPU, H100 = "qwen3-vl-cpu", "qwen3-vl-h100"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="a cluster of yours, instead of one made on this machine")
    parser.add_argument("--image", help="the operator's image in that cluster's registry")
    parser.add_argument("--monitoring", action="store_true", help="a Prometheus as well, and what the dashboards show")
    arguments = parser.parse_args()
    screen = Screen()
    try:
        start_log()
        if arguments.kubeconfig:
            in_your_cluster(screen, arguments.kubeconfig.expanduser().resolve(), arguments.image)
        else:
            on_this_machine(screen)
            if arguments.monitoring:
                watched(screen)
    except DemoError as error:
        screen.say()
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.say()
        print("interrupted; the same command again goes on from here", file=sys.stderr)
        return 130
    return 0


def on_this_machine(screen: Screen) -> None:
    screen.say("A one-node Kubernetes cluster on this machine, the operator in it, and two VLMServices:")
    screen.say(f"  {CPU}   a tiny random-weight Qwen3-VL, really served by unchanged SGLang on the CPU")
    screen.say(f"  {H100}  Qwen3-VL-8B planned for H100s on a simulated node: nothing runs there")
    screen.say("The first time takes about 15 minutes (Go builds, 9 GB of engine); later ones under 3.")

    screen.heading("What this machine has")
    with screen.step("prerequisites"):
        machine.check_prerequisites()
    screen.heading("Programs, images and the engine")
    machine.build(screen)
    screen.heading("The cluster")
    cluster = machine.start(screen)

    screen.heading("The operator")
    with screen.step("helm upgrade --install vlm-operator charts/vlm-operator"):
        replaced = services.install(cluster, LOCAL_IMAGE, machine.operator_build())
    if replaced and cluster.get("vlmservice", CPU):
        with screen.step(f"the operator's image changed: starting {CPU} anew"):
            services.delete(cluster, CPU)
    for name in (CPU, H100):
        services.apply_example(cluster, name)
        screen.say(f"  kubectl apply -f examples/{name}.yaml")

    screen.heading("A real engine on the CPU")
    service = services.wait_until_ready(cluster, screen, CPU)
    ask_the_model(cluster, screen, service["status"]["url"])

    screen.heading("A plan for eight H100s")
    services.wait_for_plan(cluster, H100)
    screen.say(
        "The node h100-0 is simulated by KWOK: its labels are those of a real machine with 8 H100s, but there is"
    )
    screen.say("no GPU and its pods only look as if they ran. The plan is the one that real H100s would get:\n")
    screen.say(cluster.vlm("explain", H100, what="explaining the plan"))

    screen.heading("What there is now")
    screen.say(cluster.kubectl("get", "vlms", what="listing the services").rstrip())
    screen.say()
    next_steps(
        screen,
        cluster,
        (f"kubectl vlm explain {CPU}", "planned against what the engine says it uses"),
        (f"kubectl vlm status {CPU}", "conditions, pods, the next step"),
        (f"kubectl edit vlms {H100}", "change the workload, and see the plan follow"),
        ("make cluster-down", "stop it all; what was built stays"),
    )
    screen.say(f"\ntook {clock(time.monotonic() - screen.started)}; everything stays up")


def watched(screen: Screen) -> None:
    """Prometheus scrapes what was just made, and answers what the chart's dashboards ask."""
    cluster = Cluster.at(STATE / "kubeconfig")
    screen.heading("What Prometheus sees")
    with screen.step("starting Prometheus with the chart's PodMonitors and rules"):
        url = monitoring.start(cluster)
    asked = list(monitoring.panels(monitoring.manifests(cluster), "default", CPU))
    address = cluster.get("service", CPU)["spec"]["clusterIP"]
    with (
        screen.step(f"asking {CPU} until every panel has something to show"),
        monitoring.traffic(f"http://{address}:8000/v1", CPU),
    ):
        empty = monitoring.until_all_have_data(url, asked, 120)
    for panel in asked:
        screen.say(f"  {panel.dashboard:13} {panel.title:34} {shown(url, panel)}")
    if empty:
        raise DemoError(f"no data for {'; '.join(empty)}", log=LOG)
    screen.say(f"\n  Prometheus: {url}   dashboards for Grafana: charts/vlm-operator/files/dashboards")


def shown(url: str, panel: monitoring.Panel) -> str:
    """The newest value of each of the panel's queries."""
    values = []
    for query in panel.queries:
        found = monitoring.answer(url, query)
        values.append(
            f"{float(found[0]['value'][1]):.4g}" if len(found) == 1 else f"{len(found)} series" if found else "-"
        )
    if values == ["-"] * len(values):
        return "needs a GPU" if panel.needs_gpu else "nothing, as it should be"
    return ", ".join(values)


def ask_the_model(cluster: Cluster, screen: Screen, url: str) -> None:
    """One request to the Service's cluster address, which this machine has a route to."""
    address = cluster.get("service", CPU)["spec"]["clusterIP"]
    screen.say(f"\n  asking {url} about a picture of a red disc, stream=true")
    screen.say("  (random weights: the answer is noise; that it is streamed from a real engine is the point)\n")
    screen.stream("  > ")
    answer = ask(f"http://{address}:8000/v1", CPU, QUESTION, screen.stream)
    screen.say()
    screen.say(
        f"\n  first token after {answer.first_token_seconds:.2f} s, "
        f"{answer.chunks} chunks in {answer.total_seconds:.2f} s, on the CPU"
    )


def in_your_cluster(screen: Screen, kubeconfig: Path, image: str | None) -> None:
    cluster = Cluster.at(kubeconfig)
    screen.heading("Your cluster")
    screen.say(cluster.kubectl("get", "nodes", what="reading the nodes").rstrip())
    if not image:
        raise DemoError(
            "IMAGE is not given, and no image of the operator is published yet",
            hint="docker build -t YOUR-REGISTRY/vlm-operator:0.1.0 . && docker push YOUR-REGISTRY/vlm-operator:0.1.0, "
            f"then make demo KUBECONFIG={kubeconfig} IMAGE=YOUR-REGISTRY/vlm-operator:0.1.0",
        )
    screen.heading("The operator")
    with screen.step("helm upgrade --install vlm-operator charts/vlm-operator"):
        services.install(cluster, image)

    screen.heading("A plan for your nodes")
    screen.say(cluster.vlm("plan", "-f", str(services.example(H100)), what="making the plan"))
    screen.say()
    screen.say("Nothing was started. To serve it: kubectl apply -f examples/qwen3-vl-h100.yaml")
    screen.say(
        "To see an engine on the CPU, change examples/qwen3-vl-cpu.yaml: spec.engine.image to an image of yours with"
    )
    screen.say(
        "Python 3.10 or newer and SGLang's wheels (tried: 0.5.23 on Debian 12), spec.model.uri to a model in a claim"
    )
    screen.say(
        "(pvc://CLAIM/PATH); and remove the volume `sglang`, which brings the wheels on this project's own cluster."
    )
    screen.say()
    next_steps(
        screen,
        cluster,
        ("kubectl vlm plan -f SERVICE.yaml", "what would be run, and why"),
        (f"helm -n {services.NAMESPACE} uninstall {services.RELEASE}", "remove the operator; services stay"),
    )


def next_steps(screen: Screen, cluster: Cluster, *commands: tuple[str, str]) -> None:
    """Where things are, and commands to go on with, each with what it is for."""
    folders = f"{Path(cluster.kubectl_program).parent}:{Path(sys.executable).parent}"
    screen.say(f"kubeconfig: {cluster.kubeconfig}   log of this run: {LOG}")
    screen.say("Try next:")
    screen.say(f"  export KUBECONFIG={cluster.kubeconfig} PATH={folders}:$PATH")
    for command, text in (("kubectl explain vlmservice.spec.workload", "what can be written"), *commands):
        screen.say(f"  {command:47} {text}")


if __name__ == "__main__":
    sys.exit(main())
