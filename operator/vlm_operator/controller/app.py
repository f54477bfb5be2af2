"""Puts the parts together: the lease, the watches, the workers, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from vlm_api.names import GROUP, KIND, PLURAL
from vlm_operator.controller.choosing import Chooser
from vlm_operator.controller.health import Health, serve
from vlm_operator.controller.inspecting import Inspector
from vlm_operator.controller.metrics import Metrics
from vlm_operator.controller.queue import WorkQueue
from vlm_operator.controller.reconcile import Reconciler
from vlm_operator.controller.reports import Reports
from vlm_operator.controller.services import WatchFailed
from vlm_operator.controller.usage import Usage
from vlm_operator.controller.watch import Cluster
from vlm_operator.kube import kinds, lease
from vlm_operator.kube.apply import Applier
from vlm_operator.kube.client import ApiError, Client, configure
from vlm_operator.kube.events import Recorder
from vlm_operator.kube.lease import RENEW_DEADLINE_SECONDS, RETRY_SECONDS, LeaseLock
from vlm_operator.kube.status import StatusWriter
from vlm_operator.profiles import Family, shipped
from vlm_operator.render import USUAL_SITE, Site

log = logging.getLogger(__name__)

WORKERS: Final = 4
LEASE_NAME: Final = "vlm-operator"
HEARTBEAT_SECONDS: Final = 1.0
# What is under way when the operator is told to stop has this long to come to an end.
ENDING_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Options:
    """What the command line said."""

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
    """Where the lease is."""
    lease_name: str = LEASE_NAME
    """Operators with the same one in the same namespace take turns. Those that serve different namespaces need their own."""
    pod_name: str = ""
    """This operator's own name, for the lease and events; default: the host's."""


class LeaseLost(Exception):
    """Another operator works now, or the API server could not be reached for too long."""


class App:
    """One run of the operator."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._identity = f"{options.pod_name or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._health = Health()
        self._metrics = Metrics()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Runs until a signal comes. Raises LeaseLost or ApiError where it cannot go on."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(WORKERS + 4, thread_name_prefix="api"))
        self._stop_on_signals()
        server = serve(self._options.metrics_address, self._health, self._metrics.registry)
        heart = asyncio.create_task(self._beat())
        try:
            configure()
            client = Client(self._metrics.asked)
            cluster, services = await self._watch(client)
            if not self._options.leader_election:
                await self._work(client, cluster, services)
                return
            # A renewal that is sent twice may be refused the second time, as if another operator had the lease.
            leasing = Client(self._metrics.asked, lease.TIMEOUT_SECONDS, repeats=False)
            lock = LeaseLock(leasing, self._options.own_namespace, self._options.lease_name, self._identity)
            if await self._acquire(lock):
                try:
                    await self._work(client, cluster, services, lock)
                finally:
                    await asyncio.to_thread(lock.release)
            else:
                await services
        finally:
            heart.cancel()
            server.shutdown()

    async def _acquire(self, lock: LeaseLock) -> bool:
        """Waits for the lease. False where the operator was told to stop first."""
        waiting = False
        while not self._stop.is_set():
            try:
                if await asyncio.to_thread(lock.try_once):
                    log.info("holding the lease %s as %s", self._options.lease_name, self._identity)
                    self._health.standby = False
                    return True
                if not waiting:
                    log.info("another operator holds the lease %s: standing by", self._options.lease_name)
                    self._health.standby = waiting = True
            except ApiError as error:
                log.warning("the lease cannot be read: %s", error.message)
            await self._sleep(RETRY_SECONDS)
        return False

    async def _keep(self, lock: LeaseLock) -> None:
        renewed = time.monotonic()
        while not self._stop.is_set():
            await self._sleep(RETRY_SECONDS)
            # Not one moment longer, whatever a request is waiting for: another operator takes the lease soon after.
            left = renewed + RENEW_DEADLINE_SECONDS - time.monotonic()
            if left <= 0:
                raise LeaseLost("the lease could not be renewed")
            began = time.monotonic()
            try:
                if not await asyncio.wait_for(asyncio.to_thread(lock.try_once), left):
                    raise LeaseLost("another operator took the lease")
                renewed = began
            except (ApiError, TimeoutError, asyncio.TimeoutError) as error:
                log.warning("the lease was not renewed: %s", error or "no answer in time")

    async def _watch(self, client: Client) -> tuple[Cluster, asyncio.Task[None]]:
        """Reads the cluster. A standby does as well, so that it can go on at once. Raises WatchFailed."""
        if not await self._knows_services(client):
            raise WatchFailed(f"the cluster does not know {KIND}: install the CRD {PLURAL}.{GROUP}")
        cluster = Cluster(client, self._options.namespaces, asyncio.get_running_loop())
        cluster.watches.start()
        services = asyncio.create_task(cluster.services.run(self._stop), name="services")
        reading = asyncio.create_task(self._read(cluster), name="reading")
        await asyncio.wait((reading, services), return_when=asyncio.FIRST_COMPLETED)
        if services.done():
            reading.cancel()
            services.result()
        else:
            reading.result()
        return cluster, services

    async def _read(self, cluster: Cluster) -> None:
        await cluster.watches.synced()
        await cluster.services.synced()

    async def _knows_services(self, client: Client) -> bool:
        """Whether the CRD is there. Waits for an API server that is away or busy, as it is while a cluster starts."""
        while True:
            try:
                return await asyncio.to_thread(client.serves, kinds.VLM_SERVICE)
            except ApiError as error:
                passes = error.status == 0 or error.status == 429 or error.status >= 500
                if not passes or self._stop.is_set():
                    raise
                log.warning("%s (trying again)", error.message)
            await self._sleep(RETRY_SECONDS)

    async def _work(
        self, client: Client, cluster: Cluster, services: asyncio.Task[None], lock: LeaseLock | None = None
    ) -> None:
        self._metrics.leader.set(1)
        queue, cache = WorkQueue(), cluster.cache
        self._metrics.watch_queue(queue.__len__)
        chooser = Chooser(
            client=client,
            inventory=cluster.inventory,
            usage=Usage(client, self._options.namespaces),
            inspector=Inspector(client, self._options.runtime_image, cache.put),
            runtime_image=self._options.runtime_image,
            families=self._options.families,
            site=self._options.site,
        )
        reconciler = Reconciler(
            cache=cache,
            chooser=chooser,
            applier=Applier(client, cache.put),
            recorder=Recorder(client, self._identity),
            status=StatusWriter(client, cache.put),
            inventory=cluster.inventory,
            reports=Reports(heard=cluster.look_again),
            site=self._options.site,
        )
        cluster.wakes(queue)
        tasks = [
            asyncio.create_task(self._stop.wait(), name="stop"),
            services,
            *(
                asyncio.create_task(self._reconcile_forever(reconciler, queue), name=f"worker-{n}")
                for n in range(WORKERS)
            ),
        ]
        if lock is not None:
            tasks.append(asyncio.create_task(self._keep(lock), name="lease"))
        self._health.watching = True
        log.info("watching %s", ", ".join(self._options.namespaces) or "all namespaces")
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # Before anybody else can take the lease: what is under way in threads writes nothing more.
            client.fence()
            reconciler.reports.close()
            cluster.watches.stop()
            self._stop.set()
            self._health.watching = False
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=ENDING_SECONDS)

    async def _reconcile_forever(self, reconciler: Reconciler, queue: WorkQueue) -> None:
        while True:
            key = await queue.take()
            started = time.monotonic()
            try:
                outcome = await asyncio.to_thread(reconciler, key)
            except ApiError as error:
                delay = queue.retry(key)
                self._metrics.failed(error.reason)
                log.warning("%s/%s: %s (again in %.0f s)", key.namespace, key.name, error.message, delay)
            except Exception:
                delay = queue.retry(key)
                self._metrics.failed("Bug")
                log.exception("%s/%s: a fault of the operator (again in %.0f s)", key.namespace, key.name, delay)
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
                        self._metrics.see(key, outcome.status)
                    self._metrics.reconciles.labels("success").inc()
            finally:
                self._metrics.seconds.observe(time.monotonic() - started)

    def _stop_on_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)

    async def _beat(self) -> None:
        while True:
            self._health.turned()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _sleep(self, seconds: float) -> None:
        """Sleeps, but wakes up when the operator is told to stop."""
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except (TimeoutError, asyncio.TimeoutError):
            return
