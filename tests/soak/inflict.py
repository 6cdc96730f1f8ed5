"""A fault of the plan, as it is applied: what it is done to is on its feet again afterwards."""

from soak.on_a_worker import OnAWorker
from soak.on_services import OnServices


def inflict(floor, fault, waiting_calls):
    """Whether there was anything to do it to."""
    name = fault.kind.replace(" ", "_")
    if fault.victim is None:
        return getattr(OnServices(floor, waiting_calls), name)(fault) is not False
    with floor.busy[fault.victim]:
        worker = floor.workers[fault.victim]
        return worker.status == "running" and getattr(OnAWorker(floor), name)(worker, fault) is not False
