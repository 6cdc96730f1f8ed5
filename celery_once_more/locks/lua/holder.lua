-- Who holds a lock; writes nothing.
-- KEYS  record
-- ARGV  phases that refuse a publish, phases that refuse a start
-- gives {series, id, run, phase, ms left, since, token, newest hop} of the first in the way of a publish, else of a start; or nothing
local rec = load(KEYS[1], '')
sweep(rec)
local h = others(rec, nil, ARGV[1], true) or others(rec, nil, ARGV[2])
return h and {h[SERIES], h[ID], h[RUN], h[PHASE], h[UNTIL] - now, h[SINCE], h[TOKEN], h[HOPS][1]}
