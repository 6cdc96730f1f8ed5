-- A worker has answered: it knows of these messages.
-- KEYS  suspects, workers
-- ARGV  worker, lease ms, when it was asked, suspects that it vouches for
for i = 4, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[2], 2 * tonumber(ARGV[2]))
return 1
