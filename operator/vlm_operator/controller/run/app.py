"""The process: kopf starts and ends it; watches, the lease, the workers."""

import asyncio
import contextlib
import logging
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from vlm_api.names import GROUP, KIND, PLURAL
from vlm_operator.controller.run.health import Health, serve
from vlm_operator.controller.run.metrics import Metrics
from vlm_operator.controller.run.queue import Key, WorkQueue
from vlm_operator.controller.run.services import CHECK_SECONDS, WatchFailed, run_kopf
from vlm_operator.controller.run.watch import ClusterWatch
from vlm_operator.controller.service.choose import Chooser
from vlm_operator.controller.service.inspect_model import Inspector
from vlm_operator.controller.service.reconcile import Outcome, Reconciler
from vlm_operator.controller.service.reports import Reports
from vlm_operator.controller.service.usage import Usage
from vlm_operator.kube import kinds, lease
from vlm_operator.kube.apply import Applier
from vlm_operator.kube.client import ApiError, Client, configure
from vlm_operator.kube.events import Recorder
from vlm_operator.kube.lease import RETRY_SECONDS, Election, LeaseLock
from vlm_operator.kube.status import StatusWriter
from vlm_operator.manifests import USUAL_SITE, Site
from vlm_operator.sglang.profiles import Family, shipped

log = logging.getLogger(__name__)

WORKERS: Final = 4
LEASE_NAME: Final = "vlm-operator"
HEARTBEAT_SECONDS: Final = 1.0
# How long reconciles under way may take to end, each at its next write.
ENDING_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    runtime_image: str
    namespaces: Sequence[str] = ()
    """Namespaces to serve; empty: all."""
    families: Sequence[Family] = field(default_factory=shipped)
    """Model families with their measured sets of values."""
    site: Site = USUAL_SITE
    """Networks of all services."""
    metrics_address: str = ":8080"
    leader_election: bool = True
    own_namespace: str = "default"
    """The namespace of the lease."""
    lease_name: str = LEASE_NAME
    """Of operators with the same lease in the same namespace, one works. Those that serve other namespaces need their own."""
    pod_name: str = ""
    """This operator's name, for the lease and events; default: the host's."""


