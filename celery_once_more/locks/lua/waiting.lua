-- Some of the holders in one bucket whose messages can be looked for, and may have been picked up by now; writes nothing.
-- KEYS  due of each shard of the bucket
-- ARGV  what the bucket's keys begin with, records to look at at most, where to begin in a shard with more, in thousandths
-- gives {{digest, series, hop, id, task, place}, ...} and how many records were looked at
local found, looked, room = {}, 0, tonumber(ARGV[2])
for _, due in ipairs(KEYS) do
  local n = redis.call('ZCARD', due)
  if n > 0 and looked < room then
    local first = math.floor(math.max(0, n - (room - looked)) * tonumber(ARGV[3]) / 1000)
    for _, digest in ipairs(redis.call('ZRANGE', due, first, first + room - looked - 1)) do
      looked = looked + 1
      local raw = redis.pcall('GET', ARGV[1] .. digest)
      local rec = type(raw) == 'string' and decode(raw) or {}
      for i = 2, #rec do
        local h = rec[i]
        if h[PHASE] == 'W' and h[UNTIL] > now and type(h[PLACE]) == 'string' and (tonumber(h[FROM]) or 0) * 1000 <= now then
          found[#found + 1] = {digest, h[SERIES], h[HOPS][1], h[ID], rec[1], h[PLACE]}
        end
      end
    end
  end
end
return {found, looked}
