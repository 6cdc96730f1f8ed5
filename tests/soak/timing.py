"""Seconds, all of them short: everything that the soak waits for comes soon."""

LEASE = 2
QUEUE_LEASE = 20
VISIBILITY_TIMEOUT = 4
#: a stall of a worker that is shorter than this is not told
NOTICED = 0.3
#: a run whose worker, or whose lock store, stood still for so long may have lost its lease: the keeper beats three times in one
STALLED = LEASE / 2
#: of a retry: at once, or after longer than the lease of the run before it, and less than the visibility timeout
RETRY_AFTER = (0, 0.5, 1.75 * LEASE, 1.75 * LEASE)
