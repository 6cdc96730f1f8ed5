-- Renew the lease of one run; take the lock again where it is gone and free (a flush), under a new token.
-- KEYS  record, due, token, done, old
-- ARGV  digest, task, series, task id, hop, limit, phases that refuse, run, lease ms, done member, spent member, 1 to retake
-- gives 'renewed', 'retaken', 'over' (finished, or moved on to another message) or 'lost'
local series, hop, run = tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[8]
local rec = load(KEYS[1], ARGV[2])
local own = find(rec, series)
if own and own[PHASE] == 'R' and own[RUN] == run then
  own[UNTIL] = now + tonumber(ARGV[9])
  save(KEYS[1], KEYS[2], ARGV[1], rec)
  return 'renewed'
end
if own then return own[PHASE] == 'W' and 'over' or 'lost' end
for _, member in ipairs({ARGV[10], ARGV[11]}) do
  if remembered(KEYS[4], KEYS[5], member) then return 'over' end
end
local _, n = others(rec, nil, ARGV[7])  -- one that lapsed as well: freeing it is the reaper's, which tells
if ARGV[12] ~= '1' or n >= tonumber(ARGV[6]) then return 'lost' end
rec[#rec + 1] = {series, ARGV[4], run, 'R', now + tonumber(ARGV[9]), 0, next_token(KEYS[3]), {hop}}
save(KEYS[1], KEYS[2], ARGV[1], rec)
return 'retaken'
