-- Admit one publish, or say who is in the way. Sent twice, it recognises its own hop.
-- KEYS  record, due
-- ARGV  digest, task, series, task id, hop, limit, phases that refuse, ms to wait at most
-- gives {'admitted', lapsed} or {'refused', lapsed, id, phase, ms left}
local digest, series, hop = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local rec = load(KEYS[1], ARGV[2])
local lapsed = sweep(rec)
local own = find(rec, series)
local first, n = others(rec, own, ARGV[7])
if own and own[PHASE] == 'W' and own[HOPS][1] == hop then
  if #lapsed > 0 then save(KEYS[1], KEYS[2], digest, rec) end
  return {'admitted', lapsed}
end
if own or n >= tonumber(ARGV[6]) then
  first = own or first
  if #lapsed > 0 then save(KEYS[1], KEYS[2], digest, rec) end
  return {'refused', lapsed, first[ID], first[PHASE], first[UNTIL] - now}
end
rec[#rec + 1] = {series, ARGV[4], '', 'W', now + tonumber(ARGV[8]), 0, 0, {hop}}
save(KEYS[1], KEYS[2], digest, rec)
return {'admitted', lapsed}
