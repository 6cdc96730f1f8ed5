-- Back to waiting: for the next message of the call (before a retry is published) or for the same one (it goes back to
-- the queue). The old message stays good. The holder keeps the id of the run that put it back: sent twice, the act knows
-- itself by it, and a run that was outlived is not taken for the one that put it back.
-- KEYS  record, due, done, old
-- ARGV  digest, task, series, task id, hop, run ('': none had started), new hop, ms to wait at most, done member, spent member,
--       end of its period (0: none), place of the new message (''), ms until its ETA
-- gives 'kept' or 'lost'
local hop, run, new = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local rec = load(KEYS[1], ARGV[2])
local own = find(rec, tonumber(ARGV[3]))
if own and own[RUN] ~= run and not (run == '' and own[PHASE] == 'W' and has(own[HOPS], hop)) then return 'lost' end
if own and own[PHASE] == 'W' and own[RUN] == run and own[HOPS][1] >= new then return 'kept' end
if not own then
  for _, member in ipairs({ARGV[9], ARGV[10]}) do
    if remembered(KEYS[3], KEYS[4], member) then return 'lost' end
  end
  own = {tonumber(ARGV[3]), ARGV[4], run, 'W', 0, tonumber(ARGV[11]), waits_since, {hop}}
  rec[#rec + 1] = own
end
own[RUN], own[PHASE], own[UNTIL] = run, 'W', now + tonumber(ARGV[8])
put(own, ARGV[12], tonumber(ARGV[13]))
if own[HOPS][1] < new then table.insert(own[HOPS], 1, new) end
save(KEYS[1], KEYS[2], ARGV[1], rec)
return 'kept'
