-- Renew the lease of one run; take the lock again where it is gone and free (a flush), under a new token.
-- KEYS  record, due, token, done, old
-- ARGV  digest, task, series, task id, hop, limit, phases that refuse, run, lease ms, done member, spent member, 1 to retake,
--       end of its period (0: none)
-- gives 'renewed', 'retaken', 'over' (finished, or moved on to another message) or 'lost'
local series, hop, run = tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[8]
local rec = load(KEYS[1], ARGV[2])
local own = find(rec, series)
if own and runs(own) and own[RUN] == run then
  own[UNTIL] = now + tonumber(ARGV[9])
  save(KEYS[1], KEYS[2], ARGV[1], rec)
  return 'renewed'
end
local lapsed = own and own[PHASE] == 'K' and own[RUN] == run  -- kept for its period, while others may have run
if own and not lapsed then
  local over = own[PHASE] == 'W' or own[PHASE] == 'K' and own[RUN] == ''
  return over and 'over' or 'lost'
end
for _, member in ipairs({ARGV[10], ARGV[11]}) do
  if remembered(KEYS[4], KEYS[5], member) then return 'over' end
end
local _, n = others(rec, own, ARGV[7])  -- one that lapsed as well: freeing it is the reaper's, which tells
if ARGV[12] ~= '1' or n >= tonumber(ARGV[6]) then return 'lost' end
if not own then
  own = {series, ARGV[4], run, 'R', 0, tonumber(ARGV[13]), waits_since, {hop}}
  rec[#rec + 1] = own
end
own[PHASE], own[UNTIL], own[TOKEN] = 'R', now + tonumber(ARGV[9]), next_token(KEYS[3])
save(KEYS[1], KEYS[2], ARGV[1], rec)
return 'retaken'
