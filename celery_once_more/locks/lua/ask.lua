-- Ask one worker for which suspects it can vouch. Where there are none, it has answered.
-- KEYS  suspects, workers
-- ARGV  worker, lease ms
-- gives {suspects, when they were read}
local suspects, lease = redis.call('HKEYS', KEYS[1]), tonumber(ARGV[2])
if #suspects == 0 then redis.call('ZADD', KEYS[2], now, ARGV[1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 2 * lease)
redis.call('PEXPIRE', KEYS[2], 2 * lease)
return {suspects, now}
