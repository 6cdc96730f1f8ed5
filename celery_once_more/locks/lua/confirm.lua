-- A newer message of the call is in the broker: the one before it is spent, and the holder may wait for its turn.
-- KEYS  record, due, done, old
-- ARGV  digest, series, old hop, new hop, ms to wait at most, spent member, window ms
-- gives 1 if anything changed, else 0
local old, new = tonumber(ARGV[3]), tonumber(ARGV[4])
local rec = load(KEYS[1], '')
local own = find(rec, tonumber(ARGV[2]))
if not own or not has(own[HOPS], new) then return 0 end
if old ~= new and has(own[HOPS], old) then
  for i, hop in ipairs(own[HOPS]) do
    if hop == old then table.remove(own[HOPS], i) end
  end
  remember(KEYS[3], KEYS[4], ARGV[6], tonumber(ARGV[7]))
end
if own[PHASE] == 'W' then own[UNTIL] = now + tonumber(ARGV[5]) end
save(KEYS[1], KEYS[2], ARGV[1], rec)
return 1
