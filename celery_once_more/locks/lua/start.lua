-- The one question at the start of a run. Sent twice, it recognises its own run.
-- KEYS  record, due, token, done, old
-- ARGV  digest, task, series, task id, hop, limit, phases that refuse, run, lease ms, done member, spent member,
--       1 if the message has a ticket, 1 if the broker says that it was delivered before, what to say if others are in the way
--       ('held' or 'conflict'), end of its period (0: none, or not known), ms of its period (0: none)
-- gives {'run', lapsed, token}, {'done', lapsed} or {'busy' | 'held' | 'conflict', lapsed, id, phase, ms left}
local function waiting_as(rec, id)
  for i = 2, #rec do
    if rec[i][ID] == id and rec[i][PHASE] == 'W' then return rec[i] end
  end
end

local digest, series, id, hop, run = ARGV[1], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[8]
local ticket, known = ARGV[12] == '1', ARGV[12] == '1' or ARGV[13] == '1'
local rec = load(KEYS[1], ARGV[2])
local own = find(rec, series)

local alive = own and runs(own) and own[UNTIL] > now
if alive and own[RUN] == run then return {'run', {}, own[TOKEN]} end
if known and not (own and own[PHASE] == 'W' and #own[HOPS] == 1 and own[HOPS][1] == hop) then
  for _, member in ipairs({ARGV[10], ARGV[11]}) do
    if remembered(KEYS[4], KEYS[5], member) then return {'done', {}} end
  end
end
if own and hop < own[HOPS][1] and not has(own[HOPS], hop) then return {'done', {}} end
if alive then return {known and 'busy' or 'conflict', {}, own[ID], own[PHASE], own[UNTIL] - now} end
if not own and not ticket then own = waiting_as(rec, id) end  -- its ticket was lost on the way

local lapsed, changed = sweep(rec, own)
local first, n = others(rec, own, ARGV[7])
if n >= tonumber(ARGV[6]) then
  if changed then save(KEYS[1], KEYS[2], digest, rec) end
  return {ARGV[14], lapsed, first[ID], first[PHASE], first[UNTIL] - now}
end
if not known then  -- an id published again, by name: what is remembered under it was another message
  redis.call('SREM', KEYS[4], ARGV[10], ARGV[11])
  redis.call('SREM', KEYS[5], ARGV[10], ARGV[11])
end
if not own then
  local stop, period = tonumber(ARGV[15]), tonumber(ARGV[16])
  own = {series, id, '', 'W', 0, (stop > 0 or period == 0) and stop or now + period, waits_since, {hop}}
  rec[#rec + 1] = own
elseif own[SERIES] ~= series then
  own[SERIES], own[HOPS] = series, {hop}
elseif not has(own[HOPS], hop) then
  table.insert(own[HOPS], 1, hop)  -- a retry that was published while the store was away
end
if own[PHASE] == 'R' then lapsed[#lapsed + 1] = {own[ID], 'R'} end
own[RUN], own[PHASE], own[UNTIL], own[TOKEN] = run, 'R', now + tonumber(ARGV[9]), next_token(KEYS[3])
put(own, '')
save(KEYS[1], KEYS[2], digest, rec)
return {'run', lapsed, own[TOKEN]}
