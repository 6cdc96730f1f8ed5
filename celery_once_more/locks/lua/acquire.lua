-- Admit one publish, or say who is in the way. Sent twice, it recognises its own hop.
-- KEYS  record, due
-- ARGV  digest, task, series, task id, hop, limit, phases that refuse, ms to wait at most, ms of its period (0: it has none),
--       place of its message (''), ms until its ETA
-- gives {'admitted', lapsed, stop} or {'refused', lapsed, id, phase, ms left}
local digest, series, hop, period = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5]), tonumber(ARGV[9])
local rec = load(KEYS[1], ARGV[2])
local lapsed, changed = sweep(rec)
local own = find(rec, series)
local first, n
if own then
  first, n = own, own[PHASE] == 'W' and own[HOPS][1] == hop and 0 or tonumber(ARGV[6])
else
  first, n = others(rec, nil, ARGV[7], true)
end
if n >= tonumber(ARGV[6]) then
  if changed then save(KEYS[1], KEYS[2], digest, rec) end
  return {'refused', lapsed, first[ID], first[PHASE], first[UNTIL] - now}
end
if not own then
  local stop = period > 0 and now + period or 0
  local wait = now + tonumber(ARGV[8])
  own = {series, ARGV[4], '', 'W', stop > 0 and math.min(wait, stop) or wait, stop, waits_since, {hop}}
  put(own, ARGV[10], tonumber(ARGV[11]))
  rec[#rec + 1] = own
  changed = true
end
if changed then save(KEYS[1], KEYS[2], digest, rec) end
return {'admitted', lapsed, own[STOP]}
