-- A run is over for good: free what it holds, and remember the call as done. Changes nothing for a run that was outlived.
-- KEYS  record, due, done, old
-- ARGV  digest, series, run (none: it ran without a lock, and frees what its message waited with), done member, window ms,
--       1 to remember only what was held
-- gives 'freed', 'kept' (until the end of its period), 'free' (it was freed before), 'gone', 'over' (gone, and the call was
--       remembered as done before) or 'lost'
local rec = load(KEYS[1], '')
local own, i = find(rec, tonumber(ARGV[2]))
if own and own[PHASE] == 'K' and own[RUN] == '' then return 'kept' end  -- it was told before
if own and (own[PHASE] == 'W' and '' or own[RUN]) ~= ARGV[3] then return 'lost' end
if not own and ARGV[6] == '1' then return 'gone' end
local verdict = remembered(KEYS[3], KEYS[4], ARGV[4]) and 'over' or 'gone'
if own then
  verdict = own[PHASE] == 'F' and 'free' or 'freed'
  if kept(own, true) then
    verdict, own[RUN] = 'kept', ''
  else
    table.remove(rec, i)
  end
  save(KEYS[1], KEYS[2], ARGV[1], rec)
end
remember(KEYS[3], KEYS[4], ARGV[4], tonumber(ARGV[5]))
return verdict
