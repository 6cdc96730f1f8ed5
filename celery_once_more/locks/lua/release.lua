-- Free a holder that only waits, for this very message (publish failed, revoked, expired). Never one that runs; one that ran
-- before stays until the end of its period.
-- KEYS  record, due
-- ARGV  digest, series, hop
-- gives 1 if it was freed, else 0
local rec = load(KEYS[1], '')
local own, i = find(rec, tonumber(ARGV[2]))
if not own or own[PHASE] ~= 'W' or own[HOPS][1] ~= tonumber(ARGV[3]) then return 0 end
local stays = kept(own)
if not stays then table.remove(rec, i) end
save(KEYS[1], KEYS[2], ARGV[1], rec)
return stays and 0 or 1
