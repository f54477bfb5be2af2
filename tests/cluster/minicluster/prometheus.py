"""Debian's Prometheus beside the cluster: a program of this machine, which reaches pods as the node does."""

import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from .errors import ClusterError
from .paths import RUN
from .ports import LOOPBACK, free_port
from .processes import Daemons
from .shell import say

NAME: Final = "prometheus"
PROGRAM: Final = "/usr/bin/prometheus"


def start(config: Path) -> str:
    """Starts it with this configuration and without older data; it ends with the cluster. Returns its URL.

    Older data would be of targets that are gone, which looks like an outage.
    """
    daemons = Daemons(RUN)
    if daemons.pid("kube-apiserver") is None:
        raise ClusterError("the cluster is not up", hint="python3 tests/cluster/cluster.py up")
    if not Path(PROGRAM).is_file():
        raise ClusterError(f"{PROGRAM} is missing", hint="python3 tests/cluster/cluster.py check --install")
    daemons.stop([NAME], seconds=10)
    shutil.rmtree(RUN / NAME, ignore_errors=True)
    url = f"http://{LOOPBACK}:{free_port()}"
    flags = [
        f"--config.file={config.resolve()}",
        f"--storage.tsdb.path={RUN / NAME}",
        "--storage.tsdb.retention.time=6h",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=warn",
    ]
    daemons.start(NAME, [PROGRAM, *flags])
    daemons.wait_for("Prometheus is ready", lambda: _answers(f"{url}/-/ready"), daemon=NAME, seconds=60)
    say(f"Prometheus: {url}")
    return url


def stop() -> None:
    """Ends it. Its data stays until the next start."""
    Daemons(RUN).stop([NAME], seconds=10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
