-- Who holds a lock; writes nothing.
-- KEYS  record
-- ARGV  phases that refuse a publish, phases that refuse a start
-- gives {series, id, run, phase, ms left, since, token, newest hop} of the first in the way of a publish, else of a start; or nothing
-- since: the second of its publish, or of the start of its last run
local rec = load(KEYS[1], '')
sweep(rec)
local h = others(rec, nil, ARGV[1], true) or others(rec, nil, ARGV[2])
if not h then return end
local since = h[TOKEN] > 0 and math.floor(h[TOKEN] / 1000000) or -h[TOKEN]
return {h[SERIES], h[ID], h[RUN], h[PHASE], h[UNTIL] - now, since, math.max(h[TOKEN], 0), h[HOPS][1]}
