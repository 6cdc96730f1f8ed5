-- Free one holder, whoever asks; what was looked at must still be so. A run that goes on stays known, and refuses nobody.
-- KEYS  record, due
-- ARGV  digest, series, phase, run (of one that waits: none), hop
-- gives 1 if it was freed, else 0
local rec = load(KEYS[1], '')
local own, i = find(rec, tonumber(ARGV[2]))
if not own or (own[UNTIL] <= now and not kept(own)) or own[PHASE] ~= ARGV[3] then return 0 end
if own[PHASE] == 'R' then
  if own[RUN] ~= ARGV[4] then return 0 end
  own[PHASE], own[STOP] = 'F', 0
else
  if own[HOPS][1] ~= tonumber(ARGV[5]) then return 0 end
  table.remove(rec, i)
end
save(KEYS[1], KEYS[2], ARGV[1], rec)
return 1
