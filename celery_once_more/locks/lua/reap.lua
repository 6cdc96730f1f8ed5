-- Free what lapsed in one bucket. Looks only at entries that are due, never at all locks.
-- KEYS  due of each shard of the bucket
-- ARGV  what the bucket's keys begin with, entries to look at at most
-- gives {{digest, task, id, phase} of each one freed, digests of records that cannot be read, task of each record kept}
local freed, foreign, kept, room = {}, {}, {}, tonumber(ARGV[2])
for _, due in ipairs(KEYS) do
  if room <= 0 then break end
  for _, digest in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, room)) do
    room = room - 1
    local key = ARGV[1] .. digest
    local raw = redis.pcall('GET', key)
    local rec = not raw and {''} or type(raw) == 'string' and decode(raw)
    if rec then
      local lapsed, changed = sweep(rec)
      if not changed and #rec > 1 then kept[#kept + 1] = rec[1] end
      for _, h in ipairs(lapsed) do freed[#freed + 1] = {digest, rec[1], h[1], h[2]} end
      save(key, due, digest, rec)
    else
      foreign[#foreign + 1] = digest
      redis.call('ZADD', due, now + FORGET_AFTER, digest)
    end
  end
end
return {freed, foreign, kept}
