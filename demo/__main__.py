"""`make demo`: from an empty machine to an answer about an image."""

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
    parser.add_argument("--kubeconfig", type=Path, help="use your own cluster instead of one on this machine")
    parser.add_argument("--image", help="the operator's image in that cluster's registry")
    parser.add_argument(
        "--monitoring", action="store_true", help="start Prometheus, too, and show the dashboards' values"
    )
    arguments = parser.parse_args()
    screen = Screen()
    try:
        start_log()
        if arguments.kubeconfig:
            in_your_cluster(screen, arguments.kubeconfig.expanduser().resolve(), arguments.image)
        else:
            on_this_machine(screen)
            if arguments.monitoring:
                show_monitoring(screen)
    except DemoError as error:
        screen.say()
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.say()
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    return 0


def on_this_machine(screen: Screen) -> None:
    screen.say("This starts a one-node Kubernetes cluster on this machine, the operator, and two VLMServices:")
    screen.say(f"  {CPU}   a tiny Qwen3-VL with random weights, served by real SGLang on the CPU")
    screen.say(f"  {H100}  Qwen3-VL-8B, planned for H100s on a simulated node where nothing runs")
    screen.say("The first run takes about 15 minutes (Go builds, 9 GB for the engine), later runs 3 minutes.")

    screen.heading("Prerequisites")
    with screen.step("checking the machine"):
        machine.check_prerequisites()
    screen.heading("Programs, images and the engine")
    machine.build(screen)
    screen.heading("The cluster")
    cluster = machine.start(screen)

    screen.heading("The operator")
    with screen.step("helm upgrade --install vlm-operator charts/vlm-operator"):
        replaced = services.install(cluster, LOCAL_IMAGE, machine.operator_build())
    if replaced and cluster.get("vlmservice", CPU):
        with screen.step(f"the operator's image has changed: restarting {CPU}"):
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
        "KWOK simulates the node h100-0: it has the labels of a machine with 8 H100s, but no GPU, and its pods do"
    )
    screen.say("not really run. Real H100s would get the same plan:\n")
    screen.say(cluster.vlm("explain", H100, what="explaining the plan"))

    screen.heading("Result")
    screen.say(cluster.kubectl("get", "vlms", what="listing the services").rstrip())
    screen.say()
    next_steps(
        screen,
        cluster,
        (f"kubectl vlm explain {CPU}", "planned values and values in force"),
        (f"kubectl vlm status {CPU}", "conditions, pods and the next step"),
        (f"kubectl edit vlms {H100}", "change the workload and see the new plan"),
        ("make cluster-down", "stop the cluster, keep what was built"),
    )
    screen.say(f"\nfinished in {clock(time.monotonic() - screen.started)}; everything keeps running")


def show_monitoring(screen: Screen) -> None:
    """Starts Prometheus and shows the value of every panel in the chart's dashboards."""
    cluster = Cluster.at(STATE / "kubeconfig")
    screen.heading("Monitoring")
    with screen.step("starting Prometheus with the chart's PodMonitors and rules"):
        url = monitoring.start(cluster)
    asked = list(monitoring.panels(monitoring.manifests(cluster), "default", CPU))
    address = cluster.get("service", CPU)["spec"]["clusterIP"]
    with (
        screen.step(f"sending requests to {CPU} until every panel has data"),
        monitoring.traffic(f"http://{address}:8000/v1", CPU),
    ):
        empty = monitoring.until_all_have_data(url, asked, 120)
    for panel in asked:
        screen.say(f"  {panel.dashboard:13} {panel.title:34} {newest_values(url, panel)}")
    if empty:
        raise DemoError(f"no data for {'; '.join(empty)}", log=LOG)
    screen.say(f"\n  Prometheus: {url}   Grafana dashboards: charts/vlm-operator/files/dashboards")


def newest_values(url: str, panel: monitoring.Panel) -> str:
    """The newest value of each query of a panel."""
    values = []
    for query in panel.queries:
        series = monitoring.answer(url, query)
        values.append(
            f"{float(series[0]['value'][1]):.4g}" if len(series) == 1 else f"{len(series)} series" if series else "-"
        )
    if values == ["-"] * len(values):
        return "needs a GPU" if panel.needs_gpu else "empty, as expected"
    return ", ".join(values)


def ask_the_model(cluster: Cluster, screen: Screen, url: str) -> None:
    """Sends a request to the Service's cluster IP, which this machine can reach."""
    address = cluster.get("service", CPU)["spec"]["clusterIP"]
    screen.say(f"\n  sending a picture of a red disc to {url}, stream=true")
    screen.say("  (the weights are random, so the answer is noise, but a real engine streams it)\n")
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
            "IMAGE is not set, and no image of the operator is published yet",
            hint="docker build -t YOUR-REGISTRY/vlm-operator:0.1.0 . && docker push YOUR-REGISTRY/vlm-operator:0.1.0, "
            f"then make demo KUBECONFIG={kubeconfig} IMAGE=YOUR-REGISTRY/vlm-operator:0.1.0",
        )
    screen.heading("The operator")
    with screen.step("helm upgrade --install vlm-operator charts/vlm-operator"):
        services.install(cluster, image)

    screen.heading("A plan for your nodes")
    screen.say(cluster.vlm("plan", "-f", str(services.example(H100)), what="making the plan"))
    screen.say()
    screen.say("Nothing was started. To serve the model: kubectl apply -f examples/qwen3-vl-h100.yaml")
    screen.say(
        "To serve a model on the CPU, change examples/qwen3-vl-cpu.yaml: set spec.engine.image to an image with Python"
    )
    screen.say("3.10 or newer and SGLang's wheels (tested on Debian 12), set spec.model.uri to a model in a claim")
    screen.say("(pvc://CLAIM/PATH), and remove the volume `sglang`.")
    screen.say()
    next_steps(
        screen,
        cluster,
        ("kubectl vlm plan -f SERVICE.yaml", "show what would run, and why"),
        (f"helm -n {services.NAMESPACE} uninstall {services.RELEASE}", "remove the operator, keep the services"),
    )


def next_steps(screen: Screen, cluster: Cluster, *commands: tuple[str, str]) -> None:
    """Prints where things are, and useful commands."""
    folders = f"{Path(cluster.kubectl_program).parent}:{Path(sys.executable).parent}"
    screen.say(f"kubeconfig: {cluster.kubeconfig}   log: {LOG}")
    screen.say("Next steps:")
    screen.say(f"  export KUBECONFIG={cluster.kubeconfig} PATH={folders}:$PATH")
    for command, text in (("kubectl explain vlmservice.spec.workload", "read the API"), *commands):
        screen.say(f"  {command:47} {text}")


if __name__ == "__main__":
    sys.exit(main())
