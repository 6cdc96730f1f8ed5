-- Back to waiting: for the next message of the call (before a retry is published) or for the same one (it goes back to
-- the queue). The old message stays good. Sent twice, it recognises its own newest hop.
-- KEYS  record, due, done, old
-- ARGV  digest, task, series, task id, hop, run, new hop, ms to wait at most, done member, spent member
-- gives 'kept' or 'lost'
local hop, new = tonumber(ARGV[5]), tonumber(ARGV[7])
local rec = load(KEYS[1], ARGV[2])
local own = find(rec, tonumber(ARGV[3]))
if own and own[PHASE] == 'W' and own[HOPS][1] == new then return 'kept' end
if own and own[RUN] ~= ARGV[6] then return 'lost' end
for _, member in ipairs({ARGV[9], ARGV[10]}) do
  if remembered(KEYS[3], KEYS[4], member) then return 'lost' end
end
if not own then
  own = {tonumber(ARGV[3]), ARGV[4], '', 'W', 0, 0, 0, {hop}}
  rec[#rec + 1] = own
end
own[RUN], own[PHASE], own[UNTIL] = '', 'W', now + tonumber(ARGV[8])
if not has(own[HOPS], new) then table.insert(own[HOPS], 1, new) end
save(KEYS[1], KEYS[2], ARGV[1], rec)
return 'kept'
