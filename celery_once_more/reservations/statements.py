"""The SQL of a reservation's row, for each dialect.

The clock is the database's; ``:ahead`` microseconds are added to it, which are 0 outside crash-point tests. Every statement that
moves a row compares what its attempt knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from celery_once_more.exceptions import ConfigurationError
from celery_once_more.reservations.row import TABLE

#: microseconds since the epoch, when the statement is executed, whatever time zone the session has
CLOCKS = {
    "sqlite": "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 + :ahead)",
    "postgresql": "(CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint) + :ahead)",
    "mysql": "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :ahead)",
}
#: milliseconds that PostgreSQL, which knows no end by itself, waits for another transaction
PATIENCE_MS = 3000
_PATIENT = f"set_config('lock_timeout', '{PATIENCE_MS}', true) IS NOT NULL"

#: as the fields of ``Row``, but for the last
_READ = "state, token, attempt, takeovers, since, lease_until, fingerprint, result"
_COLUMNS = "dedup_key, label, state, token, attempt, takeovers, since, lease_until, fingerprint, result, created_at, updated_at"
_SEEN = "dedup_key = :dedup_key AND state = :seen_state AND token = :seen_token AND attempt = :seen_attempt"
_OWN = "dedup_key = :dedup_key AND state = 'running' AND token = :token AND attempt = :attempt"


@dataclass(frozen=True, kw_only=True)
class Statements:
    #: the new row, unless one is there; on PostgreSQL it returns the row that it made
    claim: str
    #: a marker in the caller's transaction, unless one is there; PostgreSQL tells whether it could be asked so, and what it did
    mark: str
    #: the row, locked until the end of the transaction
    look: str
    #: the row that was seen goes to another attempt
    take: str
    #: the row that was seen comes to rest; its attempt shall not think later that it had done that itself
    settle: str
    #: the attempt's own row comes to rest
    complete: str
    extend: str
    #: rows that nobody knows the outcome of
    unknowns: str
    resolve: str
    purge: str


def statements(dialect: str) -> Statements:
    """
    Raises:
        ConfigurationError: there is none for this dialect.
    """
    if dialect not in CLOCKS:
        raise ConfigurationError(f"reservations know no dialect {dialect!r}; there is: {', '.join(map(repr, CLOCKS))}")
    now, postgres = CLOCKS[dialect], dialect == "postgresql"
    lock = "" if dialect == "sqlite" else " FOR UPDATE"
    patient = f" AND {_PATIENT}" if postgres else ""
    update = (
        f"UPDATE {TABLE}{' FORCE INDEX (PRIMARY)' * (dialect == 'mysql')}"  # else it may lock a gap, and others' new rows wait
    )
    values = f":dedup_key, :label, :state, {now}, :attempt, 0, {now}, {now} + :lease, :fingerprint, NULL, {now}, {now}"
    insert = f"INSERT INTO {TABLE} ({_COLUMNS}) "
    unless_there = {"mysql": " ON DUPLICATE KEY UPDATE dedup_key = dedup_key"}.get(dialect, " ON CONFLICT DO NOTHING")
    old = f"state IN ('done', 'failed', 'free') AND updated_at < {now} - :age"
    some = f"SELECT dedup_key FROM {TABLE} WHERE {old} ORDER BY updated_at LIMIT :batch" + " FOR UPDATE SKIP LOCKED" * postgres
    in_doubt = f"(state = 'unknown' OR (state = 'running' AND lease_until <= {now}))"
    selected = values.replace("NULL", "CAST(NULL AS text)")
    claim = f"{insert}VALUES ({values}){unless_there}"
    if postgres:
        claim = f"{insert}SELECT {selected} WHERE {_PATIENT}{unless_there} RETURNING {_READ}, {now}"
    return Statements(
        claim=claim,
        mark=_mark_postgresql(insert, selected, unless_there) if postgres else claim,
        look=f"SELECT {_READ}, {now} FROM {TABLE} WHERE dedup_key = :dedup_key{patient}{lock}",
        take=(
            f"{update} SET state = 'running', token = :token, attempt = :attempt, takeovers = :takeovers, since = :since, "
            f"lease_until = {now} + :lease, fingerprint = COALESCE(fingerprint, :fingerprint), result = NULL, updated_at = {now} "
            f"WHERE {_SEEN} AND lease_until = :seen_lease_until"
        ),
        settle=(
            f"{update} SET state = :state, result = :result, token = token + 1, lease_until = 0, "
            f"updated_at = {now} WHERE {_SEEN} AND lease_until = :seen_lease_until"
        ),
        complete=(
            f"{update} SET state = :state, result = :result, takeovers = :takeovers, lease_until = 0, updated_at = {now} "
            f"WHERE {_OWN} AND lease_until > {now}{patient}"
        ),
        extend=(f"{update} SET lease_until = {now} + :lease, updated_at = {now} WHERE {_OWN} AND lease_until > {now}{patient}"),
        unknowns=(
            f"SELECT label, dedup_key, state, token, takeovers, since, updated_at FROM {TABLE} WHERE {in_doubt} "
            "ORDER BY updated_at, dedup_key LIMIT :batch"
        ),
        resolve=(
            f"{update} SET state = :state, result = :result, token = token + 1, takeovers = 0, lease_until = 0, "
            f"updated_at = {now} WHERE dedup_key = :dedup_key AND {in_doubt}{patient}"
        ),
        purge=(
            f"DELETE FROM {TABLE} WHERE {old} ORDER BY updated_at LIMIT :batch"
            if dialect == "mysql"
            else f"DELETE FROM {TABLE} WHERE dedup_key IN ({some})"
        ),
    )


def _mark_postgresql(insert: str, selected: str, unless_there: str) -> str:
    """At REPEATABLE READ a row that the transaction cannot see yet would be an error, which aborts it: nothing is tried there."""
    return (
        "WITH level AS (SELECT current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') AS plain), "
        f"made AS ({insert}SELECT {selected} FROM level WHERE plain{unless_there} RETURNING 1) "
        "SELECT plain, EXISTS (SELECT 1 FROM made) FROM level"
    )


def mark_guarded(dedup_key: str, label: str, ahead: int) -> str:
    """The same, where PostgreSQL's conflict-ignoring insert could fail: the server itself keeps a violation from the caller.

    The values stand in the text, as a DO block takes no parameters; the label as hexadecimal digits.
    """
    now = CLOCKS["postgresql"].replace(":ahead", str(int(ahead)))
    return (
        "DO $mark$ BEGIN "
        f"INSERT INTO {TABLE} ({_COLUMNS}) VALUES ('{bytes.fromhex(dedup_key).hex()}', "
        f"convert_from(decode('{label.encode('ascii').hex()}', 'hex'), 'UTF8'), 'done', {now}, '', 0, {now}, 0, NULL, NULL, "
        f"{now}, {now}); "
        "PERFORM set_config('once_more.made', 'yes', true); "
        "EXCEPTION WHEN unique_violation THEN PERFORM set_config('once_more.made', 'no', true); "
        "END $mark$"
    )


MADE = "SELECT current_setting('once_more.made') = 'yes'"
