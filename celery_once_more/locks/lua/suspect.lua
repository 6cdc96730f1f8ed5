-- Note waiting holders whose message was not found, and answer which of them were noted in an earlier look and vouched for by
-- nobody since. Every worker that lives must have been asked after that look; one that was silent for a lease does not live.
-- KEYS  suspects, workers
-- ARGV  lease ms, suspects at most, number of suspects that were found after all, these, then of each one that was not found:
--       the suspect, and when it was noted, as far as this look knew ('': it was not)
-- gives those that were proved gone; they are suspects no more
local APART = 1000  -- ms between two looks, at least
local asked = redis.call('ZRANGEBYSCORE', KEYS[2], now - tonumber(ARGV[1]), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local gone, found = {}, tonumber(ARGV[3])
for i = 4, 3 + found do redis.call('HDEL', KEYS[1], ARGV[i]) end
for i = 4 + found, #ARGV, 2 do
  local noted = redis.call('HGET', KEYS[1], ARGV[i])
  if noted and noted == ARGV[i + 1] then
    if tonumber(noted) + APART <= now and (not asked or tonumber(asked) > tonumber(noted)) then
      redis.call('HDEL', KEYS[1], ARGV[i])
      gone[#gone + 1] = ARGV[i]
    end
  elseif not noted and ARGV[i + 1] == '' and redis.call('HLEN', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], ARGV[i], now)
  end
end
redis.call('PEXPIRE', KEYS[1], 86400000)
return gone
