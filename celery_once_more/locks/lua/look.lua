-- How one message stands; writes nothing.
-- KEYS  record, done, old
-- ARGV  series, run, done member, spent member
-- gives {'mine' | 'freed' | 'running' | 'waiting' | 'done' | 'none', ms left, token}
local own = find(load(KEYS[1], ''), tonumber(ARGV[1]))
if own and own[UNTIL] > now and own[PHASE] ~= 'K' then
  local mine = own[PHASE] == 'F' and 'freed' or 'mine'
  local state = own[PHASE] == 'W' and 'waiting' or own[RUN] == ARGV[2] and mine or 'running'
  return {state, own[UNTIL] - now, math.max(own[TOKEN], 0)}
end
for i = 3, 4 do
  if remembered(KEYS[2], KEYS[3], ARGV[i]) then return {'done', 0, 0} end
end
return {'none', 0, 0}
