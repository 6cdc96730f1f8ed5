"""Key names: all keys of one lock in one Redis Cluster slot, and locks in many; for any prefix."""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from celery_once_more.digest import digest
from celery_once_more.locks.keys import BUCKETS, SHARDS, Keys

DIGESTS = st.binary(min_size=16, max_size=16).map(lambda raw: base64.urlsafe_b64encode(raw).decode()[:22])
DIGEST = "_-7AAAAAAAAAAAAAAAAAAA"  # its first bytes: ff ee c0


def all_of(keys, digest):
    return [keys.record(digest), keys.due(digest), *keys.done(digest), keys.token(digest)]


def test_the_names_of_version_1_never_change():
    assert all_of(Keys("once-more"), DIGEST) == [
        "once-more:{ff}:_-7AAAAAAAAAAAAAAAAAAA",
        "once-more:{ff}:due:46",
        "once-more:{ff}:done:46",
        "once-more:{ff}:old:46",
        "once-more:{ff}:token",
    ]


@given(DIGESTS)
def test_every_key_of_a_lock_shares_one_slot(digest):
    keys = all_of(Keys("once-more"), digest)
    assert len(set(keys)) == len(keys)
    assert len({key_slot(key.encode()) for key in keys}) == 1


@given(DIGESTS)
def test_bucket_and_shard_come_from_the_first_two_bytes(digest):
    first, second = base64.urlsafe_b64decode(digest + "==")[:2]
    assert Keys("p").record(digest) == f"p:{{{first:02x}}}:{digest}"
    assert Keys("p").due(digest) == f"p:{{{first:02x}}}:due:{second % SHARDS}"


@given(DIGESTS)
def test_the_reaper_finds_the_index_and_the_record_from_the_bucket_alone(digest):
    keys = Keys("once-more")
    bucket = int(re.search(r"\{(..)\}", keys.record(digest))[1], 16)
    assert keys.due(digest) in keys.due_of_bucket(bucket)
    assert keys.bucket(bucket) + digest == keys.record(digest)
    assert keys.token(digest) == keys.bucket(bucket) + "token"


def test_a_reap_call_stays_in_one_slot():
    keys = Keys("once-more")
    for bucket in range(BUCKETS):
        due = keys.due_of_bucket(bucket)
        assert len(due) == len(set(due)) == SHARDS
        assert {key_slot(key.encode()) for key in due} == {key_slot(keys.bucket(bucket).encode())}


def test_buckets_spread_over_as_many_slots():
    keys = Keys("once-more")
    assert len({key_slot(keys.bucket(bucket).encode()) for bucket in range(BUCKETS)}) == BUCKETS


def test_locks_spread_over_the_buckets_and_shards():
    """20,000 of them: 78 are to be expected in each bucket, 312 in each shard number."""
    keys = Keys("once-more")
    digests = [digest(scope="t", queue="q", arguments=n) for n in range(20_000)]
    buckets, shards = {}, {}
    for each in digests:
        tag, shard = re.search(r"\{(..)\}:due:(\d+)", keys.due(each)).groups()
        buckets[tag] = buckets.get(tag, 0) + 1
        shards[shard] = shards.get(shard, 0) + 1
    assert (len(buckets), len(shards)) == (BUCKETS, SHARDS)
    assert max(buckets.values()) < 2 * 78
    assert max(shards.values()) < 2 * 312


@pytest.mark.parametrize("prefix", ["once-more", "a", "staging:eu", "\u00fc", "a b"])
def test_a_prefix_separates_deployments_and_leaves_slots_as_they_are(prefix):
    ours, theirs = all_of(Keys(prefix), DIGEST), all_of(Keys("other"), DIGEST)
    assert not set(ours) & set(theirs)
    assert all(key.startswith(f"{prefix}:") for key in ours)
    assert {key_slot(key.encode()) for key in ours} == {key_slot(key.encode()) for key in theirs}


@given(DIGESTS)
def test_a_record_is_never_taken_for_a_helper(digest):
    keys = Keys("once-more")
    helpers = {keys.token(digest), *keys.done(digest), *keys.due_of_bucket(0)}
    assert keys.record(digest) not in helpers
    assert ":" not in digest
