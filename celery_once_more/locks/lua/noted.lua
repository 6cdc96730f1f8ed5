-- All suspects; writes nothing.
-- KEYS  suspects, workers
-- gives each one, and when it was noted
return redis.call('HGETALL', KEYS[1])