class App:
    """One run of the operator, inside kopf: the process ends when kopf ends, and the kubelet starts it again."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._identity = f"{options.pod_name or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._health = Health()
        self._metrics = Metrics()
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reconciling = ThreadPoolExecutor(WORKERS, thread_name_prefix="reconcile")
        self._election: Election | None = None

    async def run(self) -> None:
        """Runs until a signal comes. Raises ApiError, LeaseLost or WatchFailed if it cannot continue."""
        server = serve(self._options.metrics_address, self._health, self._metrics.registry)
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            configure()
            self._client = Client(self._metrics.count_request)
            self._cluster = ClusterWatch(self._client, self._options.namespaces)
            self._reports = Reports(on_late=self._cluster.recheck)
            await run_kopf(
                self._options.namespaces,
                self._stop,
                on_start=self._start,
                on_event=self._cluster.intake.put,
                on_end=self._end,
            )
        finally:
            heartbeat.cancel()
            server.shutdown()
        if self._failure is not None:
            raise self._failure

    async def _start(self) -> None:
        """Reads the cluster, as a standby does too, so that it can take over at once."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4, thread_name_prefix="api"))
        try:
            await self._wait_for_crd()
            self._cluster.reflectors.start()
            self._cluster.intake.start()
            await self._cluster.reflectors.synced()
            await asyncio.to_thread(self._cluster.services.check)
        except (ApiError, WatchFailed) as error:
            self._fail(error)
            return
        self._spawn(self._check_services(), "services")
        self._spawn(self._lead(), "lead")

    async def _end(self) -> None:
        """Ends all work, then gives the lease up."""
        self._client.fence()
        # Without it kopf waits 5 s for its own task that waits for it.
        self._stop.set()
        self._reports.close()
        self._cluster.reflectors.stop()
        self._cluster.intake.stop()
        self._health.watching = False
        for task in self._tasks:
            task.cancel()
        if self._election is not None:
            self._election.stop()
        ended = asyncio.get_running_loop().run_in_executor(None, self._drain)
        await asyncio.wait((ended, *self._tasks), timeout=ENDING_SECONDS)
        if self._election is None or not self._election.held:
            return
        if ended.done():
            await asyncio.to_thread(self._election.release)
        else:
            log.warning("a write is still under way: the lease is left to expire")

    def _drain(self) -> None:
        """Waits for threads in the middle of a write: a cancelled task leaves its thread running."""
        self._reconciling.shutdown()
        if self._election is not None:
            self._election.join()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Starts a task whose failure ends the operator."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        # Another operator may work from now on.
        self._client.fence()
        self._failure = self._failure or error
        self._stop.set()

    async def _wait_for_crd(self) -> None:
        """Waits for an API server that is away or busy, as while a cluster starts. Raises ApiError, and WatchFailed
        without the CRD, for which kopf would wait silently."""
        while True:
            try:
                if await asyncio.to_thread(self._client.serves, kinds.VLM_SERVICE):
                    return
            except ApiError as error:
                if error.status not in (0, 429) and error.status < 500:
                    raise
                log.warning("%s (retrying)", error.message)
            else:
                raise WatchFailed(f"the cluster does not serve {KIND}: install the CRD {PLURAL}.{GROUP}")
            await asyncio.sleep(RETRY_SECONDS)

    async def _check_services(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await asyncio.to_thread(self._cluster.services.check)
            except ApiError as error:
                log.warning("VLMServices cannot be listed (retrying): %s", error.message)

    async def _lead(self) -> None:
        """Works once it holds the lease."""
        if self._options.leader_election:
            await self._elected()
            self._health.standby = False
            log.info("holding the lease %s as %s", self._options.lease_name, self._identity)
        self._work()

    async def _elected(self) -> None:
        loop, held = asyncio.get_running_loop(), asyncio.Event()

        def call(function: Callable[..., None], *arguments: object) -> None:
            # The loop may have ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *arguments)

        def lost(error: Exception) -> None:
            # At once: the loop may be busy.
            self._client.fence()
            call(self._fail, error)

        # A renewal that is sent twice may be refused the second time, as if another operator had the lease.
        client = Client(self._metrics.count_request, lease.TIMEOUT_SECONDS, repeats=False)
        lock = LeaseLock(client, self._options.own_namespace, self._options.lease_name, self._identity)
        self._election = Election(lock, on_standby=self._stand_by, on_held=lambda: call(held.set), on_lost=lost)
        self._election.start()
        await held.wait()

    def _stand_by(self) -> None:
        log.info("another operator holds the lease %s: standing by", self._options.lease_name)
        self._health.standby = True

    def _work(self) -> None:
        """Starts the workers."""
        self._metrics.leader.set(1)
        queue = WorkQueue()
        self._metrics.watch_queue(queue.__len__)
        reconciler = self._reconciler()
        for number in range(WORKERS):
            self._spawn(self._reconcile_forever(reconciler, queue), f"worker-{number}")
        self._cluster.fill(queue)
        self._health.watching = True
        log.info("watching %s", ", ".join(self._options.namespaces) or "all namespaces")

    def _reconciler(self) -> Reconciler:
        client, cache, inventory, options = self._client, self._cluster.cache, self._cluster.inventory, self._options
        chooser = Chooser(
            client=client,
            inventory=inventory,
            usage=Usage(client, options.namespaces),
            inspector=Inspector(client, options.runtime_image, cache.put),
            runtime_image=options.runtime_image,
            families=options.families,
            site=options.site,
        )
        return Reconciler(
            cache=cache,
            chooser=chooser,
            applier=Applier(client, cache.put),
            recorder=Recorder(client, self._identity),
            status=StatusWriter(client, cache.put),
            inventory=inventory,
            reports=self._reports,
            site=options.site,
        )

    async def _reconcile_forever(self, reconciler: Reconciler, queue: WorkQueue) -> None:
        while True:
            key = await queue.take()
            try:
                outcome = await self._reconcile(reconciler, key)
            except ApiError as error:
                delay = queue.retry(key, reconciler.cache.wrote)
                self._metrics.count_failure(error.reason)
                log.warning("%s/%s: %s, retrying in %.0f s", key.namespace, key.name, error.message, delay)
            except Exception:
                delay = queue.retry(key, reconciler.cache.wrote)
                self._metrics.count_failure("Bug")
                log.exception("%s/%s: internal error, retrying in %.0f s", key.namespace, key.name, delay)
            else:
                if outcome.again_after_seconds is None:
                    queue.forget(key)
                    reconciler.forget(key)
                    self._metrics.forget(key)
                    self._metrics.reconciles.labels("gone").inc()
                else:
                    since_event = queue.done(key, outcome.again_after_seconds, reconciler.cache.wrote)
                    if since_event is not None:
                        self._metrics.applied_seconds.observe(since_event)
                    if outcome.status is not None:
                        self._metrics.update(key, outcome.status)
                    self._metrics.reconciles.labels("success").inc()

    async def _reconcile(self, reconciler: Reconciler, key: Key) -> Outcome:
        started = time.monotonic()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reconciling, reconciler, key)
        finally:
            self._metrics.took(key, time.monotonic() - started)

    async def _heartbeat(self) -> None:
        while True:
            self._health.beat()
            await asyncio.sleep(HEARTBEAT_SECONDS)
